"""The tables of a study, collected from the files of its runs."""

import json
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd

from wawa_transformer.common.schema import UserError, warn
from wawa_transformer.data.tasks import build_task
from wawa_transformer.decode.significance import paired_randomisation
from wawa_transformer.decode.strategies import Greedy
from wawa_transformer.decode.translation import bleu_metric, hypotheses, read
from wawa_transformer.lab.entries import model_keys
from wawa_transformer.lab.tables import (
    COLUMNS,
    COSTS,
    KEYS,
    NEEDED,
    OPTIONAL,
    RUN,
    read_table,
    write_config,
    write_table,
)
from wawa_transformer.run.provenance import code_digest
from wawa_transformer.run.run_dir import Run, config_digest, differing_key
from wawa_transformer.train.evaluation import METRICS
from wawa_transformer.train.load import load_model

Result = dict[str, Any]  # the contents of one result.json, with task, pe, seed and run
PAST = 3  # one shown answer is this many symbols longer than the longest trained length


def write_tables(
    folder: Path,
    config: Mapping[str, Any],
    runs: Sequence[Run],
    pairs: Sequence[tuple[str, str]],
    tried: pd.DataFrame,
) -> None:
    """Write a study's tables and ``study.yaml`` into ``folder``.

    ``config`` is the study's configuration, ``pairs`` are the pairs of encodings whose translations
    are tested, and ``tried`` is the table of tuning, empty without tuning. Unfinished runs enter no
    table, and are named in ``study.yaml``.

    Raises:
        UserError: the runs cannot be compared.
    """
    # Read once: a run that finishes meanwhile must not be listed as missing.
    kept = {run: run.result() for run in runs}
    results = [
        {**result, "task": run.task, "pe": run.pe, "seed": run.seed, "run": run}
        for run, result in kept.items()
        if result
    ]
    for result in results:
        check_result(result)
    check_once(folder, results)
    tuned = ("lr", "warmup") if len(tried) else ()
    check_comparable(results, tuned, model_keys(config["encodings"]))
    tables = {
        "results": length_table(results),
        "curves": curve_table(results),
        "bleu": bleu_table(results),
        "tests": test_table(results, pairs),
        "tuning": tried,
        "costs": cost_table(results),
        **shown_answers(results),
    }
    for name in OPTIONAL:
        tables[name] = with_older(folder / f"{name}.csv", name, tables[name], tables["results"])
    digests = {}
    for name, table in tables.items():
        path = folder / f"{name}.csv"
        if len(table) or name in ("results", "curves"):
            digests[name] = write_table(path, table)
        else:
            path.unlink(missing_ok=True)
    missing = [
        {"task": run.task, "pe": run.pe, "seed": run.seed, "status": run.status}
        | {"why": run.failure()}
        for run, result in kept.items()
        if not result
    ]
    more = {"made": made(results), "missing": missing, "digests": digests}
    more["left_out"] = {r["task"]: r["left_out"] for r in results if r.get("left_out")}
    write_config(folder / "study.yaml", {**config, **more})


