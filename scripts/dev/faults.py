"""Inject faults and count the outcomes:  python scripts/dev/faults.py seed=0 n=500

Each attempt draws a fault from its seed: signals, changed text, ranks that differ, altered or
damaged files, deleted keys, odd values, closed streams or full disks. Each attempt must end with
the right result, bit for bit where that can be checked, or with a one-sentence error. Otherwise the
exit status is 1. ``only=17`` makes attempt 17 alone. A script that runs longer than ``seconds=30``
counts as a hang.
"""

import functools
import os
import random
import re
import resource
import runpy
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import datasets
import pandas as pd
import torch

from wawa_transformer.common import CONFIG_DIR
from wawa_transformer.common.files import LOCK
from wawa_transformer.common.messages import UserError
from wawa_transformer.run.overrides import known_keys
from wawa_transformer.run.run_dir import Run
from wawa_transformer.run.signals import STATUS
from wawa_transformer.train import checkpoint, trainer  # noqa: F401  (for the scripts)

ROOT, FORK = CONFIG_DIR.parent, get_context("fork")
# These runs take a second. With dropout the state of the random generator matters.
SMALL = [
    "model.d_model=16", "model.num_heads=2", "model.d_ff=32", "model.dropout=0.1",
    "trainer.steps=200", "trainer.warmup=5", "trainer.eval_every=20", "trainer.log_every=5",
    "trainer.device=cpu", "pictures=false", "progress=false", "study.name=single",
]  # fmt: skip
RUN = [
    *SMALL, "task=letters", "pe=learned", "task.train_size=300", "task.validation_size=20",
    "task.test_per_length=5", "task.max_length=4", "task.test_max_length=6",
    "trainer.batch_tokens=64",
]  # fmt: skip
TEXT = [*SMALL, "task=text", "pe=sinusoidal", "trainer.steps=20", "trainer.batch_tokens=512"]
STUDY = [*RUN, "study.task=[letters]", "study.pe=[learned]", "study.seeds=[0]"]
OUTCOMES = ["right", "sentence", "traceback", "silent", "hang"]
ODD = [
    "null", "true", "-1", "0", "0.5", "nan", "-inf", "1e400", "9" * 400, "", "' '", "☃", "'\x00'",
    "'\x1b[2J'", "..", "/etc", "nope", "long" * 300, "[]", "[1,2]", "[[]]", "{}", "{a:1}",
    "${seed}", "${nothing}", "${oc.env:HOME}", "${", "???", "a=b", "a,b", "1_000", "0x10",
]  # fmt: skip


class Script(FORK.Process):  # type: ignore[name-defined, misc]
    """A script in a forked process, which has imported its libraries already.

    ``streams`` redirects descriptors to paths; None closes a descriptor. ``limit`` is the largest
    size of a file in bytes.
    """

    def __init__(self, folder: Path, log: Path, *arguments: str, **how: Any) -> None:
        super().__init__()
        self.folder, self.log, self.arguments, self.how = folder, log, arguments, how
        self.start()

    def run(self) -> None:
        """Run the script in the new process."""
        os.setsid()
        os.chdir(self.folder)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number, name in enumerate(("stdin", "stdout", "stderr")):
            path = self.how.get("streams", {}).get(number, self.log if number else os.devnull)
            os.close(number)
            stream = path and open(path, "a" if number else "r", 1, encoding="utf-8")  # noqa: SIM115
            setattr(sys, name, stream)
        if limit := self.how.get("limit"):
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        os.environ.update(self.how.get("env", {}))
        sys.argv = [*self.arguments]
        runpy.run_path(str(ROOT / "scripts" / sys.argv[0]), run_name="__main__")

    def wait(self, seconds: float, ready: Callable[[], Any] = lambda: False) -> "Script":
        """Wait until the script and its children end, or until ``ready()``.

        The wait takes at most ``seconds``.
        """
        end = time.monotonic() + seconds
        while (self.is_alive() or self.kill(0)) and not ready() and time.monotonic() < end:
            time.sleep(0.002)
        return self

    def kill(self, number: int = signal.SIGKILL) -> bool:
        """Signal the script and its children; True if any existed."""
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    def words(self) -> str:
        """Read the output so far, of both streams."""
        return self.log.read_text("utf-8", errors="replace") if self.log.exists() else ""


