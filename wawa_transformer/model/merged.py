"""Merged attention (T5Gemma 2, arXiv 2512.14856)."""

import math

import torch
from torch import Tensor

from wawa_transformer.model.attention import AttentionPosition, MultiHeadAttention, biased_scores
from wawa_transformer.model.kv_cache import KeyValueCache


class MergedAttention(MultiHeadAttention):
    """One softmax over a target's own keys and the source's, which share all weights.

    With ``pe=rotary pe.cross=rotary_query`` positions are as in T5Gemma 2: queries and own keys are
    rotated, source keys are not. Its norms, activation, local layers and training are others.
    """

    def forward(  # type: ignore[override]
        self,
        x: Tensor,
        memory: Tensor,
        masks: tuple[Tensor | None, Tensor | None],
        positions: tuple[AttentionPosition, AttentionPosition],
        cache: tuple[KeyValueCache | None, KeyValueCache | None],
    ) -> Tensor:
        """Attend from ``x (B,Q,D)`` to itself and to ``memory (B,S,D)``; ``(B,Q,D)``."""
        q, k, v = self.split_heads(self.in_proj(x), 3)
        own_q, k = positions[0].rotate_new(q, k)
        if cache[0] is not None:
            k, v = cache[0].append(k, v)
        source_q, source_k, source_v = self.to_source(q, memory, positions[1], cache[1])
        scale = 1 / math.sqrt(v.size(-1))
        bias = positions[0].masked_bias(own_q, k, masks[0])
        own = biased_scores(own_q, k, bias, scale)  # (B,H,Q,K)
        bias = positions[1].masked_bias(source_q, source_k, masks[1])
        source = biased_scores(source_q, source_k, bias, scale)  # (B,H,Q,S)
        scores = torch.cat((own, source), dim=-1)  # (B,H,Q,K+S)
        alone = scores.isneginf().all(dim=-1, keepdim=True)  # a query without keys gets zeros
        weights = scores.masked_fill(alone, 0.0).softmax(dim=-1).masked_fill(alone, 0.0)
        if positions[0].maps is not None:
            positions[0].maps.extend(weights.split([own.size(-1), source.size(-1)], dim=-1))
        attended = weights @ torch.cat((v, source_v), dim=2)  # (B,H,Q,Dh)
        return self.out_proj(attended.transpose(1, 2).flatten(2))  # (B,Q,H,Dh) -> (B,Q,D)