def with_older(path: Path, name: str, table: pd.DataFrame, results: pd.DataFrame) -> pd.DataFrame:
    """Add what an older table has of tasks without rows, and of runs that are as they were.

    The answers of a run cannot be made again without its weights or its code.
    """
    try:
        older, _ = read_table(path, name)
        before, _ = read_table(path.with_name("results.csv"), "results")
    except UserError:  # there is none
        return table
    same = before.merge(results, on=[*KEYS["results"], "exact_match", "nll", "code"])[RUN]
    kept = older[~older["task"].isin(table["task"])].merge(same.drop_duplicates(), on=RUN)
    return pd.concat([table, kept]) if len(kept) else table


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
        for metric in METRICS if rows else ():
            if metric.name not in {*NEEDED["curves"], *result["test"]}:
                continue  # the run is older than the metric
            counts, values = ([row[key] for row in rows] for key in (metric.per, metric.name))
            mean, said = np.average(values, weights=counts), result["test"][metric.name]
            if not np.isclose(mean, said, equal_nan=True):
                raise UserError(
                    f"{file}: {metric.name} of its test is {said}, and its lengths have {mean:g}, "
                    f"so the file was edited or the metric is no mean over {metric.per}; restore "
                    f"the file, or add to METRICS, under another name, a mean that tables can "
                    f"average over lengths, such as bits per token in place of perplexity."
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
        if found := differing_key(one, two):
            raise UserError(
                f"{run} has two results: {found[0]} is {found[1]} in {run.result_file} "
                f"({origin(result)}) and {found[2]} in {path} ({origin(other)}); no report "
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
        # What must be the same for all runs, for those of one task, and so on.
        for alike, part in (
            ((), {"model": common, "trainer": untuned}),
            ((task,), {"task": given.get("task")}),
            ((None, pe), {"pe": given.get("pe"), "model": model}),
            ((task, pe), {"trainer": trainer}),
            ((task, None, of_seed), {f"the data of {task}{of_seed}": result.get("data")}),
        ):
            other, expected = first.setdefault(alike, (result, part))
            if found := differing_key(expected, part):
                raise UserError(
                    f"the runs differ in {found[0]}, {found[1]} in {other['run'].directory} and "
                    f"{found[2]} in {result['run'].directory}: no report compares them; give one "
                    f"of them another study.name."
                )


def length_table(results: Sequence[Result]) -> pd.DataFrame:
    """Build ``results.csv``: one row for each run and test length.

    Columns that end in ``_new`` count only sources that were not in training. ``device``, ``code``,
    ``shared_code`` and ``data`` say where, by which code and on which data a run was made.
    """
    rows = [
        {**result, **row, "trained": was_trained(row["length"], result)}
        | {f"{name}_new": value for name, value in row.get("new", {}).items()}
        for result in results
        for row in result["by_length"]
    ]
    return pd.DataFrame(rows, columns=COLUMNS["results"])


def was_trained(length: int, result: Result) -> bool | None:
    """True if the length is in training's range; None for a text."""
    if result["train_max_length"] is None:
        return None
    return bool(result["train_min_length"] <= length <= result["train_max_length"])


def curve_table(results: Iterable[Result]) -> pd.DataFrame:
    """Build ``curves.csv``: one row for each run and validation.

    ``train_nll`` is the mean of the training NLL that was logged since the validation before. A
    file of curves that does not end with the result's validation is missing, or another run's.
    """
    rows = []
    for result in results:
        run, logged = result["run"], list[float]()
        measured = run.metrics()
        ends = [row["nll"] for row in measured if row["split"] == "validation"][-1:]
        if not np.allclose(ends or [np.nan], result["validation"]["nll"], rtol=1e-3):
            warn(f"warning: no curves of {run}: {run.metrics_file} is not of its result")
            continue
        for row in measured:
            if row["split"] == "train" and "nll" in row:
                logged.append(row["nll"])
            if row["split"] == "validation":
                rows.append({**result, **row, "train_nll": fmean(logged) if logged else None})
                logged = []
    return pd.DataFrame(rows, columns=COLUMNS["curves"])


def bleu_table(results: Sequence[Result]) -> pd.DataFrame:
    """Build ``bleu.csv``: the scores of each run that translates.

    ``answer`` names the score that answers, ``reached_limit`` and ``altered`` count outputs that a
    step after the model may have spoilt.
    """
    rows = [{**result, **result["translation"]} for result in results if result["translation"]]
    return pd.DataFrame(rows, columns=COLUMNS["bleu"])


def test_table(results: Sequence[Result], pairs: Sequence[tuple[str, str]]) -> pd.DataFrame:
    """Build ``tests.csv``: each pair's difference in BLEU under each seed, and its p.

    Equal translations have no p.
    """
    translated = {(r["task"], r["seed"], r["pe"]): r for r in results if r["translation"]}
    lines = {key: found for key, r in translated.items() if (found := translations_of(r))}
    once = {frozenset(pair): pair for pair in reversed(pairs)}
    rows = []
    for task, seed in dict.fromkeys(key[:2] for key in lines):
        for a, b in reversed(once.values()):
            keys = [(task, seed, pe) for pe in (a, b)]
            if not all(key in lines for key in keys):
                continue
            (first, references), (second, _) = (lines[key] for key in keys)
            p = None
            if first != second:
                p = paired_randomisation(first, second, references, bleu_metric(references))
            bleu = [translated[key]["translation"]["bleu"] for key in keys]
            row = {"task": task, "seed": seed, "a": a, "b": b}
            rows.append(row | {"difference": bleu[0] - bleu[1], "p": p})
    return pd.DataFrame(rows, columns=COLUMNS["tests"])


def translations_of(result: Result) -> tuple[list[str], list[str]] | None:
    """Read a run's translations and references.

    None if a file is missing, or if BLEU splits words in another way here than in the result.

    Raises:
        UserError: they do not have the BLEU of the run's result.
    """
    run, bleu = result["run"], result["translation"]["bleu"]
    try:
        found, references = map(read_lines, (run.translations_file, run.references_file))
    except (OSError, UnicodeDecodeError):
        warn(f"warning: no tests of {run}: {run.translations_file} cannot be read")
        return None
    scored = math.nan
    if len(found) == len(references):
        metric = bleu_metric(references)
        scored = metric.corpus_score(found, [references]).score
        there = re.findall(r"\btok:([^|]+)", result["translation"].get("signature", ""))
        here = re.findall(r"\btok:([^|]+)", str(metric.get_signature()))
        if there and there != here:
            warn(
                f"warning: no tests of {run}: sacreBLEU's tokenizer is {here[0]} here, and its "
                f"BLEU is by {there[0]}"
            )
            return None
    if not abs(scored - bleu) < 0.1:
        raise UserError(
            f"{run.translations_file} has a BLEU of {scored:.2f}, and {run.result_file} says "
            f"{bleu:.2f}; one of them was edited, cut or is another run's, so restore it."
        )
    return found, references


def read_lines(path: Path) -> list[str]:
    """Read one sentence per line."""
    # str.splitlines would also split at U+2028.
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")


def cost_table(results: Sequence[Result]) -> pd.DataFrame:
    """Build ``costs.csv``: what the runs of each task and encoding cost, medians over seeds."""
    rows = pd.DataFrame(results, columns=COLUMNS["costs"])
    rows = rows.astype(dict.fromkeys(COSTS, float))
    how: Any = {**dict.fromkeys(COSTS, "median"), "device": distinct}
    return rows.groupby(["task", "pe"], sort=False).agg(how).reset_index()


def distinct(values: Iterable[Any]) -> str:
    """List the different values, separated by semicolons."""
    return "; ".join(str(value) for value in dict.fromkeys(values))


def made(results: Sequence[Result]) -> dict[str, str]:
    """List the devices, versions and dates of the runs."""
    if not results:
        return {}
    dates = sorted(result["finished"] for result in results)
    versions = dict.fromkeys(name for result in results for name in result["versions"])
    places = ("device", "cpu", "threads", "commit")
    return {
        **{name: distinct(result.get(name, "unknown") for result in results) for name in places},
        **{name: distinct(r["versions"].get(name) for r in results) for name in versions},
        "code": ", ".join(sorted({str(result.get("code")) for result in results})),
        "finished": dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}",
    }


def shown_answers(results: Sequence[Result]) -> dict[str, pd.DataFrame]:
    """Build ``answers.csv`` and ``attention.csv``: what every encoding answers to a few sources.

    The models are those of the first seed for which every encoding of a task has weights. A text's
    answers are the samples that its runs have kept, without attention.
    """
    answers, attention = list[dict[str, Any]](), list[dict[str, Any]]()
    for _, runs in pd.DataFrame(results, columns=RUN).groupby("task", sort=False):
        seed = runs.groupby("seed")["pe"].nunique().idxmax()
        for result in (results[place] for place in runs.index[runs["seed"] == seed]):
            if result["translation"]:
                answers += kept_answers(result)
                continue
            try:
                said, looked = generated_answers(result)
            except UserError as error:
                warn(f"warning: no answers of {result['run']}: {error}")
                continue
            answers, attention = answers + said, attention + looked
    return {
        "answers": pd.DataFrame(answers, columns=COLUMNS["answers"]),
        "attention": pd.DataFrame(attention, columns=COLUMNS["attention"]),
    }


def kept_answers(result: Result) -> list[dict[str, Any]]:
    """List the samples that a text's run has kept; a source that occurs twice is shown once."""
    once = {each["source"]: each for each in result["translation"].get("samples", [])}
    return [
        {**result, "length": len(source.split()), "source": source}
        | {"target": sample["reference"], "answer": sample["hypothesis"]}
        for source, sample in once.items()
    ]


def generated_answers(result: Result) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Let the model of a generated task answer the test's first sources of three lengths.

    The lengths are half the longest trained length, the longest, and ``PAST`` more. The attention
    is the last layer's from the answer to the source of the longest trained length, averaged over
    heads.
    """
    trained = load_model(result["run"])
    if code_digest(trained.config) != result.get("code"):
        raise UserError("the code has changed since it was trained")
    task = build_task(trained.config)
    test = task.test(result["seed"])["test"]
    longest = result["train_max_length"]
    first = {length: row for row, length in reversed(list(enumerate(test["length"])))}
    rows = [first[n] for n in (longest // 2, longest, longest + PAST) if n in first]
    shown = test.select(rows).to_list()
    # Not trained.translate, which warns of the source that is longer on purpose.
    sources = read(trained.tokenizer, [row["source"] for row in shown])
    given = hypotheses(trained.model, trained.tokenizer, sources, Greedy())
    said = [
        {**result, **row, "answer": best.text} for row, [best, *_] in zip(shown, given, strict=True)
    ]
    if longest not in first:  # as of a cutoff in SCAN
        return said, []
    weights, answer, source = trained.attention(test[first[longest]]["source"])
    looked = [
        {**result, "query": q, "key": k, "weight": round(float(weight), 4)}
        | {"query_token": answer[q], "key_token": source[k]}
        for q, row in enumerate(weights.mean(dim=0))  # (T,S)
        for k, weight in enumerate(row)
    ]  # fmt: skip
    return said, looked
