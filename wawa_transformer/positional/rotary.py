"""Rotary position embedding: queries and keys are turned by their positions."""

from __future__ import annotations

import torch
from torch import Tensor

from wawa_transformer.common.limits import check_number
from wawa_transformer.positional.base import Encoding, EncodingContext, Positions
from wawa_transformer.positional.sinusoidal import PositionalEncoding

# ------------------------------------------------------------- turned queries and keys: door 2


class Rotary(Encoding, kind="rotary"):
    """Rotary position embedding (Su et al. 2021, equation 34).

    Dimensions 2i and 2i+1 of every query and key are turned by ``position · base^(-2i/Dh)``, so
    that their product depends on the distance alone.

    Args:
        base: as in the sinusoid.
        fraction: partial rotary, as in GPT-NeoX: the first dimensions of a head, this share of
            them, are turned as if they were a head of their own; the others stay.
        p: p-RoPE (Barbero et al. 2024, section 6): of the frequencies this share is kept, the
            fastest; the slowest, which long contexts turn into noise, turn nothing.
        stretch: position interpolation (Chen et al. 2023): positions are divided by it.

    Raises:
        ValueError: an odd head width has no pairs; nothing is left to turn.
    """

    relative = True

    def __init__(
        self,
        context: EncodingContext,
        base: float = 10000.0,
        fraction: float = 1.0,
        p: float = 1.0,
        stretch: float = 1.0,
    ) -> None:
        super().__init__(context)
        if context.head_width % 2:
            raise ValueError(
                f"pe=rotary turns pairs of dimensions, but model.d_model={context.d_model} over "
                f"model.num_heads={context.num_heads} gives heads of odd width {context.head_width}; "
                f"choose a model.num_heads that gives an even one"
            )
        check_number("pe.fraction", fraction, 0, 1)
        check_number("pe.p", p, 0, 1)
        width = int(fraction * context.head_width) // 2 * 2
        self.turned = int(p * width / 2) * 2
        if not self.turned:
            raise ValueError(
                f"pe.fraction={fraction} and pe.p={p} leave no pair of a head's "
                f"{context.head_width} dimensions to turn; raise them, or choose pe=none"
            )
        self.angles = PositionalEncoding(
            width, max_len=512, dropout=0.0, base=base, stretch=stretch
        )

    def rotate(
        self, q: Tensor, k: Tensor, query: Positions, key: Positions
    ) -> tuple[Tensor, Tensor]:
        return self.turn(q, query), self.turn(k, key)

    def turn(self, x: Tensor, at: Positions) -> Tensor:
        """``x (B,H,S,Dh)`` turned by its positions; in float32 at least."""
        x, rest = x.tensor_split((self.turned,), dim=-1)  # (B,H,S,W), (B,H,S,Dh-W)
        exact = torch.promote_types(x.dtype, torch.float32)
        table = self.angles.table(at.end)[at.index, : self.turned]  # (b,h,S,W): sine, cosine, …
        sine, cosine = table.to(exact).unflatten(-1, (-1, 2)).unbind(-1)  # (b,h,S,W/2)
        pairs = x.to(exact).unflatten(-1, (-1, 2))  # (B,H,S,W) -> (B,H,S,W/2,2)
        if torch.compiler.is_compiling():  # which generates no code for complex numbers
            even, odd = pairs.unbind(-1)
            parts = (even * cosine - odd * sine, even * sine + odd * cosine)
            turned = torch.stack(parts, dim=-1)
        else:
            numbers = torch.view_as_complex(pairs) * torch.complex(cosine, sine)
            turned = torch.view_as_real(numbers)
        turned = turned.flatten(-2).to(x.dtype)  # (B,H,S,W/2,2) -> (B,H,S,W)
        return torch.cat((turned, rest), dim=-1) if rest.size(-1) else turned
