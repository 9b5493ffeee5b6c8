"""Text from files and from ``datasets``: what is read, kept, left out and refused."""

import dataclasses
import functools
import gzip
import json
import os
import re
import shutil
import tempfile
import tracemalloc
import unicodedata
from collections import deque
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from datasets import Dataset, DatasetDict
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import DictConfig
from support import TINY, checked, configure, run_script
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tokenizers import Tokenizer
from tokenizers.pre_tokenizers import PreTokenizer
from tokenizers.processors import TemplateProcessing

from wawa_transformer.common import BOS, CONFIG_DIR, EOS
from wawa_transformer.common.messages import UserError, disk_error
from wawa_transformer.data import files as file_reading
from wawa_transformer.data import load, text
from wawa_transformer.data.files import on_disk, read_sentences
from wawa_transformer.data.load import kept_tokenizer, load_data, tokenize_split
from wawa_transformer.data.tasks import build_task
from wawa_transformer.data.text import TextTask
from wawa_transformer.decode.strategies import Greedy
from wawa_transformer.decode.translation import hypotheses
from wawa_transformer.lab.collect import read_lines
from wawa_transformer.run.run_dir import Run
from wawa_transformer.train.load import load_model
from wawa_transformer.train.trainer import notes, train

DATA = CONFIG_DIR.parent / "data"
SAMPLE = TextTask(
    data_dir=str(DATA), source="sample.en", target="sample.de",
    validation_size=20, test_size=20, vocab_size=400,
)  # fmt: skip
LINES = [
    tuple(pair)
    for pair in zip(
        *((DATA / f"sample.{side}").read_text("utf-8").splitlines() for side in ("en", "de")),
        strict=True,
    )
]
ODD = [
    ("a\x85b \u2028 c", "x y z"), (" ", "empty"), ("blank", "\u3000"), LINES[3], ("a", "b " * 60),
    ("[EOS] é", "é [PAD]"), ("", ""), LINES[3], ("long " * 40, "lang " * 40), ('say "c"', "z"),
]  # fmt: skip


@functools.cache
def vocabulary() -> Tokenizer:
    """The vocabulary of the sample, trained once."""
    return SAMPLE.tokenizer(SAMPLE.dataset(0))


def as_json(pairs: list[tuple[str, ...]]) -> str:
    return "".join(json.dumps({"de": target, "en": source}) + "\n" for source, target in pairs)


@pytest.fixture
def hub(tmp_path: Path) -> Path:
    """A folder as a dataset of the hub, of nine pairs."""
    (tmp_path / "hub").mkdir()
    (tmp_path / "hub" / "train.json").write_text(as_json(LINES[:9]), "utf-8")
    return tmp_path / "hub"


def write(folder: Path, **files: bytes) -> TextTask:
    for name, content in files.items():
        (folder / name).write_bytes(content)
    source, target = files
    return TextTask(
        data_dir=str(folder), source=source, target=target, validation_size=1, test_size=1
    )


# ------------------------------------------------------------------------------- what is read


def test_the_held_out_pairs_are_those_of_the_published_results() -> None:
    """They depend on the text alone, under every seed; no pair is in two splits, none is lost."""
    data = SAMPLE.dataset(0)
    assert data["test"].to_dict() == SAMPLE.dataset(1)["test"].to_dict()
    order = np.random.default_rng(text.HELD_OUT_SEED).permutation(len(LINES))
    rest = order[20:][np.random.default_rng(text.HELD_OUT_SEED).permutation(len(LINES) - 20)]
    for name, rows in (("test", order[:20]), ("validation", rest[:20]), ("train", rest[20:])):
        assert data[name]["source"][:] == [LINES[i][0] for i in rows]
    for row in data["test"]:
        words = len(row["source"].split())
        assert row["length"] % 5 == 0 and row["length"] - 5 < words <= row["length"]


