"""Learning curves: speed of learning, and runs that were still improving."""

from typing import Any

import numpy as np
import pandas as pd

from wawa_transformer.lab.intervals import estimate

# A run still improves if the last fifth of training brought this share of the total fall in NLL.
STILL = 0.05


def area(steps: np.ndarray, values: np.ndarray) -> float:
    """Average ``values`` (n,) over ``steps`` (n,) by the trapezoidal rule."""
    span = steps[-1] - steps[0]
    return float(np.trapezoid(values, steps) / span) if span else float(values[-1])


def still_improving(steps: np.ndarray, nll: np.ndarray) -> bool:
    """True if a run was still improving at the end.

    The last validation NLL must be the lowest. It must be below the lowest of the first four fifths
    of training by at least ``STILL`` times the total fall. A fall at a constant rate gives 0.2.
    ``steps`` and ``nll`` are (n,).
    """
    early, fall = steps <= 0.8 * steps[-1], nll[0] - nll[-1]
    if not early.any() or not fall > 0 or nll[-1] > nll.min():
        return False
    return bool(nll[early].min() - nll[-1] >= STILL * fall)


def learning(curves: pd.DataFrame, texts: set[str]) -> dict[tuple[str, str], dict[str, Any]]:
    """Compute for each task and encoding the area under the learning curve.

    ``curves`` is the table in ``curves.csv``. ``area`` is an estimate over seeds, ``improving`` the
    seeds that were still improving. The curve is validation exact match, or token accuracy for
    a text (a task in ``texts``), as in the pictures.
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
