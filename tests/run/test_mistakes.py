"""What goes wrong is answered alike by every command: memory, files, keys, and whose it is."""

import errno
import functools
import os
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
import train as train_script
import translate
from hydra.errors import OverrideParseException
from support import SCRIPTS, TINY, answer, call_script, configure, copy_code, run_script, trained

from wawa_transformer.common import CONFIG_DIR
from wawa_transformer.common.messages import UserError, tell, warn
from wawa_transformer.data.tasks import Letters
from wawa_transformer.lab.study import in_lists, list_jobs
from wawa_transformer.model.config import TransformerConfig
from wawa_transformer.model.layers import FeedForward
from wawa_transformer.positional import build_encoding
from wawa_transformer.positional.base import ENCODINGS, Encoding
from wawa_transformer.run import failure
from wawa_transformer.run.cli import exit_on_error, refuse_dashes
from wawa_transformer.run.compose import check_command, compose, explain
from wawa_transformer.run.config_files import check_files
from wawa_transformer.run.run_dir import Run
from wawa_transformer.run.signals import STATUS
from wawa_transformer.train.trainer import train_and_record_failure

ROOT = SCRIPTS.parent

# --------------------------------------------------------------------------------------- memory


BELOW = ValueError("a library's own class")
BELOW.__cause__ = MemoryError("std::bad_alloc")
CARD = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")
PLACES = {
    "data": "train.setup.load_data", "model": "train.setup.build_model",
    "step": "model.layers.FeedForward.forward", "evaluation": "train.trainer.final_evaluation",
}  # fmt: skip


