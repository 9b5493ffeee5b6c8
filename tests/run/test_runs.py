"""A run's folder: one process in it, nothing half-written, no other run's result."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
import torch
from conftest import SCRIPTS, TINY, configure, run_script, warm_python

from wawa_transformer.common.files import LOCK, lock_directory, lock_holder, write_atomically
from wawa_transformer.common.schema import UserError
from wawa_transformer.positional.base import ENCODINGS, Encoding, Positions
from wawa_transformer.run.run_dir import Run
from wawa_transformer.run.signals import STATUS
from wawa_transformer.train import checkpoint
from wawa_transformer.train.load import load_model
from wawa_transformer.train.tracking import Tracker
from wawa_transformer.train.trainer import train


def test_a_folder_is_held_by_one_process_and_freed_by_its_death(tmp_path: Path) -> None:
    """A rival is told host, process and time; after ``kill -9`` the folder is free."""
    ready = tmp_path / "ready"

    def hold_until_killed() -> None:
        with lock_directory(tmp_path):
            ready.touch()
            time.sleep(60)

    child = multiprocessing.get_context("fork").Process(target=hold_until_killed)
    child.start()
    while not ready.exists():
        time.sleep(0.02)
    expected = rf"in use by process {child.pid} on host .*, since \d{{4}}-\d\d-\d\dT"
    with pytest.raises(UserError, match=expected), lock_directory(tmp_path):
        pass
    child.kill()
    child.join()
    with lock_directory(tmp_path):
        assert str(os.getpid()) in (tmp_path / LOCK).read_text()
    assert (tmp_path / LOCK).read_text() == ""


def test_a_killed_run_ends_with_the_same_weights(tmp_path: Path) -> None:
    """``kill -9`` in mid-training, the same command again: weights, curves and result agree."""
    overrides = [*TINY, "trainer.steps=200", "model.dropout=0.1", "trainer.eval_every=20"]
    config = configure(*overrides, f"output_dir={tmp_path}/whole")
    whole, expected = Run.of(config), train(config)

    arguments = [*overrides, "study.name=long", f"output_dir={tmp_path}/killed"]
    run = Run.of(configure(*arguments))
    process = subprocess.Popen([*warm_python(), str(SCRIPTS / "train.py"), *arguments])
    while not run.checkpoint("last").exists() and process.poll() is None:
        time.sleep(0.01)
    os.kill(int(lock_holder(run.directory / LOCK).split()[1]), signal.SIGKILL)
    process.wait()
    assert not run.result_file.exists(), "killed too late to show anything"
    assert checkpoint.load(run.checkpoint("last"))["step"] < 200

    again = run_script("train.py", *arguments)
    assert again.returncode == 0, again.stderr
    ends = [checkpoint.load(each.checkpoint("last"))["model"] for each in (whole, run)]
    assert checkpoint.fingerprint(ends[0]) == checkpoint.fingerprint(ends[1])
    assert curves(run) == curves(whole)
    result = run.result()
    assert result and result["by_length"] == expected["by_length"]


def curves(run: Run) -> list[dict]:
    """All that was logged, but for the speed."""
    return [{k: v for k, v in row.items() if k != "tokens_per_second"} for row in run.metrics()]


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_signal_keeps_the_step_and_leaves_with_the_documented_status(
    name: str, tmp_path: Path, call_script, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped between two validations; the same command ends where an unstopped run ends."""
    arguments = ["trainer.steps=60", "trainer.eval_every=60", "model.dropout=0.1"]
    scalars = Tracker.scalars

    def interrupted(tracker: Tracker, step: int, split: str, **values: float) -> None:
        scalars(tracker, step, split, **values)
        if step == 20:
            os.kill(os.getpid(), getattr(signal, name))

    stopped = [*arguments, "study.name=long", f"output_dir={tmp_path}/stopped"]
    run = Run.of(configure(*TINY, *stopped))
    with monkeypatch.context() as patched:
        patched.setattr(Tracker, "scalars", interrupted)
        status, said = call_script("train.py", *TINY, *stopped)
    assert status == STATUS, said
    assert f"stopped by {name} at step" in said and "the same command continues" in said
    assert 20 <= checkpoint.load(run.checkpoint("last"))["step"] < 60

    train(configure(*TINY, *stopped))
    whole = configure(*TINY, *arguments, f"output_dir={tmp_path}/whole")
    train(whole)
    expected = checkpoint.load(Run.of(whole).checkpoint("last"))
    got = checkpoint.load(run.checkpoint("last"))
    for key, value in expected["model"].items():
        assert torch.equal(value, got["model"][key]), key
    assert curves(run) == curves(Run.of(whole))


