"""Tokenise a task's splits and keep the ids in memory."""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from datasets import Dataset, DatasetDict
from omegaconf import DictConfig
from tokenizers import Tokenizer
from torch import Tensor

from wawa_transformer.common import BOS, EOS, PAD, UNK
from wawa_transformer.common.messages import UserError, first_line, warn
from wawa_transformer.data.files import on_disk
from wawa_transformer.data.tasks import SPLITS, Task, build_task
from wawa_transformer.data.words import SPECIAL_TOKENS, read_tokenizer


@dataclass(frozen=True)
class RaggedSequences:
    """Sequences of different lengths in one array; item i is int64 ``(S,)``."""

    # Ids are copied from disk into one array, of two bytes an id. Gathering a batch of 4,096 tokens
    # from a Dataset takes 2.3 ms, and from the array 0.2 ms (Multi30k, model=small, one core). That
    # is 0.2% of this core's step, but most of a fast GPU's.
    ids: np.ndarray  # end to end
    sizes: np.ndarray  # (N,)
    begin: np.ndarray  # (N,): the index of each first id

    @classmethod
    def of(cls, lists: pa.Array | pa.ChunkedArray | list[list[int]]) -> RaggedSequences:
        """Build from lists of ids, or from an Arrow column of them."""
        column = pa.array(lists, pa.list_(pa.int32())) if isinstance(lists, list) else lists
        ids, sizes = pc.list_flatten(column).to_numpy(), pc.list_value_length(column).to_numpy()
        return cls(ids, sizes, sizes.cumsum(dtype=np.int64) - sizes)

    def __len__(self) -> int:
        return len(self.sizes)

    def chosen(self, rows: np.ndarray) -> RaggedSequences:
        """Select the sequences of ``rows``."""
        return RaggedSequences(self.ids, self.sizes[rows], self.begin[rows])

    def __getitem__(self, i: int) -> Tensor:
        ids = self.ids[self.begin[i] : self.begin[i] + self.sizes[i]]
        return torch.from_numpy(ids.astype(np.int64))

    def padded(
        self, rows: Sequence[int], first: int = 0, last: int = 0, multiple: int = 1
    ) -> Tensor:
        """Pad the sequences of ``rows``: int64 ``(B,S)``.

        The ``first`` and ``last`` ids of each sequence are dropped. S is the longest length,
        rounded up to a ``multiple``.
        """
        begin, size = self.begin[rows][:, None] + first, self.sizes[rows][:, None] - first - last
        place = np.arange(-(-size.max() // multiple) * multiple)
        real = place < size  # (B,S)
        out = np.full(real.shape, PAD, np.int64)
        out[real] = self.ids[(begin + place)[real]]
        return torch.from_numpy(out)


@dataclass(frozen=True)
class Examples:
    """A split as ids: ``source[i]`` has EOS, ``target[i]`` has BOS and EOS."""

    source: RaggedSequences
    target: RaggedSequences
    text: Dataset  # columns source, target, length
    too_long: int = 0  # pairs left out

    def first(self, count: int) -> Examples:
        """Select the first ``count`` examples."""
        rows = np.arange(min(count, len(self.source)))
        return Examples(self.source.chosen(rows), self.target.chosen(rows), self.text.select(rows))

    @functools.cached_property
    def digest(self) -> str:
        """Hash ids, texts and lengths."""
        sides = (self.source, self.target)
        columns = self.text.select_columns(["source", "target", "length"])
        texts = (json.dumps(part).encode() for part in columns.iter(1000))
        ids = (each[i].numpy().tobytes() for each in sides for i in range(len(each)))
        return digest_of(*ids, *texts)

    @functools.cached_property
    def sizes(self) -> np.ndarray:
        """The number of positions on each example's longer side, ``(N,)``."""
        return np.maximum(self.source.sizes, self.target.sizes - 1)

    def extremes(self) -> tuple[int, int, float]:
        """The longest source and target, in ids, and the largest ratio of target to source."""
        source, target = self.source.sizes, self.target.sizes - 1  # without BOS
        return int(source.max()), int(target.max()), float((target / source).max())


def source_ids(texts: list[str], tokenizer: Tokenizer) -> list[list[int]]:
    """Tokenise sources, in training and in use, and add EOS."""
    return [[*encoding.ids, EOS] for encoding in tokenizer.encode_batch_fast(texts)]


def to_ids(batch: dict[str, list[str]], tokenizer: Tokenizer) -> dict[str, list[list[int]]]:
    """Tokenise sources and targets; targets get BOS and EOS."""
    target = tokenizer.encode_batch_fast(batch["target"])
    return {
        "source": source_ids(batch["source"], tokenizer),
        "target": [[BOS, *encoding.ids, EOS] for encoding in target],
    }


def tokenize_split(
    split: Dataset, tokenizer: Tokenizer, max_tokens: int | None = None, name: str = "train"
) -> Examples:
    """Tokenise a split, without pairs longer than ``max_tokens`` on either side.

    Prints the number of pairs left out, and the ``name`` of the split, to standard error.
    """
    split = split.with_format(None)  # a class may have given tensors
    id_type = pa.from_numpy_dtype(np.min_scalar_type(tokenizer.get_vocab_size()))
    schema = pa.schema({"source": pa.list_(id_type), "target": pa.list_(id_type)})
    # Not Dataset.map: its cache does not notice that this code has changed.
    parts = (to_ids(batch, tokenizer) for batch in split.iter(1000))
    ids = on_disk((pa.RecordBatch.from_pydict(part, schema) for part in parts), schema)
    source, target = (RaggedSequences.of(ids.column(side)) for side in ("source", "target"))
    if max_tokens is not None:
        fits = (source.sizes <= max_tokens) & (target.sizes <= max_tokens + 1)
        kept = np.flatnonzero(fits)
        if not len(kept):
            raise UserError(
                f"no {name} pair is shorter than task.max_tokens={max_tokens}; give shorter "
                f"ones, or raise it where the run is trained."
            )
        if left := len(fits) - len(kept):
            warn(f"{left} {name} pairs of {max_tokens} tokens or more left out (task.max_tokens)")
            return Examples(source.chosen(kept), target.chosen(kept), split.select(kept), left)
    return Examples(source, target, split)


def digest_of(*parts: bytes) -> str:
    """Hash ``parts`` to eight hexadecimal digits."""
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()[:8]


@dataclass(frozen=True)
class Data:
    """A task's splits as ids; every encoding gets the same."""

    task: Task
    seed: int
    tokenizer: Tokenizer
    train: Examples
    validation: Examples
    test: Examples

    @functools.cached_property
    def digest(self) -> str:
        """Hash what was loaded: eight digits for the vocabulary and for each split."""
        splits = (self.train, self.validation, self.test)
        vocabulary = digest_of(self.tokenizer.to_str().encode())
        return "-".join([vocabulary, *(each.digest for each in splits)])


# Beside "bring back the old code", since nobody may have changed it.
SAME_DATA = (
    "A task of your own gives the same data each time if it draws from the generator that it is "
    "given, sorts its sets, and reads its Unigram or WordPiece tokenizer, which differs after each "
    "training, from a file."
)


def parts_of(digest: str) -> dict[str, str]:
    """Split :attr:`Data.digest` into its named parts."""
    names = ["vocabulary", *(f"{name} split" for name in SPLITS)]
    return dict(zip(names, digest.split("-"), strict=False))


def check_columns(task: Task, splits: DatasetDict) -> None:
    """Refuse what ``dataset()`` of a task returned without a split, rows, or a right column."""
    text, number = "(?!.*list).*string.*", "u?int.*"  # the names of Arrow's types
    for name in SPLITS:
        split = splits[name] if isinstance(splits, dict) and name in splits else None
        for key, kind in (("length", number), ("source", text), ("target", text)):
            wrong = f"without {key}"
            if isinstance(split, Dataset) and key in split.features:
                column, none = split.data.column(key), split.data.column(key).null_count
                wrong = f"with {len(split)} rows, whose {key} is of type {column.type}, {none} None"
                if len(split) and not none and re.fullmatch(kind, str(column.type)):
                    if kind == text or (least := pc.min(column).as_py()) >= 0:
                        continue
                    wrong = f"with {key} {least}"
            raise UserError(
                f"{type(task).__name__}.dataset() returns {name} {wrong}; give every split, a "
                f"datasets.Dataset, rows with texts in source and target, whole numbers in length."
            )


def kept_tokenizer(task: Task, made: Tokenizer, texts: list[str]) -> Tokenizer:
    """Read a task's tokenizer as every use of the run will, and try it on some ``texts``.

    Raises:
        UserError: it is none, it takes a word for padding or for an end, or it gives other ids than
            those of a text alone, the same each time.
    """
    name = f"{type(task).__name__}.tokenizer()"
    if not isinstance(made, Tokenizer):
        raise UserError(
            f"{name} returns {made!r:.60}; return a Tokenizer of the library tokenizers."
        )
    if (special := [*map(made.id_to_token, range(4))]) != SPECIAL_TOKENS:
        raise UserError(
            f"{name} has {special} as ids 0 to 3; they must be {SPECIAL_TOKENS}, which mark "
            f"padding, begin, end and unknown words."
        )
    try:
        tokenizer = read_tokenizer(made.to_str())
    except Exception as error:  # the library raises plain exceptions
        raise UserError(
            f"{name} returns one that no checkpoint can hold ({first_line(error)}); split the text "
            f"in dataset() or in its files, and give task.words=true."
        ) from None
    once, again = (source_ids(texts, tokenizer) for _ in range(2))
    framed = any(id in (PAD, BOS, EOS) for ids in once for id in ids[:-1])
    if once != again or framed or tokenizer.padding or tokenizer.truncation:
        raise UserError(
            f"{name} returns one that adds padding, begin or end to a text, cuts it, or splits it "
            f"in another way each time; batches and task.max_tokens pad and cut: call its "
            f"no_padding() and no_truncation(), and set its post_processor and its model's dropout "
            f"to None."
        )
    return tokenizer


def check_vocabulary(data: Data) -> None:
    """Refuse a generated task whose words are not all in its vocabulary."""
    for split in (data.train, data.validation, data.test):
        if any((side.ids == UNK).any() for side in (split.source, split.target)):
            cls = type(data.task).__name__
            raise UserError(
                f"task={data.task.name} makes words that {cls}.vocabulary() does not list, which "
                f"would all be one unknown word; list every word there."
            )


# The data loaded last. Only a process that trains run after run of a study keeps them
# (lab/workers.py): in a notebook the task's code may change between two runs.
LAST: deque[Data] = deque(maxlen=0)


def load_data(config: DictConfig) -> Data:
    """Load the data of a run.

    Raises:
        UserError: the task's files are not those of the configuration's ``text_digest``.
    """
    task = build_task(config)
    kept = [data for data in LAST if (data.task, data.seed) == (task, config.seed)]
    if not kept or not (task.from_seed or task.text_digest):
        LAST.clear()  # before loading: memory may not hold two copies
        splits = task.dataset(config.seed)
        check_columns(task, splits)
        some = splits["train"][:100]["source"]
        tokenizer = kept_tokenizer(task, task.tokenizer(splits), some)
        parts = [tokenize_split(splits[name], tokenizer, task.max_tokens, name) for name in SPLITS]
        kept = [Data(task, config.seed, tokenizer, *parts)]
        if task.from_seed:
            check_vocabulary(kept[0])
        LAST.extend(kept)
    # After reading, so that a change while the files were read is noticed as well.
    if task.text_digest is not None and (now := task.fingerprint()) != task.text_digest:
        raise UserError(
            f"the files of task={task.name} have changed since this command began (digest "
            f"{task.text_digest} then, {now} now); give the command again."
        )
    return kept[0]
