"""Studies with planted numbers, made in memory or written as a study's folder."""

import math
from collections.abc import Callable, Mapping
from math import comb
from pathlib import Path
from typing import Any

import pandas as pd

from wawa_transformer.lab import report
from wawa_transformer.lab.reading import read_study
from wawa_transformer.lab.scores import SCORES, score_study
from wawa_transformer.lab.tables import COLUMNS, RUN, WORDS, Study, write_config, write_table
from wawa_transformer.train.evaluation import METRICS

TRAINED, TESTED = 10, 20
NAMES = [metric.name for metric in METRICS]
Seeds = Mapping[int, float]  # seed -> value


def about(mean: float, spread: float = 0.01) -> Seeds:
    """Five seeds around a mean; half their interval is 2.776 · 1.58 · spread / √5 ≈ 2 spread."""
    return {seed: mean + spread * step for seed, step in enumerate((-2, -1, 0, 1, 2))}


def mirrored(mean: float, spread: float = 0.01) -> Seeds:
    """As many, spread the other way, so that a difference has a spread of its own."""
    return about(mean, -spread)


def frame_of(task: str = "t", **values: Mapping[str, Seeds]) -> pd.DataFrame:
    """A frame of scores: ``frame_of(exact_match={"a": about(0.9)})``."""
    rows = pd.DataFrame(
        [
            {"task": task, "pe": pe, "seed": seed, "score": score, "value": value}
            for score, encodings in values.items()
            for pe, seeds in encodings.items()
            for seed, value in seeds.items()
        ],
        columns=[*RUN, "score", "value"],
    )
    wide = rows.pivot_table(index=RUN, columns="score", values="value", dropna=False)
    return wide.reindex(columns=list(SCORES)).astype(float).sort_index()


def results_of(
    values: Mapping[tuple[str, str], Callable[[int, int], float]],
    seeds: range = range(5),
    lengths: range = range(1, TESTED + 1),
    examples: int = 200,
    **columns: Any,
) -> pd.DataFrame:
    """Rows of ``results.csv``: for each task and encoding, exact match by length and seed."""
    rows = [
        {
            **dict.fromkeys(NAMES, 1.0),
            "task": task, "pe": pe, "seed": seed, "length": length,
            "exact_match": value(length, seed), "token_accuracy": 0.9, "nll": 0.1 + seed / 100,
            "examples": examples, "tokens": examples * (length + 1),
            "ceiling": comb(length + 9, length) / 10**length if task != "sort" else 1.0,
            "trained": length <= TRAINED,
        }
        for (task, pe), value in values.items()
        for seed in seeds
        for length in lengths
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=None if rows else COLUMNS["results"]).assign(**columns)


def text_results(encodings: str, seeds: range = range(2)) -> pd.DataFrame:
    """Rows of ``results.csv`` of a text: two bins of lengths, which were not trained."""
    rows = [
        {**dict.fromkeys(NAMES, 0.5), "exact_match": 0.1, "nll": 2.0}
        | {"task": "text", "pe": pe, "seed": seed, "length": edge, "examples": 10, "tokens": 90}
        | {"ceiling": None, "trained": None}
        for pe in encodings
        for seed in seeds
        for edge in (8, 16)
    ]
    return pd.DataFrame(rows)


def config_of(results: pd.DataFrame, **study: Any) -> dict[str, Any]:
    """The ``study.yaml`` of these results."""
    seeds = sorted(int(seed) for seed in results["seed"].unique())
    given = {"name": "planted", "question": "Does it help?", "pairs": [], "rule": None}
    given |= {"seeds": seeds, "tune": {"lr": [], "warmup": [], "seeds": []}} | study
    return {
        "command": "python scripts/compare.py study=planted",
        "study": given,
        "tasks": {task: {"kind": task} for task in dict.fromkeys(results["task"])},
        "encodings": {pe: {"kind": pe} for pe in dict.fromkeys(results["pe"])},
        "made": {"device": "cpu"},
        "missing": [],
    }


def curves_of(results: pd.DataFrame) -> pd.DataFrame:
    """Two validations of every run."""
    runs = results[RUN].drop_duplicates()
    parts = [
        runs.assign(step=step, exact_match=step / 100, token_accuracy=step / 100, nll=2 - step / 50)
        for step in (50, 100)
    ]
    return pd.concat(parts)


def whole(name: str, table: pd.DataFrame) -> pd.DataFrame:
    """A table as if it were read: what it lacks is empty."""
    lacking = [column for column in COLUMNS[name] if column not in table]
    return table.assign(**{column: "" if column in WORDS else math.nan for column in lacking})


def study_of(results: pd.DataFrame, study: Mapping[str, Any] | None = None, **tables: Any) -> Study:
    """A study in memory."""
    config = config_of(results, **(study or {}))
    read = {name: whole(name, table) for name, table in {"results": results, **tables}.items()}
    return Study(Path("planted"), config, **read)


def write_folder(folder: Path, results: pd.DataFrame, **study: Any) -> Path:
    """Write a study's folder with these results."""
    folder.mkdir(parents=True, exist_ok=True)
    return write_tables(folder, config_of(results, **study), results, curves=curves_of(results))


def write_tables(
    folder: Path, config: Mapping[str, Any], results: pd.DataFrame, **tables: pd.DataFrame
) -> Path:
    """Write a study's configuration and tables."""
    given = {"results": results, **tables}
    digests = {name: write_table(folder / f"{name}.csv", table) for name, table in given.items()}
    write_config(folder / "study.yaml", {**config, "digests": digests})
    return folder


def answer_of(folder: Path) -> str:
    """What the terminal says of a study's folder."""
    return report.answer(report.page_of(score_study(read_study(folder))))


def rule(supported: list[Any], refuted: list[Any], **more: Any) -> dict[str, Any]:
    """A rule as in a study's YAML file."""
    given: dict[str, Any] = {"claim": "It helps.", "each": [], "against": None}
    given |= {"measures": {"exact_match": 0.01}, "supported": supported, "refuted": refuted}
    return given | more
