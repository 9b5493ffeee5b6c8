"""Pairs of texts from files: lines, columns or entries, plain or packed; and tables on disk."""

import bz2
import contextlib
import csv
import gzip
import itertools
import json
import lzma
import mmap
import re
import statistics
import tempfile
import unicodedata
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
from pyarrow.parquet import ParquetFile

from wawa_transformer.common.files import cannot_read
from wawa_transformer.common.messages import UserError, first_line, warn

LONGEST_LINE = 10**6  # bytes
csv.field_size_limit(LONGEST_LINE)  # a column that is not read may hold a whole page
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
RETURNS = (
    "convert them: tr '\\r' '\\n' < old > new where they end lines, else tr '\\r' ' ' < old > new"
)
INSIDE = f"it has carriage returns inside; {RETURNS}"
# What a file begins with, packed and unpacked: its name may say something else.
PACKED: dict[bytes, Callable[..., Any]] = {
    rb"\x1f\x8b": gzip.open,
    rb"BZh[1-9]1AY&SY": bz2.open,
    rb"\xfd7zXZ\x00": lzma.open,
    b"": open,
}
FOREIGN = {
    rb"\x1f\x8b|BZh[1-9]1AY&SY|\xfd7zXZ\x00": "packed twice",
    rb"PK\x03\x04": "a zip archive",
    rb"7z\xbc\xaf\x27\x1c": "a 7z archive",
    rb"\x28\xb5\x2f\xfd": "packed by zstd",
    # What follows is no letter, as in the name of a protein.
    rb"PAR1[^ -~]": "a parquet file",
    rb"%PDF": "a PDF file",
    rb"\xff\xfe|\xfe\xff": "UTF-16 text",
    rb"\+/v[89+/]": "UTF-7 text",
    rb"version https://git-lfs": "a pointer, whose file git lfs pull fetches",
    rb"\{\\rtf": "RTF",
    rb"[^\0\n]+\0[\s\S]{0,256}ustar": "a tar archive",
    rb"[^\0\n]{0,63}\0": "UTF-16 text or no text",
    # A tag alone, or before another one: a text may begin with <url> or be about <html>.
    rb"(?i)(\xef\xbb\xbf)?\s*<(\?xml|!doctype|html|tmx|xliff|srcset|refset|url|doc)\b[^<>]*"
    rb"(>\s*(http|[<\n]|$)|$)": "XML or HTML",
    # Not a sentence a line: lines of two such files would be numbers and times.
    rb"(\xef\xbb\xbf)?(WEBVTT.*\n)?\s*(\d+\r?\n)?\d\d:\d\d[\d:,.]* --> \d\d:": "subtitles",
    rb"(\xef\xbb\xbf)?((#.*|\r)?\n)*msgid \"": "a catalogue of gettext (PO)",
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
                f"{key}={path} does not exist or is no ordinary file; name one that holds the "
                f"text, or its folder in task.data_dir."
            )
        with path.open("rb") as file:
            head = file.read(16)
        unpack = next(each for magic, each in PACKED.items() if re.match(magic, head))
        with unpack(path, "rb") as file:
            head = file.peek(64)
            is_of = (name for magic, name in FOREIGN.items() if re.match(magic, head))
            if suffix_of(path.name) != ".parquet" and (name := next(is_of, None)):
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
        UserError: no file, damaged or not UTF-8 (with the line), naming ``key``.
    """
    returns = 0
    with opened(path, key) as file:
        lines = iter(lambda: file.readline(LONGEST_LINE + 1), b"")
        for number, line in enumerate(itertools.chain(lines, [b""]), 1):
            returns += line.rstrip().count(b"\r")
            # At the end of the file, or of what is read of a line that is too long.
            if returns >= number and not line.endswith(b"\n"):
                raise UserError(f"{key}={path} has more carriage returns than lines; {RETURNS}.")
            if not line:
                return
            if len(line) > LONGEST_LINE:
                raise UserError(
                    f"{key}={path} has more than {LONGEST_LINE:,} bytes in line {number}; cut it."
                )
            try:
                yield line.removesuffix(b"\n").decode().rstrip("\r").lstrip("\ufeff")
            except UnicodeDecodeError:
                raise UserError(
                    f"{key}={path} is not UTF-8 in line {number}; convert it to UTF-8."
                ) from None


def read_pairs(files: Mapping[str, Path], columns: Columns) -> Iterator[tuple[str, str]]:
    """Read two files with a text a line, or one with both sides; ``files`` has them by key."""
    (key, path), *other = files.items()
    where = " and ".join(f"{key}={path}" for key, path in files.items())
    suffix, *more = (suffix_of(each.name) for each in files.values())
    # Two files of texts a line may be .txt, as one table may.
    tables = {*TABLES, *ENTRIES} - ({".txt"} if other else set())
    if bool(tables & {suffix, *more}) == bool(other) or key.endswith("target"):
        for name, each in files.items():
            if each.is_file():
                with opened(each, name):  # an archive or a foreign format is named for what it is
                    pass
        stem = key.removesuffix("source").removesuffix("target")
        raise UserError(f"{where}: {stem}source and {stem}target go together; {FORMATS}.")
    if other and key == "task.source" and any(columns):
        raise UserError(
            "task.source_column and task.target_column choose columns of one file or dataset, and "
            "task.source and task.target name two files; leave the columns out."
        )
    if other:
        sources, targets = (read_sentences(path, key) for key, path in files.items())
        remedy = "line n of one must translate line n of the other, to the end of both"
        return checked(itertools.zip_longest(sources, targets), where, "line", remedy)
    if suffix in ENTRIES:
        place = {".json": "entry", ".parquet": "row"}.get(suffix, "line")
        return pairs_of_entries(entries_of(path, key), where, columns, place)
    remedy = "a line is source, tab, target"
    if suffix == ".csv":
        remedy = "a line is source, comma, target, and with another sign the first line is sep=;"
    return checked(pairs_of_table(path, key, columns), where, "line", remedy)


def pairs_of_entries(
    entries: Iterable[Any], where: str, columns: Columns, place: str
) -> Iterator[tuple[str, str]]:
    """Read two texts of each entry of a file or a data set, which ``where`` names.

    An entry that is None has no text.
    """
    first, second = names_of(columns)
    remedy = f"each must have texts at task.source_column={first} and task.target_column={second}"
    if place == "entry":
        remedy += ", and stand in an array or alone in a line"
    blank = {first: "", second: ""}
    every = (blank if each is None else each for each in entries)
    return checked(((pick(e, first), pick(e, second)) for e in every), where, place, remedy)


def names_of(columns: Columns) -> list[str]:
    """Get the names of two columns, where None was given the usual ones."""
    pairs = zip(columns, DEFAULT_COLUMNS, strict=True)
    return [column_name(given) if given else name for given, name in pairs]


def column_name(text: str) -> str:
    """Choose one of the spellings of a column's name that look alike."""
    return unicodedata.normalize("NFC", text)


