"""Run all that needs a CUDA card:  make gpu [ARGS="STEP …"]

A step stops after nine minutes, and the same command continues the step. Finished steps are not
repeated. Results go to benchmarks/gpu/.
"""

import json
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "benchmarks" / "gpu"
MINUTES = 9.0
STUDY = "scripts/compare.py study={0} study.name={0}_gpu workers=8"  # eight runs side by side
# The words of each step after ``python``, and the file of its result, if any.
STEPS = {
    "tests": ("-m pytest tests/test_gpu.py", ""),
    "model": (
        "scripts/dev/benchmark.py parts=[model] trainer.device=cuda output_dir=results/gpu",
        "results/gpu/model/results.json",
    ),
    "default": (
        STUDY.format("default") + " trainer.device=cuda",
        "results/default_gpu/results.csv",
    ),
    "multi30k": (STUDY.format("multi30k") + " trainer=gpu", "results/multi30k_gpu/results.csv"),
}
DATA = "data/multi30k"  # the data of the last step


def run(command: str, minutes: float) -> str:
    """Run a step for at most ``minutes`` and return its status.

    The status is ``done``, ``to be continued``, or how the step failed.
    """
    process = subprocess.Popen([sys.executable, *shlex.split(command)], cwd=ROOT)
    try:
        status = process.wait(60 * minutes)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGTERM)  # a study saves its state
        process.wait()
        return "to be continued"
    return "done" if status == 0 else f"failed, status {status}"


def go_through(
    steps: Mapping[str, tuple[str, str]], folder: Path, minutes: float = MINUTES
) -> dict[str, Any]:
    """Run the unfinished steps; return the contents of ``folder/steps.json``."""
    folder.mkdir(parents=True, exist_ok=True)
    record = folder / "steps.json"
    known: dict[str, Any] = json.loads(record.read_text("utf-8")) if record.exists() else {}
    for name, (command, result) in steps.items():
        before = known.get(name, {"seconds": 0.0})
        if before.get("status") == "done":
            print(f"{name}: done before, in {before['seconds']:.0f} s")
            continue
        print(f"{name}: python {command}", flush=True)
        started = time.monotonic()
        status = run(command, minutes)
        known[name] = {
            "command": f"python {command}",
            "status": status,
            "seconds": round(before["seconds"] + time.monotonic() - started, 1),
            "date": date.today().isoformat(),
            "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
            "torch": str(torch.__version__),
        }
        if result and status == "done":
            shutil.copyfile(ROOT / result, folder / f"{name}{Path(result).suffix}")
        record.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
        print(f"{name}: {status}", flush=True)
    return known


def main() -> None:
    names = sys.argv[1:] or [*STEPS]
    if not torch.cuda.is_available():
        sys.exit("error: this needs a CUDA device, and torch finds none here.")
    if unknown := set(names) - STEPS.keys():
        sys.exit(f"error: there is no step {min(unknown)}; choose any of {', '.join(STEPS)}.")
    if "multi30k" in names and not any((ROOT / DATA).glob("train.*.gz")):
        sys.exit(f"error: {DATA} is empty; fill it first, as data/README.md says.")
    outcomes = go_through({name: STEPS[name] for name in STEPS if name in names}, FOLDER)
    if left := [name for name in names if outcomes[name]["status"] != "done"]:
        sys.exit(f"error: not done yet: {', '.join(left)}; the same command goes on.")


if __name__ == "__main__":
    main()
