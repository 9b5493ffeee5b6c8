"""Other people's files: each kind is read, or refused in a sentence that names the formats."""

import bz2
import csv
import dataclasses
import gzip
import io
import json
import lzma
import os
import tarfile
import unicodedata
import zipfile
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import Dataset, DatasetDict

from wawa_transformer.common.messages import UserError
from wawa_transformer.data.files import MAX_WORD
from wawa_transformer.data.text import TextTask

PAIRS = [(f"the cat, {i}", f'die "Katze" {i}') for i in range(9)]
TSV = "".join(f"{source}\t{target}\n" for source, target in PAIRS)
BOM = "\ufeff"


def read(folder: Path, files: dict[str, str | bytes], **settings: str) -> list[tuple[str, str]]:
    """Write files, and read their pairs; the files are the source and the target.

    Those in ``hub`` are a dataset.
    """
    (folder / "hub").mkdir(exist_ok=True, parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    if any(name.startswith("hub/") for name in files):
        train = TextTask(hub=str(folder / "hub"), **settings).from_hub()["train"]  # type: ignore[arg-type]
        return list(zip(train["source"], train["target"], strict=True))
    settings = dict(zip(("source", "target"), files, strict=False)) | settings
    train = TextTask(data_dir=str(folder), **settings).from_files()["train"]  # type: ignore[arg-type]
    return list(zip(train["source"], train["target"], strict=True))


def as_json(pairs: list[tuple[str, str]], **names: str) -> list[dict[str, str]]:
    return [{"id": i, "en": s, "de": t} for i, (s, t) in enumerate(pairs)]  # type: ignore[dict-item]


def as_csv(folder: Path, rows: list[tuple[str, ...]]) -> bytes:
    """What Python's own module writes."""
    with (folder / "written").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    return (folder / "written").read_bytes()


def zipped(name: str, content: bytes) -> bytes:
    """Pack a file as the library of datasets unpacks it, which reads no file of a folder itself."""
    with zipfile.ZipFile(file := io.BytesIO(), "w") as archive:
        archive.writestr(name, content)
    return file.getvalue()


def tarred(name: str, content: bytes) -> bytes:
    """Pack a file as tar does."""
    with tarfile.open(fileobj=(file := io.BytesIO()), mode="w") as archive:
        entry = tarfile.TarInfo(name)
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
    return file.getvalue()


@pytest.mark.parametrize("name", ["a.tsv", "a.TSV", "a.txt", "a.tsv.gz", "a.tsv.bz2", "a.tsv.xz"])
def test_a_packed_file_is_known_by_its_content(name: str, tmp_path: Path) -> None:
    for pack in (bytes, bz2.compress, gzip.compress, lzma.compress):
        assert read(tmp_path, {name: pack(TSV.encode())}) == PAIRS


def test_the_same_pairs_as_json_csv_and_parquet(tmp_path: Path) -> None:
    """An array or lines, under any of the suffixes; texts that look like numbers stay texts."""
    pairs = [*PAIRS, ("NA", "null"), ("7", "007"), ("2020-01-01", "1e3"), ("a\nb", "c\nd")]
    rows = as_json(pairs)
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    for name in ("a.json", "a.jsonl", "a.NDJSON"):
        for text in (lines, json.dumps(rows), f"\n {json.dumps(rows, indent=1)}"):
            assert read(tmp_path, {name: BOM + text}) == pairs
    table = as_csv(tmp_path, [("id", "en", "de"), *((str(i), *p) for i, p in enumerate(pairs))])
    assert read(tmp_path, {"a.csv": BOM.encode() + table}) == pairs
    pd.DataFrame(rows).to_parquet(tmp_path / "b.parquet")
    assert read(tmp_path, {}, source="b.parquet") == pairs
    assert read(tmp_path / "zip", {"hub/train.zip": zipped("train.csv", table)}) == pairs
    numbers = zipped("train.csv", b"en,de\n7,007\n")
    assert read(tmp_path / "numbers", {"hub/train.zip": numbers}) == [("7", "007")]


def test_the_column_translation_of_the_hub(tmp_path: Path) -> None:
    """In lines, in a folder and as parquet; with its name and without; with other languages."""
    rows = [{"id": i, "translation": {"en": s, "fr": t}} for i, (s, t) in enumerate(PAIRS)]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    pd.DataFrame(rows).to_parquet(tmp_path / "c.parquet")
    for outer in ("", "translation."):
        columns = {"source_column": f"{outer}en", "target_column": f"{outer}fr"}
        assert read(tmp_path, {"a.jsonl": lines}, **columns) == PAIRS
        assert read(tmp_path, {}, source="c.parquet", **columns) == PAIRS
        assert read(tmp_path, {"hub/train.json": lines}, **columns) == PAIRS
    with pytest.raises(UserError, match=r"entry 1 \(no de in .* task.target_column=de"):
        read(tmp_path, {"hub/train.json": lines})


def test_files_of_a_folder_that_the_library_leaves_out_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of another format, or without a split's name beside files with one; no other file."""
    table, lines = "en,de\na,b\n", json.dumps({"en": "c", "de": "d"}) + "\n"
    for name, files, rest in (
        ("formats", {"a.csv": table, "b.json": lines}, "a.csv"),
        ("names", {"train.json": lines, "more.jsonl": lines}, "more.jsonl"),
        ("all", {"a.csv": table, "b.csv": table, ".c.csv": table, "README.txt": "d"}, None),
    ):
        assert read(tmp_path / name, {f"hub/{key}": content for key, content in files.items()})
        said = capsys.readouterr().err
        told = [
            line.rpartition("of its files, ")[2] for line in said.split("\n") if "files," in line
        ]
        assert told == [f"{rest} are not read"] * bool(rest)


def test_splits_inside_a_zip_are_said_to_be_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The library takes the name of the archive, so that a test inside it is trained on."""
    table = "en,de\na,b\n"
    for i, (names, said) in enumerate(
        (("x/train.csv x/test.csv", True), ("x/ x/train.csv __MACOSX/._train.csv", False))
    ):
        with zipfile.ZipFile(packed := io.BytesIO(), "w") as archive:
            for name in names.split():
                archive.writestr(name, table if name.endswith("csv") else "")
        pairs = read(tmp_path / str(i), {"hub/data.zip": packed.getvalue()})
        assert len(pairs) == 1 + said
        told = "all files in data.zip are read as one split: x/train.csv, x/test.csv\n"
        assert (told in capsys.readouterr().err) == said


def test_several_files_of_one_split_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The library finds a split's name inside other names, as those of copies and older texts."""
    table = "en,de\na,b\n"
    for names, said in (
        (["train.csv", "test.csv"], ""),
        (["train.csv", "train.csv.bak", "train (1).csv"], "train: train (1).csv, train.csv"),
        (["dev.csv", "train.csv", "validation.csv"], "validation: dev.csv, validation.csv"),
    ):
        folder = tmp_path / f"{len(said)}"
        assert read(folder, {f"hub/{name}": table for name in names})
        told = capsys.readouterr().err
        assert f"files are read as the split {said}" in told if said else "files" not in told


@pytest.mark.parametrize("asked", ["NFC", "NFD"])
def test_a_column_has_the_name_that_looks_like_the_one_that_was_asked_for(
    asked: str, tmp_path: Path
) -> None:
    """An é of one character or of two; in a CSV with semicolons, lines and a file of JSON."""
    names = [unicodedata.normalize(asked, name) for name in ("résumé", "data.über")]
    columns = dict(zip(("source_column", "target_column"), names, strict=True))
    for form in ("NFC", "NFD"):
        first, second = (unicodedata.normalize(form, name) for name in ("résumé", "über"))
        rows = [(first, f"data.{second}"), *PAIRS]
        entries = [{first: source, "data": {second: target}} for source, target in PAIRS]
        for files in (
            {"a.tsv": "".join("\t".join(row) + "\n" for row in rows)},
            {"a.csv": "".join(";".join(row) + "\n" for row in rows)},
            {"a.json": json.dumps(entries)},
        ):
            assert read(tmp_path, files, **columns) == PAIRS


def test_columns_of_a_table_by_number_and_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line of the names is no pair; without names the first pair shows what it is.

    Columns that nobody asked for are counted.
    """
    rows = [("id", "English", "score", "German"), *(("1", s, "2", t) for s, t in PAIRS)]
    tsv, table = "".join("\t".join(row) + "\n" for row in rows), as_csv(tmp_path, rows)
    for files in ({"a.tsv": BOM + tsv}, {"a.csv": table}):
        for columns in (("English", "German"), ("2", "German"), ("English", "4")):
            named = dict(zip(("source_column", "target_column"), columns, strict=True))
            assert read(tmp_path, files, **named) == PAIRS
        numbers = {"source_column": "2", "target_column": "4"}
        assert read(tmp_path, files, **numbers) == [("English", "German"), *PAIRS]
        with pytest.raises(UserError, match=r"no column English or no de; .* id \| English"):
            read(tmp_path, files, source_column="English")
        for wrong in ("0", "00", "9"):
            with pytest.raises(UserError, match=f"no column 2 or no {wrong}; its first line"):
                read(tmp_path, files, source_column="2", target_column=wrong)
    assert "left out" not in capsys.readouterr().err
    TextTask(data_dir=str(tmp_path), source="a.tsv", test_size=2, validation_size=2).dataset(0)
    said = capsys.readouterr().err
    assert "first pair: id → English\n" in said and "second left out of 10 lines" in said


def test_a_byte_order_mark_is_no_part_of_a_text(tmp_path: Path) -> None:
    """At the beginning of a file, of a line, of a column and of a value."""
    pairs = [("the cat", "die Katze"), ("b", "c")]
    marked = [tuple(BOM + side for side in pair) for pair in pairs]
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in as_json(marked))  # type: ignore[arg-type]
    pd.DataFrame(as_json(marked)).to_parquet(tmp_path / "a.parquet")  # type: ignore[arg-type]
    for files in (
        {f"a.{side}": "".join(f"{pair[side]}\n" for pair in marked) for side in range(2)},
        {"a.tsv": BOM + "".join(f"{s}\t{t}\n" for s, t in marked)},
        {"a.csv": as_csv(tmp_path, marked)},
        {"a.jsonl": BOM + lines},
        {"a.parquet": (tmp_path / "a.parquet").read_bytes()},
    ):
        assert read(tmp_path, files) == pairs  # type: ignore[arg-type]


def test_a_column_may_be_nested_and_its_name_may_have_dots(tmp_path: Path) -> None:
    """In lines, in parquet and in a folder of the hub."""
    for row, source, target in (
        ({"data": {"translation": {"en": "a", "de": "b"}}}, "data.translation.en", "data.de"),
        ({"x": {"en": {"text": "a"}, "de": {"text": "b"}}}, "x.en.text", "x.de.text"),
        ({"translation": {"zh.Hans": "a", "de": "b"}}, "translation.zh.Hans", "de"),
        ({"text.en": "a", "text.de": "b"}, "text.en", "text.de"),
    ):  # fmt: skip
        columns = {"source_column": source, "target_column": target}
        assert read(tmp_path, {"a.jsonl": json.dumps(row)}, **columns) == [("a", "b")]
        pd.DataFrame([row]).to_parquet(tmp_path / "b.parquet")
        assert read(tmp_path, {}, source="b.parquet", **columns) == [("a", "b")]
        assert read(tmp_path, {"hub/train.json": json.dumps(row)}, **columns) == [("a", "b")]


def test_the_configuration_of_a_dataset_is_the_one_that_was_asked_for(tmp_path: Path) -> None:
    names = ("one", "two")
    card = "".join(f"- config_name: {name}\n  data_files: {name}.csv\n" for name in names)
    files: dict[str, str | bytes] = {f"hub/{name}.csv": f"en,de\n{name},x\n" for name in names}
    files["hub/README.md"] = f"---\nconfigs:\n{card}---\n"
    for name in names:
        assert read(tmp_path, files, hub_config=name) == [(name, "x")]


@pytest.mark.parametrize(
    ("count", "named"),
    [(2, "c0, c1"), (12, ", ".join(map("c{}".format, range(10))) + " and 2 more")],
)
def test_the_configurations_of_a_dataset_are_named(count: int, named: str, tmp_path: Path) -> None:
    """None was chosen, or one that is not there."""
    card = "".join(f"- config_name: c{i}\n  data_files: a.csv\n" for i in range(count))
    (tmp_path / "README.md").write_text(f"---\nconfigs:\n{card}---\n")
    (tmp_path / "a.csv").write_text("en,de\na,b\n")
    said = rf"cannot be used \(task.hub_config={{}} is none of its configurations {named}\); name"
    for name in (None, "c99", ""):
        with pytest.raises(UserError, match=said.format(name or "null")):
            TextTask(hub=str(tmp_path), hub_config=name).from_hub()


def test_a_folder_that_the_library_cannot_read_is_refused_without_its_objects(
    tmp_path: Path,
) -> None:
    """It opens a list of XML files as if it were one."""
    (tmp_path / "train.xml").write_text("<a>b</a>")
    with pytest.raises(UserError, match=r"cannot be used \(the library reads no xml files\); name"):
        TextTask(hub=str(tmp_path)).from_hub()


def test_what_the_library_says_is_cut(tmp_path: Path) -> None:
    """Of a file that is not there it lists the suffixes of all that it reads."""
    card = "---\nconfigs:\n- config_name: x\n  data_files: nope.csv\n---\n"
    (tmp_path / "README.md").write_text(card)
    with pytest.raises(UserError, match="Unable to find .*nope.csv.*; name a dataset") as refused:
        TextTask(hub=str(tmp_path)).from_hub()
    assert len(str(refused.value)) < 600


@pytest.mark.parametrize("kind", ["json", "csv", "parquet", "zip"])
def test_a_changed_file_of_the_same_size_and_time_is_read_again(kind: str, tmp_path: Path) -> None:
    """No cache of the library hides the change of a folder."""
    path = tmp_path / f"train.{kind}"
    for word in ("old", "new"):
        frame = pd.DataFrame([{"en": word, "de": f"b {i}"} for i in range(3)])
        if kind == "json":
            frame.to_json(path, orient="records", lines=True)
        elif kind == "zip":
            path.write_bytes(zipped("train.csv", frame.to_csv(index=False).encode()))
        else:
            getattr(frame, f"to_{kind}")(path, index=False)
        os.utime(path, (1e9, 1e9))
        train = TextTask(hub=str(tmp_path)).from_hub()["train"]
        assert train.to_dict()["source"] == [word] * 3


def test_a_dataset_that_was_saved_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With splits and without; splits of other names are no test, and are named."""
    saved = Dataset.from_list(as_json(PAIRS))
    for name, each in (("one", saved), ("splits", DatasetDict({"train": saved, "test": saved}))):
        each.save_to_disk(tmp_path / name)
        splits = TextTask(hub=str(tmp_path / name)).from_hub()
        assert len(splits) == (1 if name == "one" else 2)
        for split in splits.values():
            assert list(zip(split["source"], split["target"], strict=True)) == PAIRS
    few = saved.select([1])
    for names in ("train test_a test_b", "a b"):  # by their keywords two would be one test
        splits = DatasetDict({name: few for name in names.split()})
        splits.save_to_disk(tmp_path / names)
        task = TextTask(hub=str(tmp_path / names))
        if "train" not in names:
            with pytest.raises(UserError, match="it has no split train"):
                task.from_hub()
        else:
            assert {*task.from_hub()} == {"train"} and task.without_effect() == {"data_dir"}
            assert "of its splits, test_a, test_b are not read" in capsys.readouterr().err


def test_the_name_of_a_file_is_no_pattern(tmp_path: Path) -> None:
    """An asterisk or a bracket is part of it."""
    for i, name in enumerate(("d*.parquet", "data[1].parquet", "data.parquet")):
        pd.DataFrame(as_json([(name, str(i))])).to_parquet(tmp_path / name)
    for i, name in enumerate(("d*.parquet", "data[1].parquet")):
        assert read(tmp_path, {}, source=name) == [(name, str(i))]


# A NUL, and Japanese in ISO 2022, whose bytes are valid UTF-8.
NO_TEXTS = "a\0b", "日本語".encode("iso-2022-jp").decode()


@pytest.mark.parametrize("bad", NO_TEXTS, ids=["NUL", "ISO 2022"])
def test_what_is_no_text_is_refused_wherever_it_stands(bad: str, tmp_path: Path) -> None:
    pairs = [("a", "b"), ("c", f"d {bad}")]
    pd.DataFrame(as_json(pairs)).to_parquet(tmp_path / "a.parquet")
    lines = "".join(json.dumps(row) + "\n" for row in as_json(pairs))
    for files in (
        {f"a.{side}": "".join(f"{pair[side]}\n" for pair in pairs) for side in range(2)},
        {"a.tsv": "".join(f"{s}\t{t}\n" for s, t in pairs)},
        {"a.csv": as_csv(tmp_path, pairs)}, {"a.jsonl": lines},
        {"a.json": json.dumps(as_json(pairs))},
        {"a.parquet": (tmp_path / "a.parquet").read_bytes()},
    ):  # fmt: skip
        with pytest.raises(UserError, match="(line|entry|row) 2"):
            read(tmp_path, files)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="hub holds no two texts in train row 2"):
        read(tmp_path, {"hub/train.zip": zipped("train.json", lines.encode())})