def pairs_of_table(path: Path, key: str, columns: Columns) -> Iterator[tuple[str, str] | None]:
    """Read two columns of a table, with None for each line that begins no pair.

    A first line that holds the names of ``columns`` names the columns. The first two columns are
    read if it does not, and if nobody named any. A line without text gives a pair without text.
    """
    wanted, names, more = names_of(columns), 0, 0
    count, quoted, plain = 0, 0, 0  # pairs: all, with quotes of a CSV, and not all in quotes
    places: list[int] = []
    lines, is_csv = read_sentences(path, key), suffix_of(path.name) == ".csv"
    rows: Iterable[list[str]] = map(cells_of, lines)
    if is_csv:
        first = [*itertools.islice(lines, 100)]
        said = re.fullmatch("(?i)sep=(.?)", first[0]) if first else None  # a line of Excel's
        if said:
            del first[0]
            yield None
        between = (said and said[1]) or separator(first, wanted, f"{key}={path}")
        each = (f"{line}\n" for line in itertools.chain(first, lines))
        rows = csv.reader(each, delimiter=between, strict=True, skipinitialspace=True)
    for cells in rows:
        if not any(cell.strip() for cell in cells):
            yield "", ""
            continue
        if not places:
            heads = [column_name(cell.strip()) for cell in cells]
            numbers = [str(number + 1) for number in range(len(heads))]
            if {*wanted} <= {*heads, *numbers}:
                if twice := [w for w in wanted if w not in numbers and heads.count(w) > 1]:
                    raise UserError(
                        f"{key}={path} has the column {twice[0]} twice; give the number of the one "
                        f"that is meant, from 1, in task.source_column or task.target_column."
                    )
                places = [(numbers if w in numbers else heads).index(w) for w in wanted]
            elif any(columns):
                missing = [name for name in wanted if name not in {*heads, *numbers}]
                raise UserError(
                    f"{key}={path} has no column {' or '.join(missing)}; its first line is "
                    f"{' | '.join(heads)[:200]}: name two of its words, or give numbers from 1, in "
                    f"task.source_column and task.target_column."
                )
            if places and not {*wanted} <= {*numbers}:
                names = len(heads)
                yield None
                continue
            places = places or [0, 1]
        # In a row longer than the names of the columns, a text holds what separates texts.
        if len(cells) <= max(places) or (names and "".join(cells[names:]).strip()):
            raise LookupError(f"it has {len(cells)} columns: {' | '.join(cells)[:60]}")
        pair = cells[places[0]], cells[places[1]]
        yield pair
        quoted += any(map(is_quoted, pair))
        plain += not all(cell[:1] == cell[-1:] == '"' for cell in pair)
        count += 1
        yield from [None] * sum(cell.count("\n") for cell in cells)  # lines of the same row
        more += not names and not any(columns) and len(cells) > 2
    if more:  # attributions or scores
        warn(f"{path}: columns after the second left out of {more} lines")
    if not is_csv and (quoted := quoted if plain else count):
        warn(
            f"warning: {path}: {quoted} lines have quotes as in a CSV, which in a table with tabs "
            f"are characters; to read it as one, name it .csv and begin it with a line sep= and tab"
        )