def test_multi30k_as_configured() -> None:
    """29,000 training, 1,014 validation and 1,000 test pairs."""
    if not (DATA / "multi30k").is_dir():
        pytest.skip("data/multi30k is absent; data/README.md says how to get it")
    data = build_task(configure("task=multi30k", f"task.data_dir={DATA / 'multi30k'}")).dataset(0)
    assert [len(data[name]) for name in ("train", "validation", "test")] == [29000, 1014, 1000]


def test_a_folder_beside_the_command_comes_before_the_checkouts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the same name; else a text of one's own would be read only in another folder."""
    monkeypatch.chdir(tmp_path)
    assert TextTask().folder == DATA
    (tmp_path / "data").mkdir()
    assert TextTask().folder == Path("data") and TextTask(data_dir="..").folder == Path("..")


# -------------------------------------------------------------------------- vocabulary and ids


@settings(max_examples=40)
@given(st.text(alphabet=st.characters(codec="utf-8", categories=["L", "N", "P"]), min_size=1))
def test_any_text_survives_the_vocabulary(text: str) -> None:
    """Byte-level BPE has no unknown character (up to NFC, which the tokenizer applies)."""
    decoded = vocabulary().decode(vocabulary().encode(text).ids)
    assert decoded.strip() == unicodedata.normalize("NFC", text)


# ----------------------------------------------------------------------- what changes the data


def framed(tokenizer: Tokenizer) -> None:
    """Add begin and end, as tutorials of other models do."""
    special = [("[BOS]", BOS), ("[EOS]", EOS)]
    tokenizer.post_processor = TemplateProcessing(single="[BOS] $A [EOS]", special_tokens=special)


def with_python(tokenizer: Tokenizer) -> None:
    """Split by a function of Python, as jieba is used."""
    tokenizer.pre_tokenizer = PreTokenizer.custom(object())


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (framed, "adds padding, begin or end"),
        (lambda tokenizer: tokenizer.enable_padding(), "adds padding"),
        (lambda tokenizer: tokenizer.enable_truncation(9), "adds padding, .* cuts it"),
        (lambda tokenizer: setattr(tokenizer.model, "dropout", 0.5), "adds .* in another way each"),
        (with_python, "no checkpoint can hold .*Custom PreTokenizer cannot be serialized"),
    ],
)
def test_a_tokenizer_gives_the_tokens_of_a_text_alone(
    edit: Callable[[Tokenizer], None], said: str
) -> None:
    """Others would make targets that no output equals, though the text may be right."""
    task = dataclasses.replace(SAMPLE)
    splits = task.dataset(0)
    texts = splits["train"][:100]["source"]
    tokenizer = task.tokenizer(splits)
    assert kept_tokenizer(task, tokenizer, texts).to_str() == tokenizer.to_str()
    edit(tokenizer)
    with pytest.raises(UserError, match=rf"^TextTask.tokenizer\(\) returns one that {said}"):
        kept_tokenizer(task, tokenizer, texts)


def test_a_class_that_changes_a_text_changes_the_test_files_as_well(tmp_path: Path) -> None:
    """A test read by itself is that of training, also where the class gives tensors."""

    class Lower(TextTask):
        def dataset(self, seed: int) -> DatasetDict:
            lower = super().dataset(seed).map(lambda row: {"source": row["source"].lower()})
            return lower.with_format("torch")

    for side in ("en", "de"):
        lines = (DATA / f"sample.{side}").read_text("utf-8").splitlines(keepends=True)
        (tmp_path / f"test.{side}").write_text("".join(lines[:9]), "utf-8")
    files = {"test_source": f"{tmp_path}/test.en", "test_target": f"{tmp_path}/test.de"}
    task = Lower(**{**dataclasses.asdict(SAMPLE), **files})
    splits = task.dataset(0)
    digests = {
        tokenize_split(each["test"], task.tokenizer(splits)).digest
        for each in (splits, task.test(0))
    }
    assert len(digests) == 1 and all(map(str.islower, task.test(0)["test"]["source"]))


