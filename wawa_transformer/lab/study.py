"""A study: many runs of one configuration over encodings, tasks and seeds."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import hydra
from omegaconf import DictConfig
from rich.console import Console
from rich.live import Live
from rich.table import Table

from wawa_transformer.config import CONFIG_DIR, UserError, validate
from wawa_transformer.runs import Run


def grid(config: DictConfig) -> dict[str, list[Any]]:
    """The study's axes in the order they are run: a whole seed is compared before the next."""
    axes = {"seed": config.study.seeds, "task": config.study.task, "pe": config.study.pe}
    for key, values in axes.items():
        if not values:
            raise UserError(
                f"study.{'seeds' if key == 'seed' else key} is empty; name at least one."
            )
        if len(set(values)) < len(values):
            raise UserError(f"study.{'seeds' if key == 'seed' else key} names a value twice.")
    return {key: list(values) for key, values in axes.items()}


def list_runs(config: DictConfig, overrides: list[str]) -> list[Run]:
    """The study's runs; inside ``hydra.main``. ``overrides`` are the command line's own."""
    axes = grid(config)
    for override in overrides:
        if override.split("=")[0] in axes:
            key = override.split("=")[0]
            plural = "seeds" if key == "seed" else key
            raise UserError(
                f"{override} names one run; a study takes a list: study.{plural}=[...]."
            )
    runs = []
    for task, pe in itertools.product(axes["task"], axes["pe"]):
        one = hydra.compose("config", [*overrides, f"task={task}", f"pe={pe}"])
        validate(one)
        for seed in axes["seed"]:
            one.seed = seed
            runs.append(Run.of(one))
    return sorted(runs, key=lambda run: axes["seed"].index(run.seed))


def launch(config: DictConfig, overrides: list[str], log: Path) -> subprocess.Popen[bytes]:
    """Start Hydra's multirun over the grid, ``workers`` runs side by side.

    It is the command a person could type: ``scripts/train.py -m`` with one list for each axis.
    """
    axes = [f"{key}={','.join(map(str, values))}" for key, values in grid(config).items()]
    command = [sys.executable, str(CONFIG_DIR.parent / "scripts" / "train.py"), "-m", *overrides]
    command += [*axes, "progress=false"]
    if not any(override.startswith("hydra/launcher=") for override in overrides):
        command += [f"hydra.launcher.n_jobs={config.workers}", "hydra.launcher.batch_size=1"]
    return subprocess.Popen(
        command,
        stdout=log.open("wb"),
        stderr=subprocess.STDOUT,
        # Tiny models gain nothing from threads; side by side they would only collide.
        env={**os.environ, "OMP_NUM_THREADS": str(config.trainer.threads)},
    )


def watch(process: subprocess.Popen[bytes], runs: list[Run], steps: int) -> None:
    """Show every run until ``process`` ends; the runs are read from their directories alone."""
    console = Console()
    started, at_start = time.monotonic(), sum(run.progress(steps) for run in runs)
    try:
        with Live(console=console, auto_refresh=False, transient=True) as live:
            told = 0
            while process.poll() is None:
                time.sleep(1.0)
                progress = {run: run.progress(steps) for run in runs}
                done = sum(progress.values())
                elapsed = time.monotonic() - started
                left = elapsed / (done - at_start) * (len(runs) - done) if done > at_start else None
                finished = sum(run.status == "finished" for run in runs)
                clock = f"{elapsed:.0f} s gone" + (f", about {left:.0f} s left" if left else "")
                summary = f"{finished} of {len(runs)} runs finished, {clock}"
                if console.is_terminal:
                    live.update(status_table(runs, progress, summary), refresh=True)
                elif finished >= told + max(1, len(runs) // 9):
                    told = finished
                    print(summary, flush=True)
    except KeyboardInterrupt:
        process.terminate()
        process.wait()
        raise


def status_table(runs: list[Run], progress: dict[Run, float], caption: str) -> Table:
    """One row for each task and encoding, one cell for each seed."""
    seeds = sorted({run.seed for run in runs})
    view = Table("task", "encoding", *(f"seed {seed}" for seed in seeds), caption=caption)
    signs = {"finished": "[green]done", "failed": "[red]failed", "waiting": "[dim]·"}
    for task, pe in dict.fromkeys((run.task, run.pe) for run in runs):
        row = {run.seed: run for run in runs if (run.task, run.pe) == (task, pe)}
        cells = (signs.get(row[seed].status, f"{progress[row[seed]]:.0%}") for seed in seeds)
        view.add_row(task, pe, *cells)
    return view
