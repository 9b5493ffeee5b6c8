"""The sinusoid beside the token instead of added to it."""

import torch
from torch import Tensor

from wawa_transformer.common.messages import UserError
from wawa_transformer.positional.base import Positions
from wawa_transformer.positional.sinusoidal import PositionalEncoding, sinusoid


class ConcatenatedEncoding(PositionalEncoding, kind="sinusoidal_concatenated"):
    """The first half of the width holds the token, the second half the sinusoid.

    The sinusoid of Vaswani et al. 2017, section 3.5, with half the frequencies, concatenated to a
    token embedding of half the width. Differs from a model with such embeddings in this: the
    second half of the embedding matrix is there and never used.

    Args:
        d_model: width D of both together; even.
        max_len, dropout: as in :class:`PositionalEncoding`.
    """

    def __init__(self, d_model: int, max_len: int = 5000, dropout: float = 0.1) -> None:
        if d_model % 2:
            raise UserError(
                f"pe.kind=sinusoidal_concatenated halves model.d_model={d_model}; make it even."
            )
        super().__init__(d_model, max_len, dropout)

    def make_table(self, length: int) -> Tensor:
        """The table ``(1, length, D)``, float32; the token's half is zero."""
        half = sinusoid(torch.arange(length, dtype=torch.float64), self.d_model // 2)
        return torch.cat((torch.zeros_like(half), half), dim=1).float()[None]

    def embed(self, x: Tensor, positions: Positions) -> Tensor:
        """``x (B,S,D)`` with its second half replaced by the position's sinusoid."""
        token = torch.arange(self.d_model, device=x.device) < self.d_model // 2  # (D,)
        return super().embed(x * token, positions)
