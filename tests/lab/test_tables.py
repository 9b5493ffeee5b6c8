"""A study's tables are read as they were written, and a damaged one is refused by its place."""

import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from planted import results_of, text_results, write_folder
from support import SCRIPTS

from wawa_transformer.common.messages import UserError
from wawa_transformer.lab import figures, report, tables
from wawa_transformer.lab.pages import Text, tr
from wawa_transformer.lab.reading import read_study, read_table
from wawa_transformer.lab.scores import score_study
from wawa_transformer.lab.tables import write_table
from wawa_transformer.train import evaluation
from wawa_transformer.train.tracking import ABOUT

GOOD = results_of({("copy", "a"): lambda n, s: 0.9, ("copy", "b"): lambda n, s: 0.5 + s / 10})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "study", GOOD)


def rewrite(path: Path, row: int, column: str, cell: str, seal: bool = False) -> None:
    """Change one cell of a row in the file (the head is row 1); ``seal`` drops the checksums."""
    head, *rows = [line.split(",") for line in path.read_text(encoding="utf-8").splitlines()]
    rows[row - 2][head.index(column)] = cell
    if seal:
        head, rows = head[:-1], [each[:-1] for each in rows]
    path.write_text("\n".join(map(",".join, [head, *rows])) + "\n", encoding="utf-8")


WRONG = [
    (2, "exact_match", "1.01"), (9, "exact_match", "ninety"), (30, "token_accuracy", "-0.1"),
    (41, "nll", "0.1.2"), (7, "seed", "0.5"), (8, "length", ""), (12, "examples", "many"),
    (12, "exact_match", ""), (12, "ceiling", "2"), (15, "pe", "c"), (15, "task", "sort"),
    (15, "seed", "9"), (4, "exact_match", "0.75"), (5, "nll", "-0.1"),
]  # fmt: skip


@pytest.mark.parametrize("sealed", [False, True])
def test_a_wrong_cell_is_named_by_file_row_and_column(folder: Path, sealed: bool) -> None:
    """With checksums or without them, as in a table from elsewhere."""
    path = folder / "results.csv"
    whole = path.read_bytes()
    for row, column, cell in WRONG:
        path.write_bytes(whole)
        rewrite(path, row, column, cell, sealed)
        named = rf"row {row}, column {column}: "
        if sealed and cell == "0.75":  # which could have been measured
            named = "every row and column: the digest of the rows is .* rows or names of columns w"
        elif not sealed and (column in ("pe", "task") or cell in ("9", "0.75")):
            named = rf"row {row}, column check: the row was edited"
        with pytest.raises(UserError, match=f"results.csv, {named}"):
            read_study(folder)


@pytest.mark.parametrize(
    ("one", "other"), [("examples", "tokens"), ("exact_match", "oracle_exact_match")]
)
def test_names_of_columns_that_were_exchanged_are_seen_without_study_yaml(
    folder: Path, one: str, other: str
) -> None:
    path = folder / "results.csv"
    (folder / "study.yaml").unlink()
    head, rows = path.read_text("utf-8").split("\n", 1)
    exchanged = {one: other, other: one}
    names = [exchanged.get(name, name) for name in head.split(",")]
    path.write_text(",".join(names) + "\n" + rows, "utf-8")
    with pytest.raises(UserError, match=rf"row \d+, column {one}: .* is more than its {other}"):
        read_study(folder)


