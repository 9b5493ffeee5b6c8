"""Means over seeds, paired differences, their intervals, and verdicts in words."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from wawa_transformer.lab.language import say

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A mean over ``n`` seeds and its interval.

    All numbers have the unit of the values. The ends are NaN if there are fewer than two seeds, or
    if a value is not finite. ``low == high`` means that every seed gave the same value. The spread
    between seeds is then unknown, not zero.
    """

    mean: float
    low: float
    high: float
    n: int

    @property
    def half_width(self) -> float:
        """Half the length of the interval, the number after ±."""
        return (self.high - self.low) / 2

    def within(self, top: float | None) -> tuple[float, float]:
        """Both ends, cut at 0 and ``top``; for pictures only."""
        low, high = np.clip([self.low, self.high], 0, top)
        return float(low), float(high)

    @property
    def every_seed_equal(self) -> bool:
        """True if all of several seeds gave one value, up to rounding."""
        return self.n > 1 and self.low == self.high

    @property
    def excludes_zero(self) -> bool:
        """True if there is an interval and 0 is outside."""
        return not self.every_seed_equal and (self.low > 0 or self.high < 0)

    def __format__(self, spec: str) -> str:
        """Format as ``0.99 ± 0.01``, or say why there is no ±."""
        spec = spec or "z.3f"
        if self.n == 0:
            return say("no seed", "没有种子")
        if math.isnan(self.mean):
            return say("not finite", "不是有限的数")
        mean = f"{self.mean:{spec}}"
        if self.n == 1:
            return say(f"{mean}, no interval", f"{mean}，没有区间")
        if self.every_seed_equal:
            return say(f"{mean}, all seeds equal", f"{mean}，各种子相同")
        spread = f"{self.half_width:{spec.lstrip('+')}}"
        if float(spread) == 0:  # more digits, since "± 0.000" would look like certainty
            spread = f"{self.half_width:.{-math.floor(math.log10(self.half_width))}f}"
        return f"{mean} ± {spread}"

    def __str__(self) -> str:
        return f"{self:.3f} (n={self.n})" if self.n else f"{self:.3f}"


def estimate(values: Iterable[float], confidence: float = CONFIDENCE) -> Estimate:
    """Estimate the mean of independent values, one per seed, with Student's interval.

    The 95% interval is mean ± t(0.975, n − 1) · s / √n (Student, "The probable error of a mean",
    Biometrika 6, 1908). The interval assumes roughly normal values, so near a bound such as an
    exact match of 1 an interval may exceed the bound.
    """
    sample = np.array(list(values), dtype=float)
    n = len(sample)
    if n == 0 or not np.isfinite(sample).all():
        return Estimate(math.nan, math.nan, math.nan, n)
    if n == 1:
        return Estimate(float(sample[0]), math.nan, math.nan, n)
    # Differences such as 1 − 0.995 and 0.995 − 0.99 are equal except for rounding. Without the
    # tolerance their interval would have a width of 1e-16.
    if np.allclose(sample, sample[0], rtol=1e-12, atol=1e-12):
        return Estimate(float(sample[0]), float(sample[0]), float(sample[0]), n)
    # Imported here, so that a study's first run does not wait 0.7 s for scipy.
    import scipy.stats

    mean = float(sample.mean())
    low, high = scipy.stats.t.interval(confidence, n - 1, mean, scipy.stats.sem(sample))
    return Estimate(mean, float(low), float(high), n)


def paired_difference(a: Mapping[int, float], b: Mapping[int, float], of: int = 1) -> Estimate:
    """Estimate a − b, seed by seed, over the common seeds.

    The interval is corrected for ``of`` comparisons (Bonferroni). Two runs of one seed have the
    same data order and the same initial values of shared weights, so their difference varies less
    than the runs themselves (the paired t-test; Snedecor & Cochran, *Statistical Methods*, ch. 6).
    """
    confidence = 1 - (1 - CONFIDENCE) / of
    return estimate((a[seed] - b[seed] for seed in sorted(a.keys() & b.keys())), confidence)


def sampling_interval(standard_error: float, splits: int) -> float:
    """Half the 95% interval of a mean over independent test splits."""
    return NormalDist().inv_cdf((1 + CONFIDENCE) / 2) * standard_error / math.sqrt(splits)


def verdict(difference: Estimate, a_name: str, b_name: str, higher_is_better: bool = True) -> str:
    """Describe what the estimate of a − b shows about both encodings."""
    mean, low, high, n = difference.mean, difference.low, difference.high, difference.n
    if n == 0:
        return say(
            f"No verdict: no seed was finished by both {a_name} and {b_name}.",
            f"没有结论：没有哪个种子上 {a_name} 和 {b_name} 都训练完了。",
        )
    if math.isnan(mean):
        return say(
            f"No verdict: {a_name} or {b_name} gave a value that is not finite.",
            f"没有结论：{a_name} 或 {b_name} 的结果不是有限的数。",
        )
    if n == 1:
        return say(
            f"No verdict: one seed gives a difference of {mean:+.3g} but no interval.",
            f"没有结论：只有一个种子，差异是 {mean:+.3g}，没有区间。",
        )
    if difference.every_seed_equal:
        if abs(mean) <= 1e-12:
            return say(
                f"We saw no difference: {a_name} and {b_name} gave the same values "
                f"in all {n} seeds.",
                f"看不出差别：{a_name} 与 {b_name} 在全部 {n} 个种子上结果都相同。",
            )
        return say(
            f"No interval: all {n} seeds gave the same difference of {mean:+.3g} "
            f"({a_name} − {b_name}), so their spread is unknown.",
            f"没有区间：全部 {n} 个种子上差异都是 {mean:+.3g}（{a_name} − {b_name}），"
            f"因此不知道差异有多分散。",
        )
    # Rounded to two digits of half the interval's length: more digits would be noise.
    digits = max(0, 1 - math.floor(math.log10(difference.half_width)))
    if not difference.excludes_zero:
        ends = [f"{end:+z.{digits}f}" for end in (mean, low, high)]
        return say(
            f"We saw no difference between {a_name} and {b_name} with {n} seeds "
            f"({ends[0]}, 95% interval {ends[1]} to {ends[2]}).",
            f"用 {n} 个种子，看不出 {a_name} 与 {b_name} 的差别"
            f"（{ends[0]}，95% 区间 {ends[1]} 到 {ends[2]}）。",
        )
    better, worse = (a_name, b_name) if (mean > 0) == higher_is_better else (b_name, a_name)
    by, near, far = (f"{size:.{digits}f}" for size in (abs(mean), *sorted((abs(low), abs(high)))))
    return say(
        f"{better} is better than {worse} by {by} "
        f"(95% interval {near} to {far}, {n} paired seeds).",
        f"{better} 比 {worse} 好 {by}（95% 区间 {near} 到 {far}，{n} 个配对的种子）。",
    )
