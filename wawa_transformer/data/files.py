"""Pairs of texts from files: lines, columns or JSON, plain or packed."""

import bz2
import csv
import gzip
import itertools
import json
import lzma
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from wawa_transformer.common.files import cannot_read
from wawa_transformer.common.schema import UserError, first_line, warn

LONGEST_LINE = 10**6  # bytes
MAX_WORD = 10_000  # bytes
DEFAULT_COLUMNS = ("en", "de")
TABLES, JSON = (".tsv", ".tab", ".txt", ".csv"), (".json", ".jsonl", ".ndjson")
FORMATS = (
    "give two UTF-8 files with one text a line, or in task.source alone a .tsv, .csv, .json, "
    ".jsonl or .parquet with both sides, plain or packed by gzip, bzip2 or xz; task.hub reads a "
    "folder"
)
DAMAGED = (EOFError, zlib.error, lzma.LZMAError, OSError)
# What a file begins with: its name may say something else.
PACKED: dict[bytes, Callable[[Path], Any]] = {
    rb"\x1f\x8b": gzip.open,
    rb"BZh[1-9]1AY&SY": bz2.open,
    rb"\xfd7zXZ\x00": lzma.open,
}
FOREIGN = {
    rb"PK\x03\x04": "a zip archive",
    rb"7z\xbc\xaf\x27\x1c": "a 7z archive",
    rb"\x28\xb5\x2f\xfd": "packed by zstd",
    rb"PAR1": "a parquet file",
    rb"%PDF": "a PDF file",
    rb"\xff\xfe|\xfe\xff": "UTF-16 text",
}


def suffix_of(name: str) -> str:
    """Get a file's suffix in small letters, before ``.gz``, ``.bz2`` or ``.xz``."""
    return Path(re.sub(r"\.(gz|bz2|xz)$", "", name.lower())).suffix


def open_bytes(path: Path, key: str) -> IO[bytes]:
    """Open a file and unpack it.

    Raises:
        UserError: no file, or of a format that is not read.
    """
    if not path.is_file():  # reading a pipe might never end
        raise UserError(
            f"{key}={path} does not exist or is no ordinary file; name one that holds the text."
        )
    with path.open("rb") as file:
        head = file.read(16)
    for magic, name in FOREIGN.items():
        if re.match(magic, head):
            raise UserError(f"{key}={path} is {name}; convert it: {FORMATS}.")
    opener = next((opener for magic, opener in PACKED.items() if re.match(magic, head)), None)
    return opener(path) if opener else path.open("rb")


def read_sentences(path: Path, key: str) -> Iterator[str]:
    """Yield the lines of a UTF-8 text file, plain or packed, without byte order marks.

    Lines end only at a line feed: ``splitlines`` also splits at rarer separators, which would
    misalign the two sides. At most ``LONGEST_LINE`` bytes of a line are read.

    Raises:
        UserError: no file, empty, damaged or not UTF-8 (with the line), naming ``key``.
    """
    blank, returns = True, 0
    try:
        with open_bytes(path, key) as file:
            lines = iter(lambda: file.readline(LONGEST_LINE + 1), b"")
            for number, line in enumerate(lines, 1):
                returns += line.rstrip().count(b"\r")
                if returns > number:
                    raise UserError(
                        f"{key}={path} has carriage returns for line feeds in line {number}; "
                        f"convert it: tr '\\r' '\\n' < old > new."
                    )
                words = line.split() if len(line) > MAX_WORD else ()
                if len(line) > LONGEST_LINE or any(len(word) > MAX_WORD for word in words):
                    raise UserError(
                        f"{key}={path} has more than {LONGEST_LINE:,} bytes, or {MAX_WORD:,} in a "
                        f"word, in line {number}; cut it: the time for a vocabulary grows with the "
                        f"square of a word's length."
                    )
                if b"\0" in line:
                    raise UserError(
                        f"{key}={path} is no text in line {number}; convert it: {FORMATS}."
                    )
                blank = blank and not line.strip()
                yield line.removesuffix(b"\n").decode().rstrip("\r").removeprefix("\ufeff")
    except UnicodeDecodeError:
        raise UserError(
            f"{key}={path} is not UTF-8 in line {number}; convert it to UTF-8."
        ) from None
    except (*DAMAGED, MemoryError) as error:
        # A wrong checksum has no number of an error of the system.
        if isinstance(error, MemoryError) or getattr(error, "errno", None) is not None:
            raise cannot_read(f"{key}={path}", error) from None
        raise UserError(f"{key}={path} is damaged ({error}); fetch it again.") from None
    if blank:
        raise UserError(f"{key}={path} is empty; it must hold one sentence a line.")


