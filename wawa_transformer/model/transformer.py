"""The encoder-decoder Transformer of Vaswani et al. 2017, figure 1."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from wawa_transformer.common.limits import MAX_WIDTH, check_number
from wawa_transformer.common.seeds import seed_for
from wawa_transformer.fast.attention import Doors
from wawa_transformer.fast.dropout import Dropout
from wawa_transformer.fast.linear import Linear
from wawa_transformer.model.attention import MultiHeadAttention
from wawa_transformer.model.kv_cache import KeyValueCache
from wawa_transformer.model.masks import causal_mask, padding_mask
from wawa_transformer.positional import base
from wawa_transformer.positional.base import Encoding, EncodingContext, Positions
from wawa_transformer.positional.position_ids import BatchPositions, PositionIds

MAX_VOCAB_SIZE, MAX_LAYERS = 1_000_000, 256
NORMS = ("pre", "post")
ACTIVATIONS = ("relu", "gelu")
EMBEDDING_SCALES = ("token_up", "position_down")


class FeedForward(nn.Module):
    """``max(0, x W1 + b1) W2 + b2`` at each position (section 3.3), or gelu in place of relu."""

    def __init__(self, d_model: int, d_ff: int, activation: str) -> None:
        super().__init__()
        self.inner = Linear(d_model, d_ff)
        self.outer = Linear(d_ff, d_model)
        self.activation = nn.GELU() if activation == "gelu" else nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(self.activation(self.inner(x)))


class ResidualConnection(nn.Module):
    """A residual connection around a sublayer, with its norm and dropout (section 5.4).

    ``post``: ``norm(x + dropout(f(x)))``, as in the paper. ``pre``: ``x + dropout(f(norm(x)))``,
    which trains without a careful warmup (Xiong et al. 2020).
    """

    def __init__(self, d_model: int, dropout: float, norm: str) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(d_model)
        self.dropout = Dropout(dropout)
        self.pre = norm == "pre"

    def forward(self, x: Tensor, sublayer: nn.Module, *args: Any) -> Tensor:
        if self.pre:
            return x + self.dropout(sublayer(self.norm(x), *args))
        return self.norm(x + self.dropout(sublayer(x, *args)))


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward."""

    def __init__(
        self, d_model: int, num_heads: int, d_ff: int, dropout: float, norm: str, activation: str
    ) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(d_model, num_heads)
        self.feed_forward = FeedForward(d_model, d_ff, activation)
        self.residuals = nn.ModuleList(ResidualConnection(d_model, dropout, norm) for _ in range(2))

    def forward(self, x: Tensor, mask: Tensor | None, doors: Doors) -> Tensor:
        x = self.residuals[0](x, self.self_attention, None, mask, doors)
        return self.residuals[1](x, self.feed_forward)


class DecoderLayer(nn.Module):
    """Causal self-attention, cross-attention to the source, then feed-forward."""

    def __init__(
        self, d_model: int, num_heads: int, d_ff: int, dropout: float, norm: str, activation: str
    ) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(d_model, num_heads)
        self.cross_attention = MultiHeadAttention(d_model, num_heads)
        self.feed_forward = FeedForward(d_model, d_ff, activation)
        self.residuals = nn.ModuleList(ResidualConnection(d_model, dropout, norm) for _ in range(3))

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        mask: Tensor | None,
        cross_mask: Tensor | None,
        doors: Doors,
        cross: Doors | None = None,
        cache: tuple[KeyValueCache | None, KeyValueCache | None] = (None, None),
    ) -> Tensor:
        x = self.residuals[0](x, self.self_attention, None, mask, doors, cache[0])
        x = self.residuals[1](x, self.cross_attention, memory, cross_mask, cross, cache[1])
        return self.residuals[2](x, self.feed_forward)


