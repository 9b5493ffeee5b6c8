"""Time a training step against other libraries and its matrix products.

On a GPU, also time a step as it is, compiled, and as a CUDA graph.
"""

import math
import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import profile

from speed import peers
from speed.timing import compared, ratio, turns_of
from wawa_transformer.model.loss import loss_and_nll
from wawa_transformer.model.masks import causal_mask
from wawa_transformer.model.transformer import Transformer
from wawa_transformer.run.device import has_bf16
from wawa_transformer.train.trainer import peak_flops

# Vocabulary, d_model, layers, heads, d_ff, batch, length, turns.
SHAPES = {
    "T": (32, 64, 2, 4, 128, 128, 16, 60),
    "S": (8000, 256, 3, 4, 1024, 64, 32, 9),
    "B": (16000, 512, 6, 8, 2048, 16, 64, 5),
}
# The arguments of ``compile``. None leaves the model as it is.
WAYS: dict[str, dict[str, Any] | None] = {
    "eager": None,
    "compiled": {"dynamic": False},
    "graphs": {"dynamic": False, "mode": "reduce-overhead"},  # a CUDA graph for each shape
}
# The products of matrices, and the place of their first matrix among the arguments.
PRODUCTS = {"aten::mm": 0, "aten::bmm": 0, "aten::addmm": 1, "aten::addmm_": 1, "aten::baddbmm": 1}
# Vocabulary, d_model, layers, heads, d_ff, batch, length, turns: a step of the default study, and
# one of the paper's base model with 32,768 tokens on either side.
STEPS = {
    "tiny": (32, 64, 1, 4, 256, 32, 11, 60),
    "base": (16000, 512, 6, 8, 2048, 512, 64, 9),
}


def measurements(device: torch.device) -> dict[str, Callable[[], dict[str, float]]]:
    """List :func:`shape` for each shape, and on a GPU each :func:`step`, by name."""
    steps = STEPS if device.type == "cuda" else ()
    return {
        **{name: partial(shape, device, name) for name in SHAPES},
        **{f"step_{name}": partial(step, device, name) for name in steps},
    }


def shape(device: torch.device, name: str) -> dict[str, float]:
    """Time a training step of our model and of other libraries.

    All sides have the same sizes, dropout and AdamW. ``bf16`` is our model with
    ``trainer.bf16=true``, where the device has bf16. ``floor`` is only the matrix products of a
    step, in fp32.
    """
    *sizes, batch, length, turns = SHAPES[name]
    ids = torch.randint(4, sizes[0], (batch, length), device=device)
    ids[: batch // 2, length - 3 :] = 0
    sides = {"ours": training_step(ours(device, *sizes), ids)}
    # A processor without bf16 emulates bf16, 20 times as slow as fp32.
    if device.type != "cpu" or has_bf16():
        sides["bf16"] = training_step(ours(device, *sizes), ids, bf16=True)
    sides["torch"] = training_step(peers.TorchPeer(*sizes).to(device), ids)
    if not peers.absent("transformers"):
        sides["marian"] = training_step(peers.MarianPeer(*sizes).to(device), ids)
    sides["floor"] = floor(sides["ours"], device)
    return compared(turns_of(sides, f"shape {name}", turns), f"{name}_")


def step(device: torch.device, name: str) -> dict[str, float]:
    """Time a training step in bf16 in each of :data:`WAYS`.

    ``mfu`` is the share of the step's time that its operations would take in one large matrix
    product.
    """
    numbers: dict[str, float] = {}
    peak = peak_flops(device, bf16=True)
    *sizes, batch, length, turns = STEPS[name]
    ids = torch.randint(4, sizes[0], (batch, length), device=device)
    flops = flops_of(products_of(training_step(ours(device, *sizes), ids)))
    sides = {}
    for way, told in WAYS.items():
        model = ours(device, *sizes)
        if told is not None:
            model.compile(**told)
        sides[way] = training_step(model, ids, bf16=True)
    taken = turns_of(sides, f"{name} step", turns)
    for way, seconds in taken.items():
        median = statistics.median(seconds)
        numbers[f"{name}_{way}_milliseconds"] = 1000 * median
        numbers[f"{name}_{way}_mfu"] = flops / median / peak
        if way != "eager":
            numbers[f"{name}_eager_over_{way}"] = ratio(taken["eager"], seconds)
    return numbers


def ours(device: torch.device, vocab: int, *sizes: int, **settings: Any) -> Transformer:
    """Build our model as scripts/train.py does."""
    return Transformer(vocab, vocab, *sizes, seed=0, **settings).to(device)


def training_step(built: nn.Module, ids: Tensor, bf16: bool = False) -> Callable[[], None]:
    """Make a function that takes one AdamW step on copying ``ids (B,S)``.

    Our model computes its own loss. A peer's loss is computed from its logits.
    """
    optimizer = torch.optim.AdamW(built.parameters(), fused=True)

    def step() -> None:
        with torch.autocast(ids.device.type, torch.bfloat16, enabled=bf16):
            if isinstance(built, Transformer):
                mask = causal_mask(ids.size(1), device=ids.device)
                loss, _ = built(ids, ids, tgt_mask=mask, targets=ids)
            else:
                loss = loss_and_nll(built(ids, ids), ids)[0]
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if ids.is_cuda:
            torch.cuda.synchronize()

    return step


Shapes = list[tuple[list[int], list[int]]]  # of both sides of each product


def products_of(step: Callable[[], None]) -> Shapes:
    """Record the shapes of all matrix products of a step, those inside attention included."""
    # A fused kernel would hide the products of attention.
    with sdpa_kernel(SDPBackend.MATH), profile(record_shapes=True) as recorded:
        step()
    places = [(PRODUCTS.get(each.name), each.input_shapes) for each in recorded.events()]
    return [(sides[at], sides[at + 1]) for at, sides in places if at is not None]


def flops_of(products: Shapes) -> int:
    """The number of floating-point operations of all products."""
    return sum(2 * math.prod(left) * right[-1] for left, right in products)


def floor(step: Callable[[], None], device: torch.device) -> Callable[[], None]:
    """Make a function that computes only the matrix products of ``step``."""
    made: dict[str, Callable[[], Tensor]] = {}
    products = products_of(step)
    for left, right in products:
        a, b = torch.randn(left, device=device), torch.randn(right, device=device)
        made[f"{left} {right}"] = partial(torch.matmul, a, b)

    def multiply() -> None:
        for left, right in products:
            made[f"{left} {right}"]()
        if device.type == "cuda":
            torch.cuda.synchronize()

    return multiply
