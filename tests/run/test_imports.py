"""``import=my_module`` registers encodings and tasks of a user's, in every command."""

import re
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
from support import TINY, copy_code, run_script

from wawa_transformer.lab.study import in_lists, list_jobs
from wawa_transformer.run import config as run_config
from wawa_transformer.run import imports
from wawa_transformer.run.cli import compose
from wawa_transformer.run.failure import MISTAKE
from wawa_transformer.run.overrides import read_overrides
from wawa_transformer.run.run_dir import Run
from wawa_transformer.train import evaluation, trainer

MODULE = '''"""An encoding and a task."""

from dataclasses import dataclass

import torch
from torch import nn

from wawa_transformer.data.tasks import SequenceTask
from wawa_transformer.positional.base import Encoding


class Step(Encoding, kind="step"):
    """A number in place of a position, times a weight."""

    def __init__(self, context, size: float = 1.0):
        super().__init__(context)
        self.size, self.weight = size, nn.Parameter(torch.ones(context.d_model))

    def embed(self, x, positions):
        # The first head's.
        return x + self.size * positions.ids[:, 0, :, None] * self.weight


@dataclass
class Rotate(SequenceTask, kind="rotate"):
    """The first number goes to the end."""

    by: int = 1

    def target(self, symbols):
        return list(map(str, [*symbols[self.by:], *symbols[:self.by]]))
'''
SHORT = [*TINY, "trainer.steps=4", "trainer.eval_every=2"]
GIVEN = [*SHORT, "import=my_module", "pe=step", "task=rotate", "pe.size=0.1", "task.by=2"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder far from the project that holds a module."""
    (tmp_path / "my_module.py").write_text(MODULE)
    return tmp_path


def run(folder: Path, script: str, *arguments: str, status: int = 0) -> str:
    """What a script prints, started in ``folder``."""
    done = run_script(script, *arguments, folder=folder)
    assert done.returncode == status, done.stderr
    return done.stdout + done.stderr


def test_a_run_with_a_users_encoding_and_task_is_used_as_any_other(folder: Path) -> None:
    """Trained, found again, evaluated, and loaded and asked in another process."""
    assert "registers" not in run(folder, "train.py", *GIVEN)
    [directory] = folder.glob("results/single/rotate/step/seed0-*")
    one = [f"run={directory}", "trainer.device=cpu"]
    assert "verified" in run(folder, "evaluate.py", *one, "verify=true")
    (folder / "use.py").write_text(
        f"from wawa_transformer import load, train; run = load({str(directory)!r})\n"
        f"assert type(run.model.src_position).__name__ == 'Step', run.model\n"
        f"assert run.model.src_position.size == 0.1 and len(run.translate(['1 2 3'])) == 1\n"
        f"print(train({GIVEN})['pe'])"
    )
    assert run(folder, str(folder / "use.py")).splitlines()[-1] == "step"

    # Another comment leaves the run, other code makes another one, and no module is no damage.
    module = folder / "my_module.py"
    module.write_text(MODULE.replace("# The first head's.", "# Of the first head.\n"))
    assert "already finished" in run(folder, "train.py", *GIVEN)
    module.write_text(MODULE.replace("x + self.size", "x - self.size"))
    assert "already finished" not in run(folder, "train.py", *GIVEN)
    assert len([*folder.glob("results/single/rotate/step/seed0-*")]) == 2
    said = run(folder, "evaluate.py", *one)
    assert "the code of my_module has changed since" in said and said.count("has changed") == 1
    module.unlink()
    said = run(folder, "evaluate.py", *one, status=1)
    assert "there is no module my_module in this folder" in said and "damaged" not in said


METRIC = (
    "from wawa_transformer.train import evaluation\n"
    "evaluation.METRICS += (evaluation.Metric('own', 'own', lambda s: 1.0),)\n"
)

REPLACED = (
    "from wawa_transformer.run import config\n"
    "class Mine(config.Transformer): ...\n"
    "config.Transformer = Mine\n"
)


@pytest.mark.parametrize(
    ("content", "given", "said"),
    [
        (REPLACED, ["pe=none"], ""),
        ("x = 1\n", ["pe=none"], "registers no encoding, task or metric"),
        (METRIC, ["pe=none"], ""),
        (MODULE, ["pe=step"], ""),
        (MODULE, ["pe=none", "task=rotate"], ""),
        (MODULE, ["pe=none"], "registers rotate, step, and this run has pe=none and task=letters"),
    ],
)
def test_a_module_that_a_run_does_not_use_is_named(
    content: str,
    given: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    registry: None,
) -> None:
    name = f"module_{abs(hash((content, *given)))}"
    (tmp_path / f"{name}.py").write_text(content)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])  # to which the folder is added
    monkeypatch.setattr(evaluation, "METRICS", evaluation.METRICS)
    monkeypatch.setattr(run_config, "Transformer", run_config.Transformer)
    trainer.mention_imports(compose([f"import={name}", *given]))
    found = capsys.readouterr().err
    assert found.startswith(f"warning: import={name} {said}") if said else not found


def test_a_study_compares_a_users_encoding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, registry: None
) -> None:
    """Beside one of the project's, also under another name and with other settings."""
    (tmp_path / "studied_module.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])  # to which the folder is added
    entries = 'study.pe=[none,"step pe.size=2"]', "study.task=[rotate]", "study.seeds=[0]"
    overrides = in_lists([*TINY, "import=[studied_module]", *entries])
    jobs = list_jobs(compose(overrides), overrides)
    assert [(run.pe, job.pe.get("size")) for run, job in jobs.items()] == [
        ("none", None), ("step_size_2", 2)
    ]  # fmt: skip


def test_a_file_in_a_room_registers_what_it_defines(tmp_path: Path) -> None:
    """In data/ as in positional/, whichever file is imported first."""
    copy_code(tmp_path, "wawa_transformer", "configs", leave=("lab", "lesson"))
    copy = tmp_path / "wawa_transformer"
    encoding, task = MODULE.split("@dataclass\n")
    (copy / "positional" / "step.py").write_text(
        encoding.replace("from wawa_transformer.data", "#")
    )
    (copy / "data" / "a_task.py").write_text(
        "from dataclasses import dataclass\n"
        f"from wawa_transformer.data.tasks import SequenceTask\n@dataclass\n{task}"
    )
    code = (
        "from wawa_transformer.data.{0}\n"
        "from wawa_transformer.data.tasks import TASKS\n"
        "from wawa_transformer.positional.base import ENCODINGS\n"
        "assert 'rotate' in TASKS and 'step' in ENCODINGS, TASKS"
    )
    for first in ("tasks import TASKS", "text import TextTask", "batching import collate"):
        (tmp_path / "first.py").write_text(code.format(first))
        done = run_script(str(tmp_path / "first.py"), PYTHONPATH=str(tmp_path))
        assert done.returncode == 0, done.stderr


def test_each_run_of_a_sweep_has_the_module_and_is_as_it_would_be_alone(folder: Path) -> None:
    given = [*SHORT, "import=my_module", "task=rotate"]
    first, line = run(folder, "train.py", "--multirun", *given, "pe=none,step").splitlines()[-2:]
    run(folder, "train.py", *given, "pe=step")
    alone, swept = (
        Run.at(next(folder.glob(f"results/{study}/rotate/step/seed0-*")))
        for study in ("single", "sweep_pe")
    )
    result, expected = swept.result(), alone.result()
    assert result and expected and result["by_length"] == expected["by_length"]
    test, directory = result["test"], swept.directory.relative_to(folder)
    scores = f"exact match {test['exact_match']:.3f}  NLL {test['nll']:.3f}"
    assert first.startswith("pe=none  exact match ") and line == f"pe=step  {scores}  {directory}"
    assert {path.name for path in (folder / "results").iterdir()} == {"single", "sweep_pe"}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("import nothing_of_the_kind\n", "No module named 'nothing_of_the_kind'"),
        ("x = 1\nx / 0\n", "ZeroDivisionError"),
        ("def f(:\n", "SyntaxError"),
        ("raise ValueError('no torch here')\n", "no torch here"),
        ("open('no such file')\n", "FileNotFoundError"),
    ],
)
def test_an_error_in_a_module_keeps_its_traceback_and_is_its_own(
    content: str, said: str, folder: Path
) -> None:
    (folder / "my_module.py").write_text(content)
    answer = run(folder, "train.py", *TINY, "import=my_module", status=1)
    assert "Traceback" in answer and said in answer
    assert f"{MISTAKE} my_module, which import=my_module names" in answer
    assert "please report" not in answer and not (folder / "results").exists()


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("rotary", "kind=rotary of my_module.Step is the kind of wawa_transformer.positional"),
        ("coupled", "kind=coupled of Step is the name of .*coupled.yaml, which is another one"),
    ],
)
def test_a_kind_of_the_projects_is_not_replaced(kind: str, said: str, folder: Path) -> None:
    """Else pe=rotary would train another class, or pe=coupled not the user's."""
    module = folder / "my_module.py"
    module.write_text(MODULE.replace('"step"', f'"{kind}"'))
    answer = run(folder, "train.py", *TINY, "import=my_module", f"pe={kind}", status=1)
    assert re.search(said, answer) and "Traceback" not in answer


