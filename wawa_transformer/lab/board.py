"""An encoding's row beside the committed rows of one fixed setting (``study.against``).

The setting is everything but the encodings: tasks, model, trainer and seeds. Rows of another
setting, or of runs on other data, are not compared.
"""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from wawa_transformer.common import CONFIG_DIR
from wawa_transformer.lab import scores, statistics
from wawa_transformer.lab.entries import model_keys
from wawa_transformer.lab.reading import read_study
from wawa_transformer.lab.scores import Scores
from wawa_transformer.lab.statistics import Estimate, estimate
from wawa_transformer.lab.tables import Study
from wawa_transformer.run.run_dir import differing_key, identity
from wawa_transformer.run.schema import ModelConfig, TrainerConfig

Why = tuple[str, dict[str, str]]  # a key of words.yaml, with what fills it
UNSEEN = 0.75  # the weight of the unseen lengths in a total, as 30 of the 40 lengths are unseen


@dataclass(frozen=True)
class Row:
    """An encoding's scores: a total, its difference to the best committed one, and each task's."""

    pe: str
    own: bool  # of this study, and not of the committed one
    total: Estimate
    gap: Estimate | None  # paired by seed; None for the best committed row itself
    tasks: Mapping[str, tuple[Estimate, Estimate]]  # exact match at trained and at unseen lengths


@dataclass(frozen=True)
class Board:
    """The rows with the digest of their setting, the best total first.

    Without rows, ``why`` is the reason.
    """

    setting: str
    rows: list[Row] = field(default_factory=list)
    why: Why = ("", {})
    lacking: list[str] = field(default_factory=list)  # the study's encodings without a row

    @property
    def encodings(self) -> list[str]:
        """The encodings that have a row."""
        return list(dict.fromkeys(row.pe for row in self.rows))

    @property
    def seeds(self) -> int:
        """The number of seeds of a whole row."""
        return max(row.total.n for row in self.rows)

    def short(self, row: Row) -> str:
        """The number of a row's seeds if another row has more."""
        return f" (n={row.total.n})" if row.total.n < self.seeds else ""


def board(made: Scores) -> Board | None:
    """Put a study's encodings beside those of ``study.against``; None without that key.

    Raises:
        UserError: as in :func:`committed_study`.
    """
    study = made.study
    if study.config.get("study", {}).get("against") is None:
        return None
    theirs, why = committed_study(study.config)
    setting = digest(setting_of(study.config))
    if theirs is None:
        return Board(setting, why=why)
    if theirs.folder.samefile(study.folder):
        theirs = study
    if on_other_data(study, theirs):
        return Board(setting, why=("board_other_data", why[1]))
    committed = made if theirs is study else scores.score_study(theirs)
    if totals(committed).empty:
        return Board(setting, why=("board_missing", why[1]))
    rows = rows_of(committed, committed, own=False)
    rows += rows_of(made, committed, own=True) if theirs is not study else []
    known = totals(made).index
    lacking = [pe for pe in study.config["encodings"] if pe not in known]
    return Board(setting, sorted(rows, key=lambda row: -row.total.mean), lacking=lacking)


def committed_study(config: Mapping[str, Any]) -> tuple[Study | None, Why]:
    """Read the study of ``study.against``; None, and why, if no row can stand beside its rows.

    ``config`` is that of the other study, as in ``study.yaml``.

    Raises:
        UserError: the tables of ``study.against`` are damaged.
    """
    against = config["study"]["against"]
    folder = CONFIG_DIR.parent / against
    if not (folder / "results.csv").is_file() or not (theirs := read_study(folder)).config:
        return None, ("board_missing", {"folder": against})
    own, other = setting_of(config), setting_of(theirs.config)
    fill = {"folder": against, "own": digest(own), "theirs": digest(other)}
    if difference := differing_key(own, other):
        return None, ("board_other_setting", fill | {"key": difference[0]})
    if seen := [task for task in theirs.tasks if not scores.unseen_lengths(theirs, task)]:
        return None, ("board_seen", fill | {"task": seen[0]})
    return theirs, ("", fill)


def setting_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """Select from ``study.yaml`` what the runs have in common, wherever they ran.

    A key that an older study does not have had the default. A key of the model that one encoding
    has for itself makes the setting another one.
    """
    defaults: dict[str, Any] = {"model": ModelConfig(), "trainer": TrainerConfig()}
    alike = {key: dataclasses.asdict(value) | given[key] for key, value in defaults.items()}
    alike["model"] |= model_keys(given["encodings"])
    # Left out where nothing is tuned or loaded, so that committed digests stay as they are.
    own = {f"study.tune.{key}": values for key, values in given["study"]["tune"].items()}
    own["trainer.init_from"] = alike["trainer"]["init_from"]
    own = {key: value for key, value in own.items() if value}
    return {
        "tasks": given["tasks"],
        "seeds": sorted(given["study"]["seeds"]),
        **identity(alike),
        **own,
    }


def digest(setting: Mapping[str, Any]) -> str:
    """Hash a setting to eight hexadecimal digits."""
    return hashlib.sha256(json.dumps(setting, sort_keys=True).encode()).hexdigest()[:8]


def on_other_data(one: Study, other: Study) -> bool:
    """True if runs of one task and seed were made on different data in two studies."""
    known = [study.results[study.results["data"] != ""] for study in (one, other)]
    digests = [results.groupby(["task", "seed"])["data"].first() for results in known]
    first, second = digests[0].align(digests[1], join="inner")
    return bool(first.ne(second).any())


def totals(made: Scores) -> pd.Series:
    """Average exact match over tasks, by encoding and seed; a seed needs every task.

    Trained lengths have the weight 1 − ``UNSEEN``, and rest on new sources.
    """
    share = (1 - UNSEEN) * made.frame["exact_match"] + UNSEEN * made.frame["beyond"]
    by_task = share.unstack("task").reindex(columns=list(made.study.config["tasks"]))
    return by_task.mean(axis="columns", skipna=False).dropna()


def rows_of(made: Scores, committed: Scores, own: bool) -> list[Row]:
    """Build the rows of a study's encodings; each has a run of every task and one seed or more."""
    known, trained = totals(committed), totals(made)
    best = str(known.groupby("pe").mean().idxmax())
    rows = []
    for pe in (each for each in made.study.encodings if each in trained.index):
        tasks = {
            task: (made.mean(task, pe, "exact_match"), made.mean(task, pe, "beyond"))
            for task in committed.study.tasks  # in one order, as the columns of a table
        }
        is_best = pe == best and not own
        gap = None if is_best else statistics.difference(trained.xs(pe), known.xs(best))
        rows.append(Row(pe, own, estimate(trained.xs(pe)), gap, tasks))
    return rows
