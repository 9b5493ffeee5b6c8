"""The conditions that a rule is made of."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import yaml

from wawa_transformer.common.schema import UserError
from wawa_transformer.data.tasks import Task
from wawa_transformer.lab.intervals import Estimate, sampling_interval
from wawa_transformer.lab.judging import (
    MEASURES,
    Measured,
    Measures,
    Pair,
    ahead,
    has_ceiling,
    has_longer_tests,
    judge,
    over_sentences,
)
from wawa_transformer.lab.language import listed, say

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
            found = [task.values.get(name, {}).get(subject, {}) for name in measures]
            good = [seed for seed in found[0] if all(each[seed] >= self.value for each in found)]
            shown = say(
                f"{len(good)} of {len(found[0])} seeds",
                f"{len(found[0])} 个种子中有 {len(good)} 个",
            )
            return (len(good) >= self.seeds if found[0] else None), shown
        means = {name: task.mean(name, subject) for name in measures}
        shown = listed(f"{MEASURES[m].words} {v:{MEASURES[m].form}}" for m, v in means.items())
        if any(not math.isfinite(v.mean) or not task.read(m, subject) for m, v in means.items()):
            return None, shown
        return all(mean.mean >= self.value for mean in means.values()), shown


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
