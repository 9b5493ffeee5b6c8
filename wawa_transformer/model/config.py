"""What decides a Transformer: the default, the limits and the help of every key.

This file needs no library, so that the command line can read it for ``--help``.
"""

import copy
import dataclasses
from dataclasses import KW_ONLY, MISSING, dataclass
from typing import Any

from wawa_transformer.common.limits import (
    MAX_LAYERS,
    MAX_POSITIONS,
    MAX_VOCAB_SIZE,
    MAX_WIDTH,
    check_field,
    choice,
    setting,
)
from wawa_transformer.common.messages import UserError

# The keys of the command line that begin with ``pe.`` for every encoding.
PLACEMENT = ("cross", "where", "layers", "tie_sides")
POSITIONS = (
    "origin", "max_shift", "random_positions", "reset_token", "divided", "cross_divided",
)  # fmt: skip


@dataclass
class TransformerConfig:
    """All that decides a Transformer but its weights.

    Id 0 of both vocabularies is padding. ``d_model``, ``num_layers``, ``num_heads``, ``d_ff`` and
    ``dropout`` are the paper's d_model, N, h, d_ff and P_drop (table 3). ``embedding_scale`` is of
    section 3.4 or of Csordás et al. 2021, section 3; ``share_layers`` makes a Universal Transformer
    (Dehghani et al. 2019). ``pe`` is a key of ``positional.base.ENCODINGS``, and ``pe_settings``
    are keyword arguments of its class. ``reset_token`` is an id.

    Raises:
        ValueError: a value outside its limits, or a word that is no choice.
    """

    src_vocab_size: int = setting(MISSING, "ids of the source", least=1, most=MAX_VOCAB_SIZE)
    tgt_vocab_size: int = setting(MISSING, "ids of the target", least=1, most=MAX_VOCAB_SIZE)
    d_model: int = setting(512, "width of the embeddings", least=1, most=MAX_WIDTH)
    num_layers: int = setting(6, "layers of encoder and of decoder", least=1, most=MAX_LAYERS)
    num_heads: int = setting(8, "attention heads, which share the width", least=1, most=MAX_WIDTH)
    d_ff: int = setting(2048, "inner width of feed-forward layers", least=1, most=MAX_WIDTH)
    dropout: float = setting(0.1, "share of a sublayer zeroed in training", least=0, below=1)
    _: KW_ONLY
    norm: str = choice("pre", "post", help="layer norm before each sublayer, or after it")
    activation: str = choice("relu", "gelu", help="activation of the feed-forward layers")
    tie_embeddings: bool = setting(False, "one matrix for both embeddings and the output")
    embedding_scale: str = choice(
        "token_up",
        "position_down",
        "none",
        help="embeddings times sqrt(d_model), positions divided by it, or both as they are",
    )
    embedding_std: float | None = setting(
        None, "standard deviation of starting embeddings; null: 1/sqrt(d_model)", above=0, most=1000
    )
    share_layers: bool = setting(False, "all layers of a stack share one layer's weights")
    encoder_mask: str = choice(
        "full", "causal", "anti_causal",
        help="causal hides what follows a source token, anti_causal what precedes it",
    )  # fmt: skip
    encoder_window: int = setting(
        0, "a source token sees so many on each side; 0: all", least=0, most=MAX_POSITIONS
    )
    merged_attention: bool = setting(
        False, "a target attends to itself and to the source in one softmax"
    )
    pe: str = setting("sinusoidal", "the positional encoding; encoder and decoder own one each")
    pe_settings: dict[str, Any] | None = setting(None, "the encoding's own settings")
    cross: str = setting("none", "encoding of cross-attention: none, same, or a relative encoding")
    where: list[str] | None = setting(
        None,
        "attentions in which it acts, of [encoder,decoder,cross]; null: encoder and decoder, and "
        "cross with pe.cross=same",
    )
    layers: list[int] | None = setting(
        None, "the layers it acts in, or is added before, as [0,2]; null: all, or the first"
    )
    tie_sides: bool = setting(False, "source and target share the encoding's trained numbers")
    origin: str = choice(
        "start", "end", "both", "continued", "abacus", help="where counting starts in the source"
    )
    max_shift: int = setting(
        0, "positions start at a random one up to this number", least=0, most=MAX_POSITIONS
    )
    random_positions: int = setting(
        0, "positions are drawn below this number; 0: never", least=0, most=MAX_POSITIONS
    )
    reset_token: int | None = setting(None, "a word after which counting starts again")
    divided: float = setting(
        0.0,
        "positions are divided by the source's length, times this number; 0: never",
        least=0,
        most=MAX_POSITIONS,
    )
    cross_divided: float = setting(
        0.0, "the same in cross-attention alone; 0: never", least=0, most=MAX_POSITIONS
    )
    seed: int | None = setting(
        None, "starting values follow from (seed, parameter's name); null: from torch's generator",
        least=-(2**63), most=2**63 - 1,
    )  # fmt: skip

    def __post_init__(self) -> None:
        for each in dataclasses.fields(self):
            prefix = "pe." if each.name in PLACEMENT + POSITIONS else ""
            check_field(each, getattr(self, each.name), prefix)
            if getattr(self, each.name) is None and "None" not in str(each.type):
                raise UserError(f"{prefix}{each.name}=None must have a value.")
        if self.tie_embeddings and self.src_vocab_size != self.tgt_vocab_size:
            raise UserError(
                f"tie_embeddings needs equal vocabularies, got src_vocab_size="
                f"{self.src_vocab_size} and tgt_vocab_size={self.tgt_vocab_size}."
            )

    @property
    def encoder_sees_all(self) -> bool:
        """True if a source token sees every other one."""
        return self.encoder_mask == "full" and not self.encoder_window

    def values(self, names: tuple[str, ...]) -> dict[str, Any]:
        """Get the values of some keys."""
        return {name: getattr(self, name) for name in names}


# Those that the data, ``pe`` and ``seed`` of a run give.
GIVEN = ("src_vocab_size", "tgt_vocab_size", "pe", "pe_settings", "seed")
# All others are keys of the command line that begin with ``model.``.
MODEL = tuple(
    each.name
    for each in dataclasses.fields(TransformerConfig)
    if each.name not in GIVEN + PLACEMENT + POSITIONS
)


def config_of(*values: Any, **settings: Any) -> TransformerConfig:
    """Make a configuration of values, or of another one with other ``settings``."""
    if len(values) == 1 and isinstance(values[0], TransformerConfig):
        return dataclasses.replace(values[0], **settings)
    return TransformerConfig(*values, **settings)


def part(name: str, keys: tuple[str, ...], module: str) -> type:
    """Make a dataclass ``name`` of ``module`` of some keys of :class:`TransformerConfig`."""
    every = dataclasses.fields(TransformerConfig)
    own = [(each.name, each.type, copy.copy(each)) for each in every if each.name in keys]
    made = dataclasses.make_dataclass(name, own)
    made.__module__ = module  # where other processes find it; Python 3.12 would set its own guess
    return made