class Transformer(nn.Module):
    """Source ids to target logits.

    Args:
        src_vocab_size, tgt_vocab_size: number of ids on each side; id 0 is padding.
        d_model, num_layers, num_heads, d_ff, dropout: the paper's N, h, d_ff, P_drop (table 3);
            ``num_layers`` encoder layers and as many decoder layers.
        norm: ``pre`` (with a final norm in encoder and decoder) or ``post``.
        activation: ``relu`` or ``gelu``.
        embedding_scale: ``token_up`` multiplies token embeddings by sqrt(D) (section 3.4);
            ``position_down`` leaves them and divides what the encoding adds by sqrt(D) instead: the
            same sum, sqrt(D) times smaller (Csordás et al. 2021, section 3).
        tie_embeddings: one matrix for both embeddings and the output (section 3.4); needs equal
            vocabularies.
        share_layers: one layer's parameters serve all layers of a stack (the Universal Transformer
            of Dehghani et al. 2019, without its halting).
        pe: the positional encoding, a key of ``positional.ENCODINGS``; ``pe_settings`` are its own
            keyword arguments. Encoder and decoder own one each.
        cross: what acts on the distance from target to source in cross-attention: ``none``, as in
            the papers; ``same``, one more of ``pe``; or the name of another relative encoding.
        counting: where positions are counted from.
        seed: starting values. Each parameter is drawn from a generator seeded by (seed, name), so
            two models that share a parameter's name start with the same values there, whatever
            else they hold. Left out, a seed is drawn from torch's global generator.

    Raises:
        ValueError: ``d_model`` not divisible by ``num_heads``, a size or ``dropout`` outside its
            limits, unequal tied vocabularies, an unknown name, a setting the encoding refuses, an
            encoding that has no part for cross-attention, a counting that would have no effect.
    """

    def __init__(
        self,
        src_vocab_size: int,
        tgt_vocab_size: int,
        d_model: int = 512,
        num_layers: int = 6,
        num_heads: int = 8,
        d_ff: int = 2048,
        dropout: float = 0.1,
        *,
        norm: str = "pre",
        activation: str = "relu",
        tie_embeddings: bool = False,
        embedding_scale: str = "token_up",
        share_layers: bool = False,
        pe: str = "sinusoidal",
        pe_settings: dict[str, Any] | None = None,
        cross: str = "none",
        counting: PositionIds | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        check_number("src_vocab_size", src_vocab_size, 1, MAX_VOCAB_SIZE)
        check_number("tgt_vocab_size", tgt_vocab_size, 1, MAX_VOCAB_SIZE)
        check_number("num_layers", num_layers, 1, MAX_LAYERS)
        check_number("d_ff", d_ff, 1, MAX_WIDTH)
        places = {role: EncodingContext(d_model, num_heads, dropout, role) for role in base.ROLES}
        for name, word, choices in (
            ("norm", norm, NORMS),
            ("activation", activation, ACTIVATIONS),
            ("embedding_scale", embedding_scale, EMBEDDING_SCALES),
        ):
            if word not in choices:
                raise ValueError(f"{name}={word} does not exist; choose {' or '.join(choices)}")
        if tie_embeddings and src_vocab_size != tgt_vocab_size:
            raise ValueError(
                f"tie_embeddings needs equal vocabularies, got src_vocab_size={src_vocab_size} "
                f"and tgt_vocab_size={tgt_vocab_size}"
            )
        self.d_model, self.num_heads, self.num_layers = d_model, num_heads, num_layers
        self.position_down = embedding_scale == "position_down"

        self.tgt_embedding = nn.Embedding(tgt_vocab_size, d_model)
        self.src_embedding = (
            self.tgt_embedding if tie_embeddings else nn.Embedding(src_vocab_size, d_model)
        )
        self.src_position = base.build_encoding(pe, places["encoder"], pe_settings)
        self.tgt_position = base.build_encoding(pe, places["decoder"], pe_settings)
        self.cross_position = base.build_cross_encoding(cross, pe, places["cross"], pe_settings)
        self.counting = counting or PositionIds()
        self.counting.check(self.src_position, self.cross_position)

        shape = (d_model, num_heads, d_ff, dropout, norm, activation)
        own = range(1 if share_layers else num_layers)
        self.encoder_layers = nn.ModuleList(EncoderLayer(*shape) for _ in own)
        self.decoder_layers = nn.ModuleList(DecoderLayer(*shape) for _ in own)
        # Pre-norm layers leave the residual stream unnormalised, so each stack ends on a norm.
        self.encoder_norm = nn.LayerNorm(d_model) if norm == "pre" else nn.Identity()
        self.decoder_norm = nn.LayerNorm(d_model) if norm == "pre" else nn.Identity()

        self.output = Linear(d_model, tgt_vocab_size, bias=False)
        if tie_embeddings:
            self.output.weight = self.tgt_embedding.weight
        self.initialise(seed if seed is not None else int(torch.randint(2**62, ()).item()))

    @property
    def max_positions(self) -> int | None:
        """The longest sequence the encoding can serve; None: any length."""
        return self.counting.longest(self.src_position.max_positions)

    def check_length(self, longest: int) -> None:
        """Raise :class:`SequenceTooLong` where ``longest`` positions cannot be served."""
        self.counting.check_length(longest)
        self.src_position.check_length(self.counting.reach(longest))

    def untrained_range_warning(self, farthest: int) -> str | None:
        """A warning where parameters serve distances that training, up to ``farthest``, lacks."""
        every = (self.src_position, self.cross_position)
        warnings = [each.untrained_range_warning(farthest) for each in every if each is not None]
        return next(filter(None, warnings), None)

    def count(self, src: Tensor) -> BatchPositions:
        """Where the tokens of ``src (B,S)`` and of its target stand; draws what training draws."""
        return self.counting(src, self.training, self.num_heads)

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        cross_mask: Tensor | None = None,
        logits: bool = True,
    ) -> Tensor:
        """Logits ``(B,T,V)`` for source ids ``src (B,S)`` and target prefix ``tgt (B,T)``.

        Masks are boolean, or 0 and 1 of any type: True or 1 = may attend. They broadcast to
        ``(B,H,query,key)``; when left out they are derived from padding (id 0) and causality.
        :meth:`encode` and :meth:`decode` take the same. Without ``logits``: the states ``(B,T,D)``
        that :attr:`output` would read.

        Raises:
            ValueError: a mask of another shape, or with other values.
        """
        count = self.count(src)
        memory = self.encode(src, src_mask, count)
        cross_mask = padding_mask(src) if cross_mask is None else cross_mask
        return self.decode(tgt, memory, tgt_mask, cross_mask, count=count, logits=logits)

    def embed(
        self, ids: Tensor, embedding: nn.Embedding, encoding: Encoding, at: Positions
    ) -> Tensor:
        """Token and position of ``ids (B,S)``, after dropout: (B,S,D)."""
        x = encoding(embedding(ids) * math.sqrt(self.d_model), at)
        return x * self.d_model**-0.5 if self.position_down else x

    def encode(
        self, src: Tensor, src_mask: Tensor | None = None, count: BatchPositions | None = None
    ) -> Tensor:
        """The encoder's reading ``memory (B,S,D)`` of ``src (B,S)``, at positions :meth:`count`."""
        at = (count or self.count(src)).source
        if src_mask is None:
            mask = padding_mask(src)
        else:
            mask = self.checked("src_mask", src_mask, src, src.size(1))
        x = self.embed(src, self.src_embedding, self.src_position, at)  # (B,S,D)
        doors = Doors(self.src_position, at, at)
        for i in range(self.num_layers):
            x = self.encoder_layers[i % len(self.encoder_layers)](x, mask, doors)
        return self.encoder_norm(x)

    def decode(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        cross_mask: Tensor | None = None,
        cache: list[tuple[KeyValueCache, KeyValueCache]] | None = None,
        count: BatchPositions | None = None,
        logits: bool = True,
    ) -> Tensor:
        """Logits ``(B,T,V)`` for ``tgt (B,T)`` given ``memory (B,S,D)``.

        Without ``cross_mask`` all of ``memory`` is attended to: pass ``padding_mask(src)`` when
        the source is padded. With a ``cache`` from :meth:`new_cache`, ``tgt`` continues what
        earlier calls decoded and only the new positions' logits are returned. ``count``, from
        :meth:`count`, may be left out where nothing but lengths decides it.

        Raises:
            ValueError: no ``count`` where the source's ids, or a draw, decide it.
        """
        offset = 0 if cache is None else len(cache[0][0])
        if count is None:
            count = self.counting.of_length(memory.size(1), self.training, memory.device)
        query = count.target(offset, tgt.size(1))
        key = query if offset == 0 else count.target(0, offset + tgt.size(1))
        if tgt_mask is None and offset == 0:
            tgt_mask = causal_mask(tgt.size(1), device=tgt.device) & padding_mask(tgt)  # (B,1,T,T)
        elif tgt_mask is None and tgt.size(1) > 1:  # one alone may see all that came before it
            tgt_mask = causal_mask(tgt.size(1), offset, tgt.device)  # (T,offset+T)
        elif tgt_mask is not None:
            tgt_mask = self.checked("tgt_mask", tgt_mask, tgt, offset + tgt.size(1))
        if cross_mask is not None:
            cross_mask = self.checked("cross_mask", cross_mask, tgt, memory.size(1))
        x = self.embed(tgt, self.tgt_embedding, self.tgt_position, query)  # (B,T,D)
        doors, cross = Doors(self.tgt_position, query, key), None
        if self.cross_position is not None:
            cross = Doors(self.cross_position, query, count.source)
        for i in range(self.num_layers):
            layer = self.decoder_layers[i % len(self.decoder_layers)]
            layer_cache = (None, None) if cache is None else cache[i]
            x = layer(x, memory, tgt_mask, cross_mask, doors, cross, layer_cache)
        x = self.decoder_norm(x)  # (B,T,D)
        return self.output(x) if logits else x

    def checked(self, name: str, mask: Tensor, queries: Tensor, keys: int) -> Tensor:
        """A caller's mask as booleans of four dimensions; ids ``queries (B,Q)``, K ``keys``.

        Attention adds what is not boolean to its scores, and so would show the future.
        """
        if not isinstance(mask, Tensor):
            raise ValueError(f"{name} is of type {type(mask).__name__}; it must be a tensor")
        wanted = (queries.size(0), self.num_heads, queries.size(1), keys)
        pairs = zip(reversed(mask.shape), reversed(wanted), strict=False)  # from the last one on
        if mask.ndim > 4 or any(size != 1 and size != want for size, want in pairs):
            raise ValueError(
                f"{name} of shape {tuple(mask.shape)} does not broadcast to (batch, heads, query, "
                f"key) = {wanted}; one of (batch, key) is given as {name}[:, None, None, :]"
            )
        if mask.dtype != torch.bool:
            other = mask[(mask != 0) & (mask != 1)]
            if other.numel():
                raise ValueError(
                    f"{name} holds {other[0].item()}; it must be boolean, or 0 and 1 alone, where "
                    f"1 = may attend (one that is added to scores becomes so by {name} == 0)"
                )
            mask = mask != 0
        return mask[(None,) * (4 - mask.ndim)]

    def new_cache(self) -> list[tuple[KeyValueCache, KeyValueCache]]:
        """An empty cache for :meth:`decode`: self- and cross-attention of each layer."""
        return [(KeyValueCache(), KeyValueCache()) for _ in range(self.num_layers)]

    def initialise(self, seed: int) -> None:
        """Draw every starting value from (seed, parameter name).

        Embeddings are N(0, 1/D): times sqrt(D) they have unit variance and leave the encoding
        audible. Matrices are Xavier-uniform (Glorot and Bengio 2010), biases zero.
        """

        def draw(module: str, name: str) -> torch.Generator:
            return torch.Generator().manual_seed(seed_for(seed, f"{module}.{name}"))

        for name, module in self.named_modules():
            match module:
                case Encoding():
                    module.initialise(partial(draw, name))
                case nn.Embedding():
                    generator = draw(name, "weight")
                    nn.init.normal_(module.weight, std=self.d_model**-0.5, generator=generator)
                case nn.Linear() if module.weight is not self.tgt_embedding.weight:
                    nn.init.xavier_uniform_(module.weight, generator=draw(name, "weight"))
                    if module.bias is not None:
                        nn.init.zeros_(module.bias)
