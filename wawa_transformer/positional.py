"""Positional encodings, side by side.

Position enters a Transformer through exactly three doors: it is added to the embeddings
(:meth:`~NoEncoding.embed`), it rotates queries and keys (:meth:`~NoEncoding.rotate`), or it adds a
bias to the attention scores (:meth:`~NoEncoding.bias`). An encoding is a class that opens the
doors it uses; the base class leaves all three shut and is the no-encoding ablation.

Shapes: B batch, S sequence, D ``d_model``, H heads, Dh head width, Q queries, K keys.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

ENCODINGS: dict[str, type[NoEncoding]] = {}
# What the model, not the configuration, tells an encoding that asks for it in its __init__.
# ``shared`` is one dictionary that the encoder's and the decoder's instance both hold.
CONTEXT = ("d_model", "num_heads", "dropout", "causal", "shared")
SPACINGS = ("geometric", "linear", "exponential", "textbook")
ORDERS = ("falling", "rising", "permuted")
LAYOUTS = ("interleaved", "concatenated")
BANDS = ("all", "low", "high")


class SequenceTooLong(ValueError):
    """A sequence reaches past the last position an encoding holds."""


class NoEncoding(nn.Module):
    """No positions at all; the base class of every encoding.

    Dropout stays: switching the encoding off must switch nothing else off, or the ablation
    measures two things at once.
    """

    max_positions: int | None = None  # the longest sequence it can serve; None: any
    stride = 1  # rows of its table that a position takes
    # The setting that says how many distances have parameters of their own; None: none have.
    window: str | None = None
    cross_attention = False  # whether doors 2 and 3 open in cross-attention, too

    def __init_subclass__(cls, kind: str, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        ENCODINGS[kind] = cls

    def __init__(self, dropout: float = 0.1) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)

    def embed(self, x: Tensor, offset: int = 0) -> Tensor:
        """Door 1: ``x (B,S,D)`` with positions ``offset … offset+S-1`` worked in; ``(B,S,D)``."""
        return x

    def rotate(self, q: Tensor, k: Tensor, offset: int = 0) -> tuple[Tensor, Tensor]:
        """Door 2: queries and keys ``(B,H,S,Dh)``, both starting at position ``offset``."""
        return q, k

    def bias(self, q: Tensor, k_len: int, offset: int = 0) -> Tensor | None:
        """Door 3: a bias broadcastable to ``(B,H,Q,K)`` for queries starting at ``offset``.

        ``q`` has been through door 2. The bias is added to ``q k^T / sqrt(Dh)``.
        """
        return None

    def forward(self, x: Tensor, offset: int = 0) -> Tensor:
        """``dropout(embed(x))``: ``(B,S,D) -> (B,S,D)``."""
        return self.dropout(self.embed(x, offset))

    def initialise(self, draw: Callable[[str], torch.Generator]) -> None:
        """Give every parameter its starting value from ``draw(parameter_name)``."""


ENCODINGS["none"] = NoEncoding

# ---------------------------------------------------------------- added to the embeddings: door 1


class PositionalEncoding(NoEncoding, kind="sinusoidal"):
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
    ) -> None:
        super().__init__(dropout)
        if d_model < 1 or max_len < 1:
            raise ValueError(f"d_model={d_model} and max_len={max_len} must both be at least 1")
        for name, given, choices in (
            ("spacing", spacing, SPACINGS), ("order", order, ORDERS),
            ("layout", layout, LAYOUTS), ("band", band, BANDS),
        ):  # fmt: skip
            if given not in choices:
                raise ValueError(
                    f"pe.{name}={given} does not exist; choose one of {', '.join(choices)}"
                )
        if not base > 1:
            raise ValueError(f"pe.base={base} must be greater than 1")
        self.d_model = d_model
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
    pair = torch.arange((d_model + 1) // 2, dtype=torch.float64)  # i
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


class LearnedEncoding(NoEncoding, kind="learned"):
    """A trained vector for each position (Gehring et al. 2017, section 3.1).

    Args:
        d_model: width D of the embeddings.
        max_len: positions in the table; a longer input raises :class:`SequenceTooLong`.
        dropout: probability of zeroing an element of the sum.
        init_std: standard deviation of the starting values. It decides how fast the table is
            learned: 1.0 matches token embeddings after their scaling by sqrt(D).
    """

    def __init__(
        self, d_model: int, max_len: int = 256, dropout: float = 0.1, init_std: float = 1.0
    ) -> None:
        super().__init__(dropout)
        self.max_positions = max_len
        self.init_std = init_std
        self.table = nn.Parameter(torch.empty(max_len, d_model))
        self.initialise(lambda name: torch.default_generator)

    def embed(self, x: Tensor, offset: int = 0) -> Tensor:
        """``x (B,S,D)`` plus rows ``offset … offset+S-1`` of the table, in ``x.dtype``."""
        end = offset + x.size(1)
        if end > self.table.size(0):
            raise SequenceTooLong(
                f"a sequence of {end} positions does not fit the learned table of "
                f"pe.max_len={self.table.size(0)}; set pe.max_len={end} or more and train again"
            )
        return x + self.table[offset:end].to(x.dtype)

    def initialise(self, draw: Callable[[str], torch.Generator]) -> None:
        nn.init.normal_(self.table, std=self.init_std, generator=draw("table"))


class ShiftedSinusoid(PositionalEncoding, kind="sinusoidal_shifted"):
    """The sinusoid, started at a random position in every training batch.

    SHAPE (Kiyono et al. 2021, section 3): one offset, uniform in ``0 … max_shift``, moves all
    positions of source and target alike; evaluation starts at 0. Only differences of positions
    stay informative.
    """

    def __init__(
        self,
        d_model: int,
        causal: bool,
        shared: dict[str, Any],
        max_len: int = 5000,
        dropout: float = 0.1,
        max_shift: int = 100,
    ) -> None:
        super().__init__(d_model, max_len, dropout)
        self.causal, self.shared, self.max_shift = causal, shared, max_shift

    def embed(self, x: Tensor, offset: int = 0) -> Tensor:
        return super().embed(x, offset + shift(self))


class ShiftedLearned(LearnedEncoding, kind="learned_shifted"):
    """The learned table, read from a random row on in every training batch.

    As :class:`ShiftedSinusoid`. The table has ``max_len + max_shift`` rows, so that rows past the
    trained lengths are trained, too.
    """

    def __init__(
        self,
        d_model: int,
        causal: bool,
        shared: dict[str, Any],
        max_len: int = 256,
        dropout: float = 0.1,
        init_std: float = 1.0,
        max_shift: int = 100,
    ) -> None:
        super().__init__(d_model, max_len + max_shift, dropout, init_std)
        self.max_positions = max_len
        self.causal, self.shared, self.max_shift = causal, shared, max_shift

    def embed(self, x: Tensor, offset: int = 0) -> Tensor:
        return super().embed(x, offset + shift(self))


def shift(encoding: ShiftedSinusoid | ShiftedLearned) -> int:
    """The batch's offset: drawn by the encoder, read by the decoder, 0 in evaluation."""
    if not encoding.training:
        return 0
    if not encoding.causal:
        encoding.shared["shift"] = int(torch.randint(encoding.max_shift + 1, ()))
    return encoding.shared.get("shift", 0)


