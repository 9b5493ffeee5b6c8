"""The tables of a study's folder: how they are written, and how they are read and checked.

A folder holds ``study.yaml``, the composed configuration, and tables with a row for

- ``results.csv``: each run and test length; ``curves.csv``: each run and validation;
- ``bleu.csv``: each run that translates; ``tests.csv``: each pair and seed in the paired test over
  test sentences;
- ``tuning.csv``: each run that chose a learning rate; ``costs.csv``: each task and encoding;
- ``answers.csv``: each shown answer; ``attention.csv``: each weight of a shown answer.

Reports and documentation read nothing else. The last column, ``check``, is a checksum of the row.
"""

import csv
import functools
import io
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from omegaconf import MISSING

from wawa_transformer.common.files import write_atomically
from wawa_transformer.common.schema import UserError, typed
from wawa_transformer.run.schema import StudyConfig
from wawa_transformer.train.evaluation import METRICS

RUN = ["task", "pe", "seed"]
# The columns that tell the rows of a table apart.
KEYS = {
    "results": [*RUN, "length"],
    "curves": [*RUN, "step"],
    "bleu": RUN,
    "tests": ["task", "seed", "a", "b"],
    "tuning": ["task", "pe", "lr", "warmup", "seed"],
    "costs": ["task", "pe"],
    "answers": [*RUN, "source"],
    "attention": [*RUN, "query", "key"],
}
NEEDED = {
    "results": ["exact_match", "examples"], "tests": ["difference", "p"], "bleu": ["bleu"],
    "curves": ["exact_match", "token_accuracy", "nll"],
}  # fmt: skip
OPTIONAL = ("answers", "attention")  # which a page may go without
ORIGIN = ("device", "code", "shared_code")  # where and by which code a row was made
WHOLE = (
    "seed", "length", "step", "query", "key", "examples", "tokens", "examples_new", "tokens_new",
)  # fmt: skip
WORDS = (
    "task", "pe", "a", "b", "source", "target", "answer", "signature", "chrf_signature", *ORIGIN,
    "data", "trained", "query_token", "key_token", "check",
)  # fmt: skip
# The measured costs of a run, and how a page writes them.
COSTS = {
    "parameters": ",.0f", "flops_per_step": ".3g", "mfu": ".0%", "tokens_per_second": ",.0f",
    "seconds": ".1f", "peak_memory_mb": ",.0f",
}  # fmt: skip
# The largest value of a score that has one.
TOPS = {metric.name: metric.top for metric in METRICS if metric.top}
TOPS |= {"ceiling": 1, "p": 1, "bleu": 100, "chrf": 100}


def empty(table: str) -> Any:
    """A field for a table that a study may lack."""
    columns = KEYS[table] + NEEDED.get(table, [])
    return field(default_factory=lambda: pd.DataFrame(columns=columns))


@dataclass(frozen=True)
class Study:
    """A study's configuration and tables, each with the columns of ``KEYS`` and its values.

    ``config`` holds ``command``, ``study``, ``model``, ``trainer``, ``tasks`` and ``encodings``
    (each by name), ``made`` (where the runs were made) and ``missing`` (the unfinished runs). It is
    empty for a folder without ``study.yaml``.
    """

    folder: Path
    config: Mapping[str, Any]
    results: pd.DataFrame
    curves: pd.DataFrame = empty("curves")
    bleu: pd.DataFrame = empty("bleu")
    tests: pd.DataFrame = empty("tests")
    tuning: pd.DataFrame = empty("tuning")
    costs: pd.DataFrame = empty("costs")
    answers: pd.DataFrame = empty("answers")
    attention: pd.DataFrame = empty("attention")

    @property
    def name(self) -> str:
        """The name of the study, or of its folder."""
        return str(self.config.get("study", {}).get("name", self.folder.resolve().name))

    @functools.cached_property
    def tasks(self) -> list[str]:
        """The tasks that have results, in the study's order."""
        return ordered(self.results["task"], self.config.get("tasks", {}))

    @functools.cached_property
    def encodings(self) -> list[str]:
        """The encodings that have results, in the study's order."""
        return ordered(self.results["pe"], self.config.get("encodings", {}))

    @functools.cached_property
    def by_task(self) -> dict[Any, pd.DataFrame]:
        """The results of each task."""
        return dict(list(self.results.groupby("task", sort=False)))

    @functools.cached_property
    def at_trained_lengths(self) -> dict[Any, pd.DataFrame]:
        """The results of each task at trained lengths; a text has none."""
        column = "trained" in self.results
        return {
            task: rows[rows["trained"].eq(True)] if column else rows[:0]
            for task, rows in self.by_task.items()
        }


