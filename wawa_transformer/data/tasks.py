"""Tasks: parallel text made from a seed, and what theory says of it.

A task gives a ``datasets.DatasetDict`` of ``source`` and ``target`` text with train, validation and
test splits; everything after it is the same for toy sequences and for translation.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import datasets
import numpy as np
from datasets import Dataset, DatasetDict
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

from wawa_transformer.common.schema import UserError, check, setting
from wawa_transformer.common.seeds import seed_for
from wawa_transformer.common.special_ids import UNK

SPECIAL_TOKENS = ["[PAD]", "[BOS]", "[EOS]", "[UNK]"]
TASKS: dict[str, type[Task]] = {}
MOST_SYMBOLS = 10**8  # of all generated examples: some ten gigabytes

datasets.disable_progress_bars()


@dataclass
class Task:
    """The interface of every task; its fields are its configuration."""

    kind: str = ""
    name: str = ""

    def __init_subclass__(cls, kind: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if kind is not None:
            TASKS[kind] = cls

    translates: ClassVar[bool] = False  # whether a test is read as translations, by BLEU
    from_seed: ClassVar[bool] = False  # whether settings and seed alone decide the data

    def __post_init__(self) -> None:
        """Every limit of the settings, and every rule between them, before anything is made."""
        check(type(self), self, "task.")

    @property
    def longest_pair(self) -> int | None:
        """Ids that either side of a training pair may have; None: any number."""
        return None

    @property
    def trained_lengths(self) -> tuple[int, int] | None:
        """The shortest and longest length in the training split; None: lengths are bins of text."""
        return None

    def dataset(self, seed: int) -> DatasetDict:
        """Train, validation and test: columns ``source``, ``target`` (text), ``length`` (int)."""
        raise NotImplementedError

    def test(self, seed: int) -> DatasetDict:
        """The test, for a model that is trained; other splits where they cost nothing more."""
        return self.dataset(seed)

    def tokenizer(self, data: DatasetDict) -> Tokenizer:
        """One tokenizer for both sides, the special tokens at ids 0 to 3."""
        raise NotImplementedError

    def fingerprint(self) -> str | None:
        """What tells the task's files from others of the same names; None without files."""
        return None

    def ceiling(self, length: int, trained: Iterable[str] = ()) -> float | None:
        """The best exact match without positions at ``length``; None where theory gives none.

        It is an expectation over sources that are not among the ``trained`` ones of this length.
        """
        return None


