"""Other people's files: each kind is read, or refused in a sentence that names the formats."""

import bz2
import csv
import dataclasses
import gzip
import io
import json
import lzma
import os
import socket
import tarfile
import unicodedata
import zipfile
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import Dataset, DatasetDict

from wawa_transformer.common.messages import UserError
from wawa_transformer.data.files import MAX_WORD
from wawa_transformer.data.text import TextTask

Pairs = list[tuple[str, str]]
Files = dict[str, str | bytes]
PAIRS = [(f"the cat, {i}", f'die "Katze" {i}') for i in range(9)]
BOM = "\ufeff"


def read(folder: Path, files: Files, **settings: Any) -> Pairs:
    """Write files, and read their pairs; the files are the source and the target.

    Those in ``hub`` are a dataset.
    """
    (folder / "hub").mkdir(exist_ok=True, parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    if any(name.startswith("hub/") for name in files):
        train = TextTask(hub=str(folder / "hub"), **settings).from_hub()["train"]
    else:
        settings = dict(zip(("source", "target"), files, strict=False)) | settings
        train = TextTask(data_dir=str(folder), **settings).from_files()["train"]
    return list(zip(train["source"], train["target"], strict=True))


def tabs(rows: Sequence[Sequence[str]]) -> str:
    return "".join("\t".join(row) + "\n" for row in rows)


def as_csv(rows: Sequence[Sequence[str]], **how: Any) -> str:
    """What Python's own module writes."""
    csv.writer(text := io.StringIO(), **how).writerows(rows)
    return text.getvalue()


def entries(pairs: Pairs) -> list[dict[str, Any]]:
    return [{"id": i, "en": source, "de": target} for i, (source, target) in enumerate(pairs)]


def lines(*rows: Any) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def parquet(*rows: Any) -> bytes:
    return pd.DataFrame(rows).to_parquet()


def zipped(*names: str, content: str) -> bytes:
    """Pack files as the library of datasets unpacks them, which reads them itself."""
    with zipfile.ZipFile(file := io.BytesIO(), "w") as archive:
        for name in names:
            archive.writestr(name, content)
    return file.getvalue()


def card(said: str, files: str) -> str:
    """The README of a folder, which says how its files are read."""
    return f"---\nconfigs:\n- config_name: default\n  {said}\n  data_files: {files}\n---\n"


# --------------------------------------------------------------------------- what every kind does

KINDS: dict[str, Callable[[Pairs], Files]] = {
    "two files": lambda pairs: {
        f"{i}.txt.gz": gzip.compress("".join(f"{pair[i]}\n" for pair in pairs).encode())
        for i in range(2)
    },
    "table": lambda pairs: {"a.tsv": tabs(pairs)},
    "CSV": lambda pairs: {"a.csv": as_csv(pairs)},
    "lines of JSON": lambda pairs: {"a.jsonl": lines(*entries(pairs))},
    "array of JSON": lambda pairs: {"a.json": json.dumps(entries(pairs), indent=1)},
    "parquet": lambda pairs: {"a.parquet": parquet(*entries(pairs))},
    "folder": lambda pairs: {"hub/train.json": lines(*entries(pairs))},
    "archive": lambda pairs: {
        "hub/train.zip": zipped("train.json", content=lines(*entries(pairs)))
    },
}
every_kind = pytest.mark.parametrize("files_of", KINDS.values(), ids=KINDS)


@every_kind
def test_the_same_pairs_are_read_from_every_kind_of_file(
    files_of: Callable[[Pairs], Files],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In NFC, without byte order marks and blank pairs; texts that look like numbers stay texts."""
    pairs = [
        *PAIRS, ("NA", "null"), ("7", "007"), ("2020-01-01", "1e3"), ("a\x85b \u2028 c", "x y"),
        ("Ein Mädchen hört", "schöne\u202f« Töne\xa0»"), ("Å", "한글"),
    ]  # fmt: skip
    marked = [tuple(BOM + unicodedata.normalize("NFD", side) for side in pair) for pair in pairs]
    blank = [("", ""), (" ", "word"), ("word", "\u3000")]
    files = files_of([*marked[:3], *blank, *marked[3:]])  # type: ignore[list-item]
    files = {name: text if isinstance(text, bytes) else BOM + text for name, text in files.items()}
    monkeypatch.setattr(socket.socket, "connect", None)
    assert read(tmp_path, files) == pairs
    out, err = capsys.readouterr()
    assert not out and "3 train pairs with a blank side left out\n" in err and "%|" not in err


@every_kind
@pytest.mark.parametrize("bad", ["\0", "\x1b$B"], ids=["NUL", "ISO 2022"])
def test_what_is_no_text_is_refused_wherever_it_stands(
    bad: str, files_of: Callable[[Pairs], Files], tmp_path: Path
) -> None:
    """Both are valid UTF-8, as bytes of UTF-16 and of Japanese in ISO 2022."""
    with pytest.raises(UserError, match="holds no two texts in (line|entry|row|train row) 2 "):
        read(tmp_path, files_of([("a", "b"), ("c", f"d {bad}")]))


@pytest.mark.parametrize("name", ["a.tsv", "a.TSV", "a.txt", "a.tsv.gz", "a.tsv.bz2", "a.tsv.xz"])
def test_a_packed_file_is_known_by_its_content(name: str, tmp_path: Path) -> None:
    for pack in (bytes, bz2.compress, gzip.compress, lzma.compress):
        assert read(tmp_path, {name: pack(tabs(PAIRS).encode())}) == PAIRS


@pytest.mark.parametrize("name", ["a.jsonl", "a.NDJSON", "b.parquet", "hub/train.json"])
def test_a_column_may_be_nested_and_its_name_may_have_dots(name: str, tmp_path: Path) -> None:
    """That of the hub's column ``translation`` may be left out."""
    for row, source, target in (
        ({"translation": {"en": "a", "fr": "b"}}, "en", "fr"),
        ({"translation": {"en": "a", "fr": "b"}}, "translation.en", "translation.fr"),
        ({"data": {"translation": {"en": "a", "de": "b"}}}, "data.translation.en", "data.de"),
        ({"x": {"en": {"text": "a"}, "de": {"text": "b"}}}, "x.en.text", "x.de.text"),
        ({"translation": {"zh.Hans": "a", "de": "b"}}, "translation.zh.Hans", "de"),
        ({"text.en": "a", "text.de": "b"}, "text.en", "text.de"),
    ):
        content = parquet(row) if "parquet" in name else lines(row)
        columns = {"source_column": source, "target_column": target}
        assert read(tmp_path, {name: content}, **columns) == [("a", "b")]


@pytest.mark.parametrize("asked", ["NFC", "NFD"])
@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_a_column_has_the_name_that_looks_like_the_one_that_was_asked_for(
    form: str, asked: str, tmp_path: Path
) -> None:
    """An é of one character or of two; in a CSV with semicolons, lines and a file of JSON."""
    names = [unicodedata.normalize(asked, name) for name in ("résumé", "data.über")]
    columns = dict(zip(("source_column", "target_column"), names, strict=True))
    first, second = (unicodedata.normalize(form, name) for name in ("résumé", "über"))
    rows = [(first, f"data.{second}"), *PAIRS]
    for files in (
        {"a.tsv": tabs(rows)},
        {"a.csv": "".join(";".join(row) + "\n" for row in rows)},
        {"a.jsonl": lines(*({first: s, "data": {second: t}} for s, t in PAIRS))},
    ):
        assert read(tmp_path, files, **columns) == PAIRS  # type: ignore[arg-type]


# ----------------------------------------------------------------------------------- what is read

IDS = [("id", "English", "score", "German"), *(("1", s, "2", t) for s, t in PAIRS)]
SEMICOLONS = 'Ja, ja;Yes, yes;1\n"Gut; sehr, gut";Well;2\nAch\u2028so;I see, then;3\n'
TEXTS = [("Ja, ja", "Yes, yes"), ("Gut; sehr, gut", "Well"), ("Ach\u2028so", "I see, then")]
QUOTED = [("She said", 'Sie sagte "Halt"'), ('"a', '"Halt!" "Ja"'), ('""', "d")]
BEGINNINGS = (
    "<url> is a great site",
    "<doc> opens a document",
    "<HTML> is the root",
    "<3 you",
    "WEBVTT is a format",
    "# msgid",
    "12 --> 13",
    "PAR1 is a receptor.",
)
README = (
    ("names: [de, en]\n  header: null", "csv", "ä,a\n"),
    ("sep: '|'\n  encoding: latin-1", "csv", "en|de\na|ä\n".encode("latin-1")),
    ("sep: ';'", "tsv", "en;de\na;ä\n"),
    ('sep: "\\t"', "csv", 'en\tde\n"a"\tä\n'),
    ("field: data", "json", '{"data": [{"en": "a", "de": "ä"}]}'),
)
TYPES = '{"id": 1, "en": "a", "de": "\\u00e4"}\n{"id": "x", "en": "b", "de": "c"}'
READ: list[tuple[str, str | bytes, Pairs]] = [
    ("a.csv", as_csv([("page", "en", "de"), ("x " * 70_000, "a", "b")]), [("a", "b")]),
    ("hub/train.csv", "en,en.1,de\na,x,b\n", [("a", "b")]),
    ("a.tsv", "de\tde\na\tb\n", [("de", "de"), ("a", "b")]),
    # Lines, and spaces.
    ("a.tsv", "a\tb\n \n\nc\td\n", [("a", "b"), ("c", "d")]),
    ("a.csv", "a,b\n\n ,\nc,d\n", [("a", "b"), ("c", "d")]),
    ("a.jsonl", '\n {"en": "a", "de": "b"}\n \n', [("a", "b")]),
    ("a.csv", as_csv([("a\nb", "c\nd")]), [("a\nb", "c\nd")]),
    ("a.json", lines({"en": "a\nb", "de": "c"}), [("a\nb", "c")]),
    ("a.jsonl", f"\n {json.dumps(entries(PAIRS))}", PAIRS),
    ("a.tsv", "a\rb\rc\td\ne\tf\ng\th", [("a\rb\rc", "d"), ("e", "f"), ("g", "h")]),
    ("a.tsv", "e\tf\r\ng\th\r\na\rb\rc\td\r\n", [("e", "f"), ("g", "h"), ("a\rb\rc", "d")]),
    ("a.tsv", "id\ten \t de\n1\ta\tb\n", [("a", "b")]),
    ("a.csv", 'en, de\n"a, 1", "b, 2"\n', [("a, 1", "b, 2")]),
    ("a.csv", 'en,de\n a, b\n"So, ""so""",c\n', [("a", "b"), ('So, "so"', "c")]),
    # A line of Excel's, and semicolons.
    ("a.csv", 'sep=,\nid,en ,de\n1,"a, 1","b, 2"\n', [("a, 1", "b, 2")]),
    ("a.csv", "SEP=|\na, 1|b, 2\n", [("a, 1", "b, 2")]),
    ("a.csv", "sep=x is set,b\n", [("sep=x is set", "b")]),
    *(("a.csv", first + SEMICOLONS, TEXTS) for first in ("", "\n", "sep=;\n")),
    ("a.csv", "de;en;id\n" + SEMICOLONS, [(target, source) for source, target in TEXTS]),
    ("a.csv", "de;en\n" + '"a\nb";c\n' * 60, [("c", "a\nb")] * 60),
    # Quotes are characters in a table with tabs, and no texts are numbers or nothing.
    ("a.tsv", tabs(QUOTED), QUOTED),
    ("a.csv", "sep=\t\n" + as_csv(QUOTED, delimiter="\t"), QUOTED),
    ("hub/a.zip", zipped("a.tsv", content=tabs([("en", "de"), *QUOTED[:2]])), QUOTED[:2]),
    ("hub/a.zip", zipped("a.csv", content="en,de\n7,007\n"), [("7", "007")]),
    ("hub/a.zip", zipped("a.csv", content="en,de\nNA,null\n"), [("NA", "null")]),
    ("hub/a.zip", zipped("a.jsonl", content=TYPES), [("a", "ä"), ("b", "c")]),
    # A text may begin as a file of another format does.
    *(("a.txt", f"{first}\tb\n", [(first, "b")]) for first in BEGINNINGS),
]


@pytest.mark.parametrize(("name", "content", "pairs"), READ, ids=count())
def test_a_file_is_read(name: str, content: str | bytes, pairs: Pairs, tmp_path: Path) -> None:
    assert read(tmp_path, {name: content}) == pairs


@pytest.mark.parametrize(("said", "kind", "content"), README)
def test_what_the_readme_of_a_folder_says_of_its_files_is_done(
    said: str, kind: str, content: str | bytes, tmp_path: Path
) -> None:
    """The columns of a table and its encoding: the sides would be exchanged, or one refused."""
    files: Files = {"hub/README.md": card(said, f"x.{kind}"), f"hub/x.{kind}": content}
    assert read(tmp_path, files) == [("a", "ä")]


@pytest.mark.parametrize("files", [{"a.tsv": BOM + tabs(IDS)}, {"a.csv": as_csv(IDS)}])
def test_columns_of_a_table_by_number_and_by_name(
    files: Files, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line of the names is no pair; without names the first pair shows what it is.

    Columns that nobody asked for are counted.
    """
    for source, target in (("English", "German"), ("2", "German"), ("English", "4")):
        assert read(tmp_path, files, source_column=source, target_column=target) == PAIRS
    by_number = read(tmp_path, files, source_column="2", target_column="4")
    assert by_number == [("English", "German"), *PAIRS]
    assert read(tmp_path, {"b.tsv": "1\t1\n"}, source_column="1", target_column="2") == [("1", "1")]
    assert "left out" not in capsys.readouterr().err
    read(tmp_path, files)
    said = capsys.readouterr().err
    assert "first pair: id → English\n" in said and "second left out of 10 lines" in said


def test_a_name_is_no_pattern_and_chooses_a_configuration(tmp_path: Path) -> None:
    """An asterisk or a bracket is part of a file's name."""
    for name in ("d*.parquet", "data[1].parquet", "data.parquet"):
        (tmp_path / name).write_bytes(parquet(*entries([(name, "b")])))
    for name in ("d*.parquet", "data[1].parquet"):
        assert read(tmp_path, {}, source=name) == [(name, "b")]
    configs = "".join(f"- config_name: {name}\n  data_files: {name}.csv\n" for name in "ab")
    files: Files = {f"hub/{name}.csv": f"en,de\n{name},x\n" for name in "ab"}
    files["hub/README.md"] = f"---\nconfigs:\n{configs}---\n"
    for name in "ab":
        assert read(tmp_path, files, hub_config=name) == [(name, "x")]
    for wrong, said in ((None, "null"), ("c", "c"), ("", "null")):
        with pytest.raises(UserError, match=f"task.hub_config={said} is none of .* a, b"):
            read(tmp_path, files, hub_config=wrong)


@pytest.mark.parametrize("name", ["TEST.csv", "Dev-1.csv", "VAL.csv.gz"])
def test_a_split_in_capitals_is_not_taken_for_training(name: str, tmp_path: Path) -> None:
    """The library knows names in small letters alone."""
    content: Any = gzip.compress(TABLE.encode()) if name.endswith("gz") else TABLE
    with pytest.raises(UserError, match=f"{name} for training; rename it {name.lower()}"):
        read(tmp_path, {"hub/TRAIN.csv": TABLE, f"hub/{name}": content})


@pytest.mark.parametrize("kind", ["json", "csv", "parquet", "zip"])
def test_a_changed_file_of_the_same_size_and_time_is_read_again(kind: str, tmp_path: Path) -> None:
    """No cache of the library hides the change of a folder."""
    path = tmp_path / f"train.{kind}"
    for word in ("old", "new"):
        pairs = [(word, "b")] * 3
        table = as_csv([("en", "de"), *pairs])
        contents = {
            "json": lines(*entries(pairs)).encode(),
            "csv": table.encode(),
            "parquet": parquet(*entries(pairs)),
            "zip": zipped("train.csv", content=table),
        }
        path.write_bytes(contents[kind])
        os.utime(path, (1e9, 1e9))
        train = TextTask(hub=str(tmp_path)).from_hub()["train"]
        assert train["source"][:] == [word] * 3


def test_a_dataset_that_was_saved_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With splits and without; splits of other names are no test, and are named."""
    saved = Dataset.from_list(entries(PAIRS))
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


def test_the_length_of_a_text_without_spaces(tmp_path: Path) -> None:
    """Characters count, so that accuracy by length says something; words do where there are any."""
    for text, length in (
        ("多用途文本编辑器", 8), ("猫は、マットの上に", 9), ("แมวนั่ง", 7), ("the cat sat", 3),
        ("GNU Emacs 的编辑器", 6), ("고양이가 매트 위에", 3), ("👍🏽", 1), ("a\xa0b\u3000c", 3),
    ):  # fmt: skip
        task = TextTask(data_dir=str(tmp_path), source="a.tsv", length_bin=1)
        (tmp_path / "a.tsv").write_text(f"{text}\tx\n", "utf-8")
        assert task.from_files()["train"]["length"][:] == [length], text
    # Words that are tokens, in which such spaces are letters.
    assert dataclasses.replace(task, words=True).from_files()["train"]["length"][:] == [1]


# ---------------------------------------------------------------------------------- what is said

TABLE = "en,de\na,b\n"
IN_QUOTES = as_csv([("en", "de"), ("a", "b")], delimiter="\t", quoting=csv.QUOTE_ALL)
UNSEEN = "\u200b \u200e\u200f \u2060 \u00ad \u180e \u3164 \u2800 \ufe0f \u115f\u1160 \U000e0020"
LONG = ["x" * (MAX_WORD + 1), "中" * (MAX_WORD // 3 + 1)]
SAID: list[tuple[str, str]] = [
    # A table that was written as a CSV; quotes of a text are no sign of it.
    (as_csv(QUOTED, delimiter="\t"), "a.tsv: 3 lines have quotes as in a CSV"),
    (tabs(QUOTED), ""),
    (IN_QUOTES, "a.tsv: 2 lines have quotes as in a CSV"),
    (IN_QUOTES + '"Hi!"\tHallo!\n', ""),
    # Texts that are left out, or suspicious.
    *((tabs([*PAIRS, (x, "a"), ("a", x)]), "2 train pairs with a blank") for x in UNSEEN.split()),
    (tabs([("\U0001fae8", "\u0301"), ("a\u200b", "\u200fb"), ("\U00105678", "😀\ufe0f")]), ""),
    *((tabs([*PAIRS, (x, "b")]), "1 train pairs with a word of more than 10,000") for x in LONG),
    *((tabs([*PAIRS, ("a", f"b {x} c")]), "1 train pairs with a word of more") for x in LONG),
    (tabs([*PAIRS, ("", LONG[0])]), "1 train pairs with a blank side left out"),
    (tabs([("a", LONG[0][1:])]), ""),
    ("1\t1\nx\tx\n", "warning: every train pair has the same text on both sides"),
    ("1\t1\nx\ty\n", ""),
]


@pytest.mark.parametrize(("table", "said"), SAID, ids=count())
def test_what_a_table_shows_is_said(
    table: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Beside the first pair, and nothing else."""
    read(tmp_path, {"a.tsv": table})
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 1 + bool(said) and any(said in line for line in told)


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ("train.csv test.csv", ""),
        ("train.csv .c.csv README.txt", ""),
        ("Train.csv", ""),
        ("train.csv more.jsonl a.tsv", "of its files, a.tsv, more.jsonl are not read"),
        ("train.csv train.csv.bak train-1.csv", "train: train-1.csv, train.csv, train.csv.bak"),
        ("dev.csv train.csv validation.csv", "validation: dev.csv, validation.csv"),
        ("a.zip/x/train.csv a.zip/x/test.csv", "a.zip are read as one split: x/train.csv, x/test"),
        ("a.zip/x/train.csv a.zip/__MACOSX/._train.csv", ""),
    ],
)
def test_which_files_of_a_folder_are_read_is_said_where_it_is_not_plain(
    names: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The library reads one format, and all files in which it finds a split's name."""
    files: Files = {f"hub/{name}": TABLE for name in names.split()}
    if "zip" in names:
        files = {"hub/a.zip": zipped(*names.replace("a.zip/", "").split(), content=TABLE)}
    assert {*read(tmp_path, files)} == {("a", "b")}
    told = [line for line in capsys.readouterr().err.splitlines() if " pair: " not in line]
    assert len(told) == bool(said) and all(said in line for line in told)


# -------------------------------------------------------------------------------- what is refused

TWICE = [("en", "en", "de"), ("1", "a", "b")]
ROW = '{"translation": {"en": "1", "en": "a", "de": "b"}}'
GOOD = {"translation": {"en": "a", "de": "b"}}
ZIP = zipped("a.tsv", content=tabs(PAIRS))
TAR = tarfile.TarInfo("x/a.tsv").tobuf()
UTF_16 = "is UTF-16 text or no text"
# Whatever the suffix of a table says.
FOREIGN: list[tuple[str | bytes, str]] = [
    (ZIP, "is a zip archive"),
    (lzma.compress(ZIP), "is a zip archive"),
    (b"\x28\xb5\x2f\xfd\x04", "is packed by zstd"),
    (tabs(PAIRS).encode("utf-16"), "is UTF-16 text"),
    (gzip.compress(tabs(PAIRS).encode("utf-16")), "is UTF-16 text"),
    (gzip.compress(bz2.compress(b"a\tb")), "is packed twice"),
    (lzma.compress(gzip.compress(b"a\tb")), "is packed twice"),
    (b"+/v8-a\tb\n", "is UTF-7 text"),
    ("version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 9\n", "is a pointer.*git lfs"),
    ("<!DOCTYPE html>\n<title>404</title>\n", "is XML or HTML"),
    (BOM + '<?xml version="1.0"?>\n<tmx version="1.4">\n', "is XML or HTML"),
    (r"{\rtf1\ansi a\tab b}", "is RTF"),
    ('<srcset setid="newstest">\n', "is XML or HTML"),
    ("<url>http://x</url>\n", "is XML or HTML"),
    (f"{BOM}<xliff version='1.2'>\n<file>\n", "is XML or HTML"),
    (f"{BOM}1\r\n00:00:01,000 --> 00:00:02,500\r\nThe cat\r\n", "is subtitles"),
    ("WEBVTT - cats\n\n00:01.000 --> 00:04.000\n- The cat\n", "is subtitles"),
    ('# Cats\n#\n\nmsgid ""\nmsgstr ""\n"Language: de\\n"\n', r"is a catalogue of gettext \(PO\)"),
    (b"PAR1\x15\x04", "is a parquet file"),
    (TAR, "is a tar archive"),
    (gzip.compress(TAR), "is a tar archive"),
    (b"ARROW1\0\0\xff", UTF_16),
    (b"Rar!\x1a\x07\x01\0\n", UTF_16),
    (tabs(PAIRS).encode("utf-16-le"), UTF_16),
    (gzip.compress(tabs(PAIRS).encode("utf-16-be")), UTF_16),
]


@pytest.mark.parametrize(("content", "said"), FOREIGN, ids=count())
@pytest.mark.parametrize("name", ["a.tsv", "a.txt", "a.csv", "a.tgz"])
def test_another_format_is_named_with_those_that_are_read(
    name: str, content: str | bytes, said: str, tmp_path: Path
) -> None:
    formats = r"give two UTF-8 files.*\.csv, \.json, \.jsonl or \.parquet.*gzip, bzip2"
    with pytest.raises(UserError, match=rf"^task.source=\S+{name} {said}.*; convert it: {formats}"):
        read(tmp_path, {name: content})


BOTH = "task.source and task.target go together; give two UTF-8 files"
OLD_MAC = "carriage returns .*; convert them"
REFUSED: list[tuple[str, str | bytes, str]] = [
    ("a.doc", "a\n", BOTH),
    ("a.en", "a\n", BOTH),
    # A date beside the texts that Python does not have.
    (
        "a.parquet",
        parquet({"en": "a", "de": "b", "at": np.datetime64("33658-09-27", "ms")}),
        r"row 1 \(date value out of range\)",
    ),
    # Lines of a table.
    ("a.csv", 'en,de\n"a,b\n', r"no two texts in line 2 \(unexpected end of data\)"),
    ("a.csv", 'sep=,\nen,de,id\n"a\nb","c\nd\n","1\n2"\n\ne;f\n', "line 9 .*1 columns: e;f"),
    (
        "a.csv",
        "e f\n",
        "line 1 .*1 columns: e f.* is source, comma, target, .* first line is sep=;",
    ),
    ("a.tsv", "a\tb\nc d\n", "line 2 .*1 columns: c d.* is source, tab, target"),
    ("a.csv", "en,de\nHello,Hallo,\nGood, a,Guten\n", r"line 3 .*has 3 columns: Good \| a \| G"),
    ("a.tsv", "en\tde\nHello\tHallo\t\na\tb\tc\n", "line 3 .*it has 3 columns"),
    ("hub/a.zip", zipped("a.csv", content="en,de\na, b,c\n"), "its rows have more columns"),
    ("a.tsv", "a\tb\ne\tf\rg\th\ni\tj\n", r"line 2 \(it has carriage returns inside; convert"),
    ("a.csv", "a,b\ne,f\rg,h\ni,j\n", r"line 2 \(it has carriage returns inside; convert"),
    *((f"a.{kind}", "a\tb\rc\td\re\tf\r\n", OLD_MAC) for kind in ("tsv", "txt", "csv")),
    ("a.tsv", "a\tb\rc\td", OLD_MAC),
    ("a.tsv", "a\tb\n" + "c\td\r" * 300_000, OLD_MAC),
    (
        "a.csv",
        "Ja, ja;Yes\nAch, so;I see\n",
        "commas or by semicolons.* begin the file with .*sep=;",
    ),
    # A name twice.
    *((f"{place}.csv", as_csv(TWICE), "the column en twice; give") for place in ("a", "hub/a")),
    *((f"{place}.tsv", tabs(TWICE), "the column en twice; give") for place in ("a", "hub/a")),
    ("hub/a.zip", zipped("a.csv", content=as_csv(TWICE)), "has the column en twice.*task.source"),
    ("hub/a.zip", zipped("a.tsv", content=tabs(TWICE)), "has the column en twice.*task.source"),
    ("a.jsonl", ROW, r"line 1 \(it has en twice\)"),
    ("a.json", f"[{ROW}]", r"entry 1 \(it has en twice\)"),
    ("hub/train.json", f"[{ROW}]", r"entry 1 \(it has en twice\)"),
    # Entries.
    ("a.json", '[{"en": "a"}]', r"no two texts in entry 1 \(no de in"),
    ("a.json", lines({"translation": {"en": "a"}}), "no de in {'en': 'a'}.*target_column=de"),
    ("a.json", '{"data": []}', "no two texts in entry 1"),
    ("a.json", '{\n"en": "a", "de": "b"\n}', "and stand in an array or alone in a line"),
    ("a.jsonl", '{"en": "a", "de": "b"}\n{"en": "a"}\n', "no two texts in line 2"),
    ("a.jsonl", '{"en": "a", "de": 1}\n', r"no two texts in line 1 \(\('a', 1\)\)"),
    ("a.jsonl", "[" * 9999, "no two texts in line 1"),
    ("a.jsonl", "3\n", "no two texts in line 1"),
    ("hub/train.json", lines(GOOD, {"translation": None}), "train.json holds .* entry 2"),
    (
        "hub/a.json",
        lines(GOOD, {"translation": {"en": "c", "de": None}}),
        "a.json holds .* entry 2",
    ),
    ("hub/a.zip", zipped("a.json", content=TYPES + '\n{"en": "d", "de": 4}'), "train row 3 "),
    # Files that are damaged, and folders that the library cannot read.
    *(
        (f"a.{kind}", pack(b'["a\tb,c')[:-9], "is damaged")
        for kind in ("tsv", "csv", "json")
        for pack in (bz2.compress, gzip.compress, lzma.compress)
    ),
    *((f"a.{kind}", b"a\tb,c\n\xe9\tx\n", "is not UTF-8 in line 2") for kind in ("tsv", "txt")),
    ("hub/train.xml", "<a>b</a>", r"cannot be used \(the library reads no xml files\); name"),
    ("hub/README.md", card("sep: ','", "nope.csv"), "Unable to find .*nope.csv.*; name a dataset"),
]


@pytest.mark.parametrize(("name", "content", "said"), REFUSED, ids=count())
def test_what_cannot_be_read_is_one_sentence(
    name: str, content: str | bytes, said: str, tmp_path: Path
) -> None:
    """Of a file that is not there the library lists the suffixes of all that it reads."""
    with pytest.raises(UserError, match=said) as refused:
        read(tmp_path, {name: content})
    assert len(str(refused.value)) < 700


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ("a.tsv", "b.tsv", rf"a.tsv and task.target=\S+b.tsv: {BOTH}"),
        ("a.en", "b.tsv", rf"a.en and task.target=\S+b.tsv: {BOTH}"),
        ("a.en", "a.de", "a.en has more carriage returns than lines"),
    ],
)
def test_two_files_have_a_text_a_line(first: str, second: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=said):
        read(tmp_path, {first: "a\rb", second: "c\nd\n"})


