"""A study's rule: supported, refuted or unclear from hand-made results, or refused."""

import functools
import math
from typing import Any

import pytest
import scipy.stats
from conftest import configure
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from wawa_transformer.common.schema import UserError
from wawa_transformer.data.text import build_task
from wawa_transformer.lab.conditions import CONDITIONS
from wawa_transformer.lab.judging import Measured, ahead, judge
from wawa_transformer.lab.results import over_splits
from wawa_transformer.lab.rules import Misfit, Rule, build, headline
from wawa_transformer.lab.study import rule_of as rule_of_study
from wawa_transformer.run.run_dir import Run
from wawa_transformer.run.schema import StudyConfig

Seeds = dict[int, float]
WORSE = {"is": "worse", "pairs": [["a", "b"]]}


def about(mean: float, spread: float = 0.01) -> Seeds:
    """Five seeds around a mean; half their interval is 2.776 · 1.58 · spread / √5 ≈ 2 spread."""
    return {seed: mean + spread * step for seed, step in enumerate((-2, -1, 0, 1, 2))}


def mirrored(mean: float, spread: float = 0.01) -> Seeds:
    """As many, spread the other way, so that a difference has a spread of its own."""
    return about(mean, -spread)


def better(*pairs: str) -> dict[str, Any]:
    """The condition, of pairs of one letter each."""
    return {"is": "better", "floor": 0.0, "pairs": [list(pair) for pair in pairs]}


BETTER = better("ab")


def rule_of(
    supported: Any = (BETTER,),
    refuted: Any = (WORSE,),
    encodings: str = "abc",
    tasks: str = "tu",
    seeds: int = 5,
    pairs: Any = (),
    **rule: Any,
) -> Rule:
    given = {"claim": "It helps.", "measures": {"exact_match": 0.01}}
    given |= {"supported": list(supported), "refuted": list(refuted)} | rule
    study = OmegaConf.merge(
        OmegaConf.structured(StudyConfig), {"rule": given, "pairs": list(pairs)}
    )
    return Rule.of(study, list(encodings), list(tasks), seeds)  # type: ignore[arg-type]


def verdicts(rule: Rule, **tasks: Measured) -> list[str]:
    return [outcome.verdict for outcome in rule.decide(tasks)]


def exact(**values: Seeds) -> Measured:
    return Measured({"exact_match": values}, longest=10)


def reaching(reach: Seeds, learned: float = 1.0) -> Measured:
    exact_match = {"a": about(learned, 0.0)}
    return Measured({"exact_match": exact_match, "reach": {"a": reach}}, longest=10)


def sentences(*tests: tuple[str, str, float, float | None]) -> Measured:
    rows = [
        {"seed": seed, "a": a, "b": b, "difference": gap, "p": p}
        for seed, (a, b, gap, p) in enumerate(tests)
    ]
    return Measured({"bleu": dict.fromkeys("abc", about(30.0))}, tests=rows)