class RandomizedPositions(PositionalEncoding, kind="randomized"):
    """The sinusoid at random positions that keep their order (Ruoss et al. 2023, section 3).

    In training S positions are drawn from ``0 … max_len-1`` without replacement and sorted, one
    draw a batch; the target's positions hold the source's, or the other way round. The paper
    draws in evaluation, too. Here evaluation takes every ``stride``-th position: a draw that
    depends on the length would change with padding, and could not be decoded step by step.
    """

    def __init__(
        self,
        d_model: int,
        causal: bool,
        shared: dict[str, Any],
        max_len: int = 128,
        dropout: float = 0.1,
        stride: int = 3,
    ) -> None:
        super().__init__(d_model, max_len, dropout)
        if not 1 <= stride <= max_len:
            raise ValueError(f"pe.stride={stride} must lie between 1 and pe.max_len={max_len}")
        self.causal, self.shared, self.stride = causal, shared, stride
        self.max_positions = max_len // stride

    def embed(self, x: Tensor, offset: int = 0) -> Tensor:
        end, available = offset + x.size(1), self.pe.size(1)
        if end > (available if self.training else available // self.stride):
            raise SequenceTooLong(
                f"a sequence of {end} positions does not fit pe.max_len={available} with "
                f"pe.stride={self.stride}; set pe.max_len={end * self.stride} or more"
            )
        if not self.training:
            last = (end - 1) * self.stride + 1
            return x + self.pe[:, offset * self.stride : last : self.stride].to(x.dtype)
        if not self.causal:
            self.shared["order"] = torch.randperm(available)
        order = self.shared.get("order", torch.arange(available))
        position = order[: x.size(1)].sort().values.to(x.device)  # (S,)
        return x + self.pe[:, position].to(x.dtype)


class NestedSinusoid(PositionalEncoding, kind="sinusoidal_nested"):
    """The sinusoid with nested dropout (Rippel et al. 2014): low dimensions matter most.

    In training each example keeps its first k dimensions of the sum, k uniform in ``1 … D``, and
    loses the others. It orders the dimensions of the embedding by importance, which the paper's
    encoding does not.
    """

    def embed(self, x: Tensor, offset: int = 0) -> Tensor:
        x = super().embed(x, offset)
        if not self.training:
            return x
        kept = torch.randint(1, self.d_model + 1, (x.size(0), 1, 1), device=x.device)
        return x * (torch.arange(self.d_model, device=x.device) < kept)  # (B,1,D)


# ------------------------------------------------------------- turned queries and keys: door 2


class Rotary(NoEncoding, kind="rotary"):
    """Rotary position embedding (Su et al. 2021, equation 34).

    Dimensions 2i and 2i+1 of every query and key are turned by ``position · base^(-2i/Dh)``, so
    that their product depends on the distance alone.

    Args:
        base: as in the sinusoid.
        cross_attention: turn the queries and keys of cross-attention as well. Off by default:
            source and target count their positions from different zeros, and turning both
            assumes that they run in step.

    Raises:
        ValueError: an odd head width has no pairs.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        dropout: float = 0.1,
        base: float = 10000.0,
        cross_attention: bool = False,
    ) -> None:
        super().__init__(dropout)
        width = d_model // num_heads
        if width % 2:
            raise ValueError(
                f"pe=rotary turns pairs of dimensions, but model.d_model={d_model} over "
                f"model.num_heads={num_heads} gives heads of odd width {width}; "
                f"choose a model.num_heads that gives an even one"
            )
        self.cross_attention = cross_attention
        self.angles = PositionalEncoding(width, max_len=512, dropout=0.0, base=base)

    def rotate(self, q: Tensor, k: Tensor, offset: int = 0) -> tuple[Tensor, Tensor]:
        return self.turn(q, offset), self.turn(k, offset)

    def turn(self, x: Tensor, offset: int) -> Tensor:
        """``x (B,H,S,Dh)`` turned from position ``offset`` on; in float32 at least."""
        table = self.angles.rows(offset, x.size(2))  # (1,S,Dh): sine, cosine, sine, …
        table = table.to(torch.promote_types(x.dtype, torch.float32))
        sine, cosine = table[..., 0::2], table[..., 1::2]  # (1,S,Dh/2)
        even, odd = x[..., 0::2], x[..., 1::2]  # (B,H,S,Dh/2)
        turned = torch.stack((even * cosine - odd * sine, even * sine + odd * cosine), dim=-1)
        return turned.flatten(-2).to(x.dtype)  # (B,H,S,Dh/2,2) -> (B,H,S,Dh)


# ----------------------------------------------------------- a bias on attention scores: door 3


def distances(q: Tensor, k_len: int, offset: int) -> Tensor:
    """Key minus query position, ``(Q,K)``, for queries ``q (B,H,Q,Dh)`` starting at ``offset``."""
    query = torch.arange(offset, offset + q.size(2), device=q.device)
    return torch.arange(k_len, device=q.device) - query[:, None]


def pick(scores: Tensor, index: Tensor) -> Tensor:
    """From a score for each relative position ``(B,H,Q,R)`` those of ``index (Q,K)``: (B,H,Q,K)."""
    return scores.gather(-1, index.expand(*scores.shape[:2], -1, -1))


class ALiBi(NoEncoding, kind="alibi"):
    """Attention with linear biases (Press et al. 2022, section 3): ``-slope · |distance|``.

    The decoder's mask leaves only the past. The encoder's bias is symmetric, so an encoder with
    nothing else cannot tell a sequence from its mirror image.
    """

    slopes: Tensor

    def __init__(self, num_heads: int, dropout: float = 0.1) -> None:
        super().__init__(dropout)
        self.register_buffer("slopes", torch.tensor(alibi_slopes(num_heads)), persistent=False)

    def bias(self, q: Tensor, k_len: int, offset: int = 0) -> Tensor:
        distance = distances(q, k_len, offset).abs()  # (Q,K)
        return (-self.slopes[:, None, None] * distance).to(q.dtype)  # (H,Q,K)


def alibi_slopes(num_heads: int) -> list[float]:
    """``2^(-8h/H)`` for h = 1 … H, H a power of two.

    For another H, the paper's appendix takes the slopes of the power of two below it, then every
    other slope of the power of two above it.
    """
    power = 2 ** (num_heads.bit_length() - 1)  # the power of two at or below H
    slopes = [2 ** (-8 * h / power) for h in range(1, power + 1)]
    if power < num_heads:
        slopes += alibi_slopes(2 * power)[0::2][: num_heads - power]
    return slopes


class T5Buckets(NoEncoding, kind="t5"):
    """A trained bias for each head and bucket of distances (Raffel et al. 2020, section 2.1).

    Half of the buckets hold one distance each, the others grow geometrically up to
    ``max_distance``; whatever is farther shares the last one. In the encoder half of all buckets
    serve keys to the right. One table serves all layers of a stack, as in the paper.
    """

    window = "max_distance"
    edges: Tensor

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        causal: bool,
        dropout: float = 0.1,
        num_buckets: int = 32,
        max_distance: int = 128,
    ) -> None:
        super().__init__(dropout)
        side = num_buckets if causal else num_buckets // 2
        if num_buckets < 4 or num_buckets % 2 or max_distance <= side // 2:
            raise ValueError(
                f"pe.num_buckets={num_buckets} must be even and at least 4, and "
                f"pe.max_distance={max_distance} greater than {side // 2}"
            )
        self.causal, self.side = causal, side
        exact = side // 2
        wide, ratio = side - exact, max_distance / exact
        # Where each wide bucket begins. As integers: the logarithm of the paper's code can land
        # on either side of a boundary by rounding.
        edges = [math.ceil(round(exact * ratio ** (j / wide), 9)) for j in range(1, wide)]
        self.register_buffer("edges", torch.tensor(edges, dtype=torch.int64), persistent=False)
        self.init_std = d_model**-0.5
        self.table = nn.Parameter(torch.empty(num_buckets, num_heads))
        self.initialise(lambda name: torch.default_generator)

    def bias(self, q: Tensor, k_len: int, offset: int = 0) -> Tensor:
        bucket = self.bucket(distances(q, k_len, offset))  # (Q,K)
        return self.table[bucket].permute(2, 0, 1).to(q.dtype)  # (Q,K,H) -> (H,Q,K)

    def bucket(self, distance: Tensor) -> Tensor:
        """The bucket of each ``distance`` (key minus query), any shape, int64."""
        exact = self.side // 2
        far = -distance if self.causal else distance.abs()
        far = far.clamp(min=0)
        beyond = torch.bucketize(far, self.edges, right=True)
        bucket = torch.where(far < exact, far, exact + beyond)
        return bucket if self.causal else bucket + self.side * (distance > 0)

    def initialise(self, draw: Callable[[str], torch.Generator]) -> None:
        nn.init.normal_(self.table, std=self.init_std, generator=draw("table"))


class ShawRelative(NoEncoding, kind="shaw"):
    """A trained key for each distance, clipped (Shaw et al. 2018, section 3.2, equation 4).

    The score gains ``q · a(clip(distance)) / sqrt(Dh)``. The paper's relative values are left
    out, which it found to cost nothing (table 3); one table serves all heads, as there, and all
    layers of a stack, which there have one each.
    """

    window = "clip"

    def __init__(self, d_model: int, num_heads: int, dropout: float = 0.1, clip: int = 16) -> None:
        super().__init__(dropout)
        if clip < 1:
            raise ValueError(f"pe.clip={clip} must be at least 1")
        self.clip = clip
        self.table = nn.Parameter(torch.empty(2 * clip + 1, d_model // num_heads))
        self.initialise(lambda name: torch.default_generator)

    def bias(self, q: Tensor, k_len: int, offset: int = 0) -> Tensor:
        scores = q @ self.table.T.to(q.dtype) / q.size(-1) ** 0.5  # (B,H,Q,2c+1)
        index = distances(q, k_len, offset).clamp(-self.clip, self.clip) + self.clip  # (Q,K)
        return pick(scores, index)

    def initialise(self, draw: Callable[[str], torch.Generator]) -> None:
        std = self.table.size(1) ** -0.5
        nn.init.normal_(self.table, std=std, generator=draw("table"))


class TransformerXL(NoEncoding, kind="transformer_xl"):
    """Sinusoids of the distance in the score (Dai et al. 2019, section 3.3).

    The score is ``(q+u) · k + (q+v) · W R(distance)``, over sqrt(Dh): R is the sinusoid of query
    minus key position, W a trained matrix, u and v a trained vector for each head. ``q+u`` passes
    through door 2, the rest through door 3. W serves all layers of a stack; the paper has one for
    each layer.
    """

    def __init__(
        self, d_model: int, num_heads: int, dropout: float = 0.1, base: float = 10000.0
    ) -> None:
        super().__init__(dropout)
        self.d_model, self.num_heads, self.base = d_model, num_heads, base
        self.project = nn.Linear(d_model, d_model, bias=False)
        self.u = nn.Parameter(torch.empty(num_heads, d_model // num_heads))
        self.v = nn.Parameter(torch.empty(num_heads, d_model // num_heads))
        self.initialise(lambda name: torch.default_generator)

    def rotate(self, q: Tensor, k: Tensor, offset: int = 0) -> tuple[Tensor, Tensor]:
        return q + self.u[:, None].to(q.dtype), k

    def bias(self, q: Tensor, k_len: int, offset: int = 0) -> Tensor:
        distance = -distances(q, k_len, offset)  # (Q,K): query minus key
        low = int(distance[0, -1])
        position = torch.arange(low, int(distance[-1, 0]) + 1, device=q.device)  # (R,)
        table = sinusoid(position, self.d_model, base=self.base).to(self.project.weight.dtype)
        keys = self.project(table).unflatten(-1, (self.num_heads, -1))  # (R,D) -> (R,H,Dh)
        q = q + (self.v - self.u)[:, None].to(q.dtype)  # door 2 added u
        scores = q @ keys.permute(1, 2, 0).to(q.dtype) / q.size(-1) ** 0.5  # (B,H,Q,R)
        return pick(scores, distance - low)

    def initialise(self, draw: Callable[[str], torch.Generator]) -> None:
        for name, parameter in (("u", self.u), ("v", self.v)):
            nn.init.normal_(parameter, std=0.02, generator=draw(name))


def build(kind: str, settings: dict[str, Any] | None = None, **context: Any) -> NoEncoding:
    """An encoding by name: ``settings`` from its YAML file, ``context`` from the model.

    Context a class does not ask for in its ``__init__`` is left out, so that a new encoding
    changes no other line.
    """
    if kind not in ENCODINGS:
        raise ValueError(f"pe={kind} does not exist; choose one of {', '.join(ENCODINGS)}")
    cls = ENCODINGS[kind]
    asked = inspect.signature(cls).parameters
    return cls(**{name: context[name] for name in context if name in asked}, **(settings or {}))
