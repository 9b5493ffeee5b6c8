"""A few torn files of ``scripts/dev/faults.py``; the script itself tries many more."""

from __future__ import annotations

import runpy
from pathlib import Path

from conftest import SCRIPTS

FAULTS = runpy.run_path(str(SCRIPTS / "dev" / "faults.py"))


def test_torn_files_are_noticed_or_made_whole(tmp_path: Path) -> None:
    """Each file cut and replaced by a folder."""
    trials = FAULTS["Trials"](tmp_path, seed=0)
    trials.undisturbed("learned")
    FAULTS["tear"](trials, damages=(FAULTS["cut"], FAULTS["put_folder"]))
    rows = list(trials.rows.values())
    assert [note for row in rows for note in row.notes] == []
    assert sum(row.survived for row in rows) >= 15
