"""The rule of a study, which decides the study's claim from its scores.

A rule is written before the runs. Its conditions are about encodings, or pairs of encodings, on
tasks. The claim is refuted if any condition of ``refuted`` is met. Otherwise the claim is supported
if all conditions of ``supported`` are met, and unclear if not. With ``each``, every task, pair or
encoding gets a verdict of its own.

All tests that the verdicts of a study rest on, over pairs, tasks and measures, are corrected
together (Holm), and every verdict on a pair follows from the corrected p.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from wawa_transformer.common.messages import UserError
from wawa_transformer.lab import scores
from wawa_transformer.lab.comparisons import Pair, PairTests, verdict
from wawa_transformer.lab.statistics import SIGNIFICANT, Estimate, reaches

Given = Mapping[str, Any]  # the keys of a condition in a study's YAML file
VERDICTS = ("supported", "refuted", "unclear")


# ---------------------------------------------------------------------------------- the conditions


@dataclass(frozen=True)
class Kind:
    """A kind of condition, which ``is`` names.

    ``holds(tested, task, subject, given)`` returns None if its numbers are missing; such a check
    never helps to meet a condition. ``of`` is the kind of subject, pair or encoding, and ``keys``
    are the condition's own keys: ``float`` must be given, and ``float | None`` may be. ``reads``
    names the score that the condition is about; without a name these are the rule's measures.
    ``test`` names the comparison of a pair, and ``praises`` is the place in it of the encoding that
    the condition praises. ``sets_floor`` is True if the condition asks an encoding for a minimum.
    """

    holds: Callable[[PairTests, str, Any, Given], bool | None]
    of: str
    keys: Mapping[str, Any] = field(default_factory=dict)
    reads: str = ""
    test: str = ""
    praises: int | None = None
    sets_floor: bool = False

    @property
    def floor(self) -> str:
        """The score of which the key ``floor`` asks the praised encoding for a mean."""
        return self.reads or "exact_match"


CONDITIONS: dict[str, Kind] = {}


def condition(name: str, of: str, **more: Any) -> Callable:
    """Register a function as a kind of condition; refuse a name that is taken."""

    def register(holds: Callable) -> Callable:
        if name in CONDITIONS:
            raise UserError(f"two conditions are called {name}; give one of them another name.")
        CONDITIONS[name] = Kind(holds, of, **more)
        return holds

    return register


def pair_condition(
    name: str, *words: str, test: str = "differs", praises: int | None = None, **more: Any
) -> None:
    """Register a condition that holds where the verdict on a pair is one of ``words``.

    The mean of a praised encoding must also reach the key ``floor``.
    """

    def holds(tested: PairTests, task: str, pair: Pair, given: Given) -> bool | None:
        word = verdict(tested, task, pair, test)
        met = None if word is None else word in words
        if praises is None or given["floor"] is None:
            return met
        mean = tested.scores.mean(task, pair[praises], CONDITIONS[name].floor).mean
        return (met and reaches(mean, given["floor"])) if math.isfinite(mean) else None

    keys = {} if praises is None else {"floor": float | None}
    condition(name, of="pair", keys=keys, test=test, praises=praises, **more)(holds)


pair_condition("better", "better", praises=0)
pair_condition("worse", "worse", praises=1)
pair_condition("differs", "better", "worse", "mixed")
# By the tests over sentences, in which every seed must give the same direction.
pair_condition("ahead", "better", test="sentences", reads="bleu", praises=0)
pair_condition("behind", "worse", test="sentences", reads="bleu", praises=1)


@condition("alike", of="pair", test="alike")
def alike(tested: PairTests, task: str, pair: Pair, given: Given) -> bool | None:
    """In every measure the difference is smaller than what matters, by a test of equivalence.

    A difference that is not significant does not suffice, and neither do seeds with equal
    differences, whose spread is unknown.
    """
    rows = tested.of_pair("alike", task, pair)
    if not len(rows) or not rows["read"].all() or not (rows["n"] > 1).any():
        return None
    return bool((rows["corrected"] < SIGNIFICANT).all())


@condition("at_least", of="encoding", keys={"value": float, "seeds": int | None}, sets_floor=True)
def at_least(tested: PairTests, task: str, pe: str, given: Given) -> bool | None:
    """The mean is at least ``value`` in every measure; with ``seeds``, so many seeds are."""
    if given.get("seeds") is not None:
        count, seeds = seeds_reaching(tested, task, pe, given["value"])
        return count >= given["seeds"] if seeds else None
    means = [tested.scores.mean(task, pe, name).mean for name in tested.measures]
    read = all(tested.scores.interpretable(name, task, pe) for name in tested.measures)
    if not read or not all(map(math.isfinite, means)):
        return None
    return all(reaches(mean, given["value"]) for mean in means)


def seeds_reaching(tested: PairTests, task: str, pe: str, value: float) -> tuple[int, int]:
    """Count an encoding's seeds that reach ``value`` in every measure, and all of its seeds."""
    values = [tested.scores.seeds(task, pe, name) for name in tested.measures]
    worst = pd.concat(values, axis="columns").min(axis="columns", skipna=False)
    return sum(reaches(each, value) for each in worst), len(worst)


@condition("above_ceiling", of="encoding", reads="exact_match")
def above_ceiling(tested: PairTests, task: str, pe: str, given: Given) -> bool | None:
    """Mean exact match exceeds the ceiling without positions beyond chance."""
    mean = tested.scores.mean(task, pe, "exact_match")
    most = scores.ceiling(tested.scores.study, task, pe=pe)
    if most is None or not math.isfinite(mean.mean):
        return None
    return mean.mean > most.high