def cells_of(line: str) -> list[str]:
    """Split a line of a table with tabs; refuse one that is several rows.

    A text may hold a carriage return: between rows, all parts have as many columns.
    """
    if "\r" in line:
        counts = {part.count("\t") for part in line.split("\r")}
        if len(counts) == 1 and counts != {0}:
            raise LookupError(INSIDE)
    return line.split("\t")


def is_quoted(cell: str) -> bool:
    """True for a text as a CSV writes one with quotes: in quotes, with its own ones doubled."""
    inner = cell[1:-1]
    return cell[:1] == cell[-1:] == '"' and '""' in inner and '"' not in inner.replace('""', "")


def separator(lines: list[str], wanted: Sequence[str], where: str) -> str:
    """Find what separates the columns of a CSV file, of which these are the first ``lines``.

    The line of the names shows it, or all rows agree on it.
    """
    names = {name for name in wanted if not name.isdigit()}
    named: list[str] = []
    agree: list[str] = []
    for between in ",;":
        rows = csv.reader(lines, delimiter=between, skipinitialspace=True)
        with contextlib.suppress(csv.Error):
            cells = [row for row in rows if any(map(str.strip, row))]
            widths = {len(row) for row in cells}
            if names and cells and names <= {column_name(cell.strip()) for cell in cells[0]}:
                named.append(between)
            if len(widths) == 1 and max(widths) > 1:
                agree.append(between)
    if len(agree) > 1 and not named:
        raise UserError(
            f"{where} may have its columns separated by commas or by semicolons, as every line has "
            f"both; begin the file with a line sep=, or sep=; that says which."
        )
    return [*named, *agree, ","][0]