def test_a_pair_with_a_word_that_takes_hours_to_split_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And counted, on either side; the limit is in bytes, and other columns may hold any word."""
    for word in ("x" * MAX_WORD, "中" * (MAX_WORD // 3)):
        row = json.dumps({"en": "a", "de": f"b {word}", "id": "x" + word})
        assert read(tmp_path, {"a.jsonl": row}) == [("a", f"b {word}")]
        for long in ([f"x{word}中", "b"], ["", f"x{word}中"], ["a", f"b {word}中 c"]):
            capsys.readouterr()
            table = "".join(f"{s}\t{t}\n" for s, t in [*PAIRS, long])
            assert read(tmp_path, {"a.tsv": table}) == PAIRS
            said = "a blank side" if "" in long else "a word of more than 10,000 bytes"
            assert f"1 train pairs with {said} left out" in capsys.readouterr().err


def test_a_csv_may_hold_a_page_in_another_column(tmp_path: Path) -> None:
    """As a table of the web does; the module csv alone refuses more than 131,072 characters."""
    table = as_csv(tmp_path, [("page", "en", "de"), ("x " * 70_000, "a", "b")])
    assert read(tmp_path, {"a.csv": table}) == [("a", "b")]


def test_a_column_that_is_there_twice_is_chosen_by_number(tmp_path: Path) -> None:
    table = "en,en,de\n1,a,b\n"
    with pytest.raises(UserError, match="has the column en twice; give the number"):
        read(tmp_path, {"a.csv": table})
    numbers = {"source_column": "2", "target_column": "3"}
    assert read(tmp_path, {"a.csv": table}, **numbers)[1:] == [("a", "b")]
    tabs = table.replace(",", "\t")
    for name, content in (("train.csv", table), ("train.tsv", tabs)):
        with pytest.raises(UserError, match="has the column en twice; give the number"):
            read(tmp_path / name, {f"hub/{name}": content})
        with pytest.raises(UserError, match="it has the column en twice.*file in task.source"):
            read(tmp_path / f"{name}.zip", {"hub/train.zip": zipped(name, content.encode())})
    assert read(tmp_path, {"hub/train.csv": "en,en.1,de\na,x,b\n"}) == [("a", "b")]
    pq.write_table(pa.table([["1"], ["a"], ["b"]], names=["en", "en", "de"]), tmp_path / "p")
    parquet = (tmp_path / "p").read_bytes()
    row = '{"translation": {"en": "1", "en": "a", "de": "b"}}'
    for files in (
        {"a.jsonl": row}, {"a.json": f"[{row}]"}, {"a.parquet": parquet},
        {"hub/train.json": f"[{row}]"},
    ):  # fmt: skip
        with pytest.raises(UserError, match=r"1 \(it has en twice\)"):
            read(tmp_path, files)


def test_where_a_carriage_return_stands_in_a_file_does_not_matter(tmp_path: Path) -> None:
    """Files of old Macs have more than lines, some with a line feed at the end; others few."""
    few = ["a\rb\rc\td", "e\tf", "g\th"]
    for end in ("\n", "\r\n"):
        for order in (few, few[::-1]):
            assert len(read(tmp_path, {"a.tsv": end.join(order)})) == 3
    for many in ("a\tb\rc\td\re\tf\r\n", "a\tb\rc\td", "a\tb\n" + "c\td\r" * 10**6):
        with pytest.raises(UserError, match="carriage returns .*; convert them"):
            read(tmp_path, {"a.tsv": many})


def test_carriage_returns_that_end_some_lines_of_a_table_lose_no_pair(tmp_path: Path) -> None:
    """Rows of an old Mac among others; the advice is followed."""
    for name, table in (("a.tsv", "a\tb\ne\tf\rg\th\ni\tj\n"), ("a.csv", "a,b\ne,f\rg,h\ni,j\n")):
        said = r"line 2 \(it has carriage returns inside; convert them: tr '.r' '.n' < old > new"
        with pytest.raises(UserError, match=said):
            read(tmp_path, {name: table})
        assert len(read(tmp_path, {name: table.replace("\r", "\n")})) == 4
        assert len(read(tmp_path, {name: table.replace("\r", " ")})) == 3


def test_a_text_may_begin_with_a_tag(tmp_path: Path) -> None:
    """As one of the web does in which <url> stands for an address, or one about tags."""
    for first in (
        "<url> is a great site",
        "<doc> opens a document",
        "<HTML> is the root",
        "<3 you",
        "WEBVTT is a format",
        "# msgid",
        "12 --> 13",
    ):
        assert read(tmp_path, {"a.tsv": f"{first}\tb\n"}) == [(first, "b")]


def test_a_folder_whose_name_the_library_takes_for_a_pattern_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would read other folders, also where the current folder has such a name."""
    for name in ("text [1]", "text*"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.jsonl").write_text(json.dumps(as_json(PAIRS)[0]))
        with pytest.raises(UserError, match="takes .* for a pattern; rename the folder"):
            TextTask(hub=str(tmp_path / name)).from_hub()
    monkeypatch.chdir(tmp_path / "text [1]")
    with pytest.raises(UserError, match="takes .* for a pattern; rename the folder"):
        TextTask(hub=".").from_hub()
    Dataset.from_list(as_json(PAIRS)).save_to_disk(tmp_path / "saved [1]")
    assert len(TextTask(hub=str(tmp_path / "saved [1]")).from_hub()["train"]) == len(PAIRS)


def test_rows_of_a_dataset_without_two_texts_are_named(tmp_path: Path) -> None:
    """A null for both languages, and bytes that are no UTF-8."""
    good, said = {"translation": {"en": "a", "de": "b"}}, "train.json holds no two texts in entry 2"
    for bad in ({"translation": None}, {"translation": {"en": "c", "de": None}}):
        rows = json.dumps(good) + "\n" + json.dumps(bad) + "\n"
        with pytest.raises(UserError, match=said):
            read(tmp_path, {"hub/train.json": rows})
    _, offsets, content = pa.array([b"a", b"\xff"]).buffers()
    column = pa.StringArray.from_buffers(2, offsets, content)
    pq.write_table(pa.table({"en": column, "de": ["x", "y"]}), tmp_path / "a.parquet")
    with pytest.raises(UserError, match="a.parquet holds no two texts in row 1 .*can't decode"):
        read(tmp_path, {}, source="a.parquet")


def test_a_number_among_texts_does_not_put_the_texts_into_quotes(tmp_path: Path) -> None:
    """The library stores a column of several types as JSON."""
    rows = ['{"id": 1, "en": "a", "de": "\\u00e4"}', '{"id": "x", "en": "b", "de": "c"}']
    for i, (more, said) in enumerate((([], ""), (['{"id": 3, "en": "d", "de": 4}'], "row 3"))):
        packed = zipped("train.jsonl", "\n".join([*rows, *more]).encode())
        if said:
            with pytest.raises(UserError, match=f"no two texts in train {said} "):
                read(tmp_path / str(i), {"hub/train.zip": packed})
        else:
            pairs = read(tmp_path / str(i), {"hub/train.zip": packed})
            assert pairs == [("a", "ä"), ("b", "c")]


def test_the_line_of_a_table_is_counted_in_the_file(tmp_path: Path) -> None:
    """A row may be several lines; the sentence says which sign is between two columns."""
    rows = 'sep=,\nen,de,id\n"a\nb","c\nd\n","1\n2"\n\n' + "e;f\n"
    assert rows.splitlines().index("e;f") == 8
    with pytest.raises(UserError, match="in line 9 .*1 columns: e;f.* source, comma, target"):
        read(tmp_path, {"a.csv": rows})
    with pytest.raises(UserError, match="in line 1 .*1 columns: a  b.* source, tab, target"):
        read(tmp_path, {"a.tsv": "a  b\n"})


def test_a_row_longer_than_the_names_of_its_columns_is_refused(tmp_path: Path) -> None:
    """Nobody quoted a text with a comma; empty columns at the end are none."""
    table = "en,de\nHello,Hallo,\nGood morning, world,Guten Morgen\n"
    with pytest.raises(UserError, match="line 3 .*it has 3 columns: Good morning | world | Guten"):
        read(tmp_path, {"a.csv": table})
    with pytest.raises(UserError, match="in line 3 .*it has 3 columns"):
        read(tmp_path, {"a.tsv": table.replace(", ", "\t").replace(",", "\t")})
    with pytest.raises(UserError, match="hub cannot be used .its rows have more columns"):
        read(tmp_path, {"hub/train.zip": zipped("train.csv", b"en,de\na, b,c\n")})


def test_a_key_of_the_text_is_never_ignored(tmp_path: Path) -> None:
    """A target alone is not the sample; two files have no columns."""
    for name in ("my.de", "my.tsv"):
        with pytest.raises(UserError, match=f"={name}: task.source and task.target go together"):
            TextTask(target=name).from_files()
    with pytest.raises(UserError, match=r"v.de: task.validation_source and task.validation_target"):
        TextTask(source="a.tsv", validation_target="v.de").from_files(["validation"])
    files = {"a.en": "1\tx\n", "a.de": "y\n"}
    for column in ("source_column", "target_column"):
        with pytest.raises(UserError, match="choose columns of one file .* leave the columns out"):
            read(tmp_path, files, **{column: "2"})  # type: ignore[arg-type]
        task = TextTask(source="a.tsv", test_source="a.en", test_target="a.de", **{column: "2"})
        assert len(dataclasses.replace(task, data_dir=str(tmp_path)).from_files(["test"])) == 1


def test_a_blank_line_of_one_file_is_a_blank_pair(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Left out and counted as in two files."""
    pairs = [*PAIRS[:3], ("", ""), *PAIRS[3:], ("", "")]
    sides = ["".join(f"{pair[i]}\n" for pair in pairs) for i in range(2)]
    tsv = "".join(f"{s}\t{t}\n" if s else " \n" for s, t in pairs)
    lines = "".join(json.dumps(row) + "\n" if row["en"] else " \n" for row in as_json(pairs))
    table = as_csv(tmp_path, [("en", "de"), *PAIRS[:3], (), *PAIRS[3:], ("", "")])
    for files in (
        {"a.en": sides[0], "a.de": sides[1]}, {"a.tsv": tsv}, {"a.jsonl": lines}, {"a.csv": table},
    ):  # fmt: skip
        capsys.readouterr()
        assert read(tmp_path, files) == PAIRS
        [said, _] = capsys.readouterr().err.splitlines()
        assert said == "2 train pairs with a blank side left out"


def test_a_side_that_nobody_sees_is_blank(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Marks of direction, joiners, soft hyphens and fillers; what is new in Unicode is text."""
    unseen = "\u200b \u200e\u200f \u2060 \u00ad \u180e \u3164 \u2800 \ufe0f \u115f\u1160 \U000e0020"
    pairs = [*PAIRS, ("\U0001fae8", "\u0301"), ("a\u200b", "\u200fb"), ("\U00105678", "😀\ufe0f")]
    for blank in unseen.split():
        more = [*pairs, (blank, "word"), ("word", blank)]
        assert read(tmp_path, {"a.tsv": "".join(f"{s}\t{t}\n" for s, t in more)}) == pairs
        [said, _] = capsys.readouterr().err.splitlines()
        assert said == "2 train pairs with a blank side left out"


def test_a_text_that_is_its_own_translation_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One file for both sides, or one column; a few equal pairs are names and numbers."""
    read(tmp_path, {"a.tsv": "1\t1\nx\ty\n"})
    assert "warning" not in capsys.readouterr().err
    read(tmp_path, {}, source="a.tsv", source_column="1", target_column="1")
    said = "warning: every train pair has the same text on both sides\n"
    assert capsys.readouterr().err.startswith(said)


def test_text_is_normalised_once_where_it_is_read(tmp_path: Path) -> None:
    """Both sides, of every kind of file; a no-break space stays what it is."""
    pairs = [("Ein Mädchen hört", "schöne\u202f« Töne\xa0»"), ("Å", "한글")]
    apart = [tuple(unicodedata.normalize("NFD", side) for side in pair) for pair in pairs]
    assert apart != pairs
    for files in (
        {"a.tsv": "".join(f"{s}\t{t}\n" for s, t in apart)},
        {"a.json": json.dumps(as_json(apart))},  # type: ignore[arg-type]
        {f"a.{i}": "".join(f"{pair[i]}\n" for pair in apart) for i in range(2)},
    ):
        assert read(tmp_path, files) == pairs


def test_spaces_around_names_and_cells_and_a_line_of_excels(tmp_path: Path) -> None:
    """And a text may begin as a parquet file does."""
    for files in (
        {"a.csv": 'en, de\n"a, 1", "b, 2"\n'},
        {"a.csv": 'sep=,\nid,en ,de\n1,"a, 1","b, 2"\n'},
        {"a.csv": "sep=|\na, 1|b, 2\n"},
        {"a.csv": "SEP=|\na, 1|b, 2\n"},
        {"a.tsv": "id\ten \t de\n1\ta, 1\tb, 2\n"},
    ):
        assert read(tmp_path, files) == [("a, 1", "b, 2")]
    assert read(tmp_path, {"a.csv": "sep=x is set,b\n"}) == [("sep=x is set", "b")]
    assert read(tmp_path, {"a.txt": "PAR1 is a receptor.\tb\n"}) == [("PAR1 is a receptor.", "b")]


@pytest.mark.parametrize("name", ["", "sep=;\n", "de;en;id\n", "\n"])
def test_a_csv_with_semicolons(name: str, tmp_path: Path) -> None:
    """With the line of the names, Excel's line, or neither; commas in it separate nothing."""
    rows = 'Ja, ja;Yes, yes;1\n"Gut; sehr, gut";Well;2\nAch\u2028so;I see, then;3\n'
    pairs = [("Ja, ja", "Yes, yes"), ("Gut; sehr, gut", "Well"), ("Ach\u2028so", "I see, then")]
    numbers = {"source_column": "1", "target_column": "2"}
    assert read(tmp_path, {"a.csv": name + rows}, **numbers)[-3:] == pairs
    if "de" in name:
        pairs = [(target, source) for source, target in pairs]
    assert read(tmp_path, {"a.csv": name + rows}) == pairs
    with pytest.raises(UserError, match="commas or by semicolons.* begin the file with .* sep=;"):
        read(tmp_path, {"a.csv": "Ja, ja;Yes\nAch, so;I see\n"})


def test_a_quote_in_a_table_with_tabs_is_a_character_in_a_folder_too(tmp_path: Path) -> None:
    rows = [('"a', "b"), ("c", 'd"e'), ('"Stop!', '"Halt!')]
    table = "".join("\t".join(row) + "\n" for row in [("en", "de"), *rows])
    assert read(tmp_path, {"a.tsv": table}) == rows
    assert read(tmp_path, {"hub/train.zip": zipped("train.tsv", table.encode())}) == rows


def test_a_table_with_tabs_that_was_written_as_a_csv_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As by Excel or pandas; the advice is followed, and quotes of a text are no sign of it."""
    rows = [("She said", 'Sie sagte "Halt"'), ('"a', '"Halt!" "Ja"'), ('""', "d")]
    text = io.StringIO()
    csv.writer(text, delimiter="\t").writerows(rows)
    assert read(tmp_path, {"a.tsv": text.getvalue()}) != rows
    assert "a.tsv: 3 lines have quotes as in a CSV" in capsys.readouterr().err
    assert read(tmp_path, {"a.csv": "sep=\t\n" + text.getvalue()}) == rows
    assert read(tmp_path, {"a.tsv": "".join(map("{0[0]}\t{0[1]}\n".format, rows))}) == rows
    assert "quotes" not in capsys.readouterr().err
    # As R writes every text, and pandas if it is asked to.
    text = io.StringIO()
    csv.writer(text, delimiter="\t", quoting=csv.QUOTE_ALL).writerows([("en", "de"), *PAIRS[:1]])
    for rest, said in (("", "2 lines have quotes as in a CSV"), ('"Hi!"\tHallo!\n', "")):
        read(tmp_path, {"a.tsv": text.getvalue().replace('""', "") + rest})
        told = capsys.readouterr().err
        assert said in told and ("quotes" in told) == bool(said)


def test_what_the_readme_of_a_folder_says_of_its_files_is_done(tmp_path: Path) -> None:
    """The columns of a table and its encoding: the sides would be exchanged, or one refused."""
    for i, (said, name, content) in enumerate(
        (
            ("names: [de, en]\n  header: null", "csv", "ä,a\n"),
            ("sep: '|'\n  encoding: latin-1", "csv", "en|de\na|ä\n".encode("latin-1")),
            ("sep: ';'", "tsv", "en;de\na;ä\n"),
            ('sep: "\\t"', "csv", 'en\tde\n"a"\tä\n'),
            ("field: data", "json", '{"data": [{"en": "a", "de": "ä"}]}'),
        )
    ):
        card = f"---\nconfigs:\n- config_name: default\n  {said}\n  data_files: x.{name}\n---\n"
        files: dict[str, str | bytes] = {"hub/README.md": card, f"hub/x.{name}": content}
        assert read(tmp_path / str(i), files) == [("a", "ä")]


def test_what_is_not_read_is_named_with_the_formats_that_are(tmp_path: Path) -> None:
    """Whatever its suffix says."""
    packed = zipped("a.tsv", TSV.encode())
    (tmp_path / "zip").write_bytes(packed)
    formats = r"convert it: give two UTF-8 files.*\.csv, \.json, \.jsonl or \.parquet.*gzip, bzip2"
    for content, said in (
        (packed, f"is a zip archive; {formats}"),
        (b"\x28\xb5\x2f\xfd\x04", f"is packed by zstd; {formats}"),
        (TSV.encode("utf-16"), f"is UTF-16 text; {formats}"),
        (gzip.compress(TSV.encode("utf-16")), f"is UTF-16 text; {formats}"),
        (lzma.compress(packed), f"is a zip archive; {formats}"),
        (gzip.compress(bz2.compress(TSV.encode())), f"is packed twice; {formats}"),
        (lzma.compress(gzip.compress(TSV.encode())), f"is packed twice; {formats}"),
        (b"+/v8-" + TSV.encode(), f"is UTF-7 text; {formats}"),
        ("version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 9\n", "git lfs pull"),
        ("<!DOCTYPE html>\n<title>404</title>\n", f"is XML or HTML; {formats}"),
        (BOM + '<?xml version="1.0"?>\n<tmx version="1.4">\n', f"is XML or HTML; {formats}"),
        (r"{\rtf1\ansi a\tab b}", "is RTF"),
        ('<srcset setid="newstest">\n', "is XML or HTML"),
        ("<url>http://x</url>\n", "is XML or HTML"),
        (f"{BOM}<xliff version='1.2'>\n<file>\n", "is XML or HTML"),
        (f"{BOM}1\r\n00:00:01,000 --> 00:00:02,500\r\nThe cat\r\n", f"is subtitles; {formats}"),
        ("WEBVTT - cats\n\n00:01.000 --> 00:04.000\n- The cat\n", "is subtitles"),
        (
            '# Cats\n#\n\nmsgid ""\nmsgstr ""\n"Language: de\\n"\n',
            r"is a catalogue of gettext \(PO\)",
        ),
        (b"PAR1\x15\x04", f"is a parquet file; {formats}"),
        (tarred("x/a.tsv", TSV.encode()), f"is a tar archive; {formats}"),
        (gzip.compress(tarred("a.tsv", TSV.encode())), f"is a tar archive; {formats}"),
        (b"ARROW1\0\0\xff", "is UTF-16 text or no text"),
        (b"Rar!\x1a\x07\x01\0\n", "is UTF-16 text or no text"),
        (TSV.encode("utf-16-le"), f"is UTF-16 text or no text; {formats}"),
        (gzip.compress(TSV.encode("utf-16-be")), "is UTF-16 text or no text"),
        (TSV.encode("latin-1") + b"\xe9\tx\n", "is not UTF-8 in line 10"),
        (TSV.replace("\n", "\r"), r"more carriage returns than lines; .* tr .* else tr '.r' ' '"),
        (bz2.compress(TSV.encode())[:-9], "is damaged"),
        (lzma.compress(TSV.encode())[:-9], "is damaged"),
        ("one column\n", "holds no two texts in line 1"),
    ):
        for files in ({"a.tsv": content}, {"a.txt": content}, {"a.csv": content}):
            with pytest.raises(UserError, match=said):
                read(tmp_path, files)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="task.hub=.*zip cannot be used .it is a file.*task.source"):
        TextTask(hub=str(tmp_path / "zip")).from_hub()
    packed_by_zstd = b"\x28\xb5\x2f\xfd\x04"
    for name, content, said in (
        ("pairs.tsv.zst", packed_by_zstd, "is packed by zstd"),
        ("pairs.tsv.zip", packed, "is a zip archive"),
        ("pairs.tgz", gzip.compress(tarred("a.tsv", b"a\tb\n")), "is a tar archive"),
        ("pairs.tmx", b"<?xml version='1.0'?>", "is XML or HTML"),
        ("pairs.en", b"a\n", "task.source and task.target go together"),
    ):
        with pytest.raises(UserError, match=rf"task.source=\S+{name}:? {said}.*{formats[12:]}"):
            read(tmp_path, {name: content})
    for name, said in (("zip", formats[12:]), ("a.doc", formats[12:]), ("", "go together")):
        with pytest.raises(UserError, match=said):
            read(tmp_path, {}, source=name)
    for files, said in (
        ({"a.csv": 'en,de\n"a,b\n'}, r"no two texts in line 2 \(unexpected end of data\)"),
        ({"a.json": '[{"en": "a"}]'}, r"no two texts in entry 1 \(no de in"),
        ({"a.json": gzip.compress(b'[{"en": "a"}]')[:-9]}, "is damaged"),
        ({"a.json": '{"data": []}'}, "no two texts in entry 1"),
        (
            {"a.json": '{\n"data": [{"en": "a", "de": "b"}]\n}'},
            "and stand in an array or alone in a line",
        ),
        ({"a.jsonl": '{"en": "a", "de": "b"}\n{"en": "a"}\n'}, "no two texts in line 2"),
        ({"a.jsonl": '{"en": "a", "de": 1}\n'}, r"no two texts in line 1 \(\('a', 1\)\)"),
        ({"a.jsonl": "[" * 9999}, "no two texts in line 1"),
        ({"a.jsonl": "3\n"}, "no two texts in line 1"),
        ({"a.tsv": "a\tb\nc d\n"}, "no two texts in line 2"),
        ({"a.en": "a\rb", "a.de": "c\nd\n"}, "more carriage returns than lines"),
        (
            {"a.tsv": TSV, "b.tsv": TSV},
            r"a.tsv and task.target=\S+b.tsv: task.source and task.target go together; give two",
        ),
        (
            {"a.en": "a\n", "b.tsv": TSV},
            r"task.target=\S+b.tsv: task.source and task.target go together",
        ),
    ):
        with pytest.raises(UserError, match=said):
            read(tmp_path, files)  # type: ignore[arg-type]


def test_the_length_of_a_text_without_spaces(tmp_path: Path) -> None:
    """Characters count, so that accuracy by length says something; words do where there are any."""
    for text, length in (
        ("多用途文本编辑器", 8), ("猫は、マットの上に", 9), ("แมวนั่ง", 7), ("the cat sat", 3),
        ("GNU Emacs 的编辑器", 6), ("고양이가 매트 위에", 3), ("👍🏽", 1), ("a\xa0b\u3000c", 3),
    ):  # fmt: skip
        task = TextTask(data_dir=str(tmp_path), source="a.tsv", length_bin=1)
        (tmp_path / "a.tsv").write_text(f"{text}\tx\n", "utf-8")
        assert task.from_files()["train"]["length"][:] == [length], text
        if text == "a\xa0b\u3000c":  # words that are tokens, in which such spaces are letters
            assert dataclasses.replace(task, words=True).from_files()["train"]["length"][:] == [1]