HIGH, LOW = about(0.9), mirrored(0.5)
AT = (0.2, 0.01)  # a ceiling and its standard error: ± 0.0088 on five splits
# For each condition: its settings, where it holds, where it does not, and where nothing tells.
CASES: dict[str, tuple[dict[str, Any], list[Measured], list[Measured], list[Measured]]] = {
    "better": (
        {"floor": 0.0},
        [exact(a=HIGH, b=LOW)],
        [exact(a=LOW, b=HIGH), exact(a=HIGH, b=HIGH), exact(a=about(0.509, 1e-4), b=about(0.5, 0))],
        [exact(a=HIGH), exact(a={0: 0.9}, b={0: 0.5}), exact(a=about(math.nan), b=LOW)],
    ),
    "worse": (
        {},
        [exact(a=LOW, b=HIGH)],
        [exact(a=HIGH, b=LOW), exact(a=LOW, b=LOW)],
        [exact(a={0: 0.5}, b={0: 0.9})],
    ),
    "differs": (
        {},
        [exact(a=LOW, b=HIGH), exact(a=HIGH, b=LOW)],
        [exact(a=about(0.5), b=mirrored(0.51))],
        [exact(b=HIGH)],
    ),
    "alike": (
        {},
        [exact(a=about(0.5, 0.001), b=mirrored(0.501, 0.001))],
        [exact(a=about(0.5), b=mirrored(0.5)), exact(a=HIGH, b=HIGH)],
        [exact(a={0: 0.5}, b={0: 0.5})],
    ),
    "at_least": (
        {"value": 0.9},
        [exact(a=about(0.9001, 0.1))],
        [exact(a=about(0.8999, 0.0001))],
        [exact(b=HIGH), exact(a=about(math.nan))],
    ),
    "at_least in seeds": (
        {"value": 0.9, "seeds": 2},
        [exact(a={0: 0.9, 1: 0.95, 2: 0.1})],
        [exact(a={0: 0.99, 1: 0.89, 2: 0.89}), exact(a={0: 0.99})],
        [exact(b=HIGH)],
    ),
    "above_ceiling": (
        {},
        [Measured({"exact_match": {"a": about(0.209)}}, ceiling=AT)],
        [Measured({"exact_match": {"a": about(0.208)}}, ceiling=AT)],
        [Measured({"exact_match": {"a": about(0.209)}}), Measured({}, ceiling=AT)],
    ),
    "past_training": (
        {},
        [reaching(about(12, 0.5)), reaching(about(11, 0.0))],
        [reaching(about(12, 1.5)), reaching(about(10.9, 0.1)), reaching(about(10, 0.0))],
        [reaching(about(20), learned=0.94), reaching({0: 20})],
    ),
    "within_training": (
        {},
        [reaching(about(10, 3)), reaching(about(9, 0.0))],
        [reaching(about(10.2, 3))],
        [reaching(about(3), learned=0.94), reaching({})],
    ),
    "ahead": (
        {"floor": 0.0},
        [sentences(("a", "b", 1.0, 0.01), ("b", "a", -0.5, 0.02))],
        [sentences(("a", "b", 1.0, 0.01), ("a", "b", 0.5, 0.06)),
         sentences(("b", "a", 1.0, 0.01), ("b", "a", 0.5, 0.01)),
         sentences(("a", "b", 1.0, 0.01), ("a", "b", 0.5, None))],
        [sentences(("a", "b", 1.0, 0.01)), sentences(("a", "c", 1.0, 0.01), ("a", "c", 1.0, 0.01))],
    ),
    "behind": (
        {},
        [sentences(("b", "a", 1.0, 0.01), ("a", "b", -0.5, 0.02))],
        [sentences(("b", "a", 1.0, 0.01), ("b", "a", 0.5, 0.06)),
         sentences(("a", "b", 1.0, 0.01), ("a", "b", 0.5, 0.01)),
         sentences(("a", "b", -1.0, 0.01), ("a", "b", -0.5, None))],
        [sentences(("b", "a", 1.0, 0.01)), sentences(("a", "c", 1.0, 0.01), ("a", "c", 1.0, 0.01))],
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", sorted(CASES))
def test_each_condition_supports_refutes_and_leaves_unclear(kind: str) -> None:
    """The same condition on either side, and its opposite; what cannot be told meets neither."""
    settings, holds, fails, untold = CASES[kind]
    kind = kind.split()[0]
    of = {"pairs": [["a", "b"]]} if CONDITIONS[kind].axis == "pair" else {"encodings": ["a"]}
    condition = {"is": kind, **of, **settings}
    measures: dict[str, Any] = {"exact_match": 0.01} if CONDITIONS[kind].compares else {}
    if kind.endswith("training"):
        measures = {"reach": 1}
    rule = functools.partial(rule_of, tasks="t", measures=measures)
    never = {"is": "at_least", "encodings": ["a"], "value": 1e9}
    if not measures:
        never = {"is": "ahead", "floor": 0.0, "pairs": [["c", "a"]], "least": 1}
    supports = rule(supported=[condition], refuted=[never])
    refutes = rule(supported=[never], refuted=[condition])
    opposite = rule(supported=[condition | {"most": 0}], refuted=[never])
    for told, of_it, against, without in (
        (holds, "supported", "refuted", "unclear"),
        (fails, "unclear", "unclear", "supported"),
        (untold, "unclear", "unclear", "unclear"),
    ):
        for task in told:
            assert verdicts(supports, t=task) == [of_it], task
            assert verdicts(refutes, t=task) == [against], task
            assert verdicts(opposite, t=task) == [without], task
    assert OmegaConf.create(str(build(condition, ""))) == condition


@settings(max_examples=100)
@given(st.lists(st.floats(-0.02, 0.02), min_size=2, max_size=9), st.integers(1, 4))
def test_alike_is_two_one_sided_tests(gaps: list[float], of: int) -> None:
    """Schuirmann 1987, by scipy: neither margin is reached, each at 2.5% over the comparisons."""
    assume(max(gaps) - min(gaps) > 1e-6)
    above, below = (
        scipy.stats.ttest_1samp(gaps, margin, alternative=side).pvalue
        for margin, side in ((-0.01, "greater"), (0.01, "less"))
    )
    pair = exact(a=dict(enumerate(gaps)), b=dict.fromkeys(range(len(gaps)), 0.0))
    alike, _ = build({"is": "alike"}, "").holds(("a", "b"), pair, {"exact_match": 0.01}, of)
    assert alike == (max(above, below) < 0.025 / of)


def test_refuted_comes_first_and_support_needs_every_condition() -> None:
    both = rule_of(supported=[BETTER], refuted=[BETTER | {"least": 1}])
    good, bad = exact(a=HIGH, b=LOW), exact(a=LOW, b=HIGH)
    assert verdicts(both, t=good, u=good) == ["refuted"]
    rule = rule_of(supported=[BETTER, {"is": "at_least", "encodings": ["a"], "value": 0.8}])
    assert verdicts(rule, t=good, u=good) == ["supported"]
    assert verdicts(rule, t=bad, u=bad) == ["refuted"]
    assert verdicts(rule, t=good, u=bad) == ["unclear"], "on every task"
    less = exact(a=about(0.7), b=LOW)
    [outcome] = rule.decide({"t": less, "u": less})
    assert outcome.verdict == "unclear"
    assert outcome.reasons[0].startswith("not met: {is: at_least, encodings: [a], value: 0.8} (t:")
    assert verdicts(rule, t=good) == ["unclear"], "a task without a run supports nothing"


def test_conditions_are_counted() -> None:
    """At least three of four pairs, none the other way; what is unknown may be either."""
    pairs = [[x, "z"] for x in "abcd"]
    rule = rule_of(
        [{"is": "better", "floor": 0.0, "least": 3}, {"is": "worse", "most": 0}],
        [{"is": "worse", "least": 3}],
        "abcdz", "t", pairs=pairs,
    )  # fmt: skip
    base = {"z": mirrored(0.5)}

    def outcome(**means: float) -> str:
        runs = {pe: about(mean) if mean else {} for pe, mean in means.items()}
        return verdicts(rule, t=exact(**runs, **base))[0]

    assert rule.comparisons == 4
    assert outcome(a=0.9, b=0.9, c=0.9, d=0.5) == "supported"
    assert outcome(a=0.9, b=0.9, c=0.5, d=0.5) == "unclear"
    assert outcome(a=0.9, b=0.9, c=0.9, d=0.1) == "unclear", "one is worse"
    assert outcome(a=0.9, b=0.9, c=0.9, d=0) == "unclear", "one may be worse"
    assert outcome(a=0.9, b=0.1, c=0.1, d=0.1) == "refuted"


def test_intervals_are_corrected_for_the_pairs_that_the_rule_compares() -> None:
    """A difference that its own interval shows and one of twelve does not."""
    barely = exact(**{pe: about(0.525) for pe in "abcdefghijkl"}, z=about(0.5, 0.0))
    every = {"each": ["pair"], "against": "z", "tasks": "t"}
    conditions = {"supported": [{"is": "better", "floor": 0.0}], "refuted": [{"is": "worse"}]}
    alone = rule_of(encodings="az", **conditions, **every)  # type: ignore[arg-type]
    many = rule_of(encodings="abcdefghijklz", **conditions, **every)  # type: ignore[arg-type]
    assert (alone.comparisons, many.comparisons) == (1, 12)
    assert OmegaConf.create(many.written()) == {"measures": {"exact_match": 0.01}, **conditions}
    assert verdicts(alone, t=barely) == ["supported"]
    assert verdicts(many, t=barely) == ["unclear"] * 12


def test_each_judges_tasks_pairs_and_encodings_by_themselves() -> None:
    conditions = [{"is": "better", "floor": 0.0}], [{"is": "worse"}]
    rule = rule_of(*conditions, pairs=[["a", "c"], ["b", "c"]], each=["task", "pair"])
    outcomes = rule.decide({"t": exact(a=HIGH, b=LOW, c=LOW), "u": exact(a=LOW, b=HIGH, c=HIGH)})
    assert [(o.case.label, o.verdict) for o in outcomes] == [
        ("a on t", "supported"), ("b on t", "unclear"), ("a on u", "refuted"), ("b on u", "unclear")
    ]  # fmt: skip
    said = "upported for a on t; refuted for a on u; unclear for b on t, for b on u: It helps."
    assert headline(rule, outcomes) == f"S{said}"
    missing = headline(rule, outcomes, missing=2)
    assert missing == f"Not final, since 2 runs are missing; s{said}"
    twice = rule_of(*conditions, pairs=[["a", "b"], ["a", "c"]], each=["pair"])
    assert [case.label for case in twice.cases()] == ["a − b", "a − c"]
    at_least = {"is": "at_least", "value": 0.8}
    encodings = rule_of([at_least], [at_least | {"most": 0}], each=["encoding"])
    found = encodings.decide(dict.fromkeys("tu", exact(a=HIGH, b=LOW, c=about(0.8))))
    assert headline(encodings, found) == "Supported for a, c; refuted for b: It helps."


@pytest.mark.parametrize(
    ("change", "sentence", "misfit"),
    [
        ({"supported": []}, "study.rule.supported is empty; a claim needs what would", False),
        ({"measures": {}}, "study.rule.measures is empty; name what is compared", False),
        ({"each": ["pair"]}, "study.rule is of every pair, and each of its conditions", False),
        ({"against": "c", "pairs": [["a", "b"]]}, "both say what is compared", False),
        ({"supported": [BETTER | {"leest": 1}]}, "[0].leest does not exist (did you mean", False),
        ({"supported": [better("ab", "ba")]}, "names one pair twice", False),
        ({"supported": [better("aa")]}, "holds a pair that is not two encodings", False),
        ({"supported": [{"is": "past_training"}]}, "asks for reach; name it in", False),
        (
            {"supported": [{"is": "alike", "pairs": [["a", "b"]]}], "measures": {"exact_match": 0}},
            "asks for differences smaller than what matters",
            False,
        ),
        ({"each": ["task"], "supported": [BETTER | {"tasks": ["t"]}]}, "names its tasks", False),
        ({"supported": [better("ax")]}, "asks for x, which is not trained", True),
        ({"supported": [{"is": "better"}]}, "compares pairs, and there are none", True),
        ({"supported": [BETTER | {"least": 3}]}, "is asked 2 times, so that least=3", True),
        ({"supported": [{"is": "at_least", "value": 1, "seeds": 9}]}, "seeds=9, and study.", True),
        ({"seeds": 1}, "study.seeds names fewer than two", True),
    ],
)
def test_a_rule_that_cannot_be_decided_is_refused(
    change: dict[str, Any], sentence: str, misfit: bool
) -> None:
    """Or does not fit its grid, which another grid would."""
    with pytest.raises(UserError) as refused:
        rule_of(**change)
    assert sentence in str(refused.value) and isinstance(refused.value, Misfit) == misfit


def test_praise_needs_a_floor() -> None:
    """Of the condition, of another one for the same encoding, or of what is measured."""
    pair = {"pairs": [["a", "b"]]}
    praise, floor = {"is": "better", **pair}, {"is": "at_least", "value": 0.95}
    sentences = {"refuted": [{"is": "behind", **pair}], "measures": {}}
    for supported, more in (
        ([praise], {"measures": {"exact_match": 0.01, "reach": 1.0}}),
        ([praise, floor | {"encodings": ["b"]}], {}),
        ([{"is": "ahead", **pair}], sentences),
    ):
        with pytest.raises(UserError, match="praises by comparison alone.* give it a floor"):
            rule_of(supported, **more)
    for supported, more in (
        ([praise, floor | {"encodings": ["a"]}], {}),
        ([praise], {"measures": {"beyond": 0.01}}),  # read where the trained are learned
        ([{"is": "ahead", "floor": 30, **pair}], sentences),
        ([{"is": "differs", **pair}], {}),  # no praise
    ):
        rule_of(supported, **more)
    rule = rule_of([praise | {"floor": 0.95}], tasks="t")
    for mean, verdict in ((0.227, "unclear"), (0.96, "supported")):
        [outcome] = rule.decide({"t": exact(a=about(mean, 0.001), b=mirrored(0.016, 0.001))})
        assert outcome.verdict == verdict
        assert ("below the floor 0.95" in outcome.reasons[0]) == (verdict == "unclear")


@pytest.mark.parametrize(
    ("condition", "lacking", "settings"),
    [
        ({"is": "above_ceiling", "encodings": ["a"]}, "a ceiling without positions on sort", {}),
        ({"is": "past_training", "encodings": ["a"]}, "reach on short", {"measures": {"reach": 1}}),
        ({"is": "ahead", "floor": 0.0, "pairs": [["a", "b"]]}, "translations on", {}),
        (BETTER, "BLEU on", {"measures": {"bleu": 0}}),
        (BETTER, "exact match at unseen lengths", {"measures": {"beyond": 0}}),
    ],
)
def test_a_task_has_what_is_asked_of_it(
    condition: dict[str, Any], lacking: str, settings: dict[str, Any]
) -> None:
    """A ceiling, longer tests, translations; where the condition names tasks, of these alone."""
    tasks = {
        "letters": build_task(configure("task=letters")),
        "short": build_task(configure("task=letters", "task.test_max_length=10")),
        "sort": build_task(configure("task=sort")),
        "text": build_task(configure("task=multi30k")),
    }

    def check(condition: dict[str, Any], *names: str) -> None:
        given = {"supported": [condition], "refuted": [condition | {"most": 0}]} | settings
        study = {"rule": {"claim": "It.", **given}}
        made = OmegaConf.merge(OmegaConf.structured(StudyConfig), study)
        Rule.of(made, list("ab"), list(names), 2).check_tasks(tasks)  # type: ignore[arg-type]

    with pytest.raises(Misfit, match=f"asks for {lacking}.*, which has none"):
        check(condition, "short", "sort")
    has = "text" if condition["is"] == "ahead" or "bleu" in str(settings) else "letters"
    check(condition | {"tasks": [has]}, has, "sort")


def test_another_grid_than_the_rules_goes_unjudged_if_the_command_line_asks_for_it() -> None:
    """Else a rule that does not fit is refused; and so is one that the command line gives."""
    config = configure("study=lookup")
    one = configure("study=lookup", "task=nth", "pe=none")
    jobs = {Run.of(one): one}
    grid = ["study.task=[nth]", "study.pe=[none]"]
    why = "asks for sinusoidal, which is not trained; the study has none."
    assert rule_of_study(config, [*grid, "model.d_model=32"], jobs) == (
        None,
        f"Not judged, since {' '.join(grid)} is not the study of the rule: "
        f"study.rule.supported[0] {why}",
    )
    for overrides in (["study=lookup"], [*grid, "study.rule.claim=x"]):
        with pytest.raises(UserError, match=f"{why} study.rule=null trains without a rule"):
            rule_of_study(config, overrides, jobs)
    config.study.rule = None
    assert rule_of_study(config, [], jobs) == (None, "")


def test_what_no_condition_shows_by_itself() -> None:
    """A pair named in both orders is one; p is corrected; what is not read is not alike."""
    both_orders = rule_of([better("ab")], [{"is": "worse", "pairs": [["b", "a"]]}])
    assert both_orders.comparisons == 1
    found = [(1.0, 0.03), (0.5, 0.03)]
    assert ahead(found, of=1) is True and ahead(found, of=2) is False
    values = {"a": {0: 0.94, 1: 0.97}, "b": {0: 0.90, 1: 0.99}}
    task = Measured({"exact_match": values})
    assert task.read("reach", "a") and not task.read("reach", "b"), "the mean decides"
    near = {"a": about(0.5, 0.001), "b": mirrored(0.501, 0.001)}
    alike = build({"is": "alike", "pairs": [["a", "b"]]}, "key")
    measures = {"exact_match": 0.01, "reach": 1000.0}
    unread = Measured({"exact_match": near, "reach": {"a": about(9), "b": mirrored(9)}})
    assert alike.holds(("a", "b"), unread, measures, 1)[0] is None
    found = judge(("a", "b"), {"reach": 1.0}, unread)
    assert found.shown == "reach not compared: not both encodings learned the trained lengths"
    assert found.verdict == "unclear" and not found.known
    # Errors of independent splits add by their squares.
    assert over_splits([(0.2, 0.01), (0.4, 0.03)]) == pytest.approx((0.3, 0.0005**0.5))
