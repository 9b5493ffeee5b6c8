"""What a device lacks is one sentence; what it is asked for reaches it."""

from __future__ import annotations

import pytest
import torch

from wawa_transformer.common.schema import UserError
from wawa_transformer.model.layers import FeedForward
from wawa_transformer.run.device import translate_device_errors
from wawa_transformer.train.trainer import train


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB."),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"),
    ],
)
def test_memory_that_runs_out_is_answered_by_what_to_lower(
    error: RuntimeError, tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a card, and on a CPU, which has no class for it."""

    def full(*_: object) -> None:
        raise error

    monkeypatch.setattr(FeedForward, "forward", full)
    said = "memory of cpu ran out at trainer.batch_tokens=64; lower trainer.batch_tokens, and raise"
    with pytest.raises(UserError, match=said):
        train(tiny())


def test_a_compiler_that_is_missing_is_named(tiny) -> None:
    """As torch says it when it looks for one."""
    from torch._inductor import config as inductor

    with (
        inductor.patch({"cpp.cxx": (None, "/nowhere/g++")}),
        pytest.raises(UserError, match=r"finds no compiler here \(.*/nowhere/g\+\+.*install g"),
        translate_device_errors(tiny("trainer.compile=true"), torch.device("cpu")),
    ):
        torch.compile(lambda x: x + 1, dynamic=False)(torch.ones(3))


def test_what_has_no_fixed_order_is_refused_where_one_is_asked_for(
    tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The switch reaches torch, and what torch then refuses becomes the key; else it is a bug."""
    switched = []

    def unordered(*_: object) -> None:
        switched.append(torch.are_deterministic_algorithms_enabled())
        raise RuntimeError("cumsum_cuda_kernel does not have a deterministic implementation")

    monkeypatch.setattr(FeedForward, "forward", unordered)
    with pytest.raises(UserError, match="pe=sinusoidal needs .* set trainer.deterministic=false"):
        train(tiny("trainer.deterministic=true"))
    with pytest.raises(RuntimeError, match="cumsum_cuda_kernel"):
        train(tiny())
    assert switched == [True, False]
