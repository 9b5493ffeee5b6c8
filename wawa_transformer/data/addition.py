"""Addition: the tasks on numbers that are written as their digits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from wawa_transformer.common.limits import setting
from wawa_transformer.common.messages import UserError
from wawa_transformer.data.tasks import GeneratedTask


@dataclass
class Digits(GeneratedTask):
    """A task on numbers, each written as its digits.

    With ``reversed_digits`` every number begins with its ones, so that each digit of a sum depends
    only on digits already read (Lee et al. 2023).
    """

    # Python writes numbers of at most 4,300 digits, and a sum has one more.
    test_max_length: int = setting(20, least=1, most=4299)
    reversed_digits: bool = False

    def written(self, first: str, second: str, total: str) -> tuple[list[str], list[str]]:
        """Write a sum as the words of its source and its target."""
        step = -1 if self.reversed_digits else 1
        return [*first[::step], "+", *second[::step]], list(total[::step])

    def vocabulary(self) -> Iterable[str]:
        return [*map(str, range(10)), "+"]


@dataclass
class Addition(Digits, kind="addition"):
    """Add two numbers of ``length`` digits; the sum has ``length + 1``.

    Example: ``3 4 + 0 8`` → ``0 4 2``. Zeros fill numbers up to these lengths. With a ``width`` all
    three numbers are padded to that many digits with zeros, so that each power of ten has a fixed
    place (Ontañón et al. 2022: 12).
    """

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
        return self.written(first.zfill(self.width), second.zfill(self.width), total)


@dataclass
class UnevenAddition(Digits, kind="addition_uneven"):
    """Add two numbers whose lengths are independent; no number begins with a zero.

    Both lengths are uniform in ``min_length … max_length``, and ``length`` is the longer one's. A
    test has the same two lengths for a given longer one. Example: ``9 7 + 8`` → ``1 0 5``.
    """

    def draw_lengths(self, size: int, random: np.random.Generator) -> np.ndarray:
        both = random.integers(self.min_length, self.max_length + 1, size=(2, size))
        return both.max(axis=0)

    def example(self, length: int, random: np.random.Generator) -> tuple[list[str], list[str]]:
        # Of two lengths, each uniform from min_length on, of which the longer one is ``length``.
        shorter = length - self.min_length
        which = int(random.integers(-shorter, shorter + 1))
        lengths = (length, length - which) if which >= 0 else (length + which, length)
        numbers = [number_of_length(each, random) for each in lengths]
        return self.written(*map(str, (*numbers, sum(numbers))))


def number_of_length(length: int, random: np.random.Generator) -> int:
    """Draw a number of so many digits, the first one no zero; 0 has one digit."""
    first = random.integers(length > 1, 10)
    return int("".join(map(str, [first, *random.integers(10, size=length - 1)])))
