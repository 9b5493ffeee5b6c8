"""Tasks: generated parallel text, and the ceiling that theory gives.

A task makes a ``datasets.DatasetDict`` with the columns ``source`` and ``target``, and the splits
of ``SPLITS``. All later code is the same for toy sequences and translation.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import datasets
import numpy as np
from datasets import Dataset, DatasetDict
from omegaconf import DictConfig
from tokenizers import Tokenizer

from wawa_transformer.common.limits import register, setting
from wawa_transformer.common.messages import UserError
from wawa_transformer.common.schema import check, choose, typed
from wawa_transformer.common.seeds import others_kept, seed_for, seed_others
from wawa_transformer.data.words import parallel, word_tokenizer

TASKS: dict[str, type[Task]] = {}
SPLITS = ("train", "validation", "test")
MAX_SYMBOLS = 10**8  # in all generated examples: about ten gigabytes

datasets.disable_progress_bars()
# The library's cache of map() and filter() does not notice that a function has changed.
datasets.disable_caching()


@dataclass
class Task:
    """The interface of every task; its fields are its configuration."""

    kind: str = ""
    name: str = ""
    # The fingerprint of the task's files, computed before a run: another text makes another run.
    text_digest: str | None = None

    def __init_subclass__(cls, kind: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if kind is not None:
            register(TASKS, kind, cls)

    translates: ClassVar[bool] = False  # True if BLEU scores the test
    words: ClassVar[bool] = True  # True if every word is a token
    # Pairs that are left out of each split read: with a blank side, and with a word too long.
    left_out: ClassVar[dict[str, dict[str, int]]] = {}
    max_tokens: ClassVar[int | None] = None  # the most ids on either side; None: no limit
    from_seed: ClassVar[bool] = False  # True if the data depend only on settings and seed

    def __post_init__(self) -> None:
        """Check the settings."""
        check(type(self), self, "task.")

    @property
    def trained_lengths(self) -> tuple[int, int] | None:
        """The range of lengths in the training split; None for bins of text."""
        return None

    def dataset(self, seed: int) -> DatasetDict:
        """Make the three splits, with columns ``source``, ``target`` and ``length``."""
        raise lacking(self, "dataset(seed)")

    def test(self, seed: int) -> DatasetDict:
        """Make the test split for a trained model; other splits only if free."""
        return self.dataset(seed)

    def tokenizer(self, data: DatasetDict) -> Tokenizer:
        """Make one tokenizer for both sides, with special tokens at ids 0 to 3."""
        raise lacking(self, "tokenizer(data)")

    def fingerprint(self) -> str | None:
        """Hash the contents of the task's files; None without files."""
        return None

    def without_effect(self) -> set[str]:
        """Name the settings that have no effect beside the others: they make no other run."""
        return set()

    def ceiling(self, length: int, trained: Iterable[str] = ()) -> float | None:
        """The best exact match without positions at ``length``; None if unknown.

        The value is the expectation over sources of this length outside ``trained``.
        """
        return None


