"""The house: rooms in an order, a model of torch alone, and one step that is short to read."""

import ast
import graphlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from support import SCRIPTS, TINY, WITHOUT, begun, run_script

from wawa_transformer.train.loop import batch_stream, train_step

ROOT = SCRIPTS.parent
PACKAGE = ROOT / "wawa_transformer"
# What each room may import, beside itself and common/.
MAY_IMPORT = {
    "common": set(),
    "positional": set(),
    "model": {"positional"},
    "data": set(),
    "decode": {"positional", "model", "data"},
    "run": {"positional", "model", "data", "decode"},
    "train": {"positional", "model", "data", "decode", "run"},
    "lab": {"positional", "model", "data", "decode", "run", "train"},
    "lesson": {"positional", "model", "data", "decode", "run", "train", "lab"},
}
FILES = sorted(PACKAGE.glob("*/*.py"))


def imported(path: Path) -> Iterator[str]:
    """The modules of the package that a file imports: ``positional.base``, ``model``."""

    def is_module(name: str) -> bool:
        base = PACKAGE.joinpath(*name.split("."))
        return base.with_suffix(".py").exists() or (base / "__init__.py").exists()

    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: say wawa_transformer"
            names = [f"{node.module}.{alias.name}" for alias in node.names] + [node.module or ""]
        else:
            continue
        inside = (name.partition(".")[2] for name in names if name.startswith("wawa_transformer."))
        yield from filter(is_module, inside)


def test_a_room_never_imports_one_to_its_right() -> None:
    """All imports count, those inside a function as well."""
    assert {path.parent.name for path in FILES} == {*MAY_IMPORT}
    for path in FILES:
        room, name = path.parent.name, str(path.relative_to(PACKAGE))
        used = {module.split(".")[0] for module in imported(path)}
        assert used - {room, "common"} <= MAY_IMPORT[room], name


def test_no_file_imports_itself_by_way_of_others() -> None:
    """A cycle between files would mean that neither can be read first."""
    graph = {}
    for path in FILES:
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        graph[name.removesuffix(".__init__")] = {*imported(path)} - {path.parent.name}
    assert len([*graphlib.TopologicalSorter(graph).static_order()]) >= len(FILES)


def started_python(code: str, after: str = "") -> set[str]:
    """The modules that a fresh Python has loaded after ``code``; then it does ``after``."""
    code += "\nimport sys; print('loaded', *(n for n, m in sys.modules.items() if m is not None))"
    command = [sys.executable, "-c", f"{code}\n{after}"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split()[1:])


def test_the_model_needs_torch_alone(tmp_path: Path) -> None:
    """Where no other library can be imported it is built, applied and its loss is formed."""
    absent = "numpy datasets hydra omegaconf tokenizers yaml filelock rich tensorboard pandas scipy"
    path = tmp_path / "without.py"
    path.write_text(
        WITHOUT.format(absent=absent)
        + "from wawa_transformer.model.transformer import Transformer as Model\nimport torch\n"
        "from wawa_transformer import Transformer\nassert Transformer is Model\n"
        "ids = torch.tensor([[1, 3, 2]])\n"
        "for pe in ('sinusoidal', 'rotary', 'fire'):\n"
        "    Transformer(9, 9, 8, 1, 2, 16, pe=pe)(ids, ids, targets=ids)[0].backward()\n"
        "print(*(name for name in sys.modules if name.startswith('wawa_transformer.')))"
    )
    done = run_script(str(path))
    assert done.returncode == 0, done.stderr
    rooms = {name.split(".")[1] for name in done.stdout.split()}
    assert rooms == {"common", "positional", "model"}


# Notes whoever asks for a GPU.
WATCHED = """
import importlib, runpy, sys, torch
asked = []
for name in ("init", "_lazy_init", "is_available", "device_count", "current_device"):
    setattr(torch.cuda, name, lambda *args, name=name: asked.append(name))
import torch._dynamo
"""


