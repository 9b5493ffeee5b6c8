"""Scores of a frame, held against SciPy's own tests, against counting and against symmetry."""

import math
from contextlib import nullcontext
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from hypothesis import assume, example, given
from hypothesis import strategies as st
from planted import curves_of, frame_of, results_of, study_of, text_results

from wawa_transformer.common.messages import UserError
from wawa_transformer.lab import scores, statistics
from wawa_transformer.lab.statistics import Estimate, difference, equivalence, estimate

# Values apart from each other by more than rounding, so that shifting them loses nothing.
SAMPLES = st.lists(
    st.integers(-10_000, 10_000).map(lambda x: x / 1000), min_size=2, max_size=9
).filter(lambda values: len(set(values)) > 1)


@given(SAMPLES, st.randoms(use_true_random=False))
def test_a_difference_is_that_of_scipys_paired_test(values: list[float], random: Random) -> None:
    """Only seeds that both have are paired."""
    a = pd.Series(values)
    b = a + [random.choice([-1.0, -0.5, 0.25, 2.0]) for _ in values]
    result = difference(pd.concat([a, pd.Series({98: 0.0})]), pd.concat([pd.Series({99: 0.0}), b]))
    assert result.n == len(values) and result.mean == pytest.approx(np.mean(a - b))
    if not math.isnan(result.p):
        test = scipy.stats.ttest_rel(a, b)
        expected = test.confidence_interval(0.95)
        assert (result.low, result.high) == pytest.approx((expected.low, expected.high))
        assert result.half_width == pytest.approx(result.high - result.mean)
        assert result.p == pytest.approx(test.pvalue)


@given(st.lists(st.floats(-0.02, 0.02), min_size=2, max_size=9))
def test_equivalence_is_two_one_sided_tests(gaps: list[float]) -> None:
    """Schuirmann 1987, by scipy: twice the larger p, below 0.05 if the interval is inside."""
    assume(max(gaps) - min(gaps) > 1e-6)
    sides = (
        scipy.stats.ttest_1samp(gaps, margin, alternative=side).pvalue
        for margin, side in ((-0.01, "greater"), (0.01, "less"))
    )
    p = equivalence(pd.Series(gaps), pd.Series(0.0, index=range(len(gaps))), 0.01)
    assert p == pytest.approx(min(1, 2 * max(sides)))
    found = estimate(gaps)
    assert (p < 0.05) == (max(abs(found.low), abs(found.high)) < 0.01)


def test_seeds_of_equal_values_have_no_interval_and_no_p() -> None:
    """0.3 − 0.2 and 0.2 − 0.1 differ by rounding alone; equal seeds are never equivalence."""
    a, b = pd.Series([0.3, 0.2]), pd.Series([0.2, 0.1])
    found = difference(a, b)
    assert found.mean == pytest.approx(0.1) and math.isnan(found.low) and math.isnan(found.p)
    assert math.isnan(equivalence(a, a, 0.5))


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ([0.997, 0.998, 0.999], "0.998 ± 0.002"),
        ([0.99995, 1.0, 1.0, 1.0, 1.0], "1.000 ± <0.001"),
        ([0.5], "0.500"),
        ([1.0, 1.0, 1.0], "1.000"),
        ([0.1, math.nan], "–"),
        ([0.1, math.inf], "–"),
        ([], "–"),
    ],
)
def test_an_estimate_shows_an_interval_only_if_there_is_one(
    values: list[float], shown: str
) -> None:
    assert f"{estimate(values)}" == shown and estimate(values).n == len(values)


@given(st.integers(0, 12), st.integers(1, 12))
def test_a_share_of_seeds_has_the_exact_binomial_interval(count: int, n: int) -> None:
    assume(count <= n)
    expected = scipy.stats.binomtest(count, n).proportion_ci(0.95, method="exact")
    found = statistics.share(count, n)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert found.mean == count / n


