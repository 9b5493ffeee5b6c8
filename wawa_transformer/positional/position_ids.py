"""Position ids: the numbers that tokens get as positions, whatever the encoding.

By default source and target each count 0, 1, 2, … from their own beginning. Both may be shifted by
the same random amount, or thinned out at random. The source's length is known, so the source may
also be counted from its end.

Evaluation draws too, since a model is tested on the positions it was trained with (Ruoss et al.
2023). There each source decides its own draw by its ids, so that neither padding nor other rows
change it, and decoding step by step sees the same positions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from wawa_transformer.common import PAD, UNK
from wawa_transformer.common.messages import UserError
from wawa_transformer.common.seeds import seed_for
from wawa_transformer.positional.base import ENCODINGS, Encoding, Positions, consecutive


@dataclass(frozen=True)
class BatchPositions:
    """The positions of one batch, for source and target alike."""

    source: Positions
    first: Callable[[int], Positions]  # the positions of the first n tokens of a target
    before: Tensor | None = None  # (B,1,1), source tokens that the target counts on from
    maps: list[Tensor] | None = None  # receives attention weights (B,H,Q,K), to look at them
    share: Tensor | None = None  # (B,1,1), a factor of all positions in cross-attention

    def target(self, offset: int, length: int) -> Positions:
        """Positions of target tokens ``offset … offset+length-1``."""
        positions = self.first(offset + length)
        ids = positions.ids[..., offset:]
        if self.before is not None:
            return Positions(ids + self.before, positions.end + self.source.end)
        start = offset if positions.consecutive else 0
        return Positions(ids, positions.end, start, positions.consecutive)

    def across(self, query: Positions) -> tuple[Positions, Positions]:
        """Divided positions of target queries and of source keys in cross-attention."""
        assert self.share is not None
        return times(query, self.share), times(self.source, self.share)

    def keep(self, rows: Tensor) -> BatchPositions:
        """The positions of ``rows``, indices or booleans ``(B,)``."""

        def kept(value: Any) -> Any:
            return value if value is None or len(value) == 1 else value[rows]  # 1: shared

        def of(positions: Positions) -> Positions:
            return Positions(kept(positions.ids), positions.end)

        before, share = kept(self.before), kept(self.share)
        return BatchPositions(of(self.source), lambda n: of(self.first(n)), before, share=share)


def times(positions: Positions, factor: Tensor) -> Positions:
    """Multiply the ids by ``factor (B,1,1)``."""
    return Positions(positions.ids * factor, positions.end)


@dataclass
class PositionIds:
    """Assigns position ids to the tokens of a batch.

    Args:
        origin: the token of the source with id 0. ``start``: the first. ``end``: the last one that
            is no padding. ``both``: even heads count from the start, odd ones from the end; for
            what is added to embeddings, even and odd pairs of dimensions. The target counts from
            its start, since nobody knows its end before it is written. ``continued``: the source
            from its start, and the target on from the source's end, as in one sequence. ``abacus``:
            digits of each number from 1; any other token has id 0, which no shift moves (McLeish et
            al. 2024, section 3).
        max_shift: source and target start at one random position, in training one for each batch,
            uniform in ``0 … max_shift`` (SHAPE, Kiyono et al. 2021, section 3). In evaluation each
            source has its own start, uniform over those that let it end at ``max_shift`` or before;
            a longer source starts at 0. The authors' code draws for each sequence, source and
            target apart, and tests at the fixed start ``max_shift``.
        random_positions: ids are random but keep their order: as many as the source is long, drawn
            from ``0 … random_positions-1`` without replacement (Ruoss et al. 2023, section 3). In
            training all rows of a batch take theirs from one random order of all ids. The target's
            n-th id is that of the source's n-th. A longer target goes on with the unused ids after
            its last, then with those before it. The authors draw once a batch, in tests too, up to
            2,048 for sequences of 40, and have an encoder alone.
        reset_token: an id of the source after which counting starts again, as for the second of two
            numbers to add: position coupling (Cho et al. 2024, section 3), which knows the task.
        divided: all positions are divided by the source's length, and multiplied by this number; 0
            leaves them. T5Gemma-TTS (arXiv 2604.01760) has 2,000. Its published code divides by the
            length less 1, and the target by its own length, which is estimated beforehand.
        cross_divided: the same in cross-attention alone. LARoPE (arXiv 2509.11084) has 10, and
            divides the target by its own length, which is known there.

    Raises:
        ValueError: a setting outside its limits, or one that another leaves without effect.
    """

    origin: str = "start"
    max_shift: int = 0
    random_positions: int = 0
    reset_token: int | None = None
    divided: float = 0.0
    cross_divided: float = 0.0

    def __post_init__(self) -> None:
        if self.max_shift and self.random_positions:
            raise UserError(
                f"pe.max_shift={self.max_shift} and pe.random_positions={self.random_positions} "
                "exclude each other; set one of them to 0."
            )
        if self.divided and self.cross_divided:
            raise UserError(
                f"pe.divided={self.divided:g} divides positions in cross-attention too, and "
                f"pe.cross_divided={self.cross_divided:g} would divide them again; set one of them "
                f"to 0."
            )
        anew = self.random_positions or self.reset_token is not None or self.divided
        if self.origin == "continued" and anew:
            raise UserError(
                "pe.origin=continued counts source and target as one sequence, which "
                "pe.random_positions, pe.reset_token and pe.divided interrupt; leave them out, or "
                "choose another pe.origin."
            )

    def check(
        self, kind: str, encoder: Encoding, decoder: Encoding, cross: Encoding | None,
        num_heads: int,
    ) -> None:  # fmt: skip
        """Refuse settings without effect on the encodings of a model with ``pe.kind=kind``."""
        if self == PositionIds():
            return
        named = f"pe.kind={kind}"
        used = [
            each for each in (encoder, decoder, cross) if each is not None and each.uses_positions
        ]
        if not used:
            raise UserError(
                f"{named} uses no positions, so that pe.origin, pe.max_shift, pe.random_positions, "
                "pe.reset_token, pe.divided and pe.cross_divided have no effect; leave them at "
                "their defaults."
            )
        self.check_divided(kind, used, cross)
        of_source = self.origin != "start" or self.reset_token is not None
        if of_source and cross is None and not encoder.uses_positions:
            raise UserError(
                f"pe.origin={self.origin} and pe.reset_token={self.reset_token} are about the "
                f"source, whose positions are not used with this pe.where; leave them at their "
                f"defaults."
            )
        absolute = not all(each.relative for each in used)
        across = self.origin not in ("start", "abacus") and cross is None
        if not absolute and (self.max_shift or across):
            what = f"pe.origin={self.origin} does not change within one sequence"
            remedy = "pe.cross=same or pe.origin=start"
            if self.max_shift:
                what, remedy = f"pe.max_shift={self.max_shift} does not change", "pe.max_shift=0"
            raise UserError(f"{named} sees distances alone, which {what}; set {remedy}.")
        if self.origin == "continued" and absolute:
            raise UserError(
                f"pe.origin=continued is for distances, and {named} with pe.cross="
                f"{cross.kind if cross else 'none'} sees positions themselves; choose a relative "
                "encoding and pe.cross=same."
            )
        if self.origin == "both" and num_heads == 1:
            raise UserError(
                "pe.origin=both divides the heads between start and end, and model.num_heads=1 "
                "leaves one of them out; raise it, or choose pe.origin=start or end."
            )
        for each in used:
            each.check_length(self.random_positions)

    def check_divided(self, kind: str, used: list[Encoding], cross: Encoding | None) -> None:
        """Refuse divided positions that an encoding cannot take, or that nothing uses."""
        key, given, those = "divided", self.divided, used
        if self.cross_divided:
            key, given, those = "cross_divided", self.cross_divided, [cross] if cross else []
        if given and not (those and all(each.fractional for each in those)):
            able = [name for name, cls in ENCODINGS.items() if cls.fractional]
            raise UserError(
                f"pe.{key}={given:g} makes positions that are no whole numbers, and pe.kind={kind} "
                f"with pe.cross={cross.kind if cross else 'none'} cannot use them there; choose "
                f"one of {', '.join(able)}, with pe.cross=same for pe.cross_divided."
            )

    @property
    def length_decides(self) -> bool:
        """True if the ids depend only on the source's length."""
        other = self.max_shift or self.random_positions or self.divided or self.cross_divided
        return self.origin == "start" and self.reset_token is None and not other

    def reach(self, length: int) -> int:
        """The number of positions a sequence of ``length`` takes, gaps included."""
        return max(self.random_positions, length + (self.origin == "abacus") + self.max_shift)

    def longest(self, positions: int | None) -> int | None:
        """The longest sequence that ``positions`` of an encoding can serve; None: any."""
        if self.random_positions:
            return self.random_positions
        return None if positions is None else positions - self.max_shift

    def check_length(self, longest: int) -> None:
        """Raise :class:`UserError` if ``longest`` tokens do not all have a position."""
        if 0 < self.random_positions < longest:
            raise UserError(
                f"a sequence of {longest} positions does not fit "
                f"pe.random_positions={self.random_positions}; set pe.random_positions={longest} "
                f"or more."
            )

    def of_length(self, length: int, device: torch.device) -> BatchPositions:
        """Assign positions from the source's length alone."""
        if not self.length_decides:
            raise ValueError(
                "decode() needs positions=model.batch_positions(src), and encode() the same one: "
                "the positions depend on more of the source than its length"
            )
        return self(torch.ones(1, length, dtype=torch.int64, device=device), training=False)

    def draw(self, *names: int) -> Tensor | None:
        """Draw a shift ``()`` or an order ``(random_positions,)``; None if nothing is random.

        The draw follows from ``names``, as a seed and a step; without any it is torch's next one.
        """
        generator = None
        if names and (self.max_shift or self.random_positions):
            generator = torch.Generator().manual_seed(seed_for(names[0], "positions", *names[1:]))
        if self.max_shift:
            return torch.randint(self.max_shift + 1, (), generator=generator)
        if self.random_positions:
            return torch.randperm(self.random_positions, generator=generator)
        return None

    def __call__(
        self, source: Tensor, training: bool, num_heads: int = 1, drawn: Tensor | None = None
    ) -> BatchPositions:
        """Assign positions to source ids ``source (B,S)``, of which 0 is padding.

        ``drawn`` is what :meth:`draw` returned, by default a new draw. Evaluation ignores it.
        """
        device = source.device
        if self.length_decides:
            self.check_length(source.size(1))
            return BatchPositions(
                consecutive(source.size(1), device=device), partial(consecutive, device=device)
            )
        counted = self.counted(source, training, num_heads, drawn)
        if not self.divided and not self.cross_divided:
            return counted
        length = (source != PAD).sum(1).clamp(min=1)[:, None, None]  # (B,1,1)
        if self.cross_divided:
            return replace(counted, share=self.cross_divided / length)
        share = self.divided / length
        return replace(
            counted,
            source=times(counted.source, share),
            first=lambda n: times(counted.first(n), share),
        )

    def counted(
        self, source: Tensor, training: bool, num_heads: int, drawn: Tensor | None
    ) -> BatchPositions:
        """Whole positions of ``source (B,S)`` and its target."""
        device = source.device
        if not training:
            drawn = None
        elif drawn is None:
            drawn = self.draw()
        counts = {"end": from_end, "abacus": in_number}
        wanted = ["start", "end"] if self.origin == "both" else [self.origin]
        index = torch.stack(
            [counts.get(name, from_start)(source, self.reset_token) for name in wanted], dim=1
        )  # (B,1,S), or (B,2,S) for both
        shift = order = None
        if self.max_shift or self.random_positions:
            # () or (R,); in evaluation (B,)
            own = number_of(source) if drawn is None else to_device(drawn, device)
            used = (index + 1) * (source != PAD)[:, None]  # (B,1 or 2,S)
            taken = F.pad(used, (1, 0)).amax(dim=(1, 2))  # (B,); 0 for a source without ids
            if self.max_shift:
                starts = (self.max_shift + 2 - taken).clamp(min=1)  # (B,)
                shift = (own.expand(1) if training else own % starts)[:, None, None]
            else:
                order = self.ids_in_order(own, taken, training)[:, None]  # (B,1,R)

        def first(length: int) -> Positions:
            self.check_length(length)
            if order is not None:
                return Positions(order[..., :length], self.random_positions)
            if shift is None:
                return consecutive(length, device=device)
            ids = torch.arange(length, device=device)[None, None]  # (1,1,T)
            moved = shift * (ids > 0) if self.origin == "abacus" else shift
            return Positions(ids + moved, self.max_shift + length)  # (1 or B,1,T)

        # A source of digits alone has the ids 1 … S. torch 2.11 cannot compile length + bool.
        positions = first(source.size(1) + int(self.origin == "abacus"))
        if self.origin == "continued":
            return BatchPositions(positions, first, (source != PAD).sum(1)[:, None, None])
        if self.origin == "start" and self.reset_token is None:
            return BatchPositions(positions, first)
        if self.origin == "both":  # (B,2,S) -> (B,H,S): start, end, start, …
            index = index[:, torch.arange(num_heads, device=device) % 2]
        ids = positions.ids.expand(*index.shape[:2], -1).gather(2, index)  # (B,1 or H,S)
        return BatchPositions(Positions(ids, positions.end), first)

    def ids_in_order(self, own: Tensor, taken: Tensor, training: bool) -> Tensor:
        """The ids of each row's 1st, 2nd, … token, for R random positions: ``(B,R)``.

        ``own (R,)`` is a random order, or in evaluation ``(B,)`` a number for each row. The first
        ``taken (B,)`` ids of the order come first, sorted.
        """
        ids = torch.arange(self.random_positions, device=own.device)  # (R,)
        order = own[None] if training else scrambled(own[:, None] + ids).argsort(dim=1)
        chosen = order.argsort(dim=1) < taken[:, None]  # (B,R)
        last = (ids * chosen).amax(dim=1, keepdim=True)  # (B,1)
        later = torch.where(ids > last, 1, 2)
        return (ids + self.random_positions * later.masked_fill(chosen, 0)).argsort(dim=1)


