"""Intervals and verdicts, held against SciPy's own tests and against symmetry."""

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
    """Only seeds that both have are paired."""
    a = dict(enumerate(values))
    b = {seed: value + random.choice([-1.0, -0.5, 0.25, 2.0]) for seed, value in a.items()}
    result = paired_difference(a | {98: 0.0}, b | {99: 0.0})
    assert result.n == len(values)
    if not result.every_seed_equal:
        test = scipy.stats.ttest_rel(list(a.values()), list(b.values()))
        expected = test.confidence_interval(0.95)
        assert (result.low, result.high) == pytest.approx((expected.low, expected.high))
        # The interval excludes zero exactly where the paired t-test rejects at 5%.
        assert result.excludes_zero == (test.pvalue < 0.05)


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


@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        ([0.9, 0.92, 0.91], [0.2, 0.21, 0.19], "a is better than b by 0.710 "),
        ([0.2, 0.21, 0.19], [0.9, 0.92, 0.91], "b is better than a by 0.710 "),
        ([0.3, 0.2], [0.3, 0.2], "We saw no difference: a and b gave the same"),
        # 0.3 − 0.2 and 0.2 − 0.1 differ by rounding alone: no interval may come of that.
        ([0.3, 0.2], [0.2, 0.1], "No interval: all 2 seeds gave the same difference of +0.1"),
        ([1.0], [], "No verdict: no seed"),
        ([1.0], [0.5], "No verdict: one seed"),
        ([math.nan, 1.0], [0.5, 0.5], "No verdict: a or b gave a value that is not finite"),
    ],
)
def test_a_verdict_names_the_better_one_or_says_why_there_is_none(
    a: list[float], b: list[float], said: str
) -> None:
    difference = paired_difference(dict(enumerate(a)), dict(enumerate(b)))
    assert verdict(difference, "a", "b").startswith(said)
    better = " is better than " in said
    assert difference.excludes_zero == better
    if better:
        assert verdict(difference, "b", "a", higher_is_better=False).startswith(said)