def test_every_setting_of_a_text_changes_its_digest(tmp_path: Path) -> None:
    """Whatever changes pairs, order, vocabulary or ids; the same settings give the same digest."""
    (tmp_path / "a.jsonl").write_text(as_json([*LINES[:60], *ODD]), "utf-8")
    begin = [
        "task=text", f"task.source={tmp_path}/a.jsonl", "task.validation_size=9",
        "task.test_size=7", "task.vocab_size=300", "task.max_tokens=40",
    ]  # fmt: skip
    changes = [
        [], ["task.length_bin=3"], ["task.validation_size=3"], ["task.test_size=9"],
        ["task.vocab_size=280"], ["task.max_tokens=30"], ["task.words=true"],
        ["task.source_column=de", "task.target_column=en"],
    ]  # fmt: skip
    before = [load_data(configure(*begin, *each)).digest for each in changes]
    assert len(set(before)) == len(changes)
    assert load_data(configure(*begin)).digest == before[0]
    assert load_data(configure(*begin, "seed=1", "pe=alibi")).digest == before[0]


def test_what_a_file_is_for_and_how_it_is_read_belongs_to_its_digest(tmp_path: Path) -> None:
    """Its own name and place do not."""
    for name in ("a.tsv", "b.tsv", "a.csv"):
        (tmp_path / name).write_text("a,b\tc,d\n")
    uses = [
        {"source": "a.csv"},
        *({"source": "a.tsv", f"{split}source": "a.tsv"} for split in ("", "test_", "validation_")),
    ]
    made = [TextTask(data_dir=str(tmp_path), **use).fingerprint() for use in uses]  # type: ignore[arg-type]
    assert len({*made}) == 4
    assert TextTask(source=str(tmp_path / "b.tsv")).fingerprint() == made[1]


def test_a_text_that_was_changed_is_read_again_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the same size and with its old time; and a text that changes while it is read."""
    task = write(tmp_path, source=b"a\nb\nc\nd\n", target=b"A\nB\nC\nD\n")
    path = tmp_path / "source"
    before = path.stat()
    first = task.from_files()["train"]["source"][:]
    given = [
        "task=text", f"task.data_dir={tmp_path}", "task.source=source", "task.target=target",
        "task.validation_size=1", "task.test_size=1",
    ]  # fmt: skip
    config = checked(*given)
    load_data(config)
    path.write_bytes(b"a\nb\nc\ne\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert task.from_files()["train"]["source"][:] == [*first[:3], "e"]
    with pytest.raises(UserError, match=r"files of task=text have changed .*; give the command"):
        load_data(config)

    def changes(*arguments: Path) -> object:
        yield from original(*arguments)
        path.write_bytes(b"f\n")

    config = checked(*given)
    original = file_reading.read_sentences
    monkeypatch.setattr(file_reading, "read_sentences", changes)
    with pytest.raises(UserError, match="files of task=text have changed"):
        load_data(config)
    # The folder of a run on this text is not called another configuration's alone.
    Run("text", "none", 0, tmp_path).write_config(config)
    path.unlink()
    with pytest.raises(UserError, match=r"text_digest \(its files changed, or are missing\) is"):
        Run("text", "none", 0, tmp_path).write_config(checked(*given))


@pytest.mark.parametrize("kind", ["generated", "files"])
def test_runs_that_differ_in_their_encoding_share_their_data(
    kind: str, tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a study's worker, where neither seed nor files have changed; nowhere else."""
    path = tmp_path / "a.jsonl"
    path.write_text(as_json(LINES[:60]), "utf-8")
    small = ["task=text", f"task.source={path}"]

    def config(*overrides: str) -> DictConfig:
        return tiny(*overrides) if kind == "generated" else checked(*small, *overrides)

    assert load_data(config()) is not load_data(config())
    monkeypatch.setattr(load, "LAST", deque(maxlen=1))
    data = load_data(config())
    assert load_data(config("pe=alibi", "trainer.lr=1e-4")) is data
    for other in ("seed=1", "task=sort") if kind == "generated" else ("task.length_bin=3",):
        another = load_data(config(other))
        assert another.digest != data.digest and len(load.LAST) == 1
    if kind == "files":
        data, before = load_data(config()), config()
        path.write_text(as_json(LINES[60:120]), "utf-8")
        with pytest.raises(UserError, match="have changed"):
            load_data(before)
        assert load_data(config()).digest != data.digest
        unknown = configure(*small)  # without a digest, as a dataset of the hub
        assert load_data(unknown) is not load_data(unknown)


