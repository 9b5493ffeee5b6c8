"""What the terminal says of a study: its rule, the minutes left, progress, and what failed."""

import contextlib
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from omegaconf import DictConfig
from tqdm import tqdm

from wawa_transformer.common.messages import UserError, tell, warn
from wawa_transformer.lab.pages import Text, tr, warning
from wawa_transformer.run.compose import compose
from wawa_transformer.run.run_dir import Run


def tell_rule(unjudged: str, weaknesses: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
    """Print, before the runs, why there is no verdict or row, or the weaknesses of the rule."""
    if unjudged:
        tell(tr(Text("unjudged", {"why": unjudged})))
    for key, fill in weaknesses:
        tell(("" if key == "rule_makes" else "warning: ") + tr(warning(key, fill)))


def minutes_of_run(config: DictConfig, overrides: Sequence[str], choice: str) -> float | None:
    """The minutes on two cores that a run of the study takes, by ``study.expected_minutes``.

    ``study.expected_minutes`` is about the study's file, the ``choice`` of the group study, and not
    about what ``overrides`` ask for. Another model, trainer or task has no estimate.
    """
    given = [override.lstrip("+") for override in overrides]
    own = any(each.startswith("study.expected_minutes=") for each in given)
    other_work = any(each.startswith(("model", "trainer", "task.")) for each in given)
    if config.study.expected_minutes is None or (other_work and not own):
        return None
    grid = config.study if own else compose([f"study={choice}"]).study
    if set(config.study.task) - set(grid.task):
        return None
    runs = len(grid.task) * len(grid.pe)
    tried = len(grid.tune.lr or [0]) * len(grid.tune.warmup or [0]) * len(grid.tune.seeds)
    return float(config.study.expected_minutes) / (runs * (len(grid.seeds) + tried))


def minutes_left(
    results: Mapping[Run, dict[str, Any] | None], workers: int, minutes: float | None
) -> float | None:
    """Estimate the minutes of the unfinished runs, at least 1; None if nothing is known.

    An unfinished run takes as long as the finished runs of its task and encoding, else of its task,
    else as all of them. Without a finished run it takes ``minutes``.
    """
    missing = [run for run, result in results.items() if result is None]
    measured = [(run, result["seconds"]) for run, result in results.items() if result]
    if not measured:
        return minutes and max(1, minutes * len(missing))
    total = 0.0
    for run in missing:
        of_task = [(other.pe, seconds) for other, seconds in measured if other.task == run.task]
        of_both = [seconds for pe, seconds in of_task if pe == run.pe]
        total += fmean(of_both or [seconds for _, seconds in of_task or measured])
    return max(1, total / 60 / min(workers, len(missing)))


def tell_unfinished(runs: Iterable[Run]) -> int:
    """Print why each unfinished run failed, and return their number."""
    unfinished = [run for run in runs if run.status != "finished"]
    for run in unfinished:
        log = run.study_directory / "train.log"
        where = run.error_file if run.error_file.exists() else log
        said = ": ".join(filter(None, (run.status, str(run), run.failure())))
        warn(f"{said} ({where})")
    return len(unfinished)


class View:
    """A display of all runs' progress, read from their directories."""

    def __init__(self, runs: list[Run], steps: int) -> None:
        self.runs, self.steps = runs, steps
        self.statuses = {run: run.status for run in runs}
        self.progress = {run: run.progress(steps) for run in runs}
        self.started, self.at_start = time.monotonic(), sum(self.progress.values())
        self.told = 0
        # The line needs no thread that refreshes it. None: only a terminal has a line that changes.
        tqdm.monitor_interval = 0
        self.line = tqdm(bar_format="{desc}", leave=False, disable=None, file=sys.stdout)

    def update(self) -> None:
        """Read the runs' progress again and show a summary."""
        for run in self.runs:
            if self.statuses[run] != "finished":  # a finished run stays finished
                with contextlib.suppress(UserError):  # a file that cannot be read at this moment
                    self.statuses[run], self.progress[run] = run.status, run.progress(self.steps)
        done, elapsed = sum(self.progress.values()), time.monotonic() - self.started
        finished = sum(status == "finished" for status in self.statuses.values())
        clock = f"{elapsed:.0f} s gone"
        if done > self.at_start:
            left = elapsed / (done - self.at_start) * (len(self.runs) - done)
            clock += f", about {left:.0f} s left"
        summary = f"{finished} of {len(self.runs)} runs finished, {clock}"
        self.line.set_description_str(summary)
        if self.line.disable and finished >= self.told + max(1, len(self.runs) // 9):
            self.told = finished
            print(summary, flush=True)
