"""Text as ids; and text that does not fit into memory: read once into files, and mapped from there.

A ``Dataset`` on disk knows its files (``cache_files``): the text, and, where a split is not all of
it or has another order, the rows. What is made of the text stands in the order of its file, so that
a disk reads and writes it from end to end; only batches are gathered from here and there.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from datasets import Dataset, Features, Value
from datasets.arrow_writer import ArrowWriter
from tokenizers import Tokenizer

from wawa_transformer.common.schema import UserError
from wawa_transformer.data.cache import cached, folder

AT_ONCE = 10_000  # pairs in memory while all of them are read
FEATURES = Features(
    {"source": Value("string"), "target": Value("string"), "length": Value("int64")}
)

Row = tuple[str, str, int]  # source, target, length
Ids = tuple[np.ndarray, np.ndarray, np.ndarray]  # end to end; the size of each; where each begins


def on_disk(
    rows: Iterable[Row], files: Sequence[Path], settings: object, said: dict[str, int], again: str
) -> tuple[Dataset, dict[str, int]]:
    """A dataset of ``rows``, which are read once for the same ``files`` and ``settings``.

    With it what reading them has ``said``, each a count. Where ``again`` is given, rows that were
    there before are left out, and counted under that name.

    Raises:
        UserError: what ``rows`` raises; a file was changed meanwhile; the cache cannot be written.
    """
    before = [state(path) for path in files]

    def make(into: Path) -> dict[str, int]:
        print(f"reading {', '.join(map(str, files))} into {into}, once", file=sys.stderr)
        digests = bytearray()
        with writer(into / "text.arrow", FEATURES) as file:
            for batch in batched(rows):
                file.write_batch(columns(batch))
                if again:
                    digests += b"".join(map(digest, batch))
            file.finalize()
        if [state(path) for path in files] != before:
            raise UserError(
                f"{' or '.join(map(str, files))} was changed while it was read; give the same "
                f"command again."
            )
        if again:
            first = firsts(np.frombuffer(digests, np.uint64).reshape(-1, 2))
            said[again] = len(digests) // 16 - len(first)
            write_rows(into / "rows.arrow", first)
        return said

    made, said = folder(f"text\0{before}\0{settings}\0{again}", make)
    indices = str(made / "rows.arrow") if again else None
    return Dataset.from_file(str(made / "text.arrow"), indices_filename=indices), said


def state(path: Path) -> tuple[Any, ...]:
    """What tells a file from another, and from itself after a change, without reading it.

    The time of the last change of any kind (``ctime``) is not a program's to set, as that of the
    contents is. A checksum of a hundred gigabytes would take minutes at every start.
    """
    try:
        found = os.stat(path)
    except (OSError, ValueError):  # whoever reads it will say so
        return (str(path),)
    times = found.st_mtime_ns, found.st_ctime_ns
    return os.path.abspath(path), found.st_dev, found.st_ino, found.st_size, *times


def digest(row: Row) -> bytes:
    """128 bits of a pair: among 10⁹ two are alike by chance with a probability of 10⁻²¹."""
    pair = "\0".join((str(len(row[0])), *row[:2]))
    return hashlib.blake2b(pair.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def firsts(digests: np.ndarray) -> np.ndarray:
    """The rows of ``digests``, ``(N,2)``, that no row before is equal to, in their order."""
    order = np.lexsort(digests.T)  # stable: of equal ones the first comes first
    sorted_ = digests[order]
    new = np.ones(len(order), bool)
    new[1:] = (sorted_[1:] != sorted_[:-1]).any(axis=1)
    return np.sort(order[new])


def chosen(split: Dataset, rows: np.ndarray) -> Dataset:
    """The ``rows`` of a split, which stay where they are; ``select`` would make lists of them."""
    if not split.cache_files:
        return split.select(rows)
    these = rows_of(split)[rows]

    def make(into: Path) -> dict[str, int]:
        write_rows(into / "rows.arrow", these)
        return {}

    made, _ = folder(f"rows\0{hashlib.sha256(these.data).hexdigest()}", make)
    indices = str(made / "rows.arrow")
    return Dataset.from_file(split.cache_files[0]["filename"], indices_filename=indices)


def rows_of(split: Dataset) -> np.ndarray:
    """Of a split in memory its own rows, 0 … N - 1; of one on disk those of its text: ``(N,)``."""
    if len(split.cache_files) < 2:
        return np.arange(len(split))
    table = Dataset.from_file(split.cache_files[1]["filename"]).data
    return table.column("indices").to_numpy().view(np.int64)


def name_of(split: Dataset) -> str:
    """What names the text of a split on disk, and its rows: their folders are called by contents"""
    return "\0".join(Path(each["filename"]).parent.name for each in split.cache_files)


def sentences(split: Dataset, step: int) -> Iterator[list[str]]:
    """Both sides of every ``step``-th pair of a split on disk, in the order of its text."""
    text = Dataset.from_file(split.cache_files[0]["filename"])
    wanted = np.zeros(len(text), bool)
    wanted[rows_of(split)[::step]] = True
    for begin, batch in zip(itertools.count(0, AT_ONCE), text.iter(AT_ONCE), strict=False):
        these = wanted[begin : begin + AT_ONCE]
        for side in ("source", "target"):
            yield list(itertools.compress(batch[side], these))


def ids_of(
    split: Dataset, side: str, tokenizer: Tokenizer, before: list[int], after: list[int]
) -> Ids:
    """The texts of a column as ids, between those of ``before`` and ``after``.

    Of a split on disk all of its text's, also on disk: :func:`rows_of` says which are its own.
    """
    key = "\0".join(("ids", tokenizers.__version__, tokenizer.to_str(), str(before), str(after)))

    def ids(texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
        every = tokenizer.encode_batch_fast(texts)
        return end_to_end([*before, *encoding.ids, *after] for encoding in every)

    if not split.cache_files:
        texts = split[side][:]  # at once: iterating over a column reads it row by row

        def make() -> bytes:
            file = io.BytesIO()
            every, sizes = ids(texts)
            np.savez(file, ids=every, sizes=sizes)
            return file.getvalue()

        with np.load(io.BytesIO(cached("\0".join((key, *texts)), make))) as arrays:
            sizes = arrays["sizes"]
            return arrays["ids"], sizes, begins(sizes)

    kind = np.min_scalar_type(tokenizer.get_vocab_size())
    name = split.cache_files[0]["filename"]

    def make_files(into: Path) -> dict[str, int]:
        print(f"writing the {side} side's ids into {into}, once", file=sys.stderr)
        every = []
        with (into / "ids").open("wb") as file:
            for batch in Dataset.from_file(name).select_columns(side).iter(AT_ONCE):
                some, sizes = ids(batch[side])
                file.write(some.astype(kind).data)
                every.append(sizes.astype(np.int32))
        sizes = np.concatenate(every)
        begin = begins(sizes)
        np.save(into / "sizes.npy", sizes)
        np.save(into / "begin.npy", begin.astype(np.min_scalar_type(begin[-1])))
        return {}

    made, _ = folder(f"{key}\0{side}\0{Path(name).parent.name}", make_files)
    sizes, begin = (np.load(made / f"{each}.npy", mmap_mode="r") for each in ("sizes", "begin"))
    return np.asarray(np.memmap(made / "ids", kind, "r")), np.asarray(sizes), np.asarray(begin)


def end_to_end(sequences: Iterable[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Lists of ids as one array, and the size of each: int32 ``(sum of sizes,)``, int64 ``(N,)``"""
    every = list(sequences)
    sizes = np.fromiter(map(len, every), np.int64, len(every))
    return np.fromiter(itertools.chain(*every), np.int32, sizes.sum()), sizes


def begins(sizes: np.ndarray) -> np.ndarray:
    """Where each of sequences that lie end to end begins: int64 ``(N,)``."""
    return sizes.cumsum(dtype=np.int64) - sizes


def columns(rows: list[Row]) -> dict[str, list[Any]]:
    """What a ``Dataset`` is made of."""
    return {name: [row[i] for row in rows] for i, name in enumerate(FEATURES)}


def batched(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """``AT_ONCE`` of them at a time."""
    every = iter(rows)
    while batch := list(itertools.islice(every, AT_ONCE)):
        yield batch


def writer(path: Path, features: Features) -> ArrowWriter:
    """What writes a file that ``Dataset.from_file`` maps."""
    return ArrowWriter(path=str(path), features=features, writer_batch_size=AT_ONCE)


def write_rows(path: Path, rows: np.ndarray) -> None:
    """The file that says which rows of a text a split has, as ``datasets`` wants it."""
    with writer(path, Features({"indices": Value("uint64")})) as file:
        for begin in range(0, len(rows), AT_ONCE):
            file.write_batch({"indices": rows[begin : begin + AT_ONCE]})
        file.finalize()
