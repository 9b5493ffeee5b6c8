"""An encoding stands in one row among committed ones of the same setting, and no other."""

import re
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from planted import config_of, results_of, study_of, whole, write_tables

from wawa_transformer.lab import report, scores, statistics
from wawa_transformer.lab.board import Board, board, committed_study
from wawa_transformer.lab.pages import tr
from wawa_transformer.lab.reading import read_study
from wawa_transformer.lab.styles import encoding_styles
from wawa_transformer.lab.tables import Study

TASKS = ("copy", "sort")
COMMITTED = {"sinusoidal": (0.9, 0.2), "none": (0.5, 0.1), "t5": (0.9, 0.4)}


def planted(values: dict[str, tuple[float, float]]) -> pd.DataFrame:
    """Results with an exact match at trained and at unseen lengths, seeds a hundredth apart."""

    def exact(trained: float, unseen: float) -> Any:
        return lambda length, seed: (trained if length <= 10 else unseen) + seed / 100

    cells = {(task, pe): exact(*pair) for pe, pair in values.items() for task in TASKS}
    return results_of(cells, seeds=range(3), data="d")


@pytest.fixture(scope="module")
def committed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study's folder whose rows stand beside themselves."""
    folder = tmp_path_factory.mktemp("committed") / "board"
    results = planted(COMMITTED)
    # The best row has the best mean, and another one the best seed.
    swing = results["seed"].map({0: -0.2, 1: -0.02, 2: 0.22})
    results["exact_match"] += swing.where(results["pe"].eq("sinusoidal") & ~results["trained"], 0)
    study = beside(folder, results)
    folder.mkdir()
    return write_tables(folder, study.config, study.results)


def beside(folder: Path, results: pd.DataFrame, **trainer: Any) -> Study:
    """A study whose rows stand beside those of a folder."""
    config = config_of(results, against=str(folder)) | {"model": {}, "trainer": trainer}
    return Study(folder.parent, config, whole("results", results))


def board_of(study: Study) -> Board:
    made = board(scores.score_study(study))
    assert made is not None
    return made


def said_of(made: Board) -> str:
    """The first sentence of a report."""
    return tr(report.placed(made)[0])


@pytest.fixture(scope="module")
def their_setting(committed: Path) -> str:
    made = board_of(read_study(committed))
    assert [row.pe for row in made.rows] == ["t5", "sinusoidal", "none"], "once each"
    return made.setting


def test_an_encoding_is_placed_by_its_total_and_paired_with_the_best(
    committed: Path, their_setting: str
) -> None:
    """A quarter of 0.9 and three of 0.3 make 0.45; the best has 0.525; each seed adds 0.01."""
    results = planted({"mine": (0.9, 0.3)})
    # The seeds of one differ otherwise, so that the paired difference has an interval.
    results.loc[(results.seed == 2) & ~results.trained, "exact_match"] -= 0.04
    study = beside(committed, results)
    study.config["tasks"] = dict(reversed(study.config["tasks"].items()))  # type: ignore[index]
    scored = scores.score_study(study)
    made = board(scored)
    assert made is not None and made.setting == their_setting
    assert [row.pe for row in made.rows] == ["t5", "mine", "sinusoidal", "none"]
    assert [list(row.tasks) for row in made.rows] == [list(TASKS)] * 4
    mine = made.rows[1]
    totals = [0.45, 0.46, 0.47 - 0.03]
    gaps = statistics.estimate([mine_ - best for mine_, best in
                            zip(totals, (0.525, 0.535, 0.545), strict=True)])  # fmt: skip
    assert mine.own and mine.gap is not None and made.rows[0].gap is None
    assert mine.total.mean == pytest.approx(sum(totals) / 3)
    assert (mine.gap.mean, mine.gap.half_width) == pytest.approx((gaps.mean, gaps.half_width))
    page = report.page_of(scored)
    text, said = report.markdown(page), report.answer(page)
    assert "0.910 →\u00a00.410" in text, "trained, then unseen"
    place = f"The encoding mine: place 2 of 4, total {mine.total:z.3f}; {mine.gap:+z.3f} from t5"
    assert f"**{place}" in text and place in said
    [line] = re.findall(r"^\| \*\*mine \(this study\)\*\* \| .*", text, re.M)
    assert f"| **{mine.total.mean:.3f} " in line.replace("\u00a0", " "), "one's own row stands out"
    assert page["board"].rows[1][2].value == mine.tasks["copy"][1].mean, "sorted by unseen lengths"
    for row in made.rows:
        name = {"none": "no encoding", "mine": "mine (this study)"}.get(row.pe, row.pe)
        [line] = [each for each in said.splitlines() if each.startswith(f"{name} ")]
        assert f"  {made.setting}  " in line and f"{row.total:z.3f}" in line
    assert "Only one encoding" not in text
    html = report.html(page, dict.fromkeys(page["drawn"], ""))
    [t5] = re.findall(r"<span [^>]*></span>t5</td>", html[: html.index("</table>")])
    assert encoding_styles(["t5"])["t5"]["color"] in t5


