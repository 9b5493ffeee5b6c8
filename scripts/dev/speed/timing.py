"""Time several sides in turns, and compare their times."""

import statistics
import time
from collections.abc import Callable, Mapping

import torch
from rich.progress import track

ROUNDS = 60


def turns_of(
    sides: Mapping[str, Callable[[], object]], title: str, turns: int = ROUNDS
) -> dict[str, list[float]]:
    """Measure each side's seconds in each turn, after one warm-up turn.

    On a CPU these are seconds of the processor, which another process hardly changes.
    """
    clock = time.perf_counter if torch.cuda.is_available() else time.process_time
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for turn in track(range(turns + 1), title):
        for name, work in sides.items():
            started = clock()
            work()
            if turn:
                taken[name].append(clock() - started)
    return taken


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
