"""The recipes of docs/parallel.md run as they are printed, on small models."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from conftest import SCRIPTS, TINY, UNDRAWN, run_script

PAGE = (SCRIPTS.parent / "docs" / "parallel.md").read_text(encoding="utf-8")


def block(heading: str, kind: str = "python") -> str:
    """The code below a heading of the page."""
    below = PAGE.split(f"# {heading}\n", 1)[1]
    return below.split(f"```{kind}\n", 1)[1].split("```", 1)[0]


@pytest.mark.parametrize(
    ("heading", "library", "runs"),
    [
        ("From Python", "torch", 1),
        ("joblib", "joblib", 4),
        ("Ray", "ray", 2),
        ("Optuna", "optuna", 3),
    ],
)
def test_a_recipe_trains_its_runs(heading: str, library: str, runs: int, tmp_path: Path) -> None:
    pytest.importorskip(library)
    small = [*TINY, "trainer.steps=2", f"output_dir={tmp_path / 'results'}"]
    code = block(heading).replace('"task=reverse"', f'"task=reverse", *{small}')
    if library == "joblib":  # forks; Pythons that begin would import the libraries for 25 s
        code = f"import joblib\njoblib.parallel_config('multiprocessing')\n{code}"
    (tmp_path / "recipe.py").write_text(code)
    if library in ("torch", "joblib"):
        done = run_script(str(tmp_path / "recipe.py"), folder=tmp_path)
    else:  # in a Python of its own, with which a library's processes end
        done = subprocess.run(
            [sys.executable, "recipe.py"], cwd=tmp_path, capture_output=True, text=True,
            timeout=240,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(SCRIPTS.parent)},
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "results").rglob("result.json"))) == runs
    assert re.search(r"\d\.\d", done.stdout)


def test_the_parts_of_two_machines_are_reported_without_training(tmp_path: Path) -> None:
    """By the commands of the page, in two folders of which one is copied into the other."""
    lines = block("One study on several machines", "bash").replace("\\\n", "")
    lines = lines.replace("python scripts/", "")
    *parts, report = (shlex.split(line, comments=True) for line in lines.splitlines())
    few = "trainer.threads=1", "trainer.steps=2"
    for name, part in zip(("one", "other"), parts, strict=True):
        (tmp_path / name).mkdir()
        done = run_script(UNDRAWN, *part, *TINY, *few, folder=tmp_path / name)
        assert done.returncode == 0, done.stderr
    shutil.copytree(tmp_path / "one/results", tmp_path / "other/results", dirs_exist_ok=True)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("result.json")}
    done = run_script(UNDRAWN, *report, *TINY, *few, folder=tmp_path / "other")
    assert done.returncode == 0, done.stderr
    assert set(pd.read_csv(tmp_path / "other/results/shared/results.csv").pe) == {"none", "rotary"}
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("result.json")}


def test_an_array_job_trains_one_seed_in_each_task(tmp_path: Path) -> None:
    """The line between the quotes, as the cluster's shell runs it."""
    [line] = re.findall(r"--wrap 'python scripts/(.*)'", block("Array jobs", "bash"))
    for task in "01":
        shell = ["sh", "-c", f"SLURM_ARRAY_TASK_ID={task}; echo {line}"]
        said = subprocess.run(shell, capture_output=True, text=True, check=True).stdout
        done = run_script(*said.split(), *TINY, "trainer.steps=2", folder=tmp_path)
        assert done.returncode == 0, done.stderr
    found = tmp_path.glob("results/shared/letters/rotary/seed*-*/result.json")
    assert sorted(path.parent.name[:5] for path in found) == ["seed0", "seed1"]
