"""Encodings inside attention: queries and keys are turned, or a bias is added to their score.

Each sees how far a key stands from its query, and not where both stand.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from wawa_transformer.limits import MOST_POSITIONS, check_base, check_number
from wawa_transformer.positional import Encoding, Place, PositionalEncoding, Positions
from wawa_transformer.sinusoid import sinusoid

# ------------------------------------------------------------- turned queries and keys: door 2


class Rotary(Encoding, kind="rotary"):
    """Rotary position embedding (Su et al. 2021, equation 34).

    Dimensions 2i and 2i+1 of every query and key are turned by ``position · base^(-2i/Dh)``, so
    that their product depends on the distance alone.

    Args:
        base: as in the sinusoid.
        fraction: partial rotary, as in GPT-NeoX: the first dimensions of a head, this share of
            them, are turned as if they were a head of their own; the others stay.
        p: p-RoPE (Barbero et al. 2024, section 6): of the frequencies this share is kept, the
            fastest; the slowest, which long contexts turn into noise, turn nothing.
        stretch: position interpolation (Chen et al. 2023): positions are divided by it.

    Raises:
        ValueError: an odd head width has no pairs; nothing is left to turn.
    """

    relative = True

    def __init__(
        self,
        place: Place,
        base: float = 10000.0,
        fraction: float = 1.0,
        p: float = 1.0,
        stretch: float = 1.0,
    ) -> None:
        super().__init__(place)
        if place.head_width % 2:
            raise ValueError(
                f"pe=rotary turns pairs of dimensions, but model.d_model={place.d_model} over "
                f"model.num_heads={place.num_heads} gives heads of odd width {place.head_width}; "
                f"choose a model.num_heads that gives an even one"
            )
        check_number("pe.fraction", fraction, 0, 1)
        check_number("pe.p", p, 0, 1)
        width = int(fraction * place.head_width) // 2 * 2
        self.turned = int(p * width / 2) * 2
        if not self.turned:
            raise ValueError(
                f"pe.fraction={fraction} and pe.p={p} leave no pair of a head's "
                f"{place.head_width} dimensions to turn; raise them, or choose pe=none"
            )
        self.angles = PositionalEncoding(
            width, max_len=512, dropout=0.0, base=base, stretch=stretch
        )

    def rotate(
        self, q: Tensor, k: Tensor, query: Positions, key: Positions
    ) -> tuple[Tensor, Tensor]:
        return self.turn(q, query), self.turn(k, key)

    def turn(self, x: Tensor, at: Positions) -> Tensor:
        """``x (B,H,S,Dh)`` turned by its positions; in float32 at least."""
        x, rest = x.tensor_split((self.turned,), dim=-1)  # (B,H,S,W), (B,H,S,Dh-W)
        exact = torch.promote_types(x.dtype, torch.float32)
        table = self.angles.table(at.end)[at.index, : self.turned]  # (b,h,S,W): sine, cosine, …
        sine, cosine = table.to(exact).unflatten(-1, (-1, 2)).unbind(-1)  # (b,h,S,W/2)
        pairs = x.to(exact).unflatten(-1, (-1, 2))  # (B,H,S,W) -> (B,H,S,W/2,2)
        if torch.compiler.is_compiling():  # which generates no code for complex numbers
            even, odd = pairs.unbind(-1)
            parts = (even * cosine - odd * sine, even * sine + odd * cosine)
            turned = torch.stack(parts, dim=-1)
        else:
            numbers = torch.view_as_complex(pairs) * torch.complex(cosine, sine)
            turned = torch.view_as_real(numbers)
        turned = turned.flatten(-2).to(x.dtype)  # (B,H,S,W/2,2) -> (B,H,S,W)
        return torch.cat((turned, rest), dim=-1) if rest.size(-1) else turned


# ----------------------------------------------------------- a bias on attention scores: door 3

MANY_PAIRS = 2**14  # from about 128 queries and keys on


def once_a_pass(method: Callable[..., Any]) -> Callable[..., Any]:
    """Keep the last result of a method of the positions ``(query, key)`` alone.

    Every layer of a forward pass asks for the same ones. A compiler sees that by itself, and what
    it computes must not outlive its graph.
    """
    kept = f"_last_{method.__name__}"

    @functools.wraps(method)
    def remembered(self: Encoding, query: Positions, key: Positions) -> Any:
        if torch.compiler.is_compiling():
            return method(self, query, key)
        asked = self.__dict__.get(kept)
        if asked is None or asked[0] is not query or asked[1] is not key:
            asked = self.__dict__[kept] = (query, key, method(self, query, key))
        return asked[2]

    return remembered


class RelativeEncoding(Encoding):
    """Door 3: what is added to a score depends on how far the key stands from the query.

    There are far fewer distances, R of them, than pairs of a query and a key; what depends on the
    distance is computed for each of :meth:`every` and handed to all pairs by :meth:`to_pairs`.
    Lower case b and h are sizes that positions may have: 1, or B and H.
    """

    relative = True

    @once_a_pass
    def distances(self, query: Positions, key: Positions) -> Tensor:
        """Key minus query position, ``(b,h,Q,K)``."""
        return key.index[..., None, :] - query.index[..., :, None]

    @once_a_pass
    def every(self, query: Positions, key: Positions) -> Tensor:
        """Every distance there may be, from the lowest on: ``(R,)``."""
        nearest, farthest = key.start - query.end + 1, key.end - query.start
        return torch.arange(nearest, farthest, device=query.index.device)

    @once_a_pass
    def index(self, query: Positions, key: Positions) -> Tensor:
        """Where in :meth:`every` a pair's distance stands, ``(b,h,Q,K)``."""
        return self.distances(query, key) + query.end - 1 - key.start

    def to_pairs(self, values: Tensor, query: Positions, key: Positions) -> Tensor:
        """From values of every distance, ``(B or 1,H,Q or 1,R)``, each pair's: ``(B,H,Q,K)``."""
        if in_step(query, key):
            return shift(values, query.index.size(-1))
        return pick(values, self.index(query, key))


