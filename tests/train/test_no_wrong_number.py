"""No run ends with a wrong number: bad weights, changed text, other ranks, another's result."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from conftest import SCRIPTS, TINY, configure, torchrun

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


@pytest.mark.parametrize("odd", ["inf", "integers"])
def test_weights_that_are_no_numbers_give_way_to_those_before(odd: str, tiny, capsys) -> None:
    """Intact by its checksum, and refused: by a resumed run, and by whoever loads the model."""
    config = tiny()
    run = Run.of(config)
    state = build_state(config, run, None)
    for step in (1, 2):
        state.step = step
        save_state(state)
    saved = checkpoint.load(run.checkpoint("last"))
    weights = saved["model"]["output.weight"]
    if odd == "inf":
        weights[0, 0] = torch.inf
    else:  # load_state_dict would take them: 0 for nearly all
        saved["model"]["output.weight"] = weights.char()
    before = run.checkpoint("previous")
    shutil.copy(before, before.with_name("kept"))
    checkpoint.save(run.checkpoint("last"), saved)
    shutil.move(before.with_name("kept"), before)
    with pytest.raises(checkpoint.Damaged):
        load_model(run)
    assert restore(config, run).step == 1
    assert "last.pt is damaged" in capsys.readouterr().err
    assert checkpoint.load(run.checkpoint("last"))["step"] == 1, "or a finished run may have none"


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


def test_ranks_of_other_configurations_do_not_train_one_run(tmp_path: Path) -> None:
    """torchrun hands all processes one command, but a wrapper need not."""
    wrapper = tmp_path / "wrapper.py"
    wrapper.write_text(
        "import os, runpy, sys\n"
        f"sys.argv = [{str(SCRIPTS / 'train.py')!r}, *sys.argv[1:]]\n"
        "if os.environ['RANK'] == '1': sys.argv.append('model.dropout=0.2')\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')\n"
    )
    command = [*torchrun(script=wrapper), *TINY, f"output_dir={tmp_path}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode != 0
    assert "the processes of torchrun were given different configurations" in done.stderr
    assert not list(tmp_path.rglob("checkpoints")) and not list(tmp_path.rglob("result.json"))


def test_only_the_last_checkpoint_becomes_the_previous_one(tiny) -> None:
    """A better "best" replaces the old one, which no run may resume from."""
    run = Run.of(tiny())
    for step in (1, 2):
        checkpoint.save(run.checkpoint("best"), {"step": step})
    assert not run.checkpoint("previous").exists()
    for step in (3, 4):
        checkpoint.save(run.checkpoint("last"), {"step": step})
    assert torch.load(run.checkpoint("previous"))["step"] == 3