@pytest.mark.parametrize(
    ("key", "change"),
    [
        ("trainer.steps", lambda c: c["trainer"].update(steps=501)),
        ("model.d_model", lambda c: c["model"].update(d_model=128)),
        # A key of the model that one encoding has for itself.
        ("model.num_layers", lambda c: c["encodings"]["mine"].update({"model.num_layers": 3})),
        ("tasks.copy.symbols", lambda c: c["tasks"]["copy"].update(symbols=9)),
        ("tasks.other", lambda c: c["tasks"].update(other={"kind": "other"})),
        ("seeds", lambda c: c["study"].update(seeds=[0, 1, 2, 3])),
        ("study.tune.lr", lambda c: c["study"]["tune"].update(lr=[0.001, 0.004], seeds=[9])),
        ("trainer.init_from", lambda c: c["trainer"].update(init_from="results/default")),
    ],
)
def test_another_setting_is_not_compared_and_the_key_is_named(
    key: str, change: Any, committed: Path, their_setting: str
) -> None:
    study = beside(committed, planted({"mine": (0.9, 0.3)}))
    change(study.config)
    made = board_of(study)
    assert made.rows == [] and made.setting != their_setting
    said = said_of(made)
    assert said.startswith(f"No row stands beside those of {committed}: {key}")
    assert made.setting in said and their_setting in said
    assert committed_study(study.config) == (None, made.why)  # which is told before the runs


def test_where_runs_are_made_is_no_part_of_the_setting(committed: Path, their_setting: str) -> None:
    """Nor the order of seeds, nor a key that older rows do not have, if it has its default."""
    elsewhere: dict[str, Any] = {"device": "cuda", "threads": 4, "log_every": 7, "steps": 500}
    study = beside(committed, planted({"mine": (0.9, 0.3)}), **elsewhere)
    study.config["study"]["seeds"] = [2, 0, 1]
    made = board_of(study)
    assert len(made.rows) == 4 and made.setting == their_setting


def test_a_row_counts_the_seeds_that_have_every_task(committed: Path) -> None:
    """Its total is no mean over three, and it says so."""
    results = planted({"mine": (0.9, 0.9)})
    lost = ((results.task == "sort") & (results.seed == 1)) | (results.seed == 2)
    study = beside(committed, results[~lost])
    study.config["study"]["seeds"] = [0, 1, 2]
    made = board_of(study)
    [mine] = [row for row in made.rows if row.own]
    assert mine.total.n == 1 and mine.gap is not None and mine.gap.n == 1
    assert "mine: place 1 of 4, total 0.900 (n=1)" in said_of(made)
    # No run of a whole task is finished, as with workers=0 in the middle of a study.
    study = Study(study.folder, study.config, whole("results", results[results.task == "copy"]))
    made = board_of(study)
    assert len(made.rows) == 3 and not any(row.own for row in made.rows)
    assert said_of(made).startswith("No row of mine (this study): no seed has finished every task.")


def test_other_data_and_a_missing_folder_are_said(committed: Path) -> None:
    results = planted({"mine": (0.9, 0.3)})
    other = board_of(
        beside(committed, results.assign(data=results["seed"].map({2: "e"}).fillna("d")))
    )
    assert "but its code makes other data" in said_of(other)
    assert len(board_of(beside(committed, results.assign(data=""))).rows) == 4  # of older code
    nowhere, bare, partial = (committed / name for name in ("nowhere", "bare", "partial"))
    partial.mkdir()
    rows = planted(COMMITTED)
    write_tables(partial, beside(partial, rows).config, rows[rows.task == "copy"])
    shutil.copytree(partial, bare, ignore=shutil.ignore_patterns("study.yaml"))
    for folder in (nowhere, bare, partial):
        assert "There are no whole rows in" in said_of(board_of(beside(folder, results)))
    results["trained"] = None  # as of a text
    write_tables(partial, beside(partial, results).config, results)
    assert "copy has none; set study.against=null" in said_of(board_of(read_study(partial)))
    assert board(scores.score_study(study_of(results))) is None


def test_a_name_of_the_committed_rows_has_two_rows(committed: Path) -> None:
    """One's own run of a committed encoding stands beside it, and equals it."""
    made = board_of(beside(committed, planted({"t5": COMMITTED["t5"]})))
    rows = [row for row in made.rows if row.pe == "t5"]
    assert [row.own for row in rows] == [False, True]
    assert rows[1].gap is not None and rows[1].gap.mean == 0
