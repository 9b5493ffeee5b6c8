"""A run's folder: one process in it, nothing half-written, no other run's result."""

import errno
import io
import itertools
import json
import multiprocessing
import os
import re
import shutil
import signal
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import evaluate
import export
import pandas as pd
import pytest
import torch
import yaml
from support import TINY, Script, assert_same_bits, call_script, configure, trained
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from wawa_transformer.common.files import (
    LOCK,
    lock_directory,
    lock_holder,
    make_directory,
    write_atomically,
)
from wawa_transformer.common.messages import UserError
from wawa_transformer.lab import collect, tables
from wawa_transformer.positional.base import ENCODINGS, Encoding, EncodingContext, Positions
from wawa_transformer.run import failure, provenance
from wawa_transformer.run.export import to_safetensors
from wawa_transformer.run.run_dir import Run
from wawa_transformer.run.signals import SIGNALS, STATUS, GracefulStop, Stopped
from wawa_transformer.train import checkpoint
from wawa_transformer.train.load import load_model
from wawa_transformer.train.loop import batch_stream, train_step
from wawa_transformer.train.setup import build_state, restore, save_state
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
    assert (tmp_path / LOCK).read_text() and not lock_holder(tmp_path / LOCK)
    with lock_directory(tmp_path):
        assert str(os.getpid()) in (tmp_path / LOCK).read_text()
    assert (tmp_path / LOCK).read_text() == ""


DROPOUT = [*TINY, "model.dropout=0.1", "trainer.eval_every=5"]
LONG = [*DROPOUT, "trainer.steps=100", "trainer.eval_every=15"]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run that has been trained to its end; tests damage copies of it."""
    return trained(tmp_path_factory.mktemp("done"), *DROPOUT)


def copied(run: Run, folder: Path) -> Run:
    """Copy a run to where the same command looks for it in ``folder``."""
    there = folder.joinpath(*run.directory.parts[-4:])
    return Run.at(shutil.copytree(run.directory, there))


def test_a_run_that_is_stopped_ends_with_the_same_bits(tmp_path: Path) -> None:
    """Stopped again and again, the same command ends where an unstopped run ends.

    A signal that a process can catch keeps the step and leaves with the documented status.
    """
    long = trained(tmp_path / "long", *LONG)
    arguments = [*LONG, "study.name=long", f"output_dir={tmp_path}"]
    config = configure(*arguments)
    run, before = Run.from_config(config), 0
    last, saved = run.checkpoint("last"), 0
    for name in ("SIGKILL", "SIGTERM", "SIGINT"):
        script = Script("train.py", *arguments)
        while script.is_alive() and (last.stat().st_mtime_ns if last.exists() else 0) == saved:
            time.sleep(0.01)
        os.kill(int(lock_holder(run.directory / LOCK).split()[1]), getattr(signal, name))
        done = script.end()
        step, saved = checkpoint.load(last)["step"], last.stat().st_mtime_ns
        assert before < step < 100 and not run.result_file.exists(), "too late to show anything"
        before = step
        if name != "SIGKILL":
            assert done.returncode == STATUS, done.stderr
            assert f"stopped by {name} at step {step} of 100" in done.stderr
            assert "the same command continues" in done.stderr
    assert train(config)["by_length"] == long.result()["by_length"]
    assert_same_bits(run, long)


def test_curves_of_a_run_that_begins_again_hold_each_step_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before its first checkpoint, or after its checkpoints were deleted."""
    now = time.time()
    for value in (1.0, 2.0):
        # TensorBoard reads files by their second, and within a second by a count as text.
        monkeypatch.setattr(time, "time", lambda value=value: now + value)
        with Tracker(Run("letters", "none", 0, tmp_path), [], 0, main=True) as tracker:
            for step in (1, 2):
                tracker.scalars(step, "train", loss=value)
    points = EventAccumulator(str(tmp_path)).Reload().Scalars("loss/train")
    assert [(point.step, point.value) for point in points] == [(1, 2.0), (2, 2.0)]


