"""Judge a pair of encodings by the measures of a task."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wawa_transformer.data.tasks import Task
from wawa_transformer.lab.intervals import CONFIDENCE, Estimate, estimate, paired_difference
from wawa_transformer.lab.language import Words, listed, say

# With a lower exact match at trained lengths, scores at unseen lengths are not interpreted.
LEARNED_IN_RANGE = 0.95

Pair = tuple[str, str]
Values = Mapping[str, Mapping[int, float]]  # encoding -> seed -> value
Measures = Mapping[str, float]  # measure -> the smallest difference that matters


def has_longer_tests(task: Task) -> bool:
    """True if the test has lengths beyond the trained ones."""
    longest = task.trained_lengths[1] if task.trained_lengths else math.inf
    return longest < getattr(task, "test_max_length", math.inf)


def has_ceiling(task: Task) -> bool:
    """True if a model without positions has a known ceiling below 1."""
    shortest, longest = task.trained_lengths or (1, 0)
    ceilings = [task.ceiling(length) for length in range(shortest, longest + 1)]
    return bool(ceilings) and None not in ceilings and any(c < 1 for c in ceilings if c is not None)


@dataclass(frozen=True)
class Measure:
    """A score of a run, with its name and format.

    A measure that is ``unseen`` is interpreted only if the trained lengths are learned. ``needs``
    is true of the tasks that have the measure.
    """

    words: Words
    form: str = "z.3f"
    higher_is_better: bool = True
    unseen: bool = False
    needs: Callable[[Task], bool] = lambda task: True


MEASURES = {
    "exact_match": Measure(Words("exact match", "完全匹配率")),
    "beyond": Measure(
        Words("exact match at unseen lengths", "没见过的长度上的完全匹配率"),
        unseen=True,
        needs=has_longer_tests,
    ),
    "reach": Measure(Words("reach", "到达长度"), "z.1f", unseen=True, needs=has_longer_tests),
    "bleu": Measure(Words("BLEU", "BLEU"), "z.2f", needs=lambda task: task.translates),
    "nll": Measure(Words("NLL per token", "每词元 NLL"), "z.4f", higher_is_better=False),
}


@dataclass(frozen=True)
class Measured:
    """The scores of the runs of one task."""

    values: Mapping[str, Values]  # for each measure
    longest: int | None = None  # the longest trained length
    # The ceiling of a model without positions, and its standard error on one test split.
    ceiling: tuple[float, float] | None = None
    # Paired tests over test sentences, with the keys seed, a, b, difference and p.
    tests: Sequence[Mapping[str, Any]] = ()

    def mean(self, measure: str, pe: str) -> Estimate:
        """The mean of a measure over the seeds of one encoding."""
        return estimate(self.values.get(measure, {}).get(pe, {}).values())

    def difference(self, measure: str, pair: Pair, of: int = 1) -> Estimate:
        """Estimate first minus second, corrected for ``of`` comparisons (Bonferroni)."""
        a, b = (self.values.get(measure, {}).get(pe, {}) for pe in pair)
        return paired_difference(a, b, of)

    def read(self, measure: str, *encodings: str) -> bool:
        """True if the measure can be interpreted for all of these encodings."""
        learned = (self.mean("exact_match", pe).mean >= LEARNED_IN_RANGE for pe in encodings)
        return not MEASURES[measure].unseen or all(learned)


@dataclass(frozen=True)
class Judged:
    """The verdict on a pair of encodings, with the numbers.

    ``verdict`` is ``better`` or ``worse`` (the first encoding, compared with the second), ``mixed``
    (better in one measure, worse in another) or ``unclear``.
    ``by`` has the differences that decide, ``shown`` has all of them. ``known`` is false if no
    measure could be compared, and ``unread`` is true if a measure could not be interpreted.
    """

    a: str
    b: str
    verdict: str
    by: str
    shown: str
    known: bool
    unread: bool


def judge(pair: Pair, measures: Measures, task: Measured, of: int = 1) -> Judged:
    """Compare a pair's first encoding with the second in every measure.

    A measure counts for the first if two things hold: the interval of the paired difference,
    corrected for ``of`` comparisons (Bonferroni), is on the better side of 0, and the mean
    difference is at least the size in ``measures``. A measure counts against the first in the same
    way. The verdict is ``better`` if at least one measure counts for the first and none against.
    """
    decided, shown, signs, known, unread = [], [], set(), False, False
    for name, relevant in measures.items():
        measure = MEASURES[name]
        if not task.read(name, *pair):
            unread = True
            shown.append(
                say(
                    f"{measure.words} not compared: not both encodings learned the trained lengths",
                    f"{measure.words}不计，两种编码没有都学会训练过的长度",
                )
            )
            continue
        difference = task.difference(name, pair, of)
        words = f"{measure.words} {difference:+{measure.form}}"
        shown.append(words)
        known |= difference.n > 1 and math.isfinite(difference.mean)
        if difference.excludes_zero and abs(difference.mean) >= relevant:
            signs.add((difference.mean > 0) == measure.higher_is_better)
            decided.append(words)
    verdicts = {(): "unclear", (True,): "better", (False,): "worse", (False, True): "mixed"}
    found = verdicts[tuple(sorted(signs))]
    return Judged(*pair, found, listed(decided), listed(shown), known, unread)


def over_sentences(tests: Sequence[Mapping[str, Any]], pair: Pair) -> list[tuple[float, float]]:
    """Select the paired tests of one pair.

    Returns for each seed the BLEU of the first encoding minus that of the second, and p.
    """
    found = []
    for test in tests:
        if {test["a"], test["b"]} == set(pair):
            p_value = 1.0 if test["p"] is None else test["p"]  # None: equal translations
            found.append((test["difference"] * (1 if test["a"] == pair[0] else -1), p_value))
    return found


def ahead(found: Sequence[tuple[float, float]], of: int) -> bool | None:
    """True if the first encoding is significantly ahead with every seed.

    Each test is corrected for ``of`` comparisons (Bonferroni). None if there are fewer than two
    seeds.
    """
    strict = (1 - CONFIDENCE) / of
    every = all(difference > 0 and p_value < strict for difference, p_value in found)
    return every if len(found) > 1 else None
