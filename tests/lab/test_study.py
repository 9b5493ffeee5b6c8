"""A study's processes: no run reported as another, no worker left behind, no death unnamed."""

import json
import multiprocessing
import os
import re
import signal
import time
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from support import TINY, UNDRAWN, Script, configure, run_script

from wawa_transformer.common.files import lock_directory
from wawa_transformer.common.messages import UserError
from wawa_transformer.data import load
from wawa_transformer.data.tasks import TASKS
from wawa_transformer.lab import study as studies
from wawa_transformer.lab import terminal, workers
from wawa_transformer.run.run_dir import Run
from wawa_transformer.run.signals import STATUS
from wawa_transformer.train.trainer import train


class Rotated(TASKS["copy"]):  # type: ignore[misc]
    """A task of a user's module, which depends on more than settings and seed."""

    by = 0

    def target(self, symbols: list[int]) -> list[str]:
        return list(map(str, symbols[self.by :] + symbols[: self.by]))


GRID = ["study.task=[letters]", "study.pe=[none,alibi]", "study.seeds=[0,1]"]
LONG = ["trainer.steps=100000", "trainer.eval_every=200", "trainer.log_every=10"]


def workers_in(folder: Path) -> dict[Path, int]:
    """The runs of a study that a process holds, and the process."""
    found = {}
    for lock in folder.glob("*/*/seed*/lock"):
        if held := re.match(r"process (\d+) ", lock.read_text(errors="replace")):
            found[lock.parent] = int(held[1])
    return found


def alive(process: int) -> bool:
    """Whether a process is there, and not merely waited for by nobody."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (OSError, IndexError):
        return False
    return state != "Z"


def wait_until(true: Any, study: Script, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert study.is_alive(), study.read(2)
        assert time.monotonic() < end
        time.sleep(0.05)


def steps_of(run: Path) -> list[int]:
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [row["step"] for row in map(json.loads, lines) if "loss" in row]


@pytest.mark.parametrize("name", ["SIGINT", "SIGKILL"])
def test_stopping_a_study_stops_everything_with_a_checkpoint(name: str, tmp_path: Path) -> None:
    """Within seconds no worker trains, every run has its last step, and the command goes on."""
    command = UNDRAWN, "compare.py", *TINY, *GRID, *LONG, f"output_dir={tmp_path}"
    study = Script(*command)
    folder = tmp_path / "default"
    wait_until(lambda: len(list(folder.glob("*/*/*/metrics.jsonl"))) == 2, study)
    workers = workers_in(folder)
    wait_until(lambda: all(steps_of(run) for run in workers), study)
    os.kill(study.pid, getattr(signal, name))
    assert study.end(30).returncode == (-9 if name == "SIGKILL" else STATUS)
    end = time.monotonic() + 15
    while any(map(alive, workers.values())):
        assert time.monotonic() < end, "a worker trains on"
        time.sleep(0.05)
    kept = {run: steps_of(run) for run in workers}
    assert len(kept) == 2
    for run, steps in kept.items():
        assert steps == list(range(10, steps[-1] + 1, 10)), run
        assert (run / "checkpoints" / "last.pt").exists(), run
    if name != "SIGKILL":  # the others go on as surely as it does, and starting takes long
        return
    again = Script(*command)
    try:
        wait_until(lambda: all(steps_of(run)[-1:] > kept[run][-1:] for run in kept), again)
        refused = pytest.raises(UserError, match=f"in use by process {again.pid} ")
        with refused, lock_directory(folder):  # as a rival would
            pass
    finally:
        again.terminate()
        again.end(30)
    for run in kept:
        steps = steps_of(run)
        assert steps == list(range(10, steps[-1] + 1, 10)), run


def test_the_study_hears_ctrl_c_and_its_workers_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """They inherit the mask of the moment at which their server starts."""

    def blocked() -> bool:
        return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])

    started: list[bool] = []
    monkeypatch.setattr(workers, "METHOD", "forkserver")
    monkeypatch.setattr(multiprocessing, "set_forkserver_preload", lambda names: None)
    monkeypatch.setattr(resource_tracker, "ensure_running", lambda: None)
    monkeypatch.setattr(forkserver, "ensure_running", lambda: started.append(blocked()))
    workers.prepare_workers()
    assert started == [True] and not blocked()


class Alone(Script):
    """A script with a terminal's processes to itself, as a shell starts one."""

    def work(self) -> None:
        os.setsid()
        super().work()