def test_a_finished_run_is_found_where_nobody_may_write(
    done: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read-only disk of another machine's results."""
    run = copied(done, tmp_path)
    run.directory.joinpath(LOCK).unlink()
    monkeypatch.setattr(os, "access", lambda *given: False)
    assert train(configure(*DROPOUT, f"output_dir={tmp_path}")) == done.result()
    assert not run.directory.joinpath(LOCK).exists()


def test_a_run_killed_while_it_writes_its_first_file_begins_again(tmp_path: Path) -> None:
    """Its folder has what it was about to write; an empty lock and an earlier error as well."""
    (tmp_path / "config.yaml.tmp").write_text("half")
    (tmp_path / "error.log").write_text("no memory\n")
    (tmp_path / LOCK).write_text("")
    run = Run("letters", "none", 0, tmp_path)
    run.write_config(configure(*DROPOUT, f"run_dir={tmp_path}"))
    assert run.configuration()["seed"] == 0


def test_a_signal_waits_for_a_checkpoint_and_a_second_ctrl_c_does_not() -> None:
    """Afterwards the signals are the caller's again; a thread of its own takes none.

    Python knows a handler that was not set from Python as None, and cannot set it again.
    """
    assert STATUS == os.EX_TEMPFAIL == 75, "which scripts of clusters ask for"
    before = [signal.getsignal(number) for number in SIGNALS]
    assert {"SIGINT", "SIGTERM", "SIGUSR1"} == {signal.Signals(number).name for number in SIGNALS}
    for first in SIGNALS:
        with GracefulStop() as stop:
            with stop.deferred():
                for number in (first, signal.SIGTERM):
                    os.kill(os.getpid(), number)
                assert stop.asked == "SIGTERM"
                with pytest.raises(Stopped, match="stopped by SIGINT"):
                    os.kill(os.getpid(), signal.SIGINT)
            with pytest.raises(Stopped, match="stopped by "):
                os.kill(os.getpid(), first)
        assert [signal.getsignal(number) for number in SIGNALS] == before
    with ThreadPoolExecutor(1) as thread:
        thread.submit(GracefulStop().__enter__).result()
    stop = GracefulStop()
    stop.before = dict.fromkeys(SIGNALS)
    stop.__exit__()


def test_a_finished_run_says_that_the_code_has_changed(
    done: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same command trains nothing, so an edited encoding would seem to change nothing."""
    run = copied(done, tmp_path)
    now = provenance.code_digest(configure(*DROPOUT))
    for code, changed in ((now, False), ("0123abcd", True)):
        run.result_file.write_text(json.dumps(run.result() | {"code": code}))
        train(configure(*DROPOUT, f"output_dir={tmp_path}"))
        assert ("the code has changed since" in capsys.readouterr().err) == changed


def test_a_result_that_cannot_be_read_or_is_anothers_is_made_again(tmp_path: Path) -> None:
    """From the last checkpoint, by the same command; the keys of older results do not matter.

    Under ``run_dir`` the folder's name says nothing of the configuration.
    """
    mine, others = ([*TINY, f"run_dir={tmp_path}/{name}"] for name in ("mine", "other"))
    run = trained(tmp_path, *mine)
    other = trained(tmp_path, *others, "trainer.lr=1e-3")
    text, result = run.result_file.read_text(), run.result()
    half = json.dumps({key: result[key] for key in ("configuration", "test")})
    for wrong in ("", text[: len(text) // 2], "{}", "[1, 2]", half, other.result_file.read_text()):
        run.result_file.write_text(wrong)
        assert run.result() is None and run.status == "stopped"
    again = trained(tmp_path, *mine).result()
    assert again["by_length"] == result["by_length"] and run.status == "finished"
    older = {**again, "sha256": "0", "metrics_sha256": "1"}
    run.result_file.write_text(json.dumps(older))
    assert run.result() == older
    with pytest.raises(UserError, match="holds another configuration"):
        trained(tmp_path, *mine, "seed=1")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[1]",
        b"\xff",
        b"a: *b",
        b"a: 2026-99-99",
        b"task: {name: 1}\npe: 2\nseed: x",
        b"task: {name: a}\npe: {name: b}\nseed: x",
    ],
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


def test_weights_that_are_not_finite_are_never_saved(tiny) -> None:
    """A stop between two logged steps saves a state that no loss was checked for."""
    config = tiny("trainer.keep_checkpoints=2")
    run = Run.from_config(config)
    state = build_state(config, run, None)
    save_state(state)
    assert not run.kept() and not run.checkpoint("best").exists(), "only a validation keeps these"
    state.step = 3
    with torch.no_grad():
        state.model.output.weight[0, 0] = torch.nan
    with pytest.raises(
        UserError, match=r"^the largest weight is nan at step 3; the last good checkpoint"
    ):
        save_state(state)
    assert checkpoint.load(run.checkpoint("last"))["step"] == 0


def test_some_whole_checkpoint_is_there_at_every_moment_of_saving(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before and after each change of the folder; also on a file system without links.

    A process that was killed meanwhile does not stop the next one.
    """
    run = Run("letters", "none", 0, tmp_path)
    last, previous = run.checkpoint("last"), run.checkpoint("previous")
    whole, steps = dict.fromkeys(checkpoint.CONTENTS, 0), []

    def watched(name: str) -> None:
        change = getattr(os, name)

        def checked(*given: Any, **named: Any) -> Any:
            steps.append(checkpoint.load(last)["step"])
            done = change(*given, **named)
            steps.append(checkpoint.load(last)["step"])
            return done

        monkeypatch.setattr(os, name, checked)

    def refused(*given: Any) -> None:
        raise OSError(errno.EPERM, "no links here")

    for _ in range(2):
        checkpoint.save(run.checkpoint("best"), whole)
    assert not previous.exists(), "a best one is none to resume from"
    checkpoint.save(last, whole | {"step": 1})
    last.with_stem("spare").hardlink_to(last)
    for name in ("replace", "rename", "link", "unlink", "remove"):
        watched(name)
    for step in (2, 3, 4):
        if step == 3:
            monkeypatch.setattr(os, "link", refused)
        before = len(steps)
        checkpoint.save(last, whole | {"step": step})
        assert checkpoint.load(previous)["step"] == step - 1
        assert steps[before:] == sorted(steps[before:]) and {step - 1, step} == {*steps[before:]}


def spoil(path: Path, damage: str) -> None:
    """Damage a checkpoint. Where its contents are changed, its checksum is right."""
    content, state = bytearray(path.read_bytes()), checkpoint.load(path)
    weights = state["model"]["output.weight"]
    if damage == "cut":
        path.write_bytes(content[:5000])
        return
    if damage == "bit":
        content[content.index(weights[0].numpy().tobytes())] ^= 1
        path.write_bytes(content)
        return
    if damage == "shape":
        state["model"]["output.weight"] = weights[:, 1:].clone()
    elif damage == "no tensor":
        state["model"]["output.weight"] = 1
    elif damage == "moments":
        state["optimizer"]["param_groups"][0]["params"].pop()
    elif damage == "optimiser":  # as an edit's SGD wrote it
        group = state["optimizer"]["param_groups"][0]
        del group["betas"], group["eps"]
        group["momentum"] = 0.9
    elif damage == "infinite":
        weights[0, 0] = torch.inf
    elif damage == "half":  # load_state_dict would take them, rounded
        state["model"]["output.weight"] = weights.bfloat16()
    elif damage == "object":  # of a fork; torch reads plain values alone
        state["extra"] = Path("x")
    elif damage == "contents":
        state = {"step": 3, "model": {"w": torch.arange(1000.0)}}
    elif damage == "learning rate":
        state["config"]["trainer"]["lr"] = 1.0
    made = path.with_stem("made")
    torch.save(state, made)
    made.replace(path)


@pytest.mark.parametrize("damage", ["cut", "bit", "contents"])
def test_a_damaged_checkpoint_gives_way_to_the_one_before(
    damage: str, done: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A checksum or a missing key proves the damage. Whoever loads the model is refused."""
    run, config = copied(done, tmp_path), configure(*DROPOUT, f"output_dir={tmp_path}")
    last = run.checkpoint("last")
    spoil(last, damage)
    damaged = last.read_bytes()
    run.result_file.unlink()
    older = ".*, unless an older version" if damage == "contents" else ""
    with pytest.raises(checkpoint.Damaged, match=f"is damaged{older}"):
        load_model(run)
    assert restore(config, run).step == 15
    said = capsys.readouterr().err
    assert f"{last} is damaged" in said and "previous.pt, step 15" in said
    assert "the code has changed" not in said
    assert last.with_suffix(".damaged").read_bytes() == damaged
    assert checkpoint.load(last)["step"] == 15, "or a finished run may have none"
    last.unlink()
    assert restore(config, run).step == 15, "the previous one, where the last is gone"


def contents(folder: Path) -> dict[str, bytes]:
    """Read every file below a folder but for the lock."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != LOCK]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("shape", r"does not fit the model that this code builds \(size mismatch for output"),
        ("no tensor", "does not fit the model"),
        ("moments", r"does not fit the model .*: code .* wrote it"),
        ("optimiser", "does not fit the model .*its optimiser is another one, with momentum"),
        ("infinite", "does not fit .*a weight is not finite"),
        ("half", "does not fit .*output.weight is torch.bfloat16, not torch.float32"),
        ("object", "holds an object that is neither a tensor .*: nothing was moved"),
        ("learning rate", r"another run than .*: trainer.lr is 1.0 there and 0.002 here"),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_not_called_damaged(
    change: str, said: str, done: Run, tmp_path: Path
) -> None:
    """Its checksum is right: the model's code or the run is another. Nothing is moved."""
    run, config = copied(done, tmp_path), configure(*DROPOUT, f"output_dir={tmp_path}")
    spoil(run.checkpoint("last"), change)
    run.result_file.unlink()
    before = contents(run.directory)
    for use in (lambda: load_model(run), lambda: train(config)):
        if change in ("moments", "optimiser") and use.__code__.co_names[0] == "load_model":
            continue  # a model needs none
        with pytest.raises(UserError, match=said) as refused:
            use()
        assert not isinstance(refused.value, checkpoint.Damaged)
        assert "damage" not in str(refused.value) and "delete" not in str(refused.value)
    assert contents(run.directory) == before
    full = pytest.raises(UserError, match="last.pt cannot be read .*out of memory")
    with full, checkpoint.fitting(Path("last.pt"), {}):
        raise torch.OutOfMemoryError("CUDA out of memory")


NO_READ = [
    PermissionError(errno.EACCES, "Permission denied"), OSError(errno.EIO, "Input/output error"),
    OSError(errno.ESTALE, "Stale file handle"), MemoryError(),
]  # fmt: skip
OF_TORCH = [
    RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"),
    RuntimeError("can't start new thread"),
]


@pytest.mark.parametrize(
    ("place", "name", "errors"),
    [
        (Path, "open", NO_READ),
        (zipfile.ZipFile, "testzip", NO_READ),
        (torch, "load", [*NO_READ, *OF_TORCH]),
    ],
)
def test_what_cannot_be_read_now_is_not_called_damaged(
    place: Any, name: str, errors: list[Exception], done: Run, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """By training, by loading, and by the average; no file is moved, renamed or written."""
    run, config = copied(done, tmp_path), configure(*DROPOUT, f"output_dir={tmp_path}")
    run.result_file.unlink()
    before, real = contents(run.directory), getattr(place, name)
    for error in errors:

        def fails(path: Any, *given: Any, error: Exception = error, **named: Any) -> Any:
            if place is Path and path.suffix != ".pt":
                return real(path, *given, **named)
            raise error

        for use in (lambda: load_model(run), lambda: train(config)):
            with monkeypatch.context() as patched, pytest.raises(UserError) as refused:
                patched.setattr(place, name, fails)
                use()
            said = str(refused.value)
            assert re.search(r"last.pt cannot be read now \(.+\); .*nothing was changed", said)
            assert "damage" not in said and "delete" not in said
            assert contents(run.directory) == before
    assert train(config)["by_length"] == done.result()["by_length"]


FILES = ["result.json", "config.yaml", "checkpoints/last.pt", "metrics.jsonl", "error.log"]


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_a_run_that_cannot_be_read_is_not_taken_for_missing(
    name: str, done: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is a link to a file that was not fetched, as git-annex and DVC leave it.

    A run neither begins anew nor goes back by a checkpoint, and no curve is lost.
    """
    run, opened = copied(done, tmp_path), io.open
    (run.directory / "error.log").write_text("failed once\n")
    if name == "checkpoints/last.pt":
        run.result_file.unlink()

    def fails(path: Any, *given: Any, **named: Any) -> Any:
        if str(path).endswith(name):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return opened(path, *given, **named)

    uses: dict[str, Any] = {"metrics.jsonl": run.metrics, "error.log": run.failure}
    use = uses.get(name, lambda: train(configure(*DROPOUT, f"output_dir={tmp_path}")))
    before = contents(run.directory)
    refused = pytest.raises(UserError, match=rf"{name} cannot be read now \(Permission denied\)")
    with monkeypatch.context() as patched, refused:
        patched.setattr(io, "open", fails)
        use()
    assert contents(run.directory) == before
    (run.directory / name).unlink()
    (run.directory / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match=rf"{name} cannot be read now \(it is a link, and its"):
        use()
    before.pop(name)
    assert contents(run.directory) == before and (run.directory / name).is_symlink()


def test_another_runs_checkpoint_is_not_used_under_this_runs_name(
    done: Run, tmp_path: Path
) -> None:
    """Copied in by hand: loaded, evaluated, exported or resumed, both runs are told apart."""
    run = copied(done, tmp_path)
    keys = [*DROPOUT, "pe=rotary", "trainer.keep_checkpoints=2"]
    other = trained(tmp_path / "other", *keys)
    for path in run.checkpoint("last").parent.glob("*.pt"):
        path.unlink()
    for path in other.checkpoint("last").parent.glob("*.pt"):
        shutil.copy(path, run.checkpoint("last").parent)
    for which, script in (
        ("last", evaluate), ("best", export), ("previous", evaluate), ("average", export)
    ):  # fmt: skip
        if which == "average":  # whose last checkpoint is the run's own
            shutil.copy(done.checkpoint("last"), run.checkpoint("last"))
        with pytest.raises(SystemExit, match="is a checkpoint of another run than") as refused:
            call_script(script.main, f"run={run.directory}", f"checkpoint={which}")
        assert "pe.kind is rotary there and sinusoidal here" in str(refused.value)
    shutil.copy(other.checkpoint("last"), run.checkpoint("last"))
    run.result_file.unlink()
    with pytest.raises(UserError, match="is a checkpoint of another run"):
        train(configure(*DROPOUT, f"output_dir={tmp_path}"))


def test_an_altered_configuration_is_refused(
    done: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In checkpoint and folder alike; said before it takes memory or reads the environment."""
    run = copied(done, tmp_path)
    monkeypatch.setenv("SECRET", "letters")
    own = run.configuration()
    for part, value in (
        ("model", {"d_model": 65536}), ("model", {"num_heads": 5}), ("model", {"norm": "odd"}),
        ("model", {"d_model": "wide"}), ("pe", {"kind": "nope"}), ("pe", {"max_len": -1}),
        ("task", {"kind": "nope"}), ("task", {"name": "${oc.env:SECRET}"}),
        ("trainer", {"lr": None}), ("model", None), ("other", 1),
    ):  # fmt: skip
        saved = checkpoint.load(run.checkpoint("last"))
        both = isinstance(value, dict)
        saved["config"][part] = {**saved["config"][part], **value} if both else value
        checkpoint.save(run.checkpoint("best"), saved)
        for config, said in ((own, "another run than"), (saved["config"], "is refused: ")):
            run.config_file.write_text(yaml.safe_dump(config))
            with pytest.raises(UserError, match=f"^(?!.*does not fit).*{said}"):
                load_model(run, "best")


def test_with_no_intact_checkpoint_nothing_is_thrown_away(done: Run, tmp_path: Path) -> None:
    """The sentence names the first one, and another folder to train in."""
    run = copied(done, tmp_path)
    run.result_file.unlink()
    for which in ("last", "previous"):
        run.checkpoint(which).write_bytes(b"no")
    before = contents(run.directory)
    with pytest.raises(UserError, match=r"last.pt is damaged: .*set to another folder"):
        train(configure(*DROPOUT, f"output_dir={tmp_path}"))
    assert contents(run.directory) == before


def test_a_refused_run_leaves_folders_that_were_there(tiny, tmp_path: Path) -> None:
    """What it made itself is gone; with ``run_dir`` a user may have made the parents.

    A table too short for the data is found out with the data; nothing was trained.
    """
    (tmp_path / "mine").mkdir()
    for where in (f"output_dir={tmp_path}/results", f"run_dir={tmp_path}/mine/first"):
        with pytest.raises(UserError, match="7 or more, as by pe.max_len=7"):
            train(tiny("pe=learned", "pe.max_len=3", where))
    assert (tmp_path / "mine").is_dir() and not any((tmp_path / "results").iterdir())


def test_a_folder_of_other_files_is_no_runs(tiny, tmp_path: Path) -> None:
    """``run_dir=/`` for one; nothing is written there."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter.txt").write_text("dear")
    with pytest.raises(UserError, match="holds files and no run; name an empty folder"):
        train(tiny(f"run_dir={tmp_path / 'home'}"))
    assert {path.name for path in (tmp_path / "home").iterdir()} <= {"letter.txt", "lock"}


def test_tables_are_written_whole(
    done: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A study that is stopped leaves the old table or the new one."""
    written: list[str] = []
    monkeypatch.setattr(tables, "write_atomically", lambda path, _: written.append(path.name))
    known = {"encodings": {}, "study": {"tune": {"seeds": []}}}
    collect.write_tables(tmp_path, known, [done], [], pd.DataFrame())
    assert {*written} >= {"results.csv", "curves.csv", "study.yaml"}


def test_the_key_of_a_folder_that_cannot_be_written_is_named(done: Run, tmp_path: Path) -> None:
    """A run's is output_dir, and an export's is directory."""
    (tmp_path / "file").write_text("")
    model, tokenizer, _ = load_model(done)
    for key, write in (
        ("output_dir", lambda folder: trained(folder, *TINY)),
        ("run_dir", lambda folder: trained(tmp_path, *TINY, f"run_dir={folder}")),
        ("directory", lambda folder: to_safetensors(model, tokenizer, folder)),
    ):
        with pytest.raises(UserError, match=f"cannot be written .* set {key} to a folder of yours"):
            write(tmp_path / "file" / "inside")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("full",), "output_dir to a folder of yours that holds a copy of full[.]"),
        (("full", "report"), "report to a copy of .*full[.]"),
        (("empty",), "output_dir to a folder of yours[.]"),
        (("full", "attention", False), "set attention to a folder of yours[.]"),
    ],
)
def test_runs_that_others_finished_are_to_be_copied(
    given: tuple[Any, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a folder that is read alone, they count; an empty one is worth no copy."""
    (tmp_path / "full" / "copy").mkdir(parents=True)
    (tmp_path / "empty").mkdir()
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    with pytest.raises(UserError, match=said):
        make_directory(tmp_path / given[0], *given[1:])


def test_a_stopped_run_where_nobody_may_write_goes_on_in_a_copy(
    done: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the refusal says, and not from the start in another output_dir."""
    run, given = copied(done, tmp_path), [*DROPOUT, f"output_dir={tmp_path}"]
    run.result_file.unlink()
    with monkeypatch.context() as patched:
        patched.setattr(os, "access", lambda path, mode: mode != os.W_OK)
        with pytest.raises(UserError) as refused:
            train(configure(*given))
    said = re.fullmatch(r".* set run_dir to a copy of (.*)[.]", str(refused.value))
    assert said and Path(said[1]) == run.directory
    shutil.copytree(said[1], tmp_path / "mine")
    assert restore(configure(*given), Run("", "", 0, tmp_path / "mine")).step == 20
    assert train(configure(*given, f"run_dir={tmp_path / 'mine'}"))["data"] == done.result()["data"]


def test_a_full_disk_is_no_mistake_of_a_forks_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a file of this project was changed, too; a file that is missing may be its mistake."""
    monkeypatch.setattr(failure, "origin", lambda frame: "changed")
    for number, is_disks in ((errno.ENOSPC, True), (errno.EFBIG, True), (errno.ENOENT, False)):
        try:
            raise OSError(number, os.strerror(number))
        except OSError as error:
            assert (failure.sentence_of(error) is not None) == is_disks


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_is_a_sentence_and_leaves_the_old_file(tmp_path: Path, monkeypatch) -> None:
    """``/dev/full`` refuses every byte; no half-written file stays."""
    path = tmp_path / "file"
    write_atomically(path, "old")
    (tmp_path / "file.tmp").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left") as it:
        write_atomically(path, "new" * 10_000)
    assert str(path) in str(failure.sentence_of(it.value))
    assert path.read_text() == "old" and not (tmp_path / "file.tmp").is_symlink()


def test_a_loss_that_was_never_finite_is_not_blamed_on_the_learning_rate(
    tiny, registry: None
) -> None:
    """Planted: an encoding that adds infinity. No word of a checkpoint that does not exist."""

    class Exploding(Encoding, kind="exploding"):
        def embed(self, x: torch.Tensor, at: Positions) -> torch.Tensor:
            return x + torch.inf

    with pytest.raises(UserError, match="before the first update") as caught:
        train(tiny("pe=none", "pe.kind=exploding"))
    assert "none was kept yet" in str(caught.value) and "trainer.lr" not in str(caught.value)


def test_the_average_is_that_of_the_last_weights_kept(done: Run, tmp_path: Path) -> None:
    """Against torch's own running mean; the run's result is that of a run that keeps none."""
    run = trained(tmp_path, *DROPOUT, "trainer.keep_checkpoints=3")
    steps = [checkpoint.load(path, checkpoint.WEIGHTS)["step"] for path in run.kept()]
    assert steps == [10, 15, 20]
    assert run.result()["by_length"] == done.result()["by_length"]

    model, *_ = load_model(run)
    mean = torch.optim.swa_utils.AveragedModel(model, use_buffers=True)
    for path in run.kept():
        kept = checkpoint.load(path, (*checkpoint.WEIGHTS, "tokenizer", "trained_sizes"))
        model.load_state_dict(kept["model"])
        mean.update_parameters(model)
    found, *_ = load_model(run, "average")
    assert not found.training
    last = load_model(run)[0].state_dict()
    for name, weights in mean.module.state_dict().items():
        torch.testing.assert_close(found.state_dict()[name], weights)
        assert not torch.equal(weights, last[name]), name

    for other in (run.kept()[1].stem, "foo", None):  # intact, and no choice
        with pytest.raises(
            UserError, match="checkpoint=.* does not exist; choose one of last, best"
        ):
            load_model(run, other)  # type: ignore[arg-type]
    newest = run.kept()[-1].rename(tmp_path / "newest")  # as if training went on and kept none
    with pytest.raises(
        UserError, match=r"steps \[10, 15\], and its last validations were at \[15, 20\]"
    ):
        load_model(run, "average")
    later = run.checkpoint("step0000000025")  # as if a kill came before the checkpoint of step 25
    shutil.copyfile(newest, later)
    newest.rename(run.checkpoint("step0000000020"))
    torch.testing.assert_close(load_model(run, "average")[0].state_dict(), found.state_dict())
    later.unlink()
    run.kept()[1].write_bytes(run.kept()[1].read_bytes()[:-9])
    with pytest.raises(checkpoint.Damaged, match=r"step0000000015.pt is damaged"):
        load_model(run, "average")
    for path in run.kept():
        path.unlink()
    with pytest.raises(
        UserError,
        match="keeps no weights to average; choose checkpoint=last, or train it in",
    ):
        load_model(run, "average")


class Buffered(Encoding):
    """Training changes a number, a truth value and a batch norm; a mask is infinite on purpose."""

    def __init__(self, context: EncodingContext) -> None:
        super().__init__(context)
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self.register_buffer("seen", torch.tensor([True, False]))
        self.register_buffer("mask", torch.tensor([0.0, -torch.inf]))
        self.norm = torch.nn.BatchNorm1d(context.d_model)

    def embed(self, x: torch.Tensor, at: Positions) -> torch.Tensor:
        self.steps += self.training
        self.seen[1] |= self.training
        return self.norm(x.flatten(0, 1)).view_as(x)  # (B·S,D) and back


@pytest.mark.parametrize("kind", [*sorted(ENCODINGS), "buffered"])
def test_every_encoding_is_saved_and_loaded(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two steps, each with a checkpoint: the same weights and buffers, whatever their type.

    The checkpoint before and the average are loaded where buffers are of other types than weights.
    """
    monkeypatch.setitem(ENCODINGS, kind, ENCODINGS.get(kind, Buffered))
    keys = ["pe=none", f"pe.kind={kind}", "trainer.keep_checkpoints=2"]
    config = configure(*TINY, *keys, f"output_dir={tmp_path}")
    run = Run.from_config(config)
    make_directory(run.directory)
    run.write_config(config)
    state = build_state(config, run, None)
    state.model.train()
    saved: list[dict[str, torch.Tensor]] = []
    for batches in itertools.islice(batch_stream(state.data.train, state.trainer, 0, 0), 2):
        train_step(state, batches)
        saved.append({name: value.clone() for name, value in state.model.state_dict().items()})
        state.history.append({"step": state.step, "split": "validation"})
        save_state(state, validated=True)
    others = (("previous", saved[0]), ("average", None)) if kind == "buffered" else ()
    for which, expected in (("last", saved[-1]), *others):
        found = load_model(run, which).model.state_dict()
        assert {name: value.dtype for name, value in found.items()} == {
            name: value.dtype for name, value in saved[0].items()
        }
        for name, value in found.items():
            if expected:
                assert torch.equal(value, expected[name]), name
            elif not value.is_floating_point():
                assert torch.equal(value, saved[-1][name]), name


def test_patience_ends_a_run_that_gets_no_better(tmp_path: Path) -> None:
    """A rate too small to change a weight: validations at 5, 10 and 15 are alike. Also resumed."""
    every = [*TINY, "trainer.eval_every=5"]
    still = [*every, "trainer.steps=100", "trainer.lr=1e-30", "trainer.patience=2"]
    config = configure(*still, f"output_dir={tmp_path}")
    run, result = Run.from_config(config), train(config)
    assert result["steps"] == 15
    assert checkpoint.load(run.checkpoint("best"))["step"] == 5, "no later one is better"
    run.result_file.unlink()
    run.checkpoint("last").unlink()
    assert checkpoint.load(run.checkpoint("previous"))["step"] == 10
    assert train(config)["steps"] == 15
    learning = trained(tmp_path / "learning", *every, "trainer.patience=1")
    assert learning.result()["steps"] == 20, "every validation was better"
