"""More than a mean: how often one encoding beats another, how scores spread, how training went.

The first two after Agarwal et al. 2021, "Deep reinforcement learning at the edge of the statistical
precipice" (arXiv 2108.13264), section 4; intervals are from a stratified bootstrap over seeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import scipy.stats

from wawa_transformer.lab.intervals import CONFIDENCE, Estimate, estimate

RESAMPLES = 2000
STILL = 0.05  # of all that the loss fell: as much in the last fifth counts as still improving


def improvement(first: Mapping[str, Any], second: Mapping[str, Any]) -> Estimate | None:
    """The probability of improvement P(X > Y): that a run of ``first`` scores above one of
    ``second`` on the same task, averaged over tasks; equal scores count half.

    Both give for each task the scores of its seeds, (n,), higher being better. Every run of one is
    held against every run of the other: the Mann–Whitney statistic, divided by the number of pairs.
    None: they share no task. No interval where a task has a single seed.
    """
    tasks = [task for task in first if len(first[task]) and len(second.get(task, ()))]
    if not tasks:
        return None
    samples = [np.asarray(scores[task], float) for task in tasks for scores in (first, second)]

    def probability(*resampled: np.ndarray, axis: int = -1) -> np.ndarray:
        pairs = zip(resampled[::2], resampled[1::2], strict=True)
        # (…,n,1) against (…,1,m)
        signs = (np.sign(x[..., :, None] - y[..., None, :]) for x, y in pairs)
        return np.mean([(1 + sign).mean(axis=(-2, -1)) / 2 for sign in signs], axis=0)

    mean = float(probability(*samples))
    low, high = bootstrap(samples, probability)
    return Estimate(mean, float(low), float(high), min(map(len, samples)))


def profile(scores: Mapping[str, Any], levels: np.ndarray) -> tuple[np.ndarray, ...]:
    """The performance profile: for each of ``levels`` (L,) the share of runs that score above it.

    ``scores`` gives for each task those of its seeds; every task counts the same. Returns the
    shares and both ends of their interval, each (L,).
    """
    # A row for each level, so that all levels see the same resampled runs.
    samples = [np.asarray(each, float) > levels[:, None] for each in scores.values()]  # (L,n)

    def share(*resampled: np.ndarray, axis: int = -1) -> np.ndarray:
        return np.mean([above.mean(axis=axis) for above in resampled], axis=0)

    return share(*samples), *bootstrap(samples, share)


def bootstrap(samples: Sequence[np.ndarray], statistic: Any) -> tuple[np.ndarray, np.ndarray]:
    """Both ends of the percentile interval; each sample, a stratum, is resampled by itself.

    NaN where a sample holds a single value.
    """
    if min(sample.shape[-1] for sample in samples) < 2:
        nothing = np.full(statistic(*samples).shape, np.nan)
        return nothing, nothing
    interval = scipy.stats.bootstrap(
        samples, statistic, n_resamples=RESAMPLES, vectorized=True, axis=-1,
        confidence_level=CONFIDENCE, method="percentile", rng=np.random.default_rng(0),
    ).confidence_interval  # fmt: skip
    return interval.low, interval.high


def area(steps: np.ndarray, values: np.ndarray) -> float:
    """The mean of a curve ``values`` (n,) at ``steps`` (n,): trapezoids over first to last."""
    span = steps[-1] - steps[0]
    return float(np.trapezoid(values, steps) / span) if span else float(values[-1])


def still_improving(steps: np.ndarray, nll: np.ndarray) -> bool:
    """Whether a run would have gone on getting better.

    Its last validation NLL is its lowest, and below the lowest of the first four fifths of training
    by ``STILL`` of the whole fall or more; a fall at one rate gives a fifth. Both are (n,).
    """
    early, fall = steps <= 0.8 * steps[-1], nll[0] - nll[-1]
    if not early.any() or not fall > 0 or nll[-1] > nll.min():
        return False
    return bool(nll[early].min() - nll[-1] >= STILL * fall)


def learning(curves: pd.DataFrame, texts: set[str]) -> dict[tuple[str, str], dict[str, Any]]:
    """For each task and encoding: ``area`` of the curve over seeds, and seeds ``improving``.

    ``curves`` is ``curves.csv``. The curve is that of validation exact match, of a text (a task in
    ``texts``) of token accuracy, as in the pictures.
    """
    found = {}
    for (task, pe), rows in curves.groupby(["task", "pe"]):
        column = "token_accuracy" if task in texts else "exact_match"
        areas, improving = [], set()
        for seed, run in rows.sort_values("step").groupby("seed"):
            steps = run["step"].to_numpy()
            areas.append(area(steps, run[column].to_numpy()))
            if still_improving(steps, run["nll"].to_numpy()):
                improving.add(seed)
        found[str(task), str(pe)] = {"area": estimate(areas), "improving": improving}
    return found
