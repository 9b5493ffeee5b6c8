"""Batches: pairs of id sequences, cut to a budget of tokens, in an order that a seed decides."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from datasets import Dataset
from torch import Tensor

from wawa_transformer.common.schema import UserError
from wawa_transformer.common.seeds import seed_for
from wawa_transformer.common.special_ids import PAD
from wawa_transformer.data import corpus

WINDOW = 2**20  # examples of an epoch that are sorted and cut into batches at a time


@dataclass(frozen=True)
class Batch:
    """What the model reads and what it should answer; int64, padded with 0 on the right."""

    source: Tensor  # (B,S)
    target_in: Tensor  # (B,T): BOS and the target
    target_out: Tensor  # (B,T): the target and EOS

    @property
    def target_tokens(self) -> int:
        """Real target tokens, padding left out."""
        return int((self.target_out != PAD).sum())

    def part(self, rank: int, world: int) -> Batch:
        """Every ``world``-th row from ``rank`` on; where there is none, one with nothing to say."""
        if world == 1:
            return self
        rows = slice(rank, None, world)
        if rank < len(self.source):
            return Batch(self.source[rows], self.target_in[rows], self.target_out[rows])
        return Batch(self.source[:1], self.target_in[:1], torch.full_like(self.target_out[:1], PAD))

    def filled(self, rows: int) -> Batch:
        """With as many ``rows``; those that are added have nothing to say."""
        more = rows - len(self.source)
        source, target_in = (
            torch.cat((t, t[:1].expand(more, -1))) for t in (self.source, self.target_in)
        )
        return Batch(source, target_in, F.pad(self.target_out, (0, 0, 0, more), value=PAD))

    def to(self, device: torch.device) -> Batch:
        """The same batch on ``device``; to a GPU it goes while that is still at work."""
        every = (self.source, self.target_in, self.target_out)
        if device.type == "cuda":
            return Batch(*(t.pin_memory().to(device, non_blocking=True) for t in every))
        return Batch(*(t.to(device) for t in every))


@dataclass(frozen=True)
class RaggedSequences:
    """Many sequences of ids in one array, on disk or not; item i is the i-th, int64 ``(S,)``."""

    ids: np.ndarray  # of all, end to end
    sizes: np.ndarray  # (N,)
    begin: np.ndarray  # (N,): where each begins

    @classmethod
    def of(cls, sequences: Iterable[Sequence[int]]) -> RaggedSequences:
        """From lists."""
        ids, sizes = corpus.end_to_end(sequences)
        return cls(ids, sizes, corpus.begins(sizes))

    def __len__(self) -> int:
        return len(self.sizes)

    def chosen(self, rows: np.ndarray) -> RaggedSequences:
        """Those of ``rows`` alone."""
        return RaggedSequences(self.ids, self.sizes[rows], self.begin[rows])

    def __getitem__(self, i: int) -> Tensor:
        ids = self.ids[self.begin[i] : self.begin[i] + self.sizes[i]]
        return torch.from_numpy(ids.astype(np.int64))

    def padded(
        self, rows: Sequence[int], first: int = 0, last: int = 0, width: int | None = None
    ) -> Tensor:
        """Those of ``rows`` without their ``first`` and ``last`` ids, padded: int64 ``(B,S)``.

        S is the longest, unless a ``width`` is given.
        """
        begin, size = self.begin[rows][:, None] + first, self.sizes[rows][:, None] - first - last
        place = np.arange(size.max() if width is None else width)
        real = place < size  # (B,S)
        out = np.full(real.shape, PAD, np.int64)
        out[real] = self.ids[(begin + place)[real]]
        return torch.from_numpy(out)


@dataclass(frozen=True)
class Examples:
    """A split as ids: ``source[i]`` ends on EOS, ``target[i]`` stands between BOS and EOS."""

    source: RaggedSequences
    target: RaggedSequences
    text: Dataset  # what the ids were made of: columns source, target, length

    @functools.cached_property
    def length(self) -> list[int]:
        """The length of each, as its task counts it."""
        return self.text["length"][:]

    def first(self, count: int) -> Examples:
        """The first ``count`` of them."""
        rows = np.arange(min(count, len(self.source)))
        return Examples(self.source.chosen(rows), self.target.chosen(rows), self.text.select(rows))

    @functools.cached_property
    def sizes(self) -> np.ndarray:
        """Positions each example takes on its longer side, ``(N,)``."""
        return np.maximum(self.source.sizes, self.target.sizes - 1)


def batch_indices(
    sizes: Sequence[int] | np.ndarray, batch_tokens: int, seed: int, epoch: int, bucket: bool
) -> Iterator[list[int]]:
    """The batches of one epoch, as indices: a pure function of its arguments.

    Each batch holds at most ``batch_tokens`` padded positions: rows × the longest of them. With
    ``bucket`` examples of similar size share a batch, and the batches are shuffled: unshuffled,
    every epoch would run from short sentences to long ones. Both happen within a window of the
    shuffled epoch, so that what is in memory does not grow with it.
    """
    widths = np.asarray(sizes)
    longest = widths.max()
    if longest > batch_tokens:
        raise UserError(
            f"a sequence of {longest} positions does not fit trainer.batch_tokens={batch_tokens}; "
            f"set trainer.batch_tokens={longest} or more."
        )
    random = np.random.default_rng(seed_for(seed, "order", epoch))
    order = random.permutation(len(widths))
    for first in range(0, len(order), WINDOW):
        window = order[first : first + WINDOW]
        if bucket:
            window = window[np.argsort(widths[window], kind="stable")]
        begin, widest, cuts = 0, 0, []
        for place, width in enumerate(widths[window].tolist()):
            widest = max(widest, width)
            if (place + 1 - begin) * widest > batch_tokens:
                cuts.append(place)
                begin, widest = place, width
        batches = np.split(window, cuts)
        for i in random.permutation(len(batches)) if bucket else range(len(batches)):
            yield batches[i].tolist()


def collate(examples: Examples, indices: Sequence[int], width: int | None = None) -> Batch:
    """The examples of ``indices``, padded to their longest: ``(B,S)``, ``(B,T)``, ``(B,T)``.

    With a ``width`` all three are that wide.
    """
    return Batch(
        source=examples.source.padded(indices, width=width),
        target_in=examples.target.padded(indices, last=1, width=width),
        target_out=examples.target.padded(indices, first=1, width=width),
    )
