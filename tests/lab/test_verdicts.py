"""A study's rule: supported, refuted or unclear from hand-made scores, or refused."""

import functools
import math
import shlex
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from planted import about, frame_of, mirrored, results_of, rule, study_of
from support import configure

from wawa_transformer.common.messages import UserError
from wawa_transformer.data.tasks import Task, build_task
from wawa_transformer.lab import claims, comparisons, rules, scores
from wawa_transformer.lab.claims import CONDITIONS
from wawa_transformer.lab.comparisons import PairTests
from wawa_transformer.lab.rules import RuleMismatch
from wawa_transformer.lab.scores import Scores
from wawa_transformer.lab.study import rule_of
from wawa_transformer.lab.weaknesses import weaknesses
from wawa_transformer.run.compose import compose
from wawa_transformer.run.run_dir import Run

WORSE = {"is": "worse", "pairs": [["a", "b"]]}


def better(*pairs: str) -> dict[str, Any]:
    """The condition, of pairs of one letter each."""
    return {"is": "better", "floor": 1e-9, "pairs": [list(pair) for pair in pairs]}


BETTER = better("ab")


def read(
    supported: Any = (BETTER,),
    refuted: Any = (WORSE,),
    encodings: str = "abc",
    tasks: str = "tu",
    seeds: int = 5,
    pairs: Any = (),
    **more: Any,
) -> claims.Rule:
    given = rule(list(supported), list(refuted), **more)
    study = {"rule": given, "pairs": list(pairs), "seeds": list(range(seeds))}
    return rules.read_rule(study, list(encodings), list(tasks))


def scored(tests: Any = (), ceiling: float = 1.0, **tasks: pd.DataFrame) -> Scores:
    """A study of these frames, trained to length 10; ``ceiling`` has an error of 0.01 a split."""
    frame = pd.concat([f.rename({"t": task}, level="task") for task, f in tasks.items()])
    runs = {(str(task), str(pe)): lambda n, s: 1.0 for task, pe, _ in frame.index}
    results = results_of(runs or {("t", "a"): lambda n, s: 1.0}, lengths=range(10, 12))
    results["ceiling"], results["examples"] = ceiling, 1600
    rows = pd.DataFrame(
        [
            {"task": "t", "seed": seed, "a": a, "b": b, "difference": gap, "p": p}
            for seed, (a, b, gap, p) in enumerate(tests)
        ],
        columns=["task", "seed", "a", "b", "difference", "p"],
    )
    return Scores(study_of(results, tests=rows), frame)


def decide(given: claims.Rule, task: Scores) -> list[claims.Outcome]:
    return claims.decide(given, comparisons.compare(task, given.asked(), given.measures))


def verdicts(given: claims.Rule, task: Scores) -> list[str]:
    return [outcome.verdict for outcome in decide(given, task)]


def compared(made: Scores, *tests: str, **measures: float) -> PairTests:
    """The comparisons of a with b."""
    return comparisons.compare(
        made, [(test, "t", ("a", "b")) for test in tests or ["differs"]], measures
    )


def exact(**values: Any) -> Scores:
    return scored(t=frame_of(exact_match=values))


def both(t: Any, u: Any) -> Scores:
    return scored(t=frame_of(exact_match=t), u=frame_of(exact_match=u))


def reaching(reach: Any, learned: float = 1.0) -> Scores:
    return scored(t=frame_of(exact_match={"a": about(learned, 0)}, reach={"a": reach}))


def sentences(*tests: tuple[str, str, float, float | None], seeds: int = 0) -> Scores:
    """Runs of as many seeds as there are tests, unless ``seeds`` says more."""
    bleu = {seed: 30.0 + seed / 100 for seed in range(seeds or len(tests))}
    return scored(tests, t=frame_of(bleu=dict.fromkeys("abc", bleu)))


def blind(mean: Any = None, ceiling: float = 0.2) -> Scores:
    return scored(ceiling=ceiling, t=frame_of(exact_match={"a": mean} if mean else {"b": HIGH}))


