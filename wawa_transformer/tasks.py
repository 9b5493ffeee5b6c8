"""Tasks: parallel text made from a seed, and what theory says of it.

A task gives a ``datasets.DatasetDict`` of ``source`` and ``target`` text with train, validation and
test splits; everything after it is the same for toy sequences and for translation.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from datasets import Dataset, DatasetDict
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

from wawa_transformer.config import UserError, seed_for

PAD, BOS, EOS, UNK = 0, 1, 2, 3
SPECIAL_TOKENS = ["[PAD]", "[BOS]", "[EOS]", "[UNK]"]
TASKS: dict[str, type[Task]] = {}


@dataclass
class Task:
    """The interface of every task; its fields are its configuration."""

    kind: str = ""
    name: str = ""

    def __init_subclass__(cls, kind: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if kind is not None:
            TASKS[kind] = cls

    @property
    def trained_lengths(self) -> tuple[int, int] | None:
        """The shortest and longest length in the training split; None: lengths are bins of text."""
        return None

    def dataset(self, seed: int) -> DatasetDict:
        """Train, validation and test: columns ``source``, ``target`` (text), ``length`` (int)."""
        raise NotImplementedError

    def tokenizer(self, data: DatasetDict) -> Tokenizer:
        """One tokenizer for both sides, the special tokens at ids 0 to 3."""
        raise NotImplementedError

    def ceiling(self, length: int) -> float | None:
        """The best exact match without positions at ``length``; None where theory gives none."""
        return None


@dataclass
class GeneratedTask(Task):
    """Random sequences of ``symbols`` numbers, and a rule that turns them into a target.

    Lengths are uniform in ``min_length … max_length`` and symbols independent and uniform; the
    test split holds ``test_per_length`` sequences of each length up to ``test_max_length``.
    """

    symbols: int = 10
    min_length: int = 1
    max_length: int = 10
    test_max_length: int = 20
    train_size: int = 16000
    validation_size: int = 500
    test_per_length: int = 200

    order_matters: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for key, least in (
            ("symbols", 2), ("min_length", 1), ("max_length", self.min_length),
            ("test_max_length", self.max_length), ("train_size", 1), ("validation_size", 1),
            ("test_per_length", 1),
        ):  # fmt: skip
            if getattr(self, key) < least:
                raise UserError(f"task.{key}={getattr(self, key)} must be at least {least}.")

    def target(self, symbols: list[int]) -> list[str]:
        """The right answer to a sequence of numbers from 1 to ``self.symbols``."""
        raise NotImplementedError

    @property
    def trained_lengths(self) -> tuple[int, int]:
        return self.min_length, self.max_length

    def dataset(self, seed: int) -> DatasetDict:
        def split(name: str, lengths: np.ndarray, random: np.random.Generator) -> Dataset:
            drawn = random.integers(1, self.symbols + 1, size=int(lengths.sum())).tolist()
            ends = np.cumsum(lengths).tolist()
            sequences = [
                drawn[end - n : end] for end, n in zip(ends, lengths.tolist(), strict=True)
            ]
            return Dataset.from_dict(
                {
                    "source": [" ".join(map(str, sequence)) for sequence in sequences],
                    "target": [" ".join(self.target(sequence)) for sequence in sequences],
                    "length": lengths.tolist(),
                }
            )

        splits = {}
        for name, size in (("train", self.train_size), ("validation", self.validation_size)):
            random = np.random.default_rng(seed_for(seed, "data", name))
            lengths = random.integers(self.min_length, self.max_length + 1, size=size)
            splits[name] = split(name, lengths, random)
        every_length = np.arange(self.min_length, self.test_max_length + 1)
        random = np.random.default_rng(seed_for(seed, "data", "test"))
        splits["test"] = split("test", np.repeat(every_length, self.test_per_length), random)
        return DatasetDict(splits)

    def tokenizer(self, data: DatasetDict) -> Tokenizer:
        numbers = range(1, self.symbols + 1)
        words = [*map(str, numbers), *(word for n in numbers for word in self.target([n]))]
        vocabulary = {word: i for i, word in enumerate(dict.fromkeys([*SPECIAL_TOKENS, *words]))}
        tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=SPECIAL_TOKENS[UNK]))
        # A word that spells a special token is text like any other, here an unknown word.
        spelled = Regex("|".join(re.escape(token) for token in SPECIAL_TOKENS))
        tokenizer.normalizer = normalizers.Replace(spelled, SPECIAL_TOKENS[UNK])
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        tokenizer.add_special_tokens(SPECIAL_TOKENS)
        tokenizer.encode_special_tokens = True
        return tokenizer

    def ceiling(self, length: int) -> float | None:
        """``C(n+V-1, n) / V^n`` where order decides the answer, 1 where it does not.

        Without positions the encoder is permutation-equivariant and the decoder sees its output
        as a set, so all orderings of one multiset of symbols get the same answer, which is right
        for one of them: the number of multisets over the number of sequences.
        """
        if not self.order_matters:
            return 1.0
        return math.comb(length + self.symbols - 1, length) / self.symbols**length


@dataclass
class Letters(GeneratedTask, kind="letters"):
    """Numbers to letters: 1 → A, 2 → B, …, 26 → Z, 27 → AA."""

    def target(self, symbols: list[int]) -> list[str]:
        return [letters(n) for n in symbols]


@dataclass
class Copy(GeneratedTask, kind="copy"):
    """The source itself."""

    def target(self, symbols: list[int]) -> list[str]:
        return list(map(str, symbols))


@dataclass
class Reverse(GeneratedTask, kind="reverse"):
    """The source from its end to its beginning."""

    def target(self, symbols: list[int]) -> list[str]:
        return list(map(str, reversed(symbols)))


@dataclass
class Sort(GeneratedTask, kind="sort"):
    """The source in ascending order: the control, since the order of the source does not matter."""

    order_matters: ClassVar[bool] = False

    def target(self, symbols: list[int]) -> list[str]:
        return list(map(str, sorted(symbols)))


def letters(number: int) -> str:
    """A, B, …, Z, AA, AB, … for 1, 2, …, 26, 27, 28, …, as a spreadsheet names its columns."""
    name = ""
    while number:
        number, digit = divmod(number - 1, 26)
        name = chr(ord("A") + digit) + name
    return name
