"""The fixed sinusoidal encoding of Vaswani et al. 2017, section 3.5."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from wawa_transformer.common.limits import MAX_POSITIONS, check_number
from wawa_transformer.positional.base import AbsoluteEncoding, Positions


def sinusoid(position: Tensor, d_model: int, base: float = 10000.0) -> Tensor:
    """Sines and cosines of any ``position (N,)``, also negative: ``(N, d_model)``, float64.

    In float32 the angle position × frequency loses its last digits as positions grow. In bf16 it
    would be off by more than a radian beyond position 256.
    """
    pair = torch.arange((d_model + 1) // 2, dtype=torch.float64, device="cpu")  # i
    frequency = torch.exp(2 * pair * (-math.log(base) / d_model))  # base^(-2i/D)
    # non_blocking: Transformer-XL computes a table in every step, and no GPU should wait for it.
    angle = position.double()[:, None] * frequency.to(position.device, non_blocking=True)
    table = angle.new_empty(len(position), d_model)
    table[:, 0::2] = angle.sin()
    table[:, 1::2] = angle[:, : d_model // 2].cos()  # an odd width has one cosine fewer
    return table


class PositionalEncoding(AbsoluteEncoding, kind="sinusoidal"):
    r"""The fixed sinusoidal encoding of Vaswani et al. 2017, section 3.5.

    .. math::
        PE(pos, 2i) = \sin(pos / 10000^{2i/d_{model}}), \quad
        PE(pos, 2i+1) = \cos(pos / 10000^{2i/d_{model}})

    The paper's own code (tensor2tensor) has all sines before all cosines, and frequencies down to
    1/10000: see :class:`SinusoidDesign`.

    Args:
        d_model: width D of the embeddings; odd widths end on a sine.
        max_len: number of positions in the table at first; a longer input grows the table, since a
            formula has no last position.
        dropout: probability of zeroing an element of the sum.
    """

    pe: Tensor  # (1, max_len, d_model), float32

    def __init__(self, d_model: int, max_len: int = 5000, dropout: float = 0.1) -> None:
        super().__init__(d_model, dropout)
        check_number("pe.max_len", max_len, 1, MAX_POSITIONS)
        # Not persistent: a checkpoint must load whatever max_len it was made with.
        self.register_buffer("pe", self.make_table(max_len), persistent=False)

    def make_table(self, length: int) -> Tensor:
        """The table ``(1, length, d_model)``, float32."""
        position = torch.arange(length, dtype=torch.float64)
        return sinusoid(position, self.d_model).float().unsqueeze(0)

    def embed(self, x: Tensor, positions: Positions) -> Tensor:
        """``x (B,S,D)`` plus the table's row for each position, in ``x.dtype``."""
        if x.shape[2:] != (self.d_model,) or not x.is_floating_point():
            raise ValueError(f"need floats (batch, seq, {self.d_model}), got {x.dtype}{[*x.shape]}")
        return x + self.rows(self.table(positions.end), positions.ids).to(x.dtype)

    def table(self, end: int) -> Tensor:
        """The table ``(R,D)``, float32, of at least ``end`` positions."""
        if end > self.pe.size(1):
            grown = max(end, 2 * self.pe.size(1))  # doubling keeps growing one by one cheap
            self.pe = self.make_table(grown).to(self.pe.device)
        return self.pe[0]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> PositionalEncoding:
        # fn would round the table in bfloat16(), and leave it without values in to_empty().
        old = self.pe
        super()._apply(fn, recurse)
        self.pe = (self.make_table(old.size(1)) if old.is_meta else old).to(self.pe.device)
        return self
