"""Fast attention on a CPU: padded keys, chunks of queries, a cheaper bias."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor

from wawa_transformer.fast.linear import PACKED, fast_linear
from wawa_transformer.model.attention import AttentionPosition, MultiHeadAttention
from wawa_transformer.positional.base import Encoding, Positions

MAX_SCORES = 2**20  # formed at a time by one attention: 4 MiB of float32, a processor's cache
MIN_ROWS = 32  # queries of a chunk
VECTOR = 16  # float32: a CPU's softmax over fewer keys takes them one at a time
MIN_QUERIES = 4  # for padding keys to pay


class FastAttention(MultiHeadAttention):
    """:class:`MultiHeadAttention` that computes the same sooner on a CPU.

    A bias has no fused kernel on a CPU: all scores (B,H,Q,K) are formed, and are read and written
    several times. Those of long sequences do not fit a processor's cache, so a few queries come at
    a time.
    """

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None,
        position: AttentionPosition | None,
    ) -> Tensor:
        if self.keep_weights or not q.size(2):
            return super().attend(q, k, v, mask, position)
        if position is None or type(position.encoding).bias is Encoding.bias:
            return sdpa(q, k, v, mask)
        batch, heads, queries, _ = q.shape
        rows = max(MIN_ROWS, MAX_SCORES // max(1, batch * heads * k.size(2)))
        attended = []
        for chunk in query_chunks(position, mask, min(rows, queries)):
            some = q[:, :, chunk.queries], k[:, :, chunk.keys], v[:, :, chunk.keys]
            bias = chunk.position.masked_bias(*some[:2], chunk.mask)
            assert bias is not None, "the encoding has a bias"
            trained = bias.requires_grad and not chunk.has_empty_row
            kernel = attention_with_bias if trained else F.scaled_dot_product_attention
            attended.append(sdpa(*some, bias, kernel))
        return torch.cat(attended, dim=2) if len(attended) > 1 else attended[0]

    def project(self, x: Tensor, first: int, last: int) -> Tensor:
        weight, bias = self.in_proj.weight[first:last], self.in_proj.bias[first:last]
        return fast_linear(x, weight, bias, self)

    def train(self, mode: bool = True) -> FastAttention:
        if mode:
            PACKED.pop(self, None)
        super().train(mode)
        return self


class QueryChunk(NamedTuple):
    """A chunk of queries with the keys that they may see."""

    queries: slice
    keys: slice
    mask: Tensor | None  # (…,q,K)
    has_empty_row: bool  # True if one of the queries may see nothing
    position: AttentionPosition


# The last chunks of an attention's positions, which all layers of a forward pass share.
CHUNKS: WeakKeyDictionary[AttentionPosition, tuple[Tensor | None, list[QueryChunk]]]
CHUNKS = WeakKeyDictionary()


def query_chunks(position: AttentionPosition, mask: Tensor | None, rows: int) -> list[QueryChunk]:
    """Split an attention into chunks of ``rows`` queries."""
    kept = CHUNKS.get(position)
    if kept is not None and kept[0] is mask:
        return kept[1]
    queries, all_keys = position.query.ids.size(-1), position.key.ids.size(-1)
    several, chunks = rows < queries, []
    if mask is not None and several:
        mask_of_all = mask.expand(torch.broadcast_shapes(mask.shape, (queries, all_keys)))
    for first in range(0, queries, max(1, rows)):
        last, keys, visible = min(first + rows, queries), all_keys, mask
        if mask is not None and several:
            visible = mask_of_all[..., first:last, :]  # (…,q,K)
            seen = visible.flatten(0, -2).any(0)  # (K,)
            if seen.any():
                keys = int(seen.nonzero().amax()) + 1
            visible = visible[..., :keys]
        has_empty_row = visible is not None and not bool(visible.any(-1).all())
        at = between(position.query, first, last), between(position.key, 0, keys)
        part = AttentionPosition(position.encoding, *at)
        chunks.append(QueryChunk(slice(first, last), slice(keys), visible, has_empty_row, part))
    CHUNKS[position] = mask, chunks
    return chunks


def between(positions: Positions, first: int, last: int) -> Positions:
    """The positions of tokens ``first … last-1``."""
    ids = positions.ids[..., first:last]
    if not positions.consecutive:
        return Positions(ids, positions.end)
    return Positions(ids, positions.start + last, positions.start + first, consecutive=True)


def sdpa(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    kernel: Callable[..., Tensor] = F.scaled_dot_product_attention,
) -> Tensor:
    """``kernel`` with enough keys, and in float32 where autocast would choose bf16.

    The CPU's backward pass takes ten times as long in bf16.
    """
    if torch.is_autocast_enabled("cpu"):
        with torch.autocast("cpu", enabled=False):
            mask = mask.float() if mask is not None and mask.is_floating_point() else mask
            return sdpa(q.float(), k.float(), v.float(), mask, kernel)
    if should_pad_keys(q, k):
        k, v, mask = pad_keys(k, v, mask)
    return kernel(q, k, v, mask)


def should_pad_keys(q: Tensor, k: Tensor) -> bool:
    """True if softmax is faster over more keys, even though no query may see the new ones."""
    return q.dtype == torch.float32 and k.size(2) < VECTOR and q.size(2) >= MIN_QUERIES


def pad_keys(k: Tensor, v: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """``k, v (B,H,K,Dh)`` with :data:`VECTOR` keys, and a mask or bias that hides the new ones."""
    keys = k.size(2)
    lacking = VECTOR - keys
    if mask is None:
        mask = torch.ones(1, keys, dtype=torch.bool)
    mask = mask.expand(*mask.shape[:-1], keys)  # it may broadcast over keys
    hidden = False if mask.dtype == torch.bool else float("-inf")
    k, v = (F.pad(t, (0, 0, 0, lacking)) for t in (k, v))  # (B,H,VECTOR,Dh)
    return k, v, F.pad(mask, (0, lacking), value=hidden)


def attention_with_bias(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    """Attention with a bias that is trained, if every query may see something.

    Its scores are formed in any case; here they are read and written less often.
    """
    batch, heads, queries, width = q.shape
    bias = bias.expand(batch, heads, queries, k.size(2)).flatten(0, 1)  # (B*H,Q,K)
    q, k = q.flatten(0, 1), k.flatten(0, 1)  # (B,H,Q,Dh) -> (B*H,Q,Dh)
    scores = torch.baddbmm(bias, q, k.mT, alpha=width**-0.5)  # (B*H,Q,K)
    return (scores.softmax(-1) @ v.flatten(0, 1)).unflatten(0, (batch, heads))
