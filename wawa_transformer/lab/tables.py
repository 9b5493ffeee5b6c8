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
import math
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
from wawa_transformer.common.schema import UserError, names_of, typed, unknown_setting, warn
from wawa_transformer.run.schema import StudyConfig
from wawa_transformer.train.evaluation import METRICS, SHOWN

RUN = ["task", "pe", "seed"]
ORIGIN = ("device", "code", "shared_code")  # where and by which code a row was made
# The measured costs of a run, and how a page writes them.
COSTS = {
    "parameters": ",.0f", "flops_per_step": ".3g", "mfu": ".0%", "tokens_per_second": ",.0f",
    "seconds": ".1f", "peak_memory_mb": ",.0f",
}  # fmt: skip
COUNTED = ["examples", "tokens", *(metric.name for metric in METRICS), "ceiling"]
# Of each table the columns that tell its rows apart, those that a file must have beside them, and
# the others. A column that a file lacks is read as one of empty cells.
TABLES = {
    "results": (
        [*RUN, "length"], ["exact_match", "examples"],
        [*COUNTED, "trained", *(f"{name}_new" for name in COUNTED), *ORIGIN, "data"],
    ),
    "curves": (
        [*RUN, "step"], ["exact_match", "token_accuracy", "nll"],
        [*(metric.name for metric in SHOWN), "train_nll"],
    ),
    "bleu": (
        RUN, ["bleu"],
        ["bleu", "bleu_low", "bleu_high", "chrf", "signature", "chrf_signature", "answer",
         "reached_limit", "altered"],
    ),
    "tests": (["task", "seed", "a", "b"], ["difference", "p"], []),
    "tuning": (["task", "pe", "lr", "warmup", "seed"], ["nll", "exact_match"], []),
    "costs": (["task", "pe"], [], [*COSTS, "device"]),
    "answers": ([*RUN, "source"], ["target", "answer"], ["length"]),
    "attention": ([*RUN, "query", "key"], ["weight"], ["query_token", "key_token"]),
}  # fmt: skip
KEYS = {table: keys for table, (keys, _, _) in TABLES.items()}
NEEDED = {table: needed for table, (_, needed, _) in TABLES.items()}
COLUMNS = {
    table: list(dict.fromkeys([*keys, *others, *needed]))
    for table, (keys, needed, others) in TABLES.items()
}
OPTIONAL = ("answers", "attention")  # which a page may go without
# The needed cells that may be empty: p of equal translations, runs of a tuning that did not finish,
# and an answer of no symbols.
EMPTY = {
    "p": ("tests",), "nll": ("tuning",), "exact_match": ("tuning",), "target": ("answers",),
    "answer": ("answers",),
}  # fmt: skip
WHOLE = (
    "seed", "length", "step", "query", "key", "examples", "tokens", "examples_new", "tokens_new",
)  # fmt: skip
WORDS = (
    "task", "pe", "a", "b", "source", "target", "answer", "signature", "chrf_signature", *ORIGIN,
    "data", "query_token", "key_token", "check",
)  # fmt: skip
# The largest value of a score that has one.
TOPS = {metric.name: metric.top for metric in METRICS if metric.top}
TOPS |= {"ceiling": 1, "p": 1, "bleu": 100, "chrf": 100}


def empty(table: str) -> Any:
    """A field for a table that a study may lack."""
    return field(default_factory=lambda: pd.DataFrame(columns=COLUMNS[table]))


@dataclass(frozen=True, eq=False)  # whose scores are cached
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
    if config:
        check_digests(paths, {name: digest for name, (_, digest) in read.items()}, config)
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
    # By text and split, how many pairs are too long, and how many blank.
    left_out: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)


def read_config(path: Path) -> dict[str, Any]:
    """Read ``study.yaml``; empty if the file is missing."""
    try:
        given = yaml.safe_load(path.read_text(encoding="utf-8"))
        lists = (given["study"]["seeds"], given["tasks"], given["encodings"])
        kinds = [each["kind"] for each in (*given["tasks"].values(), *given["encodings"].values())]
        unknown = given.get("digests", {}).keys() - KEYS.keys()
        if not all(lists) or not all(kinds) or unknown:
            raise ValueError
        names = names_of(StudyConfig)
        for key in (key for key in given["study"] if key not in names):
            raise UserError(unknown_setting(key, "study.yaml.study", names, {}))
        found = typed(StudyFile, given, "study.yaml")
        for task, splits in found["left_out"].items():
            if any({*left} != {"blank", "too_long"} for left in splits.values()):
                raise UserError(f"study.yaml.left_out.{task} must count blank and too_long pairs.")
        return found
    except FileNotFoundError:
        return {}
    except UserError as error:
        raise UserError(f"{path.parent}: {error}") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError):
        raise UserError(
            f"{path} is not a study's configuration, since it lacks study, tasks or encodings, or "
            f"has them in another form; restore the file, or train the study again, which writes "
            f"it."
        ) from None


