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

from wawa_transformer.dropout import Dropout
from wawa_transformer.limits import (
    MOST_POSITIONS,
    MOST_WIDTH,
    answers_elsewhere,
    check_base,
    check_number,
    check_word,
)
from wawa_transformer.sinusoid import BANDS, LAYOUTS, ORDERS, SPACINGS, sinusoid_table

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
class Place:
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
        check_number("d_model", self.d_model, 1, MOST_WIDTH)
        check_number("num_heads", self.num_heads, 1, MOST_WIDTH)
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

    The arguments of ``__init__``, but for what :class:`Place` holds, are the settings of an
    encoding: ``configs/pe/NAME.yaml`` is checked against them, names and types. Values are checked
    by ``__init__`` itself, before it makes a tensor, so that a construction under
    ``torch.device("meta")`` checks settings and takes no memory.
    """

    kind = ""  # its name in the registry
    max_positions: int | None = None  # how many positions it has; None: any number
    counted = True  # whether it depends on positions at all
    relative = False  # whether on nothing but differences of positions: doors 2 and 3 alone
    of_positions = False  # whether queries and keys have no say in door 3: one for all layers

    def __init_subclass__(cls, kind: str | None = None, **kwargs: Any) -> None:
        """``kind`` registers the class under a name; without one it is an ordinary class."""
        super().__init_subclass__(**kwargs)
        if kind is not None:
            cls.kind, ENCODINGS[kind] = kind, cls

    def __init__(self, place: Place) -> None:
        super().__init__()
        self.place = place
        # Here, so that no encoding can do without: switching positions off must switch nothing
        # else off, or the ablation measures two things at once.
        self.dropout = Dropout(place.dropout)

    @classmethod
    def build(cls, place: Place, **settings: Any) -> Self:
        """The encoding that serves at ``place``."""
        return cls(place, **settings)

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
        a few queries, and the keys up to the last one that these may see. Where ``of_positions`` is
        set, nothing of them but their shape and type may be used.
        """
        return None

    def forward(self, x: Tensor, at: Positions | None = None) -> Tensor:
        """``dropout(embed(x))``: ``(B,S,D) -> (B,S,D)``, at positions ``0 … S-1`` by default."""
        return self.dropout(self.embed(x, at or consecutive(x.size(1), device=x.device)))

    def initialise(self, draw: Callable[[str], torch.Generator]) -> None:
        """Give every parameter its starting value from ``draw(parameter_name)``."""

    def check_length(self, longest: int) -> None:
        """Raise :class:`SequenceTooLong` where ``longest`` positions cannot be served."""

    def untrained(self, farthest: int) -> str | None:
        """A warning where parameters serve distances that training, up to ``farthest``, lacks."""
        return None


class NoEncoding(Encoding, kind="none"):
    """No positions at all: the ablation that shows what they do."""

    counted = False


class AddedEncoding(Encoding):
    """Door 1 alone; usable in any model, so it takes width and dropout themselves."""

    def __init__(self, d_model: int, dropout: float, place: Place | None) -> None:
        super().__init__(place or Place(d_model, dropout=dropout))
        self.d_model = d_model

    @classmethod
    def build(cls, place: Place, **settings: Any) -> Self:
        return cls(place.d_model, dropout=place.dropout, place=place, **settings)  # type: ignore[call-arg]

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


