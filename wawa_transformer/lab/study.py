"""A study: many runs of one configuration over encodings, tasks and seeds."""

from __future__ import annotations

import copy
import itertools
import subprocess
import sys
import time
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, Self

import hydra
from hydra.errors import HydraException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException
from rich.console import Console
from rich.live import Live

from wawa_transformer.common.files import CONFIG_DIR, make_directory
from wawa_transformer.common.schema import UserError, check
from wawa_transformer.data.text import build_task
from wawa_transformer.lab.rules import Misfit, Rule, not_trained
from wawa_transformer.lab.workers import train_all
from wawa_transformer.run.cli import check_groups, explain, validate
from wawa_transformer.run.device import automatic_device
from wawa_transformer.run.run_dir import Run
from wawa_transformer.run.schema import Config

Jobs = dict[Run, DictConfig]  # what trains each run


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


def in_lists(overrides: list[str]) -> list[str]:
    """The command line of a study with ``study.task=[text]`` for ``task=text``, and so pe, seed.

    Without ``study`` on it, that is a study without a rule, which has the name of the task.

    Raises:
        UserError: there is such a list as well.
    """
    given = dict(override.split("=", 1) for override in overrides if "=" in override)
    out = [
        override for override in overrides if override.split("=")[0] not in ("task", "pe", "seed")
    ]
    for key, plural in (("task", "study.task"), ("pe", "study.pe"), ("seed", "study.seeds")):
        if key in given:
            if plural in given:
                raise UserError(
                    f"{key}={given[key]} and {plural} both choose; leave one of them out."
                )
            out.append(f"{plural}=[{given[key]}]")
    if "task" in given and not {"study", "study.name"} & given.keys():
        out += [f"study.name={given['task']}", "study.rule=null", "study.minutes=null"]
    return out


def list_jobs(config: DictConfig, overrides: list[str]) -> Jobs:
    """The study's runs; inside ``hydra.main``. ``overrides`` are the command line's own.

    Raises:
        UserError: an override does not suit them all, or :func:`with_seeds`.
    """
    axes = grid(config)
    if config.run_dir:
        raise UserError(
            f"run_dir={config.run_dir} is the folder of one run; a study has many: set output_dir."
        )
    if config.trainer.patience is not None:
        raise UserError(
            f"trainer.patience={config.trainer.patience} ends each run at a step of its own, and a "
            f"study compares runs of as many steps; leave it out."
        )
    composed = {}
    for task, pe in itertools.product(axes["task"], axes["pe"]):
        chosen = [f"task={task}", f"pe={pe}"]
        try:
            check_groups(chosen)
            one = hydra.compose("config", [*overrides, *chosen, "progress=false"])
        except (HydraException, OmegaConfBaseException) as error:
            raise UserError(explain(error)) from None
        validate(one)
        composed[task, pe] = one
    trained = dict.fromkeys(one.pe.name for one in composed.values())
    if len({frozenset(pair) for pair in config.study.pairs}) < len(config.study.pairs):
        raise UserError("study.pairs names a pair twice.")
    for pair in config.study.pairs:
        if len(set(pair)) != 2 or len(pair) != 2:
            raise UserError(f"study.pairs holds {list(pair)}; a pair is two encodings: [t5, none].")
        if missing := set(pair) - trained.keys():
            raise UserError(not_trained("study.pairs", sorted(missing), list(trained)))
    return with_seeds(axes["seed"], composed.values())


def with_seeds(seeds: Sequence[int], composed: Collection[DictConfig]) -> Jobs:
    """The runs of every configuration with every seed, a whole seed before the next.

    Pictures are drawn of the first seed alone: those of the others would hardly be looked at.

    Raises:
        UserError: two would share a name, so that one would be reported as the other.
    """
    jobs: Jobs = {}
    names = set()
    for seed, one in itertools.product(seeds, composed):
        job = copy.deepcopy(one)
        job.seed, job.pictures = seed, one.pictures and seed == seeds[0]
        check(Config, job)  # the rest does not depend on the seed
        run = Run.of(job)
        if str(run) in names:
            raise UserError(
                f"two runs of the study are both called {run}; every encoding and every task "
                f"needs a name of its own, so leave pe.name and task.name as they are."
            )
        names.add(str(run))
        jobs[run] = job
    return jobs


def check_launcher(config: DictConfig, launcher: str) -> None:
    """Refuse what only the workers of one machine can do; a cluster's launcher takes a grid.

    Raises:
        UserError: naming the key.
    """
    if launcher != "basic" and any(config.study.tune.values()):
        raise UserError(
            f"hydra/launcher={launcher} trains a grid with one learning rate for all, and "
            f"study.tune gives each encoding its own; leave one of them out."
        )


def folder_of(jobs: Jobs) -> Path:
    """The folder of a study's runs, made where there is none."""
    directory = next(iter(jobs)).directory.parents[2]
    make_directory(directory)
    return directory


