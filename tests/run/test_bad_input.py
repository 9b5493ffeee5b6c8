"""A user's mistake is one sentence: closed streams, deleted keys, strange texts, altered files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import SCRIPTS, TINY

from wawa_transformer.common.files import write_atomically
from wawa_transformer.common.schema import UserError
from wawa_transformer.data.text import MAX_WORD, TextTask, read_sentences
from wawa_transformer.lab import report
from wawa_transformer.run.run_dir import Run
from wawa_transformer.train import checkpoint
from wawa_transformer.train.load import load_model
from wawa_transformer.train.trainer import train


def test_a_closed_output_is_no_mistake(tmp_path: Path) -> None:
    """``>&-`` and ``2>&-`` leave Python without the stream; the run is trained all the same."""
    arguments = [*TINY, "trainer.steps=2", "trainer.eval_every=2", "progress=true"]
    command = [sys.executable, str(SCRIPTS / "train.py"), *arguments, f"output_dir={tmp_path}"]
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", *command], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0 and "Traceback" not in done.stderr
    assert list(tmp_path.rglob("result.json"))


@pytest.mark.parametrize("key", ["seed", "trainer", "trainer.steps", "pe", "pe.kind", "task.name"])
def test_a_key_that_was_taken_away_is_a_sentence(key: str, call_script) -> None:
    """The schema's default would take its place, and train another run."""
    status, printed = call_script("compare.py", f"~{key}")
    assert status == 1 and printed == f"error: ~{key}: no key can be taken away; leave it out.\n"


def test_half_a_character_is_no_text(tmp_path: Path) -> None:
    r"""JSON may hold ``\ud800``, which no file and no tokenizer can."""
    rows = [{"en": "a b", "de": "x y"}, {"en": "c \ud800", "de": "z"}]
    (tmp_path / "pairs.jsonl").write_text("\n".join(map(json.dumps, rows)))
    task = TextTask(source="pairs.jsonl", data_dir=str(tmp_path), validation_size=1, test_size=1)
    with pytest.raises(UserError, match="no two texts in line 2"):
        task.dataset(0)


def test_a_word_without_end_is_refused(tmp_path: Path) -> None:
    """A vocabulary would take the square of its length."""
    path = tmp_path / "text"
    path.write_text(f"short\n{'x' * MAX_WORD}\n")
    assert len(list(read_sentences(path, "task.source"))) == 2
    path.write_text(f"short\n{'x' * (MAX_WORD + 1)} y\n")
    with pytest.raises(UserError, match=r"10,000 in a word, in line 2"):
        list(read_sentences(path, "task.source"))


def test_a_folder_of_other_files_is_no_runs(tiny, tmp_path: Path) -> None:
    """``run_dir=/`` for one; nothing is written there."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter.txt").write_text("dear")
    with pytest.raises(UserError, match="holds files and no run; name an empty folder"):
        train(tiny(f"run_dir={tmp_path / 'home'}"))
    assert {path.name for path in (tmp_path / "home").iterdir()} <= {"letter.txt", "lock"}


def test_tables_are_written_whole_and_an_altered_configuration_is_damage(
    tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A report that is stopped leaves the old table or the new one.

    A checkpoint is sealed again, so that the checksum is right; said before it takes memory.
    """
    config = tiny("trainer.steps=2", "trainer.eval_every=2")
    train(config)
    run, written = Run.of(config), []

    def noted(path: Path, content: str) -> None:
        written.append(path)
        write_atomically(path, content)

    monkeypatch.setattr(report, "write_atomically", noted)
    monkeypatch.setattr(report, "save", lambda *given, **named: None)
    report.write_report(tmp_path / "report", [run], "one", "command")
    assert {path.name for path in written} >= {"results.csv", "curves.csv"}
    assert all(path.exists() for path in written)

    for part, value in (
        ("model", {"d_model": 65536}), ("model", {"num_heads": 5}), ("model", {"norm": "odd"}),
        ("model", {"d_model": "wide"}), ("pe", {"kind": "nope"}), ("pe", {"max_len": -1}),
        ("task", {"kind": "nope"}), ("trainer", {"lr": None}), ("model", None), ("other", 1),
    ):  # fmt: skip
        saved = checkpoint.load(run.checkpoint("last"))
        both = isinstance(value, dict)
        saved["config"][part] = {**saved["config"][part], **value} if both else value
        checkpoint.save(run.checkpoint("best"), saved)
        with pytest.raises(UserError, match="damaged"):
            load_model(run, "best")