class PositionalEncoding(AddedEncoding, kind="sinusoidal"):
    r"""The fixed sinusoidal encoding of Vaswani et al. 2017, section 3.5.

    .. math::
        PE(pos, 2i) = \sin(pos / 10000^{2i/d_{model}}), \quad
        PE(pos, 2i+1) = \cos(pos / 10000^{2i/d_{model}})

    Args:
        d_model: width D of the embeddings; odd widths end on a sine.
        max_len: positions in the table to begin with; a longer input grows it, since a formula
            has no last position.
        dropout: probability of zeroing an element of the sum.
        base, spacing, order, layout, band, stretch: the design of the table, see
            :mod:`wawa_transformer.sinusoid`; what is left out is the paper's.
    """

    pe: Tensor

    @answers_elsewhere
    def __init__(
        self,
        d_model: int,
        max_len: int = 5000,
        dropout: float = 0.1,
        base: float = 10000.0,
        spacing: str = "geometric",
        order: str = "falling",
        layout: str = "interleaved",
        band: str = "all",
        stretch: float = 1.0,
        *,
        place: Place | None = None,
    ) -> None:
        super().__init__(d_model, dropout, place)
        check_number("pe.max_len", max_len, 1, MOST_POSITIONS)
        check_base(base)
        check_word("spacing", spacing, SPACINGS)
        check_word("order", order, ORDERS)
        check_word("layout", layout, LAYOUTS)
        check_word("band", band, BANDS)
        check_number("pe.stretch", stretch, 1e-6, 1e6)
        self.design: dict[str, Any] = dict(
            base=base, spacing=spacing, order=order, layout=layout, band=band, stretch=stretch
        )
        # Not persistent: a checkpoint must load whatever max_len it was made with.
        table = sinusoid_table(max_len, d_model, **self.design)
        self.register_buffer("pe", table, persistent=False)

    def embed(self, x: Tensor, at: Positions) -> Tensor:
        """``x (B,S,D)`` plus the rows of the table at its positions, in ``x.dtype``."""
        if x.ndim != 3 or x.size(-1) != self.d_model:
            raise ValueError(f"expected (batch, seq, d_model={self.d_model}), got {tuple(x.shape)}")
        return x + self.rows(self.table(at.end), at.index).to(x.dtype)

    def table(self, end: int) -> Tensor:
        """The table ``(R,D)``, float32, of at least ``end`` positions."""
        if end > self.pe.size(1):
            grown = max(end, 2 * self.pe.size(1))  # doubling: growing one by one stays cheap
            self.pe = sinusoid_table(grown, self.d_model, **self.design).to(self.pe.device)
        return self.pe[0]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> PositionalEncoding:
        # model.bfloat16() would round the table for good; follow the device, keep float32.
        table = self.pe
        super()._apply(fn, recurse)
        self.pe = table.to(self.pe.device)
        return self


class LearnedEncoding(AddedEncoding, kind="learned"):
    """A trained vector for each position (Gehring et al. 2017, section 3.1).

    Args:
        d_model: width D of the embeddings.
        max_len: positions in the table; a longer input raises :class:`SequenceTooLong`.
        dropout: probability of zeroing an element of the sum.
        init_std: standard deviation of the starting values. It decides how fast the table is
            learned: 1.0 matches token embeddings after their scaling by sqrt(D); 0 begins without
            positions.
    """

    def __init__(
        self,
        d_model: int,
        max_len: int = 256,
        dropout: float = 0.1,
        init_std: float = 1.0,
        *,
        place: Place | None = None,
    ) -> None:
        super().__init__(d_model, dropout, place)
        check_number("pe.max_len", max_len, 1, MOST_POSITIONS)
        check_number("pe.init_std", init_std, 0, 1000)
        self.max_positions: int = max_len
        self.init_std = init_std
        self.table = nn.Parameter(torch.empty(max_len, d_model))
        self.initialise(lambda name: torch.default_generator)

    def embed(self, x: Tensor, at: Positions) -> Tensor:
        """``x (B,S,D)`` plus the rows of the table at its positions, in ``x.dtype``."""
        self.check_length(at.end)
        return x + self.rows(self.table, at.index).to(x.dtype)

    def check_length(self, longest: int) -> None:
        if longest > self.max_positions:
            raise SequenceTooLong(
                f"a sequence of {longest} positions does not fit the learned table of "
                f"pe.max_len={self.max_positions}; set pe.max_len={longest} or more and train again"
            )

    def initialise(self, draw: Callable[[str], torch.Generator]) -> None:
        nn.init.normal_(self.table, std=self.init_std, generator=draw("table"))


def build(kind: str, place: Place, settings: dict[str, Any] | None = None) -> Encoding:
    """The encoding ``kind`` that serves at ``place``; ``settings`` are those of its YAML file."""
    if kind not in ENCODINGS:
        raise ValueError(f"pe={kind} does not exist; choose one of {', '.join(ENCODINGS)}")
    return ENCODINGS[kind].build(place, **(settings or {}))


def build_cross(
    cross: str, kind: str, place: Place, settings: dict[str, Any] | None = None
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
    return build(wanted, place, settings if cross == "same" else None)