HIGH, LOW = about(0.9), mirrored(0.5)
# For each condition: its settings, where it holds, where it does not, and where nothing tells.
Case = tuple[dict[str, Any], list[Scores], list[Scores], list[Scores]]
CASES: dict[str, Callable[[], Case]] = {
    "better": lambda: (
        {"floor": 1e-9},
        [exact(a=HIGH, b=LOW)],
        [exact(a=LOW, b=HIGH), exact(a=HIGH, b=HIGH), exact(a=about(0.509, 1e-4), b=about(0.5, 0))],
        [exact(a=HIGH), exact(a={0: 0.9}, b={0: 0.5}), exact(a=about(math.nan), b=LOW)],
    ),
    "worse": lambda: (
        {"floor": 1e-9},
        [exact(a=LOW, b=HIGH)],
        [exact(a=HIGH, b=LOW), exact(a=LOW, b=LOW)],
        [exact(a={0: 0.5}, b={0: 0.9})],
    ),
    "differs": lambda: (
        {},
        [exact(a=LOW, b=HIGH), exact(a=HIGH, b=LOW)],
        [exact(a=about(0.5), b=mirrored(0.51))],
        [exact(b=HIGH)],
    ),
    "alike": lambda: (
        {},
        [exact(a=about(0.5, 0.001), b=mirrored(0.501, 0.001))],
        [exact(a=about(0.5), b=mirrored(0.5)), exact(a=HIGH, b=HIGH)],
        [exact(a={0: 0.5}, b={0: 0.5})],
    ),
    "at_least": lambda: (
        {"value": 0.9},
        [exact(a=about(0.9001, 0.1))],
        [exact(a=about(0.8999, 0.0001))],
        [exact(b=HIGH), exact(a=about(math.nan))],
    ),
    "at_least in seeds": lambda: (
        {"value": 0.9, "seeds": 2},
        [exact(a={0: 0.9, 1: 0.95, 2: 0.1})],
        [exact(a={0: 0.99, 1: 0.89, 2: 0.89}), exact(a={0: 0.99})],
        [exact(b=HIGH)],
    ),
    "above_ceiling": lambda: (
        {},
        [blind(about(0.209))],  # 0.2 + 1.96 · 0.01 / √5 = 0.2088
        [blind(about(0.208))],
        [blind(about(0.209), ceiling=1.0), blind()],
    ),
    "past_training": lambda: (
        {},
        [reaching(about(12, 0.5)), reaching(about(11, 0.0))],
        [reaching(about(12, 1.5)), reaching(about(10.9, 0.1)), reaching(about(10, 0.0))],
        [reaching(about(20), learned=0.94), reaching({0: 20}),
         scored(t=frame_of(exact_match={"a": {0: 1.0}}, reach={"a": {0: 20}}))],
    ),
    "within_training": lambda: (
        {},
        [reaching(about(10, 3)), reaching(about(9, 0.0))],
        [reaching(about(10.2, 3))],
        [reaching(about(3), learned=0.94), reaching({})],
    ),
    "ahead": lambda: (
        {"floor": 1e-9},
        [sentences(("a", "b", 1.0, 0.01), ("b", "a", -0.5, 0.02))],
        [sentences(("a", "b", 1.0, 0.01), ("a", "b", 0.5, 0.06)),
         sentences(("b", "a", 1.0, 0.01), ("b", "a", 0.5, 0.01)),
         sentences(("a", "b", 1.0, 0.01), ("b", "a", 0.5, 0.01)),
         sentences(("a", "b", 1.0, 0.01), ("a", "b", 0.5, 0.01), seeds=3),
         sentences(("a", "b", 1.0, 0.01), ("a", "b", 0.5, None))],
        [sentences(("a", "b", 1.0, 0.01)), sentences(("a", "c", 1.0, 0.01), ("a", "c", 1.0, 0.01))],
    ),
    "behind": lambda: (
        {"floor": 1e-9},
        [sentences(("b", "a", 1.0, 0.01), ("a", "b", -0.5, 0.02))],
        [sentences(("b", "a", 1.0, 0.01), ("b", "a", 0.5, 0.06)),
         sentences(("a", "b", 1.0, 0.01), ("a", "b", 0.5, 0.01)),
         sentences(("a", "b", -1.0, 0.01), ("a", "b", -0.5, None))],
        [sentences(("b", "a", 1.0, 0.01)), sentences(("a", "c", 1.0, 0.01), ("a", "c", 1.0, 0.01))],
    ),
}  # fmt: skip


def test_every_condition_has_cases() -> None:
    assert {name.split()[0] for name in CASES} == CONDITIONS.keys()


@pytest.mark.parametrize("kind", sorted(CASES))
def test_each_condition_supports_refutes_and_leaves_unclear(kind: str) -> None:
    """The same condition on either side, and its opposite; what cannot be told meets neither."""
    settings, holds, fails, untold = CASES[kind]()
    kind = kind.split()[0]
    of = {"pairs": [["a", "b"]]} if CONDITIONS[kind].of == "pair" else {"encodings": ["a"]}
    condition = {"is": kind, **of, **settings}
    measures: dict[str, Any] = {"reach": 1} if kind.endswith("training") else {"exact_match": 0.01}
    never = {"is": "better", "floor": 1e-9, "pairs": [["c", "a"]], "least": 1}
    if kind in ("ahead", "behind"):
        measures, never = {}, never | {"is": "ahead"}
    given = functools.partial(read, tasks="t", measures=measures)
    supports = given(supported=[condition], refuted=[never])
    refutes = given(supported=[never], refuted=[condition])
    opposite = given(supported=[condition | {"most": 0}], refuted=[never])
    for told, of_it, against, without in (
        (holds, "supported", "refuted", "unclear"),
        (fails, "unclear", "unclear", "supported"),
        (untold, "unclear", "unclear", "unclear"),
    ):
        for task in told:
            assert verdicts(supports, task) == [of_it], task.frame
            assert verdicts(refutes, task) == [against], task.frame
            assert verdicts(opposite, task) == [without], task.frame


def test_refuted_comes_first_and_support_needs_every_condition() -> None:
    same = read(supported=[BETTER], refuted=[BETTER | {"floor": 0.1, "least": 1}])
    good, bad = {"a": HIGH, "b": LOW}, {"a": LOW, "b": HIGH}
    assert verdicts(same, both(good, good)) == ["refuted"]
    given = read(supported=[BETTER, {"is": "at_least", "encodings": ["a"], "value": 0.8}])
    assert verdicts(given, both(good, good)) == ["supported"]
    assert verdicts(given, both(bad, bad)) == ["refuted"]
    assert verdicts(given, both(good, bad)) == ["unclear"], "on every task"
    less = {"a": about(0.7), "b": LOW}
    [outcome] = decide(given, both(less, less))
    assert outcome.verdict == "unclear"
    assert [(each.met, each.holds, each.checks) for each in outcome.answers] == [
        (True, 2, 2), (False, 0, 2), (False, 0, 2)
    ]  # fmt: skip
    assert verdicts(given, exact(a=HIGH, b=LOW)) == ["unclear"], "a task without a run"