@dataclass
class GeneratedTask(Task):
    """Examples drawn at random, one length at a time.

    Lengths are uniform in ``min_length … max_length`` for training and validation; the test split
    holds ``test_per_length`` examples of each length up to ``test_max_length``.
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
        symbols = (self.train_size + self.validation_size) * self.size(self.max_length)
        longest = self.test_max_length
        symbols += self.test_per_length * longest * self.size(longest) // 2
        if symbols > MOST_SYMBOLS:
            raise UserError(
                f"task.train_size={self.train_size}, task.max_length={self.max_length}, "
                f"task.test_per_length={self.test_per_length} and "
                f"task.test_max_length={self.test_max_length} make up to {symbols:,} symbols, and "
                f"at most {MOST_SYMBOLS:,} are made in memory; lower one."
            )
        for key, least in (("max_length", self.min_length), ("test_max_length", self.max_length)):
            if getattr(self, key) < least:
                raise UserError(f"task.{key}={getattr(self, key)} must be at least {least}.")

    def size(self, length: int) -> int:
        """About how many symbols an example up to ``length`` has, for the limit of memory."""
        return length

    def example(self, length: int, random: np.random.Generator) -> tuple[list[str], list[str]]:
        """The words of one source and of its target."""
        raise NotImplementedError

    def vocabulary(self) -> Iterable[str]:
        """Every word that a source or a target can hold."""
        raise NotImplementedError

    @property
    def trained_lengths(self) -> tuple[int, int]:
        return self.min_length, self.max_length

    def dataset(self, seed: int) -> DatasetDict:
        names = ("train", "validation", "test")
        return DatasetDict({name: self.split(name, seed) for name in names})

    def test(self, seed: int) -> DatasetDict:
        return DatasetDict({"test": self.split("test", seed)})

    def split(self, name: str, seed: int) -> Dataset:
        """One of the three, which know nothing of each other."""
        random = np.random.default_rng(seed_for(seed, "data", name))
        if name == "test":
            every_length = np.arange(self.min_length, self.test_max_length + 1)
            lengths = np.repeat(every_length, self.test_per_length)
        else:
            size = self.train_size if name == "train" else self.validation_size
            lengths = random.integers(self.min_length, self.max_length + 1, size=size)
        pairs = (self.example(length, random) for length in lengths.tolist())
        return parallel(pairs, lengths.tolist())

    def tokenizer(self, data: DatasetDict) -> Tokenizer:
        return word_tokenizer(self.vocabulary())


@dataclass
class SequenceTask(GeneratedTask):
    """Sequences of ``symbols`` numbers, independent and uniform, and a rule for the target."""

    symbols: int = setting(10, least=2, most=10**5)

    order_matters: ClassVar[bool] = True

    def target(self, symbols: list[int]) -> list[str]:
        """The right answer to a sequence of numbers from 1 to ``self.symbols``."""
        raise NotImplementedError

    def example(self, length: int, random: np.random.Generator) -> tuple[list[str], list[str]]:
        sequence = random.integers(1, self.symbols + 1, size=length).tolist()
        return list(map(str, sequence)), self.target(sequence)

    def vocabulary(self) -> Iterable[str]:
        numbers = range(1, self.symbols + 1)
        return [*map(str, numbers), *(word for n in numbers for word in self.target([n]))]

    def ceiling(self, length: int, trained: Iterable[str] = ()) -> float | None:
        """``C(n+V-1, n) / V^n`` where order decides the answer, 1 where it does not.

        Without positions the encoder is permutation-equivariant and the decoder sees its output
        as a set, so all orderings of one multiset of symbols get the same answer, which is right
        for one of them: the number of multisets over the number of sequences. Sequences that were
        ``trained`` on leave both: see :func:`order_blind_ceiling`.
        """
        if not self.order_matters:
            return 1.0
        right, new = order_blind_ceiling(
            self.symbols, [length], ([source.split()] for source in trained)
        )
        return right / new if new else None


@dataclass
class Letters(SequenceTask, kind="letters"):
    """Numbers to letters: 1 → A, 2 → B, …, 26 → Z, 27 → AA."""

    def target(self, symbols: list[int]) -> list[str]:
        return [letters(n) for n in symbols]


@dataclass
class Copy(SequenceTask, kind="copy"):
    """The source itself."""

    def target(self, symbols: list[int]) -> list[str]:
        return list(map(str, symbols))


@dataclass
class Duplicate(SequenceTask, kind="duplicate"):
    """The source twice (Ontañón et al. 2022, arXiv 2108.04378)."""

    def target(self, symbols: list[int]) -> list[str]:
        return list(map(str, 2 * symbols))


@dataclass
class Reverse(SequenceTask, kind="reverse"):
    """The source from its end to its beginning."""

    def target(self, symbols: list[int]) -> list[str]:
        return list(map(str, reversed(symbols)))


@dataclass
class Sort(SequenceTask, kind="sort"):
    """The source in ascending order: the control, since the order of the source does not matter."""

    order_matters: ClassVar[bool] = False

    def target(self, symbols: list[int]) -> list[str]:
        return list(map(str, sorted(symbols)))


@dataclass
class CumulativeSum(SequenceTask, kind="cumsum"):
    """The running sum modulo ``symbols``, one number for each of the source.

    A sequence follows from its running sums, so the ceiling is that of any bijection.
    """

    def target(self, symbols: list[int]) -> list[str]:
        return [str(total % self.symbols) for total in itertools.accumulate(symbols)]


@dataclass
class Nth(SequenceTask, kind="nth"):
    """The number at a place that the source names first: ``2 : 7 4 9`` → ``4``."""

    def example(self, length: int, random: np.random.Generator) -> tuple[list[str], list[str]]:
        sequence = random.integers(1, self.symbols + 1, size=length).tolist()
        place = int(random.integers(1, length + 1))
        return [*str(place), ":", *map(str, sequence)], [str(sequence[place - 1])]

    def vocabulary(self) -> Iterable[str]:
        return [*map(str, range(max(10, self.symbols + 1))), ":"]

    def ceiling(self, length: int, trained: Iterable[str] = ()) -> float | None:
        return None


@dataclass
class Addition(GeneratedTask, kind="addition"):
    """Two numbers of ``length`` digits to the ``length + 1`` digits of their sum.

    ``3 4 + 0 8`` → ``0 4 2``. With ``reversed_digits`` each number is written from its ones on, so
    that every digit of the sum follows from digits already read (Lee et al. 2023). With a ``width``
    all three have that many digits, zeros in front, so that each power of ten has a place of its
    own (Ontañón et al. 2022: 12).
    """

    reversed_digits: bool = False
    width: int = setting(0, least=0, most=10_000)

    def __post_init__(self) -> None:
        super().__post_init__()
        if 0 < self.width <= self.test_max_length:
            raise UserError(
                f"task.width={self.width} has no room for the sum of numbers of "
                f"task.test_max_length={self.test_max_length} digits; set it to 0 or to "
                f"{self.test_max_length + 1} or more."
            )

    def example(self, length: int, random: np.random.Generator) -> tuple[list[str], list[str]]:
        first, second = ("".join(map(str, random.integers(10, size=length))) for _ in range(2))
        total = str(int(first) + int(second)).zfill(self.width or length + 1)
        first, second = first.zfill(self.width), second.zfill(self.width)
        step = -1 if self.reversed_digits else 1
        return [*first[::step], "+", *second[::step]], list(total[::step])

    def vocabulary(self) -> Iterable[str]:
        return [*map(str, range(10)), "+"]


@dataclass
class TwoLists(GeneratedTask):
    """Two lists and what they make together, as in Ontañón et al. 2022 (arXiv 2108.04378).

    ``length`` counts the first list. The second has a length of its own, uniform over the trained
    lengths where ``length`` is one of them and over the longer ones where it is not: the mean over
    either part of the test is then the paper's, which draws both lengths from one range.
    """

    symbols: int = setting(10, least=2, most=10**5)

    def second_lengths(self, length: int) -> range:
        """The lengths that the second list may have beside a first one of ``length``."""
        if length <= self.max_length:
            return range(self.min_length, self.max_length + 1)
        return range(self.max_length + 1, self.test_max_length + 1)


@dataclass
class Cartesian(TwoLists, kind="cartesian"):
    """All pairs of a number and a letter: ``1 2 ; B A`` → ``1 B ; 1 A ; 2 B ; 2 A ;``.

    Numbers and letters are independent and uniform over ``symbols`` of each, and may repeat. The
    target has three words for each pair.
    """

    def size(self, length: int) -> int:
        return 3 * length**2

    def example(self, length: int, random: np.random.Generator) -> tuple[list[str], list[str]]:
        second = int(random.choice(self.second_lengths(length)))
        drawn = [random.integers(1, self.symbols + 1, size=n).tolist() for n in (length, second)]
        numbers, names = list(map(str, drawn[0])), list(map(letters, drawn[1]))
        pairs = itertools.product(numbers, names)
        return [*numbers, ";", *names], [word for pair in pairs for word in (*pair, ";")]

    def vocabulary(self) -> Iterable[str]:
        numbers = range(1, self.symbols + 1)
        return [*map(str, numbers), *map(letters, numbers), ";"]

    def ceiling(self, length: int, trained: Iterable[str] = ()) -> float | None:
        """``C(n+V-1, n) / V^n`` of either list, multiplied; the mean over the second's lengths.

        A number is not a letter, so both multisets are known without positions. The target tells
        both orders, so one answer for each pair of multisets is right for one pair of lists.
        """
        lists = [[part.split() for part in source.split(";")] for source in trained]
        right, new = zip(
            *(
                order_blind_ceiling(
                    self.symbols, [length, n], (pair for pair in lists if len(pair[1]) == n)
                )
                for n in self.second_lengths(length)
            ),
            strict=True,
        )
        return math.fsum(right) / math.fsum(new) if any(new) else None


@dataclass
class Intersection(TwoLists, kind="intersection"):
    """Whether two lists share a number: ``7 4 ; 9 7 2`` → ``true``.

    No list holds a number twice. A fair coin decides whether an example is to be ``true``, so that
    guessing is right half the time. For ``false`` the lists have nothing in common and are
    otherwise uniform; for ``true`` each is uniform, and where they share nothing a number of the
    first replaces one of the second. In the paper true and false alternate, and its first list is
    shorter by the numbers that were drawn again.
    """

    symbols: int = setting(100, least=2, most=10**5)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.symbols < 2 * self.test_max_length:
            raise UserError(
                f"task.symbols={self.symbols} must be at least {2 * self.test_max_length}, for two "
                f"lists of up to task.test_max_length={self.test_max_length} that share nothing."
            )

    def example(self, length: int, random: np.random.Generator) -> tuple[list[str], list[str]]:
        both = length + int(random.choice(self.second_lengths(length)))
        apart = random.choice(self.symbols, both, replace=False) + 1
        first, second = apart[:length], apart[length:]
        shares = bool(random.integers(2))
        if shares:
            second = random.choice(self.symbols, both - length, replace=False) + 1
            if not set(first) & set(second):
                second[random.integers(len(second))] = random.choice(first)
        return [*map(str, first), ";", *map(str, second)], [str(shares).lower()]

    def vocabulary(self) -> Iterable[str]:
        return [*map(str, range(1, self.symbols + 1)), ";", "true", "false"]

    def ceiling(self, length: int, trained: Iterable[str] = ()) -> float | None:
        """1: a number that both lists hold is the one that the source holds twice."""
        return 1.0


@dataclass
class NumberWords(GeneratedTask, kind="number_words"):
    """English number words to digits: ``three hundred and forty two`` → ``3 4 2``.

    ``length`` counts digits; the words are num2words'.
    """

    # num2words has names up to 10^306.
    max_length: int = setting(6, least=1, most=300)
    test_max_length: int = setting(9, least=1, most=300)

    def example(self, length: int, random: np.random.Generator) -> tuple[list[str], list[str]]:
        number = int(random.integers(1, 10)) if length > 1 else int(random.integers(10))
        for digit in random.integers(10, size=length - 1).tolist():
            number = 10 * number + digit
        return number_words(number), list(str(number))

    def vocabulary(self) -> Iterable[str]:
        powers = (10**exponent for exponent in range(2, self.test_max_length))
        names = [word for n in (*range(100), *powers, 101) for word in number_words(n)]
        return [*map(str, range(10)), *names]


def order_blind_ceiling(
    symbols: int, sizes: Sequence[int], trained: Iterable[Sequence[Sequence[str]]]
) -> tuple[float, float]:
    """Of all lists of ``symbols`` in these ``sizes``: how many can be right, and how many are new.

    Whoever cannot see positions answers each multiset (with several lists: one of each) with one
    order. That order is right for one source, which counts if it was not ``trained`` on. So the
    best answers every multiset with an order that is new, while there is one: right is the number
    of multisets of which an order is left, new the number of sources that are left, both over all
    sources, V^n. With nothing trained on this is ``C(n+V-1, n) / V^n`` and 1.

    Returns:
        ``(right, new)``; right / new is the expected exact match on a new source drawn uniformly.
    """
    known = {tuple(map(tuple, lists)) for lists in trained}
    seen = Counter(tuple(tuple(sorted(one)) for one in lists) for lists in known)
    used_up = sum(count == math.prod(map(orders, lists)) for lists, count in seen.items())
    multisets = math.prod(math.comb(n + symbols - 1, n) for n in sizes)
    sources = symbols ** sum(sizes)
    return (multisets - used_up) / sources, (sources - len(known)) / sources


def orders(multiset: Sequence[str]) -> int:
    """In how many orders its elements can stand: n! over the product of the repetitions'."""
    repeated = map(math.factorial, Counter(multiset).values())
    return math.factorial(len(multiset)) // math.prod(repeated)