@given(st.lists(st.floats(1e-6, 1), min_size=1, max_size=8))
@example([0.01, 0.04])  # by Bonferroni one
def test_holm_rejects_what_the_steps_of_the_paper_reject(p_values: list[float]) -> None:
    """Step down from the smallest; a test that could not be made does not count."""
    corrected = statistics.holm(pd.Series([*p_values, math.nan]))
    order, rejected = sorted(range(len(p_values)), key=p_values.__getitem__), set()
    for step, i in enumerate(order):
        if p_values[i] * (len(p_values) - step) >= 0.05:
            break
        rejected.add(i)
    assert {i for i in range(len(p_values)) if corrected[i] < 0.05} == rejected
    assert math.isnan(corrected.iloc[-1]) and corrected[: len(p_values)].ge(p_values).all()


# ------------------------------------------------------------------------------ scores of tables

WORSE_FAR = {("copy", "a"): lambda n, s: 1.0 if n <= 10 else 0.4, ("copy", "b"): lambda n, s: 0.8}


def test_scores_are_those_of_counting() -> None:
    """By examples at trained lengths, by tokens for NLL, each longer length once."""
    results = results_of(
        {("copy", "a"): lambda n, s: n / 20, ("copy", "b"): lambda n, s: max(0, 1 - n / 30)},
        seeds=range(2),
    )
    results["examples"] = results["length"] * 10
    results["tokens"] = results["examples"] * results["length"]
    results["nll"] = results["length"] / 4
    frame = scores.score_study(study_of(results[::-1])).frame  # rows have no order
    trained, longer = np.arange(1, 11), np.arange(11, 21)
    of_a = frame.loc[("copy", "a", 0)]
    assert of_a["exact_match"] == pytest.approx(np.average(trained / 20, weights=trained))
    assert of_a["nll"] == pytest.approx(np.average(trained / 4, weights=trained**2))
    assert of_a["beyond"] == pytest.approx(np.mean(longer / 20))
    assert of_a["just_beyond"] == pytest.approx(np.mean(longer[:5] / 20))  # 11 to 1.5 times 10
    assert of_a["reach"] == 0 and frame.loc[("copy", "b", 1), "reach"] == 15
    assert of_a["oracle"] == 1.0 and math.isnan(of_a["bleu"])
    older = scores.score_study(study_of(results.drop(columns="tokens"))).frame  # not counted then
    of_older = older.loc[("copy", "a", 0), "nll"]
    assert of_older == pytest.approx(np.average(trained / 4, weights=trained))


MEAN = scores.over_unseen("nll")


@pytest.mark.parametrize(
    "of",
    [
        lambda rows, longest: rows["nll"].mean(),
        lambda rows, longest: [*MEAN(rows, longest)],
        lambda rows, longest: rows.groupby(["pe", "seed"])["nll"].mean(),
        lambda rows, longest: MEAN(rows, longest).reset_index(drop=True),
        lambda rows, longest: MEAN(rows, longest).reset_index(),
        lambda rows, longest: MEAN(rows, longest).map(str),
    ],
)
def test_a_score_of_ones_own_is_a_number_for_each_run(of: Any, monkeypatch: Any) -> None:
    """One number would be every run's, and by another index no run would have any."""
    study = study_of(results_of(WORSE_FAR, seeds=range(2)))
    for mine, wrong in ((MEAN, False), (of, True)):
        monkeypatch.setitem(scores.SCORES, "far", scores.Score("far", "NLL", of=mine))
        with pytest.raises(UserError, match="SCORES: far computes") if wrong else nullcontext():
            assert scores.score_study(study).frame["far"].notna().all()


def test_a_score_of_ones_own_changes_no_other_and_is_computed() -> None:
    """It gets rows of its own; a name twice, or no function, is refused before any report."""

    def in_place(rows: pd.DataFrame, longest: int) -> pd.Series:
        rows["exact_match"] = 0.0
        return MEAN(rows, longest)

    study = study_of(results_of(WORSE_FAR, seeds=range(2)))
    before = scores.score_study(study).frame["reach"]
    with pytest.MonkeyPatch.context() as patch:
        own = {"far": scores.Score("far", "NLL", of=in_place)} | scores.SCORES
        patch.setattr(scores, "SCORES", own)
        assert scores.score_study(study).frame["reach"].equals(before)
    for name, said in (("reach", "names reach twice"), ("far", "far has no of")):
        with pytest.raises(UserError, match=said):
            scores.check_scores([*scores.TABLE_SCORES, scores.Score(name, "mine")])


