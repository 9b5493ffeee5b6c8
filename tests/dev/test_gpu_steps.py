"""``make gpu``: steps that stop in time, go on, are not repeated, and are commands that exist."""

import shlex
import sys
from pathlib import Path

import gpu
import pytest
from gpu import STEPS, go_through
from support import configure


def test_steps_stop_in_time_go_on_and_are_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that ends, one that takes too long the first time, one that fails."""
    monkeypatch.setattr(gpu, "ROOT", tmp_path)
    (tmp_path / "slow.py").write_text(
        "import pathlib, time\n"
        "if not pathlib.Path('begun').exists():\n"
        "    pathlib.Path('begun').touch()\n"
        "    time.sleep(60)\n"
        "pathlib.Path('slow_results.csv').write_text('ended')\n"
    )
    (tmp_path / "count.py").write_text("open('counted.txt', 'a').write('x')")
    steps = {
        "count": ("count.py", "counted.txt"),
        "slow": ("slow.py", "slow_results.csv"),
        "wrong": ("-c 'raise SystemExit(3)'", ""),
    }
    folder = tmp_path / "results"
    first = go_through(steps, folder, minutes=2 / 60)
    assert [first[name]["status"] for name in steps] == [
        "done", "to be continued", "failed, status 3"
    ]  # fmt: skip
    assert {path.name for path in folder.iterdir()} == {"steps.json", "count.txt"}
    second = go_through(steps, folder)
    assert second["slow"]["status"] == "done" and second["slow"]["seconds"] >= 2
    assert (folder / "slow.csv").read_text() == "ended"
    assert (tmp_path / "counted.txt").read_text() == "x"


def test_every_step_is_a_command_that_can_be_given() -> None:
    """Its script is there, its overrides compose, and all leave fewer than five files."""
    for command, _ in STEPS.values():
        script, *words = shlex.split(command)
        if script.endswith("compare.py"):
            configure(*words)
        elif script != "-m":
            assert (gpu.ROOT / script).exists()
    assert 1 + sum(result != "" for _, result in STEPS.values()) < 5


def test_what_is_lacking_is_said_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A card, the data of the last step, a step that does not exist."""
    monkeypatch.setattr(sys, "argv", ["gpu.py", "tests", "speed"])
    monkeypatch.setattr(gpu.torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit, match="error: this needs a CUDA device"):
        gpu.main()
    monkeypatch.setattr(gpu.torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(gpu, "ROOT", tmp_path)
    monkeypatch.setattr(gpu, "go_through", lambda *_: pytest.fail("begun without its data"))
    with monkeypatch.context() as every, pytest.raises(SystemExit, match="multi30k is empty; fill"):
        every.setattr(sys, "argv", ["gpu.py"])
        gpu.main()
    with pytest.raises(SystemExit, match="error: there is no step speed; choose any of tests"):
        gpu.main()
