"""Tuning: a learning rate for each encoding, chosen with separate seeds.

A single rate for all may suit one encoding and not another, and then the rate decides the result.
With ``study.tune`` every encoding is first trained at every point of a small grid. On each task an
encoding gets its point with the lowest validation NLL, and the study trains at that point with
fresh seeds. Every point trains all encodings, so the report can also say whether the order of the
encodings depends on the rate.
"""

import copy
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence

import pandas as pd
from omegaconf import DictConfig

from wawa_transformer.common.messages import UserError
from wawa_transformer.common.schema import check
from wawa_transformer.lab.scores import POINT, Point
from wawa_transformer.lab.study import Jobs, with_seeds
from wawa_transformer.run.run_dir import Run
from wawa_transformer.run.schema import TrainerConfig


def grid_points(config: DictConfig, overrides: Sequence[str], launcher: str) -> list[Point]:
    """List the points of ``study.tune``; empty if the study has no tuning.

    Raises:
        UserError: the grid leaves nothing to choose, shares a seed with the study, or has a value
            that the trainer does not take; ``overrides``, the command line, set a tuned key; or the
            launcher is a cluster's, which trains all runs with one learning rate.
    """
    tune, trainer = config.study.tune, config.trainer
    if not (tune.lr or tune.warmup or tune.seeds):
        return []
    if launcher != "basic":
        raise UserError(
            f"hydra/launcher={launcher} trains a grid with one learning rate for all, and "
            f"study.tune gives each encoding its own; leave one of them out."
        )
    for key, values in tune.items():
        if len(set(values)) < len(values):
            raise UserError(f"study.tune.{key} names a value twice.")
    for key in POINT:
        values = tune[key]
        for value in values:
            check(TrainerConfig, TrainerConfig(**{key: value}), "study.tune.")
        for override in overrides:
            if values and override.lstrip("+").startswith(f"trainer.{key}="):
                raise UserError(
                    f"{override} is what study.tune.{key} chooses; leave one of them out: "
                    f"study.tune.{key}=[]."
                )
    lrs, warmups = tune.lr or [trainer.lr], tune.warmup or [trainer.warmup]
    points = list(itertools.product(lrs, warmups))
    if len(points) < 2:
        raise UserError(
            f"study.tune has one point (lr {lrs[0]:g}, warmup {warmups[0]}), which leaves nothing "
            f"to choose; give study.tune.lr or study.tune.warmup two values or more, or leave "
            f"study.tune.seeds out."
        )
    if not tune.seeds:
        raise UserError(
            "study.tune.seeds is empty; name seeds that are not in study.seeds, such as [100, 101]."
        )
    if shared := set(tune.seeds) & set(config.study.seeds):
        raise UserError(
            f"study.tune.seeds and study.seeds share {', '.join(map(str, sorted(shared)))}: a rate "
            f"would be tested on the seed it was chosen on; name others."
        )
    return points


def list_trials(config: DictConfig, jobs: Jobs, points: Iterable[Point]) -> dict[Point, Jobs]:
    """Build the tuning runs: the study's ``jobs`` at every point."""
    study, trials = config.study, {}
    own = {(run.task, run.pe): job for run, job in jobs.items()}
    for lr, warmup in points:
        composed = copy.deepcopy(list(own.values()))
        for job in composed:
            job.study.name = f"{study.name}-lr{lr:g}-warmup{warmup}"
            job.pictures = False  # nobody looks at the pictures of a trial
            job.trainer.lr, job.trainer.warmup = lr, warmup
        trials[lr, warmup] = with_seeds(study.tune.seeds, composed)
    return trials


def validation_rows(trials: Mapping[Point, Jobs]) -> pd.DataFrame:
    """Build ``tuning.csv``: each run's validation at the last step.

    The scores are NaN for a run that has not finished, for example because its loss diverged.
    """
    rows = []
    for (lr, warmup), jobs in trials.items():
        for run in jobs:
            kept = run.result()
            scores = kept["validation"] if kept else {}
            row = {"task": run.task, "pe": run.pe, "lr": lr, "warmup": warmup}
            values = {name: scores.get(name, math.nan) for name in ("nll", "exact_match")}
            rows.append(row | {"seed": run.seed} | values)
    return pd.DataFrame(rows)


def tuned(jobs: Jobs, best: Mapping[tuple[str, str], Point]) -> Jobs:
    """Set every run to the best point of its task and encoding."""
    chosen = {}
    for run, job in jobs.items():
        job.trainer.lr, job.trainer.warmup = best[run.task, run.pe]
        chosen[Run.from_config(job)] = job
    return chosen
