"""The loss: cross-entropy over the real target tokens."""

import torch.nn.functional as F
from torch import Tensor

from wawa_transformer.common import PAD


def loss_and_nll(
    logits: Tensor, targets: Tensor, label_smoothing: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Cross-entropy with smoothing, and without smoothing and gradient; in nats.

    Summed over the real tokens: ``logits (B,T,V)`` against ``targets (B,T)``. Smoothing mixes the
    target with a uniform distribution (Szegedy et al. 2016, section 7).
    """
    log_p = logits.float().log_softmax(dim=-1)  # (B,T,V)
    nll = F.nll_loss(log_p.flatten(0, 1), targets.flatten(), ignore_index=PAD, reduction="sum")
    if not label_smoothing:
        return nll, nll.detach()
    uniform = -log_p.mean(dim=-1).masked_fill(targets == PAD, 0.0).sum()
    return (1 - label_smoothing) * nll + label_smoothing * uniform, nll.detach()
