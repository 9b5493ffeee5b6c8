"""Products by oneDNN, which most processors never use, against a formula; and packed weights."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from wawa_transformer import Transformer
from wawa_transformer.data.load import tokenize_split
from wawa_transformer.data.text import build_task
from wawa_transformer.decode import translation
from wawa_transformer.fast import accelerate, linear, loss
from wawa_transformer.fast.linear import PACKED, FastLinear, fast_linear, mkl_is_slow
from wawa_transformer.run import device as run_device
from wawa_transformer.run.run_dir import Run
from wawa_transformer.train.trainer import train

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


@pytest.fixture
def products(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """What oneDNN multiplied since."""
    made: list[Tensor] = []
    real = linear.product

    def noted(*tensors: Tensor) -> Tensor:
        made.append(real(*tensors))
        return made[-1]

    monkeypatch.setattr(linear, "product", noted)
    return made


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


def test_no_product_is_made_for_nothing(products: list[Tensor]) -> None:
    """A gradient that nobody asks for costs none, as of data or of a frozen weight."""
    asked, weight = torch.randn(4, 8), torch.randn(5, 8, requires_grad=True)
    fast_linear(asked, weight).sum().backward()
    assert len(products) == 2 and weight.grad is not None
    fast_linear(asked.requires_grad_(), weight.detach()).sum().backward()
    assert len(products) == 4 and asked.grad is not None


def test_nothing_is_kept_but_what_was_given() -> None:
    """oneDNN's public operator keeps copies for the gradients: twice the memory of a step."""
    x, weight = torch.randn(2, 4, 8, requires_grad=True), torch.randn(5, 8, requires_grad=True)
    kept: list[int] = []

    def noted(t: Tensor) -> Tensor:
        kept.append(t.data_ptr())
        return t

    with torch.autograd.graph.saved_tensors_hooks(noted, lambda t: t):
        y = fast_linear(x, weight)
    assert by_onednn(y) and kept == [x.data_ptr(), weight.data_ptr()]


def test_the_output_may_be_changed_in_place() -> None:
    """As what ``F.linear`` gives."""
    x, weight = torch.randn(2, 4, 8), torch.randn(5, 8, requires_grad=True)
    (changed,) = torch.autograd.grad(fast_linear(x, weight).relu_().sum(), weight)
    (expected,) = torch.autograd.grad(F.linear(x, weight).relu().sum(), weight)
    torch.testing.assert_close(changed, expected)


@pytest.fixture
def layouts(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Address and rows of the weights that were packed since."""
    made: list[tuple[int, int]] = []
    real = torch.ops.mkldnn._reorder_linear_weight

    def noted(weight: Tensor) -> Tensor:
        made.append((weight.data_ptr(), len(weight)))
        return real(weight)

    monkeypatch.setattr(torch.ops.mkldnn, "_reorder_linear_weight", noted)
    return made


def test_weights_are_packed_at_their_second_use(layouts: list[tuple[int, int]]) -> None:
    """And once. Slices are weights of their own; one row, or many, take a weight as it is."""
    owner, weight = nn.Module().eval(), torch.randn(64, 16)
    with torch.no_grad():
        for part in (weight, weight[:32], weight[32:]):
            fast_linear(torch.randn(2, 16), part, None, owner)
        assert not layouts, "a single use pays nothing"
        for part in (weight, weight[:32], weight[32:], weight, weight[:32]):
            for rows in (2, 7):
                x = torch.randn(rows, 16)
                torch.testing.assert_close(fast_linear(x, part, None, owner), x @ part.T)
        for rows in (1, 1, 32, 32, 100, 100, 2):
            fast_linear(torch.randn(rows, 16), weight[5:37], None, owner)
        square = torch.randn(16, 16)
        for part in (square, square.T, square.T, square):  # of one address and shape
            x = torch.randn(4, 16)
            torch.testing.assert_close(fast_linear(x, part, None, owner), x @ part.T)
    assert [rows for _, rows in layouts] == [64, 32, 32, 16, 16]


def test_nothing_is_packed_in_training_or_with_gradients(layouts: list[tuple[int, int]]) -> None:
    """Then weights change; and going back to training, or the layer's end, frees the memory."""
    layer, x = FastLinear(16, 64), torch.randn(4, 16)
    for _ in range(3):
        layer.eval()(x)
        with torch.no_grad():
            layer.train()(x)
    assert not layouts and layer not in PACKED
    layer.eval()
    with torch.no_grad():
        for _ in range(3):
            layer(x)
    assert len(layouts) == 1 and layer in PACKED
    assert layer.train() not in PACKED
    with torch.no_grad():
        layer.eval()(x)
    gc.collect()
    before = len(PACKED)
    del layer
    gc.collect()
    assert len(PACKED) == before - 1


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


def test_a_test_set_packs_each_weight_once(
    tiny, layouts: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over all its batches; the translations are those of the plain model."""
    task = build_task(tiny())
    data = task.dataset(0)
    tokenizer = task.tokenizer(data)
    size = tokenizer.get_vocab_size()
    plain = Transformer(size, size, 16, 1, 2, 32, seed=0).eval()
    fast = copy.deepcopy(plain)
    accelerate(fast)
    examples = tokenize_split(data["validation"], tokenizer)
    monkeypatch.setattr(translation, "BATCH_TOKENS", 16)  # three sentences or so
    found = translation.translate(fast, tokenizer, examples)
    assert len(layouts) == len(set(layouts)) >= 8
    assert found == translation.translate(plain, tokenizer, examples)


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
    """AMD's with AVX-512: by what Linux says, and elsewhere by what Python says."""

    def read(path: Path, **_: str) -> str:
        if about is None:
            raise FileNotFoundError(path)
        return about

    monkeypatch.setattr(Path, "read_text", read)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    name = "AMD64 Family 26, AuthenticAMD"  # as Windows has it
    monkeypatch.setattr(linear.platform, "processor", lambda: name)
    assert mkl_is_slow.__wrapped__() is slow
    for other in (torch.backends.mkl, torch.backends.mkldnn):
        with monkeypatch.context() as patch:
            patch.setattr(other, "is_available", lambda: False)
            assert mkl_is_slow.__wrapped__() is False
    monkeypatch.setattr(torch.ops, "mkldnn", object())  # a torch without what is private
    assert mkl_is_slow.__wrapped__() is False


def test_mfu_is_measured_by_what_a_step_takes(products: list[Tensor]) -> None:
    """Else it could be more than one."""
    assert run_device.peak_matmul_flops(FastLinear(64, 64)) > 1e6
    assert len(products) == 5


def test_a_run_takes_it_and_is_the_same(
    tiny, products: list[Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Curves agree until rounding grows; operations are counted alike."""
    config = tiny("trainer.steps=10", "trainer.log_every=1")
    monkeypatch.setattr(loss, "MANY_WORDS", 1)  # its products, too
    curves, results = [], []
    for fast in ("true", "false"):
        config = tiny("trainer.steps=10", "trainer.log_every=1", f"trainer.fast={fast}")
        config.output_dir += fast
        # Without dropout the two draw nothing else.
        results.append(train(config))
        rows = Run.of(config).metrics()
        curves.append([row["nll"] for row in rows if row["split"] == "train"])
        assert bool(products) is (fast == "true")
        products.clear()
    assert curves[0] == pytest.approx(curves[1], rel=1e-5) and curves[0] != curves[1]
    assert results[0]["flops_per_step"] == results[1]["flops_per_step"] > 0
