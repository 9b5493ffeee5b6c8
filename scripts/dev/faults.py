"""What happens when things go wrong:  python scripts/dev/faults.py [--kills 50] [--seed 0]

Kills train.py and compare.py at random moments and gives the same command again until it has
finished, tears their files, fills their disk, starts a rival in their folder. Whatever happened,
the end must be an undisturbed run's, bit for bit, or one sentence. Exit status 1 otherwise.
"""

import argparse
import contextlib
import functools
import io
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import torch
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from wawa_transformer.common.files import CONFIG_DIR, LOCK, lock_holder
from wawa_transformer.common.schema import UserError
from wawa_transformer.run.cli import validate
from wawa_transformer.run.provenance import provenance
from wawa_transformer.run.run_dir import Run
from wawa_transformer.run.signals import STATUS, Stopped
from wawa_transformer.train import checkpoint
from wawa_transformer.train.trainer import train

SCRIPTS = CONFIG_DIR.parent / "scripts"
BENCHMARKS = CONFIG_DIR.parent / "benchmarks"
# Small, with dropout so that the random generator counts, and long enough to be killed often.
RUN = [
    "model.d_model=16", "model.num_heads=2", "model.d_ff=32", "model.dropout=0.1",
    "task.train_size=300", "task.validation_size=20", "task.test_per_length=5",
    "task.max_length=4", "task.test_max_length=6", "trainer.steps=600", "trainer.warmup=5",
    "trainer.eval_every=50", "trainer.log_every=5", "trainer.batch_tokens=64",
    "trainer.device=cpu", "trainer.attention_maps=false", "progress=false",
]  # fmt: skip
STUDY = ["study.task=[letters]", "study.pe=[learned,alibi]", "study.seeds=[0]"]
SIGNALS = ("SIGKILL", "SIGTERM", "SIGINT", "SIGUSR1")
LOSSES = ("traceback", "orphan", "lines", "numbers", "silence", "stuck")
COMPOSING = threading.Lock()  # Hydra keeps its state in one place
PATIENCE = 240.0  # seconds for any one process


@dataclass
class Row:
    """What came of one kind of fault; ``lost`` counts, ``notes`` say what it was."""

    fault: str
    tried: int = 0
    survived: int = 0
    lost: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)

    def add(self, losses: dict[str, str]) -> None:
        """One trial: what it lost, and the words for it."""
        self.tried += 1
        self.survived += not losses
        self.lost.update(losses.keys())
        self.notes += [f"{loss}: {words}" for loss, words in losses.items()]


@dataclass
class Trials:
    """Where the trials take place, and what an undisturbed run gives."""

    folder: Path
    seed: int
    rows: dict[str, Row] = field(default_factory=dict)
    expected: dict[str, dict[str, Any]] = field(default_factory=dict)

    def row(self, fault: str) -> Row:
        """The row of a kind of fault."""
        return self.rows.setdefault(fault, Row(fault))

    def chance(self, name: str) -> random.Random:
        """A stream of its own for each job, whatever the others do."""
        return random.Random(f"{self.seed} {name}")

    def arguments(self, name: str, *more: str) -> list[str]:
        """The command line of what happens in the folder ``name``."""
        return [*RUN, f"output_dir={self.folder / name}", *more]

    def config(self, name: str, *more: str) -> DictConfig:
        """The configuration of the same command line."""
        with COMPOSING, initialize_config_dir(str(CONFIG_DIR), version_base="1.3"):
            config = compose("config", self.arguments(name, *more))
        validate(config)
        return config

    def undisturbed(self, *encodings: str) -> None:
        """Train each encoding to its end, to compare with."""
        for pe in encodings:
            config = self.config("undisturbed", f"pe={pe}")
            train(config)
            self.expected[pe] = outcome(Run.of(config))

    def wrong(self, run: Run) -> dict[str, str]:
        """Where the end of a run is another than that of the undisturbed one."""
        expected = self.expected[run.pe]
        try:
            got = outcome(run)
        except Exception as error:
            return {"numbers": f"{run.directory}: {error!r}"}
        losses = {}
        if got["lines"] != expected["lines"]:
            losses["lines"] = f"{run.directory}: other lines in metrics.jsonl"
        same = got["weights"] == expected["weights"] and got["result"] == expected["result"]
        return losses if same else losses | {"numbers": f"{run.directory}: other weights or result"}


