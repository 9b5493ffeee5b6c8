"""A trained vector for each position (Gehring et al. 2017, section 3.1)."""

import torch
from torch import Tensor, nn

from wawa_transformer.common.limits import MAX_POSITIONS, check_number
from wawa_transformer.positional.base import AbsoluteEncoding, GeneratorFor, Positions


class LearnedEncoding(AbsoluteEncoding, kind="learned"):
    """A trained vector for each position (Gehring et al. 2017, section 3.1).

    Differs from the paper, whose network is convolutional: token embeddings are scaled by sqrt(D)
    before the sum.

    Args:
        d_model: width D of the embeddings.
        max_len: number of positions in the table; a longer input raises an error.
        dropout: probability of zeroing an element of the sum.
        init_std: standard deviation of the starting values. It decides how fast the table is
            learned: 1.0 matches token embeddings after their scaling by sqrt(D); 0 starts without
            positions.
    """

    def __init__(
        self, d_model: int, max_len: int = 256, dropout: float = 0.1, init_std: float = 1.0
    ) -> None:
        super().__init__(d_model, dropout)
        check_number("pe.max_len", max_len, 1, MAX_POSITIONS)
        check_number("pe.init_std", init_std, 0.0, 1000)
        self.max_positions: int = max_len
        self.init_std = init_std
        self.table = nn.Parameter(torch.empty(max_len, d_model))
        self.reset_parameters(lambda name: torch.default_generator)

    def embed(self, x: Tensor, positions: Positions) -> Tensor:
        """``x (B,S,D)`` plus the table's row for each position, in ``x.dtype``."""
        self.check_length(positions.end)
        return x + self.rows(self.table, positions.ids).to(x.dtype)

    def reset_parameters(self, generator_for: GeneratorFor) -> None:
        nn.init.normal_(self.table, std=self.init_std, generator=generator_for("table"))