def test_conditions_are_counted() -> None:
    """At least three of four pairs, none the other way; what is unknown may be either."""
    pairs = [[x, "z"] for x in "abcd"]
    given = read(
        [{"is": "better", "floor": 1e-9, "least": 3}, {"is": "worse", "most": 0}],
        [{"is": "worse", "least": 3}],
        "abcdz", "t", pairs=pairs,
    )  # fmt: skip

    def outcome(**means: float) -> str:
        runs = {pe: about(mean) for pe, mean in means.items() if mean}
        return verdicts(given, exact(**runs, z=mirrored(0.5)))[0]

    assert outcome(a=0.9, b=0.9, c=0.9, d=0.5) == "supported"
    assert outcome(a=0.9, b=0.9, c=0.5, d=0.5) == "unclear"
    assert outcome(a=0.9, b=0.9, c=0.9, d=0.1) == "unclear", "one is worse"
    assert outcome(a=0.9, b=0.9, c=0.9, d=0) == "unclear", "one may be worse"
    assert outcome(a=0.9, b=0.1, c=0.1, d=0.1) == "refuted"


@pytest.mark.parametrize(
    ("first", "second", "size"),
    [(0.3, 0.2, 0.1), (0.9, 0.8, 0.1), (0.95, 0.9, 0.05), (0.57, 0.56, 0.01), (1.1, 1.0, 0.1)],
)
def test_rounding_does_not_decide_at_the_size_that_counts(
    first: float, second: float, size: float
) -> None:
    """In floats 0.3 − 0.2 is below 0.1; the difference counts, and one that is smaller does not."""
    for less, word in ((0.0, "better"), (1e-6, "small")):
        made = exact(a=about(first - less, 1e-5), b=about(second, 2e-5))
        [row] = compared(made, exact_match=size).comparisons.to_dict("records")
        assert row["word"] == word and row["corrected"] < 1e-4
    # The same holds for a floor, for a value to be reached, and for reach past the trained length.
    sums = about(first - second, 1e-5)
    for given in ({"is": "at_least", "value": size}, {"is": "better", "floor": size}):
        given |= {"pairs": [["a", "b"]]} if "floor" in given else {"encodings": ["a"]}
        never = {"is": "better", "floor": 1e-9, "pairs": [["c", "a"]], "least": 1}
        held = read([given], [never], tasks="t")
        assert verdicts(held, exact(a=sums, b=mirrored(-1.0))) == ["supported"], given
    far = {seed: value - second + 10 for seed, value in about(first, 1e-5).items()}
    past = [{"is": "past_training", "encodings": ["a"]}]
    within = [{"is": "within_training", "encodings": ["a"]}]
    held = read(past, within, tasks="t", measures={"reach": size})
    assert verdicts(held, reaching(far)) == ["supported"]


def test_one_correction_counts_every_test_that_a_verdict_rests_on() -> None:
    """Over pairs, tasks and measures; not over pairs that are named and not compared."""
    barely = {pe: about(0.525) for pe in "bcdefghijkl"} | {"a": about(0.5, 0.0)}
    conditions = [{"is": "better", "floor": 1e-9}], [{"is": "worse"}]
    every = functools.partial(read, *conditions, each=["task", "pair"], against="a")
    alone, many = every("ab", "t"), every("abcdefghijkl", "t")
    assert verdicts(alone, exact(**barely)) == ["supported"]
    assert verdicts(many, exact(**barely)) == ["unclear"] * 11
    pair = {"a": barely["a"], "b": barely["b"]}
    tasks = {task: frame_of(exact_match=pair) for task in "tuv"}  # p = 0.024
    assert verdicts(every("ab", "tuv"), scored(**tasks)) == ["unclear"] * 3
    assert verdicts(every("ab", "t"), scored(**tasks)) == ["supported"]
    two = every("ab", "tu", measures={"exact_match": 0.01, "all_sources": 0.01})
    frames = {task: frame_of(exact_match=pair, all_sources=pair) for task in "tu"}
    assert verdicts(two, scored(**frames)) == ["unclear"] * 2
    assert verdicts(every("ab", "tu"), scored(**frames)) == ["supported"] * 2
    # Named in study.pairs, and no condition compares them.
    worse = {"is": "worse", "pairs": [["b", "a"]]}
    named = read([better("ba")], [worse], "abcdefghijkl", "t", pairs=[["c", "d"], ["e", "f"]])
    assert len(named.asked()) == 1 and verdicts(named, exact(**barely)) == ["supported"]


def test_a_pair_has_one_verdict_in_both_orders() -> None:
    """One test, whose word turns round with the pair."""
    given = read([better("ab")], [WORSE | {"pairs": [["b", "a"]], "floor": 0.6}], tasks="t")
    made = exact(a=HIGH, b=LOW)
    found = comparisons.compare(made, given.asked(), given.measures)
    assert len(found.comparisons) == 1
    assert comparisons.verdict(found, "t", ("a", "b")) == "better"
    assert comparisons.verdict(found, "t", ("b", "a")) == "worse"
    assert comparisons.verdict(found, "t", ("a", "c")) is None
    [one], [other] = (
        found.of_pair("differs", "t", pair).to_dict("records") for pair in (("a", "b"), ("b", "a"))
    )
    assert [-other[key] for key in ("mean", "high", "low")] == [
        one["mean"],
        one["low"],
        one["high"],
    ]
    assert decide(given, made)[0].verdict == "refuted"


@pytest.mark.parametrize(
    ("kind", "praised", "least", "metric"),
    [("better", 0, 0.6, "exact_match"), ("worse", 1, 0.6, "exact_match"),
     ("ahead", 0, 30, "bleu"), ("behind", 1, 30, "bleu")],
)  # fmt: skip
def test_a_floor_is_that_of_the_praised_encoding(
    kind: str, praised: int, least: float, metric: str
) -> None:
    """The better one must reach it, and the other one need not."""
    best, other = ("a", "b") if praised == 0 else ("b", "a")
    tests = [(best, other, 1.0, 0.01)] * 5
    holds, never = (
        [{"is": kind, "floor": least, "pairs": [[*pair]], "least": 1}] for pair in ("ab", "ac")
    )
    measures = {metric: 0.01} if metric == "exact_match" else {}
    given = read(holds, never, tasks="t", measures=measures)
    for factor, found in ((1.1, "supported"), (0.9, "unclear")):
        values = {best: about(least * factor), other: mirrored(least / 2)}
        frame = frame_of(**{metric: values})
        assert verdicts(given, scored(tests, t=frame)) == [found]