def test_scores_rest_on_new_sources_if_every_run_has_counted_some() -> None:
    """Lengths without new sources do not count; where one run has none, all sources do."""
    results = results_of({("copy", "a"): lambda n, s: 1.0, ("copy", "b"): lambda n, s: 0.9})
    left = results["length"].map({1: 0, 2: 0, 3: 150}).fillna(200)
    new = results["exact_match"].where(left > 0) / 2
    counted = results.assign(
        examples_new=left, tokens_new=left * 2, exact_match_new=new, token_accuracy_new=0.1,
        nll_new=1.0, oracle_exact_match_new=0.1, ceiling_new=0.3,
    )  # fmt: skip
    study = study_of(counted)
    frame = scores.score_study(study).frame
    assert frame.loc[("copy", "b", 3), "exact_match"] == pytest.approx(0.45)
    assert frame.loc[("copy", "b", 3), "all_sources"] == pytest.approx(0.9)
    assert frame.loc[("copy", "b", 3), "nll"] == 1.0
    assert frame.loc[("copy", "b", 3), "beyond"] == pytest.approx(0.9)
    assert scores.seen_share(study, "copy") == pytest.approx(450 / 2000)
    of_all = results.query("trained")["ceiling"].mean()
    for sources, expected in (("new", 0.3), ("all", of_all)):
        most = scores.ceiling(study, "copy", sources)
        assert most and most.mean == pytest.approx(expected)
    none = (counted["pe"] == "a") & (counted["seed"] == 0)
    study = study_of(counted.assign(examples_new=counted["examples_new"].where(~none, 0)))
    assert not scores.rests_on_new(study, "copy")
    every = scores.score_study(study).frame
    assert every.loc[("copy", "b", 3), "exact_match"] == pytest.approx(0.9)
    most = scores.ceiling(study, "copy")
    assert most and most.mean == pytest.approx(of_all)


def test_a_text_counts_its_whole_test() -> None:
    bleu = pd.DataFrame({"task": "text", "pe": list("ab"), "seed": 0, "bleu": [30.0, 20.0]})
    study = study_of(text_results("ab"), bleu=bleu)
    frame = scores.score_study(study).frame
    assert frame["exact_match"].eq(0.1).all() and frame["beyond"].isna().all()
    assert frame.loc[("text", "a", 0), "bleu"] == 30.0
    assert scores.trained_lengths(study, "text") is None
    assert scores.unseen_lengths(study, "text") is None


def test_a_value_that_is_not_finite_is_never_averaged_away() -> None:
    """A diverged run leaves an empty cell, and a mean of its lengths or seeds has no value."""
    results = results_of(WORSE_FAR)
    bad = (results["pe"] == "a") & (results["seed"] == 2) & (results["length"] == 4)
    results["nll"] = results["nll"].where(~bad)
    made = scores.score_study(study_of(results))
    assert math.isnan(made.frame.loc[("copy", "a", 2), "nll"])
    found = made.mean("copy", "a", "nll")
    assert math.isnan(found.mean) and found.n == 5
    assert made.mean("copy", "b", "nll").mean > 0


def test_longer_lengths_are_interpreted_only_if_the_trained_ones_are_learned() -> None:
    """By the mean over seeds."""
    frame = frame_of(exact_match={"a": {0: 0.94, 1: 0.97}, "b": {0: 0.90, 1: 0.99}})
    made = scores.Scores(study_of(results_of({})), frame)
    assert made.interpretable("reach", "t", "a")
    assert not made.interpretable("reach", "t", "b")
    assert not made.interpretable("beyond", "t", "a", "b")
    assert made.interpretable("exact_match", "t", "b")


