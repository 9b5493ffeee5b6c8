"""Time training steps on a GPU: as they are, compiled, and as a CUDA graph."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from speed.model import Products, ours, training_step
from speed.timing import ratio, turns_of
from wawa_transformer.train.trainer import peak_flops

# The arguments of ``compile``. None leaves the model as it is.
WAYS: dict[str, dict[str, Any] | None] = {
    "eager": None,
    "compiled": {"dynamic": False},
    "graphs": {"dynamic": False, "mode": "reduce-overhead"},  # a CUDA graph for each shape
}
# Vocabulary, d_model, layers, heads, d_ff, batch, length, turns: a step of the default study, and
# one of the paper's base model with 32,768 tokens on either side.
STEPS = {
    "tiny": (32, 64, 1, 4, 256, 32, 11, 60),
    "base": (16000, 512, 6, 8, 2048, 512, 64, 9),
}


def measurements(device: torch.device) -> dict[str, Callable[[], dict[str, float]]]:
    """List each :func:`step` by name."""
    return {f"step_{name}": partial(step, device, name) for name in STEPS}


def step(device: torch.device, name: str) -> dict[str, float]:
    """Time a training step in bf16 in each of :data:`WAYS`.

    ``mfu`` is the share of the step's time that its operations would take in one large matrix
    product.
    """
    found: dict[str, float] = {}
    peak = peak_flops(device, bf16=True, fast=False)
    *sizes, batch, length, turns = STEPS[name]
    ids = torch.randint(4, sizes[0], (batch, length), device=device)
    with Products() as products:
        training_step(ours(device, *sizes, fast=False), ids)()
    sides = {}
    for way, told in WAYS.items():
        model = ours(device, *sizes, fast=False)
        if told is not None:
            model.compile(**told)
        sides[way] = training_step(model, ids, bf16=True)
    taken = turns_of(sides, f"{name} step", turns)
    for way, seconds in taken.items():
        median = statistics.median(seconds)
        found[f"{name}_{way}_milliseconds"] = 1000 * median
        found[f"{name}_{way}_mfu"] = products.flops / median / peak
        if way != "eager":
            found[f"{name}_eager_over_{way}"] = ratio(taken["eager"], seconds)
    return found
