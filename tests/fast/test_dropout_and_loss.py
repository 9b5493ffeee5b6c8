"""Dropout from random bits, and the loss without logits, against the plain ones."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, chi2
from torch import Tensor, nn

from wawa_transformer import Transformer
from wawa_transformer.fast import accelerate, loss
from wawa_transformer.fast.dropout import LEVELS, FastDropout, draw_mask
from wawa_transformer.model.loss import loss_and_nll


def output_layer(words: int, width: int = 16, bias: bool = False) -> Transformer:
    """An accelerated model with an output layer of its own."""
    model = Transformer(9, words, width, 1, 2, 16)
    model.output = nn.Linear(width, words, bias=bias)
    accelerate(model)
    return model


def exact_loss(
    model: Transformer, states: Tensor, targets: Tensor, smoothing: float
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Loss, NLL and the gradients of states and weight, by a float64 formula."""
    exact = [t.detach().double().requires_grad_() for t in (states, model.output.weight)]
    log_p = (exact[0] @ exact[1].T).log_softmax(-1)[targets != 0]  # (N,V)
    nll = -log_p.gather(1, targets[targets != 0][:, None]).sum()
    value = (1 - smoothing) * nll - smoothing * log_p.mean(-1).sum()
    return value, nll, [*torch.autograd.grad(0.37 * value, exact)]


