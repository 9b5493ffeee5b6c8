"""A text on disk is the text in memory: the same pairs, vocabulary, ids and batches; and faults."""

from __future__ import annotations

import gzip
import itertools
import json
import multiprocessing
import os
import shutil
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import TINY, configure
from datasets import Dataset
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wawa_transformer.common.files import CONFIG_DIR, read_lines
from wawa_transformer.common.schema import UserError
from wawa_transformer.common.seeds import seed_for
from wawa_transformer.data import cache, corpus, text
from wawa_transformer.data.batching import RaggedSequences, batch_indices
from wawa_transformer.data.load import tokenize_split
from wawa_transformer.data.text import TextTask, build_task
from wawa_transformer.decode.translation import translate
from wawa_transformer.run.run_dir import Run
from wawa_transformer.train import checkpoint
from wawa_transformer.train.evaluation import evaluate_by_length as scored
from wawa_transformer.train.loop import batch_stream, train

DATA = CONFIG_DIR.parent / "data"
SPLITS = ("train", "validation", "test")
SMALL = {"validation_size": 9, "test_size": 7, "vocab_size": 300}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own, and few pairs at once, so that every border is crossed."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(corpus, "AT_ONCE", 7)
    monkeypatch.setattr(cache, "WORTH", -1.0)
    return tmp_path / "cache" / "wawa_transformer"


def sides(files: Path, name: str, pairs: list[tuple[str, str]]) -> dict[str, str]:
    """The pairs as files of a kind, and the settings that name them."""
    if name == "hub":
        rows = [json.dumps({"en": s, "de": t}) for s, t in pairs]
        (files / "hub").mkdir()
        (files / "hub" / "train.json").write_text("\n".join(rows), "utf-8")
        return {"hub": str(files / "hub")}
    if name.startswith("pairs"):
        tabs = "".join(f"{s}\t{t}\n" for s, t in pairs)
        lines = "".join(json.dumps({"en": s, "de": t}) + "\n" for s, t in pairs)
        content = {f"{name}": tabs if "tsv" in name else lines}
        named = {"source": name}
    else:
        content = {
            f"{side}.{name}": "".join(f"{pair[i]}\n" for pair in pairs)
            for i, side in enumerate(("source", "target"))
        }
        named = {"source": f"source.{name}", "target": f"target.{name}"}
    for path, lines in content.items():
        raw = lines.encode()
        (files / path).write_bytes(gzip.compress(raw) if path.endswith("gz") else raw)
    return {"data_dir": str(files), **named}