def read_table(path: Path, name: str) -> tuple[pd.DataFrame, str]:
    """Read one table, check every row by itself, and compute the digest of all rows.

    The table's index is the line in the file.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            head, *rows = list(csv.reader(file)) or [[]]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path} cannot be read ({error}); restore the file.") from None
    for column in [*KEYS[name], *NEEDED[name], *head]:
        if head.count(column) != 1:
            raise UserError(f"{path} needs one column {column}; it has {', '.join(head)}.")
        if column not in (*COLUMNS[name], "check"):
            warn(
                f"warning: no page shows the column {column} of {path}; if it is a metric of "
                f"yours, name its module in import=."
            )
    for line, row in enumerate(rows, start=2):
        if len(row) != len(head):
            raise UserError(
                f"{path}, row {line}: {len(row)} cells under {len(head)} columns, so column "
                f"{head[min(len(row), len(head) - 1)]} was cut or added; restore the row."
            )
    cells = pd.DataFrame(rows, columns=head, index=range(2, len(rows) + 2), dtype=object)
    lacking = [column for column in COLUMNS[name] if column not in head]
    every = cells.reindex(columns=[*head, *lacking], fill_value="")
    table = pd.DataFrame({column: checked(path, name, every[column]) for column in every})
    if "check" in head:
        checks = cells.pop("check")
        sums = pd.Series(map(checksum, cells.to_numpy().tolist()), index=cells.index, dtype=object)
        if (line := first_line(sums.ne(checks))) is not None:
            raise UserError(
                f"{path}, row {line}, column check: the row was edited or its columns "
                f"were put into another order, since its checksum is {sums[line]} and not "
                f"{checks[line]}; restore the row, or write the table again with the study's "
                f"command."
            )
    table = table.drop(columns="check", errors="ignore")
    return without_repeats(path, table, KEYS[name]), rows_digest(head, rows)


def first_line(wrong: pd.Series) -> Any:
    """The line of the first row that is wrong, or None."""
    return next(iter(wrong.index[wrong.to_numpy(dtype=bool)]), None)


def checked(path: Path, table: str, cells: pd.Series) -> pd.Series:
    """Convert one column of a table to its values, and refuse a cell that is none of them.

    An empty cell of a number is NaN, and so is one of ``trained``, since a text's lengths are
    neither.
    """
    column = str(cells.name)
    top = TOPS.get(column.removesuffix("_new"))
    if column in WORDS:
        kind, values, wrong = "a name", cells, cells.isna()
    elif column == "trained":
        values = cells.map({"True": True, "False": False})
        kind, wrong = "True or False", values.isna() & cells.ne("")
    else:
        kind = "a whole number" if column in WHOLE else "a number"
        values = pd.to_numeric(cells, errors="coerce")
        wrong = values.isna() & ~cells.isin(["", "nan", "NaN", "NAN"])
    if column in WHOLE:
        wrong |= values.notna() & (values % 1 != 0)
    if top or column in WHOLE and column != "seed":
        kind += f" from 0 to {top}" if top else " of at least 0"
        wrong |= (values < 0) | (values > (top or math.inf))
    if column in KEYS[table] + NEEDED[table] and table not in EMPTY.get(column, ()):
        wrong |= cells.eq("") | values.isna()
    if (line := first_line(wrong)) is not None:
        raise UserError(
            f"{path}, row {line}, column {column}: {cells[line]!r} is not {kind}; restore the cell."
        )
    return values.astype(int) if column in WHOLE and values.notna().all() else values


def without_repeats(path: Path, table: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Merge rows that are equal but for their origin; refuse two values for the same keys.

    A pair is the same in both orders.
    """
    once = table.drop_duplicates(subset=[*table.columns.difference(list(ORIGIN))])
    told = once[keys].copy()
    if "a" in keys:
        told[["a", "b"]] = np.sort(told[["a", "b"]].to_numpy(str), axis=1)
    if (line := first_line(told.duplicated())) is not None:
        two = once[told.eq(told.loc[line]).all(axis="columns")].iloc[:2].fillna("")
        one, other = two.to_dict("records")
        column = next(key for key in one if one[key] != other[key] and key not in ORIGIN)
        values = [
            ", ".join([f"{row[column]}", *(f"{key} {row[key]}" for key in ORIGIN if row.get(key))])
            for row in (one, other)
        ]
        raise UserError(
            f"{path}, rows {two.index[0]} and {line}, column {column}: {' and '.join(values)} for "
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


def check_digests(
    paths: Mapping[str, Path], digests: Mapping[str, str], config: Mapping[str, Any]
) -> None:
    """Refuse a table that is not the one for which ``study.yaml`` was written, or that is gone."""
    written = config["digests"]
    for name, digest in digests.items():
        if written.get(name) != digest:
            raise UserError(
                f"{paths[name]}, every row and column: the digest of the rows is {digest}, and "
                f"study.yaml was written for {written.get(name, 'no such table')}; rows were "
                f"edited, cut or added, or the table is of another study, so restore it, or write "
                f"it again with the study's command."
            )
    for name in written:
        if name not in digests and name not in OPTIONAL:
            raise UserError(
                f"{paths[name]} is missing, and study.yaml was written for it; restore the table, "
                f"or write it again with the study's command."
            )


def check_alike(path: Path, results: pd.DataFrame) -> None:
    """Refuse runs of one task and seed that had another test, or other training data.

    A text and its test are the same under every seed.
    """
    known = results.mask(results == "")  # an unknown digest is no other one
    known["lengths"] = known.groupby(RUN)["length"].transform("size")
    shared = known["seed"].where(known["trained"].notna(), -1).rename("shared")
    split = known.groupby(["task", shared, "length"])
    for column in ("lengths", "examples", "examples_new", "tokens", "trained", "data"):
        if (line := first_line(split[column].transform("nunique") > 1)) is not None:
            task, pe, seed, length = results.loc[line, KEYS["results"]]
            values = split.get_group((task, shared[line], length))[column].dropna().unique()
            raise UserError(
                f"{path}, row {line}, column {column}: {task} {pe} seed {seed} has at length "
                f"{length} other {column} than another run ({' and '.join(map(str, values))})"
                f"; rows were edited or cut, or the runs had other data, so restore the rows, or "
                f"train the runs on the same data."
            )