def test_a_pair_that_is_better_in_one_measure_and_worse_in_another_is_mixed() -> None:
    """And where one of two measures is not read, the other decides."""
    exact_match = {"a": about(0.97, 0.001), "b": mirrored(0.99, 0.001)}
    for low, word in ((0.0, "mixed"), (0.1, "worse")):
        learned = {pe: {s: v - low for s, v in seeds.items()} for pe, seeds in exact_match.items()}
        made = scored(t=frame_of(exact_match=learned, beyond={"a": HIGH, "b": LOW}))
        found = compared(made, "differs", "alike", exact_match=0.01, beyond=0.01)
        assert comparisons.verdict(found, "t", ("a", "b")) == word
        unread = found.comparisons[found.comparisons["word"] == "unread"]
        assert len(unread) == (2 if low else 0) and unread["corrected"].isna().all()
    held = CONDITIONS["alike"].holds(found, "t", ("a", "b"), {})
    assert held is None, "what is not read is not alike"
    alone = compared(made, beyond=0.01)
    assert comparisons.verdict(alone, "t", ("a", "b")) is None, "and no verdict rests on it"


def test_what_is_alike_in_one_measure_of_two_is_not_alike() -> None:
    near = {"a": about(0.5, 0.001), "b": mirrored(0.501, 0.001)}
    made = scored(t=frame_of(exact_match=near, all_sources={"a": HIGH, "b": LOW}))
    for measures, held in ((("exact_match",), True), (("exact_match", "all_sources"), False)):
        found = compared(made, "alike", **dict.fromkeys(measures, 0.01))
        assert CONDITIONS["alike"].holds(found, "t", ("a", "b"), {}) is held


@pytest.mark.parametrize(
    ("a", "b", "word"),
    [
        ({}, HIGH, "missing"),
        ({0: 1.0}, {0: 0.5}, "one_seed"),
        ({0: 0.3, 1: 0.2}, {0: 0.3, 1: 0.2}, "equal"),
        ({0: 0.3, 1: 0.2}, {0: 0.2, 1: 0.1}, "equal"),
        (about(math.nan), HIGH, "missing"),
        (HIGH | {0: math.nan}, HIGH, "not_finite"),
        (HIGH, mirrored(0.91), "no_difference"),
        (HIGH, LOW, "better"),
        (LOW, HIGH, "worse"),
    ],
)
def test_a_comparison_has_one_word(a: Any, b: Any, word: str) -> None:
    """It says why nothing is shown. A lower loss is better."""
    found = compared(exact(a=a, b=b), exact_match=0.0)
    assert found.comparisons["word"].tolist() == [word]
    loss = compared(scored(t=frame_of(nll={"a": a, "b": b})), nll=0.0)
    turned = {"better": "worse", "worse": "better"}
    assert loss.comparisons["word"].tolist() == [turned.get(word, word)]


def test_a_seed_counts_that_reaches_the_value_in_every_measure() -> None:
    """And one that lacks a measure does not."""
    exact_match, all_sources = dict.fromkeys(range(3), 0.9), {0: 0.9, 1: 0.1}
    made = scored(t=frame_of(exact_match={"a": exact_match}, all_sources={"a": all_sources}))
    found = compared(made, exact_match=0.01, all_sources=0.01)
    assert claims.seeds_reaching(found, "t", "a", 0.5) == (1, 3)


