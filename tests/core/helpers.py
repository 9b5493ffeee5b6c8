"""What several files of tests share: a small model, ids with padding, an encoding by itself."""

from __future__ import annotations

from typing import Any

import torch
from conftest import MODELS
from torch import Tensor

from wawa_transformer import Transformer
from wawa_transformer.positional import build_encoding
from wawa_transformer.positional.base import Encoding, EncodingContext

V, D, HEADS, FF, LAYERS = 13, 16, 4, 24, 2


def small_model(name: str = "sinusoidal", **changes: Any) -> Transformer:
    """An entry of MODELS in float64, without dropout, in evaluation mode."""
    arguments = {"dropout": 0.0, "seed": 3, **MODELS[name], **changes}
    return Transformer(V, V, D, LAYERS, HEADS, FF, **arguments).double().eval()


def padded_ids(batch: int, length: int, seed: int) -> Tensor:
    """Ids ``(B,S)`` whose rows end on 0, 1, 2, … padding, no row empty."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(1, V, (batch, length), generator=generator)
    for row in range(batch):
        ids[row, length - row :] = 0
    return ids


def make(kind: str, role: str = "encoder", **settings: Any) -> Any:
    """An encoding by itself, of width 12 and 3 heads, in float64 and evaluation mode."""
    context = EncodingContext(12, 3, dropout=0.0, role=role)
    return build_encoding(kind, context, settings).double().eval()


def perturbed(encoding: Encoding, seed: int = 0) -> Any:
    """The encoding with every parameter moved, since some start at zero."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in encoding.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) / 3)
    return encoding


def heads(length: int, seed: int = 0) -> Tensor:
    """Queries or keys for an encoding of :func:`make`: ``(2,3,S,4)``."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, 3, length, 4, dtype=torch.float64, generator=generator)
