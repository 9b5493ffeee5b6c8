"""The loss: cross-entropy over the real target tokens."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from wawa_transformer.common.special_ids import PAD


def cross_entropy(logits: Tensor, targets: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """Summed over the real tokens, in nats: ``logits (B,T,V)`` against ``targets (B,T)``.

    Smoothing mixes the target with a uniform distribution (Szegedy et al. 2016, section 7).
    """
    return F.cross_entropy(
        logits.float().flatten(0, 1),  # (B,T,V) -> (B*T,V)
        targets.flatten(),
        ignore_index=PAD,
        reduction="sum",
        label_smoothing=label_smoothing,
    )


def loss_and_nll(
    logits: Tensor, targets: Tensor, label_smoothing: float = 0.0
) -> tuple[Tensor, Tensor]:
    """:func:`cross_entropy` with smoothing, and without it; the second has no gradient."""
    loss = cross_entropy(logits, targets, label_smoothing)
    return loss, cross_entropy(logits.detach(), targets) if label_smoothing else loss.detach()
