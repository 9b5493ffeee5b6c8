"""Results of runs, checked by themselves and against each other."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from wawa_transformer.common.messages import UserError
from wawa_transformer.data.load import SAME_DATA
from wawa_transformer.lab.tables import NEEDED, RUN
from wawa_transformer.run.run_dir import config_digest, differing_key
from wawa_transformer.train.evaluation import METRICS

Result = dict[str, Any]  # the contents of one result.json, with task, pe, seed and run


def check_result(result: Result) -> None:
    """Refuse a result that lacks a key, or whose lengths do not have the scores of its test.

    A test without trained lengths has no scores.
    """
    file = result["run"].result_file
    try:
        lengths = [(row, was_trained(row["length"], result)) for row in result["by_length"]]
        rows = [row for row, trained in lengths if trained is not False]
        for name in ("translation", "finished", "versions"):
            result[name]
        result["validation"]["nll"]
        parts = {"test": (result["test"], rows)}
        if new := result["test"].get("new"):  # on which a report's scores rest
            parts["test's new sources"] = new, [row["new"] for row in rows]
        asked = [(name, *part, metric) for name, part in parts.items() for metric in METRICS]
        for name, whole, each, metric in asked:
            counted = [row for row in each if row["examples"]]
            if not counted or metric.name not in {*NEEDED["curves"], *whole}:
                continue  # the run is older than the metric
            counts, values = ([row[key] for row in counted] for key in (metric.per, metric.name))
            mean, said = np.average(values, weights=counts), whole[metric.name]
            if not np.isclose(mean, said, equal_nan=True):
                raise UserError(
                    f"{file}: {metric.name} of its {name} is {said}, and its lengths have "
                    f"{mean:g}, so the file was edited or the metric is no mean over "
                    f"{metric.per}; restore the file, or add to METRICS, under another name, a "
                    f"mean that tables can average over lengths, such as bits per token in place "
                    f"of perplexity."
                )
    except (KeyError, TypeError) as error:
        raise UserError(
            f"{file} is no whole result ({type(error).__name__}: {error}); it was cut or edited, "
            f"so restore the file."
        ) from None


def check_once(folder: Path, results: Iterable[Result]) -> None:
    """Refuse a run with a second result of other scores in the study's folder, as a merge leaves.

    It may have any name and lie at any depth: ``result (1).json``, or in a copy of the run's or
    study's folder, beside the first or inside.

    Raises:
        UserError: both values, and where each was made.
    """
    known = {config_digest(result.get("configuration")): result["run"] for result in results}
    for path in sorted(folder.rglob("result*")):
        try:
            other, values = read_values(path)
            run = known[config_digest(other["configuration"])]
            result, own = read_values(run.result_file)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue  # no result, or none of these runs
        shared = own.keys() & values.keys()
        one, two = ({key: each[key] for key in shared} for each in (own, values))
        if difference := differing_key(one, two):
            raise UserError(
                f"{run} has two results: {difference[0]} is {difference[1]} in {run.result_file} "
                f"({origin(result)}) and {difference[2]} in {path} ({origin(other)}); no report "
                f"averages them, so put one of the two into another folder."
            )


def read_values(path: Path) -> tuple[Result, dict[str, Any]]:
    """Read a result, and its scores by name and length; NaN is a word, which equals itself."""
    result = json.loads(path.read_bytes(), parse_constant=str)
    rows = [("", result["test"])]
    rows += [(f" at length {row['length']}", row) for row in result["by_length"]]
    return result, {f"{key}{at}": value for at, row in rows for key, value in row.items()}


def origin(result: Mapping[str, Any]) -> str:
    """Say where a result was made: device, processor, code, version of torch, and day."""
    torch = result.get("versions", {}).get("torch", "unknown")
    known = {name: result.get(name, "unknown") for name in ("device", "cpu", "code", "finished")}
    return ", ".join([*(f"{name} {value}" for name, value in known.items()), f"torch {torch}"])


def check_comparable(
    results: Sequence[Result], tuned: Sequence[str] = (), own: Collection[str] = ()
) -> None:
    """Refuse runs that differ in more than encoding, task and seed.

    All runs of one task must have the same task settings, all runs of one task and seed, or of one
    text, the same data as loaded, and all runs of one encoding the same encoding settings and
    model. The ``tuned`` keys of the trainer may differ between encodings and tasks, ``own`` keys of
    the model between encodings.
    """
    first: dict[Any, tuple[Result, Any]] = {}
    for result in results:
        task, pe, seed = (result[name] for name in RUN)
        given = result.get("configuration", {})
        trainer, model = given.get("trainer", {}), given.get("model", {})
        common = {key: value for key, value in model.items() if key not in own}
        untuned = {key: value for key, value in trainer.items() if key not in tuned}
        of_seed = f" with seed {seed}" if result.get("train_max_length") else ""
        data = {f"the data of {task}{of_seed}": result.get("data")}
        # What must be the same for all runs, for those of one task, and so on.
        for alike, part, more in (
            ((), {"model": common, "trainer": untuned}, ""),
            ((task,), {"task": given.get("task")}, ""),
            ((None, pe), {"pe": given.get("pe"), "model": model}, ""),
            ((task, pe), {"trainer": trainer}, ""),
            ((task, None, of_seed), data, f" {SAME_DATA}"),
        ):
            other, expected = first.setdefault(alike, (result, part))
            if difference := differing_key(expected, part):
                key, one, two = difference
                raise UserError(
                    f"the runs differ in {key}, {one} in {other['run'].directory} and {two} in "
                    f"{result['run'].directory}: no report compares them; give one of them another "
                    f"study.name.{more}"
                )


def was_trained(length: int, result: Result) -> bool | None:
    """True if the length is in training's range; None for a text."""
    if result["train_max_length"] is None:
        return None
    return bool(result["train_min_length"] <= length <= result["train_max_length"])