@dataclass
class GeneratedTask(Task):
    """A task with randomly drawn examples.

    Lengths in training and validation are uniform in ``min_length … max_length``. The test split
    has ``test_per_length`` examples of each length up to ``test_max_length``.
    """

    min_length: int = setting(1, least=1, most=10_000)
    max_length: int = setting(10, least=1, most=10_000)
    test_max_length: int = setting(20, least=1, most=10_000)
    train_size: int = setting(16000, least=1, most=10**7)
    validation_size: int = setting(500, least=1, most=10**6)
    test_per_length: int = setting(200, least=1, most=10**5)

    from_seed: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        symbols = (self.train_size + self.validation_size) * self.max_length
        symbols += self.test_per_length * self.test_max_length**2 // 2
        if symbols > MAX_SYMBOLS:
            raise UserError(
                f"task.train_size={self.train_size}, task.max_length={self.max_length}, "
                f"task.test_per_length={self.test_per_length} and "
                f"task.test_max_length={self.test_max_length} make up to {symbols:,} symbols, and "
                f"at most {MAX_SYMBOLS:,} are made in memory; lower one."
            )
        for key, least in (("max_length", self.min_length), ("test_max_length", self.max_length)):
            if getattr(self, key) < least:
                raise UserError(f"task.{key}={getattr(self, key)} must be at least {least}.")

    def draw_lengths(self, size: int, random: np.random.Generator) -> np.ndarray:
        """Draw the lengths of ``size`` examples for training: ``(size,)``."""
        return random.integers(self.min_length, self.max_length + 1, size=size)

    def example(self, length: int, random: np.random.Generator) -> tuple[list[str], list[str]]:
        """Draw the words of one source and of its target."""
        raise lacking(self, "example(length, random)")

    def vocabulary(self) -> Iterable[str]:
        """List every word of all possible sources and targets."""
        raise lacking(self, "vocabulary()")

    @property
    def trained_lengths(self) -> tuple[int, int]:
        return self.min_length, self.max_length

    def dataset(self, seed: int) -> DatasetDict:
        return DatasetDict({name: self.split(name, seed) for name in SPLITS})

    def test(self, seed: int) -> DatasetDict:
        return DatasetDict({"test": self.split("test", seed)})

    def split(self, name: str, seed: int) -> Dataset:
        """Make one split; the splits are independent."""
        random = np.random.default_rng(seed_for(seed, "data", name))
        with others_kept():
            seed_others(seed, "data", name)  # where a class draws without ``random``
            if name == "test":
                every_length = np.arange(self.min_length, self.test_max_length + 1)
                lengths = np.repeat(every_length, self.test_per_length)
            else:
                size = self.train_size if name == "train" else self.validation_size
                lengths = np.asarray(self.draw_lengths(size, random))
                self.check_lengths(lengths)
            pairs = (self.example(length, random) for length in lengths.tolist())
            return parallel(pairs, lengths.tolist(), type(self).__name__)

    def check_lengths(self, lengths: np.ndarray) -> None:
        """Refuse lengths of training that the test would call untrained."""
        for drawn in (lengths.min(), lengths.max()):
            if not self.min_length <= drawn <= self.max_length:
                raise UserError(
                    f"{type(self).__name__}.draw_lengths draws {drawn}, and a report takes lengths "
                    f"outside of task.min_length={self.min_length} and task.max_length="
                    f"{self.max_length} for untrained; draw from these, or set them."
                )

    def tokenizer(self, data: DatasetDict) -> Tokenizer:
        return word_tokenizer(self.vocabulary())


@dataclass
class SequenceTask(GeneratedTask):
    """A task on sequences of random numbers, uniform and independent.

    With ``unique`` no number occurs twice in a source.
    """

    symbols: int = setting(10, least=2, most=10**5)
    unique: bool = False

    order_matters: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.unique and self.test_max_length > self.symbols:
            raise UserError(
                f"task.unique=true draws task.test_max_length={self.test_max_length} different "
                f"symbols from task.symbols={self.symbols}; raise task.symbols."
            )

    def target(self, symbols: list[int]) -> list[str]:
        """The target for a sequence of numbers from 1 to ``self.symbols``."""
        raise lacking(self, "target(symbols)")

    def draw(self, length: int, random: np.random.Generator) -> list[int]:
        """Draw a sequence of numbers from 1 to ``self.symbols``."""
        if self.unique:
            return (random.permutation(self.symbols)[:length] + 1).tolist()
        return random.integers(1, self.symbols + 1, size=length).tolist()

    def example(self, length: int, random: np.random.Generator) -> tuple[list[str], list[str]]:
        sequence = self.draw(length, random)
        return list(map(str, sequence)), self.target(sequence)

    def vocabulary(self) -> Iterable[str]:
        numbers = range(1, self.symbols + 1)
        return [*map(str, numbers), *(word for n in numbers for word in self.target([n]))]

    def ceiling(self, length: int, trained: Iterable[str] = ()) -> float | None:
        """The ceiling of exact match without positions; 1 if order does not matter.

        Without positions the encoder is permutation-equivariant, and the decoder sees its output
        as a set. So each multiset of symbols gets one answer, which is right for one of its orders.
        The answer counts if that order was not ``trained`` on; the best model picks such an order
        if there is one. Without training sources the ceiling is ``C(n+V-1, n) / V^n``, or
        ``1 / n!`` if no symbol occurs twice.

        None if two orders of the same symbols have one target, since then more can be right, and
        where a class draws or makes its examples in another way.
        """
        if not self.order_matters:
            return 1.0
        makers = "draw", "example", "split", "dataset", "test"
        if any(getattr(type(self), name) != getattr(SequenceTask, name) for name in makers):
            return None
        if self.orders_share_targets:
            return None
        multisets = math.comb(length + self.symbols - 1, length)
        sources = self.symbols**length
        if self.unique:
            multisets, sources = math.comb(self.symbols, length), math.perm(self.symbols, length)
        known = {tuple(source.split()) for source in trained}
        seen = Counter(tuple(sorted(source)) for source in known)
        for multiset, count in seen.items():
            # Its orders: n! over the product of the repetitions' factorials.
            repeated = map(math.factorial, Counter(multiset).values())
            multisets -= count == math.factorial(length) // math.prod(repeated)
        new = sources - len(known)
        return multisets / new if new else None

    @functools.cached_property
    def orders_share_targets(self) -> bool:
        """True if two orders of the same symbols were found that have one target.

        All sources of three symbols are tried, at the shortest lengths, and drawn ones.
        """
        random, few = np.random.default_rng(0), range(1, min(3, self.symbols) + 1)
        lengths = range(self.min_length, self.test_max_length + 1)
        sources: list[Sequence[int]] = []
        for length in lengths[:5]:
            every = itertools.product(few, repeat=length)
            sources += itertools.islice(every, 500)
        for length in random.choice(lengths[:30], 200).tolist():
            drawn = self.draw(length, random)
            sources += [drawn, *(random.permutation(drawn).tolist() for _ in range(3))]
        if self.unique:
            sources = [source for source in sources if len({*source}) == len(source)]
        different = {tuple(source) for source in sources}
        answers = Counter((*sorted(source), *self.target([*source])) for source in different)
        return max(answers.values()) > 1


