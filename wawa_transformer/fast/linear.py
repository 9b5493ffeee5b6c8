"""Matrix products by oneDNN on processors where torch's default library is slower."""

import functools
import platform
from pathlib import Path
from typing import Any, Self
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

MIN_MULTIPLICATIONS = 2**20  # of a product, for oneDNN to pay

# For each module in evaluation: by address and layout the weight's version, the weight, and the
# weight in oneDNN's layout (None until it is used a second time). The weight is held, so that no
# other weight can get its address.
PACKED: WeakKeyDictionary[nn.Module, dict[Any, tuple[int, Tensor, Tensor | None]]]
PACKED = WeakKeyDictionary()


class FastLinear(nn.Linear):
    """``torch.nn.Linear`` whose product is :func:`fast_linear`."""

    def forward(self, x: Tensor) -> Tensor:
        return fast_linear(x, self.weight, self.bias, self)

    def train(self, mode: bool = True) -> Self:
        if mode:
            PACKED.pop(self, None)
        return super().train(mode)


def fast_linear(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, owner: nn.Module | None = None
) -> Tensor:
    """``F.linear`` of ``x (…,I)``, ``weight (O,I)``, ``bias (O,)``: ``(…,O)``.

    torch has two libraries for float32 products on a CPU, MKL and oneDNN, and takes MKL. MKL leaves
    AVX-512 unused on AMD's processors. oneDNN does use it there, so large products go to oneDNN.
    Their sums differ in order alone. While its ``owner`` is in evaluation mode, a weight that is
    used again is kept in oneDNN's layout.
    """
    if owner is not None and not owner.training and torch.is_grad_enabled():
        # The weight may be trained in evaluation mode, and a fused optimiser leaves its version.
        PACKED.pop(owner, None)
    if not suits_onednn(x, weight):
        return F.linear(x, weight, bias)
    rows = x.reshape(-1, x.size(-1))  # (…,I) -> (N,I)
    if torch.is_grad_enabled():
        y = OneDNN.apply(rows, weight, bias)
    else:
        if owner is not None and not owner.training and 1 < len(rows) < len(weight):
            weight = packed(weight, owner)
        y = product(rows, weight, bias)
    return y.view(*x.shape[:-1], -1)  # (N,O) -> (…,O)


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
        if ctx.needs_input_grad[1] and x.size(1) <= to_y.size(1):  # oneDNN copies the first factor
            to_weight = product(x.T, to_y.T).T  # (O,I)
        elif ctx.needs_input_grad[1]:
            to_weight = product(to_y.T, x.T)
        if ctx.needs_input_grad[2]:
            to_bias = to_y.sum(dim=0)  # (O,)
        return to_x, to_weight, to_bias


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``F.linear`` of ``x (N,I)`` by oneDNN, without gradients.

    ``torch.compile`` calls this operator for a linear layer on a CPU. It is not public. The public
    one, for tensors in oneDNN's own layout, takes twice the memory and a tenth more time.
    """
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


def packed(weight: Tensor, owner: nn.Module) -> Tensor:
    """``weight (O,I)`` in oneDNN's layout, from its second use on; a single use pays nothing."""
    if weight.is_inference():  # made in torch.inference_mode: it has no version
        return weight
    weights = PACKED.setdefault(owner, {})
    key = weight.data_ptr(), weight.shape, weight.stride()
    version, held, kept = weights.get(key, (-1, weight, None))
    if version != weight._version:  # new here, or changed since
        weights[key] = weight._version, weight.detach(), None
        return weight
    if kept is None:
        kept = torch.ops.mkldnn._reorder_linear_weight(weight)
        weights[key] = version, held, kept
    return kept


def suits_onednn(x: Tensor, weight: Tensor) -> bool:
    """True if oneDNN can multiply these, and does so faster."""
    return (
        x.numel() * len(weight) >= MIN_MULTIPLICATIONS
        and x.device.type == "cpu"
        and x.dtype == weight.dtype == torch.float32
        and bool(torch.backends.mkldnn.enabled)
        and not torch.is_autocast_enabled("cpu")
        and mkl_is_slow()
    )


@functools.cache
def mkl_is_slow() -> bool:
    """True on AMD's processors with AVX-512, which MKL does not use there."""
    both = torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()
    private = hasattr(torch.ops.mkldnn, "_linear_pointwise")  # another torch may not have it
    if torch.backends.cpu.get_cpu_capability() != "AVX512" or not both or not private:
        return False
    try:
        about = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:  # not Linux
        about = platform.processor()
    return "AuthenticAMD" in about
