"""A task's splits as ids."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np
from datasets import Dataset
from omegaconf import DictConfig
from tokenizers import Tokenizer

from wawa_transformer.common.schema import UserError
from wawa_transformer.common.special_ids import BOS, EOS
from wawa_transformer.data import corpus
from wawa_transformer.data.batching import Examples, RaggedSequences
from wawa_transformer.data.tasks import Task
from wawa_transformer.data.text import build_task


def tokenize_split(
    split: Dataset, tokenizer: Tokenizer, max_tokens: int | None = None, name: str = "training"
) -> Examples:
    """Turn text into ids, once; pairs longer than ``max_tokens`` on either side are left out.

    How many these are is said, with the ``name`` of the split.
    """
    source = RaggedSequences(*corpus.ids_of(split, "source", tokenizer, [], [EOS]))
    target = RaggedSequences(*corpus.ids_of(split, "target", tokenizer, [BOS], [EOS]))
    rows = corpus.rows_of(split)
    if max_tokens is not None:
        fits = (source.sizes <= max_tokens) & (target.sizes <= max_tokens + 1)
        kept = np.flatnonzero(fits[rows])
        if not len(kept):
            raise UserError(
                f"no {name} pair is shorter than task.max_tokens={max_tokens}; raise it."
            )
        if left := len(rows) - len(kept):
            said = f"{left} {name} pairs of {max_tokens} tokens or more left out (task.max_tokens)"
            print(said, file=sys.stderr)
            rows, split = rows[kept], corpus.chosen(split, kept)
    return Examples(source.chosen(rows), target.chosen(rows), split)


@dataclass(frozen=True)
class Data:
    """What is learned from: the splits of a task as ids, the same whatever learns from them."""

    task: Task
    seed: int
    tokenizer: Tokenizer
    train: Examples
    validation: Examples
    test: Examples


LAST: list[Data] = []  # what this process has kept, one or none


def load_data(config: DictConfig, tokenizer: Tokenizer | None = None) -> Data:
    """The data of a run; a ``tokenizer`` comes with one that goes on.

    A study's runs differ in their encoding before they differ in their data, so what was last made
    in this process is used again where it would be the same.
    """
    task, own = build_task(config), tokenizer is None
    for data in LAST:
        if own and (data.task, data.seed) == (task, config.seed):
            return data
    LAST.clear()  # first: there need not be memory for two
    splits = task.dataset(config.seed)
    if tokenizer is None:
        tokenizer = task.tokenizer(splits)
    train, validation, test = (
        tokenize_split(splits[split], tokenizer, task.longest_pair, name)
        for split, name in (("train", "training"), ("validation", "validation"), ("test", "test"))
    )
    data = Data(task, config.seed, tokenizer, train, validation, test)
    if own and task.from_seed:
        LAST.append(data)
    return data
