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
from dataclasses import dataclass, field, make_dataclass
from typing import Any

import numpy as np
import pandas as pd

from wawa_transformer.common.schema import UserError, choose, typed
from wawa_transformer.data.tasks import Task
from wawa_transformer.lab import scores
from wawa_transformer.lab.scores import SCORES, Estimate, reaches
from wawa_transformer.lab.tables import Study

SIGNIFICANT = 1 - scores.CONFIDENCE
AXES = ("task", "pair", "encoding")
MANY = 4  # more encodings are compared with the sinusoid only
Pair = tuple[str, str]
Given = Mapping[str, Any]  # the keys of a condition in a study's YAML file


class RuleMismatch(UserError):
    """The rule does not fit this grid of encodings, tasks and seeds."""


@dataclass(frozen=True)
class Found:
    """What conditions read: a study's scores, and the comparisons that its rule makes."""

    study: Study
    frame: pd.DataFrame  # of scores.scores
    comparisons: pd.DataFrame  # of compare
    measures: Mapping[str, float]  # each with the smallest difference that matters

    def mean(self, score: str, task: str, pe: str) -> Estimate:
        """The mean of a score over the seeds of one encoding."""
        return scores.estimate(scores.by_seed(self.frame, task, pe, score))

    def of_pair(self, test: str, task: str, pair: Pair) -> pd.DataFrame:
        """Select the comparisons of one pair, the pair's first encoding first."""
        rows = self.comparisons
        rows = rows[(rows["test"] == test) & (rows["task"] == task)]
        same = rows[(rows["a"] == pair[0]) & (rows["b"] == pair[1])]
        return same if len(same) else turned(rows[(rows["a"] == pair[1]) & (rows["b"] == pair[0])])


# ---------------------------------------------------------------------------------- the conditions


@dataclass(frozen=True)
class Kind:
    """A kind of condition, which ``is`` names.

    ``holds(found, task, subject, given)`` returns None if its numbers are missing; such a check
    never helps to meet a condition. ``of`` is the kind of subject, pair or encoding. ``test`` names
    the comparison of a pair. ``floor`` is the score that the key ``floor`` is about: a condition
    with a floor praises a pair's first encoding.
    """

    holds: Callable[[Found, str, Any, Given], bool | None]
    of: str
    keys: Mapping[str, type]
    test: str = ""
    floor: str = ""
    needs: Callable[[Task], bool] = lambda task: True
    lacking: str = ""  # what a task lacks that does not have what the condition needs


CONDITIONS: dict[str, Kind] = {}


def condition(name: str, of: str, keys: Mapping[str, type] | None = None, **more: Any) -> Callable:
    """Register a function as a kind of condition."""

    def register(holds: Callable) -> Callable:
        CONDITIONS[name] = Kind(holds, of, keys or {}, **more)
        return holds

    return register


def has_longer_tests(task: Task) -> bool:
    """True if the test has lengths beyond the trained ones."""
    longest = task.trained_lengths[1] if task.trained_lengths else math.inf
    return longest < getattr(task, "test_max_length", math.inf)


def has_ceiling(task: Task) -> bool:
    """True if a model without positions has a known ceiling below 1."""
    shortest, longest = task.trained_lengths or (1, 0)
    ceilings = [task.ceiling(length) for length in range(shortest, longest + 1)]
    return bool(ceilings) and None not in ceilings and any(c < 1 for c in ceilings if c is not None)


@condition("better", of="pair", keys={"floor": float}, test="differs", floor="exact_match")
def better(found: Found, task: str, pair: Pair, given: Given) -> bool | None:
    """The first encoding is better, and its mean exact match reaches ``floor``."""
    there = judged(found, task, pair, "better")
    return above_floor(found, task, pair, given, there, "exact_match")


@condition("worse", of="pair", test="differs")
def worse(found: Found, task: str, pair: Pair, given: Given) -> bool | None:
    """The first encoding is worse."""
    return judged(found, task, pair, "worse")


@condition("differs", of="pair", test="differs")
def differs(found: Found, task: str, pair: Pair, given: Given) -> bool | None:
    """The first encoding is better, worse, or better in one measure and worse in another."""
    return judged(found, task, pair, "better", "worse", "mixed")