def test_a_column_that_no_page_shows_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As that of a metric whose module is not imported."""
    path = tmp_path / "results.csv"
    GOOD.assign(bits=1.0).to_csv(path, index=False)
    read_table(path, "results")
    assert capsys.readouterr().err.count("no page shows the column bits of") == 1


def test_a_table_that_was_cut_is_refused(folder: Path) -> None:
    """In a row, within a run, at a run's end, and of a table that no other run could tell."""
    path = folder / "results.csv"
    whole = path.read_text(encoding="utf-8").splitlines(keepends=True)
    for part, sentence in (
        (whole[:50] + [whole[50][:20] + "\n"], r"row 51: \d+ cells under \d+ columns"),
        (whole[:50] + ["copy," + whole[50]], r"row 51: \d+ cells under \d+ columns"),
        (
            whole[:-3],
            r"row 82, column lengths: copy a seed 4 has at .* another run .20 and 17.; rows",
        ),
        (whole[:-20], r"results.csv, every row and column: the digest of the rows is"),
        # The rows are as they were, under exchanged names.
        (
            [re.sub("(exact_match),(token_accuracy)", r"\2,\1", whole[0], count=1), *whole[1:]],
            "every row and column: .* names of columns were edited",
        ),
        ([], "needs one column task"),
        ([line.replace(",", ";") for line in whole], "save the table with commas"),
        ([whole[0].replace("token_accuracy", "nll"), *whole[1:]], "needs one column nll"),
    ):
        path.write_text("".join(part), encoding="utf-8")
        with pytest.raises(UserError, match=sentence):
            read_study(folder)
    path.write_text("".join(whole), encoding="utf-8-sig")  # as Excel saves it
    read_study(folder)
    pd.read_csv(path, dtype=str).sort_index(axis="columns").to_csv(path, index=False)
    with pytest.raises(UserError, match="row 2, .* or its columns were put into another order"):
        read_study(folder)
    path.write_text("".join(whole))
    curves = folder / "curves.csv"
    curves.write_text("".join(curves.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(UserError, match="curves.csv, every row and column: the dig"):
        read_study(folder)


def test_no_column_and_no_score_can_be_the_name_of_a_metric() -> None:
    """Every column of the committed tables, and every number of a run."""
    metrics = {metric.name for metric in evaluation.METRICS}
    names = {*ABOUT}
    for study in SCRIPTS.parent.glob("benchmarks/*/study.yaml"):
        for name in tables.KEYS:
            if (path := study.with_name(f"{name}.csv")).exists():
                names |= {*path.read_text(encoding="utf-8").split("\n", 1)[0].split(",")}
    names = {name for name in names - metrics if not name.endswith("_new")}
    assert len(names) > 40 and not names - evaluation.TAKEN - tables.OWN


@pytest.mark.parametrize("column", ["exact_match", "nll"])
def test_rows_of_two_machines_are_merged_if_equal_and_refused_otherwise(
    folder: Path, column: str
) -> None:
    """Equal but for where they were made; two values are named with their origin."""
    other = GOOD.assign(**{column: GOOD[column] * 0.75})
    files = {}
    for name, table in (("cpu", GOOD), ("card", GOOD), ("other", other)):
        made = table.assign(device=name, code="ab", data="d")
        path = write_folder(folder.parent / name, made) / "results.csv"
        files[name] = path.read_text("utf-8").splitlines(keepends=True)
    merged = folder.parent / "cpu" / "results.csv"
    for again in ("cpu", "card"):
        merged.write_text("".join([*files["cpu"], *files[again][41:61]]), "utf-8")
        assert len(read_study(merged.parent).results) == len(GOOD)
    merged.write_text("".join([*files["cpu"], files["other"][41]]), "utf-8")
    value = GOOD[column][40]
    with pytest.raises(UserError) as refused:
        read_study(merged.parent)
    said = f"rows 42 and 202, column {column}: {value}, device cpu, code ab and {value * 0.75}, d"
    assert said in str(refused.value) and "no report averages them" in str(refused.value)


@pytest.mark.parametrize("table", ["results", "curves"])
def test_a_table_of_another_study_with_the_same_names_is_refused(folder: Path, table: str) -> None:
    """As many rows of the same tasks, encodings and seeds, with and without checksums."""
    other = write_folder(folder.parent / "other", GOOD.assign(seed=GOOD["seed"], nll=0.25))
    lines = (other / "curves.csv").read_text("utf-8").replace("1.0", "0.5").splitlines()
    lines = [line.rsplit(",", 1)[0] for line in lines]  # no checksum
    if table == "results":
        lines = (other / "results.csv").read_text("utf-8").splitlines()
    (folder / f"{table}.csv").write_text("\n".join([*lines, ""]), "utf-8")
    with pytest.raises(
        UserError, match=rf"{table}.csv, every row and .* the digest .* another study"
    ):
        read_study(folder)


@pytest.mark.parametrize("name", ["tests", "answers", "costs"])
def test_a_table_that_was_added_from_another_study_is_refused(folder: Path, name: str) -> None:
    """Its tasks, encodings and seeds are the study's as well."""
    rows = pd.DataFrame([{"task": "copy", "pe": "a", "seed": 0, "a": "a", "b": "b"}])
    given = rows.reindex(columns=tables.COLUMNS[name]).assign(difference=1.0, p=0.5, source="1")
    write_table(folder / f"{name}.csv", given[tables.COLUMNS[name]])
    with pytest.raises(UserError, match=rf"{name}.csv, .* for no such table; .* another study"):
        read_study(folder)


EVERY: dict[str, Any] = {
    "task": "copy", "pe": "a", "seed": 0, "a": "a", "b": "b", "source": "1", "length": 5,
    "step": 9, "query": 0, "key": 0, "lr": 0.1, "warmup": 3, "trained": True,
}  # fmt: skip


def test_a_column_is_needed_or_a_page_goes_without_it(tmp_path: Path) -> None:
    """A table from elsewhere may have its keys and what is needed; and one column more."""

    def write(*more: str) -> None:
        for name, keys in tables.KEYS.items():
            known = {*more} & {*tables.COLUMNS[name]}
            row = dict.fromkeys([*keys, *tables.NEEDED[name], *known], 0.5) | dict.fromkeys(
                {"examples", "examples_new"} & {*tables.NEEDED[name], *known}, 3
            )
            row |= {column: EVERY[column] for column in row if column in EVERY}
            pd.DataFrame([row]).to_csv(tmp_path / f"{name}.csv", index=False)

    for more in ((), ("trained",), ("trained", "examples_new"), ("bleu_low",), ("chrf",)):
        write(*more)
        made = score_study(read_study(tmp_path))
        page = report.page_of(made)
        assert "| a |" in report.markdown(page), more
        assert report.html(page, dict.fromkeys(page["drawn"], "")), more
        for draw in figures.pictures(made).values():
            draw()
    for name, keys in tables.KEYS.items():
        for column in [*keys, *tables.NEEDED[name]]:
            path = tmp_path / f"{name}.csv"
            whole = path.read_text("utf-8")
            pd.read_csv(path, dtype=str).drop(columns=column).to_csv(path, index=False)
            with pytest.raises(UserError, match=rf"{name}.csv needs one column {column}; it has"):
                read_table(path, name)
            path.write_text(whole, "utf-8")


@pytest.mark.parametrize(
    ("name", "column", "cell"),
    [
        ("tests", "difference", ""), ("tests", "a", ""), ("tuning", "lr", ""), ("curves", "pe", ""),
        ("curves", "step", "-1"), ("attention", "weight", ""), ("costs", "task", ""),
        ("attention", "weight", "1.1"), ("costs", "seconds", "-1"), ("curves", "train_nll", "-1"),
        ("results", "tokens", "-4"), ("results", "examples_new", "-1"), ("results", "length", "-3"),
        ("results", "trained", "TRUE"), ("results", "trained", "1"), ("bleu", "bleu", "300"),
        ("bleu", "bleu", "-5"), ("bleu", "bleu", ""), ("bleu", "bleu", "nan"),
        ("bleu", "chrf", "101"), ("tests", "p", "2"), ("results", "exact_match_new", "1.5"),
    ],
)  # fmt: skip
def test_a_cell_that_tells_nothing_is_named(
    tmp_path: Path, name: str, column: str, cell: str
) -> None:
    row = dict.fromkeys(tables.COLUMNS[name], "1") | EVERY | {column: cell}
    path = tmp_path / f"{name}.csv"
    pd.DataFrame([row])[tables.COLUMNS[name]].to_csv(path, index=False)
    with pytest.raises(UserError, match=rf"{name}.csv, row 2, column {column}: '{cell}' is not "):
        read_table(path, name)


@pytest.mark.parametrize(
    ("name", "column", "cell"),
    [
        ("tests", "p", ""), ("tuning", "nll", ""), ("tuning", "exact_match", ""),
        ("answers", "source", ""), ("answers", "target", ""), ("answers", "answer", ""),
        ("results", "seed", "-3"), ("results", "nll", "NaN"),
    ],
)  # fmt: skip
def test_a_cell_that_a_run_may_leave_so_is_read(
    tmp_path: Path, name: str, column: str, cell: str
) -> None:
    row = dict.fromkeys(tables.COLUMNS[name], "1") | EVERY | {column: cell}
    pd.DataFrame([row])[tables.COLUMNS[name]].to_csv(tmp_path / "table.csv", index=False)
    [value] = read_table(tmp_path / "table.csv", name)[0][column]
    assert pd.isna(value) or value in ("", -3)


@pytest.mark.parametrize("column", ["examples", "tokens"])
def test_no_more_sources_are_new_than_there_are(folder: Path, column: str) -> None:
    write_folder(folder, GOOD.assign(**{f"{column}_new": GOOD[column] + 1}))
    with pytest.raises(UserError, match=rf"row 2, column {column}_new: .* more than its {column},"):
        read_study(folder)


def test_the_order_of_rows_is_no_part_of_a_table(folder: Path) -> None:
    head, *rows = (folder / "results.csv").read_text("utf-8").splitlines()
    (folder / "results.csv").write_text("\n".join([head, *reversed(rows), ""]), "utf-8")
    study = read_study(folder)
    assert len(study.results) == len(GOOD) and study.encodings == ["a", "b"]


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        ("b,a,-0.5", "rows 2 and 3, column a: a and b for the same"),
        ("b,a,2.0", "rows 2 and 3, column a: a and b for the same"),
        ("a,c,2.0", "row 3, column b: c is not in study.yaml, which has a, b"),
    ],
)
def test_a_pair_is_the_same_in_both_orders(folder: Path, other: str, sentence: str) -> None:
    """Its seeds would count twice, or two machines contradict each other."""
    text = f"task,seed,a,b,difference,p\ncopy,0,a,b,0.5,0.1\ncopy,0,{other},0.1\n"
    (folder / "tests.csv").write_text(text, "utf-8")
    with pytest.raises(UserError, match=f"tests.csv, {sentence}"):
        read_study(folder)


