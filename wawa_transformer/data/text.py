"""Parallel text: two files of one sentence a line, or a hub dataset, and a joint BPE vocabulary.

With it every task there is has been defined: :func:`build_task` chooses among them.
"""

from __future__ import annotations

import dataclasses
import gzip
import itertools
import json
import os
import sys
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
import tokenizers
from datasets import Dataset, DatasetDict, load_dataset
from omegaconf import DictConfig
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from wawa_transformer.common.schema import UserError, choose, setting, typed
from wawa_transformer.data import corpus
from wawa_transformer.data.cache import cached
from wawa_transformer.data.tasks import SPECIAL_TOKENS, TASKS, Task

MOST_BYTES = 2**31  # of one text, unpacked, in memory
LONGEST_LINE = 10**6  # bytes, of a text on disk
VOCABULARY_PAIRS = 2**20  # a vocabulary is made from as many pairs at most, evenly taken
HELD_OUT_SEED = 20170612  # which pairs are held out does not depend on the run's seed


@dataclass
class TextTask(Task, kind="text"):
    """Translation between two texts.

    The pairs come from files (``source`` and ``target``, plain or ``.gz``, UTF-8, relative to
    ``data_dir`` when that is given), from one that holds both sides (``source`` alone, ``.tsv`` or
    ``.jsonl``), or from the hub dataset ``hub``. Validation and test pairs are
    read from their own files or splits where there are any, and else held out of the training
    pairs: the same ones under every seed, so that all runs are tested on the same text.

    With ``stream`` the training pairs are read line by line into files on disk, once, and mapped
    from there, with the same vocabulary, ids and batches as from memory (see ``corpus``).

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
    stream: bool = False  # training pairs stay on disk: for a text that does not fit into memory

    translates: ClassVar[bool] = True

    @property
    def longest_pair(self) -> int:
        return self.max_tokens

    def dataset(self, seed: int) -> DatasetDict:
        splits = self.from_hub() if self.hub else self.from_files()
        train = splits["train"]
        rows = np.arange(len(train))
        for name, size in (("test", self.test_size), ("validation", self.validation_size)):
            if name in splits:
                continue
            if size >= len(rows):
                raise UserError(
                    f"task.{name}_size={size} leaves nothing of {len(rows)} training "
                    f"pairs; lower it, or name files in task.{name}_source and task.{name}_target."
                )
            order = np.random.default_rng(HELD_OUT_SEED).permutation(len(rows))
            held_out = train.select(rows[order[:size]])
            splits[name] = Dataset.from_dict(held_out.to_dict())  # in memory
            rows = rows[order[size:]]
        if len(rows) < len(train):
            splits["train"] = corpus.chosen(train, rows)
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
        train = data["train"]
        step = -(-len(train) // VOCABULARY_PAIRS)
        texts: Iterable[str] | Iterable[list[str]]
        if train.cache_files:
            texts, names = corpus.sentences(train, step), [corpus.name_of(train), str(step)]
        else:
            texts = names = [*train["source"][:][::step], *train["target"][:][::step]]

        def make() -> bytes:
            tokenizer.train_from_iterator(texts, trainer)
            return tokenizer.to_str().encode()

        key = "\0".join(("bpe", tokenizers.__version__, str(self.vocab_size), *names))
        trained = Tokenizer.from_str(cached(key, make).decode())
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
            return self.pairs(self.from_one(path, f"task.{prefix}source"), split, [path])
        if both or (source is None) != (target is None):
            raise UserError(
                f"task.{prefix}source and task.{prefix}target go together; give both, or in "
                f"task.{prefix}source alone a .tsv or .jsonl, which holds both sides."
            )
        if source is None:
            return None
        paths = [folder / source, folder / target]
        return self.pairs(self.from_two(paths, prefix), split, paths)

    def from_two(self, paths: list[Path], prefix: str) -> Iterator[tuple[str, str]]:
        """Line n of one file beside line n of the other."""
        keys = f"task.{prefix}source", f"task.{prefix}target"
        sides = (self.sentences(*each) for each in zip(paths, keys, strict=True))
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
        for number, line in enumerate(self.sentences(path, key), 1):
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

    def sentences(self, path: Path, key: str) -> Iterator[str]:
        """The lines of a file: of a training text that stays on disk however many."""
        streams = self.stream and key in ("task.source", "task.target")
        return read_sentences(path, key, streams)

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
            name: self.pairs(self.columns(split), name, files_of(split))
            for name, split in loaded.items()
            if name in ("train", "validation", "test")
        }

    def columns(self, split: Dataset) -> Iterator[tuple[str, str]]:
        """Both sides from a dataset."""
        keys = [self.source_column, self.target_column]
        for batch in split.select_columns(keys).iter(corpus.AT_ONCE):
            yield from zip(*(batch[key] for key in keys), strict=True)

    def pairs(self, every: Iterable[tuple[str, str]], split: str, files: list[Path]) -> Dataset:
        """Pairs with their length, without those that teach nothing; what is left out is said."""
        train, said = split == "train", dict[str, int]()
        again = ""
        if train and self.drop_duplicates:
            again = "that were there before (task.drop_duplicates)"
        rows = self.clean(every, split, said)
        if train and self.stream:
            names = self.source_column, self.target_column
            settings = (*names, self.max_ratio, self.length_bin)
            found, said = corpus.on_disk(rows, files, settings, said, again)
        else:
            held = list(rows)
            if again:
                once = list(dict.fromkeys(held))
                said[again], held = len(held) - len(once), once
            found = Dataset.from_dict(corpus.columns(held))
        for what, count in said.items():
            if count:
                print(f"{count} {split} pairs {what} left out", file=sys.stderr)
        return found

    def clean(
        self, pairs: Iterable[tuple[str, str]], split: str, said: dict[str, int]
    ) -> Iterator[corpus.Row]:
        """The pairs that can teach something, with their length; ``said`` counts the others."""
        limit = self.max_ratio if split == "train" else None
        blank, uneven, kept = 0, 0, 0
        for source, target in pairs:
            if not (source.strip() and target.strip()):
                blank += 1
                continue
            words = len(source.split())
            if limit is not None:
                less, more = sorted((words, len(target.split())))
                if more > less * limit:
                    uneven += 1
                    continue
            kept += 1
            yield source, target, -(-words // self.length_bin) * self.length_bin
        if not kept + uneven:
            raise UserError(f"the {split} text has no pair with words on both sides.")
        if not kept:
            raise UserError(f"task.max_ratio={limit:g} leaves no pair; raise it.")
        said["with a blank side"] = blank
        if limit is not None:
            said[f"of a ratio above task.max_ratio={limit:g}"] = uneven


def files_of(split: Dataset) -> list[Path]:
    """Those that a dataset is mapped from."""
    return [Path(each["filename"]) for each in split.cache_files]


def read_sentences(path: Path, key: str, stream: bool = False) -> Iterator[str]:
    """The lines of a UTF-8 text file, plain or gzipped, one by one.

    With ``stream`` there may be any number of them, and otherwise as many as fit into memory.

    Raises:
        UserError: missing, empty, damaged, too large or not UTF-8 (with the line), naming ``key``.
    """
    size, blank = 0, True
    for number, line in enumerate(read_lines(path, key, LONGEST_LINE if stream else MOST_BYTES), 1):
        size += len(line)
        if stream and len(line) > LONGEST_LINE:
            raise UserError(
                f"{key}={path} has more than {LONGEST_LINE:,} bytes in line {number}; cut it into "
                f"sentences."
            )
        if not stream and size > MOST_BYTES:
            raise UserError(
                f"{key}={path} holds more than {MOST_BYTES:,} bytes of text, which are read into "
                f"memory; leave a training text on disk with task.stream=true, or split it."
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


def read_lines(path: Path, key: str, most: int) -> Iterator[bytes]:
    """The lines of a file, plain or gzipped, with their ends; of a longer one ``most`` + 1 bytes.

    They end at a line feed alone: ``splitlines`` also cuts at rarer separators, which would
    misalign two sides.
    """
    # os.path, unlike Path, takes a name that no file can have for a missing one.
    if os.path.exists(path) and not os.path.isfile(path):  # a pipe would be waited for without end
        raise UserError(f"{key}={path} is no ordinary file; write the text into one first.")
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            while line := file.readline(most + 1):
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
