"""The encoder-decoder Transformer of Vaswani et al. 2017, figure 1."""

import functools
import math
from typing import Any

import torch
from torch import Tensor, nn

from wawa_transformer.model import masks
from wawa_transformer.model.attention import in_layers
from wawa_transformer.model.config import PLACEMENT, POSITIONS, TransformerConfig, config_of
from wawa_transformer.model.init import draws_from, initialise
from wawa_transformer.model.kv_cache import KeyValueCache
from wawa_transformer.model.layers import DecoderLayer, EncoderLayer
from wawa_transformer.model.loss import loss_and_nll
from wawa_transformer.model.masks import causal_mask, encoder_mask, padding_mask
from wawa_transformer.positional import Placement, build_encodings
from wawa_transformer.positional.base import Encoding, EncodingContext, Positions
from wawa_transformer.positional.position_ids import BatchPositions, PositionIds


def positions_of(
    config: TransformerConfig,
) -> tuple[tuple[Encoding, Encoding, Encoding | None], PositionIds]:
    """Build the encodings of encoder, decoder and cross-attention, and the position ids."""
    context = EncodingContext(
        config.d_model, config.num_heads, config.dropout, num_layers=config.num_layers
    )
    placement, ids = Placement(**config.values(PLACEMENT)), PositionIds(**config.values(POSITIONS))
    encodings = build_encodings(config.pe, context, config.pe_settings, placement)
    ids.check(config.pe, *encodings, config.num_heads)
    return encodings, ids