def test_a_full_folder_of_temporary_files_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run's own folder may have room."""
    monkeypatch.setattr("tempfile.TemporaryFile", functools.partial(open, "/dev/full", "w+b"))
    batch = pa.RecordBatch.from_pydict({"a": ["b"]})
    with pytest.raises(OSError, match="No space left") as error:
        on_disk(iter([batch]), batch.schema)
    assert disk_error(error.value).startswith(f"{tempfile.gettempdir()} ($TMPDIR): No space left")


def test_a_text_stays_on_disk() -> None:
    """Ten megabytes, of which Arrow holds none; nothing is left in the folder."""
    schema = pa.schema({"text": pa.string()})
    before, files = pa.total_allocated_bytes(), os.listdir(tempfile.gettempdir())
    parts = (pa.RecordBatch.from_pydict({"text": [str(n) * 10**6]}, schema) for n in range(10))
    table = on_disk(parts, schema)
    assert pa.total_allocated_bytes() - before < 10**5 < table.nbytes
    assert [text[0] for text in table["text"].to_pylist()] == list("0123456789")
    assert set(os.listdir(tempfile.gettempdir())) <= set(files)


# -------------------------------------------------------------------------------- what is refused


def test_mistakes_in_files_are_named(tmp_path: Path) -> None:
    """Line counts, missing, empty, a pipe without an end."""
    good = b"a\nb\nc\nd\n"
    for files, message in (
        (
            {"s": good, "t": b"a\nb\n"},
            "no two texts in line 3 .*; line n of one",
        ),
        ({"s": b"a\n", "t": good}, "no two texts in line 2"),
        ({"s": b"", "t": b""}, "task.source=.*s and task.target=.*t is empty"),
        ({"s": b"a\n\n", "t": b"\nb\n"}, "the train text has no pair with words on both sides"),
        ({"s": b"a" * 10_001 + b"\n", "t": b"b\n"}, "no pair .*, each of at most 10,000 bytes"),
        ({"s": good, "t": good}, "test_size=3 and task.validation_size=1: nothing is left of 4"),
    ):
        with pytest.raises(UserError, match=message):
            dataclasses.replace(write(tmp_path, **files), test_size=3).dataset(0)
    os.mkfifo(tmp_path / "pipe")
    for folder, source, message in (
        (tmp_path, "nowhere", "task.source=.*nowhere does not exist or"),
        (tmp_path, "pipe", "task.source=.*pipe .* is no ordinary file; .* folder in task.data_dir"),
        (tmp_path / "none", "s", "task.data_dir=.*task.hub=bentrevett/multi30k"),
        (tmp_path / "s", "s", "task.data_dir=.*s is no folder; point it at the folder that holds"),
    ):
        with pytest.raises(UserError, match=message):
            TextTask(data_dir=str(folder), source=source, target="t").dataset(0)
    with pytest.raises(UserError, match="task.vocab_size=100 must be at least 260"):
        TextTask(vocab_size=100)


def test_another_test_is_looked_for_beside_the_training_files() -> None:
    """Which may be packed, or hold both sides; a dataset has none."""
    for files, expected in (
        ({"source": "a/train.en.gz", "target": "b/train.de.gz"}, ("a/t.en.gz", "b/t.de.gz")),
        ({"source": "train.tsv"}, ("t.tsv", None)),
    ):
        task = TextTask(**files).named("t")  # type: ignore[arg-type]
        assert (task.test_source, task.test_target) == expected
    with pytest.raises(UserError, match="test_sets=t is looked for beside the files of this run"):
        TextTask(hub="there").named("t")


@pytest.mark.parametrize("key", ["source", "validation_source", "test_source"])
def test_a_hub_dataset_and_files_are_never_read_together(key: str) -> None:
    with pytest.raises(UserError, match=f"task.hub=.* and task.{key}=own.tsv both name texts"):
        TextTask(hub="there", **{key: "own.tsv"}).dataset(0)  # type: ignore[arg-type]


