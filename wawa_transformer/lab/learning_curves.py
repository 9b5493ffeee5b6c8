"""Learning curves: how fast a run learned, and whether it was still improving at its end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from wawa_transformer.lab.intervals import estimate

STILL = 0.05  # of all that the loss fell: as much in the last fifth counts as still improving


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