class Transformer(nn.Module):
    """Source ids to target logits.

    Args:
        values: a :class:`TransformerConfig`, or its first values, as ``Transformer(9, 9)``.
        settings: further values by name, as ``d_model=64``; they replace those of a configuration.

    Raises:
        ValueError: a size outside its limits, what the encoding refuses, or what has no effect.
        TypeError: an unknown name.
    """

    # In training: ids of the longest source and target, and the largest ratio of target to source.
    # Decoding stops at twice what these suggest.
    trained_sizes: tuple[int, int, float] = (1, 1, 1.0)

    # For help() and editors, which show the arguments of the configuration.
    @functools.wraps(TransformerConfig.__init__, assigned=(), updated=())  # type: ignore[misc]
    def __init__(self, *values: Any, **settings: Any) -> None:
        super().__init__()
        config = self.config = config_of(*values, **settings)
        self.d_model, self.num_heads = config.d_model, config.num_heads
        self.num_layers = config.num_layers
        self.position_down = config.embedding_scale == "position_down"
        self.embedding_scale = 1.0 if config.embedding_scale == "none" else math.sqrt(self.d_model)
        self.encoder_mask, self.encoder_window = config.encoder_mask, config.encoder_window
        seed = int(torch.randint(2**62, (), device="cpu")) if config.seed is None else config.seed

        with initialise(self, seed, config.embedding_std):
            self.tgt_embedding = nn.Embedding(config.tgt_vocab_size, config.d_model)
            self.src_embedding = self.tgt_embedding
            if not config.tie_embeddings:
                self.src_embedding = nn.Embedding(config.src_vocab_size, config.d_model)
            with draws_from(seed):  # for what an encoding's module draws
                encodings, self.position_ids = positions_of(config)
            self.src_position, self.tgt_position, self.cross_position = encodings

            own = range(1 if config.share_layers else config.num_layers)
            with draws_from(seed):  # for what a fork adds to a layer
                self.encoder_layers = nn.ModuleList(EncoderLayer(config) for _ in own)
                self.decoder_layers = nn.ModuleList(DecoderLayer(config) for _ in own)
            # Pre-norm layers leave the residual stream unnormalised, so each stack ends on a norm.
            pre = config.norm == "pre"
            self.encoder_norm = nn.LayerNorm(config.d_model) if pre else nn.Identity()
            self.decoder_norm = nn.LayerNorm(config.d_model) if pre else nn.Identity()

            self.output = nn.Linear(config.d_model, config.tgt_vocab_size, bias=False)
            if config.tie_embeddings:
                self.output.weight = self.tgt_embedding.weight

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        cross_mask: Tensor | None = None,
        *,
        targets: Tensor | None = None,
        label_smoothing: float = 0.0,
        drawn: Tensor | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Logits ``(B,T,V)`` for source ids ``src (B,S)`` and target prefix ``tgt (B,T)``.

        Masks are boolean, or 0 and 1 of any type: True or 1 = may attend. They broadcast to
        ``(B,H,query,key)``. By default they follow from padding (id 0) and causality.
        :meth:`encode` and :meth:`decode` take the same. With ``targets (B,T)`` the result is
        their loss and NLL in nats, summed over real tokens, instead of the logits. ``drawn`` is
        a draw of random positions, by default a new one in training.

        Raises:
            ValueError: a mask, ids or ``label_smoothing`` outside its limits.
        """
        positions = self.batch_positions(src, drawn)
        memory = self.encode(src, src_mask, positions)
        cross_mask = padding_mask(src) if cross_mask is None else cross_mask
        logits = self.decode(tgt, memory, tgt_mask, cross_mask, positions=positions)
        if targets is None:
            return logits
        masks.check_targets(targets, logits, label_smoothing)
        return loss_and_nll(logits, targets, label_smoothing)

    def encode(
        self, src: Tensor, src_mask: Tensor | None = None, positions: BatchPositions | None = None
    ) -> Tensor:
        """The encoder's output ``memory (B,S,D)`` for ``src (B,S)``."""
        positions = positions or self.batch_positions(src)
        at = positions.source
        mask = self.checked_mask("src_mask", src_mask, src, src.size(1))
        mask = encoder_mask(src, self.encoder_mask, self.encoder_window) if mask is None else mask
        x = self.embed(src, self.src_embedding, self.src_position, at)  # (B,S,D)
        parts = in_layers(self.num_layers, self.src_position, at, at, positions.maps)
        for i, position in enumerate(parts):
            x = self.add_again(x, i, self.src_position, at)
            x = self.encoder_layers[i % len(self.encoder_layers)](x, mask, position)
        return self.encoder_norm(x)

    def decode(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        cross_mask: Tensor | None = None,
        cache: list[tuple[KeyValueCache, KeyValueCache]] | None = None,
        positions: BatchPositions | None = None,
    ) -> Tensor:
        """Logits ``(B,T,V)`` for ``tgt (B,T)`` given ``memory (B,S,D)``.

        Without ``cross_mask`` all of ``memory`` is attended to: pass ``padding_mask(src)`` when
        the source is padded. With a ``cache`` from :meth:`new_cache`, ``tgt`` continues the cached
        sequence, and only the new positions' logits are returned. ``positions``, from
        :meth:`batch_positions`, may be left out if they depend on nothing but lengths.

        Raises:
            ValueError: no ``positions`` where they depend on the source's ids, or on a draw.
        """
        if cache is None:
            masks.check_ids("tgt", tgt, self.config.tgt_vocab_size)
            masks.check_memory(memory, tgt.size(0), self.d_model)
        offset = 0 if cache is None else len(cache[0][0])
        length = offset + tgt.size(1)
        if positions is None:
            positions = self.position_ids.of_length(memory.size(1), memory.device)
        query = positions.target(offset, tgt.size(1))
        key = query if offset == 0 else positions.target(0, length)
        cross_mask = self.checked_mask("cross_mask", cross_mask, tgt, memory.size(1))
        tgt_mask = self.checked_mask("tgt_mask", tgt_mask, tgt, length)
        if tgt_mask is None and offset == 0:
            tgt_mask = causal_mask(length, device=tgt.device) & padding_mask(tgt)  # (B,1,T,T)
        elif tgt_mask is None and tgt.size(1) > 1:  # a single new token may see all before it
            tgt_mask = causal_mask(tgt.size(1), offset, tgt.device)  # (T,offset+T)
        x = self.embed(tgt, self.tgt_embedding, self.tgt_position, query)  # (B,T,D)
        layers, maps = self.num_layers, positions.maps
        own = in_layers(layers, self.tgt_position, query, key, maps)
        across = (query, positions.source) if positions.share is None else positions.across(query)
        cross = in_layers(layers, self.cross_position, *across, maps)
        for i in range(layers):
            layer = self.decoder_layers[i % len(self.decoder_layers)]
            layer_cache = (None, None) if cache is None else cache[i]
            x = self.add_again(x, i, self.tgt_position, query)
            x = layer(x, memory, tgt_mask, cross_mask, own[i], cross[i], layer_cache)
        return self.output(self.decoder_norm(x))  # (B,T,D) -> (B,T,V)

    def embed(
        self, ids: Tensor, embedding: nn.Embedding, encoding: Encoding, positions: Positions
    ) -> Tensor:
        """Token and position of ``ids (B,S)``, after dropout: (B,S,D)."""
        x = embedding(ids) * self.embedding_scale
        x = encoding(x, positions) if 0 in encoding.added_before else encoding.dropout(x)
        return x * self.d_model**-0.5 if self.position_down else x

    def add_again(self, x: Tensor, layer: int, encoding: Encoding, at: Positions) -> Tensor:
        """Add positions to ``x (B,S,D)`` before a later layer, where ``pe.layers`` names it."""
        if layer and layer in encoding.added_before:
            scale = self.d_model**0.5 if self.position_down else 1.0
            x = encoding.embed(x * scale, at) / scale
        return x

    def batch_positions(self, src: Tensor, drawn: Tensor | None = None) -> BatchPositions:
        """The positions of ``src (B,S)`` and its target; in training these may be random."""
        masks.check_ids("src", src, self.config.src_vocab_size)
        return self.position_ids(src, self.training, self.num_heads, drawn)

    def checked_mask(
        self, name: str, mask: Tensor | None, queries: Tensor, keys: int
    ) -> Tensor | None:
        """A caller's mask for ``queries (B,Q)`` and K keys, as booleans of four dimensions."""
        shape = (queries.size(0), self.num_heads, queries.size(1), keys)
        return None if mask is None else masks.check_mask(name, mask, shape)

    def new_cache(self) -> list[tuple[KeyValueCache, KeyValueCache]]:
        """An empty cache for :meth:`decode`: self- and cross-attention of each layer."""
        return [(KeyValueCache(), KeyValueCache()) for _ in range(self.num_layers)]

    @property
    def max_positions(self) -> int | None:
        """The longest sequence the encoding can serve; None: any length."""
        limits = [each.max_positions for each in self.encodings() if each.max_positions is not None]
        return self.position_ids.longest(min(limits, default=None))

    def check_length(self, longest: int) -> None:
        """Raise :class:`UserError` if ``longest`` positions cannot be served."""
        self.position_ids.check_length(longest)
        for each in self.encodings():
            each.check_length(self.position_ids.reach(longest))

    def encodings(self) -> list[Encoding]:
        """The encodings of encoder, decoder and, if there is one, cross-attention."""
        every = self.src_position, self.tgt_position, self.cross_position
        return [each for each in every if each is not None]