@condition("alike", of="pair", test="alike")
def alike(found: Found, task: str, pair: Pair, given: Given) -> bool | None:
    """In every measure the difference is smaller than what matters, by a test of equivalence.

    A difference that is not significant does not suffice, and neither do seeds with equal
    differences, whose spread is unknown.
    """
    rows = found.of_pair("alike", task, pair)
    if not len(rows) or not rows["read"].all() or not (rows["n"] > 1).any():
        return None
    return bool((rows["corrected"] < SIGNIFICANT).all())


@condition(
    "ahead", of="pair", keys={"floor": float}, test="sentences", floor="bleu",
    needs=lambda task: task.translates, lacking="translations",
)  # fmt: skip
def ahead(found: Found, task: str, pair: Pair, given: Given) -> bool | None:
    """The first encoding translates better by the test over sentences, and BLEU reaches ``floor``.

    Every seed must give the same direction.
    """
    there = judged(found, task, pair, "better", test="sentences")
    return above_floor(found, task, pair, given, there, "bleu")


@condition(
    "behind", of="pair", test="sentences",
    needs=lambda task: task.translates, lacking="translations",
)  # fmt: skip
def behind(found: Found, task: str, pair: Pair, given: Given) -> bool | None:
    """The second encoding translates better by the test over sentences."""
    return judged(found, task, pair, "worse", test="sentences")


@condition("at_least", of="encoding", keys={"value": float, "seeds": int})
def at_least(found: Found, task: str, pe: str, given: Given) -> bool | None:
    """The mean is at least ``value`` in every measure; with ``seeds``, so many seeds are."""
    if given.get("seeds") is not None:
        count, seeds = seeds_reaching(found, task, pe, given["value"])
        return count >= given["seeds"] if seeds else None
    means = [found.mean(name, task, pe).mean for name in found.measures]
    read = all(scores.interpretable(found.frame, name, task, pe) for name in found.measures)
    if not read or not all(map(math.isfinite, means)):
        return None
    return all(reaches(mean, given["value"]) for mean in means)


def seeds_reaching(found: Found, task: str, pe: str, value: float) -> tuple[int, int]:
    """Count an encoding's seeds that reach ``value`` in every measure, and all of its seeds."""
    values = [scores.by_seed(found.frame, task, pe, name) for name in found.measures]
    worst = pd.concat(values, axis="columns").min(axis="columns", skipna=False)
    return sum(reaches(each, value) for each in worst), len(worst)


@condition("above_ceiling", of="encoding", needs=has_ceiling, lacking="a ceiling without positions")
def above_ceiling(found: Found, task: str, pe: str, given: Given) -> bool | None:
    """Mean exact match exceeds the ceiling without positions beyond chance."""
    mean, most = found.mean("exact_match", task, pe), scores.ceiling(found.study, task)
    if most is None or not math.isfinite(mean.mean):
        return None
    # The chance is that of as many test splits as the encoding has seeds.
    chance = most.half_width * math.sqrt(most.n / mean.n)
    return mean.mean > most.mean + chance


@condition("past_training", of="encoding", needs=has_longer_tests, lacking="reach")
def past_training(found: Found, task: str, pe: str, given: Given) -> bool | None:
    """Reach is beyond the longest trained length.

    The whole interval of reach must be above this length, and the mean above it by at least the
    smallest difference that matters. Seeds of equal reach count as an interval of one point.
    """
    reach, longest = reach_of(found, task, pe)
    if reach is None:
        return None
    ahead = reaches(reach.mean, longest + found.measures["reach"])
    return reach.within(None)[0] > longest and ahead


@condition("within_training", of="encoding", needs=has_longer_tests, lacking="reach")
def within_training(found: Found, task: str, pe: str, given: Given) -> bool | None:
    """Mean reach is at most the longest trained length."""
    reach, longest = reach_of(found, task, pe)
    return None if reach is None else reach.mean <= longest


def reach_of(found: Found, task: str, pe: str) -> tuple[Estimate | None, int]:
    """The reach of an encoding that has learned the task, and the longest trained length."""
    reach, trained = found.mean("reach", task, pe), scores.trained_lengths(found.study, task)
    known = trained and reach.n > 1 and math.isfinite(reach.mean)
    if not known or not scores.interpretable(found.frame, "reach", task, pe):
        return None, 0
    return reach, trained[1] if trained else 0


