"""Sides that run by turns: their seconds, and ratios of these."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

from rich.progress import track

ROUNDS = 60


def turns_of(
    sides: Mapping[str, Callable[[], object]], title: str, turns: int = ROUNDS
) -> dict[str, list[float]]:
    """The seconds of each side in each of ``turns``, after one turn to warm up."""
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for turn in track(range(turns + 1), title):
        for name, work in sides.items():
            started = time.perf_counter()
            work()
            if turn:
                taken[name].append(time.perf_counter() - started)
    return taken


def medians(sides: Mapping[str, Callable[[], object]], title: str) -> dict[str, float]:
    """The median seconds of each side."""
    return {name: statistics.median(taken) for name, taken in turns_of(sides, title).items()}


def ratio(above: list[float], below: list[float]) -> float:
    """The median over turns of one side's seconds over the other's in the same turn."""
    return statistics.median(a / b for a, b in zip(above, below, strict=True))


def compared(taken: dict[str, list[float]], prefix: str = "") -> dict[str, float]:
    """Each side's time over ours, and each side's milliseconds."""
    ratios = {
        f"{prefix}{side}_over_ours": ratio(seconds, taken["ours"])
        for side, seconds in taken.items()
        if side != "ours"
    }
    times = {
        f"{prefix}{side}_milliseconds": 1000 * statistics.median(seconds)
        for side, seconds in taken.items()
    }
    return ratios | times