def outcome(run: Run) -> dict[str, Any]:
    """All that must be the same bits after whatever has happened; speed is not."""
    result = run.result()
    assert result is not None, "not finished"
    return {
        "weights": checkpoint.fingerprint(checkpoint.load(run.checkpoint("last"))["model"]),
        "lines": [{k: v for k, v in r.items() if k != "tokens_per_second"} for r in run.metrics()],
        "result": {key: result[key] for key in ("by_length", "validation", "test")},
    }


# ------------------------------------------------------------------------------------- processes


class Process:
    """A script on its own; what it says goes to a file, since its workers may outlive a pipe."""

    def __init__(self, script: str, arguments: list[str], blocks: int | None = None) -> None:
        """``blocks``: the size that no file may outgrow, in units of the shell's ``ulimit -f``."""
        self.log = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed with this object)
        self.mark = f"{os.getpid()}-{id(self)}-{time.monotonic_ns()}"
        limited = ["sh", "-c", f'ulimit -f {blocks}; exec "$@"', "sh"] if blocks else []
        self.popen = subprocess.Popen(
            [*limited, sys.executable, str(SCRIPTS / script), *arguments],
            stdout=self.log,
            stderr=self.log,
            start_new_session=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "WAWA_FAULTS": self.mark},
        )

    def wait(self, true: Callable[[], object] = lambda: False) -> bool:
        """Until ``true`` or the end of the process: whether it still runs. Raises TimeoutError."""
        end = time.monotonic() + PATIENCE
        while self.popen.poll() is None and not true():
            if time.monotonic() > end:
                self.popen.kill()
                raise TimeoutError(f"a process gave no sign for {PATIENCE:.0f} s")
            time.sleep(0.01)
        return self.popen.poll() is None

    def said(self) -> str:
        """Everything so far, to both streams."""
        self.log.seek(0)
        return self.log.read()

    def orphans(self, seconds: float = 30.0) -> list[int]:
        """Its processes that outlive it by ``seconds``, ended; known by their environment."""
        end = time.monotonic() + seconds
        while (left := self.family()) and time.monotonic() < end:
            time.sleep(0.1)
        for process in left:
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGKILL)
        return left

    def family(self) -> list[int]:
        """Every process that it has started, where there is a /proc to look into."""
        mark, found = f"WAWA_FAULTS={self.mark}".encode(), []
        for path in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if mark in path.read_bytes():
                    found.append(int(path.parent.name))
        return found


def past(moment: float) -> bool:
    """Whether the clock says so."""
    return time.monotonic() > moment


def who_holds(folder: Path) -> int | None:
    """The process that holds a run's folder."""
    found = re.match(r"process (\d+) ", lock_holder(folder / LOCK))
    return int(found[1]) if found else None


def newly_held(runs: list[Run], stale: set[int | None]) -> list[int]:
    """The processes that hold these runs, but for those that were killed before."""
    every = (who_holds(run.directory) for run in runs)
    return [number for number in every if number and number not in stale]


def inspect(process: Process, runs: list[Run]) -> dict[str, str]:
    """What a process that has ended has lost."""
    said, losses = process.said(), {}
    logs = {run.directory.parents[2] / "train.log" for run in runs}
    said += "".join(log.read_text(errors="replace") for log in logs if log.is_file())
    said += "".join(run.failure() for run in runs)
    if "Traceback" in said:
        losses["traceback"] = said[said.index("Traceback") :][-1500:]
    if left := process.orphans():
        losses["orphan"] = f"{len(left)} processes"
    for run in runs:
        steps = [row["step"] for row in run.metrics() if row["split"] == "train"]
        if steps != list(range(5, 5 * len(steps) + 1, 5)):
            losses["lines"] = f"{run.directory}: {steps}"
    return losses


