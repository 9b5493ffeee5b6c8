"""Intervals and verdicts, held against SciPy's own tests and against symmetry."""

from __future__ import annotations

import math
from random import Random

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from wawa_transformer.lab.intervals import estimate, paired_difference, verdict

# Values apart from each other by more than rounding, so that shifting them loses nothing.
SAMPLES = st.lists(
    st.integers(-10_000, 10_000).map(lambda x: x / 1000), min_size=2, max_size=9
).filter(lambda values: len(set(values)) > 1)


@given(SAMPLES)
def test_interval_is_the_one_of_scipys_t_test(values: list[float]) -> None:
    expected = scipy.stats.ttest_1samp(values, 0).confidence_interval(0.95)
    result = estimate(values)
    assert result.n == len(values)
    assert result.mean == pytest.approx(np.mean(values))
    assert (result.low, result.high) == pytest.approx((expected.low, expected.high))
    assert result.half_width == pytest.approx(result.high - result.mean)


@given(SAMPLES, st.randoms(use_true_random=False))
def test_paired_difference_is_the_one_of_scipys_paired_test(
    values: list[float], random: Random
) -> None:
    a = dict(enumerate(values))
    b = {seed: value + random.choice([-1.0, -0.5, 0.25, 2.0]) for seed, value in a.items()}
    result = paired_difference(a, b)
    if not result.every_seed_equal:
        test = scipy.stats.ttest_rel(list(a.values()), list(b.values()))
        expected = test.confidence_interval(0.95)
        assert (result.low, result.high) == pytest.approx((expected.low, expected.high))
        # The interval excludes zero exactly where the paired t-test rejects at 5%.
        assert result.excludes_zero == (test.pvalue < 0.05)


def test_only_seeds_that_both_have_are_paired() -> None:
    difference = paired_difference({1: 0.9, 2: 0.8, 5: 0.0}, {2: 0.3, 1: 0.2, 7: 1.0})
    assert difference.n == 2
    assert difference.mean == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ([0.997, 0.998, 0.999], "0.998 ± 0.002 (n=3)"),
        ([0.99995, 1.0, 1.0, 1.0, 1.0], "1.000 ± 0.00003 (n=5)"),
        ([0.5], "0.500, no interval (n=1)"),
        ([1.0, 1.0, 1.0], "1.000, all seeds equal (n=3)"),
        ([0.1, math.nan], "not finite (n=2)"),
        ([0.1, math.inf], "not finite (n=2)"),
        ([], "no seed"),
    ],
)
def test_an_estimate_says_what_it_rests_on(values: list[float], shown: str) -> None:
    assert str(estimate(values)) == shown


def test_verdict_names_the_better_one_in_either_direction() -> None:
    a = {0: 0.9, 1: 0.92, 2: 0.91}
    b = {0: 0.2, 1: 0.21, 2: 0.19}
    assert verdict(paired_difference(a, b), "a", "b").startswith("a is better than b by 0.710 ")
    assert verdict(paired_difference(b, a), "b", "a").startswith("a is better than b by 0.710 ")
    loss = verdict(paired_difference(a, b), "a", "b", higher_is_better=False)
    assert loss.startswith("b is better than a by 0.710 ")


@pytest.mark.parametrize("gap", [0.0, 0.005])
def test_equal_seeds_are_not_sold_as_certainty(gap: float) -> None:
    # 1 − 0.995 and 0.995 − 0.99 differ by rounding alone: no interval may come of that.
    a = {0: 1.0, 1: 0.995, 2: 0.99}
    difference = paired_difference(a, {seed: value - gap for seed, value in a.items()})
    assert difference.every_seed_equal
    assert not difference.excludes_zero
    words = verdict(difference, "a", "b")
    assert "the same" in words
    assert "better" not in words


def test_without_two_pairs_there_is_no_verdict() -> None:
    assert "no seed" in verdict(paired_difference({0: 1.0}, {1: 0.5}), "a", "b")
    assert "one seed" in verdict(paired_difference({0: 1.0}, {0: 0.5}), "a", "b")
    diverged = verdict(paired_difference({0: math.nan, 1: 1.0}, {0: 0.5, 1: 0.5}), "a", "b")
    assert "not finite" in diverged