def finished(tmp_path: Path, *overrides: str) -> tuple[Run, dict]:
    """A run that has been trained to its end, and its result."""
    config = configure(*TINY, *overrides, f"output_dir={tmp_path}")
    return Run.of(config), train(config)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One that tests may damage: each writes what it reads."""
    return finished(tmp_path_factory.mktemp("done"))[0]


@pytest.mark.parametrize("run_dir", [False, True])
def test_a_result_that_cannot_be_read_or_is_anothers_is_made_again(
    run_dir: bool, tmp_path: Path
) -> None:
    """From the last checkpoint, by the same command; the keys of older results do not matter."""
    folders = [[f"run_dir={tmp_path}/{name}"] if run_dir else [] for name in ("mine", "other")]
    run, result = finished(tmp_path, *folders[0])
    other, _ = finished(tmp_path, "trainer.lr=1e-3", *folders[1])
    text = run.result_file.read_text()
    for wrong in ("", text[: len(text) // 2], "{}", "[1, 2]", other.result_file.read_text()):
        run.result_file.write_text(wrong)
        assert run.result() is None and run.status == "running"
    _, again = finished(tmp_path, *folders[0])
    assert again["by_length"] == result["by_length"] and run.status == "finished"
    older = {**again, "sha256": "0", "metrics_sha256": "1"}
    run.result_file.write_text(json.dumps(older))
    assert run.result() == older


@pytest.mark.parametrize(
    "content",
    [b"", b"[1]", b"\xff", b"a: *b", b"a: 2026-99-99", b"task: {name: 1}\npe: 2\nseed: x"],
)
def test_a_folder_without_a_readable_configuration_is_no_run(
    content: bytes, tmp_path: Path
) -> None:
    (tmp_path / "config.yaml").write_bytes(content)
    with pytest.raises(UserError, match=r"is no run: it holds no readable config.yaml"):
        Run.at(tmp_path)


def test_lines_of_the_curves_that_cannot_be_read_are_left_out(tmp_path: Path) -> None:
    """The last one may still be written."""
    run = Run("letters", "none", 0, tmp_path)
    lines = [b'{"step": 1}', b"[" * 100_000, b"\xff", b"null", b'{"step": "2"}', b'{"step": 3}']
    run.metrics_file.write_bytes(b"\n".join([*lines, b'{"step": 4}']))
    assert run.metrics() == [{"step": 1}, {"step": 3}]


@pytest.mark.parametrize("damage", ["cut", "shape", "config"])
def test_a_damaged_checkpoint_gives_way_to_the_one_before(
    damage: str, tmp_path: Path, capsys
) -> None:
    """Also where the checksum is right and the contents are not; the end is the same bits."""
    arguments = ["model.dropout=0.1", "trainer.steps=30", f"output_dir={tmp_path}"]
    config = configure(*TINY, *arguments)
    run, expected = Run.of(config), train(config)
    whole = checkpoint.load(run.checkpoint("last"))
    run.result_file.unlink()
    last = run.checkpoint("last")
    state = checkpoint.load(last)
    if damage == "cut":
        last.write_bytes(last.read_bytes()[:5000])
    else:
        if damage == "shape":
            state["model"]["output.weight"] = state["model"]["output.weight"][:, 1:].clone()
        else:
            state["config"]["trainer"]["lr"] = 1.0
        checkpoint.save(last.with_stem("made"), state)
        last.with_stem("made").replace(last)
    assert train(config)["by_length"] == expected["by_length"]
    said = capsys.readouterr().err
    assert f"{last} is damaged" in said and "previous.pt, step 25" in said
    assert last.with_suffix(".damaged").exists()
    for key, value in whole["model"].items():
        assert torch.equal(value, checkpoint.load(last)["model"][key]), key


def test_a_damaged_checkpoint_is_named_not_loaded(done: Run, tmp_path: Path) -> None:
    """One bit flipped in a tensor; one of something else, whose checksum is right; and one whose
    configuration is an interpolation, which is not resolved: it could read the environment.
    """
    path, state = tmp_path / "last.pt", checkpoint.load(done.checkpoint("last"))
    checkpoint.save(path, state)
    content = bytearray(path.read_bytes())
    content[content.index(state["model"]["output.weight"][0].numpy().tobytes())] ^= 1
    path.write_bytes(content)
    with pytest.raises(UserError, match="is damaged; delete it"):
        checkpoint.load(path)
    checkpoint.save(path, {"step": 3, "model": {"w": torch.arange(1000.0)}})
    with pytest.raises(UserError, match="is damaged; delete it"):
        checkpoint.load(path)
    state["config"]["task"]["name"] = "${oc.env:HOME}"
    checkpoint.save(done.checkpoint("best"), state)
    with pytest.raises(checkpoint.Damaged):
        load_model(done, "best")


def test_with_no_intact_checkpoint_the_sentence_says_what_to_delete(tmp_path: Path) -> None:
    """Nothing is thrown away without being told to."""
    run, _ = finished(tmp_path)
    run.result_file.unlink()
    for which in ("last", "previous"):
        run.checkpoint(which).write_bytes(b"no")
    with pytest.raises(UserError, match="last.pt is damaged; delete it, or its run's folder"):
        train(configure(*TINY, f"output_dir={tmp_path}"))


def test_a_refused_run_leaves_no_folder(tmp_path: Path) -> None:
    """A table too short for the data is found out with the data; nothing was trained."""
    with pytest.raises(UserError, match="set pe.max_len=7"):
        train(configure(*TINY, "pe=learned", "pe.max_len=3", f"output_dir={tmp_path}/results"))
    assert not (tmp_path / "results" / "default").exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_is_a_sentence_and_leaves_the_old_file(tmp_path: Path, monkeypatch) -> None:
    """``/dev/full`` refuses every byte; no half-written file stays."""
    path = tmp_path / "file"
    write_atomically(path, "old")
    (tmp_path / "file.tmp").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, "new" * 10_000)
    assert path.read_text() == "old" and not (tmp_path / "file.tmp").is_symlink()


@pytest.mark.parametrize(
    ("key", "name"),
    [*(("study.name", name) for name in ("../up", "/etc", "", ".hidden", "null")),
     ("task.name", ".."), ("pe.name", "a/b")],
)  # fmt: skip
def test_names_are_not_paths(key: str, name: str, tmp_path: Path, call_script) -> None:
    """What would lead out of output_dir is refused before anything is written."""
    status, said = call_script("train.py", *TINY, f"output_dir={tmp_path}/o", f"{key}={name}")
    assert status == 1 and f"error: {key}" in said
    assert not (tmp_path / "o").exists()


def test_a_loss_that_was_never_finite_is_not_blamed_on_the_learning_rate(tmp_path: Path) -> None:
    """Planted: an encoding that adds infinity. No word of a checkpoint that does not exist."""

    class Exploding(Encoding, kind="exploding"):
        def embed(self, x: torch.Tensor, at: Positions) -> torch.Tensor:
            return x + torch.inf

    try:
        config = configure(*TINY, "pe=none", "pe.kind=exploding", f"output_dir={tmp_path}")
        with pytest.raises(UserError) as caught:
            train(config)
    finally:
        del ENCODINGS["exploding"]
    assert "before the first update" in str(caught.value)
    assert "none was kept yet" in str(caught.value) and "trainer.lr" not in str(caught.value)


def test_the_average_is_that_of_the_last_weights_kept(tmp_path: Path) -> None:
    """Against torch's own running mean; the run's result is that of a run that keeps none."""
    config = configure(*TINY, "trainer.keep_checkpoints=3", f"output_dir={tmp_path}")
    run, kept = Run.of(config), train(config)
    assert [checkpoint.load(path, checkpoint.WEIGHTS)["step"] for path in run.kept()] == [
        10,
        15,
        20,
    ]
    plain = train(configure(*TINY, f"output_dir={tmp_path}/plain"))
    assert kept["by_length"] == plain["by_length"]

    model, *_ = load_model(run)
    mean = torch.optim.swa_utils.AveragedModel(model, use_buffers=True)
    for path in run.kept():
        model.load_state_dict(checkpoint.load(path, checkpoint.WEIGHTS)["model"])
        mean.update_parameters(model)
    found, *_ = load_model(run, "average")
    last = load_model(run)[0].state_dict()
    for name, weights in mean.module.state_dict().items():
        torch.testing.assert_close(found.state_dict()[name], weights)
        assert not torch.equal(weights, last[name]), name

    run.kept()[1].write_bytes(run.kept()[1].read_bytes()[:-9])
    with pytest.raises(checkpoint.Damaged, match=r"step0000000015.pt is damaged"):
        load_model(run, "average")
    for path in run.kept():
        path.unlink()
    with pytest.raises(
        UserError, match="keeps no weights to average; train with trainer.keep_checkpoints=10"
    ):
        load_model(run, "average")


def test_patience_ends_a_run_that_gets_no_better(tmp_path: Path) -> None:
    """A rate too small to change a weight: validations at 5, 10 and 15 are alike. Also resumed."""
    still = [*TINY, "trainer.steps=100", "trainer.lr=1e-30", "trainer.patience=2"]
    config = configure(*still, f"output_dir={tmp_path}")
    run, result = Run.of(config), train(config)
    assert result["steps"] == 15
    run.result_file.unlink()
    run.checkpoint("last").unlink()
    assert checkpoint.load(run.checkpoint("previous"))["step"] == 10
    assert train(config)["steps"] == 15
    learning = configure(*TINY, "trainer.patience=1", f"output_dir={tmp_path}/learning")
    assert train(learning)["steps"] == 20, "every validation was better"
