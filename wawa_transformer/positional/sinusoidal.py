"""The fixed sinusoidal encoding of Vaswani et al. 2017, section 3.5."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from wawa_transformer.common.limits import (
    MAX_POSITIONS,
    check_base,
    check_choice,
    check_number,
    explain_foreign_arguments,
)
from wawa_transformer.positional.base import AbsoluteEncoding, EncodingContext, Positions
from wawa_transformer.positional.sinusoid_designs import (
    BANDS,
    LAYOUTS,
    ORDERS,
    SPACINGS,
    sinusoid_table,
)


class PositionalEncoding(AbsoluteEncoding, kind="sinusoidal"):
    r"""The fixed sinusoidal encoding of Vaswani et al. 2017, section 3.5.

    .. math::
        PE(pos, 2i) = \sin(pos / 10000^{2i/d_{model}}), \quad
        PE(pos, 2i+1) = \cos(pos / 10000^{2i/d_{model}})

    Args:
        d_model: width D of the embeddings; odd widths end on a sine.
        max_len: positions in the table to begin with; a longer input grows it, since a formula
            has no last position.
        dropout: probability of zeroing an element of the sum.
        base, spacing, order, layout, band, stretch: the design of the table, see
            :mod:`wawa_transformer.positional.sinusoid_designs`; what is left out is the paper's.
    """

    pe: Tensor

    @explain_foreign_arguments
    def __init__(
        self,
        d_model: int,
        max_len: int = 5000,
        dropout: float = 0.1,
        base: float = 10000.0,
        spacing: str = "geometric",
        order: str = "falling",
        layout: str = "interleaved",
        band: str = "all",
        stretch: float = 1.0,
        *,
        context: EncodingContext | None = None,
    ) -> None:
        super().__init__(d_model, dropout, context)
        check_number("pe.max_len", max_len, 1, MAX_POSITIONS)
        check_base(base)
        check_choice("spacing", spacing, SPACINGS)
        check_choice("order", order, ORDERS)
        check_choice("layout", layout, LAYOUTS)
        check_choice("band", band, BANDS)
        check_number("pe.stretch", stretch, 1e-6, 1e6)
        self.design: dict[str, Any] = dict(
            base=base, spacing=spacing, order=order, layout=layout, band=band, stretch=stretch
        )
        # Not persistent: a checkpoint must load whatever max_len it was made with.
        table = sinusoid_table(max_len, d_model, **self.design)
        self.register_buffer("pe", table, persistent=False)

    def embed(self, x: Tensor, at: Positions) -> Tensor:
        """``x (B,S,D)`` plus the rows of the table at its positions, in ``x.dtype``."""
        if x.ndim != 3 or x.size(-1) != self.d_model:
            raise ValueError(f"expected (batch, seq, d_model={self.d_model}), got {tuple(x.shape)}")
        return x + self.rows(self.table(at.end), at.index).to(x.dtype)

    def table(self, end: int) -> Tensor:
        """The table ``(R,D)``, float32, of at least ``end`` positions."""
        if end > self.pe.size(1):
            grown = max(end, 2 * self.pe.size(1))  # doubling: growing one by one stays cheap
            self.pe = sinusoid_table(grown, self.d_model, **self.design).to(self.pe.device)
        return self.pe[0]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> PositionalEncoding:
        # model.bfloat16() would round the table for good; follow the device, keep float32.
        table = self.pe
        super()._apply(fn, recurse)
        self.pe = table.to(self.pe.device)
        return self
