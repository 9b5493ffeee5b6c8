"""Parallel text: two files of one sentence a line, or a hub dataset, and a joint BPE vocabulary.

``datasets`` keeps everything made of a text in its own cache, by fingerprint, and maps the files
into memory. The first fingerprint is a hash of the text's contents, and each later step derives its
own. A changed text is therefore read again, and an unchanged text is read once.

This module defines the last task: :func:`build_task` chooses among all of them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import hashlib
import itertools
import json
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import datasets
import tokenizers
from datasets import Dataset, DatasetDict, Features, Value, load_dataset
from datasets.exceptions import DatasetGenerationError
from datasets.fingerprint import Hasher
from omegaconf import DictConfig
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from wawa_transformer.common.schema import UserError, choose, setting, typed
from wawa_transformer.data import scan  # noqa: F401  (its task is known from here on)
from wawa_transformer.data.tasks import SPECIAL_TOKENS, TASKS, Task

LONGEST_LINE = 10**6  # bytes
VOCABULARY_PAIRS = 2**20  # a vocabulary is made from as many pairs at most, evenly taken
HELD_OUT_SEED = 20170612  # which pairs are held out does not depend on the run's seed
PAIR = Features({"source": Value("string"), "target": Value("string"), "length": Value("int64")})


@dataclass
class TextTask(Task, kind="text"):
    """Translation between two texts.

    The pairs come from files (``source`` and ``target``, plain or ``.gz``, UTF-8, relative to
    ``data_dir`` when that is given), from one that holds both sides (``source`` alone, ``.tsv`` or
    ``.jsonl``), or from the hub dataset ``hub``. Validation and test pairs are
    read from their own files or splits where there are any, and else held out of the training
    pairs: the same ones under every seed, so that all runs are tested on the same text.

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
    max_tokens: int = setting(128, least=2, most=10**6)  # longer pairs are left out
    max_ratio: float | None = setting(None, least=1)  # and training pairs whose words differ more
    drop_duplicates: bool = False  # and training pairs that were there before
    length_bin: int = setting(5, least=1, most=10**6)

    translates: ClassVar[bool] = True

    @property
    def longest_pair(self) -> int:
        return self.max_tokens

    def dataset(self, seed: int) -> DatasetDict:
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
        """From its own two files, where it has them, without a look at the others."""
        if self.test_source is None and self.test_target is None:
            return super().test(seed)
        own = self.from_pair("test", "test_")
        assert own is not None
        return DatasetDict({"test": own})

    def named(self, test_set: str) -> Self:
        """The same with the test that is called ``test_set``, in files named as the training's are.

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
        """A joint byte-level BPE of the training text (Sennrich et al. 2016)."""
        train = data["train"]
        step = -(-len(train) // VOCABULARY_PAIRS)

        def rows() -> Iterator[dict[str, str]]:
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
            batches = train.select(range(0, len(train), step)).iter(1000)
            texts = (batch[side] for batch in batches for side in ("source", "target"))
            tokenizer.train_from_iterator(texts, trainer)
            yield {"tokenizer": tokenizer.to_str()}

        key = (train._fingerprint, step, self.vocab_size, tokenizers.__version__)
        trained = Tokenizer.from_str(stored(rows, key)[0]["tokenizer"])
        trained.encode_special_tokens = True  # "[EOS]" in a text is text; no part of the JSON
        return trained

    def from_files(self) -> dict[str, Dataset]:
        """The splits that have files of their own."""
        if self.source is None:
            raise UserError(
                "task.source and task.target must name two files of one sentence a line, "
                "task.source one .tsv or .jsonl, or task.hub a dataset."
            )
        if self.data_dir is not None and not os.path.isdir(self.data_dir):
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
        """A split from the two files that ``prefix`` names, where it does."""
        source, target = getattr(self, f"{prefix}source"), getattr(self, f"{prefix}target")
        folder = Path(self.data_dir or "")
        both = source is not None and Path(source.removesuffix(".gz")).suffix in (".tsv", ".jsonl")
        if both and target is None:
            path = folder / source
            return self.read(self.from_one(path, f"task.{prefix}source"), split, [path])
        if both or (source is None) != (target is None):
            raise UserError(
                f"task.{prefix}source and task.{prefix}target go together; give both, or in "
                f"task.{prefix}source alone a .tsv or .jsonl, which holds both sides."
            )
        if source is None:
            return None
        paths = [folder / source, folder / target]
        return self.read(self.from_two(paths, prefix), split, paths)

    def from_two(self, paths: list[Path], prefix: str) -> Iterator[tuple[str, str]]:
        """Line n of one file beside line n of the other."""
        keys = f"task.{prefix}source", f"task.{prefix}target"
        sides = (read_sentences(*each) for each in zip(paths, keys, strict=True))
        lines = [0, 0]
        for source, target in itertools.zip_longest(*sides):
            lines[0] += source is not None
            lines[1] += target is not None
            if source is not None and target is not None:
                yield source, target
        if lines[0] != lines[1]:
            raise UserError(
                f"{paths[0]} has {lines[0]} lines and {paths[1]} has {lines[1]}; line n of one "
                f"must translate line n of the other."
            )

    def from_one(self, path: Path, key: str) -> Iterator[tuple[str, str]]:
        """Both sides from one file: columns with a tab between them, or objects with two keys."""
        keys = (self.source_column, self.target_column)
        for number, line in enumerate(read_sentences(path, key), 1):
            if path.name.removesuffix(".gz").endswith(".tsv"):
                pair = line.split("\t")[:2]  # what follows is whose they are, or a score
                wrong = len(pair) < 2 and "no tab"
            else:
                try:
                    pair = [json.loads(line)[name] for name in keys]
                    wrong = not all(isinstance(each, str) for each in pair) and "no text"
                except (ValueError, KeyError, TypeError, RecursionError):
                    wrong = f"no object with the keys {keys[0]} and {keys[1]}"
            if wrong:
                raise UserError(
                    f"{key}={path} has {wrong} in line {number}; a line holds source, a tab and "
                    f"target in a .tsv, and task.source_column and task.target_column in a .jsonl."
                )
            yield pair[0], pair[1]

    def from_hub(self) -> dict[str, Dataset]:
        """The splits of a hub dataset, or of a local folder in a format ``datasets`` knows."""
        try:
            loaded = load_dataset(self.hub, self.hub_config, keep_in_memory=False)
        except Exception as error:  # the hub's library raises dozens of kinds
            reason = str(error).strip().splitlines()[0]
            raise UserError(f"task.hub={self.hub} cannot be loaded ({reason}).") from None
        if "train" not in loaded:
            raise UserError(
                f"task.hub={self.hub} has no split named train, only {', '.join(loaded)}."
            )
        for key in ("source_column", "target_column"):
            column = getattr(self, key)
            if column not in loaded["train"].column_names:
                columns = ", ".join(loaded["train"].column_names)
                raise UserError(
                    f"task.{key}={column} is not a column of {self.hub}; it has {columns}."
                )
        return {
            name: self.read(self.columns(split), name, files_of(split))
            for name, split in loaded.items()
            if name in ("train", "validation", "test")
        }

    def columns(self, split: Dataset) -> Iterator[tuple[str, str]]:
        """Both sides from a dataset."""
        keys = [self.source_column, self.target_column]
        for batch in split.select_columns(keys).iter(1000):
            yield from zip(*(batch[key] for key in keys), strict=True)

    def read(self, pairs: Iterator[tuple[str, str]], split: str, files: list[Path]) -> Dataset:
        """Store ``pairs`` with their length, and leave out those that teach nothing.

        The ``pairs`` are read only if the contents of the ``files`` are new.
        """
        before = digest(files)

        def rows() -> Iterator[dict[str, str | int]]:
            for source, target in pairs:
                length = -(-len(source.split()) // self.length_bin) * self.length_bin
                yield {"source": source, "target": target, "length": length}
            if digest(files) != before:
                raise UserError(
                    f"{' or '.join(map(str, files))} was changed while it was read; give the same "
                    f"command again."
                )

        names = [path.name for path in files]
        key = (before, names, self.source_column, self.target_column, self.length_bin)
        return self.clean(stored(rows, key, PAIR), split)

    def clean(self, found: Dataset, split: str) -> Dataset:
        """The pairs that can teach something; how many others there are is printed."""
        kept = without(found, split, "with a blank side", both_sides)
        if not len(kept):
            raise UserError(f"the {split} text has no pair with words on both sides.")
        if split != "train":
            return kept
        if self.max_ratio is not None:
            what = f"of a ratio above task.max_ratio={self.max_ratio:g}"
            kept = without(kept, split, what, similar, limit=self.max_ratio)
            if not len(kept):
                raise UserError(f"task.max_ratio={self.max_ratio:g} leaves no pair; raise it.")
        if self.drop_duplicates:
            what = "that were there before (task.drop_duplicates)"
            kept = without(kept, split, what, unseen, seen=set())
        return kept


def stored(
    rows: Callable[[], Iterator[dict[str, Any]]], key: object, features: Features | None = None
) -> Dataset:
    """The dataset of ``rows``, which are generated once for each ``key``.

    Processes that want the same rows wait for the process that generates them. If that is
    interrupted, nothing is kept.

    Raises:
        UserError: ``rows`` raised it, or the cache of ``datasets`` cannot be written.
    """
    try:
        return Dataset.from_generator(rows, features, fingerprint=Hasher.hash(key))
    except (DatasetGenerationError, OSError) as error:
        # Raised below: here the cause of the error would become its own context.
        cause = error.__cause__ or error
    if isinstance(cause, OSError):
        raise UserError(
            f"{datasets.config.HF_DATASETS_CACHE} cannot be written ({cause.strerror or cause}); "
            f"set HF_DATASETS_CACHE to a folder of yours that has room."
        )
    raise cause


def files_of(split: Dataset) -> list[Path]:
    """The files that a dataset is mapped from."""
    return [Path(each["filename"]) for each in split.cache_files]


def digest(files: list[Path]) -> list[str]:
    """The SHA-256 of each file's contents.

    A file that cannot be read has none. Whoever reads the file says why.
    """
    found = []
    for path in filter(os.path.isfile, files):  # a pipe would be waited for without end
        with contextlib.suppress(OSError), path.open("rb") as file:
            found.append(hashlib.file_digest(file, "sha256").hexdigest())
    return found


def without(
    found: Dataset, split: str, what: str, keeps: Callable[..., list[bool]], **settings: Any
) -> Dataset:
    """The pairs that ``keeps`` keeps; how many are left out is printed."""
    kept = found.filter(keeps, input_columns=["source", "target"], batched=True, fn_kwargs=settings)
    left = len(found) - len(kept)
    if not left:
        return found
    print(f"{left} {split} pairs {what} left out", file=sys.stderr)
    return kept


def both_sides(sources: list[str], targets: list[str]) -> list[bool]:
    """Whether each pair has words on both sides."""
    return [bool(s.strip() and t.strip()) for s, t in zip(sources, targets, strict=True)]


def similar(sources: list[str], targets: list[str], limit: float) -> list[bool]:
    """Whether neither side of each pair has more than ``limit`` times the words of the other."""
    words = ((len(s.split()), len(t.split())) for s, t in zip(sources, targets, strict=True))
    return [max(pair) <= min(pair) * limit for pair in words]


def unseen(sources: list[str], targets: list[str], seen: set[bytes]) -> list[bool]:
    """Whether each pair is new; ``seen`` grows by the 128-bit hash of each."""
    new = []
    for source, target in zip(sources, targets, strict=True):
        pair = f"{len(source)} {source} {target}"
        key = hashlib.blake2b(pair.encode(), digest_size=16).digest()
        new.append(key not in seen)
        seen.add(key)
    return new


def read_sentences(path: Path, key: str) -> Iterator[str]:
    """The lines of a UTF-8 text file, plain or gzipped, one by one.

    Raises:
        UserError: missing, empty, damaged or not UTF-8 (with the line), naming ``key``.
    """
    blank = True
    for number, line in enumerate(read_lines(path, key), 1):
        if len(line) > LONGEST_LINE:
            raise UserError(
                f"{key}={path} has more than {LONGEST_LINE:,} bytes in line {number}; cut it into "
                f"sentences."
            )
        blank = blank and not line.strip()
        try:
            yield line.removesuffix(b"\n").decode().rstrip("\r")
        except UnicodeDecodeError:
            raise UserError(
                f"{key}={path} is not UTF-8 in line {number}; convert it to UTF-8."
            ) from None
    if blank:
        raise UserError(f"{key}={path} is empty; it must hold one sentence a line.")


def read_lines(path: Path, key: str) -> Iterator[bytes]:
    """The lines of a file, plain or gzipped; of a longer one ``LONGEST_LINE`` + 1 bytes.

    They end at a line feed alone: ``splitlines`` also cuts at rarer separators, which would
    misalign two sides.
    """
    # os.path, unlike Path, takes a name that no file can have for a missing one.
    if os.path.exists(path) and not os.path.isfile(path):  # a pipe would be waited for without end
        raise UserError(f"{key}={path} is no ordinary file; write the text into one first.")
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            while line := file.readline(LONGEST_LINE + 1):
                yield line
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise UserError(f"{key}={path} is a damaged gzip file; fetch it again.") from None
    except (OSError, ValueError) as error:  # the latter: a name that no file can have
        reason = getattr(error, "strerror", None) or "no file is called so"
        raise UserError(f"{key}={path} cannot be read ({reason}).") from None


def build_task(config: DictConfig) -> Task:
    """The task of a configuration, its settings checked."""
    cls = choose(TASKS, config.task.kind, "task.kind")
    return cls(**typed(cls, dict(config.task), "task"))  # dict: interpolations end here