def number_words(number: int) -> list[str]:
    """The English words of a number, without hyphens and commas."""
    from num2words import num2words  # the other tasks do without it

    return num2words(number).replace("-", " ").replace(",", "").split()


def parallel(pairs: Iterable[tuple[list[str], list[str]]], lengths: list[int]) -> Dataset:
    """A split of parallel text from the words of its pairs."""
    sources, targets = zip(*pairs, strict=True)
    return Dataset.from_dict(
        {
            "source": [" ".join(words) for words in sources],
            "target": [" ".join(words) for words in targets],
            "length": lengths,
        }
    )


def word_tokenizer(words: Iterable[str]) -> Tokenizer:
    """One id for each word, after those of the special tokens."""
    vocabulary = {word: i for i, word in enumerate(dict.fromkeys([*SPECIAL_TOKENS, *words]))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=SPECIAL_TOKENS[UNK]))
    # A word that spells a special token is text like any other, here an unknown word.
    spelled = Regex("|".join(re.escape(token) for token in SPECIAL_TOKENS))
    tokenizer.normalizer = normalizers.Replace(spelled, SPECIAL_TOKENS[UNK])
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(SPECIAL_TOKENS)
    tokenizer.encode_special_tokens = True
    return tokenizer


def letters(number: int) -> str:
    """A, B, …, Z, AA, AB, … for 1, 2, …, 26, 27, 28, …, as a spreadsheet names its columns."""
    name = ""
    while number:
        number, digit = divmod(number - 1, 26)
        name = chr(ord("A") + digit) + name
    return name