def test_each_judges_tasks_pairs_and_encodings_by_themselves() -> None:
    conditions = [{"is": "better", "floor": 1e-9}], [{"is": "worse"}]
    given = read(*conditions, pairs=[["a", "c"], ["b", "c"]], each=["task", "pair"])
    outcomes = decide(
        given, both({"a": HIGH, "b": LOW, "c": LOW}, {"a": LOW, "b": HIGH, "c": HIGH})
    )
    assert [(o.case.pair, o.case.task, o.verdict) for o in outcomes] == [
        (("a", "c"), "t", "supported"), (("b", "c"), "t", "unclear"),
        (("a", "c"), "u", "refuted"), (("b", "c"), "u", "unclear"),
    ]  # fmt: skip
    at_least = {"is": "at_least", "value": 0.8}
    encodings = read([at_least], [at_least | {"most": 0}], each=["encoding"], tasks="t")
    found = decide(encodings, exact(a=HIGH, b=LOW, c=about(0.8)))
    assert [(o.case.encoding, o.verdict) for o in found] == [
        ("a", "supported"), ("b", "refuted"), ("c", "supported")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "sentence", "misfit"),
    [
        ({"supported": []}, "study.rule.supported is empty; a claim needs what would", False),
        ({"measures": {}}, "study.rule.measures is empty; name what is compared", False),
        ({"measures": {"exact": 0.1}}, "study.rule.measures=exact does not exist", False),
        ({"measures": {"nll": -1}}, "must be at least 0 and less than", False),
        ({"measures": {"exact_match": 1}}, "less than 1, the largest difference", False),
        ({"each": ["task", "task"]}, "study.rule.each names a word twice", False),
        ({"each": ["encoding", "pair"]}, "every pair beside every encoding", False),
        (
            {"supported": [WORSE | {"floor": 0.5}] * 2, "refuted": [WORSE | {"floor": 0.5}]},
            "study.rule.refuted[0] is met wherever study.rule.supported[0] is, so the",
            False,
        ),
        ({"each": ["seed"]}, "study.rule.each=seed does not exist", False),
        ({"each": ["pair"]}, "study.rule is of every pair, and each of its conditions", False),
        ({"against": "c", "pairs": [["a", "b"]]}, "both say what is compared", False),
        ({"supported": [{"is": "bettter"}]}, "is=bettter does not exist; choose one of", False),
        ({"supported": [BETTER | {"leest": 1}]}, "[0].leest does not exist (did you mean", False),
        ({"supported": [BETTER | {"least": "x"}]}, "study.rule.supported[0].least", False),
        ({"supported": [better("ab", "ba")]}, "names one pair twice", False),
        ({"supported": [better("aa")]}, "holds [a, a]; a pair is two encodings", False),
        ({"supported": [{"is": "past_training"}]}, "asks for reach; name it in", False),
        ({"supported": [{"is": "at_least"}]}, "value is not given; give what at_least", False),
        ({"supported": [{"is": "at_least", "value": 95}]}, "exact match of at least 95, wh", False),
        ({"supported": [BETTER | {"floor": 95}]}, "which must be above 0 and at most 1;", False),
        ({"supported": [BETTER | {"floor": 0}]}, "exact match of at least 0, which must", False),
        ({"supported": [BETTER | {"floor": math.nan}]}, "of at least nan, which must", False),
        ({"supported": [{"is": "at_least", "value": -3}]}, "of at least -3, which must", False),
        ({"supported": [{"is": "at_least", "value": math.inf}]}, "at least inf, which", False),
        ({"supported": [{"is": "at_least", "value": 1, "seeds": 0}]}, "seeds=0 must be at", False),
        (
            {"supported": [{"is": "at_least", "value": 0.9}], "measures": {"nll": 0.01}},
            "which is better where it is lower",
            False,
        ),
        (
            {"supported": [{"is": "alike", "pairs": [["a", "b"]]}], "measures": {"exact_match": 0}},
            "asks for differences smaller than what matters",
            False,
        ),
        ({"each": ["task"], "supported": [BETTER | {"tasks": ["t"]}]}, "names its tasks", False),
        ({"supported": [BETTER | {"tasks": ["t", "t"]}]}, "names one task twice", False),
        ({"supported": [BETTER | {"tasks": ["x"]}]}, "asks for x, which is not trained", True),
        ({"supported": [better("ax")]}, "asks for x, which is not trained", True),
        ({"against": "x", "supported": [{"is": "better"}]}, "asks for x, which is not", True),
        ({"supported": [{"is": "better"}]}, "compares pairs, and there are none", True),
        ({"supported": [BETTER | {"least": 3}]}, "is asked 2 times, so that least=3", True),
        ({"supported": [BETTER | {"least": 0}]}, "are met always or never", True),
        ({"supported": [{"is": "at_least", "value": 1, "seeds": 9}]}, "seeds=9, and study.", True),
        ({"seeds": 1}, "study.seeds names fewer than two", True),
    ],
)
def test_a_rule_that_cannot_be_decided_is_refused(
    change: dict[str, Any], sentence: str, misfit: bool
) -> None:
    """Or does not fit its grid, which another grid would."""
    with pytest.raises(UserError) as refused:
        read(**change)
    assert sentence in str(refused.value) and isinstance(refused.value, RuleMismatch) == misfit


def least(value: float, *encodings: str, **more: Any) -> dict[str, Any]:
    return {"is": "at_least", "value": value, "encodings": list(encodings), **more}


@pytest.mark.parametrize(("learned", "verdict"), [(0.96, "supported"), (0.94, "unclear")])
def test_a_value_at_unseen_lengths_counts_where_the_trained_are_learned(
    learned: float, verdict: str
) -> None:
    given = read([least(0.5, "a")], [WORSE], tasks="t", measures={"beyond": 0.01})
    made = scored(t=frame_of(exact_match={"a": about(learned, 0)}, beyond={"a": HIGH}))
    assert verdicts(given, made) == [verdict]


DIFFERS = {"is": "differs", "pairs": [["b", "a"]]}


@pytest.mark.parametrize(
    ("supported", "refuted", "refused"),
    [
        (BETTER, WORSE | {"pairs": [["b", "a"]]}, True),
        (BETTER, DIFFERS, True),
        (BETTER | {"floor": 0.9}, BETTER | {"floor": 0.5}, True),
        (least(0.9, "a"), least(0.5, "a"), True),
        (least(0.9, "a"), least(0.5, "a", least=1), True),
        (least(0.9, "a", "b"), least(0.9, "b", tasks=["t"]), True),
        (least(0.9, "a", seeds=3), least(0.5, "a", seeds=2), True),
        (least(0.9, "a", "b", most=0), least(0.9, "a", "b", most=1), True),
        (BETTER, WORSE, False),
        (DIFFERS, BETTER, False),
        (BETTER, BETTER | {"floor": 0.5}, False),
        (least(0.9, "a"), least(0.95, "a"), False),
        (least(0.9, "a"), least(0.5, "a", most=0), False),
        (least(0.9, "a"), least(0.9, "a", "b"), False),
        (least(0.9, "a", "b", least=1), least(0.5, "b"), False),
        (least(0.9, "a", seeds=3), least(0.5, "a"), False),
        (least(0.9, "a", seeds=5), least(0.5, "a"), False),
        (least(0.9, "a"), least(0.5, "a", seeds=2), False),
    ],
)
def test_a_claim_that_its_own_support_refutes_is_refused(
    supported: dict[str, Any], refuted: dict[str, Any], refused: bool
) -> None:
    """In other words, of fewer tasks or encodings, or with a smaller number."""
    if not refused:
        read([supported], [refuted])
        return
    with pytest.raises(UserError, match="refuted.0. is met wherever study.rule.supported.0. is"):
        read([supported], [refuted])