def number_of(source: Tensor) -> Tensor:
    """A number for each row of ids ``source (B,S)``, which padding does not change: ``(B,)``."""
    place = torch.arange(1, source.size(1) + 1, device=source.device)
    return scrambled((source * scrambled(place)).sum(dim=1))


def scrambled(numbers: Tensor) -> Tensor:
    """Turn int64 numbers into ones that look random, in ``0 … 2^63-1``, each by itself.

    The same on every device, unlike torch's generators.
    """
    for factor in (0x3C79AC492BA7B653, 0x1C69B3F74AC4AE35):  # odd; products wrap around
        numbers = (numbers ^ (numbers >> 32)) * factor
    return (numbers ^ (numbers >> 29)) & 0x7FFFFFFFFFFFFFFF


def to_device(drawn: Tensor, device: torch.device) -> Tensor:
    """Move CPU random numbers to ``device`` without waiting for a busy GPU."""
    # Apple's GPU might read the memory after it has been freed.
    return drawn.to(device, non_blocking=device.type != "mps")


def from_start(ids: Tensor, reset_token: int | None) -> Tensor:
    """Count the tokens before each id in its part: ``(B,S)`` to ``(B,S)``."""
    place = torch.arange(ids.size(1), device=ids.device).expand_as(ids)
    if reset_token is None:
        return place
    after = (place + 1) * (ids == reset_token)  # where the next part begins
    begin = torch.cat((torch.zeros_like(after[:, :1]), after[:, :-1]), dim=1).cummax(1).values
    return place - begin


def in_number(ids: Tensor, reset_token: int | None) -> Tensor:
    """Count each digit's place in its number from 1; 0 outside: ``(B,S)``."""
    place = torch.arange(1, ids.size(1) + 1, device=ids.device).expand_as(ids)
    outside = (ids <= UNK) | (ids == reset_token)
    return place - (place * outside).cummax(1).values


def from_end(ids: Tensor, reset_token: int | None) -> Tensor:
    """Count the tokens after each id in its part; 0 for padding: ``(B,S)``."""
    place = torch.arange(ids.size(1), device=ids.device).expand_as(ids)
    last = place == (ids != PAD).sum(1, keepdim=True) - 1
    if reset_token is not None:
        last = last | (ids == reset_token)
    # Padding after the last token finds no end to its right, and counts from itself.
    end = torch.where(last, place, ids.size(1)).flip(1).cummin(1).values.flip(1)
    return torch.where(end < ids.size(1), end - place, 0)
