"""Linear layers, and on some processors a faster way to their products."""

from __future__ import annotations

import contextlib
import functools
import platform
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

MIN_MULTIPLICATIONS = 2**20  # multiplications from which on the other library pays

# By where a weight lies: the weight and how oneDNN has it, or None where it was met but once.
Layouts = dict[tuple[object, ...], tuple[Tensor, Tensor] | None]
kept: ContextVar[Layouts | None] = ContextVar("kept", default=None)


class Linear(nn.Linear):
    """``torch.nn.Linear``, whose product is that of :func:`linear`."""

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``x (…,I) @ weight (O,I).T + bias (O,)``: ``(…,O)``, as ``F.linear`` has it.

    torch has two libraries for products in float32 on a CPU, and takes MKL; where that is the
    slower one this is oneDNN's. Their sums differ in order alone. :func:`mkl_alone` leaves it at
    the first.
    """
    if suits_onednn(x, weight):
        multiply = OneDNN.apply if torch.is_grad_enabled() else product
        rows = x.reshape(-1, x.size(-1))  # (…,I) -> (N,I)
        return multiply(rows, weight, bias).view(*x.shape[:-1], -1)  # (N,O) -> (…,O)
    return F.linear(x, weight, bias)


class OneDNN(Function):
    """``F.linear`` of ``x (N,I)`` by oneDNN, and its gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return product(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, to_y: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        x, weight = ctx.saved_tensors
        to_x = to_weight = to_bias = None
        if ctx.needs_input_grad[0]:
            to_x = product(to_y, weight.T)  # (N,I)
        if ctx.needs_input_grad[1] and x.size(1) <= to_y.size(1):  # oneDNN copies the first one
            to_weight = product(x.T, to_y.T).T  # (O,I)
        elif ctx.needs_input_grad[1]:
            to_weight = product(to_y.T, x.T)
        if ctx.needs_input_grad[2]:
            to_bias = to_y.sum(dim=0)  # (O,)
        return to_x, to_weight, to_bias


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``F.linear`` of ``x (N,I)`` by oneDNN, without gradients.

    It is what ``torch.compile`` calls for a linear layer on a CPU, and no public function; the
    public one, for tensors in oneDNN's own layout, takes twice the memory and a tenth more time.
    """
    if 1 < len(x) < len(weight):
        weight = laid_out(weight)
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


def laid_out(weight: Tensor) -> Tensor:
    """``weight (O,I)`` as oneDNN would copy it for every product, where it is known to stay.

    Not yet where it is met for the first time, which may be the only one.
    """
    layouts = kept.get()
    if layouts is None:
        return weight
    key = weight.data_ptr(), weight.shape, weight.stride()
    if key not in layouts:
        layouts[key] = None
        return weight
    both = layouts[key] or (weight, torch.ops.mkldnn._reorder_linear_weight(weight))
    layouts[key] = both  # with the weight, or its memory could become another's
    return both[1]


@contextlib.contextmanager
def weights_stay() -> Iterator[None]:
    """Within it no weight changes, and one that meets few rows again and again is laid out once.

    Decoding 32 sentences takes a tenth less time.
    """
    token = kept.set({})
    try:
        yield
    finally:
        kept.reset(token)


def suits_onednn(x: Tensor, weight: Tensor) -> bool:
    """Whether oneDNN can multiply these, and is the faster one here."""
    return (
        not torch.compiler.is_compiling()  # first: a compiler chooses for itself, for all sizes
        and x.numel() * len(weight) >= MIN_MULTIPLICATIONS
        and x.device.type == "cpu"
        and x.dtype == weight.dtype == torch.float32
        and bool(torch.backends.mkldnn.enabled)
        and not torch.is_autocast_enabled("cpu")
        and mkl_is_slow()
    )


@contextlib.contextmanager
def mkl_alone() -> Iterator[None]:
    """For what does not know the other way: who counts products, or makes many of one."""
    before = torch.backends.mkldnn.enabled
    torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
    try:
        yield
    finally:
        torch.backends.mkldnn.enabled = before


@functools.cache
def mkl_is_slow() -> bool:
    """Whether this is a processor of AMD's with AVX-512, which MKL does not use there."""
    two = torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()
    private = hasattr(torch.ops.mkldnn, "_linear_pointwise")  # and so may be gone one day
    if torch.backends.cpu.get_cpu_capability() != "AVX512" or not two or not private:
        return False
    try:
        about = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:  # not Linux
        about = platform.processor()
    return "AuthenticAMD" in about
