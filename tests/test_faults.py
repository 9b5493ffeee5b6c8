"""A few kills, tears and rivals of ``scripts/faults.py``; the script itself tries many more."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest
from conftest import SCRIPTS

FAULTS = runpy.run_path(str(SCRIPTS / "faults.py"))


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A place for them, and the undisturbed run."""
    trials = FAULTS["Trials"](tmp_path_factory.mktemp("faults"), seed=0)
    trials.undisturbed("learned")
    return trials


def nothing_lost(trials: Any, tried: int) -> None:
    """Of at least so many trials since the last call."""
    rows, trials.rows = list(trials.rows.values()), {}
    assert [note for row in rows for note in row.notes] == []
    assert sum(row.survived for row in rows) >= tried


def test_killed_runs_end_as_undisturbed_ones(trials: Any) -> None:
    """Two kills at random moments, then the end."""
    FAULTS["kill"](trials, "train.py", "killed", 2)
    nothing_lost(trials, 3)


def test_torn_files_are_noticed_or_made_whole(trials: Any) -> None:
    """Each file cut and replaced by a folder."""
    FAULTS["tear"](trials, damages=(FAULTS["cut"], FAULTS["put_folder"]))
    nothing_lost(trials, 15)


def test_what_was_lost_is_counted(trials: Any, tmp_path: Path) -> None:
    """Planted: an altered weight, a lost line and a changed number are seen in the table."""
    run = FAULTS["Run"].of(trials.config("undisturbed", "pe=learned"))
    right = trials.expected["learned"]
    assert trials.wrong(run) == {}
    for key, loss in (("weights", "numbers"), ("lines", "lines"), ("result", "numbers")):
        trials.expected["learned"] = right | {key: None}
        assert list(trials.wrong(run)) == [loss]
    trials.expected["learned"] = right
    row = FAULTS["Row"]("planted")
    row.add({"lines": "doubled"})
    assert re.fullmatch(r"planted +1 +0 +0 +0 +1( +0){3}", FAULTS["table"]([row]).splitlines()[1])
