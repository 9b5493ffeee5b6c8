"""Positional encodings: the contract of all of them, the sinusoid, the learned table, and none.

Position enters a Transformer through exactly three doors: it is added to the embeddings
(:meth:`~Encoding.embed`), it rotates queries and keys (:meth:`~Encoding.rotate`), or it adds a bias
to the attention scores (:meth:`~Encoding.bias`). An encoding is a class that opens the doors it
uses; the base class leaves all three shut, and with a name of its own it is the ablation.

Shapes: B batch, S sequence, D ``d_model``, H heads, Dh head width, Q queries, K keys.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

import torch
from torch import Tensor, nn

from wawa_transformer.limits import (
    MOST_POSITIONS,
    MOST_WIDTH,
    answers_elsewhere,
    check_base,
    check_number,
    check_word,
)

ENCODINGS: dict[str, type[Encoding]] = {}
SPACINGS = ("geometric", "linear", "exponential", "textbook")
ORDERS = ("falling", "rising", "permuted")
LAYOUTS = ("interleaved", "concatenated")
BANDS = ("all", "low", "high")


class SequenceTooLong(ValueError):
    """A sequence reaches past the last position an encoding holds."""


@dataclass
class Draw:
    """What chance decides for source and target together: the encoder draws, the decoder reads."""

    shift: int = 0
    order: Tensor | None = None  # a permutation of all positions


@dataclass(frozen=True)
class Place:
    """Where in a model an encoding serves: all that the model tells it.

    ``role`` is ``encoder``, ``decoder`` (which sees the past alone), or ``cross``, between target
    queries and source keys. The instances of one model hold the same ``draw``.

    Raises:
        ValueError: a size outside its limits, ``d_model`` not divisible by ``num_heads``.
    """

    d_model: int
    num_heads: int = 1
    dropout: float = 0.1
    role: str = "encoder"
    draw: Draw = field(default_factory=Draw)

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

    max_positions: int | None = None  # the longest sequence it can serve; None: any
    cross_attention = False  # whether one more instance serves cross-attention

    def __init_subclass__(cls, kind: str | None = None, **kwargs: Any) -> None:
        """``kind`` registers the class under a name; without one it is an ordinary class."""
        super().__init_subclass__(**kwargs)
        if kind is not None:
            ENCODINGS[kind] = cls

    def __init__(self, place: Place) -> None:
        super().__init__()
        self.place = place
        # Here, so that no encoding can do without: switching positions off must switch nothing
        # else off, or the ablation measures two things at once.
        self.dropout = nn.Dropout(place.dropout)

    @classmethod
    def build(cls, place: Place, **settings: Any) -> Self:
        """The encoding that serves at ``place``."""
        return cls(place, **settings)

    def embed(self, x: Tensor, offset: int = 0) -> Tensor:
        """Door 1: ``x (B,S,D)`` with positions ``offset … offset+S-1`` worked in; ``(B,S,D)``."""
        return x

    def rotate(self, q: Tensor, k: Tensor, offset: int = 0) -> tuple[Tensor, Tensor]:
        """Door 2: queries and keys ``(B,H,S,Dh)``, both starting at position ``offset``."""
        return q, k

    def bias(self, q: Tensor, k: Tensor, offset: int = 0) -> Tensor | None:
        """Door 3: what is added to ``q k^T / sqrt(Dh)``, broadcastable to ``(B,H,Q,K)``.

        ``q (B,H,Q,Dh)`` starts at position ``offset``, ``k (B,H,K,Dh)`` at 0; both have been
        through door 2.
        """
        return None

    def forward(self, x: Tensor, offset: int = 0) -> Tensor:
        """``dropout(embed(x))``: ``(B,S,D) -> (B,S,D)``."""
        return self.dropout(self.embed(x, offset))

    def initialise(self, draw: Callable[[str], torch.Generator]) -> None:
        """Give every parameter its starting value from ``draw(parameter_name)``."""

    def check_length(self, longest: int) -> None:
        """Raise :class:`SequenceTooLong` where ``longest`` positions cannot be served."""

    def untrained(self, farthest: int) -> str | None:
        """A warning where parameters serve distances that training, up to ``farthest``, lacks."""
        return None


class NoEncoding(Encoding, kind="none"):
    """No positions at all: the ablation that shows what they do."""


class AddedEncoding(Encoding):
    """Door 1 alone; usable in any model, so it takes width and dropout themselves."""

    def __init__(self, d_model: int, dropout: float, place: Place | None) -> None:
        super().__init__(place or Place(d_model, dropout=dropout))
        self.d_model = d_model

    @classmethod
    def build(cls, place: Place, **settings: Any) -> Self:
        return cls(place.d_model, dropout=place.dropout, place=place, **settings)  # type: ignore[call-arg]


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
        base, spacing, order, layout, band: the design of the table, see :func:`frequencies` and
            :func:`sinusoid`; what is left out is the paper's.
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
        self.design: dict[str, Any] = dict(
            base=base, spacing=spacing, order=order, layout=layout, band=band
        )
        # Not persistent: a checkpoint must load whatever max_len it was made with.
        table = sinusoid_table(max_len, d_model, **self.design)
        self.register_buffer("pe", table, persistent=False)

    def embed(self, x: Tensor, offset: int = 0) -> Tensor:
        """``x (B,S,D)`` plus rows ``offset … offset+S-1`` of the table, in ``x.dtype``."""
        if x.ndim != 3 or x.size(-1) != self.d_model:
            raise ValueError(f"expected (batch, seq, d_model={self.d_model}), got {tuple(x.shape)}")
        return x + self.rows(offset, x.size(1)).to(x.dtype)

    def rows(self, offset: int, length: int) -> Tensor:
        """Rows ``offset … offset+length-1`` of the table: ``(1, length, D)``, float32."""
        end = offset + length
        if end > self.pe.size(1):
            grown = max(end, 2 * self.pe.size(1))  # doubling: growing one by one stays cheap
            self.pe = sinusoid_table(grown, self.d_model, **self.design).to(self.pe.device)
        return self.pe[:, offset:end]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> PositionalEncoding:
        # model.bfloat16() would round the table for good; follow the device, keep float32.
        table = self.pe
        super()._apply(fn, recurse)
        self.pe = table.to(self.pe.device)
        return self


def sinusoid_table(length: int, d_model: int, **design: Any) -> Tensor:
    """The table ``(1, length, d_model)``: formed in float64, returned in float32.

    In float32 the product position × frequency loses its last digits as positions grow; in bf16
    the angle would be off by more than a radian beyond position 256.
    """
    position = torch.arange(length, dtype=torch.float64)
    return sinusoid(position, d_model, **design).float().unsqueeze(0)


def sinusoid(
    position: Tensor,
    d_model: int,
    *,
    layout: str = "interleaved",
    band: str = "all",
    **spectrum: Any,
) -> Tensor:
    """Sines and cosines of any ``position (N,)``, negative ones too: ``(N, d_model)``, float64.

    ``layout``: ``interleaved`` is the paper's (sines in even dimensions), ``concatenated`` puts
    all sines before all cosines, as the paper's own code did (tensor2tensor). ``band``: ``low`` or
    ``high`` leaves nothing but that half of the dimensions; the others are zero.
    """
    sine, cosine = frequencies(d_model, **spectrum)
    position = position.double().unsqueeze(1)  # (N,1)
    sines = (position * sine.to(position.device)).sin()  # (N, ceil(D/2))
    cosines = (position * cosine.to(position.device)).cos()  # (N, floor(D/2))
    table = torch.cat((sines, cosines), dim=1)
    if layout == "interleaved":
        table[:, 0::2], table[:, 1::2] = sines, cosines
    if band == "low":
        table[:, d_model // 2 :] = 0
    elif band == "high":
        table[:, : d_model // 2] = 0
    return table


def frequencies(
    d_model: int, base: float = 10000.0, spacing: str = "geometric", order: str = "falling"
) -> tuple[Tensor, Tensor]:
    """The angular frequencies of the sines ``(ceil(D/2),)`` and cosines ``(floor(D/2),)``.

    ``spacing``: ``geometric`` is the paper's ``base^(-2i/D)``; ``linear`` has equal steps between
    the same two ends; ``exponential`` is ``exp(-i)``, whatever the width; ``textbook`` gives the
    cosine of dimension 2i+1 the frequency ``base^(-(2i+1)/D)``, so that no sine has a partner.
    ``order``: ``falling`` as in the paper, ``rising`` the other way round, or ``permuted``.
    """
    # On the processor wherever the table will be: a device without memory has no last value.
    pair = torch.arange((d_model + 1) // 2, dtype=torch.float64, device="cpu")  # i
    step = -math.log(base) / d_model
    sine = torch.exp(2 * pair * step)
    if spacing == "linear":
        sine = torch.linspace(1.0, float(sine[-1]), len(pair), dtype=torch.float64)
    elif spacing == "exponential":
        sine = torch.exp(-pair)
    cosine = torch.exp((2 * pair + 1) * step) if spacing == "textbook" else sine
    if order == "rising":
        sine, cosine = sine.flip(0), cosine.flip(0)
    elif order == "permuted":
        shuffled = torch.randperm(len(pair), generator=torch.Generator().manual_seed(0))
        sine, cosine = sine[shuffled], cosine[shuffled]
    return sine, cosine[: d_model // 2]  # an odd width has one cosine fewer


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

    def embed(self, x: Tensor, offset: int = 0) -> Tensor:
        """``x (B,S,D)`` plus rows ``offset … offset+S-1`` of the table, in ``x.dtype``."""
        end = offset + x.size(1)
        self.check_length(end)
        return x + self.table[offset:end].to(x.dtype)

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
