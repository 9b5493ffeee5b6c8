"""Text from files and from ``datasets``, its vocabulary, and what is wrong with bad files."""

from __future__ import annotations

import dataclasses
import gzip
import json
import os
import re
from pathlib import Path

import pytest
from conftest import TINY, configure
from hypothesis import given, settings
from hypothesis import strategies as st

from wawa_transformer.common.files import CONFIG_DIR, read_lines
from wawa_transformer.common.schema import UserError
from wawa_transformer.data import text
from wawa_transformer.data.text import TextTask, build_task, read_sentences
from wawa_transformer.run.run_dir import Run
from wawa_transformer.train.loop import train

DATA = CONFIG_DIR.parent / "data"
SAMPLE = TextTask(
    data_dir=str(DATA), source="sample.en", target="sample.de",
    validation_size=20, test_size=20, vocab_size=400,
)  # fmt: skip
TOKENIZER = SAMPLE.tokenizer(SAMPLE.dataset(0))


def write(folder: Path, **files: bytes) -> TextTask:
    for name, content in files.items():
        (folder / name).write_bytes(content)
    source, target = files
    return TextTask(
        data_dir=str(folder), source=source, target=target, validation_size=1, test_size=1
    )


def test_every_seed_is_tested_on_the_same_pairs() -> None:
    """Held-out pairs depend on the text alone; no pair is in two splits; none is lost."""
    first, other = SAMPLE.dataset(0), SAMPLE.dataset(1)
    assert first["test"].to_dict() == other["test"].to_dict()
    assert [len(first[name]) for name in ("train", "validation", "test")] == [200, 20, 20]
    lines = (DATA / "sample.en").read_text(encoding="utf-8").splitlines()
    found = [s for split in first.values() for s in split["source"]]
    assert sorted(found) == sorted(lines)
    for row in first["test"]:
        words = len(row["source"].split())
        assert row["length"] % 5 == 0 and row["length"] - 5 < words <= row["length"]


@settings(max_examples=40)
@given(st.text(alphabet=st.characters(codec="utf-8", categories=["L", "N", "P"]), min_size=1))
def test_any_text_survives_the_vocabulary(text: str) -> None:
    """Byte-level BPE has no unknown character (up to NFC, which the tokenizer applies)."""
    import unicodedata

    decoded = TOKENIZER.decode(TOKENIZER.encode(text).ids)
    assert decoded.strip() == unicodedata.normalize("NFC", text)


def test_a_special_token_in_text_is_text() -> None:
    """A corpus that contains "[EOS]" must not be able to end a sentence."""
    ids = TOKENIZER.encode("say [EOS] and [PAD]").ids
    assert min(ids) > 3
    assert TOKENIZER.decode(ids).strip() == "say [EOS] and [PAD]"


def test_gzipped_files_and_a_local_dataset_give_the_same_pairs(tmp_path: Path) -> None:
    """The three ways in lead to one place."""
    source = [f"line {i} here" for i in range(12)]
    target = [f"Zeile {i} hier" for i in range(12)]
    left, right = "\n".join(source).encode(), "\n".join(target).encode()
    plain = write(tmp_path, s=left, t=right).dataset(0)
    packed = write(tmp_path, **{"s.gz": gzip.compress(left), "t.gz": gzip.compress(right)}).dataset(
        0
    )
    folder = tmp_path / "json"
    folder.mkdir()
    rows = [json.dumps({"en": s, "de": t}) for s, t in zip(source, target, strict=True)]
    (folder / "train.json").write_text("\n".join(rows))
    local = TextTask(hub=str(folder), validation_size=1, test_size=1).dataset(0)
    for split in ("train", "validation", "test"):
        assert plain[split].to_dict() == packed[split].to_dict() == local[split].to_dict()


def test_mistakes_in_files_are_named(tmp_path: Path) -> None:
    """Line counts, missing, empty, not UTF-8 with its line, damaged gzip."""
    good = b"a\nb\nc\nd\n"
    for files, message in (
        ({"s": good, "t": b"a\nb\n"}, "s has 4 lines and .*t has 2"),
        ({"s": good, "t": b"\n \n"}, "task.target=.*t is empty"),
        ({"s": b"a\nb\xff\nc\nd\n", "t": good}, "task.source=.*s is not UTF-8 in line 2"),
        ({"s.gz": gzip.compress(good)[:-6], "t": good}, "task.source=.*damaged gzip"),
    ):
        with pytest.raises(UserError, match=message):
            write(tmp_path, **files).dataset(0)
    with pytest.raises(UserError, match="task.source=.*nowhere cannot be read"):
        TextTask(data_dir=str(tmp_path), source="nowhere", target="t").dataset(0)
    with pytest.raises(UserError, match="task.data_dir=.*task.hub=bentrevett/multi30k"):
        TextTask(data_dir=str(tmp_path / "none"), source="s", target="t").dataset(0)
    with pytest.raises(UserError, match="must name two files"):
        TextTask().dataset(0)
    with pytest.raises(UserError, match="task.test_size=500 leaves nothing of 4"):
        TextTask(data_dir=str(tmp_path), source="t", target="t").dataset(0)
    with pytest.raises(UserError, match="task.vocab_size=100 must be at least 260"):
        TextTask(vocab_size=100)


def test_pairs_with_a_blank_side_are_left_out_and_counted(tmp_path: Path, capsys) -> None:
    """They cannot teach translation; their number is told, not hidden."""
    data = write(tmp_path, s=b"a\n\nc\nd\ne\n", t=b"A\nB\nC\n \nE\n").dataset(0)
    assert sum(map(len, data.values())) == 3
    assert "2 train pairs with a blank side left out" in capsys.readouterr().err


