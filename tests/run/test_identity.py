"""A run is what was used: other data or other code are noticed, and another place is not."""

import ast
import dataclasses
import enum
import functools
import json
import shutil
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import evaluate
import pandas as pd
import pytest
import torch
from omegaconf import OmegaConf
from support import (
    SCRIPTS,
    TINY,
    UNDRAWN,
    call_script,
    checked,
    configure,
    copy_code,
    run_script,
    train_until_saved,
    trained,
)

from wawa_transformer.common import code as code_digests
from wawa_transformer.common.messages import UserError
from wawa_transformer.data import load, tasks
from wawa_transformer.data.load import load_data
from wawa_transformer.data.tasks import TASKS, Copy, Task
from wawa_transformer.model import init
from wawa_transformer.model.attention import MultiHeadAttention
from wawa_transformer.positional.base import ENCODINGS, Encoding, EncodingContext
from wawa_transformer.run import failure, imports, provenance, run_dir
from wawa_transformer.run.overrides import CHECKS
from wawa_transformer.run.run_dir import Run, config_digest
from wawa_transformer.run.schema import TrainerConfig
from wawa_transformer.train import checkpoint, setup, trainer
from wawa_transformer.train.trainer import train

ROOT = SCRIPTS.parent
SAMPLE = [
    (ROOT / "data" / f"sample.{side}").read_text("utf-8").splitlines() for side in ("en", "de")
]
PAIRS = list(zip(*SAMPLE, strict=True))
SMALL = [
    "task=text", "task.vocab_size=300", "task.validation_size=9", "task.test_size=9",
    "model.d_model=16", "model.num_heads=2", "model.d_ff=32", "trainer.steps=4",
    "trainer.eval_every=2", "trainer.device=cpu", "pictures=false", "progress=false",
]  # fmt: skip


class Side(enum.Enum):
    LEFT, RIGHT = 1, 2


