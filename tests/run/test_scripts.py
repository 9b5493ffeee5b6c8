"""The scripts as a user runs them, on a study of seconds."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import SCRIPTS, TINY, configure, run_script
from omegaconf import DictConfig

from wawa_transformer.run.run_dir import Run
from wawa_transformer.train.tracking import screen
from wawa_transformer.train.trainer import train


def test_mistakes_on_the_command_line_of_the_other_scripts(tmp_path: Path) -> None:
    """One sentence and status 1 from evaluate and translate as well."""
    for name, arguments, expected in (
        ("evaluate.py", [], "run is not given"),
        ("translate.py", [f"run={tmp_path}"], "is no run: it holds no readable config.yaml"),
    ):
        done = run_script(name, *arguments)
        assert done.returncode == 1, (name, arguments)
        assert done.stderr.startswith("error: ") and expected in done.stderr, done.stderr
        assert "Traceback" not in done.stderr


def test_lines_that_are_not_utf8_and_readers_that_leave(tmp_path: Path) -> None:
    """Whatever the locale: bytes that are no text are named, a closed pipe ends quietly."""
    train(configure(*TINY, f"output_dir={tmp_path}"))
    [run] = tmp_path.glob("default/*/*/seed*")
    command = [sys.executable, str(SCRIPTS / "translate.py"), f"run={run}", "trainer.device=cpu"]
    translated = subprocess.run(
        command, input=b"1 2\n\xff 3\n", capture_output=True, env={**os.environ, "LC_ALL": "C"}
    )
    assert translated.returncode == 1
    assert b"standard input is not UTF-8 in line 2" in translated.stderr
    headed = subprocess.run(
        ["bash", "-c", f"{sys.executable} {SCRIPTS / 'evaluate.py'} --help | head -1"],
        capture_output=True,
    )
    assert headed.stderr == b""


def test_a_sweep_trains_one_run_after_the_other(tmp_path: Path) -> None:
    """Each as it would be alone."""
    given = [*TINY, "study.name=swept"]
    done = run_script("train.py", "-m", *given, "pe=none,alibi", f"output_dir={tmp_path}")
    assert done.returncode == 0, done.stderr
    for pe in ("none", "alibi"):
        expected = train(configure(*given, f"pe={pe}", f"output_dir={tmp_path}/alone"))
        result = Run.of(configure(*given, f"pe={pe}", f"output_dir={tmp_path}")).result()
        assert result and result["by_length"] == expected["by_length"]


def test_a_mistake_of_ours_keeps_its_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through Hydra and back: the error itself, and that it is none of the user's."""
    from wawa_transformer.train import trainer

    def mistaken(config: DictConfig) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr(trainer, "train", mistaken)
    monkeypatch.setattr(sys, "argv", ["train.py", *TINY, f"output_dir={tmp_path}"])
    with pytest.raises(KeyError) as caught:
        runpy.run_path(str(SCRIPTS / "train.py"), run_name="__main__")
    assert caught.traceback[-1].name == "mistaken"
    assert "a mistake in wawa_transformer" in caught.value.__notes__[0]


def test_a_notebook_gets_no_moving_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jupyter forces colours on a pipe, in which every state of a bar would stay."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert not screen().is_terminal
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert screen().is_terminal
