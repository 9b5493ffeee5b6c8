"""Learning curves against geometry and counting."""

import math

import numpy as np
import pandas as pd
import pytest

from wawa_transformer.lab.learning_curves import area, learning, still_improving


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
