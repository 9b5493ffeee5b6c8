"""The task, the loss and the decoder-only model of docs/fork.md run as they are printed."""

import re
import shlex
from pathlib import Path

import torch
from support import SCRIPTS, TINY, copy_code, run_script, trained

from wawa_transformer.run.run_dir import Run

ROOT = SCRIPTS.parent
PAGE = (ROOT / "docs" / "fork.md").read_text(encoding="utf-8")
_, TASK, LOSS, MODEL = re.findall(r"```python\n(.*?)```", PAGE, re.S)


def test_the_pages_task_is_trained_by_its_command(tmp_path: Path) -> None:
    (tmp_path / "my_module.py").write_text(TASK)
    first, *_ = re.findall(r"python scripts/(.*)", PAGE)
    done = run_script(*shlex.split(first), *TINY, "trainer.steps=2", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.glob("results/single/rotate/sinusoidal/seed0-*/result.json"))


def test_a_new_field_of_the_models_configuration_is_a_key(tmp_path: Path) -> None:
    copy_code(tmp_path, "wawa_transformer", "configs", leave=("lab", "lesson", "study.py"))
    path = tmp_path / "wawa_transformer" / "model" / "config.py"
    code, seed = path.read_text(encoding="utf-8"), "    seed: int | None = setting("
    assert seed in code
    field = '    gain: float = setting(1.0, "a factor of everything", least=0)\n'
    path.write_text(code.replace(seed, field + seed), encoding="utf-8")
    for given, said in (("2", "a factor of everything"), ("-1", "model.gain=-1")):
        asked = ["--help"] if given == "2" else [f"model.gain={given}", *TINY]
        done = run_script("train.py", *asked, folder=tmp_path, PYTHONPATH=str(tmp_path))
        assert said in done.stdout + done.stderr


def test_the_pages_loss_changes_the_training(tmp_path: Path) -> None:
    """In a copy of the package, beside the package's own; what is logged stays the NLL."""
    copy_code(tmp_path, "wawa_transformer", "configs", leave=("lab", "lesson", "study.py"))
    path = tmp_path / "wawa_transformer" / "model" / "loss.py"
    head = path.read_text(encoding="utf-8").split("def loss_and_nll(")[0]
    path.write_text(head + LOSS)
    few = [*TINY, "trainer.steps=5"]
    done = run_script("train.py", *few, f"run_dir={tmp_path}/run", PYTHONPATH=str(tmp_path))
    assert done.returncode == 0, done.stderr
    before, after = trained(tmp_path / "before", *few), Run.at(tmp_path / "run")
    assert after.metrics()[0]["loss"] < before.metrics()[0]["loss"] * 0.99


def test_the_pages_decoder_only_model_learns_and_sees_no_future() -> None:
    """Half of the steps suffice at twice the rate."""
    names: dict = {}
    assert "range(300)" in MODEL
    exec(MODEL.replace("300", "150").replace("2e-3", "4e-3"), names)
    model = names["model"].eval()
    assert float(names["loss"]) / int((names["targets"] != 0).sum()) < 0.1
    ids = torch.randint(4, 14, (2, 8))
    later = ids.clone()
    later[:, 5:] = 4
    torch.testing.assert_close(model(ids)[:, :5], model(later)[:, :5])
