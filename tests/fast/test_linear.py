"""Linear layers by way of oneDNN, which on most processors nobody takes, against a formula."""

from __future__ import annotations

import contextlib
import weakref
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch._dynamo.testing import CompileCounter

from wawa_transformer import Transformer
from wawa_transformer.data.load import tokenize_split
from wawa_transformer.data.text import build_task
from wawa_transformer.decode import translation
from wawa_transformer.fast import linear
from wawa_transformer.fast.linear import (
    mkl_alone,
    mkl_is_slow,
    weights_stay,
)
from wawa_transformer.model import loss
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
    monkeypatch.setattr(linear, "LEAST", 1)


def by_onednn(y: Tensor) -> bool:
    """Whether ``y``, or what it is a view of, was multiplied the other way."""
    assert y.grad_fn is not None
    return "OneDNN" in y.grad_fn.next_functions[0][0].name()


@pytest.fixture
def products(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """What was multiplied the other way since."""
    made: list[Tensor] = []
    real = linear.product

    def noted(*tensors: Tensor) -> Tensor:
        made.append(real(*tensors))
        return made[-1]

    monkeypatch.setattr(linear, "product", noted)
    return made


@given(
    sizes=st.lists(st.integers(1, 24), min_size=2, max_size=4),
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


def test_no_product_is_made_for_nothing(products: list[Tensor]) -> None:
    """A gradient that nobody asks for costs none, as of data or of a frozen weight."""
    asked, weight = torch.randn(4, 8), torch.randn(5, 8, requires_grad=True)
    linear(asked, weight).sum().backward()
    assert len(products) == 2 and weight.grad is not None
    linear(asked.requires_grad_(), weight.detach()).sum().backward()
    assert len(products) == 4 and asked.grad is not None


def test_nothing_is_kept_but_what_was_given() -> None:
    """The public way to oneDNN keeps copies for the gradients: twice the memory of a step."""
    x, weight = torch.randn(2, 4, 8, requires_grad=True), torch.randn(5, 8, requires_grad=True)
    kept: list[int] = []

    def noted(t: Tensor) -> Tensor:
        kept.append(t.data_ptr())
        return t

    with torch.autograd.graph.saved_tensors_hooks(noted, lambda t: t):
        y = linear(x, weight)
    assert by_onednn(y) and kept == [x.data_ptr(), weight.data_ptr()]


def test_what_it_gives_may_be_changed_in_place() -> None:
    """As what ``F.linear`` gives: who forks the model must not meet another rule here."""
    x, weight = torch.randn(2, 4, 8), torch.randn(5, 8, requires_grad=True)
    (changed,) = torch.autograd.grad(linear(x, weight).relu_().sum(), weight)
    (expected,) = torch.autograd.grad(F.linear(x, weight).relu().sum(), weight)
    torch.testing.assert_close(changed, expected)


@pytest.fixture
def layouts(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Where the weights lay that were laid out since, and their rows; they are not held."""
    made: list[tuple[int, int]] = []
    real = torch.ops.mkldnn._reorder_linear_weight

    def noted(weight: Tensor) -> Tensor:
        made.append((weight.data_ptr(), len(weight)))
        return real(weight)

    monkeypatch.setattr(torch.ops.mkldnn, "_reorder_linear_weight", noted)
    return made


def test_weights_that_stay_are_laid_out_when_they_are_met_again(
    layouts: list[tuple[int, int]],
) -> None:
    """And once. Parts of one are weights of their own; one row, or many, take one as it is."""
    weight = torch.randn(64, 16)
    with weights_stay():
        for part in (weight, weight[:32], weight[32:], weight, weight[:32]):
            for rows in (2, 7):
                x = torch.randn(rows, 16)
                torch.testing.assert_close(linear(x, part), x @ part.T)
        for rows in (1, 1, 32, 32, 100, 100, 2):
            linear(torch.randn(rows, 16), weight[5:37])
        square = torch.randn(16, 16)
        for part in (square, square.T, square.T, square):
            torch.testing.assert_close(linear(x, part), x @ part.T)
    assert [rows for _, rows in layouts] == [64, 32, 32, 16, 16]


def test_a_weight_is_never_taken_for_another(layouts: list[tuple[int, int]]) -> None:
    """Not for one that had its memory, nor for what it was before the weights could change."""
    x, weight = torch.randn(3, 512), torch.randn(64, 512)
    held = weakref.ref(weight)
    with weights_stay():
        linear(x, weight)
        linear(x, weight)
        del weight
        assert held() is not None, "where it lies another one could come to lie"
    assert held() is None
    weight = torch.randn(64, 512)
    with contextlib.suppress(KeyError), weights_stay():
        linear(x, weight)
        linear(x, weight)
        raise KeyError
    weight.zero_()
    assert not linear(x, weight).any()
    with weights_stay():
        for _ in range(2):
            assert not linear(x, weight).any()
    assert len(layouts) == 3


def test_a_test_set_lays_each_weight_out_once(
    tiny, layouts: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over all its batches; the translations are what they are with MKL."""
    task = build_task(tiny())
    data = task.dataset(0)
    tokenizer = task.tokenizer(data)
    size = tokenizer.get_vocab_size()
    model = Transformer(size, size, 16, 1, 2, 32, seed=0).eval()
    examples = tokenize_split(data["validation"], tokenizer)
    monkeypatch.setattr(translation, "BATCH_TOKENS", 16)  # three sentences or so
    found = translation.translate(model, tokenizer, examples)
    assert len(layouts) == len(set(layouts)) >= 8
    with mkl_alone():
        assert found == translation.translate(model, tokenizer, examples)


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
    monkeypatch.setattr(linear, "LEAST", 4 * 8 * 5 + 1)
    assert plain(layer, x)
    monkeypatch.setattr(linear, "LEAST", 4 * 8 * 5)
    assert by_onednn(layer(x))
    monkeypatch.setattr(linear, "mkl_is_slow", lambda: False)
    assert plain(layer, x)


def test_a_compiler_sees_one_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """The choice is the compiler's, and no size makes it compile again but the second."""
    torch._dynamo.reset()
    monkeypatch.setattr(linear, "LEAST", 1000)
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
    monkeypatch.setattr(linear.platform, "processor", lambda: name)
    assert mkl_is_slow.__wrapped__() is slow
    for other in (torch.backends.mkl, torch.backends.mkldnn):
        with monkeypatch.context() as patch:
            patch.setattr(other, "is_available", lambda: False)
            assert mkl_is_slow.__wrapped__() is False
    monkeypatch.setattr(torch.ops, "mkldnn", object())  # a torch without what is private
    assert mkl_is_slow.__wrapped__() is False


def test_utilisation_is_measured_by_what_a_step_takes(products: list[Tensor]) -> None:
    """Else it could be more than all."""
    assert run_device.peak_matmul_flops.__wrapped__(torch.device("cpu")) > 1e6
    assert len(products) == 5


def test_a_run_takes_it_and_is_the_same(
    tiny, products: list[Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Curves agree until rounding grows; operations are counted alike."""
    config = tiny("trainer.steps=10", "trainer.log_every=1")
    monkeypatch.setattr(loss, "MANY_WORDS", 1)  # its products, too
    curves, results = [], []
    for slow in (True, False):
        monkeypatch.setattr(linear, "mkl_is_slow", lambda slow=slow: slow)
        config.output_dir += "x"
        results.append(train(config))
        rows = Run.of(config).metrics()
        curves.append([row["nll"] for row in rows if row["split"] == "train"])
        assert bool(products) is slow
        products.clear()
    assert curves[0] == pytest.approx(curves[1], rel=1e-5)
    assert results[0]["flops_per_step"] == results[1]["flops_per_step"] > 0