def test_runs_of_a_task_and_seed_share_their_test_and_their_data(folder: Path) -> None:
    """Else a difference between encodings would be one of sources."""
    some = (GOOD["pe"] == "b") & (GOOD["seed"] == 1)
    shorter = GOOD.assign(examples=GOOD["examples"].where(~some, 100))
    write_folder(folder, shorter)
    with pytest.raises(UserError, match="column examples: copy a seed 1 has at length 1 other ex"):
        read_study(folder)
    data = pd.Series("0123abcd", index=GOOD.index)
    for known in (data, data.where(~some, "")):  # an older run does not know its data
        write_folder(folder, GOOD.assign(data=known))
        read_study(folder)
    write_folder(folder, GOOD.assign(data=data.where(~some, "4567abcd")))
    said = "column data: copy a seed 1 has at length 1 other data .*0123abcd and 4567abcd"
    with pytest.raises(UserError, match=said):
        read_study(folder)
    for column, other in (("trained", False), ("tokens", 4007), ("examples_new", 7)):
        known = GOOD.assign(examples_new=9)
        write_folder(folder, known.assign(**{column: known[column].where(~some, other)}))
        with pytest.raises(UserError, match=f"column {column}: copy a seed 1 has at length"):
            read_study(folder)
    # What is generated differs from seed to seed; a text does not, and two revisions are refused.
    write_folder(folder, GOOD.assign(data=GOOD["seed"].map(str)))
    read_study(folder)
    text = text_results("ab")
    write_folder(folder, text.assign(data=text["seed"].map(str)))
    with pytest.raises(UserError, match="column data: .* other data than another run .0 and 1"):
        read_study(folder)