def test_ctrl_c_before_the_first_run_is_one_sentence(tmp_path: Path) -> None:
    """It reaches every process of the terminal, and one is busy with what the workers share."""
    study = Alone("compare.py", *TINY, *GRID, f"output_dir={tmp_path}")
    wait_until(lambda: "\nstudy default: 4 runs" in study.read(1), study)
    os.killpg(study.pid, signal.SIGINT)
    done = study.end(30)
    assert done.stderr == "stopped by SIGINT; the same command continues\n"
    assert done.returncode == STATUS


def test_an_estimate_is_for_the_tasks_of_the_study_and_the_workers_of_the_machine() -> None:
    config = configure("study=length")
    known = terminal.minutes_of_run(config, [], "length")
    assert known is not None
    one = configure("study=length", "study.task=[copy]")
    assert terminal.minutes_of_run(one, ["study.task=[copy]"], "length") == known
    other = configure("study=length", "study.task=[addition]")
    assert terminal.minutes_of_run(other, ["study.task=[addition]"], "length") is None
    for other_work in ("+trainer.steps=9", "task.max_length=9", "model.d_model=8"):
        assert terminal.minutes_of_run(config, [other_work], "length") is None
    runs = [Run("copy", "none", seed, Path(str(seed))) for seed in range(8)]
    assert terminal.minutes_left(dict.fromkeys(runs), 4, known) == 8 * known
    assert terminal.minutes_left({runs[0]: None}, 4, known) == 1  # "about 0 minutes" says nothing
    assert terminal.minutes_left({runs[0]: None}, 4, None) is None
    measured = dict.fromkeys([*runs, Run("copy", "t5", 0, Path("t5"))])
    measured[runs[0]] = {"seconds": 600.0}
    measured[Run("copy", "shaw", 0, Path("shaw"))] = {"seconds": 1200.0}
    measured[Run("sort", "none", 0, Path("sort"))] = {"seconds": 9000.0}
    for at_once, minutes in ((1, 7 * 10 + 15), (4, 85 / 4), (16, 85 / 8)):
        assert terminal.minutes_left(measured, at_once, known) == pytest.approx(minutes)
    config.study.expected_minutes, config.study.seeds = 60, [0]
    config.study.tune.lr, config.study.tune.seeds = [0.1, 0.2], [7, 8, 9]
    runs_of_seed = len(config.study.task) * len(config.study.pe)
    given = ["model.d_model=8", "study.expected_minutes=60"]
    own = terminal.minutes_of_run(config, given, "length")
    assert own == 60 / (runs_of_seed * (1 + 2 * 3)), "two rates, with three seeds each"


