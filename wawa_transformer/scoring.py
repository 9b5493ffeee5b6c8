"""Scores of queries and keys, fast: torch's kernel, and what it lacks on a CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from wawa_transformer.positional import Encoding, Positions

SCORES = 2**20  # so many of one attention are formed at once on a CPU: 4 MiB of float32
FEWEST_ROWS = 32


@dataclass(frozen=True, eq=False)
class Doors:
    """Doors 2 and 3 of an encoding, and where queries and all keys of an attention stand."""

    encoding: Encoding
    query: Positions
    key: Positions


Inputs = tuple[Tensor, Tensor, Tensor, Tensor | None, Doors | None]  # q, k, v, mask, doors


def fused(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """torch's kernel; in float32 where a CPU's autocast would have it in bf16.

    The CPU's backward pass takes ten times as long in bf16.
    """
    if q.device.type != "cpu" or not torch.is_autocast_enabled("cpu"):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    with torch.autocast("cpu", enabled=False):
        q, k, v = q.float(), k.float(), v.float()
        mask = mask.float() if mask is not None and mask.is_floating_point() else mask
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def in_parts(
    attend: Callable[..., Tensor],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    doors: Doors | None,
    whole: bool,
) -> Tensor:
    """``attend(q, k, v, mask, doors)``, ``(B,H,Q,Dh)``; unless it must be ``whole``, in parts."""
    if whole:
        return attend(q, k, v, mask, doors)
    attended = [attend(*part) for part in blocks(q, k, v, mask, doors)]
    return torch.cat(attended, dim=2) if len(attended) > 1 else attended[0]


def blocks(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, doors: Doors | None
) -> Iterator[Inputs]:
    """The same attention, of long sequences with a bias on a CPU a few queries at a time.

    There a bias has no kernel of its own: all scores (B,H,Q,K) are formed, and read and written a
    dozen times, far more than a processor's cache holds. Each part has the keys that it may see.
    """
    batch, heads, rows, _ = q.shape
    here = q.device.type == "cpu" and not torch.compiler.is_compiling()  # which fuses its own
    if here and doors is not None and type(doors.encoding).bias is not Encoding.bias:
        rows = max(FEWEST_ROWS, SCORES // (batch * heads * k.size(2)))
    if doors is None or rows >= q.size(2):
        yield q, k, v, mask, doors
        return
    if mask is not None:
        pairs = q.size(2), k.size(2)
        mask = mask.expand(torch.broadcast_shapes(mask.shape, pairs))  # (…,Q,K)
    for first in range(0, q.size(2), rows):
        last, keys, may = min(first + rows, q.size(2)), k.size(2), mask
        if mask is not None:
            may = mask[..., first:last, :]  # (…,q,K)
            seen = may.flatten(0, -2).any(0)  # (K,)
            if seen.any():
                keys = int(seen.nonzero().amax()) + 1
            may = may[..., :keys]
        at = between(doors.query, first, last), between(doors.key, 0, keys)
        part = q[:, :, first:last], k[:, :, :keys], v[:, :, :keys]
        yield *part, may, Doors(doors.encoding, *at)


def between(at: Positions, first: int, last: int) -> Positions:
    """Those of the tokens ``first … last-1``."""
    index = at.index[..., first:last]
    if not at.consecutive:
        return Positions(index, at.end)
    return Positions(index, at.start + last, at.start + first, consecutive=True)