def test_a_module_that_is_named_twice_makes_no_other_run() -> None:
    """The folder of a run depends on what is imported, and not on how often it is named."""
    for given in ("import=[a,b,a]", "imports=[a,b,b]", "import=[a,b]"):
        assert read_overrides([given], "config")["imports"].value() == ["a", "b"]


def test_the_order_in_which_helpers_are_found_makes_no_other_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are found as a set, whose order differs from process to process."""
    own, *helpers = (Path(each) for each in (__file__, imports.__file__, trainer.__file__))
    monkeypatch.setattr(imports, "files_of", lambda name: [own])
    found = set()
    for each in (helpers, helpers[::-1]):
        monkeypatch.setattr(imports, "helpers_of", Mock(return_value=each))
        found.add(imports.modules_digest(["mine"]))
    assert len(found) == 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("import=your_module", "there is no module your_module in this folder"),
        ("import=my_module.inner", "there is no module my_module.inner"),
        ("import=my_module.py", "is no module's name; for a file my_module.py give import=my"),
        ("import=./my_module", "import=./my_module is no module's name"),
        ("import=", "names no module"),
        ("import=ends", "import=ends ends Python while it is imported"),
        ("import=my_module,ends", "names no module"),
        ("import=statistics", "statistics.py, which hides "),
    ],
)
def test_a_mistake_in_the_name_is_one_sentence(given: str, said: str, folder: Path) -> None:
    (folder / "ends.py").write_text("import sys\nsys.exit(3)\n")
    (folder / "statistics.py").touch()
    answer = run(folder, "train.py", *TINY, given, status=1)
    assert answer.startswith("error: ") and said in answer and len(answer.splitlines()) == 1
