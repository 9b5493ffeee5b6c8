"""Scores of queries and keys, fast: torch's kernel, and what it lacks on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from wawa_transformer.positional.base import Encoding, Positions

SCORES = 2**20  # so many of one attention are formed at once on a CPU: 4 MiB of float32
FEWEST_ROWS = 32
VECTOR = 16  # float32: a CPU's softmax over fewer keys takes them one at a time
SEVERAL = 4  # queries, from which on it is worth giving it more keys


class Doors:
    """Doors 2 and 3 of an encoding in one attention, and where its queries and keys stand.

    One object serves all layers of a pass: what does not depend on a layer's queries and keys is
    formed by the first of them, and serves the others under the same mask.
    """

    def __init__(self, encoding: Encoding, query: Positions, key: Positions) -> None:
        self.encoding, self.query, self.key = encoding, query, key
        self.formed: tuple[Tensor | None, Tensor] | None = None  # under which mask, and what
        self.cut: tuple[Tensor | None, list[Part]] = (None, [])

    def added(self, q: Tensor, k: Tensor, mask: Tensor | None) -> Tensor | None:
        """What is added to the scores, door 3 and the mask in one tensor; or the mask alone.

        SDPA takes a boolean mask or a float bias, never the two.
        """
        if self.formed is not None and self.formed[0] is mask:
            return self.formed[1]
        bias = self.encoding.bias(q, k, self.query, self.key)
        if bias is None:
            return mask
        if mask is not None:
            # Added, since the gradient of a sum passes as it is, and a masked fill's does not.
            bias = bias + torch.where(mask, 0.0, float("-inf")).to(bias.dtype)
        if self.encoding.content_independent:
            self.formed = mask, bias
        return bias

    def parts(self, mask: Tensor | None, rows: int) -> list[Part]:
        """The same attention ``rows`` queries at a time, with the keys that these may see."""
        if self.cut[0] is mask and self.cut[1]:
            return self.cut[1]
        self.cut = mask, []
        queries, every = self.query.index.size(-1), self.key.index.size(-1)
        several = rows < queries
        if mask is not None and several:
            mask = mask.expand(torch.broadcast_shapes(mask.shape, (queries, every)))  # (…,Q,K)
        for first in range(0, queries, rows):
            last, keys, may = min(first + rows, queries), every, mask
            if mask is not None and several:
                may = mask[..., first:last, :]  # (…,q,K)
                seen = may.flatten(0, -2).any(0)  # (K,)
                if seen.any():
                    keys = int(seen.nonzero().amax()) + 1
                may = may[..., :keys]
            blind = may is not None and not bool(may.any(-1).all())
            at = between(self.query, first, last), between(self.key, 0, keys)
            doors = Doors(self.encoding, *at)
            self.cut[1].append(Part(slice(first, last), slice(keys), may, blind, doors))
        return self.cut[1]


class Part(NamedTuple):
    """A few queries of an attention, and the keys up to the last one that these may see."""

    queries: slice
    keys: slice
    mask: Tensor | None  # (…,q,K)
    blind: bool  # whether one of the queries may see nothing
    doors: Doors


def between(at: Positions, first: int, last: int) -> Positions:
    """Those of the tokens ``first … last-1``."""
    index = at.index[..., first:last]
    if not at.consecutive:
        return Positions(index, at.end)
    return Positions(index, at.start + last, at.start + first, consecutive=True)


def fast_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, doors: Doors | None
) -> Tensor:
    """``softmax(q k^T / sqrt(Dh) + bias) v``, ``(B,H,Q,Dh)``, in the way that is the fastest.

    On a CPU a bias has no kernel of its own: all scores (B,H,Q,K) are formed, and read and written
    several times, of long sequences far more than a processor's cache holds. There a few queries
    come at a time.
    """
    if doors is None:
        return fused(q, k, v, mask)
    here = q.device.type == "cpu" and not torch.compiler.is_compiling()  # which fuses its own
    if not here or type(doors.encoding).bias is Encoding.bias:
        return fused(q, k, v, doors.added(q, k, mask))
    batch, heads, queries, _ = q.shape
    rows = max(FEWEST_ROWS, SCORES // (batch * heads * k.size(2)))
    attended = []
    for part in doors.parts(mask, min(rows, queries)):
        some = q[:, :, part.queries], k[:, :, part.keys], v[:, :, part.keys]
        added = part.doors.added(*some[:2], part.mask)
        assert added is not None, "there is a bias"
        kernel = summed if added.requires_grad and not part.blind else sdpa
        attended.append(fused(*some, added, kernel))
    return torch.cat(attended, dim=2) if len(attended) > 1 else attended[0]


sdpa = F.scaled_dot_product_attention


def fused(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, kernel: Callable[..., Tensor] = sdpa
) -> Tensor:
    """torch's kernel, on a CPU with enough keys, and in float32 where autocast would have bf16.

    The CPU's backward pass takes ten times as long in bf16.
    """
    if q.device.type == "cpu" and torch.is_autocast_enabled("cpu"):
        with torch.autocast("cpu", enabled=False):
            mask = mask.float() if mask is not None and mask.is_floating_point() else mask
            return fused(q.float(), k.float(), v.float(), mask, kernel)
    if short(q, k):
        k, v, mask = lengthened(k, v, mask)
    return kernel(q, k, v, mask)


def short(q: Tensor, k: Tensor) -> bool:
    """Whether a CPU is done sooner with more keys, which no query may see.

    Where torch's kernel is switched off, somebody counts what the formula takes.
    """
    return (
        not torch.compiler.is_compiling()
        and q.device.type == "cpu"
        and q.dtype == torch.float32
        and k.size(2) < VECTOR
        and q.size(2) >= SEVERAL
        and torch.backends.cuda.flash_sdp_enabled()  # for all devices, despite its name
    )


def lengthened(k: Tensor, v: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """``k, v (B,H,K,Dh)`` up to :data:`VECTOR` keys, and a mask (or bias) that hides the new."""
    keys = k.size(2)
    lacking = VECTOR - keys
    if mask is None:
        mask = torch.ones(1, keys, dtype=torch.bool)
    mask = mask.expand(*mask.shape[:-1], keys)  # it may broadcast over keys
    hidden = False if mask.dtype == torch.bool else float("-inf")
    k, v = (F.pad(t, (0, 0, 0, lacking)) for t in (k, v))  # (B,H,VECTOR,Dh)
    return k, v, F.pad(mask, (0, lacking), value=hidden)


def summed(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    """What SDPA gives, for a bias that is trained, and queries that all see something.

    Those scores are formed in any case, and this way read and written less often.
    """
    batch, heads, queries, width = q.shape
    bias = bias.expand(batch, heads, queries, k.size(2)).flatten(0, 1)  # (B*H,Q,K)
    q, k = q.flatten(0, 1), k.flatten(0, 1)  # (B,H,Q,Dh) -> (B*H,Q,Dh)
    scores = torch.baddbmm(bias, q, k.mT, alpha=width**-0.5)  # (B*H,Q,K)
    return (scores.softmax(-1) @ v.flatten(0, 1)).unflatten(0, (batch, heads))