def in_step(query: Positions, key: Positions) -> bool:
    """Whether :func:`shift` may take the place of :func:`pick`, and is the faster one."""
    if torch.compiler.is_compiling():  # for all sizes at once
        return False
    queries, keys = query.index.size(-1), key.index.size(-1)
    return query.consecutive and key.consecutive and (queries == 1 or queries * keys >= MANY_PAIRS)


def shift(values: Tensor, queries: int) -> Tensor:
    """From ``values (B,H,Q or 1,R)`` those that :func:`pick` takes where every query stands next
    to the one before it, as every key does: ``(B,H,Q,K)``, since there R is Q + K - 1.

    The first query has the last K of its row, and each other begins a place earlier than the one
    before (Dai et al. 2019, appendix B). Rows of R - 1 laid over rows of R begin just there.
    """
    if queries == 1:
        return values
    values = values.expand(-1, -1, queries, -1)  # (B,H,Q,R)
    distances = values.size(-1)
    flat = values.flatten(-2)[..., queries - 1 : queries * distances - 1]  # (B,H,Q*(R-1))
    rows = flat.unflatten(-1, (queries, distances - 1))  # (B,H,Q*(R-1)) -> (B,H,Q,R-1)
    return rows[..., : distances - queries + 1].contiguous()


def pick(values: Tensor, index: Tensor) -> Tensor:
    """From ``values (b,h,Q or 1,R)`` those of ``index (b,h,Q,K)``: ``(B,H,Q,K)``."""
    batch, heads = (max(values.size(i), index.size(i)) for i in (0, 1))
    values = values.expand(batch, heads, index.size(2), -1)
    return values.gather(-1, index.expand(batch, heads, -1, -1))


