"""Output layer and loss in one, for a large vocabulary on a CPU."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from wawa_transformer.common.special_ids import PAD
from wawa_transformer.fast.linear import fast_linear
from wawa_transformer.model.transformer import Transformer

MANY_WORDS = 1000  # from this vocabulary size on the logits do not fit a processor's cache
CHUNK = 2**21  # logits formed at a time, unless these are fewer rows than
MIN_ROWS = 256  # where summing over chunks would outweigh the products


class FastTransformer(Transformer):
    """:class:`Transformer` whose loss and most probable ids take less time."""

    def loss(
        self, states: Tensor, targets: Tensor, label_smoothing: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        weight, autocast = self.output.weight, torch.is_autocast_enabled("cpu")
        types = (torch.float32, torch.bfloat16) if autocast else (torch.float32,)
        suits = states.dtype in types and weight.dtype == torch.float32
        if not suits or len(weight) < MANY_WORDS or self.output.bias is not None:
            return super().loss(states, targets, label_smoothing)
        real = targets != PAD  # (B,T)
        products = torch.get_autocast_dtype("cpu") if autocast else torch.float32
        return LinearCrossEntropy.apply(
            states[real].float(), weight, targets[real], label_smoothing, products
        )

    def most_probable(self, logits: Tensor) -> Tensor:
        if logits.dtype != torch.float32:
            return super().most_probable(logits)
        return torch.from_numpy(logits.detach().numpy().argmax(-1))  # a tenth of torch's time


class LinearCrossEntropy(Function):
    """Loss and NLL of ``targets (N,)`` from ``states (N,D)`` and ``weight (V,D)``.

    The gradient of the logits is softmax minus target, and is used up while the logits are in the
    cache; the plain way writes and reads ``N V`` numbers four times. Smoothing adds the same to
    every word's gradient, so it is added to the products and not to the logits. ``products`` is the
    type in which matrices are multiplied; all sums are in float32.
    """

    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        weight: Tensor,
        targets: Tensor,
        label_smoothing: float,
        products: torch.dtype,
    ) -> tuple[Tensor, Tensor]:
        words = len(weight)
        rows = max(MIN_ROWS, CHUNK // words)
        all_x, w = states.to(products), weight.to(products)
        average = weight.mean(dim=0)  # (D,): its product with a state is the mean of the logits
        to_states, to_weight = torch.empty_like(states), weight.new_zeros(weight.T.shape)  # (D,V)
        nll, uniform = states.new_zeros(()), states.new_zeros(())
        for x, target, to_x in zip(
            all_x.split(rows), targets.split(rows), to_states.split(rows), strict=True
        ):
            logits = fast_linear(x, w).float()  # (rows,V)
            right = torch.arange(len(x)), target
            probability = logits.softmax(dim=-1)
            # The sum of the exponentials, by way of the largest: its probability is never 0.
            log_sum = logits.amax(dim=-1) - probability.amax(dim=-1).log()  # (rows,)
            nll += (log_sum - logits[right]).sum()
            if label_smoothing:
                uniform += (log_sum - (x * average).sum(dim=-1)).sum()
            probability[right] -= 1 - label_smoothing
            gradient = probability.to(products)  # of the logits, except what smoothing adds
            to_x.copy_(fast_linear(gradient, w.T))
            to_weight += fast_linear(x.T, gradient.T)  # oneDNN copies the smaller factor
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