def test_a_missing_column_is_named_alone(tmp_path: Path) -> None:
    for wrong in ("0", "00", "9", "de"):
        with pytest.raises(UserError, match=rf"a.tsv has no column {wrong}; its first line is id"):
            read(tmp_path, {"a.tsv": tabs(IDS)}, source_column="2", target_column=wrong)
    with pytest.raises(UserError, match="no column a or b; its first line is id"):
        read(tmp_path, {"a.csv": as_csv(IDS)}, source_column="a", target_column="b")


def test_a_parquet_file_with_a_name_twice_or_bytes_is_refused(tmp_path: Path) -> None:
    """Bytes that are no UTF-8, which the format does not check."""
    _, offsets, content = pa.array([b"a", b"\xff"]).buffers()
    column = pa.StringArray.from_buffers(2, offsets, content)
    for table, said in (
        (pa.table([["1"], ["a"], ["b"]], names=["en", "en", "de"]), r"row 1 \(it has en twice\)"),
        (pa.table({"en": column, "de": ["x", "y"]}), "row 1 .*can't decode"),
    ):
        pq.write_table(table, tmp_path / "a.parquet")
        with pytest.raises(UserError, match=f"a.parquet holds no two texts in {said}"):
            read(tmp_path, {}, source="a.parquet")