def test_a_study_says_what_is_to_train_and_takes_the_workers_that_are_asked_for(
    tiny: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config, asked = tiny("workers=3"), list[int]()
    monkeypatch.setattr(studies, "train_all", lambda jobs, workers, *more: asked.append(workers))
    jobs = {Run.from_config(config): config}
    studies.fill(jobs, config, [], "basic", 4.0)
    assert "1 run in" in (said := capsys.readouterr().out) and asked == [3]
    assert said.endswith(", 1 to train, about 4 min on two cores\n")
    config.workers, config.trainer.device = None, "auto"
    monkeypatch.setattr(studies, "automatic_device", lambda: "mps")
    monkeypatch.setattr(studies, "default_workers", lambda device, threads: {"mps": 7}[device])
    studies.fill(jobs, config, [], "basic", None)
    assert asked == [3, 7]
    two = {"a": "none", "b": "t5", "keys": "kind, cross"}
    capsys.readouterr()
    terminal.tell_rule("", [("rule_makes", {"n": 2}), ("rule_two_things", two)])
    makes, weak = capsys.readouterr().out.splitlines()
    assert makes.startswith("The rule makes 2 c") and weak.startswith("warning: no encoding and")


def test_the_command_line_chooses_the_axes_of_a_study() -> None:
    """A task of one's own has no rule but one of the command line."""
    for given, expected in (
        ("pe=none seed=0,1", "study.pe=[none] study.seeds=[0,1]"),
        ("task=copy study=length", "study=length study.task=[copy]"),
        ("task=copy study.name=mine", "study.name=mine study.task=[copy]"),
        ("task=text", "study.task=[text] study.name=text study.rule=null"),
        (
            "task=text +study.rule.claim=x",
            "+study.rule.claim=x study.task=[text] study.name=text",
        ),
    ):
        assert studies.in_lists(given.split()) == expected.split()
    config = configure()
    for seeds, said in (([], "study.seeds is empty"), ([0, 0], "study.seeds names a value twice")):
        config.study.seeds = seeds
        with pytest.raises(UserError, match=said):
            studies.grid(config)
    config.study.seeds = [0]
    config.study.task = ["copy", "reverse task.max_length=5"]
    with pytest.raises(UserError, match=r"holds 'reverse task.max_length=5', and takes names"):
        studies.grid(config)
    with pytest.raises(UserError, match="seed=9223372036854775808 must be"):
        studies.with_seeds([0, 2**63], [config])


def test_a_copied_study_has_a_name_of_its_own() -> None:
    """A file without a name has that of the default study."""
    studies.check_name("length", "length", [])
    studies.check_name("small", "length", [])
    studies.check_name("default", "mine", ["study=mine", "study.name=default"])
    for name in ("default", "length"):
        with pytest.raises(UserError, match=f"the file of study=mine has study.name={name}, and"):
            studies.check_name(name, "mine", ["study=mine"])


def test_a_study_says_what_it_trained_and_which_pairs_it_tests() -> None:
    """A key of the model is an encoding's if it is not everybody's."""
    whole, job = configure(), configure("pe=alibi")
    job.model.num_layers = whole.model.num_layers + 1
    known = studies.study_config(whole, {Run.from_config(job): job}, "compare", "it has no alibi")
    own = {key: value for key, value in known["encodings"]["alibi"].items() if "model." in key}
    assert own == {"model.num_layers": whole.model.num_layers + 1}
    assert known["study"]["rule"] is None and known["unjudged"] == "it has no alibi"
    known = {"encodings": ["a", "b", "c"], "study": {"pairs": [["a", "b"]]}}
    asked = [("differs", "text", pair) for pair in (("a", "b"), ("c", "b"))]
    rule: Any = SimpleNamespace(asked=lambda: asked)
    assert studies.tested_pairs(known, rule) == [("a", "b"), ("c", "b")]


def test_an_entry_with_keys_of_its_own_is_a_command_of_a_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []
    done = Mock(**{"poll.return_value": 0})
    monkeypatch.setattr(
        studies.subprocess, "Popen", lambda command, **how: commands.append(command) or done
    )
    config = configure()
    config.study.pe = ["none", "shaw pe.cross=same", "alibi"]
    config.study.seeds, config.study.task = [0, 1], ["copy", "sort"]
    given = ["trainer.steps=9", "~study.rule.measures.exact_match"]
    studies.train_elsewhere(config, given, tmp_path / "log", Mock())
    every = ["trainer.steps=9", "seed=0,1", "task=copy,sort", "study.name=default"]
    own = ["pe=shaw", "pe.cross=same", "pe.name=shaw_cross_same"]
    assert [command[command.index("-m") + 1 :] for command in commands] == [
        [*every, "progress=false", "pe=none,alibi"],
        [*every, "progress=false", *own],
    ]


def test_the_time_left_follows_from_what_was_done_since_the_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file that cannot be read at this moment changes nothing."""
    first, second = (Mock(status="running", **{"progress.return_value": 0.5}) for _ in range(2))
    view = terminal.View([first, second], 10)
    view.update()  # before anything is done
    first.status, first.progress.return_value = "finished", 1.0
    second.progress.side_effect = UserError("half a line")
    monkeypatch.setattr(view, "started", view.started - 60)
    view.update()
    assert capsys.readouterr().out == "1 of 2 runs finished, 60 s gone, about 60 s left\n"
    view.update()
    assert capsys.readouterr().out == "", "said once"


def test_a_file_of_one_task_or_encoding_changes_no_key_of_all_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each task and each encoding is composed once; what they set for all would be lost."""
    config = configure("study.task=[copy,sort]", "study.pe=[none,alibi,t5]")
    asked, mistaken = [], [""]

    def compose(overrides: Any, task: str, entry: str) -> Any:
        asked.append((task, entry))
        own = ["trainer.lr=0.1"] if mistaken[-1] in (task, entry) else []
        own += ["model.num_layers=3"] if entry == "t5" else []  # as an entry may have
        return configure(f"task={task}", f"pe={entry}", *own)

    monkeypatch.setattr(studies, "compose_job", compose)
    jobs = studies.list_jobs(config, [])
    assert {(run.task, run.pe) for run in jobs} == {
        (task, pe) for task in ("copy", "sort") for pe in ("none", "alibi", "t5")
    }
    assert len(asked) == 4
    assert {run.pe for run, job in jobs.items() if job.model.num_layers == 3} == {"t5"}
    for mistake in ("sort", "alibi"):
        mistaken.append(mistake)
        with pytest.raises(UserError, match="sets a key of model or trainer, which a study gives"):
            studies.list_jobs(config, [])


def test_a_run_whose_process_is_killed_is_tried_once_more_and_then_reported(tmp_path: Path) -> None:
    """Planted: one kills its own process each time that it starts, and one the first time."""
    plant = tmp_path / "planted.py"
    plant.write_text(
        "import os, pathlib, runpy, signal\n"
        "import wawa_transformer.train.trainer as training\n"
        "real = training.train\n"
        "def train(config, patience=0.0):\n"
        "    assert patience >= 10, 'a worker of a killed study holds the lock for one more step'\n"
        "    died = pathlib.Path(config.output_dir, config.pe.name)\n"
        "    if config.pe.name == 'alibi' or not died.exists():\n"
        "        died.touch()\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return real(config, patience)\n"
        "training.train = train\n"
        f"runpy.run_path({UNDRAWN!r}, run_name='__main__')\n"
    )
    study = [*TINY, *GRID, "study.seeds=[0]", f"output_dir={tmp_path}"]
    done = run_script(str(plant), "compare.py", *study)
    assert done.returncode == 1
    said = "failed: letters alibi seed 0: its process was killed by SIGKILL, 2 times ("
    assert f"{said}{tmp_path / 'default' / 'letters' / 'alibi' / 'seed0-'}" in done.stderr
    run = Run.from_config(configure(*TINY, "pe=none", f"output_dir={tmp_path}"))
    assert f"{run}: its process was killed by SIGKILL; it is tried once more" in done.stdout
    calm = train(configure(*TINY, "pe=none", f"output_dir={tmp_path}/calm"))
    assert (run.result() or {})["by_length"] == calm["by_length"]
    report = (tmp_path / "default" / "report.md").read_text()
    assert "Not final: the study lacks 1 run." in report
    assert "Left out: letters, alibi, seed 0 (failed). its process was killed" in report


def test_each_seed_of_a_users_task_is_held_against_todays_data(
    tiny: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What such a task reads, as a list of words, is in no digest of code."""
    monkeypatch.setitem(TASKS, "copy", Rotated)
    jobs = {
        Run.from_config(config): config
        for config in (tiny("task=copy", f"seed={seed}") for seed in (0, 1))
    }

    def digests() -> dict[Run, dict[str, Any] | None]:
        load.LAST.clear()
        return {run: {"data": load.load_data(config).digest} for run, config in jobs.items()}

    before = digests()
    studies.check_data_of(before, jobs, ())
    monkeypatch.setattr(Rotated, "by", 1)
    first, second = jobs
    with pytest.raises(UserError, match="was trained on data"):
        studies.check_data_of({first: digests()[first], second: before[second]}, jobs, ())
    # A task of ours that the same code made has the same data; under other code it is looked at.
    config = tiny("task=sort")
    run = Run.from_config(config)
    studies.check_data_of({run: {"data": "other"}}, {run: config}, ())
    with pytest.raises(UserError, match="was trained on data other"):
        studies.check_data_of({run: {"data": "other"}}, {run: config}, [run])