@pytest.fixture
def own_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, registry: None
) -> Iterator[Callable[[dict[str, str]], None]]:
    """Write a user's modules, which are gone after the test: ``own_files({"mine.py": …})``."""

    def write(files: dict[str, str]) -> None:
        for name, content in files.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(content)

    monkeypatch.syspath_prepend(tmp_path)
    yield write
    for name, module in sys.modules.copy().items():
        if str(getattr(module, "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def read_anew() -> None:
    """Let this process read code again, as one that begins now."""
    read = code_digests.source_of, code_digests.tree_of
    for function in (*read, code_digests.statements, code_digests.mentions):
        function.cache_clear()


def digest_for(pe: str, cross: str = "none", task: str = "copy") -> str:
    """The code of an encoding, one of cross-attention and a task, as it is now."""
    classes = frozenset((ENCODINGS[pe], ENCODINGS[cross], TASKS[task]))
    return provenance.digest_for.__wrapped__(classes)


def write_pairs(path: Path, pairs: list[tuple[str, str]]) -> None:
    """Write a text of both sides, for ``hub=`` a folder that holds nothing else."""
    path.parent.mkdir(exist_ok=True)
    lines = [json.dumps({"en": source, "de": target}) for source, target in pairs]
    path.write_text("\n".join(lines) + "\n", "utf-8")


OWN = "task.data_dir=data task.test_source=sample.en task.test_target=sample.de"

# ------------------------------------------------------------------------------- the data's code

# Each edit: a file in data/, what stands there, and what stands there then.
EDITS = {
    "lower case in rows()": ("text.py", '{"source": source,', '{"source": source.lower(),'),
    "a smaller vocabulary": ("text.py", "vocab_size=self.vocab_size", "vocab_size=280"),
    "reversed ids": ("load.py", "[[*encoding.ids, EOS]", "[[*encoding.ids[::-1], EOS]"),
    "another reader": ("files.py", '.rstrip("\\r")', '.rstrip("\\r")[1:]'),
    "other bins of length": ("text.py", "-(-count //", "-(-3 * count //"),
}


def test_an_edit_of_the_code_that_reads_a_text_changes_what_is_loaded(tmp_path: Path) -> None:
    """In a copy of the code, after the code as it was; all share one cache.

    The digest is of the ids and lengths that a run gets; a text that is asked has the same ids.
    """
    copy_code(tmp_path, "wawa_transformer", "configs", "data")
    (tmp_path / "digest.py").write_text(
        "import sys\n"
        "from wawa_transformer.data.load import load_data\n"
        "from wawa_transformer.decode.translation import read\n"
        "from wawa_transformer.run.compose import compose\n"
        "data = load_data(compose(sys.argv[1:]))\n"
        "[asked] = read(data.tokenizer, data.test.text['source'][:1])\n"
        "assert asked.equal(data.test.source[0]), 'asked with other ids'\n"
        "print(data.digest)\n"
    )
    found = {}
    for name, (file, before, after) in {"none": ("load.py", "", ""), **EDITS}.items():
        path = tmp_path / "wawa_transformer" / "data" / file
        code = path.read_text("utf-8")
        assert before in code, name
        path.write_text(code.replace(before, after, 1) if before else code, "utf-8")
        done = run_script(str(tmp_path / "digest.py"), *SMALL, PYTHONPATH=str(tmp_path))
        path.write_text(code, "utf-8")
        assert done.returncode == 0, done.stderr
        # What only training does to a text is said.
        assert ("rows() makes other sources" in done.stderr) == ("rows()" in name), name
        found[name] = done.stdout
    assert len({*found.values()}) == len(EDITS) + 1, found


USER_TASK = """
import sys
from datasets import DatasetDict, load_dataset
import words
from wawa_transformer.data.load import load_data
from wawa_transformer.data.tasks import Task
from wawa_transformer.data.words import word_tokenizer

class Mine(Task, kind="mine"):
    def dataset(self, seed):
        files = {name: sys.argv[1] for name in ("train", "validation", "test")}
        read = load_dataset("text", data_files=files).rename_column("text", "source")
        return DatasetDict({name: split.map(words.pair) for name, split in read.items()})

    def tokenizer(self, data):
        return word_tokenizer(words.pair({"source": "a b c"})["target"].split())

from omegaconf import OmegaConf
print(load_data(OmegaConf.create({"seed": 0, "task": {"kind": "mine", "name": "mine"}})).digest)
"""


def test_an_edit_beside_a_task_of_ones_own_is_noticed(tmp_path: Path) -> None:
    """The library's cache of ``map`` knows a function by its name alone."""
    (tmp_path / "mine.py").write_text(USER_TASK)
    (tmp_path / "lines.txt").write_text("a b\nb c\n")
    found = []
    for target in ("example['source']", "example['source'][::-1]", "example['source']"):
        (tmp_path / "words.py").write_text(
            f"def pair(example):\n    return {{'target': {target}, 'length': 2}}\n"
        )
        shutil.rmtree(tmp_path / "__pycache__", ignore_errors=True)
        done = run_script(
            str(tmp_path / "mine.py"), str(tmp_path / "lines.txt"), PYTHONPATH=str(ROOT),
            TMPDIR=str(tmp_path),  # a fork of the tests ends without removing what map() wrote
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        found.append(done.stdout)
    assert found[0] == found[2] != found[1]


# ------------------------------------------------------------------------------- the data as loaded


def test_a_hub_dataset_that_changed_is_refused_with_both_digests(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By a word, a pair more, or another order; nothing is lost.

    A finished run is not called finished, and a stopped one not resumed.
    """
    file = tmp_path / "hub" / "train.json"
    write_pairs(file, PAIRS)
    begin = [*SMALL, f"task.hub={tmp_path / 'hub'}"]
    finished = checked(*begin, f"output_dir={tmp_path}/finished")
    stopped = checked(*begin, f"output_dir={tmp_path}/stopped")
    result = train(finished)
    train_until_saved(stopped)
    last = Run.from_config(stopped).checkpoint("last")
    assert checkpoint.load(last)["data"] == result["data"]

    first, *others = PAIRS
    for changed in (
        [(f"{first[0]} again", first[1]), *others], [*PAIRS, ("one more", "eins mehr")],
        PAIRS[::-1],
    ):  # fmt: skip
        write_pairs(file, changed)
        now = load_data(stopped).digest
        for config in (finished, stopped):
            before = last.read_bytes()
            with pytest.raises(UserError) as refused:
                train(config)
            said = str(refused.value)
            assert result["data"] in said and now in said and "output_dir" in said
            assert "finished:" not in capsys.readouterr().out and last.read_bytes() == before
    write_pairs(file, PAIRS)
    assert train(finished) == result
    assert train(stopped)["by_length"] == result["by_length"]


def test_a_study_does_not_call_a_run_finished_on_other_data(tmp_path: Path) -> None:
    """Before anything is trained, with both digests, by compare.py."""
    file = tmp_path / "hub" / "train.json"
    write_pairs(file, PAIRS)
    study = [
        *SMALL, f"task.hub={tmp_path / 'hub'}", "seed=0", "study.name=two",
        f"output_dir={tmp_path}/o",
    ]  # fmt: skip
    result = train(checked(*study, "pe=none"))
    write_pairs(file, PAIRS[:-1])
    done = run_script(UNDRAWN, "compare.py", *study, "study.pe=[none,learned]")
    assert done.returncode == 1 and result["data"] in done.stderr
    assert len([*(tmp_path / "o").rglob("seed0-*")]) == 1


def test_a_text_edited_while_a_study_runs_is_not_trained_under_the_old_digest(
    tmp_path: Path,
) -> None:
    """Later runs refuse; given again, the command trains all of them on the new text."""
    file = tmp_path / "pairs.jsonl"
    write_pairs(file, PAIRS)
    begin = [*SMALL, f"task.source={file}", f"output_dir={tmp_path}/o"]
    jobs = [checked(*begin, f"pe={pe}") for pe in ("none", "learned")]
    first = train(jobs[0])
    write_pairs(file, PAIRS[1:])
    with pytest.raises(UserError, match="have changed since this command began"):
        train(jobs[1])
    again = train(checked(*begin, "pe=none"))
    assert again["data"] != first["data"] and len([*(tmp_path / "o").rglob("result.json")]) == 2


def test_a_task_whose_code_changed_is_noticed_wherever_its_run_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Resumed, found finished, and evaluated on its own test; another test may be asked for."""
    begin = [*TINY, "task=copy"]
    run = trained(tmp_path / "finished", *begin)
    stopped = configure(*begin, f"output_dir={tmp_path}/stopped")
    train_until_saved(stopped)
    monkeypatch.setattr(tasks.Copy, "target", lambda self, symbols: list(map(str, symbols[::-1])))
    for config in (configure(*begin, f"output_dir={tmp_path}/finished"), stopped):
        with pytest.raises(
            UserError, match="another train split, validation split, test split; .* sorts its sets"
        ):
            train(config)
    with pytest.raises(SystemExit) as refused:
        call_script(evaluate.main, f"run={run.directory}")
    digest = run.result()["data"].split("-")[1]
    assert f"the train split of {run.directory} had digest {digest}" in str(refused.value)
    assert "sorts its sets" in str(refused.value)
    call_script(evaluate.main, f"run={run.directory}", "task.test_per_length=3")
    assert "all trained" in capsys.readouterr().out


def test_the_test_of_a_text_that_changed_is_not_the_runs_own(tmp_path: Path) -> None:
    """A test file that was edited; the same file in another folder is the run's own."""
    file, test = tmp_path / "a" / "pairs.jsonl", tmp_path / "a" / "test.jsonl"
    write_pairs(file, PAIRS)
    write_pairs(test, PAIRS[:20])
    run = trained(
        tmp_path, *SMALL, f"task.data_dir={file.parent}", "task.source=pairs.jsonl",
        "task.test_source=test.jsonl",
    )  # fmt: skip
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    write_pairs(test, PAIRS[1:21])
    with pytest.raises(SystemExit, match=r"had digest \w{8} in training, and has \w{8} now"):
        call_script(evaluate.main, f"run={run.directory}")
    call_script(evaluate.main, f"run={run.directory}", f"task.data_dir={tmp_path / 'b'}")


def test_the_digest_depends_on_all_that_was_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Vocabulary, ids and lengths of each split; not on the encoding. Its parts are named."""
    whole = load_data(configure(*TINY)).digest
    assert load_data(configure(*TINY, "pe=alibi", "trainer.lr=1")).digest == whole
    names = ["vocabulary", "train split", "validation split", "test split"]
    assert list(load.parts_of(whole)) == names
    for override, others in (
        ("task.test_per_length=6", names[3:]), ("task.train_size=301", names[1:2]),
        ("task.validation_size=21", names[2:3]), ("task.symbols=9", names), ("seed=1", names[1:]),
    ):  # fmt: skip
        parts = load.parts_of(load_data(configure(*TINY, override)).digest)
        assert [name for name in names if parts[name] != load.parts_of(whole)[name]] == others
    one = load_data(configure(*TINY)).test
    for side in ("source", "target"):
        other = dataclasses.replace(getattr(one, side), ids=getattr(one, side).ids ^ 1)
        assert dataclasses.replace(one, **{side: other}).digest != one.digest, "of the same text"


# ---------------------------------------------------------------------------- where and how it ran

ELSEWHERE = [
    "trainer.device=cuda", "trainer.threads=3", "trainer.log_every=7", "trainer.keep_checkpoints=2",
    "trainer.deterministic=true", "trainer.check=true", "output_dir=other", "quiet=true",
    "workers=5", "pictures=true", "progress=true", "trainer.compile_mode=reduce-overhead",
    "trainer.init_from=there",
]  # fmt: skip
OTHER = [
    "trainer.lr=0.1", "trainer.eval_every=3", "trainer.patience=3", "trainer.bf16=true",
    "trainer.pad_to_multiple_of=8", "trainer.batch_tokens=63", "model.dropout=0.2",
    "task.symbols=9", "seed=4", "trainer.grad_accum_steps=2", "pe.max_len=6000", "trainer.steps=9",
    "trainer.bucket=true", "trainer.warmup=9", "trainer.schedule=cosine", "trainer.grad_clip=9",
    "trainer.weight_decay=0.9", "trainer.label_smoothing=0.9", "trainer.compile=true",
    "trainer.tf32=true",
]  # fmt: skip


def test_place_and_logging_do_not_change_a_run() -> None:
    """The hash of a run's folder; what can change a number changes it."""

    def folder(*keys: str) -> str:
        config = configure(*TINY)
        config.merge_with_dotlist([*keys])  # composing takes longer
        return Run.from_config(config).directory.name

    own = folder()
    assert folder(*ELSEWHERE) == own
    alibi = Run.from_config(configure(*TINY, "pe=alibi")).directory.name
    others = [alibi, *map(folder, OTHER)]
    assert len({own, *others}) == len(OTHER) + 2
    named = {each.partition("=")[0] for each in (*ELSEWHERE, *OTHER)}
    assert {f"trainer.{each.name}" for each in dataclasses.fields(TrainerConfig)} <= named
    plain: Any = OmegaConf.to_container(configure(*TINY))
    every = [
        plain | {group: plain[group] | {key: "other"}}
        for group in ("model", "pe", "task")
        for key in plain[group]
    ]
    assert len({*map(config_digest, [plain, *every])}) == 1 + len(every)
    older = {  # that a version wrote which did not have some keys
        group: {key: value for key, value in plain[group].items() if key not in later}
        for group, later in run_dir.LATER.items()
    }
    assert config_digest(plain | older) == config_digest(plain)
    assert older["model"] != plain["model"] and older["pe"] != plain["pe"]


@pytest.mark.parametrize(
    ("given", "same"),
    [
        ("pe=rotary pe.base=50", ["pe.base=50.0", "pe.base=5e1", "pe.base='50'"]),
        ("pe=rotary pe.divided=3", ["pe.divided=3.0"]),
        ("task=addition pe=shaw pe.reset_token=5", ["pe.reset_token='5'"]),
        ("task=addition task.width=30", ["task.width='30'"]),
        # Of a text: with files of its own a part is not held out, words are not split into pieces.
        (f"task=text {OWN} task.test_size=3", ["task.test_size=9"]),
        (f"task=text {OWN.replace('test', 'validation')}", ["task.validation_size=9"]),
        (f"task=text {OWN} task.words=true", ["task.vocab_size=999"]),
        ("task=text task.hub=name", ["task.data_dir=data"]),
        ("task=text", ["task.hub_config=de-en"]),
    ],
)
def test_what_means_the_same_is_the_same_run(given: str, same: list[str]) -> None:
    own = config_digest(checked(*given.split()))
    assert {config_digest(checked(*given.split(), each)) for each in same} == {own}


def test_settings_of_every_type_are_part_of_a_run(registry: None) -> None:
    @dataclasses.dataclass
    class Typed(Copy, kind="typed"):
        folder: Path = Path()
        side: Side = Side.LEFT
        rates: list[float] | None = None
        tables: dict[int, float] | None = None

    def digest(**given: Any) -> str:
        config = configure(*TINY, "pe=none")
        config.task = {"kind": "typed", "name": "typed", **given}
        CHECKS["config"](config)
        return config_digest(config)

    assert digest(rates=[1], tables={3: 1}) == digest(rates=[1.0], tables={3: 1.0})
    others = [digest(folder=each) for each in "ab"] + [digest(side=each.name) for each in Side]
    assert len({digest(), *others}) == 5


@pytest.mark.parametrize(
    ("kind", "value", "default"),
    [
        (Side, "RIGHT", Side.LEFT), (Path, "a", Path()), (dict[int, float], {3: 1}, {}),
        (list[Side], ["LEFT"], []), (dict[str, Side], {"a": "LEFT"}, {}),
    ],
)  # fmt: skip
def test_a_setting_that_no_checkpoint_holds_is_refused(
    kind: Any, value: Any, default: Any, registry: None
) -> None:
    """Before training: a Transformer is built again from what a checkpoint or an export holds."""

    class Typed(Encoding, kind="typed"):
        def __init__(self, context: EncodingContext, how: kind = default) -> None:
            super().__init__(context)

        __init__.__annotations__["how"] = kind

    config = configure(*TINY, "pe=none")
    config.pe = {"kind": "typed", "name": "typed", "how": value}
    with pytest.raises(UserError, match="pe.how=.* of Typed is nothing that a checkpoint or an ex"):
        CHECKS["config"](config)


@pytest.mark.parametrize(("kind", "runs"), [("text", 1), ("mine", 2)])
def test_a_key_of_a_users_task_is_no_place_whatever_its_name(kind: str, runs: int) -> None:
    """``source`` may choose a part of what ``fingerprint`` hashes."""
    task = {"kind": kind, "name": kind, "text_digest": "0123456789abcdef"}
    for key in ("data_dir", "source", "validation_source", "test_target"):
        assert len({config_digest({"task": {**task, key: each}}) for each in "ab"}) == runs


def test_a_text_is_known_by_its_contents_and_not_by_its_folder(tmp_path: Path) -> None:
    """Relative, absolute and under other names; another text or another use is another run."""
    for name in ("a", "b", "c"):
        last = "ab"[name == "c"]
        write_pairs(tmp_path / name / "pairs.jsonl", [*PAIRS[:30], ("a", last)])
    shutil.copy(tmp_path / "a" / "pairs.jsonl", tmp_path / "b" / "renamed.jsonl")

    a, b, c, renamed = (
        f"task.source={tmp_path}/{each}.jsonl"
        for each in ("a/pairs", "b/pairs", "c/pairs", "b/renamed")
    )
    test = f"task.test_source={tmp_path}/a/pairs.jsonl"
    same = [[a], [b], [renamed], [f"task.data_dir={tmp_path}/b", "task.source=pairs.jsonl"]]
    others = [[c], [a, test], [a, "task.source_column=de", "task.target_column=en"]]
    own, *digests = [config_digest(checked(*SMALL, *each)) for each in (*same, *others)]
    assert {*digests[:3]} == {own} and len({own, *digests[3:]}) == 4


def test_the_commit_says_whether_code_or_configurations_differ(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """None without git, and for a copy that lies in another project's checkout."""
    folders = [str(provenance.PACKAGE), str(provenance.CONFIG_DIR)]
    for changed, commit in (("", "0123abc"), (" M a.py\n", "0123abc+changes")):
        said = {"ls-files": "a.py\n", "status": changed, "rev-parse": "0123abc\n"}
        ask = Mock(side_effect=lambda command, said=said, **_: said[command[3]])
        monkeypatch.setattr(provenance.subprocess, "check_output", ask)
        assert provenance.commit.__wrapped__() == commit
        assert ask.call_args_list[1].args[0][-2:] == folders
    for error in (FileNotFoundError(), subprocess.CalledProcessError(1, "ls-files")):
        said = [error, "", "0123abc\n"]
        monkeypatch.setattr(provenance.subprocess, "check_output", Mock(side_effect=said))
        assert provenance.commit.__wrapped__() is None


def test_the_code_of_a_run_is_what_it_does(tmp_path: Path) -> None:
    """Comments, docstrings and layout do not count; every other change does."""
    found = []
    for number, code in enumerate((
        "def f(x):\n    return x + 1\n",
        '"""A file."""\n# a comment\ndef f(x):\n    """Add one."""\n    return (x\n    +1)\n"b"\n',
        "def f(x):\n    return x + 2\n", "def f(x):\n    return None\n", "def f(x):\n    return\n",
        "def f(x, y=None):\n    return x + 1\n", "async def f(x):\n    return x + 1\n",
    )):  # fmt: skip
        path = tmp_path / f"{number}.py"
        path.write_text(code)
        found.append(code_digests.code_of(path))
    assert found[0] == found[1] and len(set(found)) == len(found) - 1


def test_versions_of_python_read_the_same_code(tmp_path: Path) -> None:
    """Python 3.12.0 to 3.12.3 end a format with an empty text; 3.14 knows newer characters."""
    path = tmp_path / "f.py"
    path.write_text("text = f'{1:{2}}', '\u1b7f\U0003ffff'\n", encoding="utf-8")
    found = code_digests.code_of(path)
    inner = next(each for each in ast.walk(code_digests.tree_of(path)) if hasattr(each, "values"))
    inner.values[0].format_spec.values.append(ast.Constant(""))
    code_digests.statements.cache_clear()
    assert code_digests.code_of(path) == found and found.isascii()


def test_a_library_is_none_of_the_users_code_wherever_it_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_files: Callable[..., None]
) -> None:
    """As with ``pip install --target``; a module beside it, loaded or not, is the user's."""
    files = {
        "own.py": OWN["mine.py"].replace("mine", "own").replace("import helper", "import lib")
        + "        import late\n",
        "target/lib/__init__.py": "from lib import more\ntwice = more.same\n",
        "target/lib/more.py": "def same(x):\n    return x\n",
        "target/late.py": "A = 1\n",
        "target/lib-1.0.dist-info/RECORD": "lib/__init__.py,,\nlib/more.py,,\n",
    }
    (tmp_path / "target").mkdir()
    own_files(files)
    monkeypatch.syspath_prepend(tmp_path / "target")
    imports.import_modules(["own"])
    read: set[str] = set()
    monkeypatch.setattr(provenance, "code_of", lambda path, _: read.add(path.name) or b"")
    for _ in range(2):
        read.clear()
        digest_for("own")
        assert {"own.py", "late.py"} <= read and "more.py" not in read
        __import__("late")


def test_the_code_of_other_encodings_and_tasks_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Their files are not read, and their classes are left out of files that are."""
    read: dict[str, set[str]] = {}
    monkeypatch.setattr(
        provenance, "code_of", lambda path, without: read.update({path.name: without}) or b""
    )
    for pe, cross, task, files in (
        # Rotary's angles are the sinusoid's.
        ("rotary", "none", "copy", {"rotary.py", "sinusoidal.py"}),
        ("rotary_mix", "none", "copy", {"rotary.py", "sinusoidal.py"}),
        ("sinusoidal", "shaw", "scan", {"sinusoidal.py", "shaw.py", "scan.py"}),
        ("none", "none", "text", {"text.py"}),
        ("sinusoid_design", "none", "copy", {"sinusoid_designs.py", "sinusoidal.py"}),
    ):  # fmt: skip
        read.clear()
        digest_for(pe, cross, task)
        kinds = {"rotary.py", "shaw.py", "t5.py", "cope.py", "scan.py", "text.py", "sinusoidal.py"}
        assert {*read} & (kinds | files) == files, (pe, task)
        assert {"base.py", "attention.py", "tasks.py", "loop.py", "position_ids.py"} <= {*read}
        assert "report.py" not in read
        assert ("Copy" in read["tasks.py"]) == (task != "copy") and "Task" not in read["tasks.py"]
    monkeypatch.setattr(provenance, "digest_for", lambda classes: classes)
    monkeypatch.setattr(provenance, "with_users", lambda *given: given)
    asked: Any = provenance.code_digest(configure("pe=sinusoidal", "pe.cross=shaw", "task=scan"))
    assert asked[0] == {ENCODINGS["sinusoidal"], ENCODINGS["shaw"], TASKS["scan"]} < {*asked[1]}
    assert {Encoding, Task} < {*asked[1]}


OWN = {
    "mine.py": (
        "import helper\nfrom wawa_transformer.positional.alibi import ALiBi, alibi_slopes\n"
        "from wawa_transformer.positional.base import Encoding\n"
        "class Mine(Encoding, kind='mine'):\n"
        "    def __init__(self, context):\n        super().__init__(context)\n"
        "        self.inner = ALiBi(context)\n"
        "    def bias(self, *given):\n        return helper.twice(self.inner.bias(*given))\n"
    ),
    "helper.py": (
        "import importlib\nFACTOR = importlib.import_module('deeper').FACTOR\n"
        "def twice(x):\n    return FACTOR * x\n"
    ),
    "deeper.py": "FACTOR = 2\n",
    "wrap.py": (
        "from wawa_transformer.positional.base import ENCODINGS, Encoding\n"
        "class Wrap(Encoding, kind='wrap'):\n"
        "    def __init__(self, context, inner: str = 'kerple'):\n"
        "        super().__init__(context)\n        self.inner = ENCODINGS[inner](context)\n"
    ),
}


EDITED = [
    ("rotary", "positional/sinusoidal.py", "2 * pair", "3 * pair"),
    ("none", "positional/base.py", "uses_positions = False", "uses_positions = True"),
    ("alibi", "positional/base.py", "class NoEncoding(", "@id\nclass NoEncoding("),
    ("mine", "positional/alibi.py", "-torch.where(", "torch.where("),
    ("mine", "positional/alibi.py", "2 ** (-8", "2 ** (-9"),
    ("mine", "mine.py", "super().__init__(context)", "super().__init__(context); self.a = 1"),
    ("mine", "helper.py", "FACTOR * x", "FACTOR + x"),
    ("mine", "deeper.py", "FACTOR = 2", "FACTOR = 3"),
    ("none", "data/tasks.py", "(**task_settings(", "(*[], **task_settings("),
    ("rotary", "positional/sinusoid_designs.py", "def frequencies(", "@id\ndef frequencies("),
    ("wrap", "positional/kerple.py", "return ", "return 2 * "),
    ("none", "train/optim.py", "0.98", "0.99"),
    ("none", "common/seeds.py", ">> 1", ">> 2"),
]


def test_an_edit_of_what_a_run_uses_changes_its_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_files: Callable[..., None]
) -> None:
    """Of a file that another one imports, also outside the package; a comment does not.

    What another encoding uses does not, either.
    """
    own_files(OWN)
    imports.import_modules(["mine", "wrap"])
    read = Path.read_bytes
    parsed = (
        code_digests.source_of, code_digests.tree_of, code_digests.statements,
        code_digests.modules_in, code_digests.mentions,
    )  # fmt: skip

    def digests(path: Path, content: str, *kinds: str) -> dict[str, str]:
        """Of runs, and of the user's modules, while one file has other content."""
        with monkeypatch.context() as patched:
            new = content.encode()
            patched.setattr(Path, "read_bytes", lambda each: new if each == path else read(each))
            for function in parsed:  # all other files are parsed once

                def anew(file: Path, function: Any = function) -> Any:
                    return (function.__wrapped__ if file == path else function)(file)

                patched.setattr(code_digests, function.__name__, anew)
            found = {pe: digest_for(pe) for pe in kinds}
            found["shared"] = provenance.shared_digest.__wrapped__()
            return found | {"modules": imports.modules_digest(["mine"])}

    def file(name: str) -> Path:
        return (tmp_path if name in OWN else provenance.PACKAGE) / name

    as_it_is = digests(tmp_path / "no.py", "", "mine", "rotary", "none", "alibi", "t5", "wrap")
    for name in ("helper.py", "positional/alibi.py"):
        text = file(name).read_text("utf-8") + "\n# A comment.\n'a string'\n"
        found = digests(file(name), text, "mine", "t5")
        assert found.items() <= as_it_is.items(), name
    for pe, name, before, after in EDITED:
        text = file(name).read_text("utf-8")
        assert before in text, (name, before)
        found = digests(file(name), text.replace(before, after, 1), pe, "t5")
        assert found[pe] != as_it_is[pe], (name, before)
        assert (found["modules"] != as_it_is["modules"]) == (name in OWN)  # and so another run
        apart = name in OWN or any(word in name for word in ("alibi", "soid", "kerple"))
        assert (found["t5"] == as_it_is["t5"]) == apart, (name, before)
        own = apart and "soid" not in name or "base.py" in name  # of NoEncoding alone
        assert (found["shared"] == as_it_is["shared"]) == own, (name, before)


def test_an_encoding_that_is_edited_after_the_first_run_of_a_process_is_known_as_it_was(
    tmp_path: Path, own_files: Callable[..., None]
) -> None:
    """As in a worker of a study, which goes on with the code that it has loaded."""
    path, code = tmp_path / "later.py", "from wawa_transformer.positional.base import Encoding\n"
    own_files({path.name: f"{code}class Later(Encoding, kind='later'):\n    rate = 1\n"})
    imports.import_modules(["later"])
    digest_for("none")
    path.write_text(path.read_text().replace("rate = 1", "rate = 2"))
    loaded = digest_for("later")
    read_anew()
    assert digest_for("later") != loaded


def test_the_code_is_read_before_a_wait_for_the_runs_folder(
    tiny: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process may have the folder for hours, in which the code is edited."""
    read = set[Path]()

    def wait(*given: Any) -> None:
        read.update(path for path in provenance.rooms() if code_digests.source_of(path))
        raise UserError("in use")

    monkeypatch.setattr(trainer, "lock_directory", wait)
    provenance.digest_for.cache_clear()
    read_anew()
    with pytest.raises(UserError, match="in use"):
        train(tiny())
    assert code_digests.source_of.cache_info().hits >= len(read) > 0


LATER = """
from pathlib import Path
from wawa_transformer.lab import tuning
room = Path("wawa_transformer/model/transformer.py")
room.write_text(room.read_text("utf-8") + "edited = 1\\n", "utf-8")
from wawa_transformer.run.provenance import shared_digest
print(shared_digest())
"""


def test_a_worker_that_starts_after_an_edit_is_known_by_the_code_it_was_forked_with(
    tmp_path: Path,
) -> None:
    """The process that workers are forked from has imported all rooms and trained nothing."""
    copy_code(tmp_path, "wawa_transformer", "configs")
    (tmp_path / "later.py").write_text(LATER)
    done = run_script(str(tmp_path / "later.py"), folder=tmp_path, PYTHONPATH=str(tmp_path))
    assert done.stdout.strip() == provenance.shared_digest(), done.stderr


def test_a_module_edited_while_a_study_runs_is_not_trained_under_the_old_digest(
    tmp_path: Path, own_files: Callable[..., None]
) -> None:
    """As by a worker that begins later; the command's own digest names the run's folder."""
    own_files({"mine_late.py": "rate = 1\n"})
    config = checked(*TINY, "import=mine_late", f"output_dir={tmp_path}/out")
    (tmp_path / "mine_late.py").write_text("rate = 2\n")
    read_anew()
    with pytest.raises(UserError, match="import=mine_late has changed since this command began"):
        train(config)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "code",
    [
        "import torch\nfrom my_numbers import SCALE\n",
        "import os, my_numbers as mine\n",
        "try: import my_numbers\nexcept ImportError: raise\n",
        "import importlib\nmine = importlib.import_module('my_numbers')\n",
        "SCALE = __import__('my_numbers').SCALE\n",
    ],
)
def test_a_file_beside_the_package_that_a_room_imports_counts(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_files: Callable[..., None]
) -> None:
    """As a model's file that takes a number from a module of the fork's."""
    room, beside = tmp_path / "room.py", tmp_path / "my_numbers.py"
    own_files({"room.py": code})
    monkeypatch.setattr(provenance, "rooms", lambda: [room])
    monkeypatch.setattr(provenance, "helpers", provenance.helpers.__wrapped__)
    monkeypatch.setattr(provenance, "code_of", lambda path, *_: path.read_bytes())
    found = set[str]()
    for content in ("SCALE = 1", "SCALE = 2"):
        beside.write_text(content)
        found.add(provenance.shared_digest.__wrapped__())
        found.add(digest_for("none"))
    assert len(found) == 4


def test_links_to_folders_hide_no_code_and_make_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkout behind a link is the same, also where a mistake is blamed; one in it is read."""
    before = digest_for("rotary"), provenance.shared_digest.__wrapped__()
    (tmp_path / "link").symlink_to(ROOT)
    for name, module in sys.modules.items():
        if name.startswith("wawa_transformer."):
            linked = str(module.__file__).replace(str(ROOT), str(tmp_path / "link"))
            monkeypatch.setattr(module, "__file__", linked)
    assert (digest_for("rotary"), provenance.shared_digest.__wrapped__()) == before
    scan = tmp_path / "link" / "wawa_transformer" / "data" / "scan.py"
    monkeypatch.setattr(failure, "git_status", lambda path: "")
    with pytest.raises(ZeroDivisionError) as raised:
        exec(compile("1 / 0", scan, "exec"))
    said = failure.whose(raised.value.with_traceback(raised.tb.tb_next))
    assert f"{failure.MISTAKE} wawa_transformer, not in the command: it shows in {scan}" in said

    for folder in ("package", "elsewhere"):
        (tmp_path / folder).mkdir()
    (tmp_path / "elsewhere" / "mine.py").touch()
    (tmp_path / "package" / "more").symlink_to(tmp_path / "elsewhere")
    monkeypatch.setattr(provenance, "PACKAGE", tmp_path / "package")
    assert [path.name for path in provenance.rooms()] == ["mine.py"]


@pytest.mark.parametrize("name", ["__main__", "patches"])  # a notebook and a module
def test_what_a_user_puts_in_place_of_the_projects_code_counts(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A function, a method, a property, a class method, what functools makes of a function, an
    object that is called, and all of these in torch; a definition alone does not.
    """
    config, module = configure(*TINY, "pe=none"), types.ModuleType(name)
    monkeypatch.setitem(sys.modules, name, module)

    def digests(value: int, target: Any = None, key: str = "", wrap: Any = None) -> tuple[str, str]:
        file = tmp_path / f"{value}.py"
        function = f"def mine(*given):\n    return {value}\n"
        file.write_text(f"{function}class Mine:\n    __call__ = mine\n")
        exec(file.read_text(), module.__dict__)
        module.__file__ = None if name == "__main__" else str(file)
        with monkeypatch.context() as patched:
            if target:
                patched.setattr(target, key, wrap(module.mine) if wrap else module.mine)
            return provenance.code_digest(config), provenance.with_users("")

    plain = digests(1)
    assert digests(2) == plain == (provenance.code_digest(config), "")
    for place in (
        (init, "content"), (MultiHeadAttention, "attend"), (Run, "status", property),
        (Run, "at", classmethod), (init, "content", functools.cache),
        (init, "content", functools.partial), (init, "content", lambda _: module.Mine()),
        (torch, "where"), (torch.nn.functional, "softmax"), (torch.nn.Linear, "forward"),
        (torch.Tensor, "flatten"), (torch.optim.AdamW, "step"), (torch.nn.utils, "clip_grad_norm_"),
        (torch, "autocast", lambda _: module.Mine),
    ):  # fmt: skip
        found = [digests(value, *place) for value in (1, 2)]
        assert len({plain[0], *(each[0] for each in found)}) == 3, place
        assert len({"", *(each[1] for each in found)}) == 3, place


def test_a_class_of_the_same_name_in_another_file_hides_none(registry: None) -> None:
    """Of the rooms, and of a file that a run uses."""

    def digests() -> list[str]:
        runs = [digest_for(pe) for pe in ("none", "rotary")]
        return [provenance.shared_digest.__wrapped__(), *runs]

    before = digests()
    for name in ("MultiHeadAttention", "Rotary"):
        type(name, (Encoding,), {"__module__": __name__}, kind=f"own_{name}")
        assert digests() == before, name


NOTEBOOK = """
import functools
from wawa_transformer.positional.base import Encoding
RATE, BASE = {rate}, {base}
def twice(function):
    def inner(x):
        return {factor} * function(x)
    return inner
@twice
def closed(x):
    return x + {closed}
@functools.lru_cache
def cached(x):
    return x + {cached}
def wrapped(x):
    return x + {wrapped}
called = functools.wraps(abs)(twice(wrapped))
power = functools.partial(pow, {power})
act = torch.nn.functional.{act}
class Rates:
    def __init__(self, rate):
        self.rate = rate
    def __call__(self):
        return self.rate + {of_call}
rates = Rates({held})
{before}
class Cell(Encoding, kind="cell"):
    rates = {rates}
    def embed(self, x, positions, scale={scale}):
        {comment}
        class Inner(dict):
            rate = RATE
            def base(self):
                return BASE
        return act(closed(x) + cached(x) + called(x)) + power(Inner.rate) + rates() + x.mean()
    @functools.cached_property
    def table(self):
        return {table}
    @functools.lru_cache
    def method(self):
        return {method}
    @staticmethod
    def static():
        return {static}
    @property
    def slope(self):
        return {slope}
    @slope.setter
    def slope(self, value):
        self.kept = value + {setter}
    @slope.deleter
    def slope(self):
        self.kept = {deleter}
"""
SLOTS = (
    "rate", "base", "factor", "closed", "cached", "wrapped", "power", "of_call", "held", "scale",
    "table", "method", "static", "slope", "setter", "deleter",
)  # fmt: skip
SAME = {"before": "", "comment": '"""Of a cell."""', "rates": "(1.0, {0, 8})", "act": "relu"}
SAME |= dict.fromkeys(SLOTS, "1")


def test_a_class_of_a_notebook_is_known_by_what_it_does(
    registry: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no file: each number of its cell, and what it names of other cells, counts.

    Also behind a decorator and in an inner class. Another docstring, line or order of a set is the
    same code, and so is a name of another cell's that is an attribute here.
    """
    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)

    def digest(**edit: str) -> str:
        exec(NOTEBOOK.format(**{**SAME, **edit}), {"__name__": "__main__", "torch": torch})
        config.pe.kind = "cell"
        return provenance.code_digest(config)

    config = configure(*TINY, "pe=none")
    assert [*{0, 8}] != [*{8, 0}]
    for same in ({"before": "mean = 3"}, {"comment": "'...'"}, {"rates": "(1.0, {8, 0})"}):
        assert digest(**same) == digest()
    edits = [{name: "2"} for name in SLOTS] + [{"act": "gelu"}]
    # An array's text has a part of it, and a dictionary's values may be nested.
    edits += [{"rates": each} for each in ("(1.0, {0, 9})", "torch.arange(2000)", "[{'a': 1}]")]
    cut = "torch.arange(2000).index_fill(0, torch.tensor(999), 0)"
    edits += [{"rates": each} for each in (cut, "[{'a': 2}]")]
    assert len({digest(), *(digest(**edit) for edit in edits)}) == 1 + len(edits)


def test_helpers_that_share_helpers_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each calls all before it, and the first calls the last; an edit of the first is noticed."""
    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)
    read = Mock(wraps=provenance.dis.get_instructions)
    monkeypatch.setattr(provenance.dis, "get_instructions", read)
    found = []
    for start in ("f11(x) + 1", "f11(x) + 2"):
        calls = [start, *(" + ".join(f"f{j}(x)" for j in range(i)) for i in range(1, 12))]
        notebook: dict[str, Any] = {"__name__": "__main__"}
        exec("".join(f"def f{i}(x):\n    return {c}\n" for i, c in enumerate(calls)), notebook)
        found.append(provenance.live_code(notebook["f11"]))
    assert read.call_count == 2 * 12 and found[0] != found[1]


def test_a_run_of_two_versions_of_the_code_says_so(
    tiny, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Stopped, and resumed by other code: its result names both, and is that of neither."""
    config = tiny()
    train_until_saved(config)
    before = checkpoint.load(Run.from_config(config).checkpoint("last"))["code"]
    monkeypatch.setattr(setup, "code_digest", lambda config: "0123abcd")
    assert train(config)["code"] == f"{before}+0123abcd"
    assert "the code has changed since step 10" in capsys.readouterr().err
    assert setup.restore(config, Run.from_config(config)).code == f"{before}+0123abcd"
    assert "the code has changed since step 20" in capsys.readouterr().err, "resumed once more"


def test_clones_in_other_folders_train_halves_of_one_study(tmp_path: Path) -> None:
    """A study trains only the run that was not copied, whatever its threads and logging."""
    study = [*SMALL[1:], "study.name=halves"]
    clone, whole = tmp_path / "first" / "deep", tmp_path / "second" / "halves"
    copy_code(clone, "wawa_transformer", "configs", "data")
    half = ["train.py", "task=text", "pe=none", "trainer.log_every=1", *study]
    both = [UNDRAWN, "compare.py", "study.task=[text]", "study.pe=[none,learned]", *study]
    both += ["study.seeds=[0]", "study.rule=null", "study.pairs=[]", "workers=1"]
    both += ["trainer.threads=3"]
    for command, place, results in ((half, clone, clone / "out"), (both, ROOT, whole.parent)):
        given = *command, f"output_dir={results}"
        done = run_script(*given, folder=place, PYTHONPATH=str(place))
        assert done.returncode == 0, done.stderr
        if place == clone:
            shutil.copytree(results / "halves", whole)
    assert "2 runs in" in done.stdout and "1 to train" in done.stdout
    table = pd.read_csv(whole / "results.csv")
    assert {*table["pe"]} == {"none", "learned"}
    results = [json.loads(path.read_text()) for path in whole.rglob("result.json")]
    same = {(result["data"], json.dumps(result["configuration"]["task"])) for result in results}
    assert len(same) == 1 and len(results) == 2
    assert {result["place"]["trainer"]["log_every"] for result in results} == {1, 10}