def entries_of(path: Path, key: str) -> Iterator[Any]:
    """Read a parquet file's rows, an array's elements, or an object a line; None if it is blank."""
    with opened(path, key) as file:
        if suffix_of(path.name) == ".parquet":
            table = ParquetFile(file)
            entry([(name, None) for name in table.schema_arrow.names])
            for batch in table.iter_batches(1000):
                yield from batch.to_pylist()
            return
        if file.read(10_000).lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"["):
            file.seek(0)
            yield from json.load(file, object_pairs_hook=entry)
            return
    for line in read_sentences(path, key):
        yield json.loads(line, object_pairs_hook=entry) if line.strip() else None


def entry(items: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build an entry of JSON; refuse one that has a name twice."""
    values = dict(items)
    if len(values) < len(items):
        raise ValueError(f"it has {statistics.mode(name for name, _ in items)} twice")
    return values


def pick(row: Any, column: str) -> Any:
    """Get a column's value; ``translation.en`` is ``en`` in the column ``translation``.

    That column's name may be left out: it is usual in the hub's data sets for translation.
    """
    if column not in row and isinstance(row, dict):
        row = {column_name(name): value for name, value in row.items()}
    if column in row:
        return row[column]
    for dot in re.finditer(r"\.", column):
        if column[: dot.start()] in row:
            return pick(row[column[: dot.start()]], column[dot.end() :])
    if "translation" not in row:
        raise LookupError(f"no {column} in {str(row)[:60]}")
    return pick(row["translation"], column)


def checked(
    pairs: Iterable[tuple[Any, Any] | None], where: str, place: str, remedy: str
) -> Iterator[tuple[str, str]]:
    """Yield the ``pairs`` of texts, without None.

    Raises:
        UserError: something is no text; ``place`` is what the pairs are counted in.
    """
    number = 1
    try:
        for pair in pairs:
            if pair is not None:
                if not all(isinstance(side, str) for side in pair):
                    raise TypeError(str(pair)[:60])
                check_text(" ".join(pair))
                yield pair
            number += 1
        if number == 1:
            raise UserError(f"{where} is empty; {remedy}.")
    except UserError:
        raise
    except (
        ValueError, LookupError, TypeError, AttributeError, RecursionError, OverflowError,
        csv.Error,
    ) as error:  # fmt: skip
        # Python's own advice on a carriage return outside quotes is for programmers.
        said = INSIDE if "new-line character" in str(error) else first_line(error)
        raise UserError(
            f"{where} holds no two texts in {place} {number} ({said}); {remedy}."
        ) from None


def is_blank(text: str) -> bool:
    """True if a reader sees nothing of ``text``: spaces, controls, marks of no width, fillers."""
    return all(unicodedata.category(c) in UNSEEN or c in FILLERS for c in text)


def check_text(text: str) -> None:
    """Raise a ValueError if ``text`` is none."""
    if match := NO_TEXT.search(text):
        raise ValueError(f"{match[0]!r} is in no UTF-8 text: convert it")
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a UTF-16 character, which JSON may hold
        raise ValueError("not UTF-8; convert it first") from None


def has_long_word(text: str) -> bool:
    """True for a word of more than ``MAX_WORD`` bytes: to split it takes their number squared."""
    long = 4 * len(text) > MAX_WORD  # most texts need no look at their words
    return long and any(len(word) > MAX_WORD for word in text.encode().split())


def on_disk(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    """Map ``batches`` into memory from a nameless temporary file, which ends with the process."""
    try:
        with tempfile.TemporaryFile() as file:
            with pa.ipc.new_stream(file, schema) as writer:
                for batch in batches:
                    writer.write_batch(batch)
            file.flush()
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    # Outside of the block, since closing a file writes what is left and fails again.
    except OSError as error:  # a nameless file has no place to name
        error.filename = error.filename or f"{tempfile.gettempdir()} ($TMPDIR)"
        raise
    return pa.ipc.open_stream(pa.py_buffer(content)).read_all()
