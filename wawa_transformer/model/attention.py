"""Multi-head attention (Vaswani et al. 2017, section 3.2)."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wawa_transformer.model.kv_cache import KeyValueCache
from wawa_transformer.positional.base import NO_ENCODING, Encoding, Positions


class AttentionPosition:
    """An encoding in one attention, with the positions of queries and keys.

    Layers that share an encoding share this object, and its ``content_independent`` bias.
    """

    def __init__(
        self, encoding: Encoding, query: Positions, key: Positions, maps: list[Tensor] | None = None
    ) -> None:
        self.encoding, self.query, self.key, self.maps = encoding, query, key, maps
        self.shared: tuple[Tensor | None, Tensor] | None = None  # a mask, and the bias with it

    def rotate(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Rotate queries ``(B,H,Q,Dh)`` and keys ``(B,H,K,Dh)`` by their positions."""
        return self.encoding.rotate(q, k, self.query, self.key)

    def rotate_new(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Rotate queries and keys of the same new tokens, both ``(B,H,Q,Dh)``."""
        return self.encoding.rotate(q, k, self.query, self.query)

    def masked_bias(self, q: Tensor, k: Tensor, mask: Tensor | None) -> Tensor | None:
        """Combine bias and boolean ``mask``; without a bias return the mask.

        ``F.scaled_dot_product_attention`` takes a boolean mask or a float bias, never both.
        """
        if self.shared is not None and self.shared[0] is mask:
            return self.shared[1]
        bias = self.encoding.bias(q, k, self.query, self.key)
        if bias is None:
            return mask
        if mask is not None:
            # Added and not filled in: the gradient of a sum passes unchanged.
            bias = bias + torch.where(mask, 0.0, float("-inf")).to(bias.dtype)
        if self.encoding.content_independent:
            self.shared = mask, bias
        return bias


def in_layers(
    layers: int, encoding: Encoding | None, query: Positions, key: Positions, maps: Any = None
) -> list[AttentionPosition]:
    """An encoding's part in the attention of each layer; the weights are added to ``maps``."""
    every = [(encoding and encoding.of_layer(i)) or NO_ENCODING for i in range(layers)]
    parts = {each: AttentionPosition(each, query, key, maps) for each in every}
    return [parts[each] for each in every]


def biased_scores(q: Tensor, k: Tensor, bias: Tensor | None, scale: float) -> Tensor:
    """``q k^T * scale + bias``, ``(B,H,Q,K)``; a boolean bias is a mask."""
    scores = q @ k.transpose(-2, -1) * scale
    if bias is not None and bias.dtype == torch.bool:
        return scores.masked_fill(~bias, float("-inf"))
    return scores if bias is None else scores + bias


class StackedLinear(nn.Linear):
    """A linear layer of which a call may ask for some outputs, ``first … last-1``."""

    def forward(self, x: Tensor, first: int = 0, last: int | None = None) -> Tensor:
        bias = None if self.bias is None else self.bias[first:last]
        return F.linear(x, self.weight[first:last], bias)


class MultiHeadAttention(nn.Module):
    """Scaled dot-product attention in ``num_heads`` subspaces of ``d_model``.

    Self-attention without ``memory``, cross-attention with it. The weights are laid out as in
    ``torch.nn.MultiheadAttention``: queries, keys, values stacked in ``in_proj``.
    """

    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__()
        self.d_model, self.num_heads = d_model, num_heads
        self.in_proj = StackedLinear(d_model, 3 * d_model)
        self.out_proj = nn.Linear(d_model, d_model)

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        mask: Tensor | None = None,
        position: AttentionPosition | None = None,
        cache: KeyValueCache | None = None,
    ) -> Tensor:
        """Attend from ``x (B,Q,D)`` to itself or to ``memory (B,K,D)``; ``(B,Q,D)``.

        ``mask`` is boolean, True = may attend, broadcastable to ``(B,H,Q,K)``. ``position`` rotates
        and biases. With a ``cache``, ``x`` continues the sequence in the cache.
        """
        if memory is None:
            q, k, v = self.split_heads(self.in_proj(x), 3)
            if position is not None:
                q, k = position.rotate_new(q, k)
            if cache is not None:
                k, v = cache.append(k, v)
        else:
            (q,) = self.split_heads(self.project(x, 0, self.d_model), 1)
            q, k, v = self.to_source(q, memory, position, cache)
        attended = self.attend(q, k, v, mask, position)  # (B,H,Q,Dh)
        return self.out_proj(attended.transpose(1, 2).flatten(2))  # (B,Q,H,Dh) -> (B,Q,D)

    def to_source(
        self,
        q: Tensor,
        memory: Tensor,
        position: AttentionPosition | None,
        cache: KeyValueCache | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Rotated queries ``(B,H,Q,Dh)``, and keys and values of ``memory (B,K,D)``."""
        if cache:  # the cache holds the source's keys and values, which never change
            return q if position is None else position.rotate_new(q, q)[0], *cache.seen()
        k, v = self.split_heads(self.project(memory, self.d_model, 3 * self.d_model), 2)
        if position is not None:
            q, k = position.rotate(q, k)
        if cache is not None:
            cache.append(k, v)
        return q, k, v

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None,
        position: AttentionPosition | None,
    ) -> Tensor:
        """``softmax(q k^T / sqrt(Dh) + bias) v`` (equation 1); a query without keys gets zeros."""
        bias = mask if position is None else position.masked_bias(q, k, mask)
        scale = 1 / math.sqrt(v.size(-1))  # of Dh, which an encoding may have changed in q and k
        if position is None or position.maps is None:
            return F.scaled_dot_product_attention(q, k, v, bias, scale=scale)
        scores = biased_scores(q, k, bias, scale)
        position.maps.append(scores.softmax(dim=-1).nan_to_num(0.0))  # slower, the same result
        return position.maps[-1] @ v

    def project(self, x: Tensor, first: int, last: int) -> Tensor:
        """Outputs ``first … last-1`` of ``in_proj`` for ``x (B,S,D)``: ``(B,S,last-first)``."""
        # Another module in its place, as an adapter's, gives all outputs.
        stacked = isinstance(self.in_proj, StackedLinear)
        return self.in_proj(x, first, last) if stacked else self.in_proj(x)[..., first:last]

    def split_heads(self, x: Tensor, parts: int) -> list[Tensor]:
        """``(B,S,parts*D)`` as ``parts`` tensors ``(B,H,S,Dh)``."""
        heads = x.unflatten(-1, (parts, self.num_heads, -1))  # (B,S,P,H,Dh)
        return [part.transpose(1, 2) for part in heads.unbind(2)]  # (B,S,H,Dh) -> (B,H,S,Dh)