def test_the_ceiling_is_an_expectation_and_a_split_a_sample_of_it() -> None:
    """Against 20,000 draws of a model that is at the ceiling, on splits of two sizes.

    A ceiling of 1 has no chance.
    """
    results = results_of({("copy", "a"): lambda n, s: 1.0}, seeds=range(4), lengths=range(1, 4))
    results["examples"] = results["length"].map({1: 30, 2: 10, 3: 60})
    results["ceiling"] = results["length"].map({1: 1.0, 2: 0.5, 3: 0.1})
    sized = results.assign(examples=results["examples"] * (1 + 99 * (results["seed"] == 0)))
    found = scores.ceiling(study_of(sized), "copy")
    assert found is not None and found.n == 4
    random = np.random.default_rng(0)

    def drawn(k: int) -> np.ndarray:
        right = random.binomial(10 * k, 0.5, 20_000) + random.binomial(60 * k, 0.1, 20_000)
        return (30 * k + right) / (100 * k)

    means = (drawn(100) + drawn(1) + drawn(1) + drawn(1)) / 4
    assert found.mean == pytest.approx(means.mean(), rel=0.02)
    assert found.half_width == pytest.approx(1.96 * means.std(), rel=0.02)
    assert scores.ceiling(study_of(results.assign(ceiling=1.0)), "copy") is None
    unknown = results["ceiling"].where(results["length"] != 2)
    assert scores.ceiling(study_of(results.assign(ceiling=unknown)), "copy") is None
    empty = results["examples"].where(results["length"] != 2, 0)
    known = scores.ceiling(study_of(results.assign(ceiling=unknown, examples=empty)), "copy")
    assert known is not None and known.mean == pytest.approx((30 + 6) / 90)


# --------------------------------------------------------------------- learning curves and tuning


@pytest.mark.parametrize(
    ("nll", "still"),
    [
        (np.linspace(2, 1, 10), True),  # at one rate
        ([2, 1, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.01, 0.009], False),  # done
        ([2, 1.9, 1.8, 1.7, 1.6, 1.5, 1.4, 1.3, 1.0, 1.1], False),  # the last is not the lowest
        ([2, 1.5, 1, 1, 1, 1, 1, 1, 1, 0.94], True),  # 0.06 of 1.06
        ([2, 1.5, 1, 1, 1, 1, 1, 1, 1, 0.95], False),  # 0.05 of 1.05
        ([2, 1.5, 1, 1, 1, 1, 1, 1, 0.9, 0.9], True),  # in the last fifth, the ninth of ten
        ([2, 1.5, 1, 1, 1, 0.9, 0.9, 0.9, 0.9, 0.89], False),  # in the fifth before the last
        ([2, 1, 0.4, 1, 1, 1, 1, 1, 1, 0.4], False),  # no lower than before
        ([1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8, 1.9], False),  # rises
        ([1, math.nan, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, math.nan], False),
    ],
)
def test_a_run_still_improves_if_its_last_fifth_brought_a_twentieth(
    nll: list[float], still: bool
) -> None:
    steps = 100 * np.arange(1, 11)
    assert scores.still_improving(steps, np.asarray(nll, float)) is still
    assert not scores.still_improving(steps[:1], np.ones(1))


def test_the_area_is_the_mean_of_a_curve_over_training() -> None:
    """Of a line its middle, whatever the steps between and the order of the rows."""
    results = pd.concat([results_of({("copy", "a"): lambda n, s: 1.0}), text_results("a")])
    curves = curves_of(results)
    more = curves[curves["step"] == 100].assign(
        step=60, exact_match=0.6, token_accuracy=0.6, nll=0.9
    )
    found = scores.learning(study_of(results, curves=pd.concat([curves[::-1], more])))
    assert found["area"].to_numpy() == pytest.approx(0.75)
    assert found.loc[("copy", "a", 0), "improving"]
    alone = scores.learning(study_of(results, curves=curves[curves["step"] == 50]))
    assert alone["area"].eq(0.5).all() and not alone["improving"].any()
    # A text has hardly any exact match, and learns its tokens.
    other = scores.learning(study_of(results, curves=curves.assign(token_accuracy=0.25)))["area"]
    assert other["copy"].eq(0.75).all() and other["text"].eq(0.25).all()