@pytest.mark.parametrize(
    ("lack", "place"),
    [
        (lambda *_, **__: torch.empty(2**50), "model"),
        (lambda *_, **__: np.empty(2**55), "data"),
        (MemoryError(), "evaluation"),
        (CARD, "model"),
        (CARD, "step"),
        (lambda *_, **__: torch.empty(2**50), "step"),
        (OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)), "data"),
        (BELOW, "evaluation"),
        (ImportError("libtorch.so: failed to map segment from shared object"), "model"),
    ],
)
def test_a_lack_of_memory_anywhere_is_one_sentence_with_a_remedy(
    lack: Any, place: str, tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run of a study keeps the sentence in its folder."""
    monkeypatch.setattr(f"wawa_transformer.{PLACES[place]}", Mock(side_effect=lack))
    config = tiny("trainer.steps=1", "trainer.eval_every=1")
    train_and_record_failure(config)
    sentence = Run.from_config(config).failure()
    assert "memory" in sentence and "lower" in sentence and "trainer.batch_tokens" in sentence
    assert place != "step" or "memory of cpu ran out at trainer.batch_tokens=64; lower" in sentence
    assert sentence.isprintable() and "Traceback" not in sentence


def test_a_script_has_no_traceback_without_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that trains, and one that uses a run."""
    run = trained(tmp_path, *TINY)
    for name in ("run.config", "train.load"):
        module = f"wawa_transformer.{name}"
        monkeypatch.setattr(f"{module}.Transformer", lambda _: torch.empty(2**50))
    monkeypatch.setattr(sys, "argv", ["train.py", *TINY, f"output_dir={tmp_path}/other"])
    use = functools.partial(call_script, translate.main, f"run={run.directory}")
    for script in (use, train_script.main):
        with pytest.raises(SystemExit, match="^error: .* memory(?!.*delete)"):
            script()


def test_other_errors_are_no_lack_of_memory() -> None:
    for error in (RuntimeError("shapes"), OSError(errno.ENOENT, "no file"), ValueError("memory")):
        assert not failure.is_out_of_memory(error)


def test_a_library_that_is_not_installed_is_asked_for_by_its_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    for name, extra in failure.EXTRAS.items():
        assert any(each.startswith(name) for each in project["optional-dependencies"][extra]), name
        said = failure.sentence_of(ModuleNotFoundError(name=name))
        assert said == f"{name} is not installed; give: pip install 'wawa_transformer[{extra}]'."


# ----------------------------------------------------------------------------------- YAML files


@pytest.fixture
def study(tmp_path: Path) -> Callable[[str], str]:
    """Write ``study/mine.yaml`` and get the sentence that refuses it, or an empty one."""
    path = tmp_path / "study" / "mine.yaml"
    path.parent.mkdir()

    def write(content: str | bytes) -> str:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        try:
            check_files("config", {"study": ["mine"]}, [CONFIG_DIR, tmp_path])
        except UserError as error:
            return str(error).removeprefix(str(path))
        return ""

    return write


HEAD = "# @package _global_\nstudy:\n"


@pytest.mark.parametrize(
    ("word", "read"),
    [
        ("010", "8"), ("-017", "-15"), ("0_10", "8"), ("0o17", "no number"), ("1:30", "90"),
        ("190:20:30", "685230"), ("1:30.5", "90.5"), ("no", "False"), ("On", "True"),
        ("YES", "True"), ("off", "False"),
    ],
)  # fmt: skip
def test_a_word_that_yaml_reads_otherwise_is_refused_with_its_line(
    word: str, read: str, study: Callable[[str], str]
) -> None:
    """As an item, a value, and a key, on lines of their own."""
    lines = ["  seeds:\n    - 0\n    - {}", "  pe: [none, {}]", "  name: {}", "  tune: {{{}: 1}}"]
    for line in lines:
        content = f"{HEAD}\n{line.format(word)}"
        said = study(content)
        assert said.startswith(f", line {len(content.splitlines())}: {word} "), said
        assert read in said


@pytest.mark.parametrize(
    "word",
    ["10", "0", "00", "-7", "07", "1_000", "0x10", "1e3", "0.10", "true", "False", "null", "'010'"]
    + ['"no"', "en", "north", "2001-01-01", "a:b"],
)
def test_a_word_that_is_read_as_written_is_none_of_these(
    word: str, study: Callable[[str], str]
) -> None:
    more = "  tune: null\n  pairs: ${study.pe}\n"  # which are left to OmegaConf
    assert study(f"{HEAD}  seeds: [{word}]\n  pe: [{word}]\n{more}") == ""


@pytest.mark.parametrize("word", ["2026_11", "1.50", "007", "1e3", "0x10", "true", "+7"])
def test_a_text_that_would_be_another_one_is_refused_with_its_line(
    word: str, study: Callable[[str], str]
) -> None:
    """A folder's name, for one; 10 is the same text."""
    said = study(f"{HEAD}  question: 10\n  name: {word}\n")
    assert said.startswith(f", line 4: study.name is a text, and {word} reads as "), said
    assert study(f"{HEAD}  question: '{word}'\n  name: a.{word}\n") == ""


@pytest.mark.parametrize("key", ["study.question", "task.hub", "pe.name", "output_dir"])
def test_an_empty_text_is_refused_as_on_the_command_line(
    key: str, study: Callable[[str], str]
) -> None:
    """An empty value is null, which some keys allow."""
    group, _, name = key.rpartition(".")
    line = f"{group}:\n  {name}: " if group else f"{name}: "
    said = study(f"# @package _global_\n{line}''\n")
    assert said.endswith(f": {key} is empty; give a value, or leave the key out."), said
    assert study(f"# @package _global_\n{line}\n") == ""


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (HEAD + "  pe: [none\n  task: [copy]\n", ", line 4: expected ',' or ']'"),
        (HEAD + "  pe: [none]\n\ttask: [copy]\n", ", line 4: found character '\\t'"),
        (HEAD + "  name: a\n  name: b\n", ", line 3: name is there twice"),
        (HEAD + "  question: a: b\n", ", line 3: mapping values are not allowed here"),
        (HEAD + "  sedes: [0]\n", ", line 3: the key study.sedes does not exist (did you mean stu"),
        (HEAD + "  pe: {none: 1}\n", ", line 3: study.pe takes a list, [a, b]"),
        (HEAD + "  tune: [0.1]\n", ", line 3: study.tune takes keys with values, {a: b}"),
        (HEAD + "  tune: 3\n", ", line 3: study.tune takes keys with values, {a: b}"),
        (HEAD + "  name: [a]\n", ", line 3: study.name takes no list"),
        (HEAD + "  pairs: [alibi]\n", ", line 3: study.pairs[0] takes a list, [a, b]"),
        (
            HEAD + "  rule:\n    supported:\n      - better\n",
            ", line 5: study.rule.supported[0] takes keys with values, {a: b}",
        ),
        ("trainer:\n  lr: 1\n", ", line 1: the key study.trainer does not exist; begin the file w"),
        ("# @package _global_\ndefaults: size\n", ", line 2: defaults takes a list, [a, b]"),
        ("# @package _global_\ndefaults: {a: b}\n", ", line 2: defaults takes a list, [a, b]"),
        ("study:\n  pe: [none]\n", ", line 1: the key study.study does not exist; begin the file"),
        ("\ufeff" + HEAD + "  pe: [none]\n", "# @package _global_, and with nothing before it."),
        ("# @package _global_\ntrainer:\n  lrr: 1\n", "line 3: the key trainer.lrr does not exist"),
        ("- 1\n", ", line 1: a file of configs/ holds keys and values"),
        (HEAD + "  ? [a]\n  : b\n", ", line 3: a key is one word"),
        (b"# one\nstudy: \xff\n", ", line 2: the file is not UTF-8"),
        (HEAD + "  name: a\x07\n", ", line 3: unacceptable character"),
        (HEAD + "  name: " + "[" * 5000 + "\n", "is nested too deeply"),
        (HEAD + "  name: &a [*a]\n", "is nested too deeply"),
    ],
)
def test_a_mistake_in_a_study_names_its_line(
    content: str | bytes, said: str, study: Callable[[str | bytes], str]
) -> None:
    assert said in study(content)


