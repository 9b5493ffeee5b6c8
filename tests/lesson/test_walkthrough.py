"""The printed lesson: its numbers are those of the walk-through that the project grew from."""

import re
from pathlib import Path

import pytest
import torch
from rich.cells import cell_len
from support import run_script

from wawa_transformer.lesson.walkthrough import WIDTH, spoken, walk

NUMBER = r"(?<![\w.])-?\d+(?:\.\d*)?(?:e[+-]\d+)?"
ORIGINAL = Path(__file__).parent / "data" / "walkthrough_numbers.txt"


@pytest.mark.parametrize("lang", ["zh", "en"])
def test_every_number_of_the_original_appears_in_its_order(
    lang: str, capsys: pytest.CaptureFixture
) -> None:
    """As printed there, to the last digit: tables, angles, random embeddings, what was dropped.

    The file holds each number where the original prints it for the first time. The lesson prints
    them for the first time in the same order, but for 10000.0: the original quotes the whole
    formula above step 2, the lesson has it in step 2.2.
    """
    walk(lang, all_digits=True)
    out = capsys.readouterr().out
    assert ("Step 4:" in out) == (lang == "en") and ("步骤 4：" in out) == (lang == "zh")
    assert max(cell_len(line) for line in re.findall(r"^  \S.*", out, re.M)) <= WIDTH
    printed = re.findall(NUMBER, out)
    original = ORIGINAL.read_text(encoding="utf-8").split()
    assert len(original) == len(set(original)) > 400
    first = [number for number in dict.fromkeys(printed) if number in set(original)]
    assert sorted(first) == sorted(original)
    for numbers in (first, original):
        numbers.remove("10000.0")
    assert first == original


@pytest.mark.parametrize(
    ("shell", "lang"),
    [
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": "C"}, "en"),
        ({"LANG": "en_US.UTF-8", "LC_MESSAGES": "zh_CN.UTF-8"}, "zh"),
        ({}, "en"),
    ],
)
def test_the_language_is_that_of_the_shell(
    shell: dict[str, str], lang: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless one is asked for."""
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in shell.items():
        monkeypatch.setenv(name, value)
    assert spoken("auto") == lang
    assert spoken("zh") == "zh" and spoken("en") == "en"


@pytest.mark.parametrize(("d_model", "max_len"), [(1, 1), (7, 3), (2, 40)])
def test_other_sizes(d_model: int, max_len: int, capsys: pytest.CaptureFixture) -> None:
    """Odd widths and single positions work; the class agrees with the steps."""
    walk("en", d_model, max_len)
    out = capsys.readouterr().out
    assert f"torch.arange({max_len})" in out
    assert f"({max_len}, 1) × ({(d_model + 1) // 2},)" in out
    assert "angular frequency 1.0000, " in out and not re.search(r"\d\.\d{5}", out)
    assert out.count("    True\n") == 2  # evaluation drops nothing; batch first agrees
    assert str(torch.tensor(1e-9)) == "tensor(1.0000e-09)", "torch prints as before"


def test_the_script_and_its_options() -> None:
    """One step alone; mistakes in one sentence."""
    four = run_script("walkthrough.py", "lang=en", "step=4")
    assert four.returncode == 0 and "Step 4:" in four.stdout and "Step 3:" not in four.stdout
    for argument, sentence in (
        ("d_model=0", "d_model=0 must be at least 1"),
        ("dropout=1", "dropout=1.0 must be at least 0 and less than 1"),
        ("step=8", "step=8 must be at least 1 and at most 7"),
        ("pe=shaw", "the key pe does not exist; --help lists every key"),
    ):
        done = run_script("walkthrough.py", argument)
        assert done.returncode == 1 and sentence in done.stderr