@pytest.mark.parametrize(
    ("validation", "training", "harder"),
    [(0.5, 0.2, True), (0.06, 0.006, True), (0.3, 0.2, False), (0.015, 0.005, False)],
)
def test_validation_that_is_harder_than_training_is_found(
    validation: float, training: float, harder: bool
) -> None:
    """By the mean NLL of the last fifth of all runs, twice as large and by 0.02; not for a text."""
    alike = {("copy", pe): lambda n, s: 1.0 for pe in "ab"}
    results = pd.concat([results_of(alike), text_results("ab")])  # type: ignore[arg-type]
    early, late = (curves_of(results).query("step == @step") for step in (50, 100))
    early = early.assign(nll=9.0, train_nll=0.0)
    late = late.assign(nll=training, train_nll=training * late["seed"] / 2)  # a mean of training
    late["nll"] = (late["seed"] / 2 * validation).where(late["pe"] == "b", late["nll"])
    study = study_of(results, curves=pd.concat([early, late]))
    found = scores.harder_validation(study, "copy")
    assert list(found) == ["b"] * harder and not scores.harder_validation(study, "text")
    if harder:
        assert found["b"] == pytest.approx((validation, training))
    older = study.curves.drop(columns="train_nll")  # tables from before it was kept
    assert not scores.harder_validation(study_of(results, curves=older), "copy")


def tried(*values: tuple[str, float, int, float]) -> pd.DataFrame:
    """Rows of ``tuning.csv`` from encoding, rate, seed and NLL."""
    rows = [
        {"task": "copy", "pe": pe, "lr": lr, "warmup": 5, "seed": seed, "nll": nll}
        | {"exact_match": -nll}
        for pe, lr, seed, nll in values
    ]
    return pd.DataFrame(rows)


def test_the_lowest_mean_that_every_seed_finished_is_chosen() -> None:
    """Not the lowest single run, and no point at which a run ended in numbers that are none."""
    values = [("none", 0.1, 7, 0.0), ("none", 0.1, 8, 9.0), ("none", 0.2, 7, 3.0)]
    values += [("none", 0.2, 8, 3.0), ("none", 0.4, 7, 1.0), ("none", 0.4, 8, math.nan)]
    assert scores.best_points(tried(*values)) == {("copy", "none"): (0.2, 5)}
    with pytest.raises(UserError, match="trained to its end by none on copy with every seed"):
        scores.best_points(tried(("none", 0.1, 7, math.nan), ("none", 0.2, 7, math.nan)))


def test_whether_an_order_depends_on_the_rate() -> None:
    """By the paired interval at each point: both ways round, one, or none."""
    a = [("a", 0.1, 7, 1.0), ("a", 0.1, 8, 1.1), ("a", 0.2, 7, 3.0), ("a", 0.2, 8, 3.11)]
    b = [("b", 0.1, 7, 2.0), ("b", 0.1, 8, 2.11), ("b", 0.2, 7, 2.0), ("b", 0.2, 8, 2.1)]
    for metric in ("nll", "exact_match"):
        found = list(scores.orders_of(tried(*a, *b), [("a", "b")], metric))
        assert found == [("a", "b", {"first": 1, "second": 1, "of": 2})]
        [(_, _, counts)] = scores.orders_of(tried(*a[:2], *b[:2]), [("a", "b")], metric)
        assert counts == {"first": 1, "second": 0, "of": 1}
    noisy = tried(("a", 0.1, 7, 1.0), ("a", 0.1, 8, 4.0), ("b", 0.1, 7, 2.0), ("b", 0.1, 8, 2.0))
    [(_, _, counts)] = scores.orders_of(noisy, [("b", "a")], "nll")
    assert counts == {"first": 0, "second": 0, "of": 1}


def test_pictures_cut_an_interval_at_the_bounds_of_its_score() -> None:
    assert Estimate(0.99, 0.95, 1.03, 5).within(1) == (0.95, 1)
    assert estimate([1.0, 1.0]).within(1) == (1, 1)
    assert estimate([0.5]).within(None) == (0.5, 0.5)
    assert Estimate(-2, -3, 1, 5).within(None) == (-3, 1)  # a metric of one's own
