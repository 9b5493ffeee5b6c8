"""Tests of the loss against its formula in float64."""

from __future__ import annotations

import pytest
import torch
from core.helpers import V, padded_ids, small_model

from wawa_transformer.model.loss import loss_and_nll


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_loss_and_nll_are_the_formula(smoothing: float) -> None:
    """Loss and NLL equal the formula, summed over real tokens.

    Padding does not count, and the NLL has no gradient.
    """
    logits = torch.randn(3, 7, V, requires_grad=True)
    targets = padded_ids(3, 7, 0)
    log_p = logits.detach().double().log_softmax(-1)[targets != 0]  # (N,V)
    nll = -sum(row[token] for row, token in zip(log_p, targets[targets != 0], strict=True))
    expected = (1 - smoothing) * nll - smoothing * log_p.mean(-1).sum()
    with torch.autograd.profiler.profile() as operations:
        loss, plain = loss_and_nll(logits, targets, smoothing)
    softmax = [each.name for each in operations.function_events if "_log_softmax" in each.name]
    assert softmax == ["aten::_log_softmax"], "formed once for both"
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
    assert plain.item() == pytest.approx(nll.item(), rel=1e-6) and not plain.requires_grad
    loss.backward()
    share = smoothing / V + (1 - smoothing) * torch.nn.functional.one_hot(targets, V)
    gradient = (logits.detach().softmax(-1) - share) * (targets != 0)[..., None]
    torch.testing.assert_close(logits.grad, gradient, rtol=0, atol=1e-6)
    assert loss_and_nll(logits.bfloat16(), targets)[0].dtype == torch.float32


def test_the_model_gives_its_loss() -> None:
    """With targets, the model returns the loss of its logits."""
    model, src, tgt, targets = small_model(), *(padded_ids(3, n, n) for n in (6, 5, 5))
    expected = loss_and_nll(model(src, tgt), targets, 0.1)
    assert expected == model(src, tgt, targets=targets, label_smoothing=0.1)