def test_of_a_key_of_ones_own_nobody_knows_which_number_asks_for_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only conditions that are equal are said to be met together."""
    own = claims.Kind(lambda *_: True, "encoding", keys={"spread": float})
    monkeypatch.setitem(claims.CONDITIONS, "steady", own)
    steady = {"is": "steady", "encodings": ["a"], "spread": 0.1}
    for spread in (0.05, 0.2):
        read([steady], [steady | {"spread": spread}])
    with pytest.raises(UserError, match="refuted.0..spread is not given; give what steady asks"):
        read([steady], [steady | {"spread": None}])
    with pytest.raises(UserError, match="refuted.0. is met wherever study.rule.supported.0. is"):
        read([steady], [steady])


def test_a_condition_of_ones_own_says_yes_or_no(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Python or numpy write it; whatever else is refused, and does not count as no."""
    given = {"is": "closer", "tasks": [], "pairs": [], "least": None, "most": None}
    case = claims.Case(["t"], [("a", "b")], ["a", "b"])
    for value, holds in ((True, 1), (np.True_, 1), (np.False_, 0), (None, 0)):
        own = claims.Kind(lambda *_, value=value: value, "pair")
        monkeypatch.setitem(claims.CONDITIONS, "closer", own)
        assert claims.answer("supported", given, case, None).holds == holds
    monkeypatch.setitem(claims.CONDITIONS, "closer", claims.Kind(lambda *_: 0.5, "pair"))
    with pytest.raises(UserError, match=r"condition closer returns 0.5; return True or False"):
        claims.answer("supported", given, case, None)


def test_a_condition_of_ones_own_takes_the_place_of_no_other() -> None:
    """A copied function that has kept the name would decide the rules of the other one."""
    before = dict(CONDITIONS)
    for register in (claims.condition("at_least", of="encoding"), claims.pair_condition):
        with pytest.raises(UserError, match="two conditions are called (at_least|better); give"):
            register("better")
        assert before == CONDITIONS


def test_a_condition_on_pairs_without_a_test_is_in_no_correction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(claims.CONDITIONS, "closer", claims.Kind(lambda *_: True, "pair"))
    closer = {"is": "closer", "pairs": [["a", "b"]]}
    assert read([closer], [closer | {"most": 0}]).asked() == []


ALIKE = {"is": "alike", "pairs": [["a", "b"]]}
AHEAD = {"is": "ahead", "floor": 30, "pairs": [["a", "b"]]}
REACH = {"measures": {"reach": 1.0}}


@pytest.mark.parametrize(
    ("one", "other", "more", "refused"),
    [
        (BETTER, ALIKE, {}, True),
        (ALIKE, DIFFERS, {}, True),
        (BETTER, WORSE, {}, True),
        (AHEAD, AHEAD | {"pairs": [["b", "a"]]}, {}, True),
        (BETTER, BETTER | {"most": 0, "floor": None}, {}, True),
        (least(0.5, "a"), least(0.4, "a", most=0), {}, True),
        (least(0.5, "a", "b", least=3), least(0.4, "a", "b", most=2), {}, True),
        ({"is": "past_training"}, {"is": "within_training", "encodings": ["b"]}, REACH, True),
        (BETTER | {"least": 1}, ALIKE | {"least": 1}, {}, False),
        (BETTER, ALIKE | {"pairs": [["b", "c"]]}, {}, False),
        (least(0.5, "a"), least(0.6, "a", most=0), {}, False),
        (least(0.5, "a", "b", least=2), least(0.4, "a", "b", most=2), {}, False),
        ({"is": "past_training", "least": 3}, {"is": "within_training", "least": 3}, REACH, False),
    ],
)
def test_conditions_that_are_never_met_together_are_refused(
    one: Any, other: Any, more: Any, refused: bool
) -> None:
    """Of one check, or by counting, in either order; conditions of several checks may differ."""
    for supported in ([one, other], [other, one]):
        if not refused:
            read(supported, [WORSE], **more)
            continue
        with pytest.raises(UserError, match="are never met together"):
            read(supported, [least(0.1, "a", most=0)], **more)


def test_praise_needs_a_floor() -> None:
    """Of the condition, of another one for the same encoding, or of what is measured."""
    pair = {"pairs": [["a", "b"]]}
    praise, floor = {"is": "better", **pair}, {"is": "at_least", "value": 0.95}
    translated = {"refuted": [{"is": "behind", **pair}], "measures": {}}
    for supported, more in (
        ([praise], {"measures": {"exact_match": 0.01, "reach": 1.0}}),
        ([praise, floor | {"encodings": ["b"]}], {}),
        ([{"is": "ahead", **pair}], translated),
        ([{"is": "worse", **pair}], {"refuted": [praise]}),  # which praises b
        ([{"is": "worse", **pair}, floor | {"encodings": ["a"]}], {"refuted": [praise]}),
        ([praise, floor | {"encodings": ["a"], "most": 0}], {}),  # which asks a to be bad
        ([praise, floor | {"encodings": ["a"], "least": 1}], {}),  # on one task of two
    ):
        with pytest.raises(UserError, match="praises by comparison alone.* give it a floor"):
            read(supported, **more)
    for supported, more in (
        ([praise, floor | {"encodings": ["a"]}], {}),
        ([praise], {"measures": {"beyond": 0.01}}),  # read where the trained are learned
        ([AHEAD], translated),
        ([{"is": "differs", **pair}], {}),  # no praise
        ([{"is": "worse", **pair, "floor": 0.95}], {"refuted": [praise]}),
    ):
        read(supported, **more)
    given = read([praise | {"floor": 0.95}], tasks="t")
    for mean, verdict in ((0.227, "unclear"), (0.96, "supported")):
        assert verdicts(given, exact(a=about(mean, 0.001), b=mirrored(0.016, 0.001))) == [verdict]


