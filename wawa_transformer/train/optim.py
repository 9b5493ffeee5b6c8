"""The optimiser and its learning rate."""

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from wawa_transformer.run.schema import TrainerConfig


def adamw(parameters: Iterable[Tensor], trainer: TrainerConfig) -> torch.optim.Optimizer:
    """Build AdamW (Loshchilov and Hutter 2019), betas of Vaswani et al. 2017, section 5.3."""
    decay = trainer.weight_decay
    return torch.optim.AdamW(parameters, trainer.lr, (0.9, 0.98), weight_decay=decay, fused=True)


def schedule(step: int, trainer: TrainerConfig) -> float:
    """Compute the learning rate of 0-based ``step`` as a fraction of its peak.

    The warmup is linear. ``inverse_sqrt`` is equation 3 of Vaswani et al. 2017 scaled to a peak of
    1; ``linear`` and ``cosine`` (Loshchilov and Hutter 2017) end at 0.
    """
    done = step + 1
    if done <= trainer.warmup:
        return done / trainer.warmup
    left = (trainer.steps - step) / max(1, trainer.steps - trainer.warmup)
    match trainer.schedule:
        case "linear":
            return left
        case "cosine":
            return 0.5 * (1 - math.cos(math.pi * left))
        case "inverse_sqrt":
            return math.sqrt(max(1, trainer.warmup) / done)
        case _:
            return 1.0