# ----------------------------------------------------------------------------------- the faults


def kill(trials: Trials, script: str, name: str, kills: int) -> None:
    """Kill a script, and give the same command again, ``kills`` times; then let it finish.

    Most kills come while the run's folder is held, so that they hit preparation, training, test
    and report; every eighth within the two seconds in which Python imports.
    """
    chance, finishes, done = trials.chance(name), 0, 0
    for _ in range(3 * kills + 3):  # some processes end before the signal
        folder = f"{name}{finishes}"
        if script == "train.py":
            more, runs = ["pe=learned"], [Run.of(trials.config(folder, "pe=learned"))]
        else:
            more = STUDY
            runs = [Run.of(trials.config(folder, f"pe={pe}")) for pe in trials.expected]
        # Of those that were killed the locks still tell.
        held = functools.partial(newly_held, runs, {who_holds(run.directory) for run in runs})
        process = Process(script, trials.arguments(folder, *more))
        number = chance.choice(SIGNALS)
        victim: int | None = process.popen.pid
        early = done < kills and chance.random() < 1 / 8
        at_worker = script != "train.py" and chance.random() < 0.3
        delay = chance.uniform(0, 2.0 if script != "train.py" or early else 1.0)
        what = f"{number} to {script}"

        killed = was_held = False
        try:
            if done < kills:
                if early:  # before Python knows what to do with the others
                    number = chance.choice(("SIGKILL", "SIGTERM"))
                    what = f"{number} to {script} while it starts"
                else:
                    process.wait(held)
                end = time.monotonic() + delay
                process.wait(functools.partial(past, end))
                if at_worker and not early:
                    victim = next(iter(held()), None)
                    number, what = "SIGKILL", "SIGKILL to a worker of compare.py"
                was_held = bool(held())
                if process.popen.poll() is None and victim is not None:
                    killed = True
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(victim, getattr(signal, number))
            process.wait()
        except TimeoutError as error:
            trials.row(what).add({"stuck": str(error)})
            continue
        losses = inspect(process, runs)
        finished = all(run.status == "finished" for run in runs)
        code = process.popen.returncode
        if killed:
            done += 1
            allowed = {0, STATUS, -getattr(signal, number)} if victim == process.popen.pid else {0}
            if code not in allowed and not losses:
                losses["silence"] = f"status {code}: {process.said()[-500:]}"
            if code < 0 and number != "SIGKILL" and was_held and not finished and not early:
                losses["silence"] = f"ended by {number}, and kept nothing"
            trials.row(what).add(losses)
        elif losses or code != 0:
            trials.row(what).add(losses or {"silence": process.said()[-500:]})
        if finished and code == 0:
            for run in runs:
                trials.row(f"{script} at its end, after kills").add(trials.wrong(run))
            finishes += 1
            if done >= kills:
                return
    trials.row(f"{script} at its end, after kills").add({"stuck": f"{name} did not finish"})


def cut(path: Path, chance: random.Random) -> None:
    """Leave the beginning."""
    os.truncate(path, chance.randrange(path.stat().st_size or 1))


def flip(path: Path, chance: random.Random) -> None:
    """Change one bit, anywhere."""
    content = bytearray(path.read_bytes() or b"\0")
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)


def empty(path: Path, chance: random.Random) -> None:
    """Leave nothing in it."""
    os.truncate(path, 0)


def remove(path: Path, chance: random.Random) -> None:
    """Leave nothing there."""
    path.unlink()


def put_folder(path: Path, chance: random.Random) -> None:
    """Leave a folder of that name."""
    path.unlink()
    path.mkdir()


def scribble(path: Path, chance: random.Random) -> None:
    """Leave other bytes."""
    path.write_bytes(chance.randbytes(200))


Damage = Callable[[Path, random.Random], None]
DAMAGE: Sequence[Damage] = (cut, flip, empty, remove, put_folder, scribble)
TORN: Sequence[Callable[[Run], Path]] = (
    lambda run: run.checkpoint("last"),
    lambda run: run.checkpoint("previous"),
    lambda run: run.metrics_file,
    lambda run: run.result_file,
    lambda run: run.config_file,
    lambda run: run.directory / LOCK,
)


