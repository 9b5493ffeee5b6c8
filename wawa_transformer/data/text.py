"""Parallel text from files or a hub dataset, with a joint BPE vocabulary.

Every run reads its text anew, so that a change of the text or of this code is never overlooked.

This module defines the last task: :func:`build_task` chooses among all of them.
"""

import contextlib
import dataclasses
import functools
import gzip
import hashlib
import itertools
import json
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

import pyarrow as pa
from datasets import Dataset, DatasetDict, load_dataset
from datasets.fingerprint import Hasher
from omegaconf import DictConfig
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from wawa_transformer.common.files import CONFIG_DIR
from wawa_transformer.common.schema import UserError, choose, first_line, setting, typed, warn
from wawa_transformer.data import scan  # noqa: F401  (its task is known from here on)
from wawa_transformer.data.tasks import (
    SPECIAL_TOKENS,
    TASKS,
    Task,
    on_disk,
    read_tokenizer,
    word_tokenizer,
)

SAMPLE = ("sample.en", "sample.de")  # in data/, used where no text is named
LONGEST_LINE = 10**6  # bytes
MAX_WORD = 10_000  # bytes
HELD_OUT_SEED = 20170612  # which pairs are held out does not depend on the run's seed
# Scripts without spaces between words, by sacreBLEU's name of the tokeniser that splits them.
UNSPACED = {
    "zh": "\u2e80-\u2fdf\u3005\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff",
    "ja-mecab": "\u3041-\u30ff\u31f0-\u31ff\uff66-\uff9f",
    # Thai, Lao, Tibetan, Burmese, Khmer, Tai.
    "char": "\u0e00-\u109f\u1780-\u17ff\u1950-\u19ff\u1a20-\u1aaf\ua9e0-\ua9ff\uaa60-\uaadf",
}
HANGUL = "\u1100-\u11ff\u3130-\u318f\uac00-\ud7af"
PAIR = pa.schema({"source": pa.string(), "target": pa.string(), "length": pa.int64()})


