"""Shaw's relative keys."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from wawa_transformer.common.limits import MAX_POSITIONS, check_number
from wawa_transformer.positional.base import EncodingContext, Positions
from wawa_transformer.positional.relative import (
    RelativeEncoding,
    cache_per_forward,
    can_rel_shift,
    gather_bias,
    range_warning,
    rel_shift,
)


class ShawRelative(RelativeEncoding, kind="shaw"):
    """A trained key for each distance, clipped (Shaw et al. 2018, section 3.2, equation 4).

    The score gains ``q · a(clip(distance)) / sqrt(Dh)``. The paper's relative values are left
    out, which it found to cost nothing (table 3); one table serves all heads, as there, and all
    layers of a stack, which there have one each.
    """

    def __init__(self, context: EncodingContext, clip: int = 16) -> None:
        super().__init__(context)
        check_number("pe.clip", clip, 1, MAX_POSITIONS)
        self.clip = clip
        self.table = nn.Parameter(torch.empty(2 * clip + 1, context.head_width))
        self.reset_parameters(lambda name: torch.default_generator)

    def bias(self, q: Tensor, k: Tensor, query: Positions, key: Positions) -> Tensor:
        scores = q * q.size(-1) ** -0.5 @ self.table.T.to(q.dtype)  # (B,H,Q,2c+1)
        if can_rel_shift(query, key):
            return rel_shift(self.spread(scores, query, key), q.size(2))
        return gather_bias(scores, self.clipped(query, key))

    @cache_per_forward
    def clipped(self, query: Positions, key: Positions) -> Tensor:
        """The row of the table for each query and key, ``(b,h,Q,K)``."""
        return self.distances(query, key).clamp(-self.clip, self.clip) + self.clip

    def spread(self, scores: Tensor, query: Positions, key: Positions) -> Tensor:
        """From ``(…,2c+1)``, one for each distance up to the clip, one for every: ``(…,R)``."""
        lowest, highest = key.start - query.end + 1, key.end - query.start - 1
        every = highest - lowest + 1
        below = min(max(-self.clip - lowest, 0), every)  # distances that share the first
        above = min(max(highest - self.clip, 0), every)  # and the last
        within = scores[..., max(lowest + self.clip, 0) : max(highest + self.clip + 1, 0)]
        first, last = scores[..., :1], scores[..., -1:]
        sides = first.expand(*first.shape[:-1], below), last.expand(*last.shape[:-1], above)
        return torch.cat((sides[0], within, sides[1]), dim=-1)

    def reset_parameters(self, generator_for: Callable[[str], torch.Generator]) -> None:
        nn.init.normal_(
            self.table, std=self.context.head_width**-0.5, generator=generator_for("table")
        )

    def untrained_range_warning(self, farthest: int) -> str | None:
        return range_warning("clip", self.clip, farthest)