@dataclass
class Letters(SequenceTask, kind="letters"):
    """Replace numbers by letters: 1 → A, 26 → Z, 27 → AA."""

    def target(self, symbols: list[int]) -> list[str]:
        return [letters(n) for n in symbols]


@dataclass
class Copy(SequenceTask, kind="copy"):
    """Copy the source."""

    def target(self, symbols: list[int]) -> list[str]:
        return list(map(str, symbols))


@dataclass
class Duplicate(SequenceTask, kind="duplicate"):
    """Write the source twice (Ontañón et al. 2022, arXiv 2108.04378)."""

    def target(self, symbols: list[int]) -> list[str]:
        return list(map(str, 2 * symbols))


@dataclass
class Reverse(SequenceTask, kind="reverse"):
    """Reverse the source."""

    def target(self, symbols: list[int]) -> list[str]:
        return list(map(str, reversed(symbols)))


@dataclass
class Sort(SequenceTask, kind="sort"):
    """Sort the source: the control, since the source's order does not matter."""

    order_matters: ClassVar[bool] = False

    def target(self, symbols: list[int]) -> list[str]:
        return list(map(str, sorted(symbols)))


@dataclass
class CumulativeSum(SequenceTask, kind="cumsum"):
    """Write the running sums of the source modulo ``symbols``.

    The running sums determine the source, so the ceiling is that of any bijection.
    """

    def target(self, symbols: list[int]) -> list[str]:
        return [str(total % self.symbols) for total in itertools.accumulate(symbols)]


@dataclass
class Nth(SequenceTask, kind="nth"):
    """Write the n-th number, where the source begins with n: ``2 : 7 4 9`` → ``4``."""

    def example(self, length: int, random: np.random.Generator) -> tuple[list[str], list[str]]:
        sequence = self.draw(length, random)
        place = int(random.integers(1, length + 1))
        return [*str(place), ":", *map(str, sequence)], [str(sequence[place - 1])]

    def vocabulary(self) -> Iterable[str]:
        return [*map(str, range(max(10, self.symbols + 1))), ":"]


def lacking(task: Task, method: str) -> UserError:
    """Name the method that a class of one's own still needs."""
    return UserError(
        f"task.kind={task.kind}: {type(task).__name__} has no {method}; write this method, as the "
        f"classes in wawa_transformer/data/tasks.py do."
    )


def build_task(config: DictConfig) -> Task:
    """Build the task of a configuration, and check its settings."""
    return choose(TASKS, config.task.kind, "task.kind")(**task_settings(config))


def task_settings(config: DictConfig) -> dict[str, Any]:
    """Get the settings of a task in the types of its class."""
    return typed(choose(TASKS, config.task.kind, "task.kind"), config.task, "task", TASKS)


def letters(number: int) -> str:
    """Name a number as spreadsheets name columns: A, B, …, Z, AA, AB, …"""
    name = ""
    while number:
        number, digit = divmod(number - 1, 26)
        name = chr(ord("A") + digit) + name
    return name
