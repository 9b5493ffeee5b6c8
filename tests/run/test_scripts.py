"""The scripts as a user runs them, from a checkout and from an installed package."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from support import SCRIPTS, TINY, Script, copy_code, run_script

from wawa_transformer.lab.terminal import View

ROOT = SCRIPTS.parent


@pytest.mark.parametrize(
    "started", [f"{SCRIPTS / 'train.py'} -sc install=bash", "-m wawa_transformer"]
)
def test_a_reader_that_leaves_ends_a_script_quietly(started: str) -> None:
    """A closed pipe is no mistake, even if it is met with the last line."""
    # Buffered, as where nobody asks for anything else.
    command = f"PYTHONUNBUFFERED= {sys.executable} {started} | true; echo ${{PIPESTATUS[0]}}"
    left = subprocess.run(["bash", "-c", command], capture_output=True)
    assert (left.stdout, left.stderr) == (b"1\n", b"")


class Closed(Script):
    """A script that begins without standard output."""

    def work(self) -> None:
        os.close(1)
        sys.stdout = None  # type: ignore[assignment]
        super().work()


def test_a_closed_output_is_no_mistake(tmp_path: Path) -> None:
    """``>&-`` leaves Python without the stream; the run is trained all the same."""
    arguments = [*TINY, "trainer.steps=2", "trainer.eval_every=2", "progress=true"]
    done = Closed("train.py", *arguments, f"output_dir={tmp_path}").end()
    assert done.returncode == 0 and "Traceback" not in done.stderr
    assert list(tmp_path.rglob("result.json"))


def test_a_script_looks_for_garbage_once_it_works(tmp_path: Path) -> None:
    code = "import gc\nfrom wawa_transformer.run.cli import hydra_main\n"
    code += "hydra_main()(lambda config: print(gc.isenabled()))()\n"
    (tmp_path / "script.py").write_text(code)
    done = run_script(str(tmp_path / "script.py"))
    assert done.stdout == "True\n", done.stderr


def test_ctrl_c_during_imports_is_a_sentence(tmp_path: Path) -> None:
    """Pressed while the first library of others loads; that scripts import it later, ruff sees.

    Any other error keeps its traceback.
    """
    path = os.pathsep.join((str(tmp_path), str(SCRIPTS.parent)))
    # Names of two lengths: within a second Python takes a file of the same size for the same.
    for error, traceback in (("KeyboardInterrupt", False), ("LookupError", True)):
        (tmp_path / "torch.py").write_text(f"raise {error}")
        done = subprocess.run(
            [sys.executable, str(SCRIPTS / "lab_sheet.py")],
            capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path},
        )  # fmt: skip
        assert ("Traceback" in done.stderr) == traceback
        assert traceback or done.stderr == "interrupted; the same command continues\n"


def test_a_metric_with_a_name_that_is_taken_is_a_sentence(tmp_path: Path) -> None:
    """In every script that trains, reports or evaluates, before it begins.

    Scores and columns of a study are named where a study is trained or reported.
    """
    copy_code(tmp_path, "wawa_transformer", "configs", "scripts")
    path = tmp_path / "wawa_transformer" / "train" / "evaluation.py"
    code = path.read_text(encoding="utf-8")
    (tmp_path / "x").mkdir()
    there = {"folder": tmp_path, "PYTHONPATH": str(tmp_path)}
    for name, script, *given in (
        ("length", "train.py"),
        ("length", "evaluate.py", "run=x"),
        ("reach", "compare.py"),
        ("weight", "compare.py", "report=x"),
    ):
        path.write_text(code.replace('Metric("exact_match"', f'Metric("{name}"'), encoding="utf-8")
        done = run_script(str(tmp_path / "scripts" / script), *given, **there)
        assert done.returncode == 1 and done.stderr.startswith(f"error: METRICS names {name}, ")
        assert done.stderr.count("\n") == 1


def test_a_notebook_gets_no_moving_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jupyter forces colours on a pipe, in which every state of a bar would stay."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert View([], 1).line.disable
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert not View([], 1).line.disable


# ----------------------------------------------------------------------- the installed package


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a wheel holds, in a folder far from the checkout."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("installed")
    leave = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in ("wawa_transformer", "configs", "scripts", "data"):
        shutil.copytree(ROOT / name, source / name, ignore=leave)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    # What pip calls, in a third of the time.
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(source)]
    subprocess.run(build, check=True, cwd=source, capture_output=True)
    (wheel,) = source.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(out)
    return out


def wawa(installed: Path, folder: Path, *arguments: str, stdin: str = "") -> str:
    """What the installed command prints, started in another folder."""
    command = str(installed / "wawa_transformer" / "__main__.py")
    done = run_script(command, *arguments, stdin=stdin, folder=folder, PYTHONPATH=str(installed))
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_trains_and_answers_from_any_folder(installed: Path, tmp_path: Path) -> None:
    """On the sample and with a user's encoding, in a folder that holds nothing but a module."""
    (tmp_path / "mine.py").write_text(
        "from wawa_transformer.positional.base import Encoding\n\n\n"
        "class Place(Encoding, kind='place'):\n"
        "    def embed(self, x, positions):\n"
        "        return x + positions.ids[:, 0, :, None]\n"
    )
    short = ["trainer.steps=2", "trainer.eval_every=2", "trainer.device=cpu", "model.d_model=16"]
    short += ["task.vocab_size=300", "progress=false", "pictures=false"]
    given = ["task=text", "pe=place", "import=mine", *short]
    said = wawa(installed, tmp_path, "train", *given)
    assert "BLEU" in said
    [run] = tmp_path.glob("results/single/text/place/seed0-*")
    asked = f"run={run}", "decode.max_length=9"
    assert wawa(installed, tmp_path, "translate", *asked, stdin="A man.\n").count("\n") == 1
    said = wawa(installed, tmp_path)
    assert f"  {installed / 'wawa_transformer'}" in said and "wawa train " in said
    assert " letters, " in said and "python" not in said.split("Each has --help")[0]
    assert ".\n" not in said.split("Each has --help")[0], "a line of the list is no sentence"
    assert wawa(installed, tmp_path, "-h") == said


def test_a_library_of_an_extra_is_asked_for_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "werkzeug").mkdir()
    (tmp_path / "werkzeug" / "__init__.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'werkzeug'\", name='werkzeug')"
    )
    path = os.pathsep.join((str(tmp_path), str(ROOT)))
    done = subprocess.run(
        [sys.executable, "-m", "wawa_transformer", "serve", "run=x"],
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    expected = "error: werkzeug is not installed; give: pip install 'wawa_transformer[serve]'.\n"
    assert (done.returncode, done.stderr) == (1, expected)


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
