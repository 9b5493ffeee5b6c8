"""Positions at random while training, and fixed ones afterwards: variants of door 1.

Source and target share what is drawn: the encoder's instance draws once a batch into
``place.draw``, and the decoder's reads it there.
"""

from __future__ import annotations

import torch
from torch import Tensor

from wawa_transformer.limits import MOST_POSITIONS, check_number
from wawa_transformer.positional import (
    LearnedEncoding,
    Place,
    PositionalEncoding,
    SequenceTooLong,
)


def draw_shift(place: Place, most: int) -> int:
    """The batch's offset, uniform in ``0 … most``: drawn by the encoder, read by the decoder."""
    if place.role == "encoder":
        place.draw.shift = int(torch.randint(most + 1, ()))
    return place.draw.shift


class ShiftedSinusoid(PositionalEncoding, kind="sinusoidal_shifted"):
    """The sinusoid, started at a random position in every training batch.

    SHAPE (Kiyono et al. 2021, section 3): one offset, uniform in ``0 … max_shift``, moves all
    positions of source and target alike; evaluation starts at 0. Only differences of positions
    stay informative.
    """

    def __init__(
        self,
        d_model: int,
        max_len: int = 5000,
        dropout: float = 0.1,
        max_shift: int = 100,
        *,
        place: Place | None = None,
    ) -> None:
        check_number("pe.max_shift", max_shift, 0, MOST_POSITIONS)
        super().__init__(d_model, max_len, dropout, place=place)
        self.max_shift = max_shift

    def embed(self, x: Tensor, offset: int = 0) -> Tensor:
        shift = draw_shift(self.place, self.max_shift) if self.training else 0
        return super().embed(x, offset + shift)


class ShiftedLearned(LearnedEncoding, kind="learned_shifted"):
    """The learned table, read from a random row on in every training batch.

    As :class:`ShiftedSinusoid`. The table has ``max_len + max_shift`` rows, so that rows past the
    trained lengths are trained, too.
    """

    def __init__(
        self,
        d_model: int,
        max_len: int = 256,
        dropout: float = 0.1,
        init_std: float = 1.0,
        max_shift: int = 100,
        *,
        place: Place | None = None,
    ) -> None:
        check_number("pe.max_len", max_len, 1, MOST_POSITIONS)
        check_number("pe.max_shift", max_shift, 0, MOST_POSITIONS - max_len)
        super().__init__(d_model, max_len + max_shift, dropout, init_std, place=place)
        self.max_positions, self.max_shift = max_len, max_shift

    def embed(self, x: Tensor, offset: int = 0) -> Tensor:
        end = offset + x.size(1)
        self.check_length(end)
        shift = draw_shift(self.place, self.max_shift) if self.training else 0
        return x + self.table[offset + shift : end + shift].to(x.dtype)


class RandomizedPositions(PositionalEncoding, kind="randomized"):
    """The sinusoid at random positions that keep their order (Ruoss et al. 2023, section 3).

    In training S positions are drawn from ``0 … max_len-1`` without replacement and sorted, one
    draw a batch; the target's positions hold the source's, or the other way round. The paper
    draws in evaluation, too. Here evaluation takes every ``stride``-th position: a draw that
    depends on the length would change with padding, and could not be decoded step by step.
    """

    def __init__(
        self,
        d_model: int,
        max_len: int = 128,
        dropout: float = 0.1,
        stride: int = 3,
        *,
        place: Place | None = None,
    ) -> None:
        check_number("pe.max_len", max_len, 1, MOST_POSITIONS)
        if not 1 <= stride <= max_len:
            raise ValueError(f"pe.stride={stride} must lie between 1 and pe.max_len={max_len}")
        super().__init__(d_model, max_len, dropout, place=place)
        self.stride = stride
        self.max_positions: int = max_len // stride

    def embed(self, x: Tensor, offset: int = 0) -> Tensor:
        end = offset + x.size(1)
        self.check_length(end)
        if not self.training:
            last = (end - 1) * self.stride + 1
            return x + self.pe[:, offset * self.stride : last : self.stride].to(x.dtype)
        draw, available = self.place.draw, self.pe.size(1)
        if self.place.role == "encoder":
            draw.order = torch.randperm(available)
        order = torch.arange(available) if draw.order is None else draw.order
        position = order[: x.size(1)].sort().values.to(x.device)  # (S,)
        return x + self.pe[:, position].to(x.dtype)

    def check_length(self, longest: int) -> None:
        if longest > self.max_positions:
            raise SequenceTooLong(
                f"a sequence of {longest} positions does not fit pe.max_len={self.pe.size(1)} with "
                f"pe.stride={self.stride}; set pe.max_len={longest * self.stride} or more"
            )


class NestedSinusoid(PositionalEncoding, kind="sinusoidal_nested"):
    """The sinusoid with nested dropout (Rippel et al. 2014): low dimensions matter most.

    In training each example keeps its first k dimensions of the sum, k uniform in ``1 … D``, and
    loses the others. It orders the dimensions of the embedding by importance, which the paper's
    encoding does not.
    """

    def embed(self, x: Tensor, offset: int = 0) -> Tensor:
        x = super().embed(x, offset)
        if not self.training:
            return x
        kept = torch.randint(1, self.d_model + 1, (x.size(0), 1, 1), device=x.device)
        return x * (torch.arange(self.d_model, device=x.device) < kept)  # (B,1,D)
