"""Time several sides in turns, and compare their times."""

import statistics
import time
from collections.abc import Callable, Mapping

from rich.progress import track

ROUNDS = 60


def turns_of(
    sides: Mapping[str, Callable[[], object]], title: str, turns: int = ROUNDS
) -> dict[str, list[float]]:
    """Measure each side's seconds in each turn, after one warm-up turn."""
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for turn in track(range(turns + 1), title):
        for name, work in sides.items():
            started = time.perf_counter()
            work()
            if turn:
                taken[name].append(time.perf_counter() - started)
    return taken


def medians(sides: Mapping[str, Callable[[], object]], title: str) -> dict[str, float]:
    """Measure the median seconds of each side."""
    return {name: statistics.median(taken) for name, taken in turns_of(sides, title).items()}


def ratio(above: list[float], below: list[float]) -> float:
    """Compute the median over turns of the ratio within each turn."""
    return statistics.median(a / b for a, b in zip(above, below, strict=True))


def compared(taken: dict[str, list[float]], prefix: str = "") -> dict[str, float]:
    """Compute each side's time over ours, and each side's milliseconds."""
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