def test_a_folder_whose_name_the_library_takes_for_a_pattern_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would read other folders, also where the current folder has such a name."""
    for name in ("text [1]", "text*"):
        with pytest.raises(UserError, match="takes .* for a pattern; rename the folder"):
            read(tmp_path / name, {"hub/train.json": lines(*entries(PAIRS))})
    monkeypatch.chdir(tmp_path / "text [1]" / "hub")
    with pytest.raises(UserError, match="takes .* for a pattern; rename the folder"):
        TextTask(hub=".").from_hub()
    Dataset.from_list(entries(PAIRS)).save_to_disk(tmp_path / "saved [1]")
    assert len(TextTask(hub=str(tmp_path / "saved [1]")).from_hub()["train"]) == len(PAIRS)
    with pytest.raises(UserError, match="task.hub=.*zip cannot be used .it is a file.*task.source"):
        (tmp_path / "zip").touch()
        TextTask(hub=str(tmp_path / "zip")).from_hub()


def test_a_key_of_the_text_is_never_ignored(tmp_path: Path) -> None:
    """A target alone is not the sample; two files have no columns."""
    for name in ("my.de", "my.tsv"):
        with pytest.raises(UserError, match=f"={name}: {BOTH}"):
            TextTask(target=name).from_files()
    with pytest.raises(UserError, match=r"v.de: task.validation_source and task.validation_target"):
        TextTask(source="a.tsv", validation_target="v.de").from_files(["validation"])
    files: Files = {"a.en": "1\tx\n", "a.de": "y\n"}
    for column in ("source_column", "target_column"):
        with pytest.raises(UserError, match="choose columns of one file .* leave the columns out"):
            read(tmp_path, files, **{column: "2"})
        task = TextTask(source="a.tsv", test_source="a.en", test_target="a.de", **{column: "2"})  # type: ignore[arg-type]
        assert len(dataclasses.replace(task, data_dir=str(tmp_path)).from_files(["test"])) == 1