def judged(found: Found, task: str, pair: Pair, *words: str, test: str = "differs") -> bool | None:
    """True if the verdict on a pair is one of ``words``; None if unknown."""
    word = verdict(found, task, pair, test)
    return None if word is None else word in words


def above_floor(
    found: Found, task: str, pair: Pair, given: Given, there: bool | None, score: str
) -> bool | None:
    """Require of a praised encoding that its mean reaches the floor, if there is one."""
    if given.get("floor") is None:
        return there
    mean = found.mean(score, task, pair[0]).mean
    return (there and reaches(mean, given["floor"])) if math.isfinite(mean) else None


# --------------------------------------------------------------------------------- the comparisons


def compared_pairs(encodings: Sequence[str], declared: Sequence[Sequence[str]]) -> list[Pair]:
    """List the pairs that a study compares, first minus second: those it declares, or a default.

    The default is all pairs. If there are more than four encodings and sinusoidal is among them,
    the default is each other encoding with sinusoidal.
    """
    if declared:
        return [(a, b) for a, b in declared if {a, b} <= set(encodings)]
    if len(encodings) > MANY and "sinusoidal" in encodings:
        return [(other, "sinusoidal") for other in encodings if other != "sinusoidal"]
    return list(itertools.combinations(encodings, 2))


def compare(
    study: Study,
    frame: pd.DataFrame,
    asked: Sequence[tuple[str, str, Pair]],
    measures: Mapping[str, float],
) -> pd.DataFrame:
    """Make the tests that a study's verdicts rest on, and correct them together.

    ``asked`` names tests (differs, alike, sentences), each with a task and a pair. The frame has a
    row for each of these and, but for sentences, each measure: the difference (first minus second)
    with its 95% ``low`` and ``high`` without correction, the seeds ``n``, ``p``, ``corrected``, and
    ``word``, which follows from the corrected p. ``read`` is False where a measure is not
    interpreted, because an encoding has not learned the task.
    """
    rows: dict[Any, dict[str, Any]] = {}
    for test, task, pair in asked:
        for measure in ["bleu"] if test == "sentences" else measures:
            key = (test, task, frozenset(pair), measure)
            rows.setdefault(key, one_test(study, frame, test, task, pair, measure, measures))
    columns = ["test", "task", "a", "b", "measure", "mean", "low", "high", "n", "size", "p", "read"]
    table = pd.DataFrame(list(rows.values()), columns=columns)
    table["corrected"] = scores.holm(table["p"].where(table["read"]).astype(float))
    table["word"] = table.apply(word_of, axis=1) if len(table) else ""
    return table


def one_test(
    study: Study,
    frame: pd.DataFrame,
    test: str,
    task: str,
    pair: Pair,
    measure: str,
    measures: Mapping[str, float],
) -> dict[str, Any]:
    """Make one test of a pair, and return its row without the correction."""
    a, b = (scores.by_seed(frame, task, pe, measure) for pe in pair)
    gap, size = scores.difference(a, b), measures.get(measure, 0.0)
    row = {"test": test, "task": task, "a": pair[0], "b": pair[1], "measure": measure, "p": gap.p}
    row |= {"mean": gap.mean, "low": gap.low, "high": gap.high, "n": gap.n, "size": size}
    row["read"] = scores.interpretable(frame, measure, task, *pair)
    if test == "alike":
        row["p"] = scores.equivalence(a, b, size)
    if test == "sentences":
        seeds = sentence_tests(study, task, pair)
        signs = set(np.sign(seeds["difference"]))
        # With every seed: the largest p decides (the intersection-union test, Berger 1982).
        largest = float(seeds["p"].max()) if len(signs) < 2 else 1.0
        row |= {"n": len(seeds), "mean": float(seeds["difference"].mean()), "p": largest}
    return row


def sentence_tests(study: Study, task: str, pair: Pair) -> pd.DataFrame:
    """Select a pair's tests over test sentences, one for each seed: difference in BLEU, and p."""
    tests = study.tests[study.tests["task"] == task]
    same = tests[(tests["a"] == pair[0]) & (tests["b"] == pair[1])]
    other = tests[(tests["a"] == pair[1]) & (tests["b"] == pair[0])]
    turned_round = other.assign(difference=-other["difference"].astype(float))
    both = pd.concat([part for part in (same, turned_round) if len(part)] or [same])
    # Equal translations have no p: no swap changes anything.
    return both.assign(p=both["p"].astype(float).fillna(1.0)).sort_values("seed")


