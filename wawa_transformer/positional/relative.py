"""The base class of encodings whose bias depends on the distance."""

import torch
from torch import Tensor

from wawa_transformer.positional.base import Encoding, Positions


class RelativeEncoding(Encoding):
    """A bias on attention scores that depends on the distance from query to key.

    There are far fewer distances, R of them, than pairs of a query and a key. Compute a value for
    each of :meth:`all_distances`, and give every pair its value by :meth:`expand_to_pairs`.
    Lower case b and h are the sizes of positions: 1, or B and H.
    """

    relative = True

    def distances(self, query: Positions, key: Positions) -> Tensor:
        """Key minus query position of every pair, ``(b,h,Q,K)``."""
        return key.ids[..., None, :] - query.ids[..., :, None]

    def all_distances(self, query: Positions, key: Positions) -> Tensor:
        """Every possible distance, from the lowest on: ``(R,)``."""
        lowest, end = key.start - query.end + 1, key.end - query.start
        # Without a query or a key, end is below the lowest.
        return torch.arange(lowest, max(lowest, end), device=query.ids.device)

    def expand_to_pairs(self, values: Tensor, query: Positions, key: Positions) -> Tensor:
        """Expand values per distance, ``(B or 1,H,Q or 1,R)``, to all pairs ``(B,H,Q,K)``."""
        lowest = key.start - query.end + 1  # of all_distances
        return gather_bias(values, self.distances(query, key) - lowest)


def gather_bias(values: Tensor, index: Tensor) -> Tensor:
    """The ``values (b,h,Q or 1,R)`` at ``index (b,h,Q,K)``: ``(B,H,Q,K)``."""
    # torch.broadcast_shapes would import sympy first, in half a second.
    sizes = zip(values.shape[:2], index.shape[:2], strict=True)
    batch, heads = (other if size == 1 else size for size, other in sizes)
    values = values.expand(batch, heads, index.size(2), -1)
    return values.gather(-1, index.expand(batch, heads, -1, -1))
