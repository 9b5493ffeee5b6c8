"""Shared helpers: a small model, padded ids, a single encoding."""

from typing import Any

import torch
from support import MODELS
from torch import Tensor, nn

from wawa_transformer import Transformer
from wawa_transformer.positional import build_encoding
from wawa_transformer.positional.base import EncodingContext

# Of different sizes, so that none can stand for another: a head has 6 dimensions.
V, D, HEADS, FF, LAYERS = 13, 24, 4, 20, 2


def small_model(name: str = "sinusoidal", **changes: Any) -> Transformer:
    """Build an entry of MODELS in float64, in evaluation mode.

    The model has no dropout.
    """
    shape = {"d_model": D, "num_layers": LAYERS, "num_heads": HEADS, "d_ff": FF}
    arguments: Any = {**shape, "dropout": 0.0, "seed": 3, **MODELS[name], **changes}
    return Transformer(V, V, **arguments).double().eval()


def padded_ids(batch: int, length: int, seed: int) -> Tensor:
    """Draw ids ``(B,S)`` whose rows end on 0, 1, 2, … padding.

    No row is empty if ``length`` is at least ``batch``.
    """
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(1, V, (batch, length), generator=generator)
    for row in range(batch):
        ids[row, length - row :] = 0
    return ids


def make(kind: str, role: str = "encoder", **settings: Any) -> Any:
    """Build a single encoding of width 12 and 3 heads.

    The encoding is in float64 and in evaluation mode.
    """
    context = EncodingContext(12, 3, dropout=0.0, role=role)
    return build_encoding(kind, context, settings).double().eval()


def perturbed(encoding: nn.Module, seed: int = 0) -> Any:
    """Move every parameter of a model or an encoding, since some start at zero."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in encoding.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) / 3)
    return encoding


def heads(length: int, seed: int = 0) -> Tensor:
    """Draw queries or keys ``(2,3,S,4)`` for an encoding of :func:`make`."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, 3, length, 4, dtype=torch.float64, generator=generator)
