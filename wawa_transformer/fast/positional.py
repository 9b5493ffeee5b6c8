"""Faster encodings: relative shifts, complex rotation, a lookup for FIRE."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from wawa_transformer.positional.base import Encoding, Positions
from wawa_transformer.positional.fire import FIRE
from wawa_transformer.positional.relative import RelativeEncoding, gather_bias
from wawa_transformer.positional.rotary import Rotary
from wawa_transformer.positional.shaw import ShawRelative
from wawa_transformer.positional.transformer_xl import TransformerXL

MANY_PAIRS = 2**14  # about 128 queries and keys


def cache_per_forward(method: Callable[..., Any]) -> Callable[..., Any]:
    """Cache a method's last result for ``(query, key)``, shared by all layers."""
    kept = f"_last_{method.__name__}"

    @functools.wraps(method)
    def remembered(self: Encoding, query: Positions, key: Positions) -> Any:
        last = self.__dict__.get(kept)
        if last is None or last[0] is not query or last[1] is not key:
            last = self.__dict__[kept] = (query, key, method(self, query, key))
        return last[2]

    return remembered


class FastRelative(RelativeEncoding):
    """A relative encoding with cached distances and shifts instead of gathers."""

    @cache_per_forward
    def distances(self, query: Positions, key: Positions) -> Tensor:
        return super().distances(query, key)

    @cache_per_forward
    def all_distances(self, query: Positions, key: Positions) -> Tensor:
        return super().all_distances(query, key)

    @cache_per_forward
    def distance_index(self, query: Positions, key: Positions) -> Tensor:
        return super().distance_index(query, key)

    def expand_to_pairs(self, values: Tensor, query: Positions, key: Positions) -> Tensor:
        if can_rel_shift(query, key):
            return rel_shift(values, query.ids.size(-1))
        return super().expand_to_pairs(values, query, key)


def can_rel_shift(query: Positions, key: Positions) -> bool:
    """True if :func:`rel_shift` equals a gather here, and is faster."""
    queries, keys = query.ids.size(-1), key.ids.size(-1)
    return query.consecutive and key.consecutive and (queries == 1 or queries * keys >= MANY_PAIRS)


def rel_shift(values: Tensor, queries: int) -> Tensor:
    """Shift ``values (B,H,Q or 1,R)`` to pairs ``(B,H,Q,K)``; R = Q + K - 1.

    Query and key positions are consecutive. The first query needs the last K values of its row, and
    each next query starts one value earlier (Dai et al. 2019, appendix B). Rows of R - 1 laid over
    rows of R start exactly there.
    """
    if queries == 1:
        return values
    values = values.expand(-1, -1, queries, -1)  # (B,H,Q,R)
    distances = values.size(-1)
    flat = values.flatten(-2)[..., queries - 1 : queries * distances - 1]  # (B,H,Q*(R-1))
    rows = flat.unflatten(-1, (queries, distances - 1))  # (B,H,Q*(R-1)) -> (B,H,Q,R-1)
    return rows[..., : distances - queries + 1].contiguous()


class FastRotary(Rotary):
    """:class:`Rotary` by products of complex numbers."""

    def rotate_pairs(self, pairs: Tensor, sine: Tensor, cosine: Tensor) -> Tensor:
        rotated = torch.view_as_complex(pairs) * torch.complex(cosine, sine)
        return torch.view_as_real(rotated)


class FastShaw(FastRelative, ShawRelative):
    """:class:`ShawRelative` whose scores are shifted and not gathered."""

    def bias(self, q: Tensor, k: Tensor, query: Positions, key: Positions) -> Tensor:
        if not can_rel_shift(query, key):
            return super().bias(q, k, query, key)
        scores = q * q.size(-1) ** -0.5 @ self.table.T.to(q.dtype)  # (B,H,Q,2M+1)
        return rel_shift(self.spread(scores, query, key), q.size(2))

    @cache_per_forward
    def table_rows(self, query: Positions, key: Positions) -> Tensor:
        return super().table_rows(query, key)

    def spread(self, scores: Tensor, query: Positions, key: Positions) -> Tensor:
        """Extend values of the window's distances ``(…,2M+1)`` to all ``(…,R)``."""
        limit = self.max_distance
        lowest, highest = key.start - query.end + 1, key.end - query.start - 1
        distances = highest - lowest + 1
        below = min(max(-limit - lowest, 0), distances)  # distances that share the first
        above = min(max(highest - limit, 0), distances)  # and the last
        within = scores[..., max(lowest + limit, 0) : max(highest + limit + 1, 0)]
        first, last = scores[..., :1], scores[..., -1:]
        sides = first.expand(*first.shape[:-1], below), last.expand(*last.shape[:-1], above)
        return torch.cat((sides[0], within, sides[1]), dim=-1)


class FastXL(FastRelative, TransformerXL):
    """:class:`TransformerXL` with one table of sinusoids a pass."""

    @cache_per_forward
    def sinusoids(self, query: Positions, key: Positions) -> Tensor:
        return super().sinusoids(query, key)


class FastFIRE(FastRelative, FIRE):
    """:class:`FIRE` whose network is looked up.

    As a function of one number, a network of one hidden layer is straight between the kinks of its
    units. So each pair looks up one line, and not all units are computed for it.
    """

    def network(self, share: Tensor) -> Tensor:
        # A kink that no share reaches, or a unit without one, is put at 2.
        kinks = (-self.inner_bias / self.inner).detach().nan_to_num(2).clamp(-2, 2).sort().values
        between = torch.cat((kinks[:1] - 1, (kinks[1:] + kinks[:-1]) / 2, kinks[-1:] + 1))
        active = between[:, None] * self.inner + self.inner_bias > 0  # (W+1,W): on each line
        index = torch.bucketize(share.detach(), kinks)
        slope, start = (
            (self.outer[:, None] * (active * weight)).sum(-1)  # no product: it stays out of bf16
            for weight in (self.inner, self.inner_bias)
        )  # (H,W+1) each
        slope, start = slope[None, :, None], start[None, :, None]
        return gather_bias(slope, index) * share + gather_bias(start, index)
