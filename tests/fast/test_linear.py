"""Products by oneDNN, which most processors never use, against a formula; and packed weights."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from wawa_transformer.fast import linear
from wawa_transformer.fast.linear import FastLinear, fast_linear
from wawa_transformer.train import trainer

pytestmark = pytest.mark.skipif(
    not hasattr(torch.ops.mkldnn, "_linear_pointwise"), reason="this torch has no oneDNN"
)


@pytest.fixture(autouse=True)
def taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """On any processor, and for any size."""
    monkeypatch.setattr(linear, "mkl_is_slow", lambda: True)
    monkeypatch.setattr(linear, "MIN_MULTIPLICATIONS", 1)


def by_onednn(y: Tensor) -> bool:
    """True if ``y``, or what it is a view of, was multiplied by oneDNN."""
    assert y.grad_fn is not None
    return "OneDNN" in y.grad_fn.next_functions[0][0].name()


@given(
    sizes=st.lists(st.integers(1, 24), min_size=2, max_size=4),
    transposed=st.booleans(),
    sliced=st.booleans(),
    biased=st.booleans(),
)
def test_the_product_and_its_gradients_are_the_formula(
    sizes: list[int], transposed: bool, sliced: bool, biased: bool
) -> None:
    """In float64; also of transposed tensors and slices."""
    *batch, out, inner = sizes
    x, weight = torch.randn(*batch, inner), torch.randn(out + sliced, inner)
    if transposed:
        x, weight = x.transpose(0, -1).contiguous().transpose(0, -1), weight.T.contiguous().T
    every = [x, weight, torch.randn(out)][: 2 + biased]
    ours = [t.clone(memory_format=torch.preserve_format).requires_grad_() for t in every]
    exact = [t.double().requires_grad_() for t in every]
    weights = torch.randn(*batch, out)

    def of(parts: list[Tensor]) -> list[Tensor]:
        return [parts[0], parts[1][sliced:], *parts[2:]]

    y = fast_linear(*of(ours))
    assert by_onednn(y)
    (y * weights).sum().backward()
    x64, w64, *bias = of(exact)
    expected = torch.einsum("...i,oi->...o", x64, w64) + (bias[0] if bias else 0)
    (expected * weights).sum().backward()
    torch.testing.assert_close(y.double(), expected, rtol=1e-5, atol=1e-4)
    for mine, reference in zip(ours, exact, strict=True):
        torch.testing.assert_close(mine.grad.double(), reference.grad, rtol=1e-5, atol=1e-4)


def by_optimizer(layer: nn.Linear) -> None:
    optimizer = torch.optim.AdamW(layer.parameters(), lr=1.0, fused=True)
    with torch.enable_grad():
        layer(torch.ones(1, 16)).sum().backward()
    optimizer.step()


def by_another_parameter(layer: nn.Linear) -> None:
    del layer.weight  # so that the next one may get its memory
    layer.weight = nn.Parameter(torch.randn(64, 16))


CHANGES: dict[str, Callable[[nn.Linear], Any]] = {
    "in place": lambda layer: layer.weight.mul_(2),
    "a slice in place": lambda layer: layer.weight[3:5].zero_(),
    "loaded": lambda layer: layer.load_state_dict(nn.Linear(16, 64).state_dict()),
    "by an optimiser": by_optimizer,
    "another parameter": by_another_parameter,
    "rounded": lambda layer: layer.bfloat16().float(),
    "other data": lambda layer: setattr(layer.weight, "data", torch.randn(64, 16)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_weight_is_never_served_stale(name: str) -> None:
    """However it is changed, and whoever gets the memory of another."""
    layer, x = FastLinear(16, 64).eval(), torch.randn(4, 16)
    with torch.no_grad():
        layer.weight = nn.Parameter(torch.randn(64, 16))
        for _ in range(12):
            for _ in range(3):
                torch.testing.assert_close(layer(x), x @ layer.weight.T + layer.bias)
            CHANGES[name](layer)


def test_layers_made_in_inference_mode_are_served() -> None:
    """Their weights have no version, and so are not packed."""
    with torch.inference_mode():
        layer, x = FastLinear(16, 64).eval(), torch.randn(4, 16)
        for _ in range(3):
            torch.testing.assert_close(layer(x), x @ layer.weight.T + layer.bias)


def test_other_products_are_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    """To the last bit."""
    layer, x = FastLinear(8, 5), torch.randn(4, 8)
    assert by_onednn(layer(x)) and by_onednn(layer(x[None]))

    def plain(layer: nn.Linear, x: Tensor) -> bool:
        y = layer(x)
        assert torch.equal(y, F.linear(x, layer.weight, layer.bias))
        return not by_onednn(y)

    assert plain(FastLinear(8, 5).double(), x.double())
    assert plain(FastLinear(8, 5).bfloat16(), x.bfloat16())
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(x).dtype == torch.bfloat16
    with torch.backends.mkldnn.flags(enabled=False):
        assert plain(layer, x)
    monkeypatch.setattr(linear, "MIN_MULTIPLICATIONS", 4 * 8 * 5 + 1)
    assert plain(layer, x)
    monkeypatch.setattr(linear, "MIN_MULTIPLICATIONS", 4 * 8 * 5)
    assert by_onednn(layer(x))
    monkeypatch.setattr(linear, "mkl_is_slow", lambda: False)
    assert plain(layer, x)


def test_mfu_is_measured_by_what_a_step_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it could be more than one."""
    made: list[Any] = []
    product = linear.product
    monkeypatch.setattr(linear, "product", lambda *given: made.append(given) or product(*given))
    assert trainer.peak_flops.__wrapped__(torch.device("cpu"), False, True) > 1e6
    assert len(made) == 5
