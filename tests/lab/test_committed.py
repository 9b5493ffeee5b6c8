"""Every committed report is what its tables say today."""

from pathlib import Path

import pytest

from wawa_transformer.common.files import CONFIG_DIR
from wawa_transformer.lab import report, scores
from wawa_transformer.lab.tables import read_study

BENCHMARKS = CONFIG_DIR.parent / "benchmarks"
FOLDERS = sorted(path.parent for path in BENCHMARKS.glob("*/results.csv"))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_committed_report_follows_from_its_tables(folder: Path) -> None:
    """Written anew without pictures, it is the committed page."""
    study = read_study(folder)
    written = report.markdown(report.page_of(study, scores.scores(study)))
    assert written == (folder / "report.md").read_text(encoding="utf-8")