def turned(rows: pd.DataFrame) -> pd.DataFrame:
    """Turn comparisons round: second minus first."""
    words = rows["word"].replace({"better": "worse", "worse": "better"})
    return rows.assign(
        a=rows["b"], b=rows["a"], mean=-rows["mean"], low=-rows["high"], high=-rows["low"],
        word=words,
    )  # fmt: skip


def word_of(row: Any) -> str:
    """The verdict of one test, a key of ``words.yaml``.

    ``better`` and ``worse`` are about the first encoding. The other words are ``alike``, ``small``
    (a difference that does not matter), ``no_difference`` (seen), ``unread`` (not interpreted),
    ``one_seed``, ``equal`` (every seed gave the same difference) and ``missing``.
    """
    if not row["read"]:
        return "unread"
    if row["n"] < 1 or math.isnan(row["mean"]):
        return "missing"
    if row["n"] == 1:
        return "one_seed"
    if math.isnan(row["corrected"]):
        return "equal"
    if not row["corrected"] < SIGNIFICANT:
        return "no_difference"
    if row["test"] == "alike":
        return "alike"
    if not reaches(abs(row["mean"]), row["size"]):
        return "small"
    return "better" if (row["mean"] > 0) == SCORES[row["measure"]].higher_is_better else "worse"


def verdict(found: Found, task: str, pair: Pair, test: str = "differs") -> str | None:
    """Judge a pair over all measures: better, worse, mixed or unclear; None if unknown.

    The first encoding is better if it is better in at least one measure and worse in none.
    """
    rows = found.of_pair(test, task, pair)
    known = rows[rows["read"] & (rows["n"] > 1) & rows["mean"].notna()]
    if not len(known):
        return None
    words = {word for word in known["word"] if word in ("better", "worse")}
    return "mixed" if len(words) > 1 else words.pop() if words else "unclear"


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

    def subjects(self, given: Given) -> Sequence[Any]:
        """The pairs or encodings for which a condition is checked."""
        if CONDITIONS[given["is"]].of == "pair":
            return [(a, b) for a, b in given["pairs"]] or self.pairs
        return given["encodings"] or self.encodings


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
    """The verdict of a case, ``supported``, ``refuted`` or ``unclear``, and every answer."""

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
        tasks = [[task] for task in self.tasks] if "task" in self.each else [self.tasks]
        pairs = [[pair] for pair in self.pairs] if "pair" in self.each else [self.pairs]
        encodings = [[pe] for pe in self.encodings] if "encoding" in self.each else [self.encodings]
        return [
            Case(
                *parts,
                task=parts[0][0] if "task" in self.each else "",
                pair=parts[1][0] if "pair" in self.each else None,
                encoding=parts[2][0] if "encoding" in self.each else "",
            )
            for parts in itertools.product(tasks, pairs, encodings)
        ]

    def asked(self) -> list[tuple[str, str, Pair]]:
        """List the tests that the verdicts rest on: each with its task and pair."""
        whole = Case(self.tasks, self.pairs, self.encodings)
        found = [
            (CONDITIONS[given["is"]].test, task, pair)
            for given in self.conditions
            if CONDITIONS[given["is"]].of == "pair"
            for task in given["tasks"] or self.tasks
            for pair in whole.subjects(given)
        ]
        return list(dict.fromkeys(found))


def decide(rule: Rule, found: Found) -> list[Outcome]:
    """Decide every case. A refuting condition overrides all supporting ones."""
    outcomes = []
    for case in rule.cases():
        answers = [
            answer(side, given, case, found)
            for side in ("supported", "refuted")
            for given in getattr(rule, side)
        ]
        supports = all(each.met for each in answers if each.side == "supported")
        refutes = any(each.met for each in answers if each.side == "refuted")
        verdict = "refuted" if refutes else "supported" if supports else "unclear"
        outcomes.append(Outcome(case, verdict, answers))
    return outcomes


def answer(side: str, given: Given, case: Case, found: Found) -> Answer:
    """Check one condition for every task and subject of a case."""
    checks = [
        CONDITIONS[given["is"]].holds(found, task, subject, given)
        for task in given["tasks"] or case.tasks
        for subject in case.subjects(given)
    ]
    holds, unknown = sum(each is True for each in checks), sum(each is None for each in checks)
    least, most = bounds(given, len(checks))
    return Answer(side, given, least <= holds and holds + unknown <= most, holds, len(checks))


