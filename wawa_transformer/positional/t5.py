"""T5's relative attention bias (Raffel et al. 2020, section 2.1)."""

import math

import torch
from torch import Tensor, nn

from wawa_transformer.common.limits import MAX_POSITIONS, check_number
from wawa_transformer.common.messages import UserError
from wawa_transformer.positional.base import EncodingContext, GeneratorFor, Positions
from wawa_transformer.positional.relative import RelativeEncoding


class T5Buckets(RelativeEncoding, kind="t5"):
    """A trained bias for each head and bucket of distances (Raffel et al. 2020, section 2.1).

    Half of the buckets hold one distance each, the others grow geometrically up to
    ``max_distance``. All farther distances share the last bucket. In the encoder half of all
    buckets serve keys to the right. One table serves all layers of a stack, as in the paper.
    Differs from T5: scores are divided by sqrt(Dh), which T5 does not do. In
    ``configs/pe/t5.yaml`` there are 16 buckets up to 10, where the paper has 32 up to 128.
    """

    content_independent = True

    def __init__(
        self, context: EncodingContext, num_buckets: int = 32, max_distance: int = 128
    ) -> None:
        super().__init__(context)
        check_number("pe.num_buckets", num_buckets, 4, MAX_POSITIONS)
        check_number("pe.max_distance", max_distance, 1, MAX_POSITIONS)
        side = num_buckets if context.causal else num_buckets // 2
        if num_buckets % 2 or max_distance <= side // 2:
            raise UserError(
                f"pe.num_buckets={num_buckets} must be even, and "
                f"pe.max_distance={max_distance} greater than {side // 2}."
            )
        self.side, self.max_distance = side, max_distance
        exact = side // 2
        wide, ratio = side - exact, max_distance / exact
        # The first distance of each wide bucket, as integers: the logarithm of the paper's code can
        # land on either side of a boundary by rounding.
        edges = [math.ceil(round(exact * ratio ** (j / wide), 9)) for j in range(1, wide)]
        # No buffer, which to_empty() would lose.
        self.edges = torch.tensor(edges, dtype=torch.int64, device="cpu")
        self.table = nn.Parameter(torch.empty(num_buckets, context.num_heads))
        self.reset_parameters(lambda name: torch.default_generator)

    def bias(self, q: Tensor, k: Tensor, query: Positions, key: Positions) -> Tensor:
        values = self.table[self.bucket(self.all_distances(query, key))].to(q.dtype)  # (R,H)
        return self.expand_to_pairs(values.T[None, :, None], query, key)  # (b,H,Q,K)

    def bucket(self, distance: Tensor) -> Tensor:
        """The bucket of each ``distance`` (key minus query), any shape, int64."""
        exact = self.side // 2
        far = -distance if self.context.causal else distance.abs()
        far = far.clamp(min=0)
        edges = self.edges.to(far.device, non_blocking=True)
        beyond = torch.bucketize(far, edges, right=True)
        bucket = torch.where(far < exact, far, exact + beyond)
        return bucket if self.context.causal else bucket + self.side * (distance > 0)

    def reset_parameters(self, generator_for: GeneratorFor) -> None:
        std = self.context.d_model**-0.5
        nn.init.normal_(self.table, std=std, generator=generator_for("table"))