def test_a_file_that_another_one_is_based_on_is_read_too(tmp_path: Path) -> None:
    """``defaults`` of a file, and what a command line puts in their place."""
    folder = shutil.copytree(CONFIG_DIR, tmp_path / "configs")
    (folder / "model" / "mine.yaml").write_text("d_model: 016\n")
    (folder / "study" / "based.yaml").write_text("defaults: [override /model: mine]\n")
    with pytest.raises(UserError, match="mine.yaml, line 1: 016 reads as 14"):
        check_files("config", {"study": ["based"]}, [folder])
    check_files("config", {"study": ["based"], "model": ["tiny"]}, [folder])
    (folder / "pe" / "base.yaml").write_text("kind: none\nname: no\n")
    (folder / "pe" / "mine.yaml").write_text("defaults: [base, _self_]\nname: mine\n")
    (folder / "pe" / "deep").mkdir()
    (folder / "pe" / "deep" / "mine.yaml").write_text(
        "# @package pe\ndefaults: ['/pe/base@_here_']\n"
    )
    for name in ("mine", "deep/mine"):
        with pytest.raises(UserError, match="base.yaml, line 2: no reads as False"):
            check_files("config", {"pe": ["none", name]}, [folder])


@pytest.mark.parametrize(
    ("group", "copied"), [("pe", "shaw"), ("task", "copy"), ("decode", "beam")]
)
def test_a_copied_file_has_a_name_of_its_own(group: str, copied: str, tmp_path: Path) -> None:
    """With the name of the file that was copied, a report would call it by the other's name."""
    folder = shutil.copytree(CONFIG_DIR, tmp_path / "configs") / group
    script, chosen = "translate" if group == "decode" else "config", {group: ["mine"]}
    shutil.copy(folder / f"{copied}.yaml", folder / "mine.yaml")
    said = f"mine.yaml, line .: {group}.name is {copied}, .* name of its own, such as mine"
    with pytest.raises(UserError, match=said):
        check_files(script, chosen, [folder.parent])
    check_files(script, chosen, [folder.parent], [f"{group}.name"])
    if group == "pe":
        (folder.parent / "study" / "own.yaml").write_text("# @package _global_\npe:\n  name: own\n")
        check_files(script, chosen | {"study": ["own"]}, [folder.parent])
    (folder / f"{copied}.yaml").unlink()  # renamed, and not copied
    check_files(script, chosen, [folder.parent])


def test_a_mistake_in_a_file_is_answered_alike_by_train_and_compare(tmp_path: Path) -> None:
    """Of YAML, of a type, of a tag: with file and line, in one sentence."""
    path = tmp_path / "study" / "mine.yaml"
    path.parent.mkdir()
    for content, line, said in (
        (HEAD + "  seeds: [010]\n", 3, "010 reads as 8"),
        (HEAD + "  name: mine\n  seeds: [0, x]\n", 4, "study.seeds[1]: Value 'x' of type"),
        (HEAD + "  seeds: !!python/tuple [0]\n", 3, "could not determine a constructor"),
    ):
        path.write_text(content)
        for script in ("train.py", "compare.py"):
            done = run_script(script, f"--config-dir={tmp_path}", "study=mine")
            assert done.stderr.startswith(f"error: {path}, line {line}: {said}"), done.stderr
            assert done.returncode == 1 and len(done.stderr.splitlines()) == 1