def bounds(given: Given, times: int) -> tuple[int, int]:
    """The least and the most of ``times`` checks that must hold."""
    least = times if given["most"] is None else 0
    return (
        least if given["least"] is None else given["least"],
        times if given["most"] is None else given["most"],
    )


def outcomes(study: Study) -> list[Outcome]:
    """Decide the rule of a study; empty without a rule."""
    rule = rule_of(study)
    return decide(rule, find(study, scores.scores(study), rule)) if rule else []


def find(study: Study, frame: pd.DataFrame, rule: Rule) -> Found:
    """Make the comparisons that a rule rests on, from the study's scores."""
    compared = compare(study, frame, rule.asked(), rule.measures)
    return Found(study, frame, compared, rule.measures)


# ------------------------------------------------------------------------- reading and checking it


def warnings(
    rule: Rule, encodings: Mapping[str, Given], found: Found | None = None
) -> list[tuple[str, dict[str, Any]]]:
    """List the weaknesses of a rule, as keys of ``words.yaml`` with what fills them.

    The number of comparisons comes first. ``encodings`` are the settings of each encoding. Before
    the runs an equivalence needs a floor under its baseline; with ``found``, its margin is held
    against what was measured.
    """
    said: list[tuple[str, dict[str, Any]]] = []
    tests = [each for each in rule.asked() if each[0] != "sentences"]
    made = len(tests) * len(rule.measures) + len(rule.asked()) - len(tests)
    if made:
        said.append(("rule_makes", {"n": made}))
    for given in rule.supported:
        if given["is"] != "alike":
            continue
        tasks, pairs = given["tasks"] or rule.tasks, named(given) or rule.pairs
        for (a, b), (score, size) in itertools.product(pairs, rule.measures.items()):
            margin = {"a": a, "b": b, "score": SCORES[score].label, "size": size}
            if not SCORES[score].higher_is_better:
                continue
            if found:
                means = {task: found.mean(score, task, b).mean for task in tasks}
                low = [
                    f"{task} ({mean:.3g})" for task, mean in means.items() if reaches(size, mean)
                ]
                if low:
                    said.append(("rule_at_floor", margin | {"tasks": ", ".join(low)}))
            elif not has_floor(rule, b, tasks, size):
                said.append(("rule_no_floor", margin))
    for a, b in dict.fromkeys(pair for _, _, pair in rule.asked()):
        keys = differing(encodings[a], encodings[b])
        if len(keys) > 1:
            said.append(("rule_two_things", {"a": a, "b": b, "keys": ", ".join(keys)}))
    return said


def has_floor(rule: Rule, pe: str, tasks: Sequence[str], margin: float) -> bool:
    """True if ``supported`` asks that an encoding reaches more than ``margin`` on these tasks."""
    return any(
        given["is"] == "at_least"
        and pe in (given["encodings"] or rule.encodings)
        and set(tasks) <= set(given["tasks"] or rule.tasks)
        and given["value"] > margin
        for given in rule.supported
    )


# These settings of an encoding do not belong to its class.
SHARED = {
    "cross": ("cross",),
    "origin": ("origin",),
    "max_shift": ("max_shift",),
    "random positions": ("random_positions", "stride"),
    "reset_token": ("reset_token",),
    "where": ("where",),
    "layers": ("layers",),
    "tie_sides": ("tie_sides",),
}


def differing(a: Given, b: Given) -> list[str]:
    """Name the things in which two encodings differ.

    The class is one thing, with all of its settings. Of one class, every setting is a thing.
    """
    shared = set(itertools.chain.from_iterable(SHARED.values()))
    own = sorted((a.keys() | b.keys()) - shared - {"name", "kind"})
    apart = [key for key in own if a.get(key) != b.get(key)]
    things = ["kind"] if a["kind"] != b["kind"] else apart
    return things + [
        thing for thing, keys in SHARED.items() if any(a.get(key) != b.get(key) for key in keys)
    ]


def rule_of(study: Study) -> Rule | None:
    """Read the rule in a study's ``study.yaml``, or None."""
    config = study.config.get("study", {})
    if not config.get("rule"):
        return None
    return read_rule(config, list(study.config["encodings"]), list(study.config["tasks"]))


