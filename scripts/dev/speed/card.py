"""Measurements that need a GPU.

The measurements are a compiled step, a step as a CUDA graph, and a bias inside the kernel.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from speed.model import Products, ours, training_step
from speed.timing import ratio, turns_of
from wawa_transformer.fast.positional import rel_shift
from wawa_transformer.model.masks import causal_mask
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
# Tokens, heads, head width, lengths, turns.
BIASES = (16384, 8, 64, (256, 1024, 4096), 20)


def measurements(device: torch.device) -> dict[str, Callable[[], dict[str, float]]]:
    """List each :func:`step` and each :func:`bias` by name."""
    return {
        **{f"step_{name}": partial(step, device, name) for name in STEPS},
        **{f"bias_{length}": partial(bias, device, length) for length in BIASES[3]},
    }


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


def bias(device: torch.device, length: int) -> dict[str, float]:
    """Time causal attention with a trained bias for each head and distance.

    The time includes forward and backward. ``formed`` forms the bias for all pairs, and torch's
    kernel adds the bias. ``flex`` looks the bias up in the kernel that ``flex_attention`` compiles.
    """
    tokens, heads, width, _, turns = BIASES
    flex = torch.compile(flex_attention, dynamic=False)
    shape = (tokens // length, heads, length, width)
    leaves = [torch.randn(shape, device=device, dtype=torch.bfloat16) for _ in range(3)]
    leaves.append(torch.randn(heads, 2 * length - 1, device=device))
    inputs = [leaf.requires_grad_() for leaf in leaves]
    seen = causal(length, device)
    sides = {
        "formed": partial(there_and_back, formed, inputs),
        "flex": partial(there_and_back, partial(looked_up, flex=flex, seen=seen), inputs),
    }
    taken = turns_of(sides, f"a bias, length {length}", turns)
    return {f"bias_{length}_flex_over_formed": ratio(taken["flex"], taken["formed"])}


def causal(length: int, device: torch.device) -> BlockMask:
    """Build the causal mask that ``flex_attention`` takes."""
    here = str(device)
    return create_block_mask(lambda b, h, i, j: i >= j, None, None, length, length, device=here)


def there_and_back(attention: Callable[..., Tensor], inputs: list[Tensor]) -> None:
    """Run attention forward and backward, and wait for the GPU."""
    attention(*inputs).sum().backward()
    for each in inputs:
        each.grad = None
    if inputs[0].device.type == "cuda":
        torch.cuda.synchronize()


def formed(q: Tensor, k: Tensor, v: Tensor, values: Tensor) -> Tensor:
    """Compute causal attention with the bias formed for all pairs.

    Shapes: ``q, k, v (B,H,S,Dh)``, and ``values (H,2S-1)``, one for each distance.
    """
    length = q.size(2)
    bias = rel_shift(values[None, :, None], length)  # (1,H,S,S)
    hidden = torch.where(causal_mask(length, device=q.device), 0.0, -torch.inf)
    return F.scaled_dot_product_attention(q, k, v, (bias + hidden).to(q.dtype))


def looked_up(
    q: Tensor, k: Tensor, v: Tensor, values: Tensor, flex: Callable[..., Tensor], seen: BlockMask
) -> Tensor:
    """Compute the same attention without forming the bias."""
    last = q.size(2) - 1

    def biased(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return score + values[h, j - i + last]

    return flex(q, k, v, score_mod=biased, block_mask=seen)
