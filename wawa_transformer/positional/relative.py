"""Encodings inside attention: queries and keys are turned, or a bias is added to their score.

Each sees how far a key stands from its query, and not where both stand.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from wawa_transformer.positional.base import Encoding, Positions

# ----------------------------------------------------------- a bias on attention scores: door 3

MANY_PAIRS = 2**14  # from about 128 queries and keys on


def cache_per_forward(method: Callable[..., Any]) -> Callable[..., Any]:
    """Keep the last result of a method of the positions ``(query, key)`` alone.

    Every layer of a forward pass asks for the same ones. A compiler sees that by itself, and what
    it computes must not outlive its graph.
    """
    kept = f"_last_{method.__name__}"

    @functools.wraps(method)
    def remembered(self: Encoding, query: Positions, key: Positions) -> Any:
        if torch.compiler.is_compiling():
            return method(self, query, key)
        asked = self.__dict__.get(kept)
        if asked is None or asked[0] is not query or asked[1] is not key:
            asked = self.__dict__[kept] = (query, key, method(self, query, key))
        return asked[2]

    return remembered


class RelativeEncoding(Encoding):
    """Door 3: what is added to a score depends on how far the key stands from the query.

    There are far fewer distances, R of them, than pairs of a query and a key; what depends on the
    distance is computed for each of :meth:`all_distances` and handed to all pairs by :meth:`expand_to_pairs`.
    Lower case b and h are sizes that positions may have: 1, or B and H.
    """

    relative = True

    @cache_per_forward
    def distances(self, query: Positions, key: Positions) -> Tensor:
        """Key minus query position, ``(b,h,Q,K)``."""
        return key.index[..., None, :] - query.index[..., :, None]

    @cache_per_forward
    def all_distances(self, query: Positions, key: Positions) -> Tensor:
        """Every distance there may be, from the lowest on: ``(R,)``."""
        nearest, farthest = key.start - query.end + 1, key.end - query.start
        return torch.arange(nearest, farthest, device=query.index.device)

    @cache_per_forward
    def distance_index(self, query: Positions, key: Positions) -> Tensor:
        """Where in :meth:`all_distances` a pair's distance stands, ``(b,h,Q,K)``."""
        return self.distances(query, key) + query.end - 1 - key.start

    def expand_to_pairs(self, values: Tensor, query: Positions, key: Positions) -> Tensor:
        """From values of every distance, ``(B or 1,H,Q or 1,R)``, each pair's: ``(B,H,Q,K)``."""
        if can_rel_shift(query, key):
            return rel_shift(values, query.index.size(-1))
        return gather_bias(values, self.distance_index(query, key))


def can_rel_shift(query: Positions, key: Positions) -> bool:
    """Whether :func:`rel_shift` may take the context of :func:`gather_bias`, and is the faster one."""
    if torch.compiler.is_compiling():  # for all sizes at once
        return False
    queries, keys = query.index.size(-1), key.index.size(-1)
    return query.consecutive and key.consecutive and (queries == 1 or queries * keys >= MANY_PAIRS)


def rel_shift(values: Tensor, queries: int) -> Tensor:
    """From ``values (B,H,Q or 1,R)`` those that :func:`gather_bias` takes where every query stands next
    to the one before it, as every key does: ``(B,H,Q,K)``, since there R is Q + K - 1.

    The first query has the last K of its row, and each other begins a context earlier than the one
    before (Dai et al. 2019, appendix B). Rows of R - 1 laid over rows of R begin just there.
    """
    if queries == 1:
        return values
    values = values.expand(-1, -1, queries, -1)  # (B,H,Q,R)
    distances = values.size(-1)
    flat = values.flatten(-2)[..., queries - 1 : queries * distances - 1]  # (B,H,Q*(R-1))
    rows = flat.unflatten(-1, (queries, distances - 1))  # (B,H,Q*(R-1)) -> (B,H,Q,R-1)
    return rows[..., : distances - queries + 1].contiguous()


def gather_bias(values: Tensor, index: Tensor) -> Tensor:
    """From ``values (b,h,Q or 1,R)`` those of ``index (b,h,Q,K)``: ``(B,H,Q,K)``."""
    batch, heads = (max(values.size(i), index.size(i)) for i in (0, 1))
    values = values.expand(batch, heads, index.size(2), -1)
    return values.gather(-1, index.expand(batch, heads, -1, -1))


def range_warning(setting: str, value: int, farthest: int) -> str | None:
    """A warning where a window of trained parameters is wider than the data's distances."""
    if value <= farthest:
        return None
    return (
        f"pe.{setting}={value} reaches past the farthest distance in the training data, "
        f"{farthest}: what lies beyond keeps its random start and is used at longer test lengths; "
        f"set pe.{setting}={farthest} or less."
    )