def read_rule(study: Given, encodings: Sequence[str], tasks: Sequence[str]) -> Rule:
    """Build and check the rule of a study's configuration.

    Raises:
        RuleMismatch: the rule names an encoding or a task that is not trained, compares pairs that
            do not exist, or needs more seeds than the study has.
        UserError: the rule cannot be decided on any grid.
    """
    given = study["rule"]
    for word in given["each"]:
        choose(dict.fromkeys(AXES), word, "study.rule.each")
    for name, relevant in given["measures"].items():
        choose(SCORES, name, "study.rule.measures")
        if not 0 <= relevant < math.inf:
            raise UserError(
                f"study.rule.measures.{name}={relevant} must be at least 0 and finite: the "
                f"smallest difference that matters."
            )
    sides = {}
    for side in ("supported", "refuted"):
        sides[side] = [
            build(entry, f"study.rule.{side}[{i}]") for i, entry in enumerate(given[side])
        ]
        if not sides[side]:
            raise UserError(
                f"study.rule.{side} is empty; a claim needs what would make it {side}: a "
                f"condition, {{is: better}} for one."
            )
    against, pairs = given["against"], [(a, b) for a, b in study["pairs"]]
    if against is not None:
        if pairs:
            raise UserError(
                f"study.rule.against={against} and study.pairs both say what is compared; leave "
                f"one out."
            )
        if against not in encodings:
            raise RuleMismatch(not_trained("study.rule.against", [against], encodings))
        pairs = [(pe, against) for pe in encodings if pe != against]
    claim = given["claim"].strip().rstrip(".")
    rule = Rule(claim, given["each"], given["measures"], **sides,
                tasks=tasks, encodings=encodings, pairs=pairs)  # fmt: skip
    validate_rule(rule, against, len(study["seeds"]))
    return rule


def build(entry: Given, key: str) -> dict[str, Any]:
    """Check the keys of a condition, and fill in those that are not given."""
    name = str(dict(entry).get("is"))
    kind = choose(CONDITIONS, name, f"{key}.is")
    subjects = {"pairs": list[list[str]]} if kind.of == "pair" else {"encodings": list[str]}
    lists: list[Any] = [
        (word, of, field(default_factory=list))
        for word, of in {**subjects, "tasks": list[str]}.items()
    ]
    single = {"least": int, "most": int, **kind.keys}
    schema = make_dataclass(name, [*lists, *((k, of | None, None) for k, of in single.items())])
    return {"is": name, **typed(schema, {k: v for k, v in entry.items() if k != "is"}, key)}


def validate_rule(rule: Rule, against: str | None, seeds: int) -> None:
    """Refuse a rule that cannot be decided."""
    places = [
        (f"study.rule.{side}[{i}]", given)
        for side in ("supported", "refuted")
        for i, given in enumerate(getattr(rule, side))
    ]
    own = {CONDITIONS[given["is"]].of for _, given in places if not named(given)}
    for word in {*rule.each, *(["pair"] if against else [])} - {"task"} - own:
        raise UserError(
            f"study.rule is of every {word}, and each of its conditions names its own; leave "
            f"study.rule.each or study.rule.against out."
        )
    if "pair" in own and not rule.pairs:
        raise RuleMismatch(
            "study.rule compares pairs, and there are none; name them in study.pairs, or name "
            "study.rule.against."
        )
    if not rule.measures and any(uses_measures(given) for _, given in places):
        raise UserError(
            f"study.rule.measures is empty; name what is compared, of {', '.join(SCORES)}, and the "
            f"smallest difference that matters: {{exact_match: 0.01}}."
        )
    for key, given in places:
        validate_condition(rule, key, given)
    if seeds < 2:
        raise RuleMismatch(
            "study.rule asks for intervals over seeds, and study.seeds names fewer than two."
        )
    for key, given in places:
        if (given.get("seeds") or 0) > seeds:
            raise RuleMismatch(
                f"{key}.seeds={given['seeds']}, and study.seeds names {seeds}; lower it."
            )
    validate_floors(rule)


def named(given: Given) -> list[Any]:
    """The pairs or encodings that a condition names; empty for those of the study."""
    return list(given.get("pairs") or given.get("encodings") or [])


def uses_measures(given: Given) -> bool:
    """True if a condition reads the measures of its rule."""
    return CONDITIONS[given["is"]].test in ("differs", "alike") or given["is"] == "at_least"


