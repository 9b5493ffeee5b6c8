"""The fast ways of a CPU, loss and dropout, against the plain ones."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, chi2

from wawa_transformer.model import loss
from wawa_transformer.model.loss import cross_entropy, loss_and_nll
from wawa_transformer.run.run_dir import Run
from wawa_transformer.train.trainer import train


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("chunk", [2**22, 3000])
def test_the_loss_without_logits_is_the_loss(
    smoothing: float, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Value and gradients of a float64 formula; padding counts for nothing."""
    monkeypatch.setattr(loss, "CHUNK", chunk)  # two rows at a time
    monkeypatch.setattr(loss, "FEWEST_ROWS", 1)
    torch.manual_seed(0)
    states, weight = torch.randn(3, 7, 16), torch.randn(1400, 16)
    target = torch.randint(1, 1400, (3, 7))
    target[1, 4:] = target[2, 1:] = 0
    states[1, 4:] = 1e4  # what stands on padding is nobody's business

    exact = [t.double().requires_grad_() for t in (states, weight)]
    log_probability = (exact[0] @ exact[1].T).log_softmax(-1)[target != 0]  # (N,V)
    nll = -log_probability.gather(1, target[target != 0][:, None]).sum()
    expected = (1 - smoothing) * nll - smoothing * log_probability.mean(-1).sum()
    (0.37 * expected).backward()

    ours = [t.clone().requires_grad_() for t in (states, weight)]
    value, plain = loss_and_nll(*ours, target, smoothing)
    (0.37 * value).backward()
    torch.testing.assert_close(value.double(), expected, rtol=1e-5, atol=0)
    torch.testing.assert_close(plain.double(), nll, rtol=1e-5, atol=0)
    assert value.grad_fn.name() == "LinearCrossEntropyBackward" and not plain.requires_grad
    for mine, reference in zip(ours, exact, strict=True):
        torch.testing.assert_close(mine.grad.double(), reference.grad, rtol=1e-4, atol=1e-5)


def test_a_small_vocabulary_goes_the_plain_way() -> None:
    """To the last bit, so that what was measured with it stays."""
    states, weight = torch.randn(3, 7, 16), torch.randn(40, 16)
    target = torch.randint(0, 40, (3, 7))
    for smoothing in (0.0, 0.1):
        value, plain = loss_and_nll(states, weight, target, smoothing)
        assert value == cross_entropy(F.linear(states, weight), target, smoothing)
        assert plain == cross_entropy(F.linear(states, weight), target)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_under_autocast_products_alone_are_in_bf16(smoothing: float, kind: torch.dtype) -> None:
    """A gradient errs as bf16 rounds, a loss less: its sums are in float32."""
    torch.manual_seed(0)
    words = loss.CHUNK // loss.FEWEST_ROWS  # two chunks
    states, weight = torch.randn(20, 25, 16).to(kind), torch.randn(words, 16)
    target = torch.randint(0, words, (20, 25))
    exact = [t.double().requires_grad_() for t in (states, weight)]
    expected = cross_entropy(F.linear(*exact), target, smoothing)
    expected.backward()
    ours = [t.clone().requires_grad_() for t in (states, weight)]
    with torch.autocast("cpu", torch.bfloat16):
        value, plain = loss_and_nll(*ours, target, smoothing)
    value.backward()
    assert value.grad_fn.name() == "LinearCrossEntropyBackward"
    assert value.dtype == plain.dtype == torch.float32
    assert value.item() == pytest.approx(expected.item(), rel=1e-3)
    nll = cross_entropy(F.linear(*exact), target)
    assert plain.item() == pytest.approx(nll.item(), rel=1e-3)
    for mine, reference in zip(ours, exact, strict=True):
        assert mine.grad.dtype == mine.dtype
        error = (mine.grad - reference.grad).norm() / reference.grad.norm()
        assert 1e-5 < error < 0.01, "of bf16, and no more"


def test_the_loop_takes_the_fast_way(tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same run with either: curves agree until rounding grows, and both were taken."""
    config = tiny("trainer.steps=10", "trainer.log_every=1")
    curves = []
    for many in (10**6, 1):
        monkeypatch.setattr(loss, "MANY_WORDS", many)
        config.output_dir += "x"
        train(config)
        rows = Run.of(config).metrics()
        curves.append([row["nll"] for row in rows if row["split"] == "train"])
    assert curves[0] == pytest.approx(curves[1], rel=1e-5)
    assert curves[0] != curves[1], "rounding tells them apart"


def test_dropout_is_a_fair_coin_for_each_element() -> None:
    """Counts within binomial limits over the whole, each position and pairs of neighbours."""
    torch.manual_seed(0)
    for p in (0.1, 0.5, 0.9):
        layer = Dropout(p).train()
        lost = torch.stack([layer(torch.ones(3, 5, 7)) == 0 for _ in range(2000)]).flatten(1)
        total = lost.numel()
        low, high = binom.interval(1 - 1e-6, total, p)
        assert low <= lost.sum() <= high
        expected = 2000 * p
        spread = ((lost.sum(0) - expected) ** 2 / (expected * (1 - p))).sum()  # 105 positions
        assert chi2.cdf(spread, 105) < 1 - 1e-6
        both = (lost[:, :-1] & lost[:, 1:]).sum()  # four of them come out of one draw
        low, high = binom.interval(1 - 1e-6, lost[:, 1:].numel(), p * p)
        assert 0.99 * low <= both <= 1.01 * high


@settings(max_examples=30)
@given(p=st.floats(0.001, 0.999), dtype=st.sampled_from([torch.float32, torch.float64]))
def test_what_dropout_keeps_is_scaled_by_the_share_it_keeps(p: float, dtype: torch.dtype) -> None:
    """One factor, 1 / (1 - p) to the nearest of 65,536 levels; the gradient is the same mask."""
    layer = Dropout(p).train()
    x = torch.full((40, 50), 3.0, dtype=dtype, requires_grad=True)
    y = layer(x)
    y.sum().backward()
    kept = y[y != 0] / 3
    assert torch.equal(x.grad, y.detach() / 3) or torch.allclose(x.grad, y.detach() / 3)
    share = 1 - round(p * 65536) / 65536
    assert abs(share - (1 - p)) <= 1 / 65536
    if len(kept):
        torch.testing.assert_close(kept, torch.full_like(kept, 1 / share))


def test_dropout_leaves_alone_what_it_should() -> None:
    """In evaluation, at p = 0, at no elements, and where p is less than its levels: torch's own."""
    x = torch.randn(4, 3)
    assert Dropout(0.5).eval()(x) is x
    assert torch.equal(Dropout(0.0).train()(x), x)
    assert Dropout(0.5).train()(torch.empty(0, 3)).shape == (0, 3)
    assert Dropout(1e-7).train()(torch.ones(10)).sum() > 0
    assert Dropout(0.5).train()(x.bfloat16()).dtype == torch.bfloat16