def test_a_run_imports_nothing_that_it_does_not_use(tmp_path: Path) -> None:
    """A run on a generated task without pictures and progress bar, by the names of modules.

    Nor does an import touch a GPU, also of what a study's workers share: CUDA that was begun before
    a fork can be used by neither side, so that every run would fail. An optimizer loads torch's
    compiler, in a second; a model that only answers does not.
    """
    answered = (
        "import sys, torch\nfrom wawa_transformer import Transformer\n"
        "ids = torch.tensor([[1, 3, 2]])\nTransformer(9, 9, 8, 1, 2, 16, pe='fire')(ids, ids)\n"
        "assert 'sympy' not in sys.modules"
    )
    command = ["train.py", *TINY, "task=letters", "pictures=false", f"output_dir={tmp_path}"]
    loaded = started_python(
        f"{answered}{WATCHED}sys.argv = {command}\n"
        f"runpy.run_path({str(SCRIPTS / 'train.py')!r}, run_name='imported')\n"
        "assert not asked, asked\n"
        f"runpy.run_path({str(SCRIPTS / 'train.py')!r}, run_name='__main__')",
        after="from wawa_transformer.lab.workers import SHARED\n"
        "for name in [each for each in sys.modules if each.startswith('wawa_')]:\n"
        "    del sys.modules[name]\n"
        "asked.clear()\nfor name in SHARED:\n    importlib.import_module(name)\n"
        "assert not asked, asked",
    )
    assert [*tmp_path.rglob("result.json")]
    unused = (
        "matplotlib", "scipy", "sacrebleu", "jinja2", "rich",
        "safetensors", "werkzeug", "transformers", "ctranslate2",
        "wawa_transformer.lab", "wawa_transformer.lesson", "wawa_transformer.run.export",
    )  # fmt: skip
    assert not loaded.intersection(unused)


def test_help_and_a_mistake_wait_for_no_library() -> None:
    """By the names of modules: torch takes a second, and datasets another."""
    scripts = [str(SCRIPTS / name) for name in ("train.py", "compare.py")]
    given = ("--help", "trainer.stepz=3", "pe=rotery")
    loaded = started_python(
        f"import runpy, sys\nfor sys.argv in [[s, g] for s in {scripts} for g in {given}]:\n"
        "    try:\n        runpy.run_path(sys.argv[0], run_name='__main__')\n"
        "    except SystemExit as end:\n        print('ended', end)"
    )
    assert not loaded & {"torch", "datasets", "pandas", "numpy", "rich"}


MUST_READ = [
    "positional/base.py", "positional/sinusoidal.py", "positional/learned.py",
    "model/attention.py", "model/transformer.py", "model/loss.py", "data/batching.py",
    "train/loop.py", "train/optim.py",
]  # fmt: skip


def test_one_training_step_is_all_in_the_files_that_must_be_read(tiny) -> None:
    """Its calls enter these nine files and at most three more."""
    config = tiny("pe=sinusoidal", "model.dropout=0.1")
    state = begun(config)
    state.model.train()
    batches = next(batch_stream(state.data.train, config.trainer, config.seed, 0))
    entered = set()

    def enter(frame: FrameType, event: str, _: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and PACKAGE in path.parents:
            entered.add(str(path.relative_to(PACKAGE)))

    before = sys.getprofile()
    sys.setprofile(enter)
    try:
        train_step(state, batches)
    finally:
        sys.setprofile(before)
    assert state.step == 1 and {*MUST_READ} - {"positional/learned.py"} <= entered
    assert len(entered - {*MUST_READ}) <= 3, entered


def test_what_must_be_read_is_short() -> None:
    """The nine files have fewer than a thousand lines, as README says."""
    lines = {name: len((PACKAGE / name).read_text("utf-8").splitlines()) for name in MUST_READ}
    assert sum(lines.values()) < 1000, lines