def pairs_of_two(paths: Sequence[Path], keys: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Pair line n of one file with line n of the other."""
    sides = (read_sentences(*each) for each in zip(paths, keys, strict=True))
    for number, (source, target) in enumerate(itertools.zip_longest(*sides), 1):
        if source is None or target is None:
            raise UserError(
                f"{paths[0]} and {paths[1]} do not have as many lines: one ends before line "
                f"{number}; line n of one must translate line n of the other."
            )
        yield source, target


def pairs_of_one(
    path: Path, key: str, columns: tuple[str | None, str | None]
) -> Iterator[tuple[str, str]]:
    """Read both sides from one file, whose suffix is one of ``TABLES`` or ``JSON``.

    ``columns`` are names or, in a table, numbers from 1. A line without text gives a pair without
    text.
    """
    wanted = [column or name for column, name in zip(columns, DEFAULT_COLUMNS, strict=True)]
    number, pairs = 0, json_pairs(path, key, wanted)
    if suffix_of(path.name) in TABLES:
        pairs = table_pairs(path, key, wanted, any(columns))
    try:
        for pair in pairs:
            number += 1
            if pair is not None:
                yield pair
    except UserError:
        raise
    except (
        *DAMAGED, ValueError, LookupError, TypeError, AttributeError, RecursionError, csv.Error,
    ) as error:  # fmt: skip
        raise UserError(
            f"{key}={path} holds no two texts in line {number + 1} ({first_line(error)}); a line "
            f"of a .tsv is source, tab, target, and one of a .jsonl an object with texts at "
            f"task.source_column={wanted[0]} and task.target_column={wanted[1]}."
        ) from None


def table_pairs(
    path: Path, key: str, wanted: list[str], named: bool
) -> Iterator[tuple[str, str] | None]:
    """Read two columns of a table; None for the line that names its columns.

    A first line that holds the names ``wanted`` names the columns. The first two columns are read
    if it does not, and if nobody ``named`` any.
    """
    places, more, lines = None, 0, read_sentences(path, key)
    rows: Iterable[list[str]] = (line.split("\t") for line in lines)
    if suffix_of(path.name) == ".csv":
        rows = csv.reader((f"{line}\n" for line in lines), strict=True)
    for cells in rows:
        if not any(cell.strip() for cell in cells):
            yield "", ""
            continue
        if places is None:
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
        yield cells[places[0]], cells[places[1]]
        more += wanted == ["1", "2"] and not named and len(cells) > 2
    if more:  # attributions or scores
        warn(f"{path}: columns after the second left out of {more} lines")


def json_pairs(path: Path, key: str, wanted: list[str]) -> Iterator[tuple[str, str] | None]:
    """Read two texts of each object of an array, or of a file with an object a line."""
    entries: Iterable[Any] = read_sentences(path, key)
    with open_bytes(path, key) as file:
        if file.read(100).lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"["):
            file.seek(0)
            entries = json.load(file)
    for entry in entries:
        if isinstance(entry, str):
            if not entry.strip():
                yield "", ""
                continue
            entry = json.loads(entry)
        source, target = (pick(entry, column) for column in wanted)
        # This fails for values that are not text, and for half of a UTF-16 character.
        (source + target).encode()
        yield source, target


def pick(row: Any, column: str) -> Any:
    """Get a column's value; ``translation.en`` is ``en`` in the column ``translation``.

    That column's name may be left out: it is usual in the hub's data sets for translation.
    """
    if column in row:
        return row[column]
    outer, _, inner = column.rpartition(".")
    return pick(row[outer or "translation"], inner)
