"""The loss: cross-entropy of the real tokens, and a faster way to it for a large vocabulary."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from wawa_transformer.common.special_ids import PAD
from wawa_transformer.fast.linear import linear

MANY_WORDS = 1000  # from here on the logits no longer fit a processor's cache
CHUNK = 2**21  # logits formed at a time, unless these are fewer rows than
FEWEST_ROWS = 256  # where the sums over chunks would outweigh the products


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
    autocast = torch.is_autocast_enabled("cpu")
    types = (torch.float32, torch.bfloat16) if autocast else (torch.float32,)
    fast = states.device.type == "cpu" and states.dtype in types and weight.dtype == torch.float32
    if not fast or len(weight) < MANY_WORDS:
        return plain_loss_and_nll(states, weight, target, label_smoothing)
    real = target != PAD  # (B,T)
    products = torch.get_autocast_dtype("cpu") if autocast else torch.float32
    return LinearCrossEntropy.apply(
        states[real].float(), weight, target[real], label_smoothing, products
    )


def plain_loss_and_nll(
    states: Tensor, weight: Tensor, target: Tensor, label_smoothing: float = 0.0
) -> tuple[Tensor, Tensor]:
    """:func:`loss_and_nll` by way of all logits, on any device."""
    logits = linear(states, weight)  # (B,T,V)
    loss = cross_entropy(logits, target, label_smoothing)
    return loss, cross_entropy(logits.detach(), target) if label_smoothing else loss.detach()


class LinearCrossEntropy(Function):
    """Output layer and loss in one: ``states (N,D)``, ``weight (V,D)``, ``target (N,)``.

    The gradient of the logits is softmax minus target, and is used up while they are in the cache;
    the plain way writes and reads ``N V`` numbers four times. What smoothing adds is the same for
    every word, and so is added to the products and not to the logits. ``products`` is the type in
    which matrices are multiplied; all sums are in float32.
    """

    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        weight: Tensor,
        target: Tensor,
        label_smoothing: float,
        products: torch.dtype,
    ) -> tuple[Tensor, Tensor]:
        words = len(weight)
        rows = max(FEWEST_ROWS, CHUNK // words)
        all_x, w = states.to(products), weight.to(products)
        average = weight.mean(dim=0)  # (D,): its product with a state is the mean of the logits
        to_states, to_weight = torch.empty_like(states), weight.new_zeros(weight.T.shape)  # (D,V)
        nll, uniform = states.new_zeros(()), states.new_zeros(())
        for x, answer, to_x in zip(
            all_x.split(rows), target.split(rows), to_states.split(rows), strict=True
        ):
            logits = linear(x, w).float()  # (rows,V)
            right = torch.arange(len(x)), answer
            probability = logits.softmax(dim=-1)
            # The sum of the exponentials, by way of the largest: its probability is never 0.
            log_sum = logits.amax(dim=-1) - probability.amax(dim=-1).log()  # (rows,)
            nll += (log_sum - logits[right]).sum()
            if label_smoothing:
                uniform += (log_sum - (x * average).sum(dim=-1)).sum()
            probability[right] -= 1 - label_smoothing
            gradient = probability.to(products)  # of the logits, but for what smoothing adds
            to_x.copy_(linear(gradient, w.T))
            to_weight += linear(x.T, gradient.T)  # the smaller one is copied
        if label_smoothing:
            to_states -= label_smoothing * average
            to_weight -= label_smoothing / words * states.sum(dim=0)[:, None]
        ctx.save_for_backward(to_states, to_weight)
        ctx.mark_non_differentiable(nll)
        return (1 - label_smoothing) * nll + label_smoothing * uniform, nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, to_loss: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        to_states, to_weight = ctx.saved_tensors
        return to_states * to_loss, to_weight.T * to_loss, None, None, None
