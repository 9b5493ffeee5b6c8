"""Shaw's relative keys."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from wawa_transformer.common.limits import MOST_POSITIONS, check_number
from wawa_transformer.positional.base import Place, Positions
from wawa_transformer.positional.relative import (
    RelativeEncoding,
    in_step,
    once_a_pass,
    pick,
    shift,
    untrained,
)


class ShawRelative(RelativeEncoding, kind="shaw"):
    """A trained key for each distance, clipped (Shaw et al. 2018, section 3.2, equation 4).

    The score gains ``q · a(clip(distance)) / sqrt(Dh)``. The paper's relative values are left
    out, which it found to cost nothing (table 3); one table serves all heads, as there, and all
    layers of a stack, which there have one each.
    """

    def __init__(self, place: Place, clip: int = 16) -> None:
        super().__init__(place)
        check_number("pe.clip", clip, 1, MOST_POSITIONS)
        self.clip = clip
        self.table = nn.Parameter(torch.empty(2 * clip + 1, place.head_width))
        self.initialise(lambda name: torch.default_generator)

    def bias(self, q: Tensor, k: Tensor, query: Positions, key: Positions) -> Tensor:
        scores = q * q.size(-1) ** -0.5 @ self.table.T.to(q.dtype)  # (B,H,Q,2c+1)
        if in_step(query, key):
            return shift(self.spread(scores, query, key), q.size(2))
        return pick(scores, self.clipped(query, key))

    @once_a_pass
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

    def initialise(self, draw: Callable[[str], torch.Generator]) -> None:
        nn.init.normal_(self.table, std=self.place.head_width**-0.5, generator=draw("table"))

    def untrained(self, farthest: int) -> str | None:
        return untrained("clip", self.clip, farthest)
