"""A study's runs to one page with the answer first: pictures, intervals, verdicts, every run.

Everything is computed from what the runs left on disk, so a report can be written again at any
time, also while part of a study is still running or has failed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas as pd
from torch.utils.tensorboard import SummaryWriter

from wawa_transformer.evaluation import SHOWN
from wawa_transformer.lab.analysis import (
    Pairs,
    Result,
    bleu_table,
    check_comparable,
    compared_pairs,
    curve_table,
    distinct,
    improvements,
    length_table,
    overall_table,
    reach_table,
    rests_on_new,
    task_summary,
)
from wawa_transformer.lab.answers import highest, lead
from wawa_transformer.lab.conditions import LEARNED_IN_RANGE
from wawa_transformer.lab.examples import Examples, examples
from wawa_transformer.lab.intervals import estimate
from wawa_transformer.lab.pages import write_page
from wawa_transformer.lab.plots import encoding_styles, looks, panels, profiles, ranking, save
from wawa_transformer.lab.profiles import STILL, learning
from wawa_transformer.lab.rates import Rows, rates_summary
from wawa_transformer.lab.rules import Rule
from wawa_transformer.lab.tuning import TUNED
from wawa_transformer.runs import Run
from wawa_transformer.translation import RANDOMISATIONS


def write_report(
    directory: Path,
    runs: list[Run],
    title: str,
    command: str,
    question: str = "",
    pairs: Pairs = (),
    rule: Rule | None = None,
    unjudged: str = "",
    tried: Rows = (),
) -> Path:
    """Write ``report.html``, ``report.md``, CSV files and ``figures/`` into ``directory``.

    ``results.csv`` has a row for each run and test length, ``curves.csv`` one for each run and
    validation, ``bleu.csv`` one for each run that translates, ``tuning.csv`` the rows of ``tried``,
    where the encodings' rates were chosen.

    ``command`` is the shell command that repeats the study, ``question`` what it asks, ``pairs``
    the encodings that it compares, if not all, ``rule`` what decides its outcome, ``unjudged`` why
    nothing does. Runs that have not finished are named on the page and enter no number. Returns
    ``report.html``.
    """
    if len({(run.task, run.pe, run.seed) for run in runs}) < len(runs):
        raise ValueError("two runs share task, encoding and seed: report them as two studies")
    (directory / "figures").mkdir(parents=True, exist_ok=True)
    # Asked once: a run that finishes meanwhile must not be listed as counted.
    kept = {run: run.result() for run in runs}
    statuses = ["finished" if kept[run] else run.status for run in runs]
    finished = [run for run in runs if kept[run]]
    results: list[Result] = [
        {**result, "task": run.task, "pe": run.pe, "seed": run.seed, "run": run}
        for run, result in kept.items()
        if result
    ]
    check_comparable(results, TUNED if tried else ())
    by_length = length_table(results)
    by_length.to_csv(directory / "results.csv", index=False)

    styles = encoding_styles(run.pe for run in runs)
    curves = curve_table(finished)
    curves.to_csv(directory / "curves.csv", index=False)
    if any(result["translation"] for result in results):
        bleu_table(results).to_csv(directory / "bleu.csv", index=False)
    texts = {result["task"] for result in results if result["train_max_length"] is None}
    pictures = draw(results, curves, directory / "figures")
    training = learning(curves, texts)
    improving = {(*key, seed) for key, found in training.items() for seed in found["improving"]}
    tasks = [
        task_summary(task, [result for result in results if result["task"] == task], pairs, rule)
        for task in dict.fromkeys(run.task for run in finished)
    ]
    asked = [
        examples([run for run in finished if run.task == task["name"]])
        for task in tasks
        if task["trained"]
    ]
    answered = [found for found in asked if found]
    widest = most_to_find(tasks, answered)
    if widest and (maps := two_looks(tasks, widest)):
        figure = looks(maps, widest.wrote, widest.read)
        pictures["looks"] = save(figure, directory / "figures" / "looks.png")
    translated = [task["name"] for task in tasks if task["translation"]]
    if tried:
        pd.DataFrame(tried).to_csv(directory / "tuning.csv", index=False)
    outcomes = rule.decide({task["name"]: task["measured"] for task in tasks}) if rule else []
    environment = _environment(results)
    context = {
        "title": title,
        "question": question,
        "command": command,
        "lead": lead(tasks, rule, outcomes, len(runs) - len(finished)),
        "highest": highest(tasks),
        "rule": rule,
        "outcomes": outcomes,
        "unjudged": unjudged,
        "tasks": tasks,
        "answered": answered,
        "widest": widest,
        "rates": rates_summary(tried, compared_pairs(list(styles), pairs), translated),
        "pictures": pictures,
        "styles": styles,
        "learning": training,
        "texts": texts,
        "still": STILL,
        "improvements": improvements(results, list(styles), pairs),
        "runs": [
            _run_entry(run, status, directory)
            | {"improving": (run.task, run.pe, run.seed) in improving}
            for run, status in zip(runs, statuses, strict=True)
        ],
        "seeds": len({run.seed for run in finished}),
        "at_once": max((result.get("seeds_at_once", 1) for result in results), default=1),
        "comparisons": sum(
            row["difference"].n > 1 for task in tasks for row in task["differences"]
        ),
        "metrics": [metric for metric in SHOWN if metric.name != "exact_match"],
        "learned_in_range": LEARNED_IN_RANGE,
        "randomisations": RANDOMISATIONS,
        "environment": environment,
        "mixed": {name: value for name, value in environment.items() if "; " in value},
    }
    for name in ("report.md", "report.html"):
        write_page(directory / name, Path(__file__).parent / "templates", **context)
    return directory / "report.html"


def draw(results: Sequence[Result], curves: pd.DataFrame, folder: Path) -> dict[str, str]:
    """Every picture that tables alone decide, as PNG in ``folder``; returns their SVG by name."""
    styles = encoding_styles(result["pe"] for result in results)
    texts = {result["task"] for result in results if result["train_max_length"] is None}
    pictures = {}
    by_length = length_table(results)
    if results:
        for name, frame, x, y in (
            ("exact_match_by_length", by_length, "length", "exact_match"),
            ("learning_exact_match", curves, "step", "exact_match"),
            ("learning_nll", curves, "step", "nll"),
        ):
            figure = panels(frame, x, y, styles, texts)
            pictures[name] = save(figure, folder / f"{name}.png")

    generated = [result for result in results if result["train_max_length"] is not None]
    overall = overall_table(generated)
    at_trained = f"exact match at trained lengths{', new sources' * rests_on_new(generated)}"
    if generated and len(styles) > 4:  # too many lines to tell which is best
        how_well = (at_trained, "ceiling without positions")
        how_far = ("reach: longest length with exact match ≥ ½", "longest trained length")
        for name, values, (label, limit) in (
            ("ranking", overall, how_well),
            ("reach", reach_table(generated), how_far),
        ):
            if len(values):
                figure = ranking(values, styles, label, limit)
                pictures[name] = save(figure, folder / f"{name}.png")
    if len(overall) and (overall["task"].nunique() > 1 or len(styles) > 2):
        figure = profiles(overall, styles, at_trained)
        pictures["profiles"] = save(figure, folder / "profiles.png")
    return pictures


def most_to_find(
    tasks: Sequence[Mapping[str, Any]], answered: Sequence[Examples]
) -> Examples | None:
    """Of the tasks with answers the one on which best and worst encoding are farthest apart.

    Of several to a tenth the last, since the easier one comes first: reverse, and not letters.
    """
    means = {task["name"]: task["glance"]["means"].values() for task in tasks}

    def gap(found: Examples) -> float:
        values = [value.mean for value in means[found.task]]
        return round(max(values) - min(values), 1)

    return max(reversed(answered), key=gap, default=None)


def two_looks(tasks: Sequence[Mapping[str, Any]], found: Examples) -> dict[str, Any]:
    """Where the best encoding looked, and where none did, or else the worst."""
    (glance,) = (task["glance"] for task in tasks if task["name"] == found.task)
    best = glance["best"][0]
    worst = min(glance["means"], key=lambda pe: glance["means"][pe].mean)
    other = "none" if "none" in glance["means"] and best != "none" else worst
    return {pe: found.looks[pe] for pe in dict.fromkeys((best, other)) if pe in found.looks}


def _run_entry(run: Run, status: str, directory: Path) -> dict[str, Any]:
    """One run of the list, with a link that still works when the study's folder is moved."""
    path = Path(os.path.relpath(run.directory, directory)).as_posix()
    log = run.error_file.name if status == "failed" else ""
    error = run.failure() if status == "failed" else ""
    entry = {"run": run, "status": status, "path": path, "href": quote(path)}
    return entry | {"log": log, "error": error}