@dataclass
class Attempt:
    """One fault, in a folder with ``data`` and runs on two tasks."""

    folder: Path
    chance: random.Random
    seconds: float
    expected: Any = None
    scripts: list[Script] = field(default_factory=list)

    def start(self, *arguments: str, **how: Any) -> Script:
        """Start a script, whose name comes first; see :class:`Script`."""
        log = self.folder / f"log{len(self.scripts)}"
        self.scripts.append(Script(self.folder, log, *arguments, **how))
        return self.scripts[-1]

    def end(self, *arguments: str, **how: Any) -> str:
        """Start a script and judge its end."""
        return self.judge(self.start(*arguments, **how))

    def run(self, task: str = "letters") -> Run:
        """Get the only run on a task."""
        (path,) = self.folder.glob(f"results/single/{task}/*/seed*")
        # Not Run.at, because a fault may have damaged config.yaml.
        return Run(task, path.parent.name, 0, path)

    def untrained(self) -> "Attempt":
        """Delete the runs and return the attempt."""
        shutil.rmtree(self.folder / "results")
        return self

    def judge(self, script: Script) -> str:
        """Judge how a script ended: one of :data:`OUTCOMES`.

        A training script must give the expected bits.

        Raises:
            TimeoutError: the script has not ended in time.
        """
        if script.wait(self.seconds).is_alive() or script.kill(0):
            raise TimeoutError
        words, name = script.words(), script.arguments[0]
        if "Traceback" in words or "mistake in wawa" in words:
            return "traceback"
        if script.exitcode == 0:
            right = name not in ("train.py", "compare.py") or outcome(self.run()) == self.expected
            return "right" if right else "silent"
        said = [line for line in words.splitlines() if not line.startswith("warning: ")]
        told = script.exitcode == STATUS or (said and said[-1].startswith("error: "))
        return "sentence" if told else "silent"

    def use(self) -> str:
        """Judge a random script that uses or continues the trained run."""
        name, *more = self.chance.choice(
            (["evaluate.py", "verify=true"], ["export.py"], ["translate.py"], ["train.py", *RUN])
        )
        run = self.run()
        if name == "train.py" and run.result_file.is_file():
            run.result_file.unlink()
        return self.end(name, *more) if more[1:] else self.end(name, f"run={run.directory}", *more)

    def holder(self) -> str:
        """Name the process that works in a run's folder."""
        locks = self.folder.glob(f"results/*/*/*/*/{LOCK}")
        return "".join(lock.read_text() for lock in locks)


def outcome(run: Run) -> Any:
    """Collect the results that no fault may change by a bit.

    Speed is left out.
    """
    result = run.result()
    weights = checkpoint.load(run.checkpoint("last"))["model"] if result else {}
    return result and {
        "weights": {name: w.numpy().tobytes() for name, w in weights.items()},
        "lines": [{k: v for k, v in r.items() if k != "tokens_per_second"} for r in run.metrics()],
        "result": {key: result[key] for key in ("by_length", "validation", "test")},
    }


# ------------------------------------------------------------------------------------- the faults


def signals(a: Attempt) -> str:
    """Stop a run or a study at random moments.

    The same command must finish the run or the study.
    """
    a.untrained()
    rare = a.chance.random() < 0.06
    command = ["compare.py", *STUDY] if rare else ["train.py", *RUN]
    for _ in range(a.chance.randint(1, 3)):
        script = a.start(*command).wait(a.chance.uniform(0.01, 15 if rare else 1.5))
        held = f"process {script.pid} " in a.holder()
        # While Python imports, Python itself handles Ctrl-C.
        names = ["SIGKILL", "SIGTERM", *(["SIGINT", "SIGUSR1"] if held else [])]
        number = getattr(signal, a.chance.choice(names))
        if script.is_alive():
            os.kill(script.pid, number)
        outcome = a.judge(script)
        killed = script.exitcode == -number and not (held and number != signal.SIGKILL)
        if not killed and outcome not in ("right", "sentence"):
            return outcome
    return a.end(*command)


