"""Pairs of texts from files: lines, columns or entries, plain or packed."""

import bz2
import contextlib
import csv
import gzip
import itertools
import json
import lzma
import re
import unicodedata
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from pyarrow.parquet import ParquetFile

from wawa_transformer.common.files import cannot_read
from wawa_transformer.common.schema import UserError, first_line, warn

LONGEST_LINE = 10**6  # bytes
MAX_WORD = 10_000  # bytes
DEFAULT_COLUMNS = ("en", "de")
Columns = tuple[str | None, str | None]  # names or, in a table, numbers from 1
TABLES = (".tsv", ".tab", ".txt", ".csv")
ENTRIES = (".json", ".jsonl", ".ndjson", ".parquet")
FORMATS = (
    "give two UTF-8 files with one text a line, or in task.source alone a .tsv, .csv, .json, "
    ".jsonl or .parquet with both sides, plain or packed by gzip, bzip2 or xz; task.hub reads a "
    "folder"
)
# What a file begins with, packed and unpacked: its name may say something else.
PACKED: dict[bytes, Callable[..., Any]] = {
    rb"\x1f\x8b": gzip.open,
    rb"BZh[1-9]1AY&SY": bz2.open,
    rb"\xfd7zXZ\x00": lzma.open,
    b"": open,
}
PARQUET = rb"PAR1[^ -~]"  # what follows is no letter, as in the name of a protein
FOREIGN = {
    rb"PK\x03\x04": "a zip archive",
    rb"7z\xbc\xaf\x27\x1c": "a 7z archive",
    rb"\x28\xb5\x2f\xfd": "packed by zstd",
    PARQUET: "a parquet file",
    rb"%PDF": "a PDF file",
    rb"\xff\xfe|\xfe\xff": "UTF-16 text",
    rb"\+/v[89+/]": "UTF-7 text",
    rb"version https://git-lfs": "a pointer, whose file git lfs pull fetches",
    rb"(?i)(\xef\xbb\xbf)?\s*<(\?xml|!doctype|html|tmx|srcset|refset|url|doc)\b": "XML or HTML",
}
# UTF-16 without a byte order mark and ISO 2022 are valid UTF-8, and these characters show it.
NO_TEXT = re.compile(r"\0|\x1b[$(]")
# Blank though no space, by their Unicode category; and fillers of other categories.
UNSEEN = ("Cc", "Cf", "Zl", "Zp", "Zs")
FILLERS = "\u034f\u115f\u1160\u2800\u3164\ufe0e\ufe0f\uffa0"


def suffix_of(name: str) -> str:
    """Get a file's suffix in small letters, before ``.gz``, ``.bz2`` or ``.xz``."""
    return Path(re.sub(r"\.(gz|bz2|xz)$", "", name.lower())).suffix


@contextlib.contextmanager
def opened(path: Path, key: str) -> Iterator[IO[bytes]]:
    """Open a file and unpack it; errors of reading it name ``key``.

    Raises:
        UserError: no file, damaged, or of a format that is not read.
    """
    try:
        if not path.is_file():  # reading a pipe might never end
            raise UserError(
                f"{key}={path} does not exist or is no ordinary file; name one that holds the text."
            )
        with path.open("rb") as file:
            head = file.read(16)
        unpack = next(each for magic, each in PACKED.items() if re.match(magic, head))
        with unpack(path, "rb") as file:
            head = file.peek(64)
            for magic, name in FOREIGN.items():
                named = (suffix_of(path.name), magic) == (".parquet", PARQUET)
                if re.match(magic, head) and not named:
                    raise UserError(f"{key}={path} is {name}; convert it: {FORMATS}.")
            yield file
    except (EOFError, zlib.error, lzma.LZMAError, OSError, MemoryError) as error:
        # A wrong checksum has no number of an error of the system.
        if isinstance(error, MemoryError) or getattr(error, "errno", None) is not None:
            raise cannot_read(f"{key}={path}", error) from None
        raise UserError(f"{key}={path} is damaged ({first_line(error)}); fetch it again.") from None