def _environment(results: Sequence[Result]) -> dict[str, str]:
    """On what the study ran; more than one value where the runs differ."""
    if not results:
        return {}
    dates = sorted(result["finished"] for result in results)
    versions = dict.fromkeys(name for result in results for name in result["versions"])
    places = ("device", "cpu", "threads", "commit")
    return {
        **{name: distinct(result.get(name, "unknown") for result in results) for name in places},
        "steps": distinct(result["steps"] for result in results),
        **{name: distinct(r["versions"].get(name) for r in results) for name in versions},
        "finished": dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}",
    }


def write_means(directory: Path) -> None:
    """A TensorBoard run of its own for each encoding of a study: the mean over seeds, with a band.

    Reads ``curves.csv`` in ``directory`` and writes ``<task>/<encoding>/mean``. The mean has the
    tags of the runs, so that it stands in their charts; the tab CUSTOM SCALARS shows it in its 95%
    interval, cut at the bounds of the metric.
    """
    curves = pd.read_csv(directory / "curves.csv")
    charts: dict[str, Any] = {
        metric.name: ["Margin", [f"{metric.name}/{end}" for end in ("validation", "low", "high")]]
        for metric in SHOWN
    }
    for (task, pe), rows in curves.groupby(["task", "pe"]):
        folder = directory / str(task) / str(pe) / "mean"
        shutil.rmtree(folder, ignore_errors=True)
        with SummaryWriter(folder) as writer:
            for metric in SHOWN:
                tags = charts[metric.name][1]
                for step, values in rows.groupby("step")[metric.name]:
                    point = estimate(values)
                    ends = point.within(metric.top) if point.n > 1 else (point.mean, point.mean)
                    for tag, value in zip(tags, (point.mean, *ends), strict=True):
                        writer.add_scalar(tag, value, step)
            writer.add_custom_scalars({"mean over seeds and its 95% interval": charts})
