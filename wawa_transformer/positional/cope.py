"""CoPE (Golovneva et al. 2024): a distance counted by content."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wawa_transformer.common.limits import MAX_POSITIONS, check_number
from wawa_transformer.positional.base import Encoding, EncodingContext, GeneratorFor, Positions
from wawa_transformer.positional.relative import gather_bias


class CoPE(Encoding, kind="cope"):
    """Contextual position encoding (Golovneva et al. 2024, section 4).

    Between a key and its query are other keys. Each counts as a position to the degree that the
    query attends to it: ``p = Σ sigmoid(q·k / sqrt(Dh))``, the key included. The score gains
    ``q · e[p]``, interpolated between trained vectors; a p beyond the last one takes the last one.
    The gates need the scores before any mask or bias, which no fused kernel returns, so the scores
    are computed twice. Differs from the paper: its code divides ``q · e[p]`` by sqrt(Dh), too,
    unless told otherwise; each of its layers has vectors of its own; it has decoders alone. Here
    the encoder counts keys to the right from the query to the key, with other vectors.
    Cross-attention is not served: no key lies between a target's query and a source's key.
    """

    uses_positions = False

    def __init__(self, context: EncodingContext, num_positions: int = 64) -> None:
        super().__init__(context)
        check_number("pe.num_positions", num_positions, 2, MAX_POSITIONS)
        sides = 1 if context.causal else 2  # to the left, to the right
        self.table = nn.Parameter(torch.empty(sides, num_positions, context.head_width))
        self.reset_parameters(lambda name: torch.default_generator)

    def bias(self, q: Tensor, k: Tensor, query: Positions, key: Positions) -> Tensor:
        left = key.ids[..., None, :] <= query.ids[..., :, None]  # (b,h,Q,K)
        scores = q * q.size(-1) ** -0.5 @ k.transpose(-2, -1)  # (B,H,Q,K)
        gates = scores.to(torch.promote_types(q.dtype, torch.float32)).sigmoid()
        passed = gates * left
        # Summed from the query outwards: a difference of two long sums would lose digits.
        count = passed.flip(-1).cumsum(-1).flip(-1)
        if not self.context.causal:
            count = count + (gates - passed).cumsum(-1)
        rows = self.table.size(1)
        low = count.detach().floor().clamp(0, rows - 1)
        index = low.long()
        if not self.context.causal:
            index += ~left * rows  # the first vector of its side
        steps = F.pad(self.table.diff(dim=1), (0, 0, 0, 1))  # to the next; the last has none
        tables = (each.flatten(0, 1).T.to(q.dtype) for each in (self.table, steps))  # (Dh,2R)
        below, step = (gather_bias(q @ table, index) for table in tables)  # (B,H,Q,K)
        return torch.addcmul(below, step, (count - low).to(q.dtype))

    def reset_parameters(self, generator_for: GeneratorFor) -> None:
        nn.init.zeros_(self.table)