class ALiBi(RelativeEncoding, kind="alibi"):
    """Attention with linear biases (Press et al. 2022, section 3): ``-slope · |distance|``.

    The decoder's mask leaves only the past. The encoder's bias is symmetric, so an encoder with
    nothing else cannot tell a sequence from its mirror image. ``directed`` heads have a slope for
    either side: keys to the right of a query have the slopes in reverse, so that head 1 looks to
    the right and the last head to the left. Cross-attention, where nothing else tells the sides
    apart, is always directed.
    """

    of_positions = True
    slopes: Tensor

    def __init__(self, place: Place, directed: bool = False) -> None:
        super().__init__(place)
        left = torch.tensor(alibi_slopes(place.num_heads))
        both = directed or place.role == "cross"
        slopes = torch.stack((left, left.flip(0) if both else left))
        self.register_buffer("slopes", slopes, persistent=False)  # (2,H): to the left, to the right

    def bias(self, q: Tensor, k: Tensor, query: Positions, key: Positions) -> Tensor:
        every = self.every(query, key)
        left, right = self.slopes[..., None]  # (H,1) each
        values = -torch.where(every > 0, right, left) * every.abs()  # (H,R)
        return self.to_pairs(values[None, :, None], query, key).to(q.dtype)  # (b,H,Q,K)


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


class T5Buckets(RelativeEncoding, kind="t5"):
    """A trained bias for each head and bucket of distances (Raffel et al. 2020, section 2.1).

    Half of the buckets hold one distance each, the others grow geometrically up to
    ``max_distance``; whatever is farther shares the last one. In the encoder half of all buckets
    serve keys to the right. One table serves all layers of a stack, as in the paper.
    """

    of_positions = True
    edges: Tensor

    def __init__(self, place: Place, num_buckets: int = 32, max_distance: int = 128) -> None:
        super().__init__(place)
        check_number("pe.num_buckets", num_buckets, 4, MOST_POSITIONS)
        check_number("pe.max_distance", max_distance, 1, MOST_POSITIONS)
        side = num_buckets if place.causal else num_buckets // 2
        if num_buckets % 2 or max_distance <= side // 2:
            raise ValueError(
                f"pe.num_buckets={num_buckets} must be even, and "
                f"pe.max_distance={max_distance} greater than {side // 2}"
            )
        self.side, self.max_distance = side, max_distance
        exact = side // 2
        wide, ratio = side - exact, max_distance / exact
        # Where each wide bucket begins. As integers: the logarithm of the paper's code can land
        # on either side of a boundary by rounding.
        edges = [math.ceil(round(exact * ratio ** (j / wide), 9)) for j in range(1, wide)]
        self.register_buffer("edges", torch.tensor(edges, dtype=torch.int64), persistent=False)
        self.table = nn.Parameter(torch.empty(num_buckets, place.num_heads))
        self.initialise(lambda name: torch.default_generator)

    def bias(self, q: Tensor, k: Tensor, query: Positions, key: Positions) -> Tensor:
        values = self.table[self.bucket(self.every(query, key))].to(q.dtype)  # (R,H)
        return self.to_pairs(values.T[None, :, None], query, key)  # (b,H,Q,K)

    def bucket(self, distance: Tensor) -> Tensor:
        """The bucket of each ``distance`` (key minus query), any shape, int64."""
        exact = self.side // 2
        far = -distance if self.place.causal else distance.abs()
        far = far.clamp(min=0)
        beyond = torch.bucketize(far, self.edges, right=True)
        bucket = torch.where(far < exact, far, exact + beyond)
        return bucket if self.place.causal else bucket + self.side * (distance > 0)

    def initialise(self, draw: Callable[[str], torch.Generator]) -> None:
        nn.init.normal_(self.table, std=self.place.d_model**-0.5, generator=draw("table"))

    def untrained(self, farthest: int) -> str | None:
        return untrained("max_distance", self.max_distance, farthest)


