"""Linear layers, and on some processors a faster way to their products."""

from __future__ import annotations

import contextlib
import functools
import platform
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LEAST = 2**23  # multiplications from which on another layout pays


class Linear(nn.Linear):
    """``torch.nn.Linear``, whose product is that of :func:`linear`."""

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``x (…,I) @ weight (O,I).T + bias (O,)``: ``(…,O)``, as ``F.linear`` has it.

    torch has two libraries for products in float32 on a CPU and takes MKL; a tensor in oneDNN's
    layout gets the other. Their sums differ in order alone.
    :func:`mkl_alone` leaves it at the first.
    """
    if suits_onednn(x, weight):
        return F.linear(x.to_mkldnn(), weight, bias).to_dense()
    return F.linear(x, weight, bias)


def suits_onednn(x: Tensor, weight: Tensor) -> bool:
    """Whether oneDNN can multiply these, and is the faster one here."""
    return (
        not torch.compiler.is_compiling()  # first: a compiler chooses for itself, for all sizes
        and x.numel() * len(weight) >= LEAST
        and x.device.type == "cpu"
        and x.dtype == weight.dtype == torch.float32
        and bool(torch.backends.mkldnn.enabled)
        and not torch.is_autocast_enabled("cpu")
        and mkl_is_slow()
    )


@contextlib.contextmanager
def mkl_alone() -> Iterator[None]:
    """For what does not know the other layout: who counts products, or makes many of one."""
    before = torch.backends.mkldnn.enabled
    torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
    try:
        yield
    finally:
        torch.backends.mkldnn.enabled = before


@functools.cache
def mkl_is_slow() -> bool:
    """Whether this is a processor of AMD's with AVX-512, which MKL does not use there."""
    if torch.backends.cpu.get_cpu_capability() != "AVX512" or not torch.backends.mkl.is_available():
        return False
    try:
        about = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:  # not Linux
        about = platform.processor()
    return "AuthenticAMD" in about and torch.backends.mkldnn.is_available()
