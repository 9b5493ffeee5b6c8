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

from wawa_transformer.lab.study import screen
from wawa_transformer.run.run_dir import Run
from wawa_transformer.train.trainer import train


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


@pytest.mark.parametrize("script", ["train", "compare", "evaluate", "translate"])
def test_ctrl_c_during_imports_is_a_sentence(script: str, tmp_path: Path) -> None:
    """Pressed while the first library of others loads."""
    (tmp_path / "omegaconf.py").write_text("raise KeyboardInterrupt")
    (tmp_path / "hydra.py").write_text("raise KeyboardInterrupt")
    path = os.pathsep.join((str(tmp_path), str(SCRIPTS.parent)))
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / f"{script}.py")],
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert done.stderr == "interrupted; the same command continues\n"


def test_a_sweep_trains_one_run_after_the_other(tmp_path: Path) -> None:
    """Each as it would be alone."""
    done = run_script("train.py", "-m", *TINY, "pe=none,alibi", f"output_dir={tmp_path}")
    assert done.returncode == 0, done.stderr
    for pe, line in zip(("none", "alibi"), done.stdout.splitlines()[-2:], strict=True):
        expected = train(configure(*TINY, f"pe={pe}", f"output_dir={tmp_path}/alone"))
        given = ["study.name=sweep_pe", f"pe={pe}", f"output_dir={tmp_path}"]
        run = Run.of(configure(*TINY, *given))
        result = run.result()
        assert result and result["by_length"] == expected["by_length"]
        test = result["test"]
        said = f"exact match {test['exact_match']:.3f}  NLL {test['nll']:.3f}  {run.directory}"
        assert line.split(maxsplit=1) == [f"pe={pe}", said]
    assert {path.name for path in tmp_path.iterdir()} == {"alone", "sweep_pe"}


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
