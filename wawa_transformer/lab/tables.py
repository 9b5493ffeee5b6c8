"""The tables of a study's folder: their columns, and how they are written.

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

import pandas as pd
import yaml

from wawa_transformer.common.files import write_atomically
from wawa_transformer.train.evaluation import METRICS, shown_metrics

RUN = ["task", "pe", "seed"]
ORIGIN = ("device", "code", "shared_code")  # where and by which code a row was made
# The measured costs of a run, and how a page writes them.
COSTS = {
    "parameters": ",.0f", "flops_per_step": ".3g", "mfu": ".0%", "tokens_per_second": ",.0f",
    "seconds": ".1f", "peak_memory_mb": ",.0f",
}  # fmt: skip
COUNTED = ("examples", "tokens", "ceiling")
# Of each table the columns that tell its rows apart, those that a file must have beside them, and
# all the others that are no metrics: numbers, then words. A column that a file lacks is read as one
# of empty cells.
TABLES: dict[str, tuple[list[str], list[str], list[str], list[str]]] = {
    "results": (
        [*RUN, "length"], ["exact_match", "examples"],
        [*COUNTED, *(f"{name}_new" for name in COUNTED), "trained"], [*ORIGIN, "data"],
    ),
    "curves": ([*RUN, "step"], ["exact_match", "token_accuracy", "nll"], ["train_nll"], []),
    "bleu": (
        RUN, ["bleu"], ["bleu", "bleu_low", "bleu_high", "chrf", "reached_limit", "altered"],
        ["signature", "chrf_signature", "answer"],
    ),
    "tests": (["task", "seed", "a", "b"], ["difference", "p"], ["difference", "p"], []),
    "tuning": (["task", "pe", "lr", "warmup", "seed"], ["nll", "exact_match"], [], []),
    "costs": (["task", "pe"], [], [*COSTS], ["device"]),
    "answers": ([*RUN, "source"], ["target", "answer"], ["length"], ["target", "answer"]),
    "attention": ([*RUN, "query", "key"], ["weight"], ["weight"], ["query_token", "key_token"]),
}  # fmt: skip
METRIC_COLUMNS = {
    "results": [f"{metric.name}{end}" for end in ("", "_new") for metric in METRICS],
    "curves": [metric.name for metric in shown_metrics()],
}
KEYS = {table: keys for table, (keys, *_) in TABLES.items()}
NEEDED = {table: needed for table, (_, needed, *_) in TABLES.items()}
COLUMNS = {
    table: list(dict.fromkeys([*keys, *METRIC_COLUMNS.get(table, needed), *numbers, *words]))
    for table, (keys, needed, numbers, words) in TABLES.items()
}
WORDS = {"task", "pe", "a", "b", "source", "check"}.union(*(words for *_, words in TABLES.values()))
OWN = WORDS.union(*(keys + numbers for keys, _, numbers, _ in TABLES.values()))
OPTIONAL = ("answers", "attention")  # which a page may go without
# The needed cells that may be empty: p of equal translations, runs of a tuning that did not finish,
# and a source or an answer of no symbols.
EMPTY = {
    "p": ("tests",), "nll": ("tuning",), "exact_match": ("tuning",), "source": ("answers",),
    "target": ("answers",), "answer": ("answers",),
}  # fmt: skip
WHOLE = (
    "seed", "length", "step", "query", "key", "examples", "tokens", "examples_new", "tokens_new",
)  # fmt: skip
# The largest value of each column that has no negative ones.
TOPS = dict.fromkeys(["nll", "train_nll", *WHOLE, *COSTS], math.inf)
TOPS |= {metric.name: metric.top for metric in METRICS if metric.top}
TOPS |= {"ceiling": 1, "p": 1, "weight": 1, "bleu": 100, "chrf": 100}
del TOPS["seed"]
# Of two columns the one that is never larger than the other, in one row.
ORDER = {
    "examples_new": "examples", "tokens_new": "tokens", "examples": "tokens",
    "exact_match": "oracle_exact_match",
}  # fmt: skip


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
    """Hash a table's columns and rows but for their origin, whatever their order and repetition."""
    kept = sorted((column, i) for i, column in enumerate(head) if column not in (*ORIGIN, "check"))
    lines = {chr(31).join(row[place] for _, place in kept) for row in rows}
    return checksum([column for column, _ in kept] + sorted(lines))


def checksum(cells: list[str]) -> str:
    """Hash text cells to eight hexadecimal digits."""
    return f"{zlib.crc32(chr(31).join(cells).encode()):08x}"


def write_config(path: Path, config: Mapping[str, Any]) -> None:
    """Write ``study.yaml``."""
    text = yaml.safe_dump(
        dict(config), sort_keys=False, default_flow_style=None, allow_unicode=True, width=100
    )
    write_atomically(path, text)
