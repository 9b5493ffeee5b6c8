"""Positional encodings: the contract of all of them, the sinusoid, the learned table, and none.

Position enters a Transformer through exactly three doors: it is added to the embeddings
(:meth:`~Encoding.embed`), it rotates queries and keys (:meth:`~Encoding.rotate`), or it adds a bias
to the attention scores (:meth:`~Encoding.bias`). An encoding is a class that opens the doors it
uses; the base class leaves all three shut, and with a name of its own it is the ablation.

Shapes: B batch, S sequence, D ``d_model``, H heads, Dh head width, Q queries, K keys.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn

from wawa_transformer.common.limits import MAX_WIDTH, check_number
from wawa_transformer.fast.dropout import Dropout

ENCODINGS: dict[str, type[Encoding]] = {}
ROLES = ("encoder", "decoder", "cross")


class SequenceTooLong(ValueError):
    """A sequence reaches past the last position an encoding holds."""


@dataclass(frozen=True, eq=False)
class Positions:
    """Where the tokens of a batch stand.

    ``index`` is int64 and broadcasts to (B,H,S): most often it is ``0 … S-1`` for every row and
    head. All of it is less than ``end``, a plain number, so that no table's size waits for a GPU.
    ``consecutive``: it is ``start … end-1``, all of them, for every row and head.
    """

    index: Tensor  # (1 or B, 1 or H, S)
    end: int
    start: int = 0
    consecutive: bool = False


def consecutive(length: int, start: int = 0, device: torch.device | None = None) -> Positions:
    """``start … start+length-1`` for every row and head."""
    end = start + length
    return Positions(torch.arange(start, end, device=device)[None, None], end, start, True)


@dataclass(frozen=True)
class EncodingContext:
    """Where in a model an encoding serves: all that the model tells it.

    ``role`` is ``encoder``, ``decoder`` (which sees the past alone), or ``cross``, between target
    queries and source keys.

    Raises:
        ValueError: a size outside its limits, ``d_model`` not divisible by ``num_heads``.
    """

    d_model: int
    num_heads: int = 1
    dropout: float = 0.1
    role: str = "encoder"

    def __post_init__(self) -> None:
        check_number("d_model", self.d_model, 1, MAX_WIDTH)
        check_number("num_heads", self.num_heads, 1, MAX_WIDTH)
        if self.d_model % self.num_heads:
            raise ValueError(
                f"d_model={self.d_model} is not divisible by num_heads={self.num_heads}"
            )
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout={self.dropout} must be at least 0 and less than 1")

    @property
    def causal(self) -> bool:
        """Whether no key stands to the right of its query."""
        return self.role == "decoder"

    @property
    def head_width(self) -> int:
        """Dh."""
        return self.d_model // self.num_heads


class Encoding(nn.Module):
    """The contract of every encoding; its three doors are shut.

    The arguments of ``__init__``, but for what :class:`EncodingContext` holds, are the settings of an
    encoding: ``configs/pe/NAME.yaml`` is checked against them, names and types. Values are checked
    by ``__init__`` itself, before it makes a tensor, so that a construction under
    ``torch.device("meta")`` checks settings and takes no memory.
    """

    kind = ""  # its name in the registry
    max_positions: int | None = None  # how many positions it has; None: any number
    uses_positions = True  # whether it depends on positions at all
    relative = False  # whether on nothing but differences of positions: doors 2 and 3 alone
    content_independent = (
        False  # whether queries and keys have no say in door 3: one for all layers
    )

    def __init_subclass__(cls, kind: str | None = None, **kwargs: Any) -> None:
        """``kind`` registers the class under a name; without one it is an ordinary class."""
        super().__init_subclass__(**kwargs)
        if kind is not None:
            cls.kind, ENCODINGS[kind] = kind, cls

    def __init__(self, context: EncodingContext) -> None:
        super().__init__()
        self.context = context
        # Here, so that no encoding can do without: switching positions off must switch nothing
        # else off, or the ablation measures two things at once.
        self.dropout = Dropout(context.dropout)

    @classmethod
    def build(cls, context: EncodingContext, **settings: Any) -> Self:
        """The encoding that serves at ``context``."""
        return cls(context, **settings)

    def embed(self, x: Tensor, at: Positions) -> Tensor:
        """Door 1: ``x (B,S,D)`` with its positions ``at`` worked in; ``(B,S,D)``."""
        return x

    def rotate(
        self, q: Tensor, k: Tensor, query: Positions, key: Positions
    ) -> tuple[Tensor, Tensor]:
        """Door 2: queries ``(B,H,Q,Dh)`` and keys ``(B,H,K,Dh)`` where they stand."""
        return q, k

    def bias(self, q: Tensor, k: Tensor, query: Positions, key: Positions) -> Tensor | None:
        """Door 3: what is added to ``q k^T / sqrt(Dh)``, broadcastable to ``(B,H,Q,K)``.

        ``q (B,H,Q,Dh)`` and ``k (B,H,K,Dh)`` have been through door 2. Of a long sequence they are
        a few queries, and the keys up to the last one that these may see. Where ``content_independent`` is
        set, nothing of them but their shape and type may be used.
        """
        return None

    def forward(self, x: Tensor, at: Positions | None = None) -> Tensor:
        """``dropout(embed(x))``: ``(B,S,D) -> (B,S,D)``, at positions ``0 … S-1`` by default."""
        return self.dropout(self.embed(x, at or consecutive(x.size(1), device=x.device)))

    def reset_parameters(self, generator_for: Callable[[str], torch.Generator]) -> None:
        """Give every parameter its starting value from ``draw(parameter_name)``."""

    def check_length(self, longest: int) -> None:
        """Raise :class:`SequenceTooLong` where ``longest`` positions cannot be served."""

    def untrained_range_warning(self, farthest: int) -> str | None:
        """A warning where parameters serve distances that training, up to ``farthest``, lacks."""
        return None


class NoEncoding(Encoding, kind="none"):
    """No positions at all: the ablation that shows what they do."""

    uses_positions = False


class AbsoluteEncoding(Encoding):
    """Door 1 alone; usable in any model, so it takes width and dropout themselves."""

    def __init__(self, d_model: int, dropout: float, context: EncodingContext | None) -> None:
        super().__init__(context or EncodingContext(d_model, dropout=dropout))
        self.d_model = d_model

    @classmethod
    def build(cls, context: EncodingContext, **settings: Any) -> Self:
        return cls(context.d_model, dropout=context.dropout, context=context, **settings)  # type: ignore[call-arg]

    def rows(self, table: Tensor, index: Tensor) -> Tensor:
        """From ``table (R,D)`` what each token gets at ``index (B,H,S)``: ``(B,S,D)``.

        Heads may count differently; the pairs of dimensions then follow them in turn, the first
        pair the first head, since what is added knows of no heads.
        """
        if index.size(1) == 1:
            return table[index[:, 0]]
        column = torch.arange(self.d_model, device=index.device)
        head = column // 2 % index.size(1)
        return table[index.transpose(1, 2)[..., head], column]  # (B,S,H) -> (B,S,D)


def build_encoding(
    kind: str, context: EncodingContext, settings: dict[str, Any] | None = None
) -> Encoding:
    """The encoding ``kind`` that serves at ``context``; ``settings`` are those of its YAML file."""
    if kind not in ENCODINGS:
        raise ValueError(f"pe={kind} does not exist; choose one of {', '.join(ENCODINGS)}")
    return ENCODINGS[kind].build(context, **(settings or {}))


def build_cross_encoding(
    cross: str, kind: str, context: EncodingContext, settings: dict[str, Any] | None = None
) -> Encoding | None:
    """What serves in cross-attention beside ``kind``: ``none``, the ``same``, or another kind."""
    if cross == "none":
        return None
    able = [name for name, each in ENCODINGS.items() if each.relative]
    wanted = kind if cross == "same" else cross
    if wanted not in able:
        what = "does not exist" if wanted not in ENCODINGS else "has no part in attention"
        raise ValueError(
            f"pe.cross={cross}: {wanted} {what}, and between target and source there is nothing "
            f"but attention; choose none or one of {', '.join(able)}"
        )
    return build_encoding(wanted, context, settings if cross == "same" else None)
