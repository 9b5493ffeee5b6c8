"""Tables of runs, test lengths and validations, for files and pictures."""

from collections.abc import Sequence

import pandas as pd

from wawa_transformer.lab.judging import LEARNED_IN_RANGE
from wawa_transformer.lab.results import (
    Result,
    at_trained,
    ceiling_of,
    each_rests_on_new,
    named,
    reached,
    trained_rows,
    was_trained,
)
from wawa_transformer.run.run_dir import Run
from wawa_transformer.train.evaluation import METRICS, SHOWN


def length_table(results: Sequence[Result]) -> pd.DataFrame:
    """Build ``results.csv``: one row for each run and test length.

    Columns that end in ``_new`` count only sources that were not in training. They are empty if
    there are no such sources, or if the run did not count them.
    """
    rows = [
        named(result)
        | row
        | {"trained": was_trained(row["length"], result)}
        | {f"{name}_new": value for name, value in row.get("new", {}).items()}
        for result in results
        for row in result["by_length"]
    ]
    metrics = [metric.name for metric in METRICS]
    columns = ["task", "pe", "seed", "length", *metrics, "examples", "ceiling", "trained"]
    columns += [f"{name}_new" for name in ("examples", *metrics, "ceiling")]
    return pd.DataFrame(rows, columns=columns)


def overall_table(results: Sequence[Result]) -> pd.DataFrame:
    """Each run's exact match at trained lengths, with the ceiling; for ``ranking``."""
    rows, decided = [], each_rests_on_new(results)
    for result in results:
        new = decided[result["task"]]
        ceiling = ceiling_of(trained_rows(result, new))
        value = {"value": at_trained(result, new), "limit": ceiling[0] if ceiling else None}
        rows.append(named(result) | value | {"most": 1.0})
    return pd.DataFrame(rows)


def reach_table(results: Sequence[Result]) -> pd.DataFrame:
    """Each run's reach, with the longest trained length; for ``ranking``.

    The reach is NaN if the encoding has not learned the trained lengths. A task is left out if no
    encoding has learned them, or if the test has no longer lengths.
    """
    decided = each_rests_on_new(results)
    rows = pd.DataFrame(
        named(result)
        | {"value": reached(result), "limit": result["train_max_length"]}
        | {"exact_match": at_trained(result, decided[result["task"]])}
        | {"most": max(row["length"] for row in result["by_length"])}
        for result in results
    )
    learned = rows.groupby(["task", "pe"])["exact_match"].transform("mean") >= LEARNED_IN_RANGE
    rows["value"] = rows["value"].where(learned)
    any_of_task = learned.groupby(rows["task"]).transform("any")
    return rows[any_of_task & (rows["most"] > rows["limit"])]


def curve_table(finished: Sequence[Run]) -> pd.DataFrame:
    """Build ``curves.csv``: one row for each run and validation."""
    rows = [
        {"task": run.task, "pe": run.pe, "seed": run.seed} | row
        for run in finished
        for row in run.metrics()
        if row["split"] == "validation"
    ]
    columns = ["task", "pe", "seed", "step", *(metric.name for metric in SHOWN)]
    return pd.DataFrame(rows, columns=columns)


def bleu_table(results: Sequence[Result]) -> pd.DataFrame:
    """Build ``bleu.csv``: BLEU and chrF of each run that translates."""
    columns = ["bleu", "bleu_low", "bleu_high", "chrf", "signature"]
    rows = [
        named(result) | {column: result["translation"][column] for column in columns}
        for result in results
        if result["translation"]
    ]
    return pd.DataFrame(rows)