@condition("past_training", of="encoding", reads="reach", sets_floor=True)
def past_training(tested: PairTests, task: str, pe: str, given: Given) -> bool | None:
    """Reach is beyond the longest trained length.

    The whole interval of reach must be above this length, and the mean above it by at least the
    smallest difference that matters. Seeds of equal reach count as an interval of one point.
    """
    reach, longest = reach_of(tested, task, pe)
    if reach is None:
        return None
    ahead = reaches(reach.mean, longest + tested.measures["reach"])
    return reach.within(None)[0] > longest and ahead


@condition("within_training", of="encoding", reads="reach")
def within_training(tested: PairTests, task: str, pe: str, given: Given) -> bool | None:
    """Mean reach is at most the longest trained length."""
    reach, longest = reach_of(tested, task, pe)
    return None if reach is None else reach.mean <= longest


def reach_of(tested: PairTests, task: str, pe: str) -> tuple[Estimate | None, int]:
    """The reach of an encoding that has learned the task, and the longest trained length."""
    reach = tested.scores.mean(task, pe, "reach")
    trained = scores.trained_lengths(tested.scores.study, task)
    known = reach.n > 1 and math.isfinite(reach.mean)
    if not trained or not known or not tested.scores.interpretable("reach", task, pe):
        return None, 0
    return reach, trained[1]


# ------------------------------------------------------------------------------------ the decision


@dataclass(frozen=True)
class Case:
    """The tasks, pairs and encodings that share one verdict."""

    tasks: Sequence[str]
    pairs: Sequence[Pair]
    encodings: Sequence[str]
    # With several cases: the task, and the pair or encoding, that this case is about.
    task: str = ""
    pair: Pair | None = None
    encoding: str = ""

    def subjects(self, given: Given) -> list[tuple[str, Any]]:
        """The tasks, each with the pairs or encodings, for which a condition is checked."""
        named: Sequence[Any] = given.get("encodings") or self.encodings
        if CONDITIONS[given["is"]].of == "pair":
            named = [(a, b) for a, b in given["pairs"]] or self.pairs
        return list(itertools.product(given["tasks"] or self.tasks, named))


@dataclass(frozen=True)
class Answer:
    """A condition of a case: how many of its checks hold, and if that meets the condition."""

    side: str  # supported or refuted
    given: Given
    met: bool
    holds: int
    checks: int


@dataclass(frozen=True)
class Outcome:
    """The verdict of a case, one of ``VERDICTS``, and every answer."""

    case: Case
    verdict: str
    answers: Sequence[Answer]


@dataclass
class Rule:
    """A rule that has been checked against the grid of its study."""

    claim: str
    each: Sequence[str]
    measures: Mapping[str, float]
    supported: Sequence[Given]
    refuted: Sequence[Given]
    tasks: Sequence[str]
    encodings: Sequence[str]
    pairs: Sequence[Pair] = field(default_factory=list)

    @property
    def conditions(self) -> list[Given]:
        """The conditions of ``supported``, then those of ``refuted``."""
        return [*self.supported, *self.refuted]

    def cases(self) -> list[Case]:
        """Split the grid into cases, each with a verdict of its own."""
        axes: dict[str, Any] = {"task": self.tasks, "pair": self.pairs, "encoding": self.encodings}
        parts = [
            [[name] for name in names] if axis in self.each else [names]
            for axis, names in axes.items()
        ]
        return [
            Case(*chosen, **{axis: part[0] for axis, part in zip(axes, chosen, strict=True)
                             if axis in self.each})
            for chosen in itertools.product(*parts)
        ]  # fmt: skip

    def asked(self) -> list[tuple[str, str, Pair]]:
        """List the tests that the verdicts rest on: each with its task and pair."""
        whole = Case(self.tasks, self.pairs, self.encodings)
        tests = [
            (CONDITIONS[given["is"]].test, task, pair)
            for given in self.conditions
            if CONDITIONS[given["is"]].test
            for task, pair in whole.subjects(given)
        ]
        return list(dict.fromkeys(tests))


def decide(rule: Rule, tested: PairTests) -> list[Outcome]:
    """Decide every case. A refuting condition overrides all supporting ones."""
    outcomes = []
    for case in rule.cases():
        answers = [
            answer(side, given, case, tested)
            for side in ("supported", "refuted")
            for given in getattr(rule, side)
        ]
        supports = all(each.met for each in answers if each.side == "supported")
        refutes = any(each.met for each in answers if each.side == "refuted")
        verdict = "refuted" if refutes else "supported" if supports else "unclear"
        outcomes.append(Outcome(case, verdict, answers))
    return outcomes


def answer(side: str, given: Given, case: Case, tested: PairTests) -> Answer:
    """Check one condition for every task and subject of a case."""
    name = given["is"]
    checks = [
        truth_of(CONDITIONS[name].holds(tested, task, subject, given), name)
        for task, subject in case.subjects(given)
    ]
    holds, unknown = sum(each is True for each in checks), sum(each is None for each in checks)
    least, most = bounds(given, len(checks))
    return Answer(side, given, least <= holds and holds + unknown <= most, holds, len(checks))


def truth_of(check: Any, name: str) -> bool | None:
    """Read what the condition ``name`` returns; a comparison in numpy is no ``bool`` of Python."""
    if check is None:
        return None
    if isinstance(check, bool | np.bool_):
        return bool(check)
    raise UserError(
        f"the condition {name} returns {check!r}; return True or False, or None if its numbers are "
        f"missing."
    )


def bounds(given: Given, times: int) -> tuple[int, int]:
    """The least and the most of ``times`` checks that must hold."""
    least, most = given["least"], given["most"]
    if least is None:
        least = times if most is None else 0
    return least, times if most is None else most