def changed_text(a: Attempt) -> str:
    """Change one letter of a run's text.

    No result of the old text may pass for a result of the new text.
    """
    path = a.folder / "data" / a.chance.choice(("sample.en", "sample.de"))
    text = path.read_text("utf-8")
    at = a.chance.choice([i for i, letter in enumerate(text) if letter.isalpha()])
    path.write_text(text[:at] + chr(ord(text[at]) ^ 1) + text[at + 1 :], "utf-8")
    if a.chance.random() < 0.5:
        return a.end("evaluate.py", f"run={a.run('text').directory}", "verify=true")
    outcome = a.end("train.py", *TEXT)
    two = len([*a.folder.glob("results/single/text/*/seed*/result.json")]) == 2
    return outcome if two or outcome != "right" else "silent"


def ranks(a: Attempt) -> str:
    """Give one of two ranks another configuration, or kill a rank."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    keys = ["seed=1", "trainer.lr=1e-4", "pe=alibi", "model.d_model=32", "trainer.steps=50", ""]
    key, both = a.untrained().chance.choice(keys), []
    for rank in "01":
        env = {
            "RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2",
            "MASTER_ADDR": "localhost", "MASTER_PORT": str(port), "TORCHELASTIC_RUN_ID": "faults",
            "TORCHELASTIC_RESTART_COUNT": "0",
        }  # fmt: skip
        both.append(a.start("train.py", *RUN, *[key] * (rank == "1" and key != ""), env=env))
    if not key:
        both[0].wait(a.seconds, ready=a.holder)
        both[1].wait(a.chance.uniform(0.01, 1.0)).kill()
    outcomes = {a.judge(one) for one in both if key or one is both[0]}
    return max(outcomes, key=OUTCOMES.index) if key == "" or "right" not in outcomes else "silent"


def altered(a: Attempt) -> str:
    """Change a checkpoint's configuration or weights, with a valid checksum."""
    path = a.run().checkpoint("last")
    state = checkpoint.load(path)
    odd: Any = a.chance.choice(
        [None, -1, 0, 0.5, 65536, 10**12, float("nan"), "nope", "", [], {}, True]
    )
    part = state[a.chance.choice(["config", "config", "model"])]
    while isinstance(part[name := a.chance.choice(sorted(part))], dict) and part[name]:
        part = part[name]
    if isinstance(part[name], torch.Tensor):
        weights = part[name]
        odd = a.chance.choice([weights * torch.nan, weights[:1], weights[None], weights.char(), 1])
    part[name] = odd
    checkpoint.save(path, state)
    return a.use()


def torn(a: Attempt) -> str:
    """Damage a file of a run.

    The file is cut, emptied, overwritten, deleted, or replaced by a folder.
    """
    path = a.chance.choice(sorted(p for p in a.run().directory.rglob("*") if p.is_file()))
    content = path.read_bytes()
    cut = content[: a.chance.randrange(len(content) or 1)]
    left: Any = a.chance.choice([cut, b"", a.chance.randbytes(200), "nothing", "a folder"])
    path.unlink()
    if left == "a folder":
        path.mkdir()
    elif left != "nothing":
        path.write_bytes(left)
    return a.use()


def odd_value(a: Attempt) -> str:
    """Give a key an odd value, or delete the key.

    If the script accepts the change, no number of the result may be NaN or infinite.
    """
    name = a.chance.choice(["train"] * 3 + ["evaluate", "export", "translate"])
    key = a.chance.choice(known_keys("config" if name == "train" else name))
    odd = a.chance.choice([f"{key}={a.chance.choice(ODD)}"] * 2 + [f"~{key}"])
    command = [*RUN, "run_dir=odd"] if name == "train" else [f"run={a.run().directory}"]
    script = a.start(f"{name}.py", *command, odd)
    if name != "train" or script.wait(a.seconds).exitcode != 0:
        return a.judge(script)
    results = [path.read_text() for path in a.folder.rglob("result.json")]
    return "silent" if any(re.search(r"\b(NaN|Infinity)\b", text) for text in results) else "right"