def test_a_name_with_a_reference_is_refused() -> None:
    """Escaped on the command line, or of the folder in which a run is evaluated."""
    said = "task.data_dir: Interpolation key 'x' not found"
    with pytest.raises(UserError, match=said):
        checked("task=text", r"task.data_dir='\${x}'")
    config = configure("task=text")
    config.task.data_dir = "/here/${x}"
    with pytest.raises(UserError, match=said):
        build_task(config)


def test_a_size_that_a_set_does_not_need_makes_no_other_run(hub: Path) -> None:
    """Its own split is read; also of a folder that the library saved. A hub is not asked."""
    assert TextTask(hub=str(hub)).without_effect() == {"data_dir"}
    shutil.copy(hub / "train.json", hub / "test.json")
    rows = Dataset.from_dict({"en": ["a"], "de": ["b"]})
    DatasetDict({"train": rows, "test": rows}).save_to_disk(hub / "saved")
    for each in (hub, hub / "saved"):
        assert TextTask(hub=str(each)).without_effect() == {"data_dir", "test_size"}
    for name in ("train", "test"):
        (hub / f"{name}.json").rename(hub / f"{name.upper()}.json")
    assert TextTask(hub=str(hub)).without_effect() == {"data_dir", "test_size"}


def test_a_test_of_a_dataset_needs_no_other_split(hub: Path) -> None:
    """It may have no training split, or one that is smaller than what is held out."""
    task = TextTask(hub=str(hub))
    with pytest.raises(UserError, match="nothing is left of 9 training pairs"):
        task.test(0)
    train, test = (hub / f"{name}.json" for name in ("train", "test"))
    shutil.copy(train, test)
    for _ in range(2):
        assert [*task.test(0)] == ["test"] and len(task.test(0)["test"]) == 9
        train.unlink(missing_ok=True)
    own = hub / "one.tsv"  # a file that evaluate.py names comes first
    own.write_text("a\tb\n")
    assert len(dataclasses.replace(task, test_source=str(own)).test(0)["test"]) == 1
    test.rename(hub / "validation.json")
    with pytest.raises(UserError, match="it has no split train"):
        task.test(0)


def test_a_small_file_that_unpacks_to_one_long_line_is_not_unpacked(tmp_path: Path) -> None:
    """No more than the longest line there may be is ever in memory."""
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(b"a" * 2 * 10**7))
    tracemalloc.start()
    with pytest.raises(UserError, match="more than 1,000,000 bytes in line 1"):
        list(read_sentences(path, "task.source"))
    assert tracemalloc.get_traced_memory()[1] < 10**7
    tracemalloc.stop()


# ---------------------------------------------------------------------------------- whole runs


def test_a_text_run_ends_with_bleu_and_needs_no_text_to_translate(
    tmp_path: Path,
) -> None:
    """BLEU with its signature; after the text is gone the same translations."""
    for side in ("en", "de"):
        shutil.copy(DATA / f"sample.{side}", tmp_path)
    config = configure(
        *TINY[:3], "task=text", f"task.data_dir={tmp_path}", "task.vocab_size=300",
        "trainer.steps=2", "trainer.warmup=1", f"output_dir={tmp_path}/o", "progress=false",
        "trainer.device=cpu", "pictures=false",
    )  # fmt: skip
    translation = train(config)["translation"]
    assert 0 <= translation["bleu"] <= 100
    assert "tok:13a" in translation["signature"] and "version:" in translation["signature"]
    run = Run.from_config(config)
    test = build_task(config).dataset(0)["test"]
    model, tokenizer, _ = load_model(run)
    examples = tokenize_split(test, tokenizer)
    for path in tmp_path.glob("sample.*"):
        path.unlink()
    elsewhere = Run.at(shutil.move(run.directory, tmp_path / "elsewhere"))
    model, tokenizer, _ = load_model(elsewhere)
    every = hypotheses(model, tokenizer, examples.source, Greedy())
    found = [best.text for best, *_ in every]
    assert found == read_lines(elsewhere.translations_file) and len(found) == 20