def fill(
    jobs: Jobs,
    config: DictConfig,
    overrides: list[str],
    launcher: str,
    minutes: float | None,
) -> None:
    """Train what has not finished of a study, which takes about ``minutes`` a run."""
    directory, runs = folder_of(jobs), list(jobs)
    missing = [run for run in runs if run.status != "finished"]
    runs_of = "1 run" if len(runs) == 1 else f"{len(runs)} runs"
    words = f"{runs_of} in {directory}, {len(missing)} to train"
    if missing and minutes:
        words += f", about {minutes * len(missing):.0f} minutes on two cores"
    print(f"study {directory.name}: {words}", flush=True)
    if not missing:
        return
    if config.trainer.device == "auto":
        automatic_device()  # its warning would be in the workers' log alone
    for run in missing:
        run.error_file.unlink(missing_ok=True)
    log = directory / "train.log"
    log.write_bytes(b"")
    with View(runs, config.trainer.steps) as view:
        if launcher == "basic":  # Hydra's own, which is not needed for one machine
            waiting = [jobs[run] for run in missing]
            train_all(waiting, config.workers, log, view.tell, view.update)
        else:
            train_elsewhere(config, [*overrides, f"hydra/launcher={launcher}"], log, view)


def tell_unfinished(runs: Iterable[Run]) -> int:
    """How many did not finish; why is said of each."""
    unfinished = [run for run in runs if run.status != "finished"]
    for run in unfinished:
        log = run.directory.parents[2] / "train.log"
        where = run.error_file if run.error_file.exists() else log
        print(f"{run.status}: {run}: {run.failure()} ({where})", file=sys.stderr)
    return len(unfinished)


def rule_of(config: DictConfig, overrides: list[str], jobs: Jobs) -> tuple[Rule | None, str]:
    """The rule by which the study is judged; or none, and why it is not.

    A rule is written for the encodings, tasks and seeds of its file. Where the command line names
    others that it does not fit, the study is another one and goes unjudged.

    Raises:
        UserError: there is a rule, and it cannot be decided.
    """
    if config.study.rule is None:
        return None, ""
    tasks = {run.task: one for run, one in jobs.items()}
    encodings = list(dict.fromkeys(run.pe for run in jobs))
    try:
        rule = Rule.of(config.study, encodings, list(tasks), len(config.study.seeds))
        rule.check_tasks({name: build_task(one) for name, one in tasks.items()})
    except Misfit as misfit:
        keys = {override: override.split("=")[0].lstrip("+~") for override in overrides}
        grid = ("study.pe", "study.task", "study.seeds", "study.pairs")
        others = [override for override, key in keys.items() if key in grid]
        if not others or any(key.startswith("study.rule") for key in keys.values()):
            raise UserError(f"{misfit} study.rule=null trains without a rule.") from None
        return None, f"Not judged, since {' '.join(others)} is not the study of the rule: {misfit}"
    return rule, ""


def train_elsewhere(config: DictConfig, overrides: list[str], log: Path, view: View) -> None:
    """Have another launcher of Hydra's, a cluster's, train the grid.

    It is the command a person could type: ``scripts/train.py -m`` with one list for each axis.
    """
    axes = [f"{key}={','.join(map(str, values))}" for key, values in grid(config).items()]
    train = [sys.executable, str(CONFIG_DIR.parent / "scripts" / "train.py")]
    command = [*train, "-m", *overrides, f"study.name={config.study.name}"]
    with log.open("ab") as output:
        process = subprocess.Popen(
            [*command, *axes, "progress=false"], stdout=output, stderr=subprocess.STDOUT
        )
    try:
        while process.poll() is None:
            time.sleep(1.0)
            view.update()
    finally:
        process.terminate()
        process.wait()


def screen() -> Console:
    """Where a bar moves only if it can: a notebook forces colours on what is no terminal."""
    return Console(force_terminal=sys.stdout.isatty())


class View:
    """Every run's progress, read from the runs' directories alone; a context manager."""

    def __init__(self, runs: list[Run], steps: int) -> None:
        self.runs, self.steps = runs, steps
        self.statuses = {run: run.status for run in runs}
        self.progress = {run: run.progress(steps) for run in runs}
        self.started, self.at_start = time.monotonic(), sum(self.progress.values())
        self.told = 0
        self.console = screen()
        self.live = Live(console=self.console, auto_refresh=False, transient=True)

    def __enter__(self) -> Self:
        self.live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.live.stop()

    def tell(self, words: str) -> None:
        """Something that should not pass unseen."""
        self.console.print(f"warning: {words}", markup=False, highlight=False, soft_wrap=True)

    def update(self) -> None:
        """Look again."""
        for run in self.runs:
            if self.statuses[run] != "finished":  # which it stays
                self.statuses[run], self.progress[run] = run.status, run.progress(self.steps)
        done, elapsed = sum(self.progress.values()), time.monotonic() - self.started
        finished = sum(status == "finished" for status in self.statuses.values())
        clock = f"{elapsed:.0f} s gone"
        if done > self.at_start:
            left = elapsed / (done - self.at_start) * (len(self.runs) - done)
            clock += f", about {left:.0f} s left"
        summary = f"{finished} of {len(self.runs)} runs finished, {clock}"
        if self.console.is_terminal:
            self.live.update(summary, refresh=True)
        elif finished >= self.told + max(1, len(self.runs) // 9):
            self.told = finished
            print(summary, flush=True)
