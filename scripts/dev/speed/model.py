"""A training step beside those of other libraries, and beside its own matrix products."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from speed import peers
from speed.timing import compared, turns_of
from wawa_transformer.data.batching import Batch
from wawa_transformer.fast.linear import mkl_alone, product, suits_onednn
from wawa_transformer.model.loss import cross_entropy, loss_and_nll
from wawa_transformer.model.masks import causal_mask
from wawa_transformer.model.transformer import Transformer

# Vocabulary, d_model, layers, heads, d_ff, batch, length, turns.
SHAPES = {
    "T": (32, 64, 2, 4, 128, 128, 16, 60),
    "S": (8000, 256, 3, 4, 1024, 64, 32, 9),
    "B": (16000, 512, 6, 8, 2048, 16, 64, 5),
}
PEERS = {
    "torch": ("torch", peers.TorchPeer),
    "x_transformers": ("x_transformers", peers.XTransformersPeer),
    "marian": ("transformers", peers.MarianPeer),
}


def measure(device: torch.device) -> dict[str, float]:
    """A training step of ours beside those of others: sizes, dropout, AdamW alike.

    ``bf16`` is ours under ``trainer.bf16``, ``mkl`` ours without :mod:`wawa_transformer.fast.linear`,
    ``plain`` ours without its own dropout and loss as well; ``floor`` its matrix products and no
    more, in fp32.
    """
    found: dict[str, float] = {}
    for name, (*sizes, batch, length, turns) in SHAPES.items():
        vocab = sizes[0]
        ids = torch.randint(4, vocab, (batch, length), device=device)
        ids[: batch // 2, length - 3 :] = 0
        ours = Transformer(vocab, *sizes, seed=0).to(device)
        sides = {
            "ours": training_step(ours, ids, fast=True),
            "bf16": training_step(copy.deepcopy(ours), ids, fast=True, bf16=True),
            "mkl": mkl_alone()(training_step(copy.deepcopy(ours), ids, fast=True)),
        }
        for side, (package, build) in PEERS.items():
            if not peers.absent(package):
                sides[side] = training_step(build(*sizes).to(device), ids)
        sides["plain"] = mkl_alone()(training_step(plain(ours), ids))
        sides["floor"] = floor(training_step(ours, ids), device)
        found |= compared(turns_of(sides, f"shape {name}", turns), f"{name}_")
    return found


def training_step(built: nn.Module, ids: Tensor, **how: bool) -> Callable[[], None]:
    """One step of AdamW on copying ``ids (B,S)``."""
    return training_steps(built, [Batch(ids, ids, ids)], **how)


def training_steps(
    built: nn.Module, batches: Sequence[Batch], fast: bool = False, bf16: bool = False
) -> Callable[[], None]:
    """A step of AdamW on each of ``batches``; ``fast``: with the loss of scripts/train.py."""
    device = batches[0].source.device.type
    optimizer = torch.optim.AdamW(built.parameters(), fused=True)

    def steps() -> None:
        for batch in batches:
            with torch.autocast(device, torch.bfloat16, enabled=bf16):
                if fast:
                    mask = causal_mask(batch.target_in.size(1), device=batch.source.device)
                    states = built(batch.source, batch.target_in, tgt_mask=mask, logits=False)
                    weight: Tensor = built.output.weight  # type: ignore[assignment, union-attr]
                    loss, _ = loss_and_nll(states, weight, batch.target_out)
                else:
                    loss = cross_entropy(built(batch.source, batch.target_in), batch.target_out)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        if device == "cuda":
            torch.cuda.synchronize()

    return steps


def plain(ours: Transformer) -> Transformer:
    """A copy of the model with dropout as torch has it."""
    copied = copy.deepcopy(ours)
    for module in copied.modules():
        if isinstance(module, Dropout):
            module.__class__ = nn.Dropout  # type: ignore[assignment]
    return copied


class Products(TorchDispatchMode):
    """The shapes of every matrix product of a step; attention's are counted as its formulas."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: list[tuple[tuple[int, ...], tuple[int, ...]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.split("::")[1]
        if name in ("mm", "bmm"):
            self.shapes.append((tuple(args[0].shape), tuple(args[1].shape)))
        elif name in ("addmm", "addmm_", "baddbmm"):
            self.shapes.append((tuple(args[1].shape), tuple(args[2].shape)))
        elif name.startswith("_scaled_dot_product"):
            backward = "backward" in name
            query, key = (args[i].shape for i in ((1, 2) if backward else (0, 1)))
            batch, rows, keys, width = query[0] * query[1], query[2], key[2], query[3]
            scores = ((batch, rows, width), (batch, width, keys))
            values = ((batch, rows, keys), (batch, keys, width))
            # Two of each again: every product has a gradient on either side.
            self.shapes += [scores, values] * (2 if backward else 1)
        return func(*args, **(kwargs or {}))


def floor(step: Callable[[], None], device: torch.device) -> Callable[[], None]:
    """The matrix products of ``step`` and nothing else, one after the other.

    By the library that is the faster one.
    """
    with mkl_alone(), Products() as products:
        step()
    made: dict[tuple[tuple[int, ...], ...], Callable[[], Tensor]] = {}
    for left, right in products.shapes:
        a, b = torch.randn(left, device=device), torch.randn(right, device=device)
        made[left, right] = partial(torch.matmul, a, b)
        if a.ndim == 2 and suits_onednn(a, b.T):
            made[left, right] = partial(product, a, b.T.contiguous())

    def multiply() -> None:
        for pair in products.shapes:
            made[pair]()
        if device.type == "cuda":
            torch.cuda.synchronize()

    return multiply
