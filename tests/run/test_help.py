"""``--help`` is printed from the schema and from the files in ``configs/``."""

import argparse
import re
import runpy
import shutil
from pathlib import Path
from typing import Any

import pytest
from hydra._internal.utils import get_args_parser
from support import SCRIPTS, run_script

from wawa_transformer.common import CONFIG_DIR
from wawa_transformer.common.limits import LIMITS
from wawa_transformer.run import help
from wawa_transformer.run.cli import lazy_help
from wawa_transformer.run.help import help_text
from wawa_transformer.run.overrides import SCHEMAS, TRAINED, fields
from wawa_transformer.run.schema import PeConfig


@pytest.mark.parametrize("name", ["config", *TRAINED])
def test_every_key_of_a_schema_has_one_line_with_its_limits(name: str) -> None:
    """Also those that every encoding has; a key is declared in its dataclass alone."""
    lines = help_text(name).splitlines()
    every = [*fields(SCHEMAS[name]), *(fields(PeConfig, "pe.") if name == "config" else ())]
    for key, each in every:
        if key in ("pe", "task", "decode", "import_digest", "init_digest"):
            continue  # of a class that its kind names; computed
        begin = f"{key.replace('imports', 'import')}: "
        [said] = [line.removeprefix(begin) for line in lines if line.startswith(begin)]
        assert len(said) > 10 and said.startswith(each.metadata["help"])
        for limit, value in each.metadata.get("limits", {}).items():
            assert f"{LIMITS[limit][0]} {value}" in said
        assert all(choice in said for choice in each.metadata.get("choices", ()))
    text = (CONFIG_DIR / "config.yaml").read_text(encoding="utf-8")
    assert not re.search("d_model|max_shift|batch_tokens|tie_sides", text)


def test_each_encoding_has_a_line_in_the_help_that_is_printed(tmp_path: Path) -> None:
    """The first comment of its file, without the command; also with a folder of one's own."""
    done = run_script("train.py", "--help")
    assert done.returncode == 0, done.stderr
    for path in sorted((CONFIG_DIR / "pe").glob("*.yaml")):
        [line] = [line for line in done.stdout.splitlines() if line.split()[:1] == [path.stem]]
        said = line.removeprefix(path.stem).strip()
        assert said and "python" not in said
        assert f"# {said}" in path.read_text(encoding="utf-8")
    assert "dropout: 0.0" in done.stdout  # everything as it would be used
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "mine.yaml").write_text("d_model: 24\n")
    done = run_script("train.py", "-h", f"--config-dir={tmp_path}", "model=mine", "pe=t5")
    assert "== Keys ==" in done.stdout and "d_model: 24" in done.stdout, done.stderr
    assert "num_buckets: 16" in done.stdout.split("Everything as it would be used")[1]


def test_without_the_laboratory_the_help_knows_no_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = help_text("config")
    assert "study.seeds" in whole and "workers: " in whole
    assert "@package" not in whole and "python scripts/" not in whole
    assert "pe.kind, task.kind: " in whole and "pe.kind" not in help_text("translate")
    assert "decode.size=5" in help_text("translate") and "decode.size=5" not in whole
    monkeypatch.setattr(help, "CONFIG_DIR", tmp_path / "configs")
    shutil.copytree(CONFIG_DIR, tmp_path / "configs")
    alone = help_text("config")
    assert "study" not in alone and "workers: " not in alone and "report: " not in alone
    assert "trainer.steps: " in alone and "rotary " in alone


def test_a_script_starts_where_argparse_checks_the_help(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As Python 3.14 checks each when an option is added, where Hydra's own parser fails.

    Help, a mistake and a check of argparse's are as always.
    """
    add = argparse.ArgumentParser.add_argument

    def check(self: argparse.ArgumentParser, action: argparse.Action) -> None:
        if action.help and "%" in action.help:
            self._get_formatter()._expand_help(action)

    def add_argument(self: argparse.ArgumentParser, *names: str, **given: Any) -> argparse.Action:
        action = add(self, *names, **given)
        self._check_help(action)  # type: ignore[attr-defined]
        return action

    monkeypatch.setattr(argparse.ArgumentParser, "_check_help", check, raising=False)
    monkeypatch.setattr(argparse.ArgumentParser, "add_argument", add_argument)
    with pytest.raises(TypeError, match="LazyCompletionHelp"):
        get_args_parser()
    for arguments, said in ((["--help"], "trainer.steps: "), (["seed=x"], "seed: Value 'x'")):
        monkeypatch.setattr("sys.argv", ["train.py", *arguments])
        sentence = ""
        try:
            runpy.run_path(str(SCRIPTS / "train.py"), run_name="__main__")
        except SystemExit as ended:
            sentence = str(ended.code)
        assert said in capsys.readouterr().out + sentence
        assert argparse.ArgumentParser._check_help is check  # type: ignore[attr-defined]
    with lazy_help(), pytest.raises(ValueError, match="incomplete format"):
        argparse.ArgumentParser().add_argument("--x", help="100 %")


def test_a_shell_completes_keys_and_choices() -> None:
    """As docs/training.md says: the line that installs completion, and what it then asks."""
    line = "python scripts/train.py"
    [install] = [each for each in (SCRIPTS.parent / "docs" / "training.md").read_text("utf-8")
                 .split("`") if "install=bash" in each]  # fmt: skip
    assert install == f'eval "$({line} -sc install=bash)"'
    assert "COMP_LINE" in run_script("train.py", "-sc", "install=bash").stdout
    for typed, offered in (("pe=sh", "pe=shaw pe=shaw_cross"), ("trainer.st", "trainer.steps=")):
        given = {"COMP_LINE": f"{line} {typed}", "COMP_POINT": "99", "COMP_TYPE": "9"}
        done = run_script("train.py", "--shell-completion", "query=bash", **given)
        assert done.stdout.strip() == offered
