"""Parallel text from files or a hub dataset, with a joint BPE vocabulary.

Every run reads its text anew, so that a change of the text or of this code is never overlooked.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import ClassVar, Self

import pyarrow as pa
from datasets import Dataset, DatasetDict
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from wawa_transformer.common import CONFIG_DIR
from wawa_transformer.common.files import reading
from wawa_transformer.common.limits import setting
from wawa_transformer.common.messages import UserError, warn
from wawa_transformer.data import hub
from wawa_transformer.data.files import (
    MAX_WORD,
    has_long_word,
    is_blank,
    on_disk,
    read_pairs,
    suffix_of,
)
from wawa_transformer.data.tasks import SPLITS, Task
from wawa_transformer.data.words import SPECIAL_TOKENS, read_tokenizer, split_words, word_tokenizer

SIDES = ("source", "target")
SAMPLE = ("sample.en", "sample.de")  # in data/, used where no text is named
HELD_OUT_SEED = 20170612  # which pairs are held out does not depend on the run's seed
# Scripts without spaces between words, by sacreBLEU's name of the tokeniser that splits them.
# Signs that stand between words where others have spaces count as letters of such a script.
UNSPACED = {
    "zh": "\u2e80-\u2fdf\u3005\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff",
    "ja-mecab": "\u3041-\u30ff\u31f0-\u31ff\uff66-\uff9f",
    # First the scripts: Thai to Burmese, Khmer, Tai, Buginese, Balinese, Batak, Yi, Vai, Javanese
    # and Cham. Then the signs between words, from Ethiopic to Cuneiform. Last the scripts Ahom,
    # Zanabazar, Soyombo, Tangut and Nushu.
    "char": "\u0e00-\u109f\u1780-\u17ff\u1950-\u19ff\u1a00-\u1aaf\u1b00-\u1b7f\u1bc0-\u1bff"
    "\ua000-\ua4cf\ua500-\ua63f\ua980-\ua9ff\uaa00-\uaadf"
    "\u1361\u16eb-\u16ed\u2e31\U00010100-\U00010102\U0001039f\U000103d0\U0001091f\U0001123a"
    "\U00011c43\U00012470\U00011700-\U0001174f\U00011a00-\U00011aaf\U00016fe0-\U00018dff"
    "\U0001b170-\U0001b2ff",
}
HANGUL = "\u1100-\u11ff\u3130-\u318f\uac00-\ud7af"
FILE_KEYS = {
    split: [f"{'' if split == 'train' else f'{split}_'}{side}" for side in SIDES]
    for split in SPLITS
}
PAIR = pa.schema({"source": pa.string(), "target": pa.string(), "length": pa.int64()})


WORD = re.compile(f"[{''.join(UNSPACED.values())}]|[^\\s{''.join(UNSPACED.values())}]+")


@dataclass
class TextTask(Task, kind="text"):
    """Translate from one text to the other.

    The pairs come from files (``source`` and ``target``, relative to ``data_dir`` when that is
    given), from one that holds both sides (``source`` alone, a table or JSON), or from the hub
    dataset ``hub`` without files; where none is named, from the sample. All text becomes NFC.
    Validation and test pairs are read from their own files or splits where there are any, and else
    held out of the training pairs: the same ones under every seed, so that all runs are tested on
    the same text.

    ``length`` is the number of source words, rounded up to a multiple of ``length_bin``. In a
    script without spaces each character counts as a word.
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
    source_column: str | None = None  # a name, by default en, or in a table a number from 1
    target_column: str | None = None  # by default de
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
        self.left_out = {}  # type: ignore[misc]
        if self.source is self.target is self.hub is None:
            self.source, self.target = SAMPLE
            self.data_dir = self.data_dir or "data"

    @property
    def folder(self) -> Path:
        """``data_dir`` in the current folder, else in the checkout."""
        here, own = Path(self.data_dir or ""), CONFIG_DIR.parent / (self.data_dir or "")
        return own if own.is_dir() and not here.is_dir() else here

    @property
    def files(self) -> dict[str, Path]:
        """The files that are named, by key."""
        names = {key: getattr(self, key) for key in chain(*FILE_KEYS.values())}
        return {key: self.folder / name for key, name in names.items() if name is not None}

    def fingerprint(self) -> str | None:
        # What each file is for and how it is read, and not where it lies.
        parts = [[key, suffix_of(path.name), digest(path)] for key, path in self.files.items()]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16] if parts else None

    def without_effect(self) -> set[str]:
        own: set[str] = set()
        # A hub is not asked: a run must be the same one without a network.
        if self.hub and os.path.isdir(self.hub):
            with contextlib.suppress(Exception):  # from_hub says what is wrong with it
                own = {*hub.find(self.hub, self.hub_config)[0]}
        pairs = {
            "data_dir": self.hub,
            "hub_config": not self.hub,
            "validation_size": self.validation_source or "validation" in own,
            "test_size": self.test_source or "test" in own,
            "vocab_size": self.words,
        }
        return {key for key, unused in pairs.items() if unused}

    def dataset(self, seed: int) -> DatasetDict:
        if (self.source, self.target) == SAMPLE:
            warn(f"text: the sample {' and '.join(SAMPLE)} in {self.folder}")
        if self.hub and (named := [*self.files]):
            raise UserError(
                f"task.hub={self.hub} and task.{named[0]}={getattr(self, named[0])} both name "
                f"texts; leave one of them out: task=text task.hub={self.hub} has no files."
            )
        if not self.hub and not os.path.isdir(self.folder):
            raise UserError(
                f"task.data_dir={self.data_dir} is no folder; point it at the folder that holds "
                f"{self.source}, or read a hub dataset: task=text task.hub=bentrevett/multi30k."
            )
        splits = self.from_hub() if self.hub else self.from_files()
        sizes = {"test": self.test_size, "validation": self.validation_size}
        held_out = {name: size for name, size in sizes.items() if name not in splits}
        if sum(held_out.values()) >= (count := len(splits["train"])):
            keys = " and ".join(f"task.{name}_size={size}" for name, size in held_out.items())
            raise UserError(
                f"{keys}: nothing is left of {count} training pairs; lower what is large, or name "
                f"files in task.test_source, task.test_target, task.validation_source and so on."
            )
        for name, size in held_out.items():
            parts = splits["train"].train_test_split(size, seed=HELD_OUT_SEED)
            splits["train"], splits[name] = parts["train"], parts["test"]
        return DatasetDict({name: splits[name] for name in SPLITS})

    def test(self, seed: int) -> DatasetDict:
        """Read the test alone, if it is not held out, and no class changes what is read."""
        read = self.from_hub if self.hub and not self.files else self.from_files
        own = read(["test"]) if type(self).dataset is TextTask.dataset else {}
        return DatasetDict(own) if own else super().test(seed)

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
            texts = (text for side in SIDES for text in train[side])
            return word_tokenizer(sorted({word for text in texts for word in split_words(text)}))

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
        texts = (batch[side] for batch in train.iter(1000) for side in SIDES)
        tokenizer.train_from_iterator(texts, trainer)
        return read_tokenizer(tokenizer.to_str())

    def from_files(self, splits: Iterable[str] = SPLITS) -> dict[str, Dataset]:
        """Read those of the ``splits`` that have files."""
        pairs, columns = {}, (self.source_column, self.target_column)
        for split in splits:
            keys = [key for key in FILE_KEYS[split] if key in self.files]
            if files := {f"task.{key}": self.files[key] for key in keys}:
                pairs[split] = self.read(read_pairs(files, columns), split)
        return pairs

    def from_hub(self, splits: Iterable[str] = SPLITS) -> dict[str, Dataset]:
        """Read those of the ``splits`` that a dataset of the hub, or a local folder, has."""
        columns, wanted = (self.source_column, self.target_column), [*splits]
        pairs = hub.pairs_of(str(self.hub), self.hub_config, columns, wanted)
        if others := sorted({*pairs} - {*SPLITS}):
            warn(f"task.hub={self.hub}: of its splits, {', '.join(others)} are not read")
        return {name: self.read(pairs[name], name) for name in wanted if name in pairs}

    def read(self, pairs: Iterator[tuple[str, str]], split: str) -> Dataset:
        """Keep ``pairs`` on disk with their lengths, without those that have no two texts.

        These have a blank side, or a word that takes hours to split into pieces.
        """
        left = self.left_out[split] = {"blank": 0, "too_long": 0}
        first_pairs = [*islice(pairs, 10_000)]

        def rows() -> Iterator[dict[str, str | int]]:
            for source, target in (map(normalise, pair) for pair in chain(first_pairs, pairs)):
                blank = is_blank(source) or is_blank(target)
                if blank or has_long_word(source) or has_long_word(target):
                    left["blank" if blank else "too_long"] += 1
                    continue
                count = len(split_words(source) if self.words else WORD.findall(source))
                length = -(-count // self.length_bin) * self.length_bin
                yield {"source": source, "target": target, "length": length}

        every = rows()
        parts = iter(lambda: list(islice(every, 10_000)), [])
        table = on_disk((pa.RecordBatch.from_pylist(part, PAIR) for part in parts), PAIR)
        reasons = ("a blank side", f"a word of more than {MAX_WORD:,} bytes")
        for count, reason in zip(left.values(), reasons, strict=True):
            if count:
                warn(f"{count} {split} pairs with {reason} left out")
        if not len(table):
            raise UserError(
                f"the {split} text has no pair with words on both sides, each of at most "
                f"{MAX_WORD:,} bytes."
            )
        first_sources = table["source"].slice(0, 100).to_pylist()
        known = {normalise(source) for source, _ in first_pairs}  # as translate reads them
        if 2 * sum(each not in known for each in first_sources) > len(first_sources):
            warn(
                f"warning: rows() makes other sources of the {split} text, and translate and serve "
                f"do not call it; change text in normalise(), which both call"
            )
        if table["source"].equals(table["target"]):
            warn(f"warning: every {split} pair has the same text on both sides")
        [first] = table.slice(0, 1).to_pylist()  # it shows a header or numbers read as text
        which = "first pair" if split == "train" else f"first {split} pair"
        warn(f"{which}: {first['source'][:60]} → {first['target'][:60]}")
        # With a fingerprint, since the library would compute one from a copy of the whole text.
        return Dataset(table, fingerprint=split)


def normalise(text: str) -> str:
    """Choose one of the spellings that look alike (NFC), without marks of a file's edges."""
    return unicodedata.normalize("NFC", text.lstrip("\ufeff").rstrip("\r"))


def digest(path: Path) -> list[str]:
    """Compute the SHA-256 of a file; without one, reading it later raises the error."""
    if not os.path.isfile(path):  # reading a pipe might never end
        return []
    with reading(path), path.open("rb") as file:
        return [hashlib.file_digest(file, "sha256").hexdigest()]
