"""The documentation's numbers, from the tables of the committed studies in ``benchmarks/``."""

import functools
from typing import Any

import pandas as pd

from wawa_transformer.common import CONFIG_DIR
from wawa_transformer.lab import comparisons, reading, report, rules, scores, statistics
from wawa_transformer.lab.comparisons import PairTests
from wawa_transformer.lab.scores import Scores
from wawa_transformer.lab.statistics import Estimate, estimate
from wawa_transformer.lab.tables import Study

BENCHMARKS = CONFIG_DIR.parent / "benchmarks"


def studies() -> list[str]:
    """List the committed studies."""
    return sorted(path.parent.name for path in BENCHMARKS.glob("*/results.csv"))


@functools.cache
def study(name: str) -> Study:
    """Read a committed study, once for all pages."""
    return reading.read_study(BENCHMARKS / name)


@functools.cache
def scored(name: str) -> Scores:
    """Compute the scores of a committed study."""
    return scores.score_study(study(name))


@functools.cache
def page(name: str) -> dict[str, Any]:
    """Compute the page of a committed study, in no language."""
    return report.page_of(scored(name))


@functools.cache
def tested(name: str) -> PairTests:
    """Make the comparisons of a study's rule, if any, with one correction for all of them."""
    rule = rules.rule_of(study(name))
    asked, measures = (rule.asked(), rule.measures) if rule else ([], {})
    return comparisons.compare(scored(name), asked, measures)


@functools.cache
def seeds(name: str, task: str, pe: str, score: str = "exact_match") -> pd.Series:
    """Select a score of every seed.

    Raises:
        ValueError: the study has no such numbers.
    """
    values = scored(name).seeds(task, pe, score)
    if values.empty:
        raise ValueError(f"{name} has no {score} on {task} with {pe}")
    return values


def mean(name: str, task: str, pe: str, score: str = "exact_match") -> Estimate:
    """Estimate a score's mean over seeds."""
    return estimate(seeds(name, task, pe, score))


def gap(name: str, task: str, a: str, b: str, score: str = "exact_match") -> Estimate:
    """Estimate the difference a − b in a score, paired by seed, without correction."""
    return statistics.difference(seeds(name, task, a, score), seeds(name, task, b, score))


def encodings(name: str, task: str) -> list[str]:
    """List the encodings that a study trained on a task."""
    there = study(name).results.query("task == @task")["pe"].unique()
    return [pe for pe in study(name).encodings if pe in there]


def steps_to(name: str, task: str, pe: str, level: float) -> pd.Series:
    """Find each seed's first validated step with an exact match of ``level``, or inf."""
    curves = study(name).curves.query("task == @task and pe == @pe")
    reached = curves["step"].where(curves["exact_match"] >= level, float("inf"))
    return reached.groupby(curves["seed"]).min()


@functools.cache
def evaluated(name: str, table: str) -> pd.DataFrame:
    """Read a table of what ``evaluate.py`` said of a study's runs afterwards."""
    return pd.read_csv(BENCHMARKS / name / f"{table}.csv")


def by_length(name: str, task: str, pe: str, score: str, least: int) -> pd.DataFrame:
    """A score by length and seed, of lengths with ``least`` test examples or more."""
    table = evaluated(name, "by_length") if score == "bleu" else study(name).results
    rows = table.query("task == @task and pe == @pe and examples >= @least")
    return rows.pivot(index="length", columns="seed", values=score)