def made(task: TextTask, capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    """All that a run takes from a task, and what was said of it."""
    capsys.readouterr()
    data = task.dataset(0)
    tokenizer = task.tokenizer(data)
    found: dict[str, object] = {"tokenizer": tokenizer.to_str()}
    for name in SPLITS:
        examples = tokenize_split(data[name], tokenizer, task.max_tokens, name)
        found[f"{name} rows"] = examples.text.to_dict()
        for side in (examples.source, examples.target):
            found[f"{name} {side is examples.target}"] = [ids.tolist() for ids in side]
        found[f"{name} batches"] = list(batch_indices(examples.sizes, 400, 1, 2, True))
    said = capsys.readouterr().err.splitlines()
    found["said"] = [line for line in said if "left out" in line]
    found["made"] = sum(line.startswith(("reading", "writing")) for line in said)
    return found


LINES = [
    tuple(pair)
    for pair in zip(
        *((DATA / f"sample.{side}").read_text("utf-8").splitlines() for side in ("en", "de")),
        strict=True,
    )
]
ODD = [
    ("a\x85b \u2028 c", "x y z"), (" ", "empty"), ("blank", "\u3000"), LINES[3], ("a", "b " * 60),
    ("[EOS] é", "é [PAD]"), ("", ""), LINES[3], ("long " * 40, "lang " * 40),
]  # fmt: skip


@pytest.mark.parametrize("name", ["txt", "txt.gz", "pairs.tsv", "pairs.jsonl.gz", "hub"])
@pytest.mark.parametrize("clean", [{}, {"max_ratio": 2.0, "drop_duplicates": True}])
def test_a_text_on_disk_is_the_text_in_memory(
    name: str, clean: dict[str, object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Pairs, vocabulary, ids, batches and what was left out; the second time nothing is read."""
    task = {**SMALL, **clean, **sides(tmp_path, name, [*LINES[:150], *ODD]), "max_tokens": 40}
    memory = made(TextTask(**task), capsys)
    first, second = (made(TextTask(**task, stream=True), capsys) for _ in range(2))
    assert memory.pop("made") == 0 and first.pop("made") == 3 and second.pop("made") == 0
    assert first == second == memory
    expected = ["blank", "ratio", "before", "tokens"] if clean else ["blank", "tokens"]
    assert all(any(word in line for line in memory["said"]) for word in expected)


def test_other_settings_find_nothing_of_those_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One cache, one text, and whatever changes pairs, order, vocabulary or ids."""
    task = {**SMALL, **sides(tmp_path, "pairs.jsonl", [*LINES[:100], *ODD]), "max_tokens": 40}
    for other in (
        {}, {"max_ratio": 2.0}, {"max_ratio": 1.5}, {"drop_duplicates": True}, {"length_bin": 3},
        {"validation_size": 3}, {"test_size": 9}, {"vocab_size": 280}, {"max_tokens": 30},
        {"source_column": "de", "target_column": "en"},
    ):  # fmt: skip
        memory, disk = (
            made(TextTask(**{**task, **other}, stream=on), capsys) for on in (False, True)
        )
        del memory["made"], disk["made"]
        assert memory == disk, other


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    pairs=st.lists(
        st.tuples(*(st.text("ab \x85\u2028\u00e9\u3000\U0001f600", max_size=9) for _ in range(2))),
        min_size=1,
        max_size=60,
    ),
    ratio=st.one_of(st.none(), st.floats(1, 4)),
    once=st.booleans(),
)
def test_any_pairs_are_cleaned_alike(
    pairs: list[tuple[str, str]], ratio: float | None, once: bool, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """The same rows in the same order, the same counts, or the same refusal."""
    task = sides(tmp_path, "pairs.jsonl", pairs)
    found = []
    for on_disk in (False, True):
        try:
            rows: object = TextTask(
                **task, max_ratio=ratio, drop_duplicates=once, stream=on_disk
            ).from_files()["train"].to_dict()  # fmt: skip
        except UserError as error:
            rows = str(error)
        said = capsys.readouterr().err.splitlines()
        found.append((rows, [line for line in said if "left out" in line]))
    assert found[0] == found[1]


@given(st.lists(st.integers(0, 5), max_size=40))
def test_of_equal_rows_the_first_stays(numbers: list[int]) -> None:
    """As a dictionary's keys do; both halves of a digest count."""
    table = np.array([[n % 2, n // 2] for n in numbers], np.uint64).reshape(-1, 2)
    kept = [numbers[i] for i in corpus.firsts(table)]
    assert kept == list(dict.fromkeys(numbers))
    tied = {corpus.digest(pair) for pair in (("a\0b", "c", 1), ("a", "b\0c", 1), ("a", "bc", 1))}
    assert len(tied) == 3


def test_the_held_out_pairs_are_those_of_datasets() -> None:
    """What ``train_test_split`` held out before, since results that are published are of those."""
    whole = Dataset.from_dict({"line": [pair[0] for pair in LINES]})
    parts = whole.train_test_split(test_size=20, seed=text.HELD_OUT_SEED)
    again = parts["train"].train_test_split(test_size=30, seed=text.HELD_OUT_SEED)
    ours = TextTask(data_dir=str(DATA), source="sample.en", target="sample.de", test_size=20,
                    validation_size=30).dataset(0)  # fmt: skip
    theirs = (again["train"], again["test"], parts["test"])
    for name, split in zip(SPLITS, theirs, strict=True):
        assert ours[name]["source"][:] == split["line"][:]


def test_ids_are_mapped_and_pairs_are_never_all_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python's own allocations stay under a fifth of the text; from memory they are above it."""
    monkeypatch.setattr(corpus, "AT_ONCE", 100)
    pairs = [(f"{n} " * 40, f"{n} " * 30) for n in range(2500)]
    task = {**SMALL, **sides(tmp_path, "txt", pairs), "max_tokens": 5000}
    size = sum(path.stat().st_size for path in tmp_path.glob("*.txt"))
    peaks = []
    for on_disk in (True, False):
        ours = TextTask(**task, stream=on_disk)
        tracemalloc.start()
        data = ours.dataset(0)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        if on_disk:
            examples = tokenize_split(data["train"], ours.tokenizer(data), 5000)
    assert peaks[0] < size / 5 < size < peaks[1]
    for side in (examples.source, examples.target):
        assert isinstance(side.ids.base, np.memmap) and side.ids.dtype == np.uint16
        assert side.sizes.dtype == np.int32 and side.begin.dtype == np.uint32
        assert side.begin.max() > 2**16


def test_a_vocabulary_is_made_from_pairs_that_are_evenly_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to a limit all of them; beyond it the same ones from disk and from memory."""
    monkeypatch.setattr(text, "VOCABULARY_PAIRS", 40)
    task = {**SMALL, **sides(tmp_path, "txt", LINES), "vocab_size": 400}
    found = []
    for on_disk in (False, True):
        ours = TextTask(**task, stream=on_disk)
        found.append(ours.tokenizer(data := ours.dataset(0)).to_str())
        some = (
            TextTask(**task, stream=False)
            .dataset(0)["train"]
            .select(range(0, len(data["train"]), 6))
        )
        monkeypatch.setattr(text, "VOCABULARY_PAIRS", 10**6)
        found.append(TextTask(**task).tokenizer({"train": some}).to_str())  # type: ignore[arg-type]
        whole = ours.tokenizer(data).to_str()
        monkeypatch.setattr(text, "VOCABULARY_PAIRS", 40)
    assert len(set(found)) == 1 and whole not in found


# ------------------------------------------------------------------------------------- windows


def plan_before(sizes, batch_tokens, seed, epoch, bucket):
    """An epoch in one window, as it was cut when all of it was held in lists."""
    widths, random = np.asarray(sizes), np.random.default_rng(seed_for(seed, "order", epoch))
    order = random.permutation(len(widths))
    if bucket:
        order = order[np.argsort(widths[order], kind="stable")]
    batches = [[]]
    for index in order.tolist():
        if (len(batches[-1]) + 1) * max(sizes[i] for i in [*batches[-1], index]) > batch_tokens:
            batches.append([])
        batches[-1].append(index)
    return [batches[i] for i in random.permutation(len(batches))] if bucket else batches


SIZES = st.lists(st.integers(1, 40), min_size=1, max_size=150)


@settings(max_examples=60)
@given(SIZES, st.integers(40, 300), st.integers(0, 5), st.integers(0, 5), st.booleans())
def test_an_epoch_of_one_window_is_what_it_always_was(
    sizes: list[int], budget: int, seed: int, epoch: int, bucket: bool
) -> None:
    """Results that are published, and runs that are continued, depend on it."""
    expected = plan_before(sizes, budget, seed, epoch, bucket)
    assert list(batch_indices(sizes, budget, seed, epoch, bucket)) == expected


@settings(max_examples=40)
@given(SIZES, st.integers(1, 60), st.booleans())
def test_windows_cut_an_epoch_into_parts_of_the_one_permutation(
    sizes: list[int], window: int, bucket: bool
) -> None:
    """Every example once; each window's own together, and within the budget."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("wawa_transformer.data.batching.WINDOW", window)
        batches = list(batch_indices(sizes, 100, 3, 4, bucket))
        assert batches == list(batch_indices(sizes, 100, 3, 4, bucket))
    order = np.random.default_rng(seed_for(3, "order", 4)).permutation(len(sizes)).tolist()
    flat = [i for batch in batches for i in batch]
    for first in range(0, len(sizes), window):
        assert sorted(flat[first : first + window]) == sorted(order[first : first + window])
    assert all(len(batch) * max(sizes[i] for i in batch) <= 100 for batch in batches)
    assert all(batches)


@pytest.mark.parametrize("accumulate", [1, 3])
def test_a_run_goes_on_over_the_borders_of_windows_and_epochs(
    accumulate: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From any step on the batches are those of the run that was never stopped."""
    monkeypatch.setattr("wawa_transformer.data.batching.WINDOW", 50)
    task = TextTask(**{**SMALL, **sides(tmp_path, "txt", LINES[:180])}, stream=True)
    data = task.dataset(0)
    examples = tokenize_split(data["train"], task.tokenizer(data))
    trainer = configure(
        "trainer=text", "trainer.batch_tokens=300", f"trainer.accumulate={accumulate}"
    ).trainer
    epoch = len(list(batch_indices(examples.sizes, 300, 5, 0, True)))
    assert len(examples.source) == 164 and epoch > 12
    count = 2 * epoch // accumulate + 3
    steps = list(itertools.islice(batch_stream(examples, trainer, 5, 0), count))
    for begin in range(count - 2):
        again = list(itertools.islice(batch_stream(examples, trainer, 5, begin), 2))
        for ours, theirs in zip(steps[begin : begin + 2], again, strict=True):
            for a, b in zip(ours, theirs, strict=True):
                assert torch.equal(a.source, b.source) and torch.equal(a.target_out, b.target_out)


def test_sequences_may_lie_anywhere_in_their_array() -> None:
    """Chosen ones are not copied, and are read from where they are."""
    every = RaggedSequences.of([[5], [6, 7], [], [8, 9, 10]])
    some = every.chosen(np.array([3, 1, 3]))
    assert some.ids is every.ids and [ids.tolist() for ids in some] == [
        [8, 9, 10],
        [6, 7],
        [8, 9, 10],
    ]
    assert some.padded([1, 0]).tolist() == [[6, 7, 0], [8, 9, 10]]
    assert some.chosen(np.array([1])).padded([0], first=1).tolist() == [[7]]


# ---------------------------------------------------------------------------------- whole runs


def test_a_streamed_run_is_the_run_from_memory_and_needs_no_text_to_translate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same numbers; its test again, from the cache or without it; its folder elsewhere."""
    shutil.copy(DATA / "sample.en", tmp_path)
    shutil.copy(DATA / "sample.de", tmp_path)
    common = [
        *TINY[:3], "task=text", f"task.data_dir={tmp_path}", "trainer=text", "trainer.steps=6",
        "trainer.warmup=1", "trainer.eval_every=3", "trainer.device=cpu",
        "trainer.attention_maps=false", "progress=false", "trainer.batch_tokens=300",
        "task.validation_size=5", "task.test_size=5", f"output_dir={tmp_path}/o",
    ]  # fmt: skip
    monkeypatch.setattr("wawa_transformer.data.batching.WINDOW", 64)
    results, configs = [], []
    for on_disk in ("false", "true"):
        configs.append(configure(*common, f"task.stream={on_disk}"))
        results.append(train(configs[-1]))
    same = ("test", "by_length", "validation", "translation", "flops_per_step")
    assert [results[0][key] for key in same] == [results[1][key] for key in same]
    run, other = (Run.of(config) for config in reversed(configs))
    assert run.directory != other.directory
    shutil.rmtree(tmp_path / "cache")
    model, tokenizer, config = checkpoint.load_model(run)
    task = build_task(config)
    test = tokenize_split(task.test(config.seed)["test"], tokenizer, task.longest_pair, "test")
    assert scored(task, model, test)["test"].items() <= results[1]["test"].items()
    elsewhere = Run.at(shutil.move(run.directory, tmp_path / "elsewhere"))
    for path in (*tmp_path.glob("sample.*"), tmp_path / "cache"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    model, tokenizer, _ = checkpoint.load_model(elsewhere)
    assert translate(model, tokenizer, test) == read_lines(elsewhere.translations_file)


# -------------------------------------------------------------------------------------- faults


def fill(path: Path) -> dict[str, int]:
    (path / "first").write_bytes(b"abc")
    (path / "second").write_bytes(b"d")
    return {"so many": 2}


def test_a_folder_is_made_once_and_again_where_it_is_not_whole(folder: Path) -> None:
    """Another key is another folder; a file that is cut, longer or gone is noticed."""
    turns = []

    def make(path: Path) -> dict[str, int]:
        turns.append(path)
        assert {each.name for each in path.iterdir()} <= {"lock"}, "begun in an empty folder"
        return fill(path)

    path, said = cache.folder("a", make)
    assert cache.folder("a", make) == (path, said) and said == {"so many": 2} and len(turns) == 1
    assert cache.folder("b", make)[0] != path and len(turns) == 2
    for name, content in (("first", b"ab"), ("first", b"abcd"), ("second", None)):
        (path / name).write_bytes(content) if content else (path / name).unlink()
        assert cache.folder("a", make) == (path, said)
        assert (path / "first").read_bytes() == b"abc" and (path / "second").read_bytes() == b"d"
    for damage in (b"", b"{", b"[]", b'{"files": 1}', b'{"files": {"first": 3, "second": 1}}'):
        (path / cache.WHOLE).write_bytes(damage)
        assert cache.folder("a", make) == (path, said)
    assert len(turns) == 10


@pytest.mark.parametrize(
    "kind", [KeyboardInterrupt, UserError("bad line"), OSError(28, "No space")]
)
def test_what_was_interrupted_leaves_nothing(kind: BaseException, folder: Path) -> None:
    """Neither files, which would fill the disk, nor anything to be taken for whole."""

    def stopped(path: Path) -> dict[str, int]:
        fill(path)
        raise kind

    expected = UserError if isinstance(kind, OSError) else kind
    expected = expected if isinstance(expected, type) else type(expected)
    with pytest.raises(expected) as error:
        cache.folder("a", stopped)
    if isinstance(kind, OSError):
        assert "cannot be written (No space); set XDG_CACHE_HOME" in str(error.value)
    assert {each.name for each in folder.rglob("*") if each.is_file()} <= {"lock"}
    assert cache.folder("a", fill)[1] == {"so many": 2}


FORK = multiprocessing.get_context("fork")  # without the seconds that importing torch takes


def test_a_process_that_is_killed_is_followed_by_one_that_begins_anew(folder: Path) -> None:
    """Half a file is there, no lock is held, and nobody takes it for the whole."""

    def die(path: Path) -> dict[str, int]:
        (path / "first").write_bytes(b"ab")
        os._exit(9)

    killed = FORK.Process(target=cache.folder, args=("a", die))
    killed.start()
    killed.join(60)
    [left] = folder.rglob("first")
    assert killed.exitcode == 9 and left.read_bytes() == b"ab"
    path, _ = cache.folder("a", fill)
    assert left == path / "first" and left.read_bytes() == b"abc"


def test_two_processes_that_want_the_same_text_read_it_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """One reads, the other says for whom it waits, and both have all of it."""

    def make(path: Path) -> dict[str, int]:
        with (tmp_path / "log").open("a") as log:
            log.write(f"{os.getpid()}\n")
        began.set()
        time.sleep(0.5)
        return fill(path)

    def both() -> None:
        path, said = cache.folder("a", make)
        os._exit(0 if said == {"so many": 2} and (path / "first").read_bytes() == b"abc" else 1)

    began = FORK.Event()
    first, second = (FORK.Process(target=both) for _ in range(2))
    first.start()
    assert began.wait(60)
    second.start()
    for process in (first, second):
        process.join(60)
        assert process.exitcode == 0
    assert (tmp_path / "log").read_text() == f"{first.pid}\n"
    assert f"waiting for process {first.pid} on host" in capfd.readouterr().err


def test_a_full_disk_and_a_folder_that_cannot_be_are_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder, the reason, and where else to go."""
    task = TextTask(**{**SMALL, **sides(tmp_path, "txt", LINES)}, stream=True)

    class Full:
        def __enter__(self):
            return self

        def __exit__(self, *exception: object) -> None:
            pass

        def write_batch(self, batch: object) -> None:
            raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(corpus, "writer", lambda *_: Full())
        with pytest.raises(UserError, match=r"\(No space left on device\); set XDG_CACHE_HOME to"):
            task.dataset(0)
    assert len(task.dataset(0)["train"]) == 224
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(UserError, match="cannot be written .*; set XDG_CACHE_HOME to a folder"):
        task.dataset(0)


def test_a_text_that_was_changed_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the same size and with its old time; and one that changes meanwhile is refused."""
    task = TextTask(**{**SMALL, **sides(tmp_path, "txt", LINES)}, stream=True)
    path = tmp_path / "source.txt"
    before, content = path.stat(), path.read_bytes()
    first = task.dataset(0)["train"]["source"][:]
    path.write_bytes(content.replace(b"a", b"e"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert task.dataset(0)["train"]["source"][:] != first
    path.write_bytes(content)

    def clean(self: TextTask, *arguments: object) -> object:
        os.utime(path)
        yield from original(self, *arguments)

    original = TextTask.clean
    monkeypatch.setattr(TextTask, "clean", clean)
    with pytest.raises(UserError, match=r"source.txt or .* was changed while it was read"):
        task.dataset(0)


def test_mistakes_in_a_text_on_disk_are_named_as_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same sentences; no limit of size, but one of a line's, which a bomb would pass."""
    good = b"a\nb\nc\nd\n"
    for source, target, message in (
        (good, b"a\nb\n", "source has 4 lines and .*target has 2"),
        (b"a\n", good, "source has 1 lines and .*target has 4"),
        (good, b"\n \n", "task.target=.*target is empty"),
        (good, b" \n\n \n \n\n", "task.target=.*target is empty"),
        (b"a\nb\xff\nc\nd\n", good, "task.source=.*source is not UTF-8 in line 2"),
        (b"\n", b"\n", "task.source=.* is empty"),
        (b"a\n\n", b"\nb\n", "the train text has no pair with words on both sides"),
    ):
        for name, content in (("source", source), ("target", target)):
            (tmp_path / name).write_bytes(content)
        for on_disk in (False, True):
            with pytest.raises(UserError, match=message):
                TextTask(
                    data_dir=str(tmp_path), source="source", target="target", stream=on_disk
                ).from_files()
    monkeypatch.setattr(text, "MOST_BYTES", 1000)
    monkeypatch.setattr(text, "LONGEST_LINE", 100)
    files = sides(tmp_path, "txt.gz", [("x" * 90, "y" * 90)] * 30)
    with pytest.raises(UserError, match="more than 1,000 bytes .* task.stream=true, or split it"):
        TextTask(**files).from_files()
    assert len(TextTask(**files, stream=True).from_files()["train"]) == 30
    more = {"test_source": files["source"], "test_target": files["target"]}
    with pytest.raises(UserError, match="task.test_source=.* more than 1,000 bytes"):
        TextTask(**files, **more, stream=True).from_files()
    files = sides(tmp_path, "txt.gz", [("x", "y"), ("x" * 10**6, "y")])
    with pytest.raises(UserError, match="source.txt.gz has more than 100 bytes in line 2; cut it"):
        TextTask(**files, stream=True).from_files()


def test_a_small_file_that_unpacks_to_one_long_line_is_not_unpacked(tmp_path: Path) -> None:
    """No more than the longest line there may be is ever in memory."""
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(b"a" * 2 * 10**7))
    tracemalloc.start()
    with pytest.raises(UserError, match="more than 1,000,000 bytes in line 1"):
        list(text.read_sentences(path, "task.source", stream=True))
    assert tracemalloc.get_traced_memory()[1] < 10**7
    tracemalloc.stop()
