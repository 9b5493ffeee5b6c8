"""Parallel text: two files of one sentence a line, or a hub dataset, and a joint BPE vocabulary.

With it every task there is has been defined: :func:`build_task` chooses among them.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
import os
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

import tokenizers
from datasets import Dataset, DatasetDict, load_dataset
from omegaconf import DictConfig
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from wawa_transformer import scan  # noqa: F401  (registers its task)
from wawa_transformer.cache import cached
from wawa_transformer.config import UserError, choose, setting, typed
from wawa_transformer.tasks import SPECIAL_TOKENS, TASKS, Task

MOST_BYTES = 2**31  # of one text, unpacked
HELD_OUT_SEED = 20170612  # which pairs are held out does not depend on the run's seed


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
            if size >= len(splits["train"]):
                raise UserError(
                    f"task.{name}_size={size} leaves nothing of {len(splits['train'])} training "
                    f"pairs; lower it, or name files in task.{name}_source and task.{name}_target."
                )
            parts = splits["train"].train_test_split(test_size=size, seed=HELD_OUT_SEED)
            splits["train"], splits[name] = parts["train"], parts["test"]
        return DatasetDict({name: splits[name] for name in ("train", "validation", "test")})

    def test(self, seed: int) -> Dataset:
        """From its own two files, where it has them, without a look at the others."""
        if self.test_source is None and self.test_target is None:
            return super().test(seed)
        own = self.from_pair("test", "test_")
        assert own is not None
        return own

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
        texts = [*data["train"]["source"][:], *data["train"]["target"][:]]

        def make() -> bytes:
            tokenizer.train_from_iterator(texts, trainer)
            return tokenizer.to_str().encode()

        key = "\0".join(("bpe", tokenizers.__version__, str(self.vocab_size), *texts))
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
            return self.pairs(*self.from_one(folder / source, f"task.{prefix}source"), split)
        if both or (source is None) != (target is None):
            raise UserError(
                f"task.{prefix}source and task.{prefix}target go together; give both, or in "
                f"task.{prefix}source alone a .tsv or .jsonl, which holds both sides."
            )
        if source is None:
            return None
        left = read_sentences(folder / source, f"task.{prefix}source")
        right = read_sentences(folder / target, f"task.{prefix}target")
        if len(left) != len(right):
            raise UserError(
                f"{folder / source} has {len(left)} lines and {folder / target} has "
                f"{len(right)}; line n of one must translate line n of the other."
            )
        return self.pairs(left, right, split)

    def from_one(self, path: Path, key: str) -> tuple[list[str], list[str]]:
        """Both sides from one file: columns with a tab between them, or objects with two keys."""
        sides: tuple[list[str], list[str]] = ([], [])
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
            for side, text in zip(sides, pair, strict=True):
                side.append(text)
        return sides

    def from_hub(self) -> dict[str, Dataset]:
        """The splits of a hub dataset, or of a local folder in a format ``datasets`` knows."""
        try:
            loaded = load_dataset(self.hub, self.hub_config)
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
            name: self.pairs(list(split[self.source_column]), list(split[self.target_column]), name)
            for name, split in loaded.items()
            if name in ("train", "validation", "test")
        }

    def pairs(self, source: list[str], target: list[str], split: str) -> Dataset:
        """Pairs with their length, without those that teach nothing; what is left out is said."""
        every = list(zip(source, target, strict=True))
        full = [(s, t) for s, t in every if s.strip() and t.strip()]
        said = {"with a blank side": len(every) - len(full)}
        if not full:
            raise UserError(f"the {split} text has no pair with words on both sides.")
        if split == "train" and self.max_ratio is not None:
            sizes = [sorted((len(s.split()), len(t.split()))) for s, t in full]
            even = [p for p, (a, b) in zip(full, sizes, strict=True) if b <= a * self.max_ratio]
            said[f"of a ratio above task.max_ratio={self.max_ratio:g}"] = len(full) - len(even)
            if not even:
                raise UserError(f"task.max_ratio={self.max_ratio:g} leaves no pair; raise it.")
            full = even
        if split == "train" and self.drop_duplicates:
            once = list(dict.fromkeys(full))
            said["that were there before (task.drop_duplicates)"] = len(full) - len(once)
            full = once
        for what, count in said.items():
            if count:
                print(f"{count} {split} pairs {what} left out", file=sys.stderr)
        words = [len(s.split()) for s, _ in full]
        return Dataset.from_dict(
            {
                "source": [s for s, _ in full],
                "target": [t for _, t in full],
                "length": [-(-n // self.length_bin) * self.length_bin for n in words],
            }
        )


def read_sentences(path: Path, key: str) -> list[str]:
    """The lines of a UTF-8 text file, plain or gzipped.

    Raises:
        UserError: missing, empty, damaged or not UTF-8 (with the line), naming ``key``.
    """
    # os.path, unlike Path, takes a name that no file can have for a missing one.
    if os.path.exists(path) and not os.path.isfile(path):  # a pipe would be waited for without end
        raise UserError(f"{key}={path} is no ordinary file; write the text into one first.")
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise UserError(f"{key}={path} is a damaged gzip file; fetch it again.") from None
    except (OSError, ValueError) as error:  # the latter: a name that no file can have
        reason = getattr(error, "strerror", None) or "no file is called so"
        raise UserError(f"{key}={path} cannot be read ({reason}).") from None
    if len(content) > MOST_BYTES:
        raise UserError(
            f"{key}={path} holds more than {MOST_BYTES:,} bytes of text, which are read into "
            f"memory; split it."
        )
    if not content.strip():
        raise UserError(f"{key}={path} is empty; it must hold one sentence a line.")
    try:
        # Not splitlines(): it also cuts at rarer separators, which would misalign the two sides.
        return [line.rstrip("\r") for line in content.decode().removesuffix("\n").split("\n")]
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise UserError(f"{key}={path} is not UTF-8 in line {line}; convert it to UTF-8.") from None


def build_task(config: DictConfig) -> Task:
    """The task of a configuration, its settings checked."""
    cls = choose(TASKS, config.task.kind, "task.kind")
    return cls(**typed(cls, dict(config.task), "task"))  # dict: interpolations end here