def ordered(names: pd.Series, known: Mapping[str, Any]) -> list[str]:
    """List different names, those that are ``known`` first and in their order."""
    there = list(dict.fromkeys(names))
    return [name for name in known if name in there] + [n for n in there if n not in known]


def of_task(table: pd.DataFrame, task: str) -> pd.DataFrame:
    """Select the rows of one task."""
    return table[table["task"] == task]


def write_table(path: Path, table: pd.DataFrame) -> str:
    """Write a table, each row with its checksum; return the digest of its rows."""
    head, *rows = csv.reader(io.StringIO(table.to_csv(index=False)))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*head, "check"])
    writer.writerows([*row, checksum(row)] for row in rows)
    write_atomically(path, out.getvalue())
    return rows_digest(head, rows)


def rows_digest(head: list[str], rows: list[list[str]]) -> str:
    """Hash a table's rows but for their origin, whatever their order and repetition."""
    kept = [place for place, column in enumerate(head) if column not in (*ORIGIN, "check")]
    return checksum(sorted({chr(31).join(row[place] for place in kept) for row in rows}))


def checksum(cells: list[str]) -> str:
    """Hash text cells to eight hexadecimal digits."""
    return f"{zlib.crc32(chr(31).join(cells).encode()):08x}"


def write_config(path: Path, config: Mapping[str, Any]) -> None:
    """Write ``study.yaml``."""
    text = yaml.safe_dump(
        dict(config), sort_keys=False, default_flow_style=None, allow_unicode=True, width=100
    )
    write_atomically(path, text)


def read_study(folder: Path) -> Study:
    """Read a study's folder, and check its tables against each other.

    Rows that stand in a table twice are read once.

    Raises:
        UserError: a file is missing or is no table, a row was edited or lacks a number, two rows
            contradict each other, rows were cut off, or a table is of another study.
    """
    if not (folder / "results.csv").is_file():
        raise UserError(
            f"report={folder} holds no results.csv; name the folder of a study, such as "
            f"results/default."
        )
    config = read_config(folder / "study.yaml")
    paths = {table: folder / f"{table}.csv" for table in KEYS}
    read = {name: read_table(path, name) for name, path in paths.items() if path.is_file()}
    tables = {name: table for name, (table, _) in read.items()}
    for name, table in tables.items():
        check_names(paths[name], table, config)
    check_alike(paths["results"], tables["results"])
    # An older file counts the rows.
    for name, expected in (config.get("digests") or config.get("rows", {})).items():
        if name in read:
            check_rows(paths[name], *read[name], expected)
        elif name not in OPTIONAL:
            raise UserError(
                f"{paths[name]} is missing, and study.yaml was written for it; restore the table, "
                f"or write it again with the study's command."
            )
    return Study(folder, config, **tables)


@dataclass
class MissingRun:
    """An unfinished run in ``study.yaml``."""

    task: str = MISSING
    pe: str = MISSING
    seed: int = MISSING
    status: str = MISSING
    why: str = MISSING


@dataclass
class LeftOut:
    """How many pairs of a text's split are left out."""

    too_long: int = 0
    blank: int = 0


@dataclass
class Splits:
    """What is left out of a text, by split."""

    train: LeftOut = field(default_factory=LeftOut)
    validation: LeftOut = field(default_factory=LeftOut)
    test: LeftOut = field(default_factory=LeftOut)


@dataclass
class StudyFile:
    """Every key of ``study.yaml``."""

    study: StudyConfig = field(default_factory=StudyConfig)
    tasks: dict[str, dict[str, Any]] = MISSING
    encodings: dict[str, dict[str, Any]] = MISSING
    model: dict[str, Any] = field(default_factory=dict)
    trainer: dict[str, Any] = field(default_factory=dict)
    command: str = ""
    unjudged: str = ""
    made: dict[str, str] = field(default_factory=dict)
    missing: list[MissingRun] = field(default_factory=list)
    left_out: dict[str, Splits] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)  # of older files


