"""Batches of a limited number of tokens, in an order that depends on the seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from wawa_transformer.common import PAD
from wawa_transformer.common.messages import UserError
from wawa_transformer.common.seeds import seed_for
from wawa_transformer.data.load import Examples


class Batch(NamedTuple):
    """Ids of sources and targets: int64, padded with 0 on the right."""

    source: Tensor  # (B,S)
    target_in: Tensor  # (B,T): BOS and the target
    target_out: Tensor  # (B,T): the target and EOS

    @property
    def target_tokens(self) -> int:
        """The number of target tokens without padding."""
        return int((self.target_out != PAD).sum())

    def shard(self, rank: int, world_size: int) -> Batch:
        """Select this process's rows; without any, a row with a fully padded target."""
        if world_size == 1:
            return self
        rows = slice(rank, None, world_size)
        if rank < len(self.source):
            return Batch(*(each[rows] for each in self))  # also what a fork adds
        first = Batch(*(each[:1] for each in self))
        return first._replace(target_out=torch.full_like(first.target_out, PAD))

    def pad_rows(self, rows: int) -> Batch:
        """Extend the batch to ``rows`` rows; new targets are fully padded."""
        more = rows - len(self.source)
        source, target_in = (torch.cat((t, t[:1].expand(more, -1))) for t in self[:2])
        target_out = F.pad(self.target_out, (0, 0, 0, more), value=PAD)
        return self._replace(source=source, target_in=target_in, target_out=target_out)

    def to(self, device: torch.device) -> Batch:
        """Copy the batch to ``device`` without waiting for a busy GPU."""
        if device.type == "cuda":
            return Batch(*(t.pin_memory().to(device, non_blocking=True) for t in self))
        return Batch(*(t.to(device) for t in self))


def batch_indices(
    sizes: Sequence[int] | np.ndarray, batch_tokens: int, seed: int, epoch: int, bucket: bool
) -> Iterator[list[int]]:
    """Yield the batches of one epoch as lists of indices.

    Each batch holds at most ``batch_tokens`` padded positions: rows × the longest row. With
    ``bucket``, examples of similar size share a batch, and the batches are shuffled. Otherwise
    every epoch would go from short to long sentences. The same arguments give the same batches.
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
    if bucket:
        order = order[np.argsort(widths[order], kind="stable")]
    begin, widest, cuts = 0, 0, []
    for i, width in enumerate(widths[order].tolist()):
        widest = max(widest, width)
        if (i + 1 - begin) * widest > batch_tokens:
            cuts.append(i)
            begin, widest = i, width
    batches = np.split(order, cuts)
    for i in random.permutation(len(batches)) if bucket else range(len(batches)):
        yield batches[i].tolist()


def collate(examples: Examples, indices: Sequence[int], multiple: int = 1) -> Batch:
    """Build a batch; each side is padded to its longest row, rounded up."""
    return Batch(
        source=examples.source.padded(indices, multiple=multiple),
        target_in=examples.target.padded(indices, last=1, multiple=multiple),
        target_out=examples.target.padded(indices, first=1, multiple=multiple),
    )