def streams(a: Attempt) -> str:
    """Close a stream, or redirect it to a full disk."""
    number = a.chance.choice([0, 1, 2])
    led = {number: a.chance.choice([None, "/dev/full"]) if number else None}
    name = a.chance.choice(["train", "evaluate", "export", "translate"])
    command = [*RUN, "progress=true"] if name == "train" else [f"run={a.run().directory}"]
    if name == "train":
        a.untrained()
    outcome = a.end(f"{name}.py", *command, streams=led)
    return "sentence" if number == 2 and outcome == "silent" else outcome


def full_disk(a: Attempt) -> str:
    """Limit the size of files.

    Without the limit the same command must finish.
    """
    outcome = a.untrained().end("train.py", *RUN, limit=a.chance.randrange(8_000, 200_000))
    return a.end("train.py", *RUN) if outcome == "sentence" else outcome


FAULTS: dict[Callable[[Attempt], str], int] = {
    signals: 16, changed_text: 9, ranks: 5, altered: 18, torn: 14, odd_value: 24,
    streams: 6, full_disk: 5,
}  # fmt: skip


def attempt(first: Attempt, seed: str, number: int) -> list[str]:
    """Make attempt ``number``; return its fault, outcome and output.

    The output is empty after a good outcome.
    """
    chance = random.Random(f"{seed} {number}")
    (fault,) = chance.choices([*FAULTS], [*FAULTS.values()])
    mine = Attempt(first.folder.with_name(str(number)), chance, first.seconds, first.expected)
    shutil.copytree(first.folder, mine.folder)
    try:
        outcome = fault(mine)
    except TimeoutError:
        outcome = "hang"
    except UserError:  # a run that ended well has no checkpoint
        outcome = "silent"
    said = [f"only={number}: {fault.__name__}, {outcome}"]
    for script in mine.scripts:
        script.kill()
        said += [" ".join(script.arguments), f"status {script.exitcode}: {script.words()}"]
    shutil.rmtree(mine.folder)
    good = outcome in ("right", "sentence")
    return [fault.__name__, outcome, "" if good else "\n".join([*said, ""])]


def table(seed: str = "0", n: str = "500", only: str = "", seconds: str = "30") -> pd.DataFrame:
    """Make all attempts and return a table with a row for each.

    The columns are ``fault``, ``outcome`` and, after a bad outcome, the output ``said``.
    """
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        datasets.config.HF_DATASETS_CACHE = Path(folder, "cache")
        first = Attempt(Path(folder, "prepared"), random.Random(), float(seconds))
        shutil.copytree(ROOT / "data", first.folder / "data", ignore=lambda *_: ["multi30k"])
        for command in (RUN, TEXT):
            script = first.start("train.py", *command).wait(300)
            assert script.exitcode == 0, script.words()
        first.scripts, first.expected = [], outcome(first.run())
        numbers, rows = [int(only)] if only else range(int(n)), []
        with ProcessPoolExecutor(2, FORK) as pool:
            for row in pool.map(functools.partial(attempt, first, seed), numbers):
                rows.append(row)
                print(*filter(None, row[2:]), end="", file=sys.stderr, flush=True)
    return pd.DataFrame(rows, columns=["fault", "outcome", "said"])


if __name__ == "__main__":
    done = table(**dict(word.split("=", 1) for word in sys.argv[1:]))
    counts = pd.crosstab(done.fault, done.outcome, margins=True, margins_name="all")
    print(counts.reindex(columns=[*OUTCOMES, "all"], fill_value=0).to_string())
    sys.exit(bool((done.said != "").any()))
