"""From seeds to claims: a mean, its interval, a paired difference, and what may be said of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from wawa_transformer.lab.language import say

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A mean over ``n`` seeds and its interval, both in the unit of the values.

    The ends are NaN where no interval exists: with fewer than two seeds, or when a value is not
    finite. ``low == high`` says that every seed gave the same value, which bounds nothing: the
    spread between seeds is then unknown, not zero.
    """

    mean: float
    low: float
    high: float
    n: int

    @property
    def half_width(self) -> float:
        """Half the length of the interval: what stands behind ±."""
        return (self.high - self.low) / 2

    def within(self, top: float | None) -> tuple[float, float]:
        """Both ends, cut at 0 and at ``top``, the bounds of a metric: for pictures only."""
        low, high = np.clip([self.low, self.high], 0, top)
        return float(low), float(high)

    @property
    def every_seed_equal(self) -> bool:
        """Whether at least two seeds all gave one value, up to rounding."""
        return self.n > 1 and self.low == self.high

    @property
    def excludes_zero(self) -> bool:
        """Whether there is an interval and 0 lies outside it."""
        return not self.every_seed_equal and (self.low > 0 or self.high < 0)

    def __format__(self, spec: str) -> str:
        """``f"{estimate:.2f}"`` gives ``0.99 ± 0.01``, or the mean and why there is no ±."""
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
        if float(spread) == 0:  # "± 0.000" would be read as certainty
            spread = f"{self.half_width:.{-math.floor(math.log10(self.half_width))}f}"
        return f"{mean} ± {spread}"

    def __str__(self) -> str:
        return f"{self:.3f} (n={self.n})" if self.n else f"{self:.3f}"


def estimate(values: Iterable[float], confidence: float = CONFIDENCE) -> Estimate:
    """The mean of independent values, one a seed, with Student's interval, 95% unless told.

    The interval is mean ± t(0.975, n − 1) · s / √n (Student, "The probable error of a mean",
    Biometrika 6, 1908). It takes the seeds' values as roughly normal; near a bound such as an
    exact match of 1 it may reach past the bound.
    """
    sample = np.array(list(values), dtype=float)
    n = len(sample)
    if n == 0 or not np.isfinite(sample).all():
        return Estimate(math.nan, math.nan, math.nan, n)
    if n == 1:
        return Estimate(float(sample[0]), math.nan, math.nan, n)
    # Differences such as 1 − 0.995 and 0.995 − 0.99 are equal but for rounding; without the
    # tolerance they would get an interval of width 1e-16.
    if np.allclose(sample, sample[0], rtol=1e-12, atol=1e-12):
        return Estimate(float(sample[0]), float(sample[0]), float(sample[0]), n)
    import scipy.stats  # 0.7 s, which a study need not wait for before its first run

    mean = float(sample.mean())
    low, high = scipy.stats.t.interval(confidence, n - 1, mean, scipy.stats.sem(sample))
    return Estimate(mean, float(low), float(high), n)


def paired_difference(a: Mapping[int, float], b: Mapping[int, float], of: int = 1) -> Estimate:
    """The estimate of a − b, seed by seed, over the seeds that both have.

    Its interval is corrected as that of one ``of`` several comparisons (Bonferroni).
    Two runs of one seed share data order and initial weights, so their difference varies less
    than the runs themselves (the paired t-test; Snedecor & Cochran, *Statistical Methods*, ch. 6).
    """
    confidence = 1 - (1 - CONFIDENCE) / of
    return estimate((a[seed] - b[seed] for seed in sorted(a.keys() & b.keys())), confidence)


def sampling_interval(standard_error: float, splits: int) -> float:
    """Half the interval of the mean over independent test splits, one a seed: ±."""
    return NormalDist().inv_cdf((1 + CONFIDENCE) / 2) * standard_error / math.sqrt(splits)


def verdict(difference: Estimate, a_name: str, b_name: str, higher_is_better: bool = True) -> str:
    """What the estimate of a − b permits to say about ``a_name`` and ``b_name``, in words."""
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
                f"We saw no difference: {a_name} and {b_name} gave the same in all {n} seeds.",
                f"看不出差别：{a_name} 与 {b_name} 在全部 {n} 个种子上结果都相同。",
            )
        return say(
            f"No interval: all {n} seeds gave the same difference of {mean:+.3g} "
            f"({a_name} − {b_name}), so their spread is unknown.",
            f"没有区间：全部 {n} 个种子上差异都是 {mean:+.3g}（{a_name} − {b_name}），"
            f"因此不知道差异有多分散。",
        )
    # Two digits of half the interval's length are all that it can bear.
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
