"""T5's trained bias for buckets of distances."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from wawa_transformer.common.limits import MOST_POSITIONS, check_number
from wawa_transformer.positional.base import Place, Positions
from wawa_transformer.positional.relative import RelativeEncoding, untrained


class T5Buckets(RelativeEncoding, kind="t5"):
    """A trained bias for each head and bucket of distances (Raffel et al. 2020, section 2.1).

    Half of the buckets hold one distance each, the others grow geometrically up to
    ``max_distance``; whatever is farther shares the last one. In the encoder half of all buckets
    serve keys to the right. One table serves all layers of a stack, as in the paper.
    """

    of_positions = True
    edges: Tensor

    def __init__(self, place: Place, num_buckets: int = 32, max_distance: int = 128) -> None:
        super().__init__(place)
        check_number("pe.num_buckets", num_buckets, 4, MOST_POSITIONS)
        check_number("pe.max_distance", max_distance, 1, MOST_POSITIONS)
        side = num_buckets if place.causal else num_buckets // 2
        if num_buckets % 2 or max_distance <= side // 2:
            raise ValueError(
                f"pe.num_buckets={num_buckets} must be even, and "
                f"pe.max_distance={max_distance} greater than {side // 2}"
            )
        self.side, self.max_distance = side, max_distance
        exact = side // 2
        wide, ratio = side - exact, max_distance / exact
        # Where each wide bucket begins. As integers: the logarithm of the paper's code can land
        # on either side of a boundary by rounding.
        edges = [math.ceil(round(exact * ratio ** (j / wide), 9)) for j in range(1, wide)]
        self.register_buffer("edges", torch.tensor(edges, dtype=torch.int64), persistent=False)
        self.table = nn.Parameter(torch.empty(num_buckets, place.num_heads))
        self.initialise(lambda name: torch.default_generator)

    def bias(self, q: Tensor, k: Tensor, query: Positions, key: Positions) -> Tensor:
        values = self.table[self.bucket(self.every(query, key))].to(q.dtype)  # (R,H)
        return self.to_pairs(values.T[None, :, None], query, key)  # (b,H,Q,K)

    def bucket(self, distance: Tensor) -> Tensor:
        """The bucket of each ``distance`` (key minus query), any shape, int64."""
        exact = self.side // 2
        far = -distance if self.place.causal else distance.abs()
        far = far.clamp(min=0)
        beyond = torch.bucketize(far, self.edges, right=True)
        bucket = torch.where(far < exact, far, exact + beyond)
        return bucket if self.place.causal else bucket + self.side * (distance > 0)

    def initialise(self, draw: Callable[[str], torch.Generator]) -> None:
        nn.init.normal_(self.table, std=self.place.d_model**-0.5, generator=draw("table"))

    def untrained(self, farthest: int) -> str | None:
        return untrained("max_distance", self.max_distance, farthest)
