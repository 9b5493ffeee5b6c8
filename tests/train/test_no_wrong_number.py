"""No run ends with a wrong number: bad weights, changed text, other ranks, another's result."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from conftest import SCRIPTS, TINY, configure

from wawa_transformer.common.schema import UserError
from wawa_transformer.run.cli import validate
from wawa_transformer.run.run_dir import Run
from wawa_transformer.train import checkpoint
from wawa_transformer.train.load import load_model
from wawa_transformer.train.setup import build_state, restore, save_state
from wawa_transformer.train.trainer import train

DATA = SCRIPTS.parent / "data"


def test_weights_that_are_not_finite_are_never_saved(tiny) -> None:
    """A stop between two logged steps saves a state that no loss was checked for."""
    config = tiny()
    run = Run.of(config)
    state = build_state(config, run, None)
    save_state(state)
    state.step = 3
    with torch.no_grad():
        state.model.output.weight[0, 0] = torch.nan
    with pytest.raises(
        UserError, match=r"^the largest weight is nan at step 3; the last good checkpoint"
    ):
        save_state(state)
    assert checkpoint.load(run.checkpoint("last"))["step"] == 0


def test_a_checkpoint_that_is_not_finite_gives_way_to_the_one_before(tiny, capsys) -> None:
    """Intact by its checksum, and refused: by a resumed run, and by whoever loads the model."""
    config = tiny()
    run = Run.of(config)
    state = build_state(config, run, None)
    for step in (1, 2):
        state.step = step
        save_state(state)
    saved = checkpoint.load(run.checkpoint("last"))
    saved["model"]["output.weight"][0, 0] = torch.inf
    before = run.checkpoint("previous")
    shutil.copy(before, before.with_name("kept"))
    checkpoint.save(run.checkpoint("last"), saved)
    shutil.move(before.with_name("kept"), before)
    with pytest.raises(checkpoint.Damaged):
        load_model(run)
    assert restore(config, run).step == 1
    assert "last.pt is damaged" in capsys.readouterr().err


def test_a_run_on_another_text_is_another_run(tmp_path: Path) -> None:
    """The files keep their names; one letter of one of them, and one back."""
    for side in ("en", "de"):
        shutil.copy(DATA / f"sample.{side}", tmp_path)
    text = (tmp_path / "sample.de").read_bytes()

    def folder() -> Path:
        config = configure("task=text", f"task.data_dir={tmp_path}", f"output_dir={tmp_path}")
        validate(config)
        return Run.of(config).directory

    first = folder()
    (tmp_path / "sample.de").write_bytes(text.replace(b"e", b"i", 1))
    assert folder() != first
    (tmp_path / "sample.de").write_bytes(text)
    assert folder() == first


def test_another_runs_result_is_not_taken_for_this_ones(tiny, tmp_path: Path) -> None:
    """Under ``run_dir`` the folder's name says nothing of the configuration."""
    given = ("trainer.steps=2", "trainer.eval_every=2", f"run_dir={tmp_path / 'one'}")
    assert train(tiny(*given))["seed"] == 0
    with pytest.raises(UserError, match="holds another configuration"):
        train(tiny(*given, "seed=1"))


@pytest.mark.parametrize("key", ["seed=1", "trainer.lr=1e-4", "model.dropout=0.2"])
def test_ranks_of_other_configurations_do_not_train_one_run(key: str, tmp_path: Path) -> None:
    """torchrun hands all processes one command, but a wrapper need not."""
    wrapper = tmp_path / "wrapper.py"
    wrapper.write_text(
        "import os, runpy, sys\n"
        f"sys.argv = [{str(SCRIPTS / 'train.py')!r}, *sys.argv[1:]]\n"
        f"if os.environ['RANK'] == '1': sys.argv.append({key!r})\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", str(wrapper),
         *TINY, f"output_dir={tmp_path}"],
        capture_output=True, text=True, timeout=120, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode != 0
    assert "the processes of torchrun were given different configurations" in done.stderr
    assert not list(tmp_path.rglob("checkpoints")) and not list(tmp_path.rglob("result.json"))
