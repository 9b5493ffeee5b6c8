"""Where positions are counted from: a question of its own, whatever encoding is made of them.

By default source and target are each counted 0, 1, 2, … from their own beginning. Training may
move both by the same random amount, or thin them out at random; and the source, whose length is
known, may be counted from its end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from wawa_transformer.common.limits import MAX_POSITIONS, check_choice, check_number
from wawa_transformer.common.special_ids import PAD
from wawa_transformer.positional.base import Encoding, Positions, SequenceTooLong, consecutive


@dataclass(frozen=True)
class BatchPositions:
    """The positions of one batch, for source and target alike."""

    source: Positions
    place: Callable[[int], Positions]  # the positions of the first n tokens of any sequence

    def target(self, offset: int, length: int) -> Positions:
        """Positions of target tokens ``offset … offset+length-1``."""
        at = self.place(offset + length)
        start = offset if at.consecutive else 0
        return Positions(at.index[..., offset:], at.end, start, at.consecutive)

    def keep(self, rows: Tensor) -> BatchPositions:
        """Of the rows where ``rows (B,)`` is True alone."""
        index = self.source.index
        if index.size(0) == 1:  # which serves every row
            return self
        return BatchPositions(Positions(index[rows], self.source.end), self.place)


@dataclass
class PositionIds:
    """How a model counts positions.

    Args:
        origin: where the source is counted from. ``end``: its last token is 0, padding left out.
            ``both``: even heads count from the start, odd ones from the end; of what is added to
            embeddings, even and odd pairs of dimensions. The target is counted from its start:
            nobody knows its end before it is written.
        target_origin: ``start``, and nothing else, for that reason.
        moved: every training batch starts at a random position, uniform in ``0 … moved``, in
            source and target alike (SHAPE, Kiyono et al. 2021, section 3). Evaluation starts at 0.
        randomized: in training, counts become random positions that keep their order: as many as
            the sequence is long, drawn from ``0 … randomized-1`` without replacement, one draw a
            batch (Ruoss et al. 2023, section 3). The paper draws in evaluation, too; here
            evaluation takes every ``stride``-th position, since a draw that depends on the length
            would change with padding, and could not be decoded step by step.
        restart: an id of the source after which counting begins anew, as for the second of two
            numbers to add: position coupling (Cho et al. 2024, section 3), which knows the task.

    Raises:
        ValueError: a setting outside its limits, or one that another leaves without effect.
    """

    origin: str = "start"
    target_origin: str = "start"
    moved: int = 0
    randomized: int = 0
    stride: int = 1
    restart: int | None = None

    ORIGINS: ClassVar = ("start", "end", "both")

    def __post_init__(self) -> None:
        check_choice("origin", self.origin, self.ORIGINS)
        if self.target_origin != "start":
            raise ValueError(
                f"pe.target_origin={self.target_origin} would need the length of a target that is "
                "still to be written; choose pe.target_origin=start, or count the source from its "
                "end with pe.origin=end"
            )
        check_number("pe.moved", self.moved, 0, MAX_POSITIONS)
        check_number("pe.randomized", self.randomized, 0, MAX_POSITIONS)
        check_number("pe.stride", self.stride, 1, MAX_POSITIONS)
        if self.moved and self.randomized:
            raise ValueError(
                f"pe.moved={self.moved} and pe.randomized={self.randomized} exclude each other; "
                "set one of them to 0"
            )
        if self.stride > max(1, self.randomized):
            raise ValueError(
                f"pe.stride={self.stride} must be 1 without pe.randomized, and at most that with it"
            )

    def check(self, encoding: Encoding, cross: Encoding | None) -> None:
        """Refuse what neither ``encoding`` nor that of cross-attention would notice."""
        if self == PositionIds():
            return
        named = f"pe.kind={encoding.kind}"
        used = [each for each in (encoding, cross) if each is not None and each.uses_positions]
        if not used:
            raise ValueError(
                f"{named} counts no positions, so that pe.origin, pe.moved, pe.randomized, "
                "pe.stride and pe.restart have nothing to act on; leave them at their defaults"
            )
        absolute = not all(each.relative for each in used)
        if self.moved and not absolute:
            raise ValueError(
                f"pe.moved={self.moved} moves all positions alike, and {named} sees nothing but "
                "their differences; set pe.moved=0"
            )
        if self.origin != "start" and not absolute and cross is None:
            raise ValueError(
                f"pe.origin={self.origin} mirrors the distances within the source, and for {named} "
                "one side is as good as the other; set pe.cross=same as well, or pe.origin=start"
            )
        if self.origin == "both" and encoding.context.num_heads == 1:
            raise ValueError(
                "pe.origin=both divides the heads between start and end, and model.num_heads=1 "
                "leaves one of them out; raise it, or choose pe.origin=start or end"
            )
        for each in used:
            each.check_length(self.randomized)

    @property
    def plain(self) -> bool:
        """Whether the source's positions follow from its length alone, once training is over."""
        return self.origin == "start" and self.restart is None

    def reach(self, length: int) -> int:
        """How many positions a sequence of ``length`` takes, gaps included."""
        return max(self.randomized, (length - 1) * self.stride + 1) + self.moved

    def longest(self, positions: int | None) -> int | None:
        """The longest sequence that ``positions`` of an encoding can serve; None: any."""
        if self.randomized:
            return (self.randomized - 1) // self.stride + 1
        return None if positions is None else positions - self.moved

    def check_length(self, longest: int) -> None:
        """Raise :class:`SequenceTooLong` where ``longest`` tokens have no position."""
        needed = (longest - 1) * self.stride + 1
        if self.randomized and needed > self.randomized:
            raise SequenceTooLong(
                f"a sequence of {longest} positions does not fit pe.randomized={self.randomized} "
                f"with pe.stride={self.stride}; set pe.randomized={needed} or more"
            )

    def of_length(self, length: int, training: bool, device: torch.device) -> BatchPositions:
        """The positions where the source's length is all that is known of it."""
        if not self.plain or training and (self.moved or self.randomized):
            raise ValueError(
                "decode() needs count=model.count(src), and encode() the same one: the positions "
                "depend on more of the source than its length"
            )
        return self(torch.ones(1, length, dtype=torch.int64, device=device), training=False)

    def __call__(self, source: Tensor, training: bool, num_heads: int = 1) -> BatchPositions:
        """The positions for source ids ``source (B,S)``; draws what training draws."""
        device = source.device
        moved = self.moved if training else 0
        shift = to_device(torch.randint(moved + 1, ()), device) if moved else None
        order = torch.randperm(self.randomized) if training and self.randomized else None

        def place(length: int) -> Positions:
            self.check_length(length)
            if order is not None:
                drawn = order[:length].sort().values
                return Positions(to_device(drawn, device)[None, None], self.randomized)
            if shift is None and self.stride == 1:
                return consecutive(length, device=device)
            end = (length - 1) * self.stride + 1
            index = torch.arange(0, end, self.stride, device=device)
            index = index if shift is None else index + shift
            return Positions(index[None, None], moved + end)

        at = place(source.size(1))
        if self.plain:
            return BatchPositions(at, place)
        counts = {"start": from_start, "end": from_end}
        wanted = ["start", "end"] if self.origin == "both" else [self.origin]
        index = torch.stack([counts[name](source, self.restart) for name in wanted], dim=1)
        if self.origin == "both":  # (B,2,S) -> (B,H,S): start, end, start, …
            index = index[:, torch.arange(num_heads, device=device) % 2]
        return BatchPositions(Positions(at.index[0, 0][index], at.end), place)


