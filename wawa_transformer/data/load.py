"""Tokenise a task's splits and keep the ids in memory."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import tokenizers
import torch
from datasets import Dataset, Features, List, Value
from omegaconf import DictConfig
from tokenizers import Tokenizer
from torch import Tensor

from wawa_transformer.common.schema import UserError, warn
from wawa_transformer.common.special_ids import BOS, EOS, PAD
from wawa_transformer.data.tasks import Task, read_tokenizer
from wawa_transformer.data.text import build_task


@dataclass(frozen=True)
class RaggedSequences:
    """Sequences of different lengths in one array; item i is int64 ``(S,)``."""

    # Ids are copied from the memory-mapped Dataset into one array, of two bytes an id. Gathering a
    # batch of 4,096 tokens from the Dataset takes 2.3 ms, and from the array 0.2 ms (Multi30k,
    # model=small, one core). That is 0.2% of this core's step, but most of a fast GPU's.
    ids: np.ndarray  # end to end
    sizes: np.ndarray  # (N,)
    begin: np.ndarray  # (N,): the index of each first id

    @classmethod
    def of(cls, lists: pa.Array | pa.ChunkedArray | list[list[int]]) -> RaggedSequences:
        """Build from lists of ids, or from an Arrow column of them."""
        column = pa.array(lists, pa.list_(pa.int32())) if isinstance(lists, list) else lists
        ids, sizes = pc.list_flatten(column).to_numpy(), pc.list_value_length(column).to_numpy()
        return cls(ids, sizes, sizes.cumsum(dtype=np.int64) - sizes)

    def __len__(self) -> int:
        return len(self.sizes)

    def chosen(self, rows: np.ndarray) -> RaggedSequences:
        """Select the sequences of ``rows``."""
        return RaggedSequences(self.ids, self.sizes[rows], self.begin[rows])

    def __getitem__(self, i: int) -> Tensor:
        ids = self.ids[self.begin[i] : self.begin[i] + self.sizes[i]]
        return torch.from_numpy(ids.astype(np.int64))

    def padded(
        self, rows: Sequence[int], first: int = 0, last: int = 0, multiple: int = 1
    ) -> Tensor:
        """Pad the sequences of ``rows``: int64 ``(B,S)``.

        The ``first`` and ``last`` ids of each sequence are dropped. S is the longest length,
        rounded up to a ``multiple``.
        """
        begin, size = self.begin[rows][:, None] + first, self.sizes[rows][:, None] - first - last
        place = np.arange(-(-size.max() // multiple) * multiple)
        real = place < size  # (B,S)
        out = np.full(real.shape, PAD, np.int64)
        out[real] = self.ids[(begin + place)[real]]
        return torch.from_numpy(out)


@dataclass(frozen=True)
class Examples:
    """A split as ids: ``source[i]`` has EOS, ``target[i]`` has BOS and EOS."""

    source: RaggedSequences
    target: RaggedSequences
    text: Dataset  # columns source, target, length

    def first(self, count: int) -> Examples:
        """Select the first ``count`` examples."""
        rows = np.arange(min(count, len(self.source)))
        return Examples(self.source.chosen(rows), self.target.chosen(rows), self.text.select(rows))

    @functools.cached_property
    def sizes(self) -> np.ndarray:
        """The number of positions on each example's longer side, ``(N,)``."""
        return np.maximum(self.source.sizes, self.target.sizes - 1)

    def extremes(self) -> tuple[int, int, float]:
        """The longest source and target, in ids, and the largest ratio of target to source."""
        source, target = self.source.sizes, self.target.sizes - 1  # without BOS
        return int(source.max()), int(target.max()), float((target / source).max())


def to_ids(batch: dict[str, list[str]], words: str, version: str) -> dict[str, list[list[int]]]:
    """Tokenise sources and targets, and add BOS and EOS.

    ``datasets`` caches the result under the arguments: the tokenizer's JSON, and the ``version`` of
    the tokenizers library.
    """
    tokenizer = read_tokenizer(words)
    source, target = (tokenizer.encode_batch_fast(batch[side]) for side in ("source", "target"))
    return {
        "source": [[*encoding.ids, EOS] for encoding in source],
        "target": [[BOS, *encoding.ids, EOS] for encoding in target],
    }


def tokenize_split(
    split: Dataset, tokenizer: Tokenizer, max_tokens: int | None = None, name: str = "training"
) -> Examples:
    """Tokenise a split, without pairs longer than ``max_tokens`` on either side.

    Prints the number of pairs left out, and the ``name`` of the split, to standard error.
    """
    kind = Value(np.min_scalar_type(tokenizer.get_vocab_size()).name)
    ids = split.map(
        to_ids,
        batched=True,
        remove_columns=split.column_names,
        features=Features({"source": List(kind), "target": List(kind)}),
        fn_kwargs={"words": tokenizer.to_str(), "version": tokenizers.__version__},
    ).data
    source, target = (RaggedSequences.of(ids.column(side)) for side in ("source", "target"))
    if max_tokens is not None:
        fits = (source.sizes <= max_tokens) & (target.sizes <= max_tokens + 1)
        kept = np.flatnonzero(fits)
        if not len(kept):
            raise UserError(
                f"no {name} pair is shorter than task.max_tokens={max_tokens}; raise it."
            )
        if left := len(fits) - len(kept):
            warn(f"{left} {name} pairs of {max_tokens} tokens or more left out (task.max_tokens)")
            return Examples(source.chosen(kept), target.chosen(kept), split.select(kept))
    return Examples(source, target, split)


@dataclass(frozen=True)
class Data:
    """A task's splits as ids; every encoding gets the same."""

    task: Task
    seed: int
    tokenizer: Tokenizer
    train: Examples
    validation: Examples
    test: Examples


# Holds the data that this process loaded last, or is empty.
LAST: list[Data] = []


def load_data(config: DictConfig, tokenizer: Tokenizer | None = None) -> Data:
    """Load the data of a run; a resumed run brings its ``tokenizer``.

    Consecutive runs of a study often differ only in their encoding. So the data loaded last is
    reused if task and seed are the same.
    """
    task, own = build_task(config), tokenizer is None
    for data in LAST:
        if own and (data.task, data.seed) == (task, config.seed):
            return data
    LAST.clear()  # before loading: memory may not hold two copies
    splits = task.dataset(config.seed)
    if tokenizer is None:
        tokenizer = task.tokenizer(splits)
    train, validation, test = (
        tokenize_split(splits[split], tokenizer, task.max_tokens, name)
        for split, name in (("train", "training"), ("validation", "validation"), ("test", "test"))
    )
    data = Data(task, config.seed, tokenizer, train, validation, test)
    if own and task.from_seed:
        LAST.append(data)
    return data