def validate_condition(rule: Rule, key: str, given: Given) -> None:
    """Refuse unknown names, and a condition that is always or never met."""
    axis, subjects = CONDITIONS[given["is"]].of, named(given)
    pairs = subjects if axis == "pair" else []
    if any(len(pair) != 2 or len(set(pair)) != 2 for pair in pairs):
        raise UserError(f"{key}.pairs holds a pair that is not two encodings: [t5, none].")
    encodings = list(itertools.chain(*pairs)) if pairs else subjects
    alike_named = [frozenset(pair) for pair in pairs] if pairs else subjects
    for word, names in (("task", given["tasks"]), (axis, alike_named)):
        if names and word in rule.each or len(set(names)) < len(names):
            raise UserError(
                f"{key} names one {word} twice, or it names its {word}s where study.rule.each "
                f"judges every {word} by itself; leave one out."
            )
    for names, known in ((given["tasks"], rule.tasks), (encodings, rule.encodings)):
        if missing := sorted(set(names) - set(known)):
            raise RuleMismatch(not_trained(key, missing, known))
    if given["is"] == "alike" and not all(rule.measures.values()):
        raise UserError(
            f"{key} asks for differences smaller than what matters, and by study.rule.measures any "
            f"difference does; give each measure a size above 0."
        )
    if given["is"] == "at_least" and not math.isfinite(given["value"] or math.nan):
        raise UserError(f"{key}.value is not given; say at least what.")
    if given["is"].endswith("_training") and "reach" not in rule.measures:
        raise UserError(f"{key} asks for reach; name it in study.rule.measures.")
    case = rule.cases()[0]
    times = len(given["tasks"] or case.tasks) * len(case.subjects(given))
    least, most = bounds(given, times)
    if not 0 <= least <= most <= times or (least, most) == (0, times):
        raise RuleMismatch(
            f"{key} is asked {times} times, so that least={given['least']} and "
            f"most={given['most']} are met always or never; choose others."
        )


def validate_floors(rule: Rule) -> None:
    """Refuse a rule that praises an encoding by comparison alone."""
    # These measures are interpreted only if the trained lengths are learned.
    learned = bool(rule.measures) and all(SCORES[name].unseen for name in rule.measures)
    for i, given in enumerate(rule.supported):
        praise = CONDITIONS[given["is"]].floor
        if not praise or given["floor"] is not None or given["most"] == 0:
            continue
        if not (uses_measures(given) and learned) and not any(
            is_floor(rule, other, given) for other in rule.supported
        ):
            raise UserError(
                f"study.rule.supported[{i}] praises by comparison alone, and what is better than "
                f"something bad may be bad: give it a floor, or add an at_least."
            )


def is_floor(rule: Rule, other: Given, praise: Given) -> bool:
    """True if ``other`` sets a minimum for every praised encoding."""
    if other["is"] not in ("at_least", "past_training"):
        return False
    praised = {a for a, _ in named(praise) or rule.pairs}
    tasks = set(praise["tasks"] or rule.tasks)
    return praised <= set(named(other) or rule.encodings) and tasks <= set(
        other["tasks"] or rule.tasks
    )


def validate_tasks(rule: Rule, tasks: Mapping[str, Task]) -> None:
    """Refuse a condition on a task that lacks what the condition needs."""
    for given in rule.conditions:
        for name in given["tasks"] or rule.tasks:
            if lacking := lacks(tasks[name], given, rule.measures):
                raise RuleMismatch(
                    f"study.rule asks for {lacking} on {name}, which has none; name the tasks of "
                    f"that condition, or leave this one out."
                )


def lacks(task: Task, given: Given, measures: Mapping[str, float]) -> str:
    """Name what a condition needs and a task lacks, if anything."""
    kind = CONDITIONS[given["is"]]
    if not kind.needs(task):
        return kind.lacking
    for name in measures if uses_measures(given) else ():
        needed = has_longer_tests(task) if SCORES[name].unseen else True
        if not needed or (name in ("bleu", "chrf") and not task.translates):
            return SCORES[name].label
    return ""


def not_trained(key: str, missing: Sequence[str], known: Sequence[str]) -> str:
    """The error message for names that are not in the grid."""
    return (
        f"{key} asks for {', '.join(missing)}, which is not trained; the study has "
        f"{', '.join(known)}."
    )
