"""The layers of encoder and decoder (Vaswani et al. 2017, section 3.1)."""

from typing import Any

from torch import Tensor, nn

from wawa_transformer.model.attention import AttentionPosition, MultiHeadAttention
from wawa_transformer.model.config import TransformerConfig
from wawa_transformer.model.kv_cache import KeyValueCache
from wawa_transformer.model.merged import MergedAttention


class FeedForward(nn.Module):
    """``max(0, x W1 + b1) W2 + b2`` at each position (section 3.3), or gelu in place of relu."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.inner = nn.Linear(config.d_model, config.d_ff)
        self.outer = nn.Linear(config.d_ff, config.d_model)
        self.activation = nn.GELU() if config.activation == "gelu" else nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(self.activation(self.inner(x)))


class ResidualConnection(nn.Module):
    """A residual connection around a sublayer, with its norm and dropout (section 5.4).

    ``post``: ``norm(x + dropout(f(x)))``, as in the paper. ``pre``: ``x + dropout(f(norm(x)))``,
    which trains without a careful warmup (Xiong et al. 2020).
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.d_model)
        self.dropout = nn.Dropout(config.dropout)
        self.pre = config.norm == "pre"

    def forward(self, x: Tensor, sublayer: nn.Module, *args: Any) -> Tensor:
        if self.pre:
            return x + self.dropout(sublayer(self.norm(x), *args))
        return self.norm(x + self.dropout(sublayer(x, *args)))


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(config.d_model, config.num_heads)
        self.feed_forward = FeedForward(config)
        self.residuals = nn.ModuleList(ResidualConnection(config) for _ in range(2))

    def forward(self, x: Tensor, mask: Tensor | None, position: AttentionPosition | None) -> Tensor:
        x = self.residuals[0](x, self.self_attention, None, mask, position)
        return self.residuals[1](x, self.feed_forward)


class DecoderLayer(nn.Module):
    """Causal self-attention, cross-attention to the source, then feed-forward.

    With ``merged_attention`` one attention does the work of both.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.merged = config.merged_attention
        attention = MergedAttention if self.merged else MultiHeadAttention
        self.self_attention = attention(config.d_model, config.num_heads)
        if not self.merged:
            self.cross_attention = MultiHeadAttention(config.d_model, config.num_heads)
        self.feed_forward = FeedForward(config)
        self.residuals = nn.ModuleList(ResidualConnection(config) for _ in range(3 - self.merged))

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        mask: Tensor | None,
        cross_mask: Tensor | None,
        position: AttentionPosition,
        cross_position: AttentionPosition,
        cache: tuple[KeyValueCache | None, KeyValueCache | None] = (None, None),
    ) -> Tensor:
        if self.merged:
            masks, positions = (mask, cross_mask), (position, cross_position)
            x = self.residuals[0](x, self.self_attention, memory, masks, positions, cache)
            return self.residuals[1](x, self.feed_forward)
        x = self.residuals[0](x, self.self_attention, None, mask, position, cache[0])
        x = self.residuals[1](x, self.cross_attention, memory, cross_mask, cross_position, cache[1])
        return self.residuals[2](x, self.feed_forward)