class ShawRelative(RelativeEncoding, kind="shaw"):
    """A trained key for each distance, clipped (Shaw et al. 2018, section 3.2, equation 4).

    The score gains ``q · a(clip(distance)) / sqrt(Dh)``. The paper's relative values are left
    out, which it found to cost nothing (table 3); one table serves all heads, as there, and all
    layers of a stack, which there have one each.
    """

    def __init__(self, place: Place, clip: int = 16) -> None:
        super().__init__(place)
        check_number("pe.clip", clip, 1, MOST_POSITIONS)
        self.clip = clip
        self.table = nn.Parameter(torch.empty(2 * clip + 1, place.head_width))
        self.initialise(lambda name: torch.default_generator)

    def bias(self, q: Tensor, k: Tensor, query: Positions, key: Positions) -> Tensor:
        scores = q * q.size(-1) ** -0.5 @ self.table.T.to(q.dtype)  # (B,H,Q,2c+1)
        if in_step(query, key):
            return shift(self.spread(scores, query, key), q.size(2))
        return pick(scores, self.clipped(query, key))

    @once_a_pass
    def clipped(self, query: Positions, key: Positions) -> Tensor:
        """The row of the table for each query and key, ``(b,h,Q,K)``."""
        return self.distances(query, key).clamp(-self.clip, self.clip) + self.clip

    def spread(self, scores: Tensor, query: Positions, key: Positions) -> Tensor:
        """From ``(…,2c+1)``, one for each distance up to the clip, one for every: ``(…,R)``."""
        lowest, highest = key.start - query.end + 1, key.end - query.start - 1
        every = highest - lowest + 1
        below = min(max(-self.clip - lowest, 0), every)  # distances that share the first
        above = min(max(highest - self.clip, 0), every)  # and the last
        within = scores[..., max(lowest + self.clip, 0) : max(highest + self.clip + 1, 0)]
        first, last = scores[..., :1], scores[..., -1:]
        sides = first.expand(*first.shape[:-1], below), last.expand(*last.shape[:-1], above)
        return torch.cat((sides[0], within, sides[1]), dim=-1)

    def initialise(self, draw: Callable[[str], torch.Generator]) -> None:
        nn.init.normal_(self.table, std=self.place.head_width**-0.5, generator=draw("table"))

    def untrained(self, farthest: int) -> str | None:
        return untrained("clip", self.clip, farthest)


class TransformerXL(RelativeEncoding, kind="transformer_xl"):
    """Sinusoids of the distance in the score (Dai et al. 2019, section 3.3).

    The score is ``(q+u) · k + (q+v) · W R(distance)``, over sqrt(Dh): R is the sinusoid of query
    minus key position, W a trained matrix, u and v a trained vector for each head. ``q+u`` passes
    through door 2, the rest through door 3. W serves all layers of a stack; the paper has one for
    each layer.
    """

    def __init__(self, place: Place, base: float = 10000.0) -> None:
        super().__init__(place)
        check_base(base)
        self.base = base
        self.project = nn.Linear(place.d_model, place.d_model, bias=False)
        self.u = nn.Parameter(torch.empty(place.num_heads, place.head_width))
        self.v = nn.Parameter(torch.empty(place.num_heads, place.head_width))
        self.initialise(lambda name: torch.default_generator)

    def rotate(
        self, q: Tensor, k: Tensor, query: Positions, key: Positions
    ) -> tuple[Tensor, Tensor]:
        return q + self.u[:, None].to(q.dtype), k

    def bias(self, q: Tensor, k: Tensor, query: Positions, key: Positions) -> Tensor:
        table = self.sinusoids(query, key)
        keys = self.project(table.to(self.project.weight.dtype))  # (R,D)
        keys = keys.unflatten(-1, (self.place.num_heads, -1))  # (R,D) -> (R,H,Dh)
        q = q + (self.v - self.u)[:, None].to(q.dtype)  # door 2 added u
        # One product for each head; broadcast keys would make it one for each head of each row.
        scores = torch.einsum("bhqd,rhd->bhqr", q * q.size(-1) ** -0.5, keys.to(q.dtype))
        return self.to_pairs(scores, query, key)  # (B,H,Q,K)

    @once_a_pass
    def sinusoids(self, query: Positions, key: Positions) -> Tensor:
        """Sinusoids of every distance, query minus key, ``(R,D)``."""
        return sinusoid(-self.every(query, key), self.place.d_model, base=self.base)

    def initialise(self, draw: Callable[[str], torch.Generator]) -> None:
        for name, parameter in (("u", self.u), ("v", self.v)):
            nn.init.normal_(parameter, std=0.02, generator=draw(name))


def untrained(setting: str, value: int, farthest: int) -> str | None:
    """A warning where a window of trained parameters is wider than the data's distances."""
    if value <= farthest:
        return None
    return (
        f"pe.{setting}={value} reaches past the farthest distance in the training data, "
        f"{farthest}: what lies beyond keeps its random start and is used at longer test lengths; "
        f"set pe.{setting}={farthest} or less."
    )