# -------------------------------------------------------------------------------- command lines


def test_ctrl_c_stays_itself_if_clean_up_fails(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended, exit_on_error():
        try:
            raise KeyboardInterrupt
        finally:
            raise OSError("from a library")
    assert ended.value.code == STATUS
    assert capsys.readouterr().err == "interrupted; the same command continues\n"


def test_the_last_of_several_values_counts_with_or_without_a_plus() -> None:
    """For keys, groups and keys of dictionaries, and for the lists of a study."""
    config = configure("seed=1", "+seed=2", "pe=none", "+pe=rotary", "model.d_model=8")
    assert (config.seed, config.pe.kind, config.model.d_model) == (2, "rotary", 8)
    config = configure("++seed=3", "seed=010", "++model.d_model=8", "+model.d_model=16")
    assert (config.seed, config.model.d_model) == (10, 16)
    measures = "study.rule.measures"
    config = configure(f"+{measures}.nll=1", f"{measures}.exact_match=2", f"++{measures}.nll=3")
    assert dict(config.study.rule.measures) == {"exact_match": 2, "nll": 3}
    config = compose([f"+{measures}.nll=1", f"+{measures}={{nll:2}}", f"+{measures}.nll=3"])
    assert config.study.rule.measures.nll == 3
    config = compose([f"~{measures}.exact_match", f"+{measures}.nll=1"])
    assert dict(config.study.rule.measures) == {"nll": 1}
    assert "does not exist" in answer("+sed=1") and "does not exist" in answer("++model.d=1")
    assert "chooses nothing" in answer("+pe=null")


@pytest.mark.parametrize(
    "given",
    [
        "study=dropout study.rule.claim=x", "study=dropout +study.rule={claim:x}",
        "study=dropout study.rule={} study.rule.measures={nll:1}",
        "study.rule=null +study.rule.measures.nll=1", "study.rule=null study.rule.supported=[]",
    ],
)  # fmt: skip
def test_a_key_inside_a_group_that_is_null_is_answered_in_one_sentence(given: str) -> None:
    """OmegaConf has an error of Python's own for each."""
    said = "study.rule is null here, and has no key that the command line could change; "
    assert answer(*given.split()).startswith(said)


@pytest.mark.parametrize("given", ["={measures:{nll:0.1}}", ".measures={nll:0.1}"])
def test_a_dictionary_may_bring_a_measure_and_no_unknown_key(given: str) -> None:
    measures = compose([f"study.rule{given}"]).study.rule.measures
    assert measures == {"exact_match": 0.01, "nll": 0.1}
    assert "study.rule.clam does not exist (did you mean" in answer("study.rule={clam:x}")
    assert "study.tune.lrr does not exist" in answer("study.tune={lrr:[0.1]}")


def test_a_study_obeys_a_plus_and_the_last_of_several_values() -> None:
    given = ["++seed=7", "pe=rotary", "++pe=none", "+task=letters", "model.d_model=8"]
    overrides = in_lists(check_command([*TINY, *given], "config")[0])
    [(run, job)] = list_jobs(compose(overrides), overrides).items()
    assert (run.task, run.pe, run.seed, job.model.d_model) == ("letters", "none", 7, 8)


# ------------------------------------------------------------------------------ what is printed


def test_no_control_character_reaches_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a folder's name, and what is warned of, as a word to translate."""
    warn("a\x1b[2Jb\nc")
    tell("d\x07\u202e")
    out, err = capsys.readouterr()
    assert (out, err) == ("d\\x07\\u202e\n", "a\\x1b[2Jb\\nc\n")
    folder = tmp_path / "e\x1b[31mf"
    for _ in range(2):
        trained(folder, *TINY, "trainer.steps=2")
    said = capsys.readouterr().out
    assert "already finished: " in said and "\x1b" not in said


def test_every_warning_goes_through_the_one_place() -> None:
    """Nothing else of the package writes to standard error."""
    for path in [*(ROOT / "wawa_transformer").rglob("*.py"), *SCRIPTS.glob("*.py")]:
        if path.name not in ("limits.py", "script.py"):
            assert not re.search(r"print\([^)]*stderr", path.read_text(encoding="utf-8")), path


# ------------------------------------------------------------------------------ whose mistake


def test_a_mistake_in_a_users_class_is_said_to_be_its_own(tiny, registry: None) -> None:
    """Raised by the class, by torch below it, or by a function of ours that it calls."""

    class Raises(Encoding, kind="raises"):
        def embed(self, x, positions):
            raise KeyError("a bug")

    class Shapes(Encoding, kind="shapes"):
        def embed(self, x, positions):
            return x @ x

    class Calls(Encoding, kind="calls"):
        def embed(self, x, positions):
            return super().embed()

    for kind in ("raises", "shapes", "calls"):
        assert kind in ENCODINGS
        config = tiny("pe=none", f"pe.kind={kind}", "trainer.check=true")
        train_and_record_failure(config)
        said = Run.from_config(config).error_file.read_text()
        assert "Traceback" in said and re.search(rf"a mistake in {__file__}, line \d+, which", said)


def test_a_mistake_in_a_users_task_is_said_to_be_its_own(
    tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also a file that the task does not find, and an error on its way through datasets.

    A full disk is nobody's mistake.
    """
    full = OSError(errno.ENOSPC, "full", "a\x1b[31m")
    for error in (FileNotFoundError("words.txt"), ZeroDivisionError(), full):

        def target(self: Letters, symbols: list[int], error: Exception = error) -> list[str]:
            raise error

        monkeypatch.setattr(Letters, "target", target)
        config = tiny("task=letters", "task.symbols=11")  # no data that are loaded already
        train_and_record_failure(config)
        said = Run.from_config(config).error_file.read_text()
        mine = "Traceback" in said and f"a mistake in {__file__}, line " in said
        assert mine == (error is not full) and "\x1b" not in said, said


def test_a_file_that_was_added_or_changed_is_not_ours(tmp_path: Path) -> None:
    """By git in a checkout; an unchanged file is ours."""
    copy = tmp_path / "copy"
    copy_code(copy, "wawa_transformer", "configs")
    path = copy / "wawa_transformer" / "positional" / "mine.py"
    path.write_text(
        "from wawa_transformer.positional.base import Encoding\n\n\n"
        "class Mine(Encoding, kind='mine'):\n"
        "    def embed(self, x, positions):\n"
        "        return x / positions.nothing\n"
    )
    (copy / "configs" / "pe" / "mine.yaml").write_text("kind: mine\nname: mine\n")
    git = ["git", "-C", str(copy), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "wawa_transformer/train", "wawa_transformer/model"], check=True)
    done = run_script("train.py", *TINY, "pe=mine", folder=tmp_path, PYTHONPATH=str(copy))
    assert f"no attribute 'nothing'\n{failure.MISTAKE} {path}, line 6, which is not" in done.stderr
    assert done.returncode == 1


def test_an_edit_that_another_file_trips_over_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The traceback ends in a file as it was published, and the edit is in another one."""
    edited = " M wawa_transformer/model/loss.py\n"
    monkeypatch.setattr(failure, "git_status", lambda path: edited if path.is_dir() else "")
    monkeypatch.setattr(failure, "LOADED", {"mine": (0.0, None)})  # as by import=mine
    said = failure.whose(ValueError("too many values to unpack"))
    assert "perhaps in what was changed here (import=mine, wawa_transformer/model/loss.py)" in said
    assert said.startswith(failure.MISTAKE)
    with pytest.raises(ZeroDivisionError) as caught:  # by a module of import= that is installed
        exec(compile("1 / 0", os.__file__, "exec"), {"__name__": "mine.part"})
    said = failure.whose(caught.value.with_traceback(caught.tb.tb_next))
    assert f"{failure.MISTAKE} {os.__file__}, line 1, which is not part" in said


def test_a_mistake_in_what_a_fork_has_committed_is_found_by_its_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Git calls such a file unchanged, so that nothing tells it from the published one."""
    monkeypatch.setattr(failure, "git_status", lambda path: "")
    monkeypatch.setattr(failure, "LOADED", {})  # by other tests
    with pytest.raises(TypeError) as caught:  # by torch, below this line
        FeedForward(TransformerConfig(9, 9, 8, 1, 2, 16)).forward(None)  # type: ignore[arg-type]
    said = failure.whose(caught.value.with_traceback(caught.tb.tb_next))
    code = FeedForward.forward.__code__
    place = f"{code.co_filename}, line {code.co_firstlineno + 1}"
    assert said.startswith(f"{failure.MISTAKE} wawa_transformer, not in the command: it shows in")
    assert f" in {place}; mend it if this copy of the code is your own, and otherwise" in said


@pytest.mark.parametrize(
    ("status", "file", "named"),
    [
        (" M", "base.py", True), (" M", "placement.py", False), ("??", "placement.py", True),
        ("A ", "placement.py", True), ("??", "rotary.py", False),
    ],
)  # fmt: skip
def test_a_changed_file_is_named_for_what_it_raises_and_an_added_one_for_what_it_calls_too(
    status: str, file: str, named: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``placement.py`` calls ``base.py``, which raises."""
    monkeypatch.setattr(failure, "origin_of_ours", failure.origin_of_ours.__wrapped__)  # no cache
    monkeypatch.setattr(failure, "git_status", lambda path: status * (path.name == file))
    with pytest.raises(AttributeError) as caught:
        build_encoding("none", None, {})  # type: ignore[arg-type]
    place = failure.foreign_place(caught.value.with_traceback(caught.tb.tb_next))
    assert (f"{file}, line " in (place or "")) == named


def test_without_git_nothing_was_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """In a bare copy, and on a machine that has no git."""
    for path in (os.environ["PATH"], ""):
        monkeypatch.setenv("PATH", path)
        assert failure.git_status(tmp_path) == "" == capfd.readouterr().err


def test_a_mistake_of_ours_asks_for_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through Hydra and back: the error itself, and that it is none of the user's."""
    monkeypatch.setattr(failure, "git_status", lambda path: "")
    monkeypatch.setattr(failure, "LOADED", {})  # by other tests
    monkeypatch.setattr(
        "wawa_transformer.run.run_dir.Run.from_config", None
    )  # which train.py calls
    monkeypatch.setattr(sys, "argv", ["train.py", *TINY, f"output_dir={tmp_path}"])
    with pytest.raises(TypeError) as caught:
        runpy.run_path(str(SCRIPTS / "train.py"), run_name="__main__")
    [note] = caught.value.__notes__
    assert re.fullmatch(rf"{failure.MISTAKE} wawa.*\.py, line \d+; .* report it .*", note)


@pytest.mark.parametrize(
    ("script", "given", "wanted"),
    [
        ("config", ["--pe", "learned"], "--pe learned is no option here; write pe=learned."),
        ("config", ["-seed=3"], "-seed=3 is no option here; write seed=3."),
        ("config", ["--model.d-ff", "8"], "--model.d-ff 8 is no option here; write model.d_ff=8."),
        ("config", ["--study"], "--study is no option here; write study=…."),
        ("evaluate", ["run=x", "--decode=beam"], "--decode=beam is no option here; write decode="),
        ("evaluate", ["--run=x"], "--run=x is no option here; write run=x."),
    ],
)
def test_a_key_with_dashes_is_told_how_it_is_written(
    script: str, given: list[str], wanted: str
) -> None:
    """Options of other programs begin with dashes, and keys here do not."""
    with pytest.raises(UserError) as refused:
        refuse_dashes(given, script)
    assert str(refused.value).startswith(wanted)


@pytest.mark.parametrize(
    ("script", "given", "wanted"),
    [
        ("config", "pe:learned", "as in pe=learned; --help"),
        ("config", "help", "--help lists every key."),
        ("evaluate", "results/single", "as in run=results/…; --help"),
        ("translate", "A man rides", "run=results/…; lines to translate come from standard input;"),
    ],
)
def test_an_argument_without_a_key_is_told_how_it_is_written(
    script: str, given: str, wanted: str
) -> None:
    """Hydra's own sentence is about values in quotes, which are not the mistake."""
    said = explain(OverrideParseException(given, ""), script, {})
    assert said.startswith(f"{given} is no key=value; ") and wanted in said