def tear(trials: Trials, damages: Sequence[Damage] = DAMAGE) -> None:
    """Damage each file of a finished and of an interrupted run, and train on, in this process."""
    finished = trials.folder / "undisturbed"
    interrupted = trials.folder / "interrupted"
    half = trials.config("interrupted", "pe=learned")
    shutil.copytree(finished, interrupted)
    run = Run.of(half)
    run.result_file.unlink()  # the kill came when all was trained but nothing tested
    for state in (finished, interrupted):
        for place in TORN:
            path = place(run)
            if state == finished and (path.parent != run.directory or path == run.metrics_file):
                continue  # a checkpoint or the curves, which a finished run does not open
            for damage in damages:
                if damage is flip and path == run.result_file:
                    continue  # it has no checksum
                shutil.copytree(state, trials.folder / "torn")
                torn = Run.of(config := trials.config("torn", "pe=learned"))
                path = place(torn)
                if path.exists():
                    damage(path, trials.chance(f"{state.name} {path.name} {damage.__name__}"))
                    trials.row(f"{path.name} torn").add(resume(trials, config, torn))
                shutil.rmtree(trials.folder / "torn")


def resume(trials: Trials, config: DictConfig, run: Run) -> dict[str, str]:
    """Train on, and say what was lost: a refusal in one sentence loses nothing."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            train(config)
    except (UserError, OSError) as error:
        return {} if str(error).isprintable() else {"traceback": str(error)}
    except Stopped:
        raise
    except Exception as error:
        return {"traceback": repr(error)}
    return trials.wrong(run)


@contextlib.contextmanager
def small_disk(folder: Path, kilobytes: int) -> Iterator[None]:
    """A disk of so many kilobytes at ``folder``. Raises OSError where none can be made."""
    folder.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "faults", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode:
        raise OSError("no small disk can be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True, capture_output=True)


def fill(trials: Trials, kilobytes: list[int]) -> None:
    """Train on a disk that is too small; make room; the same command finishes."""
    for size in kilobytes:
        name = f"disk{size}"
        folder = trials.folder / name
        try:
            with small_disk(folder, size):
                room = ["mount", "-o", "remount,size=64m", str(folder)]
                again = functools.partial(subprocess.run, room, check=True)
                starve(trials, "disk full", name, None, again)
        except OSError as error:
            trials.row(f"disk full: not tried, {error}")
        starve(trials, "no file may grow further", f"limit{size}", size, lambda: None)


def starve(
    trials: Trials, fault: str, name: str, blocks: int | None, make_room: Callable[[], object]
) -> None:
    """One trial: a refusal in one line, and after ``make_room`` the undisturbed end."""
    arguments = trials.arguments(name, "pe=learned")
    run = Run.of(trials.config(name, "pe=learned"))
    starved = Process("train.py", arguments, blocks)
    losses: dict[str, str] = {}
    try:
        starved.wait()
        losses = inspect(starved, [run])
        said = starved.said().strip()
        sentences = [line for line in said.splitlines() if not line.startswith("warning: ")]
        if starved.popen.returncode != 1 or len(sentences) != 1:
            losses["silence"] = f"status {starved.popen.returncode}: {said[-1500:]}"
        make_room()
        fed = Process("train.py", arguments)
        fed.wait()
        losses |= inspect(fed, [run]) | trials.wrong(run)
    except TimeoutError as error:
        losses["stuck"] = str(error)
    trials.row(fault).add(losses)


def rival(trials: Trials, script: str, name: str, at_once: bool) -> None:
    """Two of one script in one folder: one does the work, the other says who is there."""
    more = ["pe=learned"] if script == "train.py" else STUDY
    encodings = ["learned"] if script == "train.py" else list(trials.expected)
    runs = [Run.of(trials.config(name, f"pe={pe}")) for pe in encodings]
    lock = runs[0].directory if script == "train.py" else runs[0].directory.parents[2]
    first = Process(script, trials.arguments(name, *more))
    losses: dict[str, str] = {}
    try:
        if not at_once:
            first.wait(lambda: who_holds(lock) is not None)
            first.popen.send_signal(signal.SIGSTOP)  # or it might have finished by then
        second = Process(script, trials.arguments(name, *more))
        second.wait()
        first.popen.send_signal(signal.SIGCONT)
        first.wait()
        for one in (first, second):
            losses |= inspect(one, runs)
        ends = sorted((one.popen.returncode, one.said().strip()) for one in (first, second))
        codes = [code for code, _ in ends]
        told = codes == [0, 1] and " is in use by process " in ends[1][1].splitlines()[-1]
        if not told and not (at_once and codes == [0, 0]):  # the one found what the other had done
            losses["silence"] = str(ends)[-1500:]
        for run in runs:
            losses |= trials.wrong(run)
    except TimeoutError as error:
        losses["stuck"] = str(error)
    trials.row(f"a second {script}, {'at once' if at_once else 'later'}").add(losses)


# ------------------------------------------------------------------------------------- the table


def table(rows: list[Row]) -> str:
    """A line for each kind of fault."""
    head = ["fault", "tried", "survived", *LOSSES]
    body: list[list[Any]] = [
        [row.fault, row.tried, row.survived, *(row.lost[loss] for loss in LOSSES)] for row in rows
    ]
    total = [sum(int(row[column]) for row in body) for column in range(1, len(head))]
    lines = [[str(cell) for cell in line] for line in (head, *body, ["all", *total])]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50, help="an eighth of them to compare.py")
    parser.add_argument("--seed", type=int, default=0, help="of the moments and the damage")
    parser.add_argument("--short", action="store_true", help="a few of each kind")
    parser.add_argument("--write", action="store_true", help="keep the table in benchmarks/faults")
    given = parser.parse_args()
    started, kills = time.perf_counter(), 6 if given.short else given.kills
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp(prefix="faults-"))
    trials = Trials(folder, given.seed)
    studies = (SCRIPTS / "compare.py").exists()
    of_studies = max(1, kills // 8) if studies else 0
    try:
        with ThreadPoolExecutor(2) as pool:  # each waits for its processes: two at work at a time
            trials.undisturbed("learned", "alibi")
            jobs = []
            if of_studies:
                jobs.append(pool.submit(kill, trials, "compare.py", "studies", of_studies))
            count = -(-(kills - of_studies) // 10)
            for job in range(count):
                share = (kills - of_studies + job) // count
                jobs.append(pool.submit(kill, trials, "train.py", f"runs{job}-", share))
            sizes = trials.chance("disk").sample(range(8, 400), 1 if given.short else 2)
            jobs.append(pool.submit(fill, trials, sizes))
            for script in ("train.py", "compare.py") if studies else ("train.py",):
                for at_once in (False, True):
                    name = f"rivals-{script}-{at_once}"
                    jobs.append(pool.submit(rival, trials, script, name, at_once))
            tear(trials, damages=(cut, remove) if given.short else DAMAGE)
            for done in jobs:
                done.result()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    rows = sorted(trials.rows.values(), key=lambda row: row.fault)
    text = table(rows)
    print(text)
    for row in rows:
        for note in row.notes:
            print(f"\n{row.fault}: {note}", file=sys.stderr)
    if given.write:
        about = {
            "command": f"python scripts/dev/faults.py --kills {given.kills} --seed {given.seed}",
            "date": date.today().isoformat(),
            "seconds": round(time.perf_counter() - started),
            **provenance(torch.device("cpu")),
            "rows": [
                {"fault": r.fault, "tried": r.tried, "survived": r.survived, "lost": dict(r.lost)}
                for r in rows
            ],
        }
        (BENCHMARKS / "faults").mkdir(exist_ok=True)
        kept = BENCHMARKS / "faults" / "results"
        kept.with_suffix(".json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
        kept.with_suffix(".txt").write_text(text + "\n", encoding="utf-8")
    sys.exit(any(row.lost for row in rows))


if __name__ == "__main__":
    main()
