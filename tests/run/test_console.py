"""An installed package is useful: configurations and scripts travel with it, from any folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from conftest import SCRIPTS, TINY, warm_python

ROOT = SCRIPTS.parent


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a wheel holds, in a folder far from the checkout."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("installed")
    leave = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in ("wawa_transformer", "configs", "scripts"):
        shutil.copytree(ROOT / name, source / name, ignore=leave)
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--quiet"]
    subprocess.run([*pip, "--wheel-dir", str(source), str(source)], check=True)
    (wheel,) = source.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(out)
    return out


def wawa(installed: Path, folder: Path, *arguments: str, stdin: str = "") -> str:
    """What the installed command prints, started in another folder."""
    done = subprocess.run(
        [*warm_python(), str(installed / "wawa_transformer" / "__main__.py"), *arguments],
        cwd=folder, input=stdin, capture_output=True, text=True, timeout=240,
        env={**os.environ, "PYTHONPATH": str(installed)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_trains_and_answers_from_any_folder(installed: Path, tmp_path: Path) -> None:
    wawa(installed, tmp_path, "train", "task=sort", "pe=sinusoid/linear", *TINY)
    (run,) = (tmp_path / "results" / "single" / "sort" / "linear").iterdir()
    answer = wawa(installed, tmp_path, "translate", f"run={run}", stdin="3 1\n")
    assert len(answer.splitlines()) == 1
    said = wawa(installed, tmp_path)
    assert f"  {installed / 'wawa_transformer'}" in said and "wawa train " in said


def test_nothing_is_left_behind(installed: Path) -> None:
    """Every configuration, script, template and page; and the command's name."""
    package = installed / "wawa_transformer"
    for beside, pattern in (("configs", "**/*.yaml"), ("scripts", "*.py")):
        there = {str(path.relative_to(ROOT)) for path in (ROOT / beside).glob(pattern)}
        assert there == {
            str(path.relative_to(package)) for path in (package / beside).glob(pattern)
        }
    own = ROOT / "wawa_transformer"
    patterns = ("**/*.py", "**/*.jinja", "*.html", "py.typed")  # the baseline alone has no template
    there = {path.relative_to(own) for pattern in patterns for path in own.glob(pattern)}
    assert len(there) > 30 and all((package / path).is_file() for path in there)
    (names,) = installed.glob("*.dist-info/entry_points.txt")
    assert "wawa = wawa_transformer.__main__:main" in names.read_text(encoding="utf-8")


def test_a_command_that_is_none_is_a_sentence() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "wawa_transformer", "trian"],
        cwd=ROOT, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith("error: wawa trian does not exist (did you mean train?); choose")