def test_a_text_run_ends_with_bleu(tmp_path: Path) -> None:
    """From two files to translations, BLEU with its signature, and an interval around it."""
    result = train(
        configure(
            "task=text", f"task.data_dir={DATA}", "trainer.steps=30", "trainer.eval_every=15",
            "trainer.warmup=5", f"output_dir={tmp_path}", "progress=false", "trainer.device=cpu",
        )
    )  # fmt: skip
    translation = result["translation"]
    assert 0 <= translation["bleu"] <= 100
    assert "tok:13a" in translation["signature"] and "version:" in translation["signature"]
    run = next(tmp_path.glob("*/text/*/*"))
    assert len((run / "translations.txt").read_text().splitlines()) == 20


def test_multi30k_as_configured() -> None:
    """29,000 training, 1,014 validation and 1,000 test pairs."""
    if not (DATA / "multi30k").is_dir():
        pytest.skip("data/multi30k is absent; data/README.md says how to get it")
    data = build_task(configure("task=multi30k", f"task.data_dir={DATA / 'multi30k'}")).dataset(0)
    assert [len(data[name]) for name in ("train", "validation", "test")] == [29000, 1014, 1000]


def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    """A fifo has no end until somebody writes, and ``/dev/zero`` none at all."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        with pytest.raises(UserError, match=f"task.source={path} is no ordinary file"):
            list(read_sentences(path, "task.source"))


def test_a_small_file_that_unpacks_to_a_large_text_is_refused(tmp_path: Path, monkeypatch) -> None:
    """A thousandth of its text on disk; no more than the limit is ever unpacked."""
    monkeypatch.setattr(text, "MOST_BYTES", 10**6)
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(b"a\n" * 10**6))
    assert path.stat().st_size < 10_000
    with pytest.raises(UserError, match="holds more than 1,000,000 bytes"):
        list(read_sentences(path, "task.source"))
    monkeypatch.setattr(text, "MOST_BYTES", 2 * 10**6)
    assert len(list(read_sentences(path, "task.source"))) == 10**6


def test_one_file_may_hold_both_sides(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A .tsv, with what else stands behind a second tab, and a .jsonl; and what is cleaned."""
    pairs = [("a b", "x y"), ('say "c"', "z"), ("d", "\u2028 w"), ("a b", "x y"), ("e", "v " * 9)]
    tsv = "".join(f"{s}\t{t}\tCC-BY\n" for s, t in pairs)
    jsonl = "".join(json.dumps({"de": t, "en": s, "id": 1}) + "\n" for s, t in pairs)
    (tmp_path / "pairs.tsv").write_text(tsv, "utf-8")
    (tmp_path / "pairs.jsonl.gz").write_bytes(gzip.compress(jsonl.encode()))
    held = {"validation_size": 1, "test_size": 1, "data_dir": str(tmp_path)}
    for name in ("pairs.tsv", "pairs.jsonl.gz"):
        splits = TextTask(source=name, **held).from_files()
        rows = splits["train"].to_dict()
        assert list(zip(rows["source"], rows["target"], strict=True)) == pairs
        both = TextTask(source=name, **held, test_source=name).test(0)["test"]
        assert len(both) == len(pairs)
    assert len(TextTask(source="pairs.tsv", **held, max_ratio=9).from_files()["train"]) == 5
    clean = TextTask(source="pairs.tsv", **held, max_ratio=3, drop_duplicates=True)
    capsys.readouterr()
    assert clean.from_files()["train"]["source"][:] == ["a b", 'say "c"', "d"]
    said = capsys.readouterr().err
    assert "1 train pairs of a ratio above task.max_ratio=3 left out" in said
    assert "1 train pairs that were there before (task.drop_duplicates) left out" in said
    whole = dataclasses.replace(clean, test_source="pairs.tsv").test(0)
    assert {name: len(split) for name, split in whole.items()} == {"test": 5}, "tests stay whole"


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.tsv", "a\tb\nc d\n", "has no tab in line 2"),
        ("a.jsonl", '{"en": "a", "de": "b"}\n{"en": "a"}\n', "keys en and de in line 2"),
        ("a.jsonl", "[" * 9999, "no object with the keys en and de in line 1"),
    ],
)
def test_a_file_that_does_not_hold_both_sides(
    name: str, content: str, said: str, tmp_path: Path
) -> None:
    """The line is named."""
    (tmp_path / name).write_text(content, "utf-8")
    with pytest.raises(UserError, match=re.escape(said)):
        TextTask(source=str(tmp_path / name)).from_files()


def test_long_sentences_are_left_out_everywhere_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A held-out sentence of 20,000 words does not fill the memory; it is not translated either."""
    lines = [f"a {n}" for n in range(30)]
    for name, more in (("train", []), ("test", ["b " * 20_000])):
        (tmp_path / name).write_text("\n".join([*lines, *more]) + "\n", "utf-8")
    config = configure(
        *TINY[:3], "task=text", f"task.data_dir={tmp_path}", "task.source=train",
        "task.target=train", "+task.test_source=test", "+task.test_target=test",
        "task.validation_size=2", "trainer.steps=2", "trainer.warmup=1", "trainer.device=cpu",
        "trainer.attention_maps=false", "progress=false", f"output_dir={tmp_path}/o",
    )  # fmt: skip
    result = train(config)
    assert (
        "1 test pairs of 128 tokens or more left out (task.max_tokens)" in capsys.readouterr().err
    )
    assert sum(row["examples"] for row in result["by_length"]) == 30
    assert len(read_lines(Run.of(config).translations_file)) == 30
