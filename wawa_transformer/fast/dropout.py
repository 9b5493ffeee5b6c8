"""Dropout (Srivastava et al. 2014), and on a CPU a faster way to draw its masks."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

LEVELS = 2**16  # of probability, 16 random bits for each element


class Dropout(nn.Dropout):
    """``torch.nn.Dropout``, whose masks cost a CPU about a third.

    torch draws a number for each element there, which takes longer than the product that the
    element comes from. Here four elements share one draw of 64 bits from the same generator, so
    that its state is still all that a continued run needs. ``p`` is met to the nearest 1/65,536,
    and what stays is divided by exactly the share that stays.
    """

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        lost = round(self.p * LEVELS)
        here = x.device.type == "cpu" and not torch.compiler.is_compiling()  # which fuses its own
        if not here or not 0 < lost < LEVELS:
            return super().forward(x)
        return x * draw_mask(x.shape, lost, x.dtype)


def draw_mask(shape: tuple[int, ...], lost: int, dtype: torch.dtype) -> Tensor:
    """What dropout multiplies by: 0 for ``lost`` of :data:`LEVELS`, else 1 over what stays.

    Less than all is lost.
    """
    size = math.prod(shape)
    draws = torch.empty(-(-size // 4), dtype=torch.int64).random_(-(2**63), None)
    levels = draws.view(torch.int16)[:size].view(shape)  # uniform, from -LEVELS / 2 on
    kept = (levels >= lost - LEVELS // 2).to(dtype)
    return kept.mul_(LEVELS / (LEVELS - lost))