def read_sentences(path: Path, key: str) -> Iterator[str]:
    """Yield the lines of a UTF-8 text file, plain or packed, without byte order marks.

    Lines end only at a line feed: ``splitlines`` also splits at rarer separators, which would
    misalign the two sides. At most ``LONGEST_LINE`` bytes of a line are read.

    Raises:
        UserError: no file, empty, damaged or not UTF-8 (with the line), naming ``key``.
    """
    blank, returns = True, 0
    with opened(path, key) as file:
        lines = iter(lambda: file.readline(LONGEST_LINE + 1), b"")
        for number, line in enumerate(lines, 1):
            returns += line.rstrip().count(b"\r")
            if returns > number - (not line.endswith(b"\n")):
                raise UserError(
                    f"{key}={path} has carriage returns for line feeds in line {number}; "
                    f"convert it: tr '\\r' '\\n' < old > new."
                )
            if len(line) > LONGEST_LINE:
                raise UserError(
                    f"{key}={path} has more than {LONGEST_LINE:,} bytes in line {number}; cut it."
                )
            if b"\0" in line:
                raise UserError(f"{key}={path} is no text in line {number}; convert it: {FORMATS}.")
            blank = blank and not line.strip()
            try:
                yield line.removesuffix(b"\n").decode().rstrip("\r").lstrip("\ufeff")
            except UnicodeDecodeError:
                raise UserError(
                    f"{key}={path} is not UTF-8 in line {number}; convert it to UTF-8."
                ) from None
    if blank:
        raise UserError(f"{key}={path} is empty; it must hold one sentence a line.")