def read_config(path: Path) -> dict[str, Any]:
    """Read ``study.yaml``; empty if the file is missing."""
    try:
        given = yaml.safe_load(path.read_text(encoding="utf-8"))
        lists = (given["study"]["seeds"], given["tasks"], given["encodings"])
        kinds = [each["kind"] for each in (*given["tasks"].values(), *given["encodings"].values())]
        unknown = {*given.get("digests", {}), *given.get("rows", {})} - KEYS.keys()
        if not all(lists) or not all(kinds) or unknown:
            raise ValueError
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError):
        raise UserError(
            f"{path} is not a study's configuration, since it lacks study, tasks or encodings, or "
            f"has them in another form; restore the file, or train the study again, which writes "
            f"it."
        ) from None
    try:
        try:
            return typed(StudyFile, given, "study.yaml")
        except UserError:
            typed(StudyConfig, given["study"], "study.yaml.study")  # which suggests the right key
            raise
    except UserError as error:
        raise UserError(f"{path.parent}: {error}") from None


def read_table(path: Path, name: str) -> tuple[pd.DataFrame, str]:
    """Read one table, check every row by itself, and compute the digest of all rows.

    The table's index is the line in the file.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            head, *rows = list(csv.reader(file)) or [[]]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path} cannot be read ({error}); restore the file.") from None
    for column in [*KEYS[name], *NEEDED.get(name, []), *head]:
        if head.count(column) != 1:
            raise UserError(f"{path} needs one column {column}; it has {', '.join(head)}.")
    for line, row in enumerate(rows, start=2):
        if len(row) != len(head):
            raise UserError(
                f"{path}, row {line}: {len(row)} cells under {len(head)} columns, so column "
                f"{head[min(len(row), len(head) - 1)]} was cut or added; restore the row."
            )
    table = pd.DataFrame(rows, columns=head, index=range(2, len(rows) + 2), dtype=object)
    numbers = {c: check_numbers(path, table[c]) for c in head if c not in WORDS}
    if "check" in table:
        checks = table.pop("check")
        sums = pd.Series(map(checksum, table.to_numpy().tolist()), index=table.index, dtype=object)
        if (line := first_line(sums.ne(checks))) is not None:
            raise UserError(
                f"{path}, row {line}, column check: the row was edited, since its checksum is "
                f"{sums[line]} and not {checks[line]}; restore the row, or write the table again "
                f"with the study's command."
            )
    table = table.assign(**numbers)
    if "trained" in table:
        known = {"True": True, "False": False}
        # A text's lengths are neither.
        if (line := first_line(~table["trained"].isin([*known, ""]))) is not None:
            raise UserError(
                f"{path}, row {line}, column trained: {table['trained'][line]!r} is not True or "
                f"False; restore the cell."
            )
        table["trained"] = table["trained"].map(known)
    return without_repeats(path, table, KEYS[name]), rows_digest(head, rows)


def first_line(wrong: pd.Series) -> Any:
    """The line of the first row that is wrong, or None."""
    return next(iter(wrong.index[wrong.to_numpy(dtype=bool)]), None)


def check_numbers(path: Path, cells: pd.Series) -> pd.Series:
    """Convert one column to numbers; an empty cell is NaN."""
    column = str(cells.name)
    values = pd.to_numeric(cells.where(cells != "", "nan"), errors="coerce")
    wrong = values.isna()
    wrong[wrong] = ~cells[wrong].str.lower().isin(["", "nan"])
    if top := TOPS.get(column.removesuffix("_new")):
        wrong |= (values < 0) | (values > top)
    if column in KEYS["results"] + KEYS["curves"] + NEEDED["results"] + NEEDED["bleu"]:
        wrong |= values.isna()
    if column in WHOLE:
        wrong |= values.notna() & (values % 1 != 0)
    if (line := first_line(wrong)) is not None:
        kind = "a whole number" if column in WHOLE else "a number"
        kind += f" from 0 to {top}" if top else ""
        raise UserError(
            f"{path}, row {line}, column {column}: {cells[line]!r} is not {kind}; restore the cell."
        )
    return values.astype(int) if column in WHOLE and values.notna().all() else values


def without_repeats(path: Path, table: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Merge rows that are equal but for their origin; refuse two values for the same keys.

    A pair is the same in both orders.
    """
    origin = [column for column in ORIGIN if column in table]
    once = table.drop_duplicates(subset=[*table.columns.difference(origin)])
    told = once[keys].copy()
    if "a" in keys:
        told[["a", "b"]] = np.sort(told[["a", "b"]].to_numpy(str), axis=1)
    if (line := first_line(told.duplicated())) is not None:
        same = once[told.eq(told.loc[line]).all(axis="columns")]
        one, other = (same.iloc[place].fillna("") for place in (0, 1))
        column = first_line(one.drop(origin).ne(other.drop(origin)))
        values = [
            f"{row[column]}" + f" ({', '.join(f'{c} {row[c]}' for c in origin)})" * bool(origin)
            for row in (one, other)
        ]
        raise UserError(
            f"{path}, rows {same.index[0]} and {line}, column {column}: {' and '.join(values)} for "
            f"the same {', '.join(f'{key} {one[key]}' for key in keys)}; no report averages them, "
            f"so put one of them into another folder."
        )
    return once


