"""The results of tuning, and the order of encodings at each point."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from wawa_transformer.lab.intervals import estimate, paired_difference
from wawa_transformer.lab.language import encoding_name, say
from wawa_transformer.lab.scores import Point, best_points

Rows = Sequence[Mapping[str, Any]]  # of tuning.csv


def rates_summary(
    rows: Rows, pairs: Sequence[Sequence[str]], translated: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Summarise each task's tuning scores, chosen points and orders of pairs.

    A pair is ordered by exact match in validation. On the ``translated`` tasks, where exact match
    tells little, a pair is ordered by NLL.
    """
    best = best_points(pd.DataFrame(rows))
    tasks = []
    for task in dict.fromkeys(row["task"] for row in rows):
        tried = [row for row in rows if row["task"] == task]
        rates = {row["lr"] for row in tried}
        edges = {min(rates), max(rates)} if len(rates) > 1 else set()
        encodings = list(dict.fromkeys(row["pe"] for row in tried))
        points: dict[Point, list[Mapping[str, Any]]] = {}
        for row in tried:
            points.setdefault(Point(row["lr"], row["warmup"]), []).append(row)
        metric, sign = ("nll", -1) if task in translated else ("exact_match", 1)
        chosen = {pe: best[task, pe] for pe in encodings}
        tasks.append(
            {
                "name": task,
                "encodings": encodings,
                "points": [
                    {
                        "point": point,
                        "nll": {
                            pe: estimate(_by_seed(those, pe, "nll").values()) for pe in encodings
                        },
                    }
                    for point, those in points.items()
                ],
                "chosen": chosen,
                # The grid's lowest or highest rate.
                "at_edge": [pe for pe, point in chosen.items() if point.lr in edges],
                "orders": [
                    in_words(a, b, [order(a, b, those, metric, sign) for those in points.values()])
                    for a, b in pairs
                    if {a, b} <= set(encodings)
                ],
            }
        )
    return tasks


def _by_seed(rows: Rows, pe: str, metric: str) -> dict[int, float]:
    return {row["seed"]: row[metric] for row in rows if row["pe"] == pe}


def order(a: str, b: str, rows: Rows, metric: str, sign: int) -> int:
    """Compare two encodings at one point.

    Returns 1 if ``a`` is better, −1 if ``b`` is better, else 0.
    ``sign`` is 1 if higher values of the metric are better, else −1. One encoding is better if the
    paired 95% interval over the tuning's seeds excludes zero.
    """
    difference = paired_difference(_by_seed(rows, a, metric), _by_seed(rows, b, metric))
    return sign * int(math.copysign(1, difference.mean)) if difference.excludes_zero else 0


def in_words(a: str, b: str, orders: Sequence[int]) -> str:
    """Describe at how many points each of two encodings is better."""
    a, b = encoding_name(a), encoding_name(b)
    first, second, of = orders.count(1), orders.count(-1), len(orders)
    if not first and not second:
        return say(
            f"We saw no difference between {a} and {b} at any of {of} points.",
            f"试过的 {of} 组学习率和预热，都看不出 {a} 与 {b} 的差别。",
        )
    if second > first:
        a, b, first, second = b, a, second, first
    return say(
        f"{a} is better than {b} at {first} of {of} points, and worse at {second}.",
        f"{of} 组学习率和预热中，{a} 比 {b} 好的有 {first} 组，比 {b} 差的有 {second} 组。",
    )