def test_a_ceiling_is_the_encodings_own() -> None:
    """Whichever stands first: an encoder with a mask may see an order without positions."""
    given = read([{"is": "above_ceiling", "encodings": ["a"]}], [WORSE], tasks="t")
    for encodings in ({"a": HIGH, "b": HIGH}, {"b": HIGH, "a": HIGH}):
        made = scored(ceiling=0.2, t=frame_of(exact_match=encodings))
        results = made.study.results
        assert verdicts(given, made) == ["supported"]
        for pe, verdict in (("a", "unclear"), ("b", "supported")):
            known = results.assign(ceiling=results["ceiling"].where(results["pe"] != pe))
            assert verdicts(given, Scores(study_of(known), made.frame)) == [verdict], pe
            assert scores.ceiling(study_of(known), "t") is not None, "a page shows the other's"


def test_a_rule_says_how_many_comparisons_it_makes() -> None:
    """Each pair on each task in each measure, once for a difference and once for equivalence.

    Translations are compared by their sentences alone, and a pair is the same in both orders.
    """
    settings = {pe: {"kind": pe} for pe in "abc"}
    for supported, measures, count in (
        ([better("ab")], {"exact_match": 0.01}, 2),
        ([better("ab", "ac")], {"exact_match": 0.01, "reach": 1.0}, 8),
        ([ALIKE], {"exact_match": 0.01}, 4),
        ([AHEAD], {"exact_match": 0.01, "reach": 1.0}, 6),
        ([DIFFERS], {"exact_match": 0.01}, 2),
    ):
        given = read(supported, [WORSE], measures=measures)
        assert weaknesses(given, {"encodings": settings})[0] == ("rule_makes", {"n": count})


def test_a_rule_whose_equivalence_cannot_fail_is_warned_about() -> None:
    """A margin as large as the baseline: before the runs if nothing asks for more, and after."""
    settings = {pe: {"kind": pe} for pe in "abc"}
    floor = {"is": "at_least", "encodings": ["b"], "value": 0.2}
    measures = {"exact_match": 0.1}

    def keys(given: claims.Rule, found: PairTests | None = None) -> list[str]:
        return [key for key, _ in weaknesses(given, {"encodings": settings}, found)]

    weak = read([ALIKE], [WORSE], tasks="t", measures=measures)
    assert keys(weak) == ["rule_makes", "rule_no_floor"]
    assert keys(read([ALIKE, floor], [WORSE], measures=measures)) == ["rule_makes"]
    assert keys(read([ALIKE], [WORSE], measures={"nll": 0.1})) == ["rule_makes"]
    both = ({**given, "tasks": ["t"]} for given in (ALIKE, floor))
    assert keys(read([*both], [WORSE], measures=measures)) == ["rule_makes"]
    for less in ({"value": 0.1}, {"encodings": ["a"]}, {"tasks": ["t"]}):
        again = read([ALIKE, floor | less], [WORSE], measures=measures)
        assert "rule_no_floor" in keys(again), less
    for mean, said in ((0.05, ["rule_at_floor"]), (0.1, ["rule_at_floor"]), (0.3, [])):
        made = exact(a=about(0.5, 0.001), b=about(mean, 0.0))
        found = comparisons.compare(made, weak.asked(), measures)
        assert keys(weak, found) == ["rule_made", *said]
        # An equality that refutes says as little.
        refuting = read([DIFFERS], [ALIKE], tasks="t", measures=measures)
        found = comparisons.compare(made, refuting.asked(), measures)
        assert keys(refuting) == ["rule_makes"] and keys(refuting, found) == ["rule_made", *said]


@pytest.mark.parametrize(
    ("a", "b", "things"),
    [
        ({"kind": "t5"}, {"kind": "t5", "cross": "same"}, []),
        ({"kind": "t5", "num_buckets": 8}, {"kind": "alibi", "slopes": 2}, []),
        ({"kind": "t5", "stride": 1}, {"kind": "t5", "stride": 3, "random_positions": 40}, []),
        ({"kind": "t5"}, {"kind": "t5", "divided": 30.0, "cross_divided": 10.0}, []),
        ({"kind": "t5"}, {"kind": "alibi", "cross": "same"}, ["kind", "cross"]),
        ({"kind": "t5"}, {"kind": "t6", "model.norm": "post"}, ["kind", "model.norm"]),
        ({"kind": "t5", "clip": 1}, {"kind": "t5", "clip": 2, "origin": "end"}, ["clip", "origin"]),
        ({"kind": "t5", "a": 1, "b": 2}, {"kind": "t5", "a": 2, "b": 1}, ["a", "b"]),
    ],
)
def test_arms_that_differ_in_more_than_one_thing_are_named(a: Any, b: Any, things: Any) -> None:
    said = [
        fill for key, fill in weaknesses(read(), {"encodings": {"a": a, "b": b}}) if "two" in key
    ]
    assert [each["keys"] for each in said] == ([", ".join(things)] if things else [])


def test_arms_with_equal_settings_are_named_with_a_rule_and_without() -> None:
    """Whatever they are called, and whether a rule compares them."""
    same = {"kind": "t5", "cross": "none"}
    arms = {"a": same | {"name": "a"}, "b": same | {"cross": "same"}, "c": same | {"name": "c"}}
    for given in (None, read(tasks="t")):
        assert weaknesses(given, {"encodings": arms})[-1] == ("equal_arms", {"a": "a", "b": "c"})
        assert weaknesses(given, {"encodings": {k: arms[k] for k in "ab"}})[1:] == []


@functools.cache  # since composing takes long
def task_of(*overrides: str) -> Task:
    return build_task(configure(*overrides))


