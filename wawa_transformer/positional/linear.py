"""The position as a number, along one trained direction: what sinusoids replaced."""

import torch
from torch import Tensor, nn

from wawa_transformer.positional.base import AbsoluteEncoding, GeneratorFor, Positions


class LinearEncoding(AbsoluteEncoding, kind="linear"):
    """The position times a trained vector, the plainest idea of all.

    With ``pe.divided=1`` the position is divided by the source's length, p / n. We know no paper
    that proposes either; introductions to the sinusoid name both to reject them: p grows beyond
    what training has seen, and a step of p / n depends on the length.

    Args:
        d_model: width D of the embeddings.
        dropout: probability of zeroing an element of the sum.
    """

    fractional = True

    def __init__(self, d_model: int, dropout: float = 0.1) -> None:
        super().__init__(d_model, dropout)
        self.direction = nn.Parameter(torch.empty(d_model))
        self.reset_parameters(lambda name: torch.default_generator)

    def embed(self, x: Tensor, positions: Positions) -> Tensor:
        """``x (B,S,D)`` plus each position times the direction, in ``x.dtype``."""
        # As in AbsoluteEncoding.rows, pairs of dimensions take the heads' positions in turn.
        at = positions.ids.transpose(1, 2).repeat_interleave(2, dim=-1)  # (B,H,S) -> (B,S,2H)
        at = at.repeat(1, 1, -(-self.d_model // at.size(-1)))[..., : self.d_model]  # (B,S,D)
        return x + (at * self.direction).to(x.dtype)

    def reset_parameters(self, generator_for: GeneratorFor) -> None:
        nn.init.normal_(self.direction, generator=generator_for("direction"))
