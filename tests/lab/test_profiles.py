"""Run against run, and how training went: held against counting, SciPy and theory."""

from __future__ import annotations

import itertools
import math
from statistics import NormalDist, fmean

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from wawa_transformer.lab.profiles import (
    area,
    bootstrap,
    improvement,
    learning,
    profile,
    still_improving,
)

SCORES = st.lists(st.integers(0, 5).map(float), min_size=1, max_size=6)


@given(SCORES, SCORES)
def test_improvement_on_one_task_is_the_mann_whitney_statistic(a: list[float], b: list[float]):
    """Ties count half, as SciPy's do."""
    found = improvement({"t": a}, {"t": b})
    assert found is not None and found.n == min(len(a), len(b))
    expected = scipy.stats.mannwhitneyu(a, b).statistic / (len(a) * len(b))
    assert found.mean == pytest.approx(expected)
    back = improvement({"t": b}, {"t": a})
    assert back is not None and back.mean == pytest.approx(1 - found.mean)


def test_improvement_counts_every_task_alike() -> None:
    """By hand: 5 of 6 and 1 of 4 with a tie; seeds may be of any number, tasks must be shared."""
    first = {"t": [3.0, 2.0], "u": [1.0, 4.0], "v": [9.0]}
    second = {"t": [1.0, 2.5, 0.0], "u": [4.0, 5.0]}
    found = improvement(first, second)
    assert found is not None and found.n == 2
    assert found.mean == pytest.approx((5 / 6 + 0.5 / 4) / 2)
    assert improvement(first, {"w": [1.0]}) is None and improvement(first, {"t": []}) is None
    alone = improvement({"t": [1.0]}, {"t": [0.0]})
    assert alone is not None and alone.mean == 1 and math.isnan(alone.low)


def test_the_bootstrap_is_the_one_of_all_resamples() -> None:
    """Every resample of two small tasks counted out, each task by itself; its quantiles."""
    first, second = {"t": [1, 3, 4], "u": [0, 5, 9]}, {"t": [2, 3, 0], "u": [1, 6, 7]}
    found = improvement(first, second)
    by_task = []
    for task in first:
        again = [itertools.product(each[task], repeat=3) for each in (first, second)]
        counted = [
            fmean((x > y) + 0.5 * (x == y) for x in xs for y in ys)
            for xs, ys in itertools.product(*map(list, again))
        ]
        by_task.append(np.array(counted))
    every = (by_task[0][:, None] + by_task[1][None, :]).ravel() / 2
    low, high = np.quantile(every, [0.025, 0.975])
    assert found is not None and found.mean == pytest.approx(
        fmean(fmean((x > y) + 0.5 * (x == y) for x in first[t] for y in second[t]) for t in first)
    )
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.04)


def test_improvement_of_normal_scores_is_what_theory_says() -> None:
    """P(X > Y) = Φ(δ / √2) for unit normals that are δ apart; and its interval holds it."""
    random = np.random.default_rng(0)
    gap = 0.5
    expected = NormalDist().cdf(gap / math.sqrt(2))
    holds = 0
    for _ in range(60):
        first = {task: random.normal(gap, 1, 30) for task in "tu"}
        second = {task: random.normal(0, 1, 30) for task in "tu"}
        found = improvement(first, second)
        assert found is not None
        holds += found.low <= expected <= found.high
    assert 52 <= holds <= 60, "95% of 60 are 57"


def test_a_profile_is_the_share_of_runs_above_a_level() -> None:
    """By hand; tasks count alike, and the area under it is the mean score."""
    scores = {"t": [0.2, 0.8, 0.8, 1.0], "u": [0.5, 0.0]}
    levels = np.array([0.0, 0.2, 0.5, 0.79, 0.8, 1.0])
    share, low, high = profile(scores, levels)
    assert share == pytest.approx([0.75, 0.625, 0.375, 0.375, 0.125, 0.0])
    assert (low <= share).all() and (share <= high).all() and low.shape == high.shape == (6,)
    assert low[0] == 0.5 and high[0] == 1.0  # the run of u at 0 drawn twice, or not at all
    fine = (np.arange(500) + 0.5) / 500
    under = profile(scores, fine)[0].mean()
    assert under == pytest.approx(fmean(fmean(runs) for runs in scores.values()), abs=2e-3)
    single = profile({"t": [0.5]}, levels)
    assert single[0].tolist() == [1, 1, 0, 0, 0, 0] and np.isnan(single[1]).all()


def test_strata_are_resampled_by_themselves() -> None:
    """A task of one value and one of two: only the second varies, and the first stays in."""
    low, high = bootstrap(
        [np.array([5.0, 5.0]), np.array([0.0, 1.0])],
        lambda x, y, axis=-1: x.mean(axis=axis) + y.mean(axis=axis),
    )
    assert (low, high) == (5.0, 6.0)


def test_the_area_is_the_mean_of_a_curve_over_training() -> None:
    """Of a line its middle, whatever the steps between; of one point that point."""
    steps = np.array([10, 20, 50, 100])
    assert area(steps, steps / 100) == pytest.approx(0.55)
    assert area(steps, np.full(4, 0.7)) == pytest.approx(0.7)
    assert area(steps, np.array([0, 1, 1, 1])) == pytest.approx((5 + 30 + 50) / 90)
    assert area(steps[:1], np.array([0.3])) == 0.3


@pytest.mark.parametrize(
    ("nll", "still"),
    [
        (np.linspace(2, 1, 10), True),  # at one rate
        ([2, 1, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.01, 0.009], False),  # done
        ([2, 1.9, 1.8, 1.7, 1.6, 1.5, 1.4, 1.3, 1.0, 1.1], False),  # the last is not the lowest
        ([2, 1.5, 1, 1, 1, 1, 1, 1, 1, 0.94], True),  # 0.06 of 1.06
        ([2, 1.5, 1, 1, 1, 1, 1, 1, 1, 0.95], False),  # 0.05 of 1.05
        ([2, 1.5, 1, 1, 1, 1, 1, 1, 0.9, 0.9], True),  # in the last fifth, the ninth of ten
        ([2, 1, 0.4, 1, 1, 1, 1, 1, 1, 0.4], False),  # no lower than before
        ([1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8, 1.9], False),  # rises
        ([1, math.nan, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, math.nan], False),
    ],
)
def test_a_run_still_improves_where_its_last_fifth_brought_a_twentieth(
    nll: list[float], still: bool
) -> None:
    steps = 100 * np.arange(1, 11)
    assert still_improving(steps, np.asarray(nll, float)) is still
    assert not still_improving(steps[:1], np.ones(1))


def test_learning_reads_the_curves_of_each_run() -> None:
    """In the order of their steps; a text by its token accuracy."""
    rows = [
        {"task": task, "pe": "a", "seed": seed, "step": step, "exact_match": seed * step / 10,
         "token_accuracy": 0.5, "nll": 1 - seed * step / 10}
        for task in ("t", "text") for seed in (0, 1) for step in (10, 5, 1, 3)
    ]  # fmt: skip
    found = learning(pd.DataFrame(rows), {"text"})
    assert found["t", "a"]["area"].mean == pytest.approx((0 + 0.55) / 2)
    assert found["text", "a"]["area"].mean == 0.5
    assert found["t", "a"]["improving"] == found["text", "a"]["improving"] == {1}