def pairs_of_two(paths: Sequence[Path], keys: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Pair line n of one file with line n of the other."""
    named = [f"{key}={path}" for key, path in zip(keys, paths, strict=True)]

    def pairs() -> Iterator[tuple[str, str]]:
        sides = (read_sentences(*each) for each in zip(paths, keys, strict=True))
        for number, (source, target) in enumerate(itertools.zip_longest(*sides), 1):
            if source is None or target is None:
                raise UserError(
                    f"{' and '.join(named)} do not have as many lines: one ends before line "
                    f"{number}; line n of one must translate line n of the other."
                )
            yield source, target

    return checked(pairs(), " and ".join(named), "line", FORMATS)


def pairs_of_one(path: Path, key: str, columns: Columns) -> Iterator[tuple[str, str]]:
    """Read both sides from one file, whose suffix is one of ``TABLES`` or ``ENTRIES``."""
    suffix = suffix_of(path.name)
    if suffix not in TABLES:
        place = "line" if suffix in (".jsonl", ".ndjson") else "entry"
        return pairs_of_entries(entries_of(path, key), f"{key}={path}", columns, place)
    remedy = f"a line is source, {'comma' if suffix == '.csv' else 'tab'}, target"
    return checked(table_pairs(path, key, columns), f"{key}={path}", "line", remedy)


def pairs_of_entries(
    entries: Iterable[Any], where: str, columns: Columns, place: str
) -> Iterator[tuple[str, str]]:
    """Read two texts of each entry of a file or a data set, which ``where`` names.

    An entry that is None has no text.
    """
    wanted = names_of(columns)
    remedy = (
        f"each must have texts at task.source_column={wanted[0]} and task.target_column={wanted[1]}"
    )
    pairs = (texts_of(each, wanted) if each is not None else ("", "") for each in entries)
    return checked(pairs, where, place, remedy)


def names_of(columns: Columns) -> list[str]:
    """Get the names of two columns, where None was given the usual ones."""
    return [given or name for given, name in zip(columns, DEFAULT_COLUMNS, strict=True)]


def table_pairs(path: Path, key: str, columns: Columns) -> Iterator[tuple[str, str] | None]:
    """Read two columns of a table, with None for each line that begins no pair.

    A first line that holds the names of ``columns`` names the columns. The first two columns are
    read if it does not, and if nobody named any. A line without text gives a pair without text.
    """
    wanted, named = names_of(columns), any(columns)
    places, more, lines = None, 0, read_sentences(path, key)
    rows: Iterable[list[str]] = (line.split("\t") for line in lines)
    if suffix_of(path.name) == ".csv":
        rows = csv.reader((f"{line}\n" for line in lines), strict=True, skipinitialspace=True)
    for cells in rows:
        if not any(cell.strip() for cell in cells):
            yield "", ""
            continue
        if places is None:
            if suffix_of(path.name) == ".csv" and cells[0].startswith("sep="):  # of Excel
                yield None
                continue
            cells = [cell.strip() for cell in cells]
            if not named and not {*wanted} <= {*cells}:
                wanted = ["1", "2"]
            names = [each for each in wanted if not each.isdecimal()]
            if "0" in wanted or not {*names} <= {*cells}:
                raise UserError(
                    f"{key}={path} has no column {' or no '.join(wanted)}; its first line is "
                    f"{' | '.join(cells)[:200]}: name two of its words, or give numbers from 1, in "
                    f"task.source_column and task.target_column."
                )
            places = [int(w) - 1 if w.isdecimal() else cells.index(w) for w in wanted]
            if names:
                yield None
                continue
        if len(cells) <= max(places):
            raise LookupError(f"it has {len(cells)} columns: {' | '.join(cells)[:60]}")
        yield cells[places[0]], cells[places[1]]
        yield from [None] * sum(cell.count("\n") for cell in cells)  # lines of the same row
        more += wanted == ["1", "2"] and not named and len(cells) > 2
    if more:  # attributions or scores
        warn(f"{path}: columns after the second left out of {more} lines")


def entries_of(path: Path, key: str) -> Iterator[Any]:
    """Read a parquet file's rows, an array's elements, or an object a line; None if it is blank."""
    with opened(path, key) as file:
        if suffix_of(path.name) == ".parquet":
            for batch in ParquetFile(file).iter_batches(1000):
                yield from batch.to_pylist()
            return
        if file.read(10_000).lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"["):
            file.seek(0)
            yield from json.load(file)
            return
    for line in read_sentences(path, key):
        yield json.loads(line) if line.strip() else None


def texts_of(entry: Any, wanted: Sequence[str]) -> tuple[str, str]:
    """Get the two texts of an entry."""
    source, target = (pick(entry, column) for column in wanted)
    if not (isinstance(source, str) and isinstance(target, str)):
        raise TypeError(str((source, target))[:60])
    return source, target


def pick(row: Any, column: str) -> Any:
    """Get a column's value; ``translation.en`` is ``en`` in the column ``translation``.

    That column's name may be left out: it is usual in the hub's data sets for translation.
    """
    if column in row:
        return row[column]
    for dot in re.finditer(r"\.", column):
        if column[: dot.start()] in row:
            return pick(row[column[: dot.start()]], column[dot.end() :])
    if "translation" not in row:
        raise LookupError(f"no {column} in {str(row)[:60]}")
    return pick(row["translation"], column)


def checked(
    pairs: Iterable[tuple[str, str] | None], where: str, place: str, remedy: str
) -> Iterator[tuple[str, str]]:
    """Yield the ``pairs`` of texts, without None.

    Raises:
        UserError: something is no text; ``place`` is what the pairs are counted in.
    """
    number = 1
    try:
        for pair in pairs:
            if pair is not None:
                check_text(" ".join(pair))
                yield pair
            number += 1
    except UserError:
        raise
    except (
        ValueError, LookupError, TypeError, AttributeError, RecursionError, csv.Error,
    ) as error:  # fmt: skip
        raise UserError(
            f"{where} holds no two texts in {place} {number} ({first_line(error)}); {remedy}."
        ) from None


def is_blank(text: str) -> bool:
    """True if a reader sees nothing of ``text``: spaces, controls, marks of no width, fillers."""
    return all(unicodedata.category(c) in UNSEEN or c in FILLERS for c in text)


def check_text(text: str) -> None:
    """Raise a ValueError if ``text`` is none, or takes hours to split into pieces."""
    if found := NO_TEXT.search(text):
        raise ValueError(f"{found[0]!r} is in no UTF-8 text: convert it")
    try:
        content = text.encode()
    except UnicodeEncodeError:  # half of a UTF-16 character, which JSON may hold
        raise ValueError("not UTF-8; convert it first") from None
    if len(content) > MAX_WORD and max(map(len, content.split())) > MAX_WORD:
        raise ValueError(
            f"a word has more than {MAX_WORD:,} bytes, and the time to split it grows with the "
            f"square of its length"
        )