def check_names(path: Path, table: pd.DataFrame, config: Mapping[str, Any]) -> None:
    """Refuse a row about a task, an encoding or a seed that the study does not have."""
    if not config:
        return
    study = config["study"]
    seeds = study["tune"]["seeds"] if path.stem == "tuning" else study["seeds"]
    known = {"task": config["tasks"], "seed": seeds}
    known |= dict.fromkeys(("pe", "a", "b"), config["encodings"])
    for column in table.columns.intersection(list(known)):
        line = first_line(~table[column].isin(list(known[column])))
        if line is not None:
            raise UserError(
                f"{path}, row {line}, column {column}: {table[column][line]} is not in study.yaml, "
                f"which has {', '.join(map(str, known[column]))}; the table is of another study."
            )


def check_rows(path: Path, table: pd.DataFrame, digest: str, expected: str | int) -> None:
    """Refuse a table that has another digest, or number, of rows than when it was written."""
    kind, there = ("number", len(table)) if isinstance(expected, int) else ("digest", digest)
    if there != expected:
        raise UserError(
            f"{path}, rows 2 to {max(table.index, default=1)}, every column: the {kind} of the "
            f"rows is {there}, and study.yaml was written for {expected}; rows were edited, cut "
            f"or added, or the table is of another study, so restore it, or write it again with "
            f"the study's command."
        )


def check_alike(path: Path, results: pd.DataFrame) -> None:
    """Refuse runs of one task and seed that had another test, or other training data."""
    known = results.mask(results == "")  # an unknown digest is no other one
    split = known.groupby(["task", "seed", "length"])
    encodings = known.groupby(["task", "seed"])["pe"].transform("nunique")
    if (line := first_line(split["pe"].transform("size") < encodings)) is not None:
        task, pe, seed, length = results.loc[line, KEYS["results"]]
        every = known.groupby(["task", "seed"])["pe"].get_group((task, seed))
        there = split["pe"].get_group((task, seed, length))
        lacking = every[~every.isin(there)].unique()
        raise UserError(
            f"{path}, row {line}, column length: {task} {pe} seed {seed} has a row of length "
            f"{length}, and {', '.join(lacking)} has none; rows were cut, or the runs had other "
            f"tests, so restore the rows, or train the runs on the same data."
        )
    for column in results.columns.intersection(["examples", "data"]):
        if (line := first_line(split[column].transform("nunique") > 1)) is not None:
            task, pe, seed, length = results.loc[line, KEYS["results"]]
            values = split.get_group((task, seed, length))[column].dropna().unique()
            raise UserError(
                f"{path}, row {line}, column {column}: {task} {pe} seed {seed} has at length "
                f"{length} other {column} than another encoding ({' and '.join(map(str, values))})"
                f"; rows were edited, or the runs had other data, so restore the rows, or "
                f"train the runs on the same data."
            )
