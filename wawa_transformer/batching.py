"""Batches: pairs of id sequences, cut to a budget of tokens, in an order that a seed decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from datasets import Dataset
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from wawa_transformer.config import UserError
from wawa_transformer.seeds import seed_for
from wawa_transformer.transformer import BOS, EOS, PAD


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

    def to(self, device: torch.device) -> Batch:
        """The same batch on ``device``."""
        return Batch(*(t.to(device) for t in (self.source, self.target_in, self.target_out)))


@dataclass(frozen=True)
class Examples:
    """A split as ids: ``source[i]`` ends on EOS, ``target[i]`` stands between BOS and EOS."""

    source: list[Tensor]
    target: list[Tensor]
    length: list[int]

    def first(self, count: int) -> Examples:
        """The first ``count`` of them."""
        return Examples(self.source[:count], self.target[:count], self.length[:count])

    @property
    def sizes(self) -> list[int]:
        """Positions each example takes on its longer side."""
        return [max(len(s), len(t) - 1) for s, t in zip(self.source, self.target, strict=True)]


def encode(split: Dataset, tokenizer: Tokenizer, max_tokens: int | None = None) -> Examples:
    """Turn text into ids, once; pairs longer than ``max_tokens`` on either side are left out."""
    columns = split[:]  # whole columns at once: iterating over one reads it row by row
    sources = tokenizer.encode_batch(columns["source"])
    targets = tokenizer.encode_batch(columns["target"])
    examples = Examples([], [], [])
    for source, target, length in zip(sources, targets, columns["length"], strict=True):
        if max_tokens is None or max(len(source.ids), len(target.ids)) < max_tokens:
            examples.source.append(torch.tensor([*source.ids, EOS]))
            examples.target.append(torch.tensor([BOS, *target.ids, EOS]))
            examples.length.append(length)
    if not examples.source:
        raise UserError(f"no pair is shorter than task.max_tokens={max_tokens}; raise it.")
    return examples


def plan(
    sizes: Sequence[int], batch_tokens: int, seed: int, epoch: int, bucket: bool
) -> list[list[int]]:
    """The batches of one epoch, as indices: a pure function of its arguments.

    Each batch holds at most ``batch_tokens`` padded positions: rows × the longest of them. With
    ``bucket`` examples of similar size share a batch, and the batches are shuffled: unshuffled,
    every epoch would run from short sentences to long ones.
    """
    longest = max(sizes)
    if longest > batch_tokens:
        raise UserError(
            f"a sequence of {longest} positions does not fit trainer.batch_tokens={batch_tokens}; "
            f"set trainer.batch_tokens={longest} or more."
        )
    random = np.random.default_rng(seed_for(seed, "order", epoch))
    order = random.permutation(len(sizes))
    if bucket:
        order = order[np.argsort(np.asarray(sizes)[order], kind="stable")]
    batches: list[list[int]] = [[]]
    widest = 0
    for index in order.tolist():
        widest = max(widest, sizes[index])
        if (len(batches[-1]) + 1) * widest > batch_tokens:
            batches.append([])
            widest = sizes[index]
        batches[-1].append(index)
    if bucket:
        batches = [batches[i] for i in random.permutation(len(batches))]
    return batches


def collate(examples: Examples, indices: Sequence[int]) -> Batch:
    """The examples of ``indices``, padded to their longest: ``(B,S)``, ``(B,T)``, ``(B,T)``."""
    target = [examples.target[i] for i in indices]
    return Batch(
        source=pad_sequence([examples.source[i] for i in indices], batch_first=True),
        target_in=pad_sequence([ids[:-1] for ids in target], batch_first=True),
        target_out=pad_sequence([ids[1:] for ids in target], batch_first=True),
    )
