"""Shaw's relative position representations (Shaw et al. 2018)."""

import torch
from torch import Tensor, nn

from wawa_transformer.common.limits import MAX_POSITIONS, check_number
from wawa_transformer.positional.base import EncodingContext, GeneratorFor, Positions
from wawa_transformer.positional.relative import RelativeEncoding, gather_bias


class ShawRelative(RelativeEncoding, kind="shaw"):
    """A trained key for each distance up to ``max_distance`` (Shaw et al. 2018, equation 4).

    The score gains ``q · a(clip(distance)) / sqrt(Dh)``. Differs from the paper: its relative
    values are left out, since it found that they cost nothing to remove (table 3); one table serves
    all heads and layers of a stack, where the paper's base model has one for each layer and head,
    and its big model one for each layer; ``cross`` acts in cross-attention too, the paper does not.
    """

    def __init__(self, context: EncodingContext, max_distance: int = 16) -> None:
        super().__init__(context)
        check_number("pe.max_distance", max_distance, 1, MAX_POSITIONS)
        self.max_distance = max_distance
        self.table = nn.Parameter(torch.empty(2 * max_distance + 1, context.head_width))
        self.reset_parameters(lambda name: torch.default_generator)

    def bias(self, q: Tensor, k: Tensor, query: Positions, key: Positions) -> Tensor:
        scores = q * q.size(-1) ** -0.5 @ self.table.T.to(q.dtype)  # (B,H,Q,2M+1)
        limit = self.max_distance
        rows = self.distances(query, key).clamp(-limit, limit) + limit  # (b,h,Q,K)
        return gather_bias(scores, rows)

    def reset_parameters(self, generator_for: GeneratorFor) -> None:
        std = self.context.head_width**-0.5
        nn.init.normal_(self.table, std=std, generator=generator_for("table"))
