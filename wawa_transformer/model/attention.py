"""Multi-head attention (Vaswani et al. 2017, section 3.2); it knows no particular encoding."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from wawa_transformer.fast.attention import Doors, fast_attention, fused
from wawa_transformer.fast.linear import Linear, linear
from wawa_transformer.model.kv_cache import KeyValueCache


class MultiHeadAttention(nn.Module):
    """Scaled dot-product attention in ``num_heads`` subspaces of ``d_model``.

    Self-attention when ``memory`` is left out, cross-attention otherwise. The weights are laid
    out as in ``torch.nn.MultiheadAttention``: queries, keys, values stacked in ``in_proj``.
    """

    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.in_proj = Linear(d_model, 3 * d_model)
        self.out_proj = Linear(d_model, d_model)
        self.whole = False  # set to score all queries at once, however many there are
        self.keep_weights = False  # set to look at attention; slower, the same result
        self.weights: Tensor | None = None  # (B,H,Q,K) of the last call, when kept

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        mask: Tensor | None = None,
        doors: Doors | None = None,
        cache: KeyValueCache | None = None,
    ) -> Tensor:
        """Attend from ``x (B,Q,D)`` to itself or to ``memory (B,K,D)``; ``(B,Q,D)``.

        ``mask`` is boolean, True = may attend, broadcastable to ``(B,H,Q,K)``. ``doors`` rotate
        and bias the scores. With a ``cache``, ``x`` follows what it holds.
        """
        if memory is None:
            q, k, v = (self.split(t) for t in self.in_proj(x).chunk(3, dim=-1))
            if doors is not None:
                q, k = doors.encoding.rotate(q, k, doors.query, doors.query)
            if cache is not None:
                k, v = cache.append(k, v)
        else:
            d_model = x.size(-1)
            weight, bias = self.in_proj.weight, self.in_proj.bias
            q = self.split(linear(x, weight[:d_model], bias[:d_model]))
            if cache:  # which holds the source already, and that does not change
                k, v = cache.seen()
                if doors is not None:
                    q = doors.encoding.rotate(q, q, doors.query, doors.query)[0]
            else:
                key_value = linear(memory, weight[d_model:], bias[d_model:])
                k, v = (self.split(t) for t in key_value.chunk(2, dim=-1))
                if doors is not None:
                    q, k = doors.encoding.rotate(q, k, doors.query, doors.key)
                if cache is not None:
                    cache.append(k, v)

        if self.whole or self.keep_weights:
            added = mask if doors is None else doors.added(q, k, mask)
            attended = self.attend(q, k, v, added)  # (B,H,Q,Dh)
        else:
            attended = fast_attention(q, k, v, mask, doors)
        return self.out_proj(attended.transpose(1, 2).flatten(2))  # (B,Q,H,Dh) -> (B,Q,D)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """``softmax(q k^T / sqrt(Dh)) v`` (equation 1); a row that may see nothing is zero."""
        if not self.keep_weights:
            return fused(q, k, v, mask)
        scores = q @ k.transpose(-2, -1) / q.size(-1) ** 0.5
        if mask is not None and mask.dtype == torch.bool:
            scores = scores.masked_fill(~mask, float("-inf"))
        elif mask is not None:
            scores = scores + mask
        self.weights = scores.softmax(dim=-1).nan_to_num(0.0)
        return self.weights @ v

    def split(self, x: Tensor) -> Tensor:
        """``(B,S,D) -> (B,H,S,Dh)``."""
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