def to_device(drawn: Tensor, device: torch.device) -> Tensor:
    """What a CPU has drawn, on ``device``; a GPU that is still at work is not waited for."""
    return drawn.to(device, non_blocking=device.type != "mps")  # which might read it too late


def from_start(ids: Tensor, restart: int | None) -> Tensor:
    """How many tokens stand before each of ``ids (B,S)`` in its part: ``(B,S)``."""
    place = torch.arange(ids.size(1), device=ids.device).expand_as(ids)
    if restart is None:
        return place
    after = (place + 1) * (ids == restart)  # where the next part begins
    begin = torch.cat((torch.zeros_like(after[:, :1]), after[:, :-1]), dim=1).cummax(1).values
    return place - begin


def from_end(ids: Tensor, restart: int | None) -> Tensor:
    """How many tokens stand behind each of ``ids (B,S)`` in its part: ``(B,S)``; 0 for padding."""
    place = torch.arange(ids.size(1), device=ids.device).expand_as(ids)
    last = place == (ids != PAD).sum(1, keepdim=True) - 1
    if restart is not None:
        last = last | (ids == restart)
    # Padding behind the last token finds none to its right, and stays with itself.
    end = torch.where(last, place, ids.size(1)).flip(1).cummin(1).values.flip(1)
    return torch.where(end < ids.size(1), end - place, 0)
