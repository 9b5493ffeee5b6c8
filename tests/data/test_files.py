"""Other people's files: each kind is read, or refused in a sentence that names the formats."""

import bz2
import csv
import gzip
import json
import lzma
import unicodedata
import zipfile
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from wawa_transformer.common.schema import UserError
from wawa_transformer.data.text import TextTask

PAIRS = [(f"the cat, {i}", f'die "Katze" {i}') for i in range(9)]
TSV = "".join(f"{source}\t{target}\n" for source, target in PAIRS)
BOM = "\ufeff"


def read(folder: Path, files: dict[str, str | bytes], **settings: str) -> list[tuple[str, str]]:
    """Write files, and read their pairs; the files are the source and the target."""
    for name, content in files.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
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


@pytest.mark.parametrize("pack", [bz2.compress, gzip.compress, lzma.compress])
@pytest.mark.parametrize("name", ["a.tsv", "a.TSV", "a.txt", "a.tsv.gz", "a.tsv.bz2", "a.tsv.xz"])
def test_a_packed_file_is_known_by_its_content(
    name: str, pack: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    assert read(tmp_path, {name: pack(TSV.encode())}) == PAIRS
    assert read(tmp_path, {name: TSV}) == PAIRS


def test_the_same_pairs_as_json_csv_and_parquet(tmp_path: Path) -> None:
    """An array or lines, under any of the suffixes; texts that look like numbers stay texts."""
    pairs = [*PAIRS, ("NA", "null"), ("7", "007"), ("2020-01-01", "1e3"), ("a\nb", "c\nd")]
    rows = as_json(pairs)
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    for name in ("a.json", "a.jsonl", "a.NDJSON"):
        for text in (lines, json.dumps(rows), json.dumps(rows, indent=1)):
            assert read(tmp_path, {name: BOM + text}) == pairs
    table = as_csv(tmp_path, [("id", "en", "de"), *((str(i), *p) for i, p in enumerate(pairs))])
    assert read(tmp_path, {"a.csv": BOM.encode() + table}) == pairs
    pd.DataFrame(rows).to_parquet(tmp_path / "b.parquet")
    assert read(tmp_path, {}, source="b.parquet") == pairs


def test_the_column_translation_of_the_hub(tmp_path: Path) -> None:
    """In lines, in a folder and as parquet; with its name and without; with other languages."""
    rows = [{"id": i, "translation": {"en": s, "fr": t}} for i, (s, t) in enumerate(PAIRS)]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "hub").mkdir()
    (tmp_path / "hub" / "train.json").write_text(lines, "utf-8")
    pd.DataFrame(rows).to_parquet(tmp_path / "c.parquet")
    for outer in ("", "translation."):
        columns = {"source_column": f"{outer}en", "target_column": f"{outer}fr"}
        assert read(tmp_path, {"a.jsonl": lines}, **columns) == PAIRS
        assert read(tmp_path, {}, source="c.parquet", **columns) == PAIRS
        train = TextTask(hub=str(tmp_path / "hub"), **columns).from_hub()["train"]
        assert list(zip(train["source"], train["target"], strict=True)) == PAIRS
    with pytest.raises(UserError, match="cannot be used .* task.target_column=de"):
        TextTask(hub=str(tmp_path / "hub")).from_hub()


def test_columns_of_a_table_by_number_and_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line of the names is no pair; without names the first pair shows what it is."""
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
        with pytest.raises(UserError, match="no column 0 or no 2"):
            read(tmp_path, files, source_column="0", target_column="2")
        with pytest.raises(UserError, match="no two texts in line 1"):
            read(tmp_path, files, source_column="2", target_column="9")
    capsys.readouterr()
    TextTask(data_dir=str(tmp_path), source="a.tsv", test_size=2, validation_size=2).dataset(0)
    assert "first pair: id → English\n" in capsys.readouterr().err


def test_a_byte_order_mark_is_no_part_of_the_first_word(tmp_path: Path) -> None:
    lines = json.dumps({"en": "the cat", "de": "die Katze"}) + "\n"
    both = {"a.en": f"{BOM}the cat\nb\n", "a.de": f"{BOM}die Katze\nc\n"}
    for files in ({"a.tsv": f"{BOM}the cat\tdie Katze\n"}, {"a.jsonl": BOM + lines}, both):
        assert read(tmp_path, files)[0] == ("the cat", "die Katze")


def test_a_blank_line_of_one_file_is_a_blank_pair(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Left out and counted as in two files."""
    pairs = [*PAIRS[:3], ("", ""), *PAIRS[3:], ("", "")]
    sides = ["".join(f"{pair[i]}\n" for pair in pairs) for i in range(2)]
    tsv = "".join(f"{s}\t{t}\n" if s else "\n" for s, t in pairs)
    lines = "".join(json.dumps(row) + "\n" if row["en"] else " \n" for row in as_json(pairs))
    table = as_csv(tmp_path, [("en", "de"), *PAIRS[:3], (), *PAIRS[3:], ("", "")])
    for files in (
        {"a.en": sides[0], "a.de": sides[1]}, {"a.tsv": tsv}, {"a.jsonl": lines}, {"a.csv": table},
    ):  # fmt: skip
        capsys.readouterr()
        assert read(tmp_path, files) == PAIRS
        assert capsys.readouterr().err == "2 train pairs with a blank side left out\n"


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


def test_what_is_not_read_is_named_with_the_formats_that_are(tmp_path: Path) -> None:
    """Whatever its suffix says."""
    with zipfile.ZipFile(tmp_path / "zip", "w") as archive:
        archive.writestr("a.tsv", TSV)
    packed = (tmp_path / "zip").read_bytes()
    formats = r"convert it: give two UTF-8 files.*\.csv, \.json, \.jsonl or \.parquet.*gzip, bzip2"
    for content, said in (
        (packed, f"is a zip archive; {formats}"),
        (b"\x28\xb5\x2f\xfd\x04", f"is packed by zstd; {formats}"),
        (TSV.encode("utf-16"), f"is UTF-16 text; {formats}"),
        (TSV.encode("utf-16-le"), f"is no text in line 1; {formats}"),
        (gzip.compress(TSV.encode("utf-16-le")), "is no text in line 1"),
        (TSV.encode("latin-1") + b"\xe9\tx\n", "is not UTF-8 in line 10"),
        (TSV.replace("\n", "\r"), "carriage returns for line feeds in line 1; convert it: tr"),
        (bz2.compress(TSV.encode())[:-9], "is damaged"),
        (lzma.compress(TSV.encode())[:-9], "is damaged"),
        ("one column\n", "holds no two texts in line 1"),
    ):
        for files in ({"a.tsv": content}, {"a.txt": content}, {"a.csv": content}):
            with pytest.raises(UserError, match=said):
                read(tmp_path, files)  # type: ignore[arg-type]
    for name, said in (("zip", formats[12:]), ("a.doc", formats[12:]), ("", "go together")):
        with pytest.raises(UserError, match=said):
            read(tmp_path, {}, source=name)
    for files, said in (
        ({"a.csv": 'en,de\n"a,b\n'}, r"no two texts in line 2 \(unexpected end of data\)"),
        ({"a.json": '[{"en": "a"}]'}, r"no two texts in line 1 \('"),
        ({"a.json": gzip.compress(b'[{"en": "a"}]')[:-9]}, "no two texts in line 1"),
        ({"a.json": '{"data": []}'}, "no two texts in line 1"),
        ({"a.tsv": TSV, "b.tsv": TSV}, "task.source and task.target go together; give two"),
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