def is_fused(value: Tensor) -> bool:
    assert value.grad_fn is not None
    return value.grad_fn.name() == "LinearCrossEntropyBackward"


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("chunk", [2**22, 3000])
@pytest.mark.parametrize("length", [7, 0])
def test_the_loss_without_logits_is_the_loss(
    smoothing: float, chunk: int, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Value and gradients; padding, or a batch of it, counts for nothing."""
    monkeypatch.setattr(loss, "CHUNK", chunk)  # 3000: two rows at a time
    monkeypatch.setattr(loss, "MIN_ROWS", 1)
    model, targets = output_layer(1400), torch.randint(1, 1400, (3, 7))
    targets[1, 4:] = targets[2, 1:] = 0
    targets[:, length:] = 0
    states = torch.randn(3, 7, 16)
    states[1, 4:] = 1e4  # the states at padding do not matter

    expected, nll, gradients = exact_loss(model, states, targets, smoothing)
    states.requires_grad_()
    value, plain = model.loss(states, targets, smoothing)
    (0.37 * value).backward()
    torch.testing.assert_close(value.double(), expected, rtol=1e-5, atol=0)
    torch.testing.assert_close(plain.double(), nll, rtol=1e-5, atol=0)
    assert is_fused(value) and not plain.requires_grad
    for found, reference in zip((states, model.output.weight), gradients, strict=True):
        torch.testing.assert_close(found.grad.double(), reference, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("words", "bias", "dtype"),
    [(40, False, torch.float32), (1400, True, torch.float32), (1400, False, torch.float64)],
)
def test_other_losses_are_the_plain_one(words: int, bias: bool, dtype: torch.dtype) -> None:
    """To the last bit: a small vocabulary, an output with a bias, another type."""
    model = output_layer(words, bias=bias).to(dtype)
    if bias:
        model.output.bias.data.normal_()
    states, targets = torch.randn(3, 7, 16, dtype=dtype), torch.randint(0, words, (3, 7))
    for smoothing in (0.0, 0.1):
        found = model.loss(states, targets, smoothing)
        assert found == loss_and_nll(model.output(states), targets, smoothing)
        assert not is_fused(found[0])


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_under_autocast_products_alone_are_in_bf16(smoothing: float, dtype: torch.dtype) -> None:
    """A gradient errs as bf16 rounds, a loss less: its sums are in float32."""
    words = loss.CHUNK // loss.MIN_ROWS  # two chunks
    model, targets = output_layer(words), torch.randint(0, words, (20, 25))
    with torch.no_grad():
        model.output.weight.normal_()
    states = torch.randn(20, 25, 16).to(dtype)
    expected, nll, gradients = exact_loss(model, states, targets, smoothing)
    states.requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        value, plain = model.loss(states, targets, smoothing)
    (0.37 * value).backward()
    assert is_fused(value) and value.dtype == plain.dtype == torch.float32
    assert value.item() == pytest.approx(expected.item(), rel=1e-3)
    assert plain.item() == pytest.approx(nll.item(), rel=1e-3)
    for found, reference in zip((states, model.output.weight), gradients, strict=True):
        assert found.grad.dtype == found.dtype
        error = (found.grad - reference).norm() / reference.norm()
        assert 1e-5 < error < 0.01, "of bf16, and no more"


NUMBERS = st.sampled_from([0.0, 1.0, 2.0, torch.inf, -torch.inf, torch.nan])


@given(
    rows=st.lists(st.lists(NUMBERS, min_size=3, max_size=3), min_size=1),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
    transposed=st.booleans(),
)
def test_the_most_probable_is_the_first_of_the_largest(
    rows: list[list[float]], dtype: torch.dtype, transposed: bool
) -> None:
    """Of equals the first, and NaN before all: as torch has it, and numpy, too."""
    model = output_layer(9)
    logits = torch.tensor(rows, dtype=dtype, requires_grad=True)
    found = model.most_probable(logits.T.contiguous().T if transposed else logits)
    expected = [max(range(3), key=lambda i: (row[i] != row[i], row[i])) for row in rows]
    assert found.dtype == torch.int64 and found.tolist() == expected


def test_dropout_is_a_fair_coin_for_each_element() -> None:
    """Counts within binomial limits over the whole, each position and pairs of neighbours."""
    for p in (0.1, 0.5, 0.9):
        layer = FastDropout(p).train()
        lost = torch.stack([layer(torch.ones(3, 5, 7)) == 0 for _ in range(2000)]).flatten(1)
        total = lost.numel()
        low, high = binom.interval(1 - 1e-6, total, p)
        assert low <= lost.sum() <= high
        expected = 2000 * p
        spread = ((lost.sum(0) - expected) ** 2 / (expected * (1 - p))).sum()  # 105 positions
        assert chi2.cdf(spread, 105) < 1 - 1e-6
        for apart in (1, 2, 3, 4):  # four neighbours come out of one draw
            both = (lost[:, :-apart] & lost[:, apart:]).sum()
            low, high = binom.interval(1 - 1e-6, lost[:, apart:].numel(), p * p)
            assert 0.99 * low <= both <= 1.01 * high


@settings(max_examples=30)
@given(p=st.floats(0.001, 0.999), dtype=st.sampled_from([torch.float32, torch.float64]))
def test_dropout_is_its_mask_applied_by_hand(p: float, dtype: torch.dtype) -> None:
    """One factor, 1 / (1 - p) to the nearest of 65,536 levels; the gradient is the same mask."""
    layer, x = FastDropout(p).train(), torch.randn(40, 50, dtype=dtype, requires_grad=True)
    torch.manual_seed(1)
    y = layer(x)
    y.sum().backward()
    torch.manual_seed(1)
    mask = draw_mask(x.shape, round(p * LEVELS), dtype)
    assert torch.equal(y, x * mask) and torch.equal(x.grad, mask)
    share = 1 - round(p * LEVELS) / LEVELS
    assert abs(share - (1 - p)) <= 1 / LEVELS
    kept: Any = mask[mask != 0]
    torch.testing.assert_close(kept, torch.full_like(kept, 1 / share))


def test_what_else_dropout_is_given() -> None:
    """In evaluation, at p = 0, at no elements, and where p is less than its levels: torch's own."""
    x = torch.randn(4, 3)
    assert FastDropout(0.5).eval()(x) is x
    assert torch.equal(FastDropout(0.0).train()(x), x)
    assert not FastDropout(1.0).train()(x).any()
    assert FastDropout(0.5).train()(torch.empty(0, 3)).shape == (0, 3)
    assert FastDropout(1e-7).train()(torch.ones(10)).sum() > 0
    assert FastDropout(0.5).train()(x.bfloat16()).dtype == torch.bfloat16
