"""Means over seeds with intervals, paired differences, and a correction of several tests."""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.special import betaincinv, stdtr, stdtrit

CONFIDENCE = 0.95
SIGNIFICANT = 1 - CONFIDENCE  # below it is the p of a difference


def signed(value: float, spec: str) -> str:
    """Format a number with the minus sign of print, which no line breaks after."""
    return re.sub("^-", "−", f"{value:{spec}}")


@dataclass(frozen=True)
class Estimate:
    """A mean over ``n`` seeds with its interval, and ``p`` of the test that the mean is 0.

    The ends are NaN, and so is p, if there are fewer than two seeds, if a value is not finite, or
    if every seed gave the same value: the spread between seeds is then unknown, not zero.
    """

    mean: float
    low: float
    high: float
    n: int
    p: float = math.nan

    @property
    def half_width(self) -> float:
        """Half the length of the interval, the number after ±."""
        return (self.high - self.low) / 2

    def within(self, top: float | None) -> tuple[float, float]:
        """Both ends, cut at ``top`` and, unless the mean is below, at 0; without any, the mean."""
        ends = [self.mean if math.isnan(end) else end for end in (self.low, self.high)]
        low, high = np.clip(ends, 0 if self.mean >= 0 else -math.inf, top)
        return float(low), float(high)

    def __format__(self, spec: str) -> str:
        """Format as ``0.990 ± 0.012``, or as the mean alone if there is no interval."""
        spec = spec or "z.3f"
        mean = "–" if math.isnan(self.mean) else signed(self.mean, spec)
        if math.isnan(self.half_width):
            return mean
        spread = f"{self.half_width:{spec.lstrip('+')}}"
        if float(spread) == 0:  # "± 0.000" would look like certainty
            spread = f"<{spread[:-1]}1"
        return f"{mean} ± {spread}"


def estimate(values: Iterable[float]) -> Estimate:
    """Estimate the mean of independent values, one per seed, with Student's interval.

    The interval is mean ± t(0.975, n − 1) · s / √n (Student, "The probable error of a mean",
    Biometrika 6, 1908). It assumes roughly normal values, so near a bound such as an exact match of
    1 an interval may exceed the bound.
    """
    sample = np.array(list(values), dtype=float)
    n, nothing = len(sample), math.nan
    if n == 0 or not np.isfinite(sample).all():
        return Estimate(nothing, nothing, nothing, n)
    # Differences such as 1 − 0.995 and 0.995 − 0.99 are equal except for rounding. Without the
    # tolerance their interval would have a width of 1e-16.
    if np.abs(sample - sample[0]).max() <= 1e-12 * (1 + abs(sample[0])):
        return Estimate(float(sample[0]), nothing, nothing, n)
    mean, error = float(sample.mean()), float(sample.std(ddof=1)) / math.sqrt(n)
    half = stdtrit(n - 1, (1 + CONFIDENCE) / 2) * error
    p = 2 * stdtr(n - 1, -abs(mean) / error)
    return Estimate(mean, float(mean - half), float(mean + half), n, float(p))


def reaches(value: float, limit: float) -> bool:
    """True if a value is at least ``limit``, except for rounding: 0.3 − 0.2 reaches 0.1."""
    return value >= limit or math.isclose(value, limit)


def difference(a: pd.Series, b: pd.Series) -> Estimate:
    """Estimate a − b, seed by seed, over the common seeds.

    Two runs of one seed have the same data order and the same initial values of shared weights, so
    their difference varies less than the runs themselves (the paired t-test; Snedecor & Cochran,
    *Statistical Methods*, ch. 6).
    """
    return estimate(gaps(a, b))


def gaps(a: pd.Series, b: pd.Series) -> pd.Series:
    """Subtract b from a over the common seeds."""
    common = a.index.intersection(b.index)
    return a[common] - b[common]


def equivalence(a: pd.Series, b: pd.Series, margin: float) -> float:
    """Test that a and b differ by less than ``margin``; return p, seed by seed.

    The p of two one-sided t-tests (Schuirmann 1987), twice the larger: it is below 0.05 where the
    95% interval of the difference is within ±margin.
    """
    gap = difference(a, b)
    if math.isnan(gap.p):
        return math.nan
    error = gap.half_width / stdtrit(gap.n - 1, (1 + CONFIDENCE) / 2)
    return min(1.0, 2 * float(stdtr(gap.n - 1, -(margin - abs(gap.mean)) / error)))


def share(count: int, n: int) -> Estimate:
    """Estimate a share of seeds, with its exact binomial interval (Clopper & Pearson 1934)."""
    tail = (1 - CONFIDENCE) / 2
    low = betaincinv(count, n - count + 1, tail) if count else 0.0
    high = betaincinv(count + 1, n - count, 1 - tail) if count < n else 1.0
    return Estimate(count / n, float(low), float(high), n)


def holm(p_values: pd.Series) -> pd.Series:
    """Correct the p of several tests (Holm 1979); NaN is a test that could not be made."""
    ranked = p_values.dropna().sort_values()
    steps = ranked * np.arange(len(ranked), 0, -1)
    return steps.cummax().clip(upper=1.0).reindex(p_values.index)
