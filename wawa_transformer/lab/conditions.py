"""What a rule may ask: measures of runs, pairs judged by them, conditions that hold or do not."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import yaml

from wawa_transformer.common.schema import UserError
from wawa_transformer.data.tasks import Task
from wawa_transformer.lab.intervals import (
    CONFIDENCE,
    Estimate,
    estimate,
    paired_difference,
    sampling_interval,
)
from wawa_transformer.lab.language import Words, listed, say

LEARNED_IN_RANGE = 0.95  # below this exact match at trained lengths, unseen ones say nothing

Pair = tuple[str, str]
Values = Mapping[str, Mapping[int, float]]  # encoding -> seed -> value
Measures = Mapping[str, float]  # by which pairs are compared, with the smallest relevant size


def has_longer_tests(task: Task) -> bool:
    """Whether the test goes beyond the trained lengths."""
    longest = task.trained_lengths[1] if task.trained_lengths else math.inf
    return longest < getattr(task, "test_max_length", math.inf)


def has_ceiling(task: Task) -> bool:
    """Whether theory bounds what a model without positions can reach, by less than 1."""
    shortest, longest = task.trained_lengths or (1, 0)
    ceilings = [task.ceiling(length) for length in range(shortest, longest + 1)]
    return bool(ceilings) and None not in ceilings and any(c < 1 for c in ceilings if c is not None)


@dataclass(frozen=True)
class Measure:
    """A number of a run. ``unseen`` ones are read only where the trained lengths are learned."""

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
    """What the runs of one task have come to."""

    values: Mapping[str, Values]  # of each measure
    longest: int | None = None  # trained length
    ceiling: tuple[float, float] | None = None  # without positions; its standard error on one split
    tests: Sequence[Mapping[str, Any]] = ()  # of pairs over test sentences: seed, a, b, sign, p

    def mean(self, measure: str, pe: str) -> Estimate:
        """Over the seeds of one encoding."""
        return estimate(self.values.get(measure, {}).get(pe, {}).values())

    def difference(self, measure: str, pair: Pair, of: int = 1) -> Estimate:
        """First minus second, corrected as one ``of`` several."""
        a, b = (self.values.get(measure, {}).get(pe, {}) for pe in pair)
        return paired_difference(a, b, of)

    def read(self, measure: str, *encodings: str) -> bool:
        """Whether the measure says something of these encodings."""
        learned = (self.mean("exact_match", pe).mean >= LEARNED_IN_RANGE for pe in encodings)
        return not MEASURES[measure].unseen or all(learned)


@dataclass(frozen=True)
class Judged:
    """A pair: whether the first is ``better`` than the second, ``worse``, ``mixed``, ``unclear``.

    ``by`` names the measures that decide, ``shown`` all of them; ``known`` is false where nothing
    could be compared, ``unread`` true where a measure was not read.
    """

    a: str
    b: str
    verdict: str
    by: str
    shown: str
    known: bool
    unread: bool


def judge(pair: Pair, measures: Measures, task: Measured, of: int = 1) -> Judged:
    """Better: in one measure the interval of the paired difference, corrected as one ``of`` several
    (Bonferroni), lies on the better side of 0 and its mean is at least the relevant size that
    ``measures`` gives; and in no measure it is so on the worse side.
    """
    decided, shown, signs, known, unread = [], [], set(), False, False
    for name, relevant in measures.items():
        measure = MEASURES[name]
        if not task.read(name, *pair):
            unread = True
            shown.append(
                say(
                    f"{measure.words} not compared, since not both learned the trained lengths",
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
    """Of the paired tests those of one pair: BLEU of its first minus its second, and p; by seed."""
    found = []
    for test in tests:
        if {test["a"], test["b"]} == set(pair):
            p_value = 1.0 if test["p"] is None else test["p"]  # None: the same translations
            found.append((test["difference"] * (1 if test["a"] == pair[0] else -1), p_value))
    return found


def ahead(found: Sequence[tuple[float, float]], of: int) -> bool | None:
    """Whether the first is ahead with every seed, each test as one ``of`` several (Bonferroni).

    None: fewer than two seeds.
    """
    strict = (1 - CONFIDENCE) / of
    every = all(difference > 0 and p_value < strict for difference, p_value in found)
    return every if len(found) > 1 else None


# ------------------------------------------------------------------------------------ conditions

CONDITIONS: dict[str, type[Condition]] = {}
Held = tuple[bool | None, str]  # whether it holds, None: nothing to tell it by; and the numbers


@dataclass
class Condition:
    """Asked of every subject, an encoding or a pair, on every task; holds of each or does not.

    It is met where it holds ``least`` times or more, and ``most`` times or less: every time unless
    one of them is given. What cannot be told meets no condition.
    """

    tasks: list[str] = field(default_factory=list)  # all of the case unless given
    least: int | None = None
    most: int | None = None

    kind: ClassVar[str]  # what ``is`` names
    axis: ClassVar[str]  # what its subjects are
    compares: ClassVar[bool] = True  # reads the measures of the rule

    def __init_subclass__(cls, kind: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if kind is not None:
            cls.kind, CONDITIONS[kind] = kind, cls

    def __str__(self) -> str:
        """The condition as a study writes it."""
        usual = type(self)()
        own = {key: value for key, value in vars(self).items() if value != getattr(usual, key)}
        given = {"is": self.kind, **own}
        return yaml.safe_dump(given, default_flow_style=True, sort_keys=False, width=1000).strip()

    def given(self) -> list[Any]:
        """The subjects that the condition itself names."""
        raise NotImplementedError

    def holds(self, subject: Any, task: Measured, measures: Measures, of: int) -> Held:
        """Whether it holds of one subject on one task, as one ``of`` several comparisons."""
        raise NotImplementedError

    def check(self, key: str, measures: Measures) -> None:
        """Refuse settings with which it cannot be decided; ``key`` is its place in the study."""

    def needs(self, task: Task, measures: Measures) -> str:
        """What it reads that this task does not have, or nothing."""
        lacking = (str(MEASURES[m].words) for m in measures if not MEASURES[m].needs(task))
        return next(lacking, "") if self.compares else ""

    def bounds(self, times: int) -> tuple[int, int]:
        """How often it must hold, and may, when it is asked so many ``times``."""
        least = times if self.most is None else 0
        return (
            least if self.least is None else self.least,
            times if self.most is None else self.most,
        )


@dataclass
class OfPairs(Condition):
    """Asked of pairs of encodings, first against second; those of the study unless given."""

    pairs: list[list[str]] = field(default_factory=list)

    axis: ClassVar[str] = "pair"
    verdicts: ClassVar[tuple[str, ...]] = ()  # of :func:`judge`, with which it holds

    def given(self) -> list[Any]:
        return [tuple(pair) for pair in self.pairs]

    def holds(self, subject: Any, task: Measured, measures: Measures, of: int) -> Held:
        judged = judge(subject, measures, task, of)
        return (judged.verdict in self.verdicts if judged.known else None), judged.shown


@dataclass
class Praise(OfPairs):
    """Asked in praise of the first of a pair, which must reach a ``floor`` of its own as well.

    What is better than something bad can be bad itself.
    """

    floor: float | None = None

    floor_measure: ClassVar[str] = "exact_match"

    def above_floor(self, pair: Pair, task: Measured, there: bool | None, shown: str) -> Held:
        """What was found of the pair, and whether its first reaches the floor."""
        if self.floor is None:
            return there, shown
        mean = task.mean(self.floor_measure, pair[0])
        if not math.isfinite(mean.mean):
            return None, shown
        measure = MEASURES[self.floor_measure]
        if mean.mean < self.floor:
            shown += say(
                f"; {measure.words} {mean:{measure.form}}, below the floor {self.floor:g}",
                f"；{measure.words} {mean:{measure.form}}，低于下限 {self.floor:g}",
            )
        return (there and mean.mean >= self.floor), shown


@dataclass
class Better(Praise, kind="better"):
    """The first of the pair is better, by :func:`judge`, and reaches the floor."""

    verdicts: ClassVar = ("better",)

    def holds(self, subject: Any, task: Measured, measures: Measures, of: int) -> Held:
        return self.above_floor(subject, task, *super().holds(subject, task, measures, of))


@dataclass
class Worse(OfPairs, kind="worse"):
    """The first of the pair is worse, by :func:`judge`."""

    verdicts: ClassVar = ("worse",)


@dataclass
class Differs(OfPairs, kind="differs"):
    """One of the pair is better, by :func:`judge`, or each in a measure of its own."""

    verdicts: ClassVar = ("better", "worse", "mixed")


@dataclass
class Alike(OfPairs, kind="alike"):
    """In every measure the whole interval of the paired difference is smaller than what matters.

    A test of equivalence (Schuirmann 1987): more than a difference that is not shown.
    """

    def check(self, key: str, measures: Measures) -> None:
        if not all(measures.values()):
            raise UserError(
                f"{key} asks for differences smaller than what matters, and by "
                f"study.rule.measures any difference does; give each measure a size above 0."
            )

    def holds(self, subject: Any, task: Measured, measures: Measures, of: int) -> Held:
        judged = judge(subject, measures, task, of)
        within = True
        for name, relevant in measures.items():
            difference = task.difference(name, subject, of)
            largest = max(abs(difference.low), abs(difference.high))
            within &= largest < relevant and not difference.every_seed_equal
        return (within if judged.known and not judged.unread else None), judged.shown


@dataclass
class OverSentences(OfPairs):
    """Asked of the paired test over test sentences, with every seed."""

    compares: ClassVar[bool] = False

    def needs(self, task: Task, measures: Measures) -> str:
        return "" if task.translates else say("translations", "译文")

    def found(self, pair: Pair, task: Measured, of: int, sign: int) -> Held:
        """Whether the first (``sign`` 1) or the second (-1) of the pair is ahead."""
        tests = over_sentences(task.tests, pair)
        seeds = (f"BLEU {difference:+.2f} (p {p:.4f})" for difference, p in tests)
        shown = say(" and ", "，").join(seeds) or say("no seed", "没有种子")
        return ahead([(sign * difference, p) for difference, p in tests], of), shown


@dataclass
class Ahead(OverSentences, Praise, kind="ahead"):
    """The first of the pair is ahead in the paired test over test sentences, with every seed."""

    floor_measure: ClassVar[str] = "bleu"

    def holds(self, subject: Any, task: Measured, measures: Measures, of: int) -> Held:
        return self.above_floor(subject, task, *self.found(subject, task, of, 1))


@dataclass
class Behind(OverSentences, kind="behind"):
    """The second of the pair is ahead in it."""

    def holds(self, subject: Any, task: Measured, measures: Measures, of: int) -> Held:
        return self.found(subject, task, of, -1)


@dataclass
class OfEncodings(Condition):
    """Asked of encodings; all of them unless given."""

    encodings: list[str] = field(default_factory=list)

    axis: ClassVar[str] = "encoding"

    def given(self) -> list[Any]:
        return self.encodings


@dataclass
class AtLeast(OfEncodings, kind="at_least"):
    """In every measure the mean over seeds is at least ``value``; or so many ``seeds`` are."""

    value: float = math.nan
    seeds: int | None = None

    def check(self, key: str, measures: Measures) -> None:
        if not math.isfinite(self.value):
            raise UserError(f"{key}.value is not given; say at least what.")

    def holds(self, subject: Any, task: Measured, measures: Measures, of: int) -> Held:
        if self.seeds is not None:
            return self.in_seeds(subject, task, measures, self.seeds)
        means = {name: task.mean(name, subject) for name in measures}
        shown = listed(f"{MEASURES[m].words} {v:{MEASURES[m].form}}" for m, v in means.items())
        if any(not math.isfinite(v.mean) or not task.read(m, subject) for m, v in means.items()):
            return None, shown
        return all(mean.mean >= self.value for mean in means.values()), shown

    def in_seeds(self, subject: Any, task: Measured, measures: Measures, least: int) -> Held:
        """Whether ``least`` seeds reach the value; a seed that failed does not."""
        found = [task.values.get(name, {}).get(subject, {}) for name in measures]
        good = [seed for seed in found[0] if all(each[seed] >= self.value for each in found)]
        shown = say(
            f"{len(good)} of {len(found[0])} seeds", f"{len(found[0])} 个种子中有 {len(good)} 个"
        )
        return (len(good) >= least if found[0] else None), shown


@dataclass
class AboveCeiling(OfEncodings, kind="above_ceiling"):
    """The mean exact match is above what a model without positions can reach, and chance on it."""

    compares: ClassVar[bool] = False

    def needs(self, task: Task, measures: Measures) -> str:
        return "" if has_ceiling(task) else say("a ceiling without positions", "没有位置时的上限")

    def holds(self, subject: Any, task: Measured, measures: Measures, of: int) -> Held:
        mean = task.mean("exact_match", subject)
        if task.ceiling is None or not math.isfinite(mean.mean):
            return None, f"{mean}"
        ceiling, standard_error = task.ceiling
        chance = sampling_interval(standard_error, mean.n)
        most = f"{ceiling:.3f} ± {chance:.3f}"
        shown = say(f"{mean:z.3f}, ceiling {most}", f"{mean:z.3f}，上限 {most}")
        return mean.mean > ceiling + chance, shown


@dataclass
class PastTraining(OfEncodings, kind="past_training"):
    """The interval of reach lies above the longest trained length, its mean by what matters."""

    def check(self, key: str, measures: Measures) -> None:
        if "reach" not in measures:
            raise UserError(f"{key} asks for reach; name it in study.rule.measures.")

    def needs(self, task: Task, measures: Measures) -> str:
        return "" if has_longer_tests(task) else str(MEASURES["reach"].words)

    def holds(self, subject: Any, task: Measured, measures: Measures, of: int) -> Held:
        reach = task.mean("reach", subject)
        shown = f"{MEASURES['reach'].words} {reach:z.1f}"
        if not task.read("reach", subject):
            return None, say(
                f"{shown}, which does not count: trained lengths not learned",
                f"{shown}，不计，没有学会训练过的长度",
            )
        if task.longest is None or reach.n < 2:
            return None, shown
        # Reach is a whole number, so that seeds are often alike; here that is taken as it stands.
        return self.compare(reach, task.longest, measures["reach"]), shown

    def compare(self, reach: Estimate, longest: int, relevant: float) -> bool:
        """Whether it holds of a reach."""
        return reach.low > longest and reach.mean >= longest + relevant


@dataclass
class WithinTraining(PastTraining, kind="within_training"):
    """The mean of reach is not above the longest trained length."""

    def compare(self, reach: Estimate, longest: int, relevant: float) -> bool:
        return reach.mean <= longest
