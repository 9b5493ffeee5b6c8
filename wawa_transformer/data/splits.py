"""Splits of parallel text: made from words, and held outside memory."""

import mmap
import tempfile
from collections.abc import Iterable, Iterator

import pyarrow as pa
from datasets import Dataset

from wawa_transformer.common.schema import UserError
from wawa_transformer.data.words import split_words


def lists_of_words(
    pairs: Iterable[tuple[list[str], list[str]]], name: str
) -> Iterator[tuple[list[str], list[str]]]:
    """Yield ``pairs``; refuse one of the class ``name`` with a side that is no list of words."""
    known: set[str] = set()
    for pair in pairs:
        for words in pair:
            listed = isinstance(words, list | tuple) and all(isinstance(w, str) for w in words)
            if not listed or not all(split_words(w) == [w] for w in {*words} - known):
                raise UserError(
                    f"{name} makes {str(words)[:60]!r} as a source or target; it must be a list of "
                    f"words, which are texts without spaces."
                )
            known.update(words)
        yield pair


def parallel(pairs: Iterable[tuple[list[str], list[str]]], lengths: list[int]) -> Dataset:
    """Make a split of parallel text from pairs of words."""
    sources, targets = zip(*pairs, strict=True)
    return Dataset.from_dict(
        {
            "source": [" ".join(words) for words in sources],
            "target": [" ".join(words) for words in targets],
            "length": lengths,
        }
    )


def on_disk(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    """Map ``batches`` into memory from a nameless temporary file, which ends with the process."""
    with tempfile.TemporaryFile() as file:
        try:
            with pa.ipc.new_stream(file, schema) as writer:
                for batch in batches:
                    writer.write_batch(batch)
            file.flush()
        except OSError as error:  # a nameless file has no place to name
            error.filename = error.filename or f"{tempfile.gettempdir()} ($TMPDIR)"
            raise
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return pa.ipc.open_stream(pa.py_buffer(content)).read_all()