@dataclass
class TextTask(Task, kind="text"):
    """Translate from one text to the other.

    The pairs come from files (``source`` and ``target``, plain or ``.gz``, UTF-8, relative to
    ``data_dir`` when that is given), from one that holds both sides (``source`` alone, ``.tsv`` or
    ``.jsonl``), or from the hub dataset ``hub``; where none is named, from the shipped sample.
    Validation and test pairs are read from their own files or splits where there are any, and else
    held out of the training pairs: the same ones under every seed, so that all runs are tested on
    the same text.

    ``length`` is the number of source words, rounded up to a multiple of ``length_bin``.
    """

    data_dir: str | None = None
    source: str | None = None
    target: str | None = None
    validation_source: str | None = None
    validation_target: str | None = None
    test_source: str | None = None
    test_target: str | None = None
    hub: str | None = None
    hub_config: str | None = None
    source_column: str = "en"
    target_column: str = "de"
    validation_size: int = setting(500, least=1, most=10**7)
    test_size: int = setting(500, least=1, most=10**7)
    # 256 bytes and the special tokens are always in a byte-level vocabulary.
    vocab_size: int = setting(6000, least=256 + len(SPECIAL_TOKENS), most=10**6)
    max_tokens: int = setting(128, least=2, most=10**6)  # type: ignore[misc]  # longer ones are left out
    words: bool = False  # type: ignore[misc]  # split at spaces: for text that is tokenised already, or integers
    length_bin: int = setting(5, least=1, most=10**6)

    translates: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.source is self.hub is None:
            self.source, self.target = SAMPLE
            self.data_dir = self.data_dir or "data"

    @property
    def folder(self) -> Path:
        """``data_dir`` in the current folder, else in the checkout."""
        here, own = Path(self.data_dir or ""), CONFIG_DIR.parent / (self.data_dir or "")
        return own if own.is_dir() and not here.is_dir() else here

    def fingerprint(self) -> str | None:
        names = ("", "validation_", "test_")
        files = [getattr(self, f"{name}{side}") for name in names for side in ("source", "target")]
        paths = [self.folder / name for name in files if name]
        return Hasher.hash(digest(paths)) if paths else None

    def dataset(self, seed: int) -> DatasetDict:
        if (self.source, self.target) == SAMPLE:
            warn(f"text: the sample {' and '.join(SAMPLE)} in {self.folder}")
        splits = self.from_hub() if self.hub else self.from_files()
        for name, size in (("test", self.test_size), ("validation", self.validation_size)):
            if name in splits:
                continue
            train = splits["train"]
            if size >= len(train):
                raise UserError(
                    f"task.{name}_size={size} leaves nothing of {len(train)} training "
                    f"pairs; lower it, or name files in task.{name}_source and task.{name}_target."
                )
            parts = train.train_test_split(size, seed=HELD_OUT_SEED)
            splits["train"], splits[name] = parts["train"], parts["test"]
        return DatasetDict({name: splits[name] for name in ("train", "validation", "test")})

    def test(self, seed: int) -> DatasetDict:
        """Read the test files alone, if there are any."""
        if self.test_source is None and self.test_target is None:
            return super().test(seed)
        own = self.from_pair("test", "test_")
        assert own is not None
        return DatasetDict({"test": own})

    def named(self, test_set: str) -> Self:
        """Replace the test by ``test_set``, files named like the training files.

        ``test_2017`` is ``test_2017.en.gz`` and ``test_2017.de.gz`` beside ``train.en.gz``.
        """
        if self.source is None:
            raise UserError(
                f"test_sets={test_set} is looked for beside the files of this run, which has none; "
                f"name two in task.test_source and task.test_target."
            )
        source, target = (
            side and str(Path(side).parent / (test_set + "".join(Path(side).suffixes)))
            for side in (self.source, self.target)
        )
        return dataclasses.replace(self, test_source=source, test_target=target)

    def tokenizer(self, data: DatasetDict) -> Tokenizer:
        """Train a joint byte-level BPE (Sennrich et al. 2016), or list the words."""
        train = data["train"]
        if self.words:
            texts = (text for side in ("source", "target") for text in train[side])
            return word_tokenizer(sorted({word for text in texts for word in text.split()}))

        tokenizer = Tokenizer(models.BPE())
        tokenizer.normalizer = normalizers.NFC()
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=self.vocab_size,
            special_tokens=SPECIAL_TOKENS,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        texts = (batch[side] for batch in train.iter(1000) for side in ("source", "target"))
        tokenizer.train_from_iterator(texts, trainer)
        return read_tokenizer(tokenizer.to_str())

    def from_files(self) -> dict[str, Dataset]:
        """Read the splits that have files."""
        if not os.path.isdir(self.folder):
            raise UserError(
                f"task.data_dir={self.data_dir} does not exist; point it at the folder that holds "
                f"{self.source}, or load a hub dataset with task.hub=bentrevett/multi30k."
            )
        found = {
            name: self.from_pair(name, prefix)
            for name, prefix in (("train", ""), ("validation", "validation_"), ("test", "test_"))
        }
        return {name: split for name, split in found.items() if split is not None}

    def from_pair(self, split: str, prefix: str) -> Dataset | None:
        """Read the split whose keys begin with ``prefix``; None without files."""
        source, target = getattr(self, f"{prefix}source"), getattr(self, f"{prefix}target")
        folder = self.folder
        both = source is not None and Path(source.removesuffix(".gz")).suffix in (".tsv", ".jsonl")
        if both and target is None:
            path = folder / source
            return self.read(self.from_one(path, f"task.{prefix}source"), split)
        if both or (source is None) != (target is None):
            raise UserError(
                f"task.{prefix}source and task.{prefix}target go together; give both, or in "
                f"task.{prefix}source alone a .tsv or .jsonl, which holds both sides."
            )
        if source is None:
            return None
        paths = [folder / source, folder / target]
        return self.read(self.from_two(paths, prefix), split)

    def from_two(self, paths: list[Path], prefix: str) -> Iterator[tuple[str, str]]:
        """Pair line n of one file with line n of the other."""
        keys = f"task.{prefix}source", f"task.{prefix}target"
        sides = (read_sentences(*each) for each in zip(paths, keys, strict=True))
        for number, (source, target) in enumerate(itertools.zip_longest(*sides), 1):
            if source is None or target is None:
                raise UserError(
                    f"{paths[0]} and {paths[1]} do not have as many lines: one ends before line "
                    f"{number}; line n of one must translate line n of the other."
                )
            yield source, target

    def from_one(self, path: Path, key: str) -> Iterator[tuple[str, str]]:
        """Read both sides from one ``.tsv`` or ``.jsonl`` file."""
        keys, more = (self.source_column, self.target_column), 0
        for number, line in enumerate(read_sentences(path, key), 1):
            try:
                if path.name.removesuffix(".gz").endswith(".tsv"):
                    # Further columns are attributions or scores.
                    source, target, *others = line.split("\t")
                    more += bool(others)
                else:
                    source, target = (json.loads(line)[name] for name in keys)
                # This fails for values that are not text, and for half of a UTF-16 character.
                (source + target).encode()
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                raise UserError(
                    f"{key}={path} holds no two texts in line {number}, {line[:60]!r}; a line of a "
                    f".tsv is source, tab, target, and one of a .jsonl an object with texts at "
                    f"task.source_column={keys[0]} and task.target_column={keys[1]}."
                ) from None
            yield source, target
        if more:
            warn(f"{path}: columns after the second left out of {more} lines")

    def from_hub(self) -> dict[str, Dataset]:
        """Read a hub dataset, or a local folder in a format ``datasets`` knows."""
        keys = [self.source_column, self.target_column]
        try:
            loaded = load_dataset(self.hub, self.hub_config, keep_in_memory=False)
            loaded["train"].select_columns(keys)
        except Exception as error:  # the library raises dozens of classes
            raise UserError(
                f"task.hub={self.hub} cannot be used ({first_line(error)}); it must have a split "
                f"train with the columns task.source_column={keys[0]} and "
                f"task.target_column={keys[1]}."
            ) from None
        return {
            name: self.read(self.columns(split), name)
            for name, split in loaded.items()
            if name in ("train", "validation", "test")
        }

    def columns(self, split: Dataset) -> Iterator[tuple[str, str]]:
        """Read both sides from a dataset."""
        keys = [self.source_column, self.target_column]
        for batch in split.select_columns(keys).iter(1000):
            for pair in zip(*(batch[key] for key in keys), strict=True):
                if not all(isinstance(side, str) for side in pair):
                    raise UserError(
                        f"task.hub={self.hub} holds {str(pair)[:60]} where two texts are needed, "
                        f"in the columns {keys[0]} and {keys[1]}; name others in "
                        f"task.source_column and task.target_column."
                    )
                yield pair

    def read(self, pairs: Iterator[tuple[str, str]], split: str) -> Dataset:
        """Keep ``pairs`` on disk with their lengths, without pairs that have a blank side."""
        kept = left = 0

        def rows() -> Iterator[dict[str, str | int]]:
            nonlocal kept, left
            for source, target in pairs:
                if not source.strip() or not target.strip():
                    left += 1
                    continue
                kept += 1
                length = -(-len(source.split()) // self.length_bin) * self.length_bin
                yield {"source": source, "target": target, "length": length}

        every = rows()
        parts = iter(lambda: list(itertools.islice(every, 10_000)), [])
        table = on_disk((pa.RecordBatch.from_pylist(part, PAIR) for part in parts), PAIR)
        if not kept:
            raise UserError(f"the {split} text has no pair with words on both sides.")
        if left:
            warn(f"{left} {split} pairs with a blank side left out")
        # With a fingerprint, since the library would compute one from a copy of the whole text.
        return Dataset(table, fingerprint=split)


def digest(files: list[Path]) -> list[str]:
    """Compute the SHA-256 of each file's contents.

    Files that cannot be read are skipped; reading them later raises the error.
    """
    found = []
    for path in filter(os.path.isfile, files):  # reading a pipe might never end
        with contextlib.suppress(OSError):
            about = path.stat()
            found.append(file_digest(path, about.st_size, about.st_mtime_ns, about.st_ctime_ns))
    return found


@functools.lru_cache(maxsize=64)  # a study asks once for each of its runs
def file_digest(path: Path, *state: int) -> str:
    """Compute the SHA-256 of a file; ``state`` changes whenever the file does."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_sentences(path: Path, key: str) -> Iterator[str]:
    """Yield the lines of a UTF-8 text file, plain or gzipped.

    Lines end only at a line feed: ``splitlines`` also splits at rarer separators, which would
    misalign the two sides. At most ``LONGEST_LINE`` bytes of a line are read.

    Raises:
        UserError: no file, empty, damaged or not UTF-8 (with the line), naming ``key``.
    """
    if not os.path.isfile(path):  # reading a pipe might never end
        raise UserError(
            f"{key}={path} does not exist or is no ordinary file; name one that holds the text."
        )
    blank = True
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            lines = iter(lambda: file.readline(LONGEST_LINE + 1), b"")
            for number, line in enumerate(lines, 1):
                words = line.split() if len(line) > MAX_WORD else ()
                if len(line) > LONGEST_LINE or any(len(word) > MAX_WORD for word in words):
                    raise UserError(
                        f"{key}={path} has more than {LONGEST_LINE:,} bytes, or {MAX_WORD:,} in a "
                        f"word, in line {number}; cut it: the time for a vocabulary grows with the "
                        f"square of a word's length."
                    )
                blank = blank and not line.strip()
                yield line.removesuffix(b"\n").decode().rstrip("\r")
    except UnicodeDecodeError:
        raise UserError(
            f"{key}={path} is not UTF-8 in line {number}; convert it to UTF-8."
        ) from None
    except (EOFError, zlib.error, OSError) as error:
        raise UserError(f"{key}={path} cannot be read ({error}); fetch it again.") from None
    if blank:
        raise UserError(f"{key}={path} is empty; it must hold one sentence a line.")


def build_task(config: DictConfig) -> Task:
    """Build the task of a configuration, and check its settings."""
    cls = choose(TASKS, config.task.kind, "task.kind")
    given = dict(config.task)  # resolves interpolations
    return cls(**typed(cls, given, "task", TASKS))
