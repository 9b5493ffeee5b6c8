"""The tables of a study, collected from the files of its runs."""

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd
from omegaconf import DictConfig

from wawa_transformer.common.messages import UserError, warn
from wawa_transformer.data.tasks import build_task
from wawa_transformer.decode.significance import paired_randomisation
from wawa_transformer.decode.strategies import Greedy
from wawa_transformer.decode.translation import bleu_metric, hypotheses, read
from wawa_transformer.lab.entries import model_keys
from wawa_transformer.lab.reading import read_table
from wawa_transformer.lab.results import (
    Result,
    check_comparable,
    check_once,
    check_result,
    was_trained,
)
from wawa_transformer.lab.tables import (
    COLUMNS,
    COSTS,
    KEYS,
    OPTIONAL,
    RUN,
    write_config,
    write_table,
)
from wawa_transformer.run.provenance import code_digest
from wawa_transformer.run.run_dir import HASHED, Run
from wawa_transformer.train.load import load_model
from wawa_transformer.train.tracking import cross_attention

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
    more["other_runs"] = other_runs(folder, runs, config["study"]["tune"]["seeds"])
    more["left_out"] = {r["task"]: r["left_out"] for r in results if r.get("left_out")}
    write_config(folder / "study.yaml", {**config, **more})


def other_runs(folder: Path, runs: Sequence[Run], tuning: Collection[int]) -> dict[str, int]:
    """Count the folder's finished runs that the study leaves out, by task and encoding.

    Runs that chose the learning rate have the seeds of ``tuning`` and are not counted.
    """
    known = {run.directory.resolve() for run in runs}
    found: Counter[str] = Counter()
    for path in sorted(folder.glob("*/*/seed*/result.json")):
        task, pe, name = path.parts[-4:-1]
        named = HASHED.fullmatch(name)
        if named and int(named["seed"]) not in tuning and path.parent.resolve() not in known:
            found[f"{task} {pe}"] += 1
    return dict(found)


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
    lines = {key: texts for key, r in translated.items() if (texts := translations_of(r))}
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
        outputs, references = map(read_lines, (run.translations_file, run.references_file))
    except (OSError, UnicodeDecodeError):
        warn(f"warning: no tests of {run}: {run.translations_file} cannot be read")
        return None
    scored = math.nan
    if len(outputs) == len(references):
        metric = bleu_metric(references)
        scored = metric.corpus_score(outputs, [references]).score
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
    return outputs, references


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

    The lengths are half the longest trained length, the longest, and ``PAST`` more. For a task
    that does not name its trained lengths, the longest of the test counts. The attention is the
    last layer's from the answer to the source of the longest length, averaged over heads.
    """
    # Before the model is loaded, which would warn of the same.
    if code_digest(DictConfig(result["configuration"])) != result.get("code"):
        raise UserError("the code has changed since it was trained")
    trained = load_model(result["run"])
    task = build_task(trained.config)
    test = task.test(result["seed"])["test"]
    longest = result["train_max_length"] or max(test["length"])
    first = {length: row for row, length in reversed(list(enumerate(test["length"])))}
    rows = [first[n] for n in (longest // 2, longest, longest + PAST) if n in first]
    shown = test.select(rows).to_list()
    # Not trained.translate and attention, which warn of a source that is longer on purpose, and of
    # the endless answer of a model that has not learned.
    sources = read(trained.tokenizer, [row["source"] for row in shown])
    given = hypotheses(trained.model, trained.tokenizer, sources, Greedy())
    said = [
        {**result, **row, "answer": best.text} for row, [best, *_] in zip(shown, given, strict=True)
    ]
    if longest not in first:  # as of a cutoff in SCAN
        return said, []
    place = rows.index(first[longest])
    weights, answer, source = cross_attention(
        trained.model, trained.tokenizer, sources[place], given[place][0].ids
    )
    looked = [
        {**result, "query": q, "key": k, "weight": round(float(weight), 4)}
        | {"query_token": answer[q], "key_token": source[k]}
        for q, row in enumerate(weights.mean(dim=0))  # (T,S)
        for k, weight in enumerate(row)
    ]  # fmt: skip
    return said, looked