@pytest.mark.parametrize(
    ("condition", "lacking", "measures"),
    [
        ({"is": "above_ceiling", "encodings": ["a"]}, "a ceiling without positions on sort", {}),
        ({"is": "past_training", "encodings": ["a"]}, "reach on short", {"reach": 1}),
        ({"is": "ahead", "floor": 1e-9, "pairs": [["a", "b"]]}, "BLEU on", {}),
        (BETTER, "BLEU on", {"bleu": 0}),
        ({"is": "at_least", "value": 15, "encodings": ["a"]}, "a reach of 15 on", {"reach": 1}),
        (BETTER, "a reach of 15 on short", {"reach": 15}),
        ({"is": "past_training", "encodings": ["a"]}, "a reach of 13 on near", {"reach": 3}),
        (BETTER, "exact match, unseen lengths on short", {"beyond": 0}),
    ],
)
def test_a_task_has_what_is_asked_of_it(
    condition: dict[str, Any], lacking: str, measures: dict[str, Any]
) -> None:
    """A ceiling, longer tests, translations; where the condition names tasks, of these alone."""
    tasks = {
        "letters": task_of("task=letters"),
        "near": task_of("task=letters", "task.test_max_length=12"),
        "short": task_of("task=letters", "task.test_max_length=10"),
        "sort": task_of("task=sort"),
        "text": task_of("task=multi30k"),
    }

    def check(condition: dict[str, Any], *names: str) -> None:
        given = rule([condition], [condition | {"most": 0}], measures=measures)
        study = {"rule": given, "pairs": [], "seeds": [0, 1]}
        rules.validate_tasks(rules.read_rule(study, list("ab"), list(names)), tasks, {"b"})

    with pytest.raises(RuleMismatch, match=f"asks for {lacking}.*, which has none"):
        check(condition, "near" if "near" in lacking else "short", "sort")
    has = "text" if condition["is"] == "ahead" or "bleu" in measures else "letters"
    check(condition | {"tasks": [has]}, has, "sort")
    if condition["is"] == "above_ceiling":  # of an encoding whose encoder has a mask
        with pytest.raises(RuleMismatch, match="a ceiling of b, which has none: under model.enc"):
            check(condition | {"encodings": ["a", "b"]}, "letters")


def test_default_pairs_are_all_or_those_with_the_sinusoid() -> None:
    """Declared pairs come first."""
    four, five = ["sinusoidal", "b", "c", "d"], ["a", "b", "sinusoidal", "c", "d"]
    assert len(comparisons.compared_pairs(four, [])) == 6
    assert comparisons.compared_pairs(five, []) == [(pe, "sinusoidal") for pe in "abcd"]
    assert len(comparisons.compared_pairs(list("abcde"), [])) == 10
    assert comparisons.compared_pairs(five, [["a", "b"]]) == [("a", "b")]


def test_a_rule_of_the_command_line_names_what_it_leaves_of_the_file(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Hydra mixes the two: of another study's file came ``each``, ``against`` and measures."""
    two = "supported: [{is: better, floor: 0.5}], refuted: [{is: worse}]"
    measures = "measures: {exact_match: 0.1}"
    for given, kept in (
        ([f"study.rule={{claim: x, {measures}, {two}}}"], "each, against"),
        ([f"study.rule={{{two}, each: [], measures: {{}}}}"], "claim, against, measures.exact_m"),
        ([f"study.rule={{{two}}}", "study.rule.each=[task]"], "claim, against, measures as it is"),
        ([f"study.rule={{claim: x, {measures}, {two}, each: [], against: learned}}"], ""),
        (["study.rule.claim=x"], ""),
        ([], ""),
    ):
        config = compose(["study=encodings", *given])
        one = [configure("task=letters", f"pe={pe}") for pe in ("sinusoidal", "learned")]
        rule_of(config, given, {Run.from_config(each): each for each in one})
        said = capsys.readouterr().err
        assert (f"leaves the study's own {kept}" in said) if kept else not said, said


def test_another_grid_than_the_rules_goes_unjudged_if_the_command_line_asks_for_it() -> None:
    """Else a rule that does not fit is refused; and so is one that the command line gives."""
    config = configure("study=lookup")
    one = configure("study=lookup", "task=nth", "pe=none")
    jobs = {Run.from_config(one): one}
    grid = ["study.task=[nth]", "study.pe=[none]"]
    quoted = "'study.task=[nth]' 'study.pe=[none]'"  # as a shell takes them
    why = "asks for sinusoidal, which is not trained; the study has none."
    assert rule_of(config, [*grid, "model.d_model=32"], jobs) == (
        None,
        f"{quoted} is outside the rule of the study: study.rule.supported[0].pairs {why}",
    )
    for own in (*grid, "study.seeds=[0]", "study.pairs=[[none,t5]]"):
        assert (rule_of(config, [own], jobs)[1]).startswith(f"{shlex.quote(own)} is outside the r")
    for overrides in (["study=lookup"], [*grid, "study.rule.claim=x"]):
        with pytest.raises(UserError, match=f"{why} study.rule=null trains without a rule"):
            rule_of(config, overrides, jobs)
    ceiling = {"is": "above_ceiling", "encodings": ["none"]}
    config.study.rule.supported = [ceiling]
    config.study.rule.refuted = [ceiling | {"most": 0}]
    one = configure("task=letters", "pe=none")
    jobs = {Run.from_config(one): one}
    assert rule_of(config, [], jobs)[0]
    one.model.encoder_mask = "causal"
    with pytest.raises(UserError, match="a ceiling of none, which has none: under model.encoder"):
        rule_of(config, [], jobs)
    config.study.rule = None
    assert rule_of(config, [], jobs) == (None, "")
