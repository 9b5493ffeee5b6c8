"""Linear layers by way of oneDNN, which on most processors nobody takes, against a formula."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch._dynamo.testing import CompileCounter

from wawa_transformer import linear as module
from wawa_transformer import loss, machine
from wawa_transformer.linear import Linear, linear, mkl_alone, mkl_is_slow
from wawa_transformer.runs import Run
from wawa_transformer.training import train


@pytest.fixture(autouse=True)
def taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """On any processor, and for any size."""
    monkeypatch.setattr(module, "mkl_is_slow", lambda: True)
    monkeypatch.setattr(module, "LEAST", 1)


def by_onednn(y: Tensor) -> bool:
    """Whether ``y`` came out of the other layout."""
    assert y.grad_fn is not None
    return "ToDense" in y.grad_fn.name()


@given(
    sizes=st.lists(st.integers(1, 24), min_size=3, max_size=4),
    turned=st.booleans(),
    sliced=st.booleans(),
    biased=st.booleans(),
)
def test_the_product_and_its_gradients_are_the_formula(
    sizes: list[int], turned: bool, sliced: bool, biased: bool
) -> None:
    """In float64; of tensors that do not lie in order, too."""
    *batch, out, inner = sizes
    x, weight = torch.randn(*batch, inner), torch.randn(out + sliced, inner)
    if turned:
        x, weight = x.transpose(0, -1).contiguous().transpose(0, -1), weight.T.contiguous().T
    every = [x, weight, torch.randn(out)][: 2 + biased]
    ours = [t.clone(memory_format=torch.preserve_format).requires_grad_() for t in every]
    exact = [t.double().requires_grad_() for t in every]
    weights = torch.randn(*batch, out)

    def of(parts: list[Tensor]) -> list[Tensor]:
        return [parts[0], parts[1][sliced:], *parts[2:]]

    y = linear(*of(ours))
    assert by_onednn(y)
    (y * weights).sum().backward()
    x64, w64, *bias = of(exact)
    expected = torch.einsum("...i,oi->...o", x64, w64) + (bias[0] if bias else 0)
    (expected * weights).sum().backward()
    torch.testing.assert_close(y.double(), expected, rtol=1e-5, atol=1e-4)
    for mine, reference in zip(ours, exact, strict=True):
        torch.testing.assert_close(mine.grad.double(), reference.grad, rtol=1e-5, atol=1e-4)


def test_only_what_it_is_for_goes_this_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever else comes is ``F.linear``'s, to the last bit."""
    layer = Linear(8, 5)
    x = torch.randn(4, 8)
    assert by_onednn(layer(x)) and by_onednn(layer(x[None]))

    def plain(layer: Linear, x: Tensor) -> bool:
        y = layer(x)
        assert torch.equal(y, F.linear(x, layer.weight, layer.bias))
        return not by_onednn(y)

    assert plain(Linear(8, 5).double(), x.double())
    assert plain(Linear(8, 5).bfloat16(), x.bfloat16())
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(x).dtype == torch.bfloat16
    with mkl_alone():
        assert plain(layer, x)
        with mkl_alone():
            pass
        assert plain(layer, x), "a second one inside gave back too much"
    assert by_onednn(layer(x))
    with contextlib.suppress(KeyError), mkl_alone():
        raise KeyError
    assert by_onednn(layer(x)), "what fails inside leaves nothing behind"
    monkeypatch.setattr(module, "LEAST", 4 * 8 * 5 + 1)
    assert plain(layer, x)
    monkeypatch.setattr(module, "LEAST", 4 * 8 * 5)
    assert by_onednn(layer(x))
    monkeypatch.setattr(module, "mkl_is_slow", lambda: False)
    assert plain(layer, x)


def test_a_compiler_sees_one_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """The choice is the compiler's, and no size makes it compile again but the second."""
    torch._dynamo.reset()
    monkeypatch.setattr(module, "LEAST", 1000)
    layer, counter = Linear(8, 5), CompileCounter()
    compiled = torch.compile(layer, backend=counter, fullgraph=True)
    for rows in (3, 4, 5, 400):  # 120 … 16,000 multiplications
        x = torch.randn(rows, 8)
        assert torch.equal(compiled(x), F.linear(x, layer.weight, layer.bias))
    assert counter.frame_count == 2


@pytest.mark.parametrize(
    ("about", "capability", "slow"),
    [
        ("vendor_id : AuthenticAMD", "AVX512", True),
        ("vendor_id : AuthenticAMD", "AVX2", False),
        ("vendor_id : GenuineIntel", "AVX512", False),
        (None, "AVX512", True),
    ],
)
def test_whose_processors_these_are(
    about: str | None, capability: str, slow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """AMD's with AVX-512, by what Linux says; where it is another system, by what Python says."""

    def read(path: Path, **_: str) -> str:
        if about is None:
            raise FileNotFoundError(path)
        return about

    monkeypatch.setattr(Path, "read_text", read)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    name = "AMD64 Family 26, AuthenticAMD"  # as Windows has it
    monkeypatch.setattr(module.platform, "processor", lambda: name)
    assert mkl_is_slow.__wrapped__() is slow
    for other in (torch.backends.mkl, torch.backends.mkldnn):
        with monkeypatch.context() as patch:
            patch.setattr(other, "is_available", lambda: False)
            assert mkl_is_slow.__wrapped__() is False


def test_utilisation_is_measured_by_what_a_step_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it could be more than all."""
    asked, real = [], F.linear

    def noted(x: Tensor, *others: Tensor) -> Tensor:
        asked.append(x.is_mkldnn)
        return real(x, *others)

    monkeypatch.setattr(F, "linear", noted)
    assert machine.matrix_rate.__wrapped__(torch.device("cpu")) > 1e6
    assert asked and all(asked)


def test_a_run_takes_it_and_is_the_same(tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    """Curves agree until rounding grows; operations are counted alike."""
    config = tiny("trainer.steps=10", "trainer.log_every=1")
    monkeypatch.setattr(loss, "MANY_WORDS", 1)  # its products, too
    curves, results = [], []
    for slow in (True, False):
        monkeypatch.setattr(module, "mkl_is_slow", lambda slow=slow: slow)
        config.output_dir += "x"
        results.append(train(config))
        rows = Run.of(config).metrics()
        curves.append([row["nll"] for row in rows if row["split"] == "train"])
    assert curves[0] == pytest.approx(curves[1], rel=1e-5)
    assert curves[0] != curves[1], "rounding tells them apart"
    assert results[0]["flops_per_step"] == results[1]["flops_per_step"] > 0
