"""The loss: cross-entropy of the real tokens, and a faster way to it for a large vocabulary."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from wawa_transformer.transformer import PAD

MANY_WORDS = 1000  # from here on the logits no longer fit a processor's cache
CHUNK = 2**22  # logits formed at a time


def cross_entropy(logits: Tensor, target: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """Summed over the real tokens, in nats: ``logits (B,T,V)`` against ``target (B,T)``.

    Smoothing mixes the target with a uniform distribution (Szegedy et al. 2016, section 7).
    """
    return F.cross_entropy(
        logits.float().flatten(0, 1),  # (B,T,V) -> (B*T,V)
        target.flatten(),
        ignore_index=PAD,
        reduction="sum",
        label_smoothing=label_smoothing,
    )


def loss_and_nll(
    states: Tensor, weight: Tensor, target: Tensor, label_smoothing: float = 0.0
) -> tuple[Tensor, Tensor]:
    """:func:`cross_entropy` of the logits ``states (B,T,D) @ weight (V,D).T``, smoothed and plain.

    Gradients flow from the first alone. On a CPU and for a large vocabulary no logits are formed
    for padding, nor all at a time.
    """
    fast = states.device.type == "cpu" and states.dtype == weight.dtype == torch.float32
    fast = fast and not torch.is_autocast_enabled("cpu")  # which would turn its products to bf16
    if fast and len(weight) >= MANY_WORDS:
        real = target != PAD  # (B,T)
        return LinearCrossEntropy.apply(states[real], weight, target[real], label_smoothing)
    return plain_loss_and_nll(states, weight, target, label_smoothing)


def plain_loss_and_nll(
    states: Tensor, weight: Tensor, target: Tensor, label_smoothing: float = 0.0
) -> tuple[Tensor, Tensor]:
    """:func:`loss_and_nll` by way of all logits, on any device."""
    logits = F.linear(states, weight)  # (B,T,V)
    loss = cross_entropy(logits, target, label_smoothing)
    return loss, cross_entropy(logits.detach(), target) if label_smoothing else loss.detach()


class LinearCrossEntropy(Function):
    """Output layer and loss in one: ``states (N,D)``, ``weight (V,D)``, ``target (N,)``.

    The gradient of the logits is softmax minus target, and is used up while they are in the cache;
    the plain way writes and reads ``N V`` numbers four times.
    """

    @staticmethod
    def forward(
        ctx: Any, states: Tensor, weight: Tensor, target: Tensor, label_smoothing: float
    ) -> tuple[Tensor, Tensor]:
        words = len(weight)
        rows = max(1, CHUNK // words)
        to_states, to_weight = torch.empty_like(states), torch.zeros_like(weight)
        nll, uniform = states.new_zeros(()), states.new_zeros(())
        for x, answer, to_x in zip(
            states.split(rows), target.split(rows), to_states.split(rows), strict=True
        ):
            log_probability = F.log_softmax(x @ weight.T, dim=-1)  # (rows,V)
            nll += F.nll_loss(log_probability, answer, reduction="sum")
            if label_smoothing:
                uniform -= log_probability.sum() / words
            gradient = log_probability.exp_()  # of the logits
            if label_smoothing:
                gradient -= label_smoothing / words
            gradient[torch.arange(len(x)), answer] -= 1 - label_smoothing
            torch.mm(gradient, weight, out=to_x)
            to_weight.addmm_(gradient.T, x)
        ctx.save_for_backward(to_states, to_weight)
        ctx.mark_non_differentiable(nll)
        return (1 - label_smoothing) * nll + label_smoothing * uniform, nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, to_loss: Tensor, _: Tensor) -> tuple[Tensor, Tensor, None, None]:  # type: ignore[override]
        to_states, to_weight = ctx.saved_tensors
        return to_states * to_loss, to_weight * to_loss, None, None
