"""An encoding stands in one row among committed ones of the same setting, and no other."""

import functools
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from planted import answer_of, config_of, results_of, write_folder

from wawa_transformer.lab import board as boards
from wawa_transformer.lab import report, scores, statistics
from wawa_transformer.lab.tables import read_study, write_config, write_table

TASKS = ("copy", "sort")


def planted(values: dict[str, tuple[float, float]]) -> pd.DataFrame:
    """Results with an exact match at trained and at unseen lengths, seeds a hundredth apart."""

    def exact(trained: float, unseen: float) -> Any:
        return lambda length, seed: (trained if length <= 10 else unseen) + seed / 100

    cells = {(task, pe): exact(*pair) for pe, pair in values.items() for task in TASKS}
    return results_of(cells, seeds=range(3), data="d")


def folder_of(path: Path, results: pd.DataFrame, beside: Path, **trainer: Any) -> Path:
    """Write a study's folder whose rows stand beside another's."""
    write_folder(path, results)
    config = config_of(results, against=str(beside)) | {"model": {}, "trainer": trainer}
    write_config(path / "study.yaml", config)
    return path


@functools.cache
def board_of(folder: Path) -> boards.Board:
    made = boards.board(scores.score_study(read_study(folder)))
    assert made is not None
    return made


COMMITTED = {"sinusoidal": (0.9, 0.2), "none": (0.5, 0.1), "t5": (0.9, 0.4)}


@pytest.fixture(scope="module")
def committed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("committed") / "board"
    return folder_of(folder, planted(COMMITTED), folder)


def test_an_encoding_is_placed_by_its_total_and_paired_with_the_best(
    committed: Path, tmp_path: Path
) -> None:
    """A quarter of 0.9 and three of 0.3 make 0.45; the best has 0.525; each seed adds 0.01."""
    results = planted({"mine": (0.9, 0.3)})
    # The seeds of one differ otherwise, so that the paired difference has an interval.
    results.loc[(results.seed == 2) & ~results.trained, "exact_match"] -= 0.04
    folder = folder_of(tmp_path / "mine", results, committed)
    made = board_of(folder)
    assert [row.pe for row in made.rows] == ["t5", "mine", "sinusoidal", "none"]
    mine = made.rows[1]
    totals = [0.45, 0.46, 0.47 - 0.03]
    gaps = statistics.estimate([mine_ - best for mine_, best in
                            zip(totals, (0.525, 0.535, 0.545), strict=True)])  # fmt: skip
    assert mine.own and mine.gap is not None and made.rows[0].gap is None
    assert mine.total.mean == pytest.approx(sum(totals) / 3)
    assert (mine.gap.mean, mine.gap.half_width) == pytest.approx((gaps.mean, gaps.half_width))
    said = report.answer(report.write_report(folder))
    page = (folder / "report.md").read_text(encoding="utf-8")
    place = f"The encoding mine: place 2 of 4, total {mine.total:z.3f}; {mine.gap:+z.3f} from t5"
    assert f"**{place}" in page and place in said
    for row in made.rows:
        name = {"none": "no encoding", "mine": "mine (this study)"}.get(row.pe, row.pe)
        [line] = [each for each in said.splitlines() if each.startswith(f"{name} ")]
        assert f"  {made.setting}  " in line and f"{row.total:z.3f}" in line
    assert "Only one encoding" not in page


@pytest.mark.parametrize(
    ("key", "change"),
    [
        ("trainer.steps", lambda c: c["trainer"].update(steps=501)),
        ("model.d_model", lambda c: c["model"].update(d_model=128)),
        # A key of the model that one encoding has for itself.
        ("model.num_layers", lambda c: c["encodings"]["mine"].update({"model.num_layers": 3})),
        ("tasks.copy.symbols", lambda c: c["tasks"]["copy"].update(symbols=9)),
        ("tasks.other", lambda c: None),  # the results below are of another task
        ("seeds", lambda c: c["study"].update(seeds=[0, 1, 2, 3])),
    ],
)
def test_another_setting_is_not_compared_and_the_key_is_named(
    key: str, change: Any, committed: Path, tmp_path: Path
) -> None:
    results = planted({"mine": (0.9, 0.3)})
    if key == "tasks.other":
        results["task"] = results["task"].replace("sort", "other")
    folder = folder_of(tmp_path / "mine", results, committed)
    config = yaml.safe_load((folder / "study.yaml").read_text(encoding="utf-8"))
    change(config)
    write_config(folder / "study.yaml", config)
    made = board_of(folder)
    assert made.rows == [] and made.setting != board_of(committed).setting
    said = answer_of(folder)
    assert f"No row stands beside those of {committed}: {key}" in said
    assert made.setting in said and board_of(committed).setting in said


def test_where_runs_are_made_is_no_part_of_the_setting(committed: Path, tmp_path: Path) -> None:
    """Nor a key that older rows do not have, if it has its default."""
    results = planted({"mine": (0.9, 0.3)})
    elsewhere: dict[str, Any] = {"device": "cuda", "threads": 4, "log_every": 7, "steps": 500}
    made = board_of(folder_of(tmp_path / "mine", results, committed, **elsewhere))
    assert len(made.rows) == 4 and made.setting == board_of(committed).setting


def test_a_row_of_fewer_seeds_says_so(committed: Path, tmp_path: Path) -> None:
    """As while a run is missing: its total is no mean over three."""
    results = planted({"mine": (0.9, 0.9)})
    folder = folder_of(tmp_path / "mine", results, committed)
    path = folder / "results.csv"
    kept = results[results["seed"] == 0]
    write_table(path, kept)
    config = yaml.safe_load((folder / "study.yaml").read_text("utf-8"))
    write_config(folder / "study.yaml", config | {"rows": {}})
    assert "mine: place 1 of 4, total 0.900 (n=1)" in answer_of(folder)


def test_other_data_and_a_missing_folder_are_said(committed: Path, tmp_path: Path) -> None:
    results = planted({"mine": (0.9, 0.3)})
    folder_of(tmp_path / "mine", results.assign(data="e"), committed)
    assert "but its code makes other data" in answer_of(tmp_path / "mine")
    folder_of(tmp_path / "mine", results, tmp_path / "nowhere")
    assert "There are no rows in" in answer_of(tmp_path / "mine")
    study = read_study(write_folder(tmp_path / "plain", results))
    assert boards.board(scores.score_study(study)) is None


def test_a_name_of_the_committed_rows_has_two_rows(committed: Path, tmp_path: Path) -> None:
    """One's own run of a committed encoding stands beside it, and equals it."""
    folder = folder_of(tmp_path / "again", planted({"t5": COMMITTED["t5"]}), committed)
    rows = [row for row in board_of(folder).rows if row.pe == "t5"]
    assert [row.own for row in rows] == [False, True]
    assert rows[1].gap is not None and rows[1].gap.mean == 0


def test_a_seed_counts_with_every_task(committed: Path, tmp_path: Path) -> None:
    results = planted({"mine": (0.9, 0.3)})
    lost = results[~((results.task == "sort") & (results.seed == 1))]
    made = board_of(folder_of(tmp_path / "mine", lost, committed))
    [mine] = [row for row in made.rows if row.own]
    assert mine.total.n == 2 and mine.gap is not None and mine.gap.n == 2
