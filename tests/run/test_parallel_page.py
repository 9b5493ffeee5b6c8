"""The recipes of docs/parallel.md run as they are printed, on small models."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from support import SCRIPTS, TINY, checked, run_script

from wawa_transformer.lab.study import in_lists, list_jobs
from wawa_transformer.run.compose import compose
from wawa_transformer.run.run_dir import Run

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


def test_the_parts_of_two_machines_are_the_runs_that_are_reported() -> None:
    """As the page prints them; test_identity.py trains and copies such parts."""
    lines = block("One study on several machines", "bash").replace("\\\n", "").splitlines()
    *parts, report = (shlex.split(line, comments=True)[2:] for line in lines)
    trained = [Run.from_config(checked(*part)) for part in parts]
    overrides = in_lists(report)
    assert [*list_jobs(compose(overrides), overrides)] == trained and "workers=0" in report


def test_an_array_job_trains_one_seed_in_each_task() -> None:
    """The line between the quotes, as the cluster's shell runs it."""
    [line] = re.findall(r"--wrap 'python scripts/(.*)'", block("Array jobs", "bash"))
    for task in (0, 1):
        shell = ["sh", "-c", f"SLURM_ARRAY_TASK_ID={task}; echo {line}"]
        script, *given = subprocess.run(shell, capture_output=True, text=True).stdout.split()
        run = Run.from_config(checked(*given))
        assert (script, run.pe, run.seed) == ("train.py", "rotary", task)
        assert run.directory.parts[:2] == ("results", "shared")