def test_a_folder_without_study_yaml_shows_tables_and_says_why_there_is_no_verdict(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "study.yaml").unlink()
    monkeypatch.chdir(folder)
    page = report.markdown(report.page_of(score_study(read_study(Path()))))
    assert page.startswith("# study\n")
    assert "This folder has no study.yaml." in page and "without a verdict" in page
    assert "| a | **0.900** |" in page and f"| {tr(Text('untested'))} |" in page
    assert "## Verdict" not in page
    head = Path("results.csv").read_text().partition("\n")[0]
    Path("results.csv").write_text(f"{head}\n")  # beside curves of runs that it does not have
    report.write_report(Path())


def test_a_table_that_was_counted_and_is_gone_is_refused(folder: Path) -> None:
    """Without it the verdict would be another one. Shown answers decide nothing."""
    path = folder / "study.yaml"
    counted = yaml.safe_load(path.read_text("utf-8"))
    counted["digests"] |= dict.fromkeys(("tests", "answers"), "01234567")
    path.write_text(yaml.safe_dump(counted), "utf-8")
    with pytest.raises(UserError, match="tests.csv is missing, and study.yaml was written"):
        read_study(folder)


@pytest.mark.parametrize(
    ("key", "wrong", "sentence"),
    [
        ("study.seeds", 3, "study.yaml.study.seeds: "),
        ("study.pairs", "x", "study.yaml.study.pairs: "),
        ("study.pairs", [["a"]], r"study.pairs holds \[a\]; a pair is two encodings"),
        ("study.pairs", [["a", "x"]], "study.pairs asks for x, which is not trained; the study"),
        ("study.rule", {"claim": "x", "measures": {"nll": []}}, r"measures.nll=\[\] must be at le"),
        ("study.rule", {"claim": []}, "study.yaml.study.rule.claim: "),
        ("study.qestion", "", "study.qestion does not exist .did you mean study.yaml.st"),
        ("study", {**dict.fromkeys("abcdefgh", 1), "seeds": [0]}, "study.a does not exist"),
        ("mad", {}, "study.yaml.mad does not exist .did you mean study.yaml.made"),
        ("made", "text", "study.yaml.made: "),
        ("missing", ["text"], "study.yaml.missing"),
        ("missing", [{"task": "copy"}], "study.yaml.missing"),
        ("left_out", {"copy": {"test": {"blank": "x"}}}, "study.yaml.left_out"),
        ("left_out", {"copy": {"test": {"blank": 1}}}, "study.yaml.left_out"),
        (
            "left_out",
            {"copy": {"test": {"blank": 1, "too_long": 1, "a": 1}}},
            "study.yaml.left_out",
        ),
        ("left_out", {"copy": {"test": {"blank": -1, "too_long": 1}}}, "study.yaml.left_out"),
        ("digests", {"nothing": "1"}, "is not a study's configuration"),
        ("encodings", ["a", "b"], "is not a study's configuration"),
        ("encodings", {"a": None}, "is not a study's configuration"),
        ("study", {}, "is not a study's configuration"),
        ("trainer", 3, "is not a study's configuration"),
        ("digests", {}, "tasks, encodings or digests, or has them in another form; restore the"),
    ],
)
def test_a_mistake_in_study_yaml_is_named(
    folder: Path, key: str, wrong: Any, sentence: str
) -> None:
    path = folder / "study.yaml"
    given = yaml.safe_load(path.read_text("utf-8"))
    *parents, last = key.split(".")
    (given[parents[0]] if parents else given)[last] = wrong
    path.write_text(yaml.safe_dump(given), "utf-8")
    with pytest.raises(UserError, match=sentence):
        report.page_of(score_study(read_study(folder)))


@pytest.mark.parametrize("content", ["study: [", "", "- 1", "[" * 9999])
def test_a_damaged_study_yaml_is_refused(folder: Path, content: str) -> None:
    (folder / "study.yaml").write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match="is not a study's configuration"):
        read_study(folder)


def test_a_folder_that_is_no_study_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no results.csv; name the folder of a study"):
        read_study(tmp_path)


def test_tables_come_back_as_they_were_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An encoding may be called none, nan or NA."""
    exact = {("copy", pe): lambda n, s: 0.5 + s / 10 for pe in ("none", "nan", "NA")}
    results = results_of(exact)  # type: ignore[arg-type]
    study = read_study(write_folder(tmp_path, results))
    pd.testing.assert_frame_equal(
        study.results.reset_index(drop=True)[list(results)], results, check_dtype=False
    )
    assert study.name == "planted" and study.tasks == ["copy"] and not capsys.readouterr().err
    assert study.encodings == ["none", "nan", "NA"]
    assert re.search(r"seeds: \[0, 1, 2, 3, 4\]", (tmp_path / "study.yaml").read_text())
