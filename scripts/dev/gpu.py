"""Run all that needs a CUDA card:  make gpu [ARGS="STEP …"]

A step stops after nine minutes, and the same command continues the step. Finished steps are not
repeated. Results go to benchmarks/gpu/.
"""

import argparse
import json
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "benchmarks" / "gpu"
MINUTES = 9.0


@dataclass(frozen=True)
class Step:
    """A command and the files of its results.

    ``command`` has the words after ``python``. ``results`` are pairs (path, name in the folder).
    """

    name: str
    command: str
    results: tuple[tuple[str, str], ...] = ()


def study(name: str, words: str = "") -> Step:
    """Make the step of a study, with eight runs side by side."""
    command = f"scripts/compare.py study={name} study.name={name}_gpu workers=8 {words}"
    return Step(name, command.strip(), ((f"results/{name}_gpu/results.csv", f"{name}.csv"),))


STEPS = (
    Step("tests", "-m pytest tests/test_gpu.py"),
    Step(
        "model",
        "scripts/dev/benchmark.py parts=[model] trainer.device=cuda output_dir=results/gpu",
        (("results/gpu/model/results.json", "model.json"),),
    ),
    study("default", "trainer.device=cuda"),
    study("multi30k", "trainer=gpu"),
)
DATA = "data/multi30k"  # the data of the last step


def run(step: Step, minutes: float) -> str:
    """Run a step for at most ``minutes`` and return its status.

    The status is ``done``, ``to be continued``, or how the step failed.
    """
    process = subprocess.Popen([sys.executable, *shlex.split(step.command)], cwd=ROOT)
    try:
        status = process.wait(60 * minutes)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGTERM)  # a study saves its state
        process.wait()
        return "to be continued"
    return "done" if status == 0 else f"failed, status {status}"


def go_through(steps: Iterable[Step], folder: Path, minutes: float = MINUTES) -> dict[str, Any]:
    """Run the unfinished steps; return the contents of ``folder/steps.json``."""
    folder.mkdir(parents=True, exist_ok=True)
    record = folder / "steps.json"
    known: dict[str, Any] = json.loads(record.read_text("utf-8")) if record.exists() else {}
    on_card = torch.cuda.is_available()
    for step in steps:
        before = known.get(step.name, {"seconds": 0.0})
        if before.get("status") == "done":
            print(f"{step.name}: done before, in {before['seconds']:.0f} s")
            continue
        print(f"{step.name}: python {step.command}", flush=True)
        started = time.monotonic()
        status = run(step, minutes)
        known[step.name] = {
            "command": f"python {step.command}",
            "status": status,
            "seconds": round(before["seconds"] + time.monotonic() - started, 1),
            "date": date.today().isoformat(),
            "device": torch.cuda.get_device_name() if on_card else "cpu",
            "torch": str(torch.__version__),
        }
        for where, name in step.results:
            if status == "done":
                shutil.copyfile(ROOT / where, folder / name)
        record.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
        print(f"{step.name}: {status}", flush=True)
    return known


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("step", nargs="*", help=", ".join(step.name for step in STEPS))
    names = parser.parse_args().step or [step.name for step in STEPS]
    if not torch.cuda.is_available():
        sys.exit("error: this needs a CUDA device, and torch finds none here.")
    if unknown := set(names) - {step.name for step in STEPS}:
        known = ", ".join(step.name for step in STEPS)
        sys.exit(f"error: there is no step {min(unknown)}; choose any of {known}.")
    if "multi30k" in names and not any((ROOT / DATA).glob("train.*.gz")):
        sys.exit(f"error: {DATA} is empty; fill it first, as data/README.md says.")
    found = go_through([step for step in STEPS if step.name in names], FOLDER)
    if left := [name for name in names if found[name]["status"] != "done"]:
        sys.exit(f"error: not done yet: {', '.join(left)}; the same command goes on.")


if __name__ == "__main__":
    main()
