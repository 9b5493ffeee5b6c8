"""Read a study's folder, and check its tables: by row, against each other and ``study.yaml``."""

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from omegaconf import MISSING

from wawa_transformer.common.messages import UserError, warn
from wawa_transformer.common.schema import check_known, names_of, typed
from wawa_transformer.lab.tables import (
    COLUMNS,
    EMPTY,
    KEYS,
    NEEDED,
    OPTIONAL,
    ORDER,
    ORIGIN,
    RUN,
    TOPS,
    WHOLE,
    WORDS,
    Study,
    checksum,
    rows_digest,
)
from wawa_transformer.run.schema import StudyConfig


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
    check_parts(paths["results"], tables["results"])
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
    """The keys of ``study.yaml`` that are the same for every study."""

    study: StudyConfig = field(default_factory=StudyConfig)
    command: str = ""
    unjudged: str = ""
    first_rule: str = ""  # the digest of the rule with which the first results were reported
    made: dict[str, str] = field(default_factory=dict)
    missing: list[MissingRun] = field(default_factory=list)
    # By task and encoding, the finished runs of the folder that are in no table.
    other_runs: dict[str, int] = field(default_factory=dict)
    # By text and split, how many pairs are too long, and how many blank.
    left_out: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)


# Its parts with the settings of classes, which a fork may have of its own.
SETTINGS = ("tasks", "encodings", "model", "trainer")


def read_config(path: Path) -> dict[str, Any]:
    """Read ``study.yaml``; empty if the file is missing."""
    try:
        given = yaml.safe_load(path.read_text(encoding="utf-8"))
        # The digests come last, so that a file that was cut lacks them.
        parts = (given["study"]["seeds"], *(given[k] for k in ("tasks", "encodings", "digests")))
        kinds = [each["kind"] for each in (*given["tasks"].values(), *given["encodings"].values())]
        unknown = given["digests"].keys() - KEYS.keys()
        settings = {key: given.pop(key, {}) for key in SETTINGS}
        dicts = all(isinstance(each, dict) for each in settings.values())
        if not all(parts) or not all(kinds) or unknown or not dicts:
            raise ValueError
        check_known(given["study"], names_of(StudyConfig), "study.yaml.study")
        config = settings | typed(StudyFile, given, "study.yaml", beside=SETTINGS)
        for task, splits in config["left_out"].items():
            names, every = {"blank", "too_long"}, splits.values()
            if any({*left} != names or min(left.values()) < 0 for left in every):
                raise UserError(f"study.yaml.left_out.{task} must count blank and too_long pairs.")
        return config
    except FileNotFoundError:
        return {}
    except UserError as error:
        raise UserError(f"{path.parent}: {error}") from None
    except (
        OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, yaml.YAMLError,
    ):  # fmt: skip
        raise UserError(
            f"{path} is not a study's configuration, since it lacks study, tasks, encodings or "
            f"digests, or has them in another form; restore the file, or train the study again, "
            f"which writes it."
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
            raise UserError(
                f"{path} needs one column {column}; it has {', '.join(head)}. Restore the file, or "
                f"save the table with commas between its columns."
            )
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
    table = pd.DataFrame({column: checked(path, name, cells[column]) for column in head})
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
    lacking = [column for column in COLUMNS[name] if column not in head]
    table = table.drop(columns="check", errors="ignore").assign(
        **{column: "" if column in WORDS else math.nan for column in lacking}
    )
    return without_repeats(path, table, KEYS[name]), rows_digest(head, rows)


def first_line(wrong: pd.Series) -> Any:
    """The line of the first row that is wrong, or None."""
    return next(iter(wrong.index[wrong.to_numpy(dtype=bool)]), None)


def checked(path: Path, table: str, cells: pd.Series) -> pd.Series:
    """Read the values of one column, and refuse a wrong cell.

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
    if top:
        kind += " of at least 0" if top == math.inf else f" from 0 to {top}"
        wrong |= (values < 0) | (values > top)
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
                f"study.yaml was written for {written.get(name, 'no such table')}; rows or names "
                f"of columns were edited, cut or added, the table is of another study, or older "
                f"code wrote study.yaml; restore it, or write it again with the study's command."
            )
    for name in written:
        if name not in digests and name not in OPTIONAL:
            raise UserError(
                f"{paths[name]} is missing, and study.yaml was written for it; restore the table, "
                f"or write it again with the study's command."
            )


def check_parts(path: Path, results: pd.DataFrame) -> None:
    """Refuse a row with more of a part than of the whole."""
    for column, most in ORDER.items():
        if (line := first_line(results[column] > results[most])) is not None:
            raise UserError(
                f"{path}, row {line}, column {column}: {results[column][line]} is more than its "
                f"{most}, {results[most][line]}; restore both, or the names of the columns."
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
