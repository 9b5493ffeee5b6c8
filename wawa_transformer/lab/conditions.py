"""The measures, comparisons and conditions that a rule is made of."""

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


# ------------------------------------------------------------------------------------ conditions

CONDITIONS: dict[str, type[Condition]] = {}
Held = tuple[bool | None, str]  # if the condition holds (None: unknown), and the numbers


@dataclass
class Condition:
    """A condition of a rule, checked for every subject on every task.

    A subject is an encoding or a pair of encodings. The condition is met if the number of checks
    that hold is from ``least`` to ``most``. Without both keys every check must hold. A check that
    lacks its numbers has no answer and never helps to meet the condition.
    """

    tasks: list[str] = field(default_factory=list)  # by default all tasks of the case
    least: int | None = None
    most: int | None = None

    kind: ClassVar[str]  # the value of ``is`` in the configuration
    axis: ClassVar[str]  # the kind of subject: pair or encoding
    compares: ClassVar[bool] = True  # uses the measures of the rule

    def __init_subclass__(cls, kind: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if kind is not None:
            cls.kind, CONDITIONS[kind] = kind, cls

    def __str__(self) -> str:
        """Write the condition as in a study's YAML file."""
        usual = type(self)()
        own = {key: value for key, value in vars(self).items() if value != getattr(usual, key)}
        given = {"is": self.kind, **own}
        return yaml.safe_dump(given, default_flow_style=True, sort_keys=False, width=1000).strip()

    def given(self) -> list[Any]:
        """The subjects that the condition names, empty for the default."""
        raise NotImplementedError

    def holds(self, subject: Any, task: Measured, measures: Measures, of: int) -> Held:
        """Check one subject on one task, corrected for ``of`` comparisons."""
        raise NotImplementedError

    def check(self, key: str, measures: Measures) -> None:
        """Refuse settings that leave the condition undecidable; ``key`` names its place."""

    def needs(self, task: Task, measures: Measures) -> str:
        """Name what the condition needs and the task lacks, if anything."""
        lacking = (str(MEASURES[m].words) for m in measures if not MEASURES[m].needs(task))
        return next(lacking, "") if self.compares else ""

    def bounds(self, times: int) -> tuple[int, int]:
        """The least and the most of ``times`` checks that must hold."""
        least = times if self.most is None else 0
        return (
            least if self.least is None else self.least,
            times if self.most is None else self.most,
        )


@dataclass
class OfPairs(Condition):
    """A condition on pairs of encodings; by default on the study's pairs."""

    pairs: list[list[str]] = field(default_factory=list)

    axis: ClassVar[str] = "pair"
    verdicts: ClassVar[tuple[str, ...]] = ()  # the verdicts that satisfy the condition

    def given(self) -> list[Any]:
        return [tuple(pair) for pair in self.pairs]

    def holds(self, subject: Any, task: Measured, measures: Measures, of: int) -> Held:
        judged = judge(subject, measures, task, of)
        return (judged.verdict in self.verdicts if judged.known else None), judged.shown


@dataclass
class Praise(OfPairs):
    """A condition in favour of a pair's first encoding.

    If ``floor`` is given, the first encoding's mean must also reach this value in the measure
    ``floor_measure``. An encoding that is better than a bad one can still be bad.
    """

    floor: float | None = None

    floor_measure: ClassVar[str] = "exact_match"

    def above_floor(self, pair: Pair, task: Measured, there: bool | None, shown: str) -> Held:
        """Require of a pair's result that the first encoding reaches the floor."""
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
    """The first encoding is better by :func:`judge`, and reaches the floor."""

    verdicts: ClassVar = ("better",)

    def holds(self, subject: Any, task: Measured, measures: Measures, of: int) -> Held:
        return self.above_floor(subject, task, *super().holds(subject, task, measures, of))


@dataclass
class Worse(OfPairs, kind="worse"):
    """The first encoding is worse by :func:`judge`."""

    verdicts: ClassVar = ("worse",)


@dataclass
class Differs(OfPairs, kind="differs"):
    """The verdict of :func:`judge` is better, worse or mixed."""

    verdicts: ClassVar = ("better", "worse", "mixed")


@dataclass
class Alike(OfPairs, kind="alike"):
    """The two encodings are equivalent: no difference that matters is plausible.

    In every measure both ends of the paired difference's interval must be closer to 0 than the
    smallest difference that matters. This is a test of equivalence (Schuirmann 1987). A difference
    that is not significant does not suffice, and neither do seeds with equal differences, whose
    spread is unknown.
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
    """A condition on the paired test over test sentences, with every seed."""

    compares: ClassVar[bool] = False

    def needs(self, task: Task, measures: Measures) -> str:
        return "" if task.translates else say("translations", "译文")

    def found(self, pair: Pair, task: Measured, of: int, sign: int) -> Held:
        """Check if the first (``sign`` 1) or second (-1) encoding is ahead."""
        tests = over_sentences(task.tests, pair)
        seeds = (f"BLEU {difference:+.2f} (p {p:.4f})" for difference, p in tests)
        shown = say(" and ", "，").join(seeds) or say("no seed", "没有种子")
        return ahead([(sign * difference, p) for difference, p in tests], of), shown


@dataclass
class Ahead(OverSentences, Praise, kind="ahead"):
    """The first encoding is ahead in the sentence test with every seed.

    Its mean BLEU must also reach the floor.
    """

    floor_measure: ClassVar[str] = "bleu"

    def holds(self, subject: Any, task: Measured, measures: Measures, of: int) -> Held:
        return self.above_floor(subject, task, *self.found(subject, task, of, 1))


@dataclass
class Behind(OverSentences, kind="behind"):
    """The second encoding is ahead in the sentence test with every seed."""

    def holds(self, subject: Any, task: Measured, measures: Measures, of: int) -> Held:
        return self.found(subject, task, of, -1)


@dataclass
class OfEncodings(Condition):
    """A condition on encodings; by default on all of the study."""

    encodings: list[str] = field(default_factory=list)

    axis: ClassVar[str] = "encoding"

    def given(self) -> list[Any]:
        return self.encodings


@dataclass
class AtLeast(OfEncodings, kind="at_least"):
    """The mean over seeds is at least ``value`` in every measure.

    With ``seeds``, at least so many seeds must reach ``value`` in every measure instead.
    """

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
        """Check that ``least`` seeds or more reach the value."""
        found = [task.values.get(name, {}).get(subject, {}) for name in measures]
        good = [seed for seed in found[0] if all(each[seed] >= self.value for each in found)]
        shown = say(
            f"{len(good)} of {len(found[0])} seeds", f"{len(found[0])} 个种子中有 {len(good)} 个"
        )
        return (len(good) >= least if found[0] else None), shown


@dataclass
class AboveCeiling(OfEncodings, kind="above_ceiling"):
    """Mean exact match exceeds the ceiling without positions beyond chance."""

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
    """Reach is beyond the longest trained length.

    The whole interval of reach must be above this length, and the mean above it by at least the
    smallest difference that matters.
    """

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
                f"{shown}, not counted: trained lengths not learned",
                f"{shown}，不计，没有学会训练过的长度",
            )
        if task.longest is None or reach.n < 2:
            return None, shown
        # Reach is a whole number, so seeds often agree. Here an interval of one point counts.
        return self.compare(reach, task.longest, measures["reach"]), shown

    def compare(self, reach: Estimate, longest: int, relevant: float) -> bool:
        """True if this reach satisfies the condition."""
        return reach.low > longest and reach.mean >= longest + relevant


@dataclass
class WithinTraining(PastTraining, kind="within_training"):
    """Mean reach is at most the longest trained length."""

    def compare(self, reach: Estimate, longest: int, relevant: float) -> bool:
        return reach.mean <= longest
