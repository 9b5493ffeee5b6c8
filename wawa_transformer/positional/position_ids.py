"""Position ids: the numbers that tokens get as positions, whatever the encoding.

By default source and target each count 0, 1, 2, … from their own beginning. Training may shift both
by the same random amount, or thin them out at random. The source's length is known, so the source
may also be counted from its end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from wawa_transformer.common.limits import MAX_POSITIONS, UserError, check_choice, check_number
from wawa_transformer.common.seeds import seed_for
from wawa_transformer.common.special_ids import PAD, UNK
from wawa_transformer.positional.base import Encoding, Positions, consecutive


@dataclass(frozen=True)
class BatchPositions:
    """The positions of one batch, for source and target alike."""

    source: Positions
    first: Callable[[int], Positions]  # the positions of the first n tokens of a target
    before: Tensor | None = None  # (B,1,1), source tokens that the target counts on from
    maps: list[Tensor] | None = None  # receives attention weights (B,H,Q,K), to look at them

    def target(self, offset: int, length: int) -> Positions:
        """Positions of target tokens ``offset … offset+length-1``."""
        positions = self.first(offset + length)
        ids = positions.ids[..., offset:]
        if self.before is not None:
            return Positions(ids + self.before, positions.end + self.source.end)
        start = offset if positions.consecutive else 0
        return Positions(ids, positions.end, start, positions.consecutive)

    def keep(self, rows: Tensor) -> BatchPositions:
        """The positions of the rows where ``rows (B,)`` is True."""
        source, before = self.source, self.before
        if source.ids.size(0) > 1:  # else the same for every row
            source = Positions(source.ids[rows], source.end)
        return BatchPositions(source, self.first, None if before is None else before[rows])


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
        max_shift: every training batch starts at a random position, uniform in ``0 … max_shift``,
            in source and target alike (SHAPE, Kiyono et al. 2021, section 3). Evaluation starts
            at 0.
        random_positions: in training, ids are random but keep their order: as many as the sequence
            is long, drawn from ``0 … random_positions-1`` without replacement, one draw a batch
            (Ruoss et al. 2023, section 3). The paper also draws in evaluation; here evaluation
            takes every ``stride``-th position, since a draw that depends on the length would change
            with padding, and could not be decoded step by step.
        reset_token: an id of the source after which counting starts again, as for the second of two
            numbers to add: position coupling (Cho et al. 2024, section 3), which knows the task.

    Raises:
        ValueError: a setting outside its limits, or one that another leaves without effect.
    """

    origin: str = "start"
    max_shift: int = 0
    random_positions: int = 0
    stride: int = 1
    reset_token: int | None = None

    ORIGINS: ClassVar = ("start", "end", "both", "continued", "abacus")

    def __post_init__(self) -> None:
        check_choice("pe.origin", self.origin, self.ORIGINS)
        check_number("pe.max_shift", self.max_shift, 0, MAX_POSITIONS)
        check_number("pe.random_positions", self.random_positions, 0, MAX_POSITIONS)
        check_number("pe.stride", self.stride, 1, MAX_POSITIONS)
        if self.max_shift and self.random_positions:
            raise UserError(
                f"pe.max_shift={self.max_shift} and pe.random_positions={self.random_positions} "
                "exclude each other; set one of them to 0."
            )
        if self.stride > max(1, self.random_positions):
            raise UserError(
                f"pe.stride={self.stride} must be 1 without pe.random_positions, and at most that "
                "with it."
            )

        anew = self.random_positions or self.reset_token is not None
        if self.origin == "continued" and anew:
            raise UserError(
                "pe.origin=continued counts source and target as one sequence, which "
                "pe.random_positions and pe.reset_token interrupt; leave them out, or choose "
                "another pe.origin."
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
                "pe.stride and pe.reset_token have no effect; leave them at their defaults."
            )
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
            raise UserError(
                f"{named} sees distances alone, which pe.max_shift={self.max_shift} does not "
                f"change, nor pe.origin={self.origin} within one sequence; set pe.max_shift=0, and "
                f"pe.cross=same or pe.origin=start."
            )
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

    @property
    def length_decides(self) -> bool:
        """True if in evaluation the ids depend only on the source's length."""
        return self.origin == "start" and self.reset_token is None

    def reach(self, length: int) -> int:
        """The number of positions a sequence of ``length`` takes, gaps included."""
        last = (length - (self.origin != "abacus")) * self.stride
        return max(self.random_positions, last + 1) + self.max_shift

    def longest(self, positions: int | None) -> int | None:
        """The longest sequence that ``positions`` of an encoding can serve; None: any."""
        if self.random_positions:
            return (self.random_positions - 1) // self.stride + 1
        return None if positions is None else positions - self.max_shift

    def check_length(self, longest: int) -> None:
        """Raise :class:`UserError` if ``longest`` tokens do not all have a position."""
        needed = (longest - 1) * self.stride + 1
        if self.random_positions and needed > self.random_positions:
            raise UserError(
                f"a sequence of {longest} positions does not fit "
                f"pe.random_positions={self.random_positions} with pe.stride={self.stride}; set "
                f"pe.random_positions={needed} or more."
            )

    def of_length(self, length: int, training: bool, device: torch.device) -> BatchPositions:
        """Assign positions from the source's length alone."""
        if not self.length_decides or training and (self.max_shift or self.random_positions):
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
        """Assign positions to source ids ``source (B,S)``; random in ``training``.

        ``drawn`` is what :meth:`draw` returned, by default a new draw.
        """
        device = source.device
        if not training or drawn is None:
            drawn = self.draw() if training else None
        max_shift = self.max_shift if training else 0
        shift = to_device(drawn, device) if drawn is not None and max_shift else None
        order = None if max_shift else drawn

        def first(length: int) -> Positions:
            self.check_length(length)
            if order is not None:
                drawn = order[:length].sort().values
                return Positions(to_device(drawn, device)[None, None], self.random_positions)
            if shift is None and self.stride == 1:
                return consecutive(length, device=device)
            end = max(0, (length - 1) * self.stride + 1)
            ids = torch.arange(0, end, self.stride, device=device)
            if shift is not None:
                ids = ids + (shift * (ids > 0) if self.origin == "abacus" else shift)
            return Positions(ids[None, None], max_shift + end)

        # A source of digits alone has the ids 1 … S. torch 2.11 cannot compile length + bool.
        positions = first(source.size(1) + int(self.origin == "abacus"))
        if self.length_decides:
            return BatchPositions(positions, first)
        if self.origin == "continued":
            return BatchPositions(positions, first, (source != PAD).sum(1)[:, None, None])
        counts = {"start": from_start, "end": from_end, "abacus": in_number}
        wanted = ["start", "end"] if self.origin == "both" else [self.origin]
        index = torch.stack([counts[name](source, self.reset_token) for name in wanted], dim=1)
        if self.origin == "both":  # (B,2,S) -> (B,H,S): start, end, start, …
            index = index[:, torch.arange(num_heads, device=device) % 2]
        return BatchPositions(Positions(positions.ids[0, 0][index], positions.end), first)


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
