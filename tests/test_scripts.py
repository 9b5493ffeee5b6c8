"""The scripts as a user runs them, on a study of seconds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
from conftest import SCRIPTS, TINY, run_script
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def test_compare_trains_reuses_and_names_what_failed(tmp_path: Path) -> None:
    """A study end to end, again with nothing to do, and once more with a run that cannot work."""
    study = [*TINY, f"output_dir={tmp_path}", "study.task=[letters]", "study.seeds=[0,1]"]
    study += ["study.pe=[sinusoidal,learned]"]
    first = run_script("compare.py", *study)
    assert first.returncode == 0, first.stderr
    assert "4 runs" in first.stdout and "4 to train" in first.stdout
    root = tmp_path / "default"
    assert {"report.html", "report.md", "results.csv", "figures"} <= {
        p.name for p in root.iterdir()
    }
    table = pd.read_csv(root / "results.csv")
    assert len(table) == 4 * 6  # a row for each run and test length
    assert set(table.pe) == {"sinusoidal", "learned"} and set(table.seed) == {0, 1}

    runs = sorted(root.glob("letters/*/seed*"))
    events = EventAccumulator(str(runs[0])).Reload()
    tags = events.Tags()
    assert {
        "loss/train",
        "nll/train",
        "lr/train",
        "grad_norm/train",
        "tokens_per_second/train",
    } <= set(tags["scalars"])
    assert {"nll/validation", "exact_match/validation", "token_accuracy/validation"} <= set(
        tags["scalars"]
    )
    assert "encoding/table" in tags["images"]
    assert any("samples" in tag for tag in tags["tensors"])

    stamps = {run: (run / "result.json").stat().st_mtime_ns for run in runs}
    second = run_script("compare.py", *study)
    assert second.returncode == 0 and "0 to train" in second.stdout
    assert {run: (run / "result.json").stat().st_mtime_ns for run in runs} == stamps

    one = runs[0]
    evaluated = run_script("evaluate.py", f"run={one}")
    assert evaluated.returncode == 0 and "exact match" in evaluated.stdout, evaluated.stderr
    translated = run_script("translate.py", f"run={one}", stdin="1 2\n3\n")
    assert translated.returncode == 0, translated.stderr
    assert translated.stdout.count("\n") == 2

    broken = run_script("compare.py", *study, "pe.max_len=4")  # fine for a formula, not for a table
    assert broken.returncode == 1
    assert "failed: letters learned seed 0: a sequence of" in broken.stderr
    assert "Traceback" not in broken.stderr


def test_mistakes_on_the_command_line_of_the_other_scripts(tmp_path: Path) -> None:
    """One sentence and status 1 from compare, evaluate and translate as well."""
    file = tmp_path / "file"
    file.touch()
    for name, arguments, expected in (
        ("compare.py", ["study=defualt"], "did you mean default?"),
        ("compare.py", ["pe=none", f"output_dir={tmp_path}"], "study.pe=[...]"),
        ("compare.py", ["study.pe=[]", f"output_dir={tmp_path}"], "study.pe is empty"),
        ("compare.py", [f"output_dir={file}"], "set output_dir to a folder of yours"),
        ("evaluate.py", [], "run is not given"),
        ("translate.py", [f"run={tmp_path}"], "is no run: it holds no readable config.yaml"),
    ):
        done = run_script(name, *arguments)
        assert done.returncode == 1, (name, arguments)
        assert done.stderr.startswith("error: ") and expected in done.stderr, done.stderr
        assert "Traceback" not in done.stderr


def test_lines_that_are_not_utf8_and_readers_that_leave(tmp_path: Path) -> None:
    """Whatever the locale: bytes that are no text are named, a closed pipe ends quietly."""
    done = run_script("train.py", *TINY, f"output_dir={tmp_path}")
    assert done.returncode == 0, done.stderr
    [run] = tmp_path.glob("default/*/*/seed*")
    command = [sys.executable, str(SCRIPTS / "translate.py"), f"run={run}", "trainer.device=cpu"]
    for locale in ("C", "C.UTF-8"):
        translated = subprocess.run(
            command,
            input=b"1 2\n\xff 3\n",
            capture_output=True,
            env={**os.environ, "LC_ALL": locale},
        )
        assert translated.returncode == 1
        assert b"standard input is not UTF-8 (byte 4)" in translated.stderr
    blank = subprocess.run(command, input=b"1\n\n2\n", capture_output=True)
    assert blank.stdout.count(b"\n") == 3, blank.stderr
    headed = subprocess.run(
        ["bash", "-c", f"{sys.executable} {SCRIPTS / 'evaluate.py'} --help | head -1"],
        capture_output=True,
    )
    assert headed.stderr == b""