def test_a_run_says_what_its_score_leaves_out_and_its_tables_stay_whole(tmp_path: Path) -> None:
    """In the result and in the last line: long and blank test pairs, sources known from training.

    A line break in a text breaks neither the list of samples nor TensorBoard's table.
    """
    pairs = [(f"first {i}\nsecond | {i}", f"erste {i}\r\nzweite") for i in range(20)]
    lines = [json.dumps({"en": s, "de": t}) for s, t in pairs]
    (tmp_path / "train.jsonl").write_text("\n".join([*lines, *lines]) + "\n", "utf-8")
    long, word = (json.dumps({"en": text, "de": "c"}) for text in ("b " * 200, "b" * 10_001))
    (tmp_path / "test.jsonl").write_text("\n".join([*lines[:9], "", long, word]) + "\n", "utf-8")
    done = run_script(
        "train.py", *TINY[:3], "task=text", f"task.data_dir={tmp_path}", "task.source=train.jsonl",
        "task.test_source=test.jsonl", "task.validation_size=2", "trainer.steps=2",
        "trainer.warmup=1", "trainer.device=cpu", "pictures=false", f"run_dir={tmp_path}/run",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "1 test pairs of 128 tokens or more left out (task.max_tokens)" in done.stderr
    run = Run.at(tmp_path / "run")
    result = run.result()
    assert result["left_out"] == {
        "train": {"blank": 0, "too_long": 0}, "validation": {"blank": 0, "too_long": 0},
        "test": {"blank": 1, "too_long": 2},
    }  # fmt: skip
    assert result["test"]["examples"] == 9 == len(read_lines(run.translations_file))
    last = done.stdout.splitlines()[-1]
    assert "9 of 12 test pairs; 2 longer than task.max_tokens, 1 blank; " in last
    assert last.endswith("all 9 test sources are also in the training split")
    for which in ("first pair", "first test pair"):
        assert f"{which}: first 0\\nsecond | 0 → erste 0\\r\\nzweite\n" in done.stderr
    samples = result["translation"]["samples"]
    assert (
        samples[0]["source"] == "first 0 second | 0" and samples[0]["reference"] == "erste 0 zweite"
    )
    events = EventAccumulator(str(run.directory)).Reload()
    [table] = events.Tensors("samples/text_summary")
    rows = table.tensor_proto.string_val[0].decode().splitlines()
    assert len(rows) == 2 + 2 and all(len(re.split(r"(?<!\\)\|", row)) == 5 for row in rows)


def test_test_sources_that_training_held_are_counted(tmp_path: Path) -> None:
    """Not only where they are all of the test; a generated task shows two columns instead."""
    scores = {"exact_match": 1.0, "examples": 20, "new": {"examples": 15}}
    assert notes({"test": scores, "translation": {"answer": "bleu"}}) == [
        "5 of 20 test sources are also in the training split"
    ]
    assert notes({"test": scores, "translation": None}) == []
    [said] = notes({"test": scores, "translation": None, "init": {"matched": 1}})
    assert said.endswith("count as new, though trainer.init_from may have had them")


@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied"), OSError(5, "I/O")])
def test_a_text_that_cannot_be_read_now_is_not_called_damaged(
    error: OSError, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither when its digest is computed nor when it is read, of any kind."""
    task = write(tmp_path, source=b"a\nb\nc\n", target=b"a\nb\nc\n")
    others = [TextTask(source=str(tmp_path / f"pairs.{kind}")) for kind in ("json", "tsv")]
    for other in others:
        Path(str(other.source)).touch()

    def fails(path: Path, *given: str) -> None:
        raise error

    monkeypatch.setattr(Path, "open", fails)
    for use in (task.fingerprint, task.from_files, *(other.from_files for other in others)):
        with pytest.raises(UserError, match="(source|pairs.*) cannot be read now") as refused:
            use()
        assert "damage" not in str(refused.value) and "fetch" not in str(refused.value)
