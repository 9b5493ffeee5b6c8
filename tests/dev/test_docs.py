"""The documentation does what it says."""

import json
import re
import shutil
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from subprocess import PIPE
from typing import Any

import evidence
import lab_sheet
import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from chromium import Browser
from support import SCRIPTS, TINY, UNDRAWN, configure, copy_code, run_script

from wawa_transformer import PositionalEncoding
from wawa_transformer.__main__ import overview
from wawa_transformer.common import EOS
from wawa_transformer.common.messages import UserError
from wawa_transformer.decode.greedy import greedy
from wawa_transformer.lab import report
from wawa_transformer.lab.pages import Text, tr
from wawa_transformer.model import promises
from wawa_transformer.train.trainer import train

ROOT = SCRIPTS.parent


def blocks(page: str, language: str) -> list[str]:
    """The fenced code of one language on a page of ``docs/``."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.M | re.S)


# What is piped into a script of ours, its name, and its arguments.
OURS = re.compile(r"(?:(.+) \| )?python scripts/(\w+\.py)(.*?)(?: \| cat.*)?")
COMPARE, NOTEBOOK = "python scripts/compare.py", "output_dir=results/notebook"
SMALL = ["study.task=[letters]", "study.seeds=[0]", "study.pe=[none,sinusoidal]", "workers=1"]
SHORT = [*TINY, "trainer.steps=10", "trainer.eval_every=10"]


def small(name: str, given: list[str]) -> list[str]:
    """A script's command with small runs: a study has one task, one seed and two encodings.

    A text has five steps, and translations of nine tokens. Pictures are drawn in test_compare.py.
    """
    if "task=text" in given:
        short = ["trainer.steps=5", "trainer.eval_every=5", "model.d_model=16"]
        return [name, *given, "progress=false", "pictures=false", *short]
    if name == "train.py":
        more = ["trainer.check=true"] * ("pe=learned_slopes" in given)
        return [name, *given, *SHORT, *more, *["study.name=default"] * (NOTEBOOK in given)]
    if name == "compare.py":
        cycle = ["study.seeds=[0,1]", "study.pe=[none,learned_slopes]"]  # those of its rule
        fewer = cycle if "study=cycle" in given else SMALL
        return [UNDRAWN, name, *given, *fewer, *SHORT]
    return [name, *given, "decode.max_length=9"]


def commands(page: str) -> list[str]:
    """What a reader types: the lines of all shell blocks, without comments, and what is inline."""
    lines = "".join(blocks(page, "bash")).replace("\\\n", " ").splitlines()
    inline = re.findall(r"`((?:python|eval) [^`]+)`", (ROOT / page).read_text(encoding="utf-8"))
    lines += [line for line in inline if line not in lines]
    return [" ".join(line.split(" #")[0].split()) for line in lines if "activate" not in line]


def shell_in(folder: Path, **environment: str) -> Callable[[str], str]:
    """``shell_in(folder)(script)``: what it prints, line by line, on small data.

    A script of ours runs in a fork, and the shell does the rest.
    """
    for name in ("data", "scripts"):
        if not (folder / name).exists():
            (folder / name).symlink_to(ROOT / name)
    names = [""]  # the lines that gave names to values

    def bash(line: str) -> str:
        command = ["bash", "-euc", f"{names[0]}{line}"]
        return subprocess.run(command, cwd=folder, stdout=PIPE, text=True, check=True).stdout

    def run_all(script: str) -> str:
        said = ""
        for line in script.replace("\\\n", " ").replace("make compare", COMPARE).splitlines():
            command = OURS.fullmatch(line)
            if not command:
                names[0] += f"{line}\n" * bool(re.match(r"\w+=", line))
                said += bash(line)
                continue
            given, name, words = command.groups()
            typed = bash(f'for word in {words}; do echo "$word"; done').splitlines()
            how: Any = dict(folder=folder, **environment)
            done = run_script(*small(name, typed), stdin=bash(given) if given else "", **how)
            assert done.returncode == 0, done.stderr[-3000:]
            said += done.stdout
        return said

    return run_all


def test_the_tutorial_does_what_it_says(tmp_path: Path) -> None:
    """An encoding, a task, a metric and a study are added to a copy; the report shows them."""
    page = "docs/tutorial.md"
    copy_code(tmp_path, "wawa_transformer", "configs", "scripts", "data")
    encoding, task, metric = blocks(page, "python")
    text = (ROOT / page).read_text(encoding="utf-8")
    [(limits, where)] = re.findall(r"`(check_number\(.+?\))` \(from `(.+?)`\)", text)
    encoding = f"from {where} import check_number\n{encoding}"
    first = "super().__init__(context)\n"
    encoding = encoding.replace(first, f"{first}        {limits}\n")
    package = tmp_path / "wawa_transformer"
    (package / "positional" / "learned_slopes.py").write_text(encoding, encoding="utf-8")
    with (package / "data" / "tasks.py").open("a", encoding="utf-8") as module:
        module.write(f"\n\n{task}")
    [metric] = re.findall(r"^    Metric.*?(?=^\))", metric, flags=re.M | re.S)
    path = package / "train" / "evaluation.py"
    before, after = path.read_text(encoding="utf-8").split(")\n\n\ndef shown", 1)
    path.write_text(f"{before}{metric})\n\n\ndef shown{after}", encoding="utf-8")
    files = re.findall(r"`(configs/\S+\.yaml)`[^`]*```yaml\n(.*?)^```$", text, flags=re.M | re.S)
    assert len(files) == len(blocks(page, "yaml")) == 3
    for name, content in files:
        (tmp_path / name).write_text(content, encoding="utf-8")
    shell_in(tmp_path, PYTHONPATH=str(tmp_path))("".join(blocks(page, "bash")))
    study = tmp_path / "results" / "cycle"
    report = (study / "report.md").read_text(encoding="utf-8")
    assert re.search(r"^\| learned_slopes \| 2 \|", report, flags=re.M)
    assert "can reach at most" in report  # the ceiling without positions
    parts = re.findall(r"^\d\. \*([A-Z][\w ]+)\*", text, flags=re.M)
    assert len(parts) == 3 and [each for each in parts if f"## {each}\n" not in report] == []
    assert re.search(r"^Claim: trained slopes carry pos", report, flags=re.M)
    assert re.search(r"^\*\*(Supported|Refuted|Unclear)", report, flags=re.M)
    assert "| NLL, nats per token | cross-entropy, bits per token |" in report
    for table in ("results.csv", "curves.csv"):
        rows = pd.read_csv(study / table)
        assert rows["bits"].to_numpy() == pytest.approx(rows["nll"].to_numpy() / np.log(2))
    wrong = ["train.py", "pe=learned_slopes", "pe.first_slop=1"]
    refused = run_script(*wrong, folder=tmp_path, PYTHONPATH=str(tmp_path))
    assert "did you mean pe.first_slope?" in refused.stderr


def test_every_command_of_the_readme_runs(tmp_path: Path) -> None:
    """In the order of the page, in one shell."""
    typed = commands("README.md")
    assert len(typed) == 8 and typed[0] == "make compare"
    assert commands("README.zh-CN.md") == typed
    shell_in(tmp_path)("\n".join(typed))
    assert (tmp_path / "results" / "length" / "report.html").exists()


def test_the_lines_of_python_train_and_generate(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """They print what they say: the source reversed, then the end; less training suffices."""
    block = blocks("docs/fork.md", "python")[0]
    assert "range(500)" in block and blocks("docs/fork.zh-CN.md", "python")[0] == block
    torch.manual_seed(0)
    less = block.replace("500", "100").replace("(128,", "(64,").replace("2e-3", "5e-3")
    exec(compile(less, "fork.md", "exec"), {})
    printed = [int(number) for number in re.findall(r"\d+", capsys.readouterr().out)]
    assert printed == [*range(10, 2, -1), 2]


def test_a_trained_run_answers_as_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On tokens that no byte-level vocabulary would keep apart, as ``translate`` does by itself."""
    lines = [f"{i} {i + 100}\t{i + 100} {i}" for i in range(80)]
    (tmp_path / "pairs.tsv").write_text("\n".join(lines))
    monkeypatch.chdir(tmp_path)
    small = ["task.source=pairs.tsv", "task.words=true", "trainer.steps=60", "trainer.device=cpu"]
    train(configure("task=text", "study.name=single", *small))
    [block] = blocks("docs/translation.md", "python")
    names: dict[str, Any] = {}
    exec(compile(block.replace("a lamp", "7 107"), "translation.md", "exec"), names)
    trained, weights = names["run"], names["weights"]
    source = torch.tensor([[*trained.tokenizer.encode("7 107").ids, EOS]])
    [ids] = greedy(trained.model, source, 14).tolist()
    assert trained.translate(["3 4", "7 107"])[1] == trained.tokenizer.decode(ids)
    assert names["source"] == ["7", "107", "[EOS]"]
    torch.testing.assert_close(weights.sum(-1), torch.ones(4, len(names["target"])))
    with pytest.raises(UserError, match="decode.sise does not exist .did you mean decode.size"):
        trained.translate(["7"], decode="beam", sise=3)


def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every cell in order; what Jupyter would show is collected instead."""
    shell = shell_in(tmp_path)
    shown: list[object] = []
    display = types.SimpleNamespace(display=shown.append, Image=str, Markdown=str)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    monkeypatch.chdir(tmp_path)
    notebook = json.loads((ROOT / "docs" / "five_minutes.ipynb").read_text(encoding="utf-8"))
    names: dict[str, object] = {"shell": lambda line: shown.append(shell(line))}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            source = "".join(cell["source"]).replace("{sys.executable}", "python")
            source = re.sub(r"^( *)!(.*)$", r"\1shell(rf'''\2''')", source, flags=re.M)
            exec(compile(source, "five_minutes.ipynb", "exec"), names)
    outputs = [each["output_type"] for c in notebook["cells"] for each in c.get("outputs", ())]
    assert outputs and "error" not in outputs, "what it shows to who does not run it"
    printed = "\n".join(map(str, shown))
    assert "exact match" in printed and "report: " in printed and "exact_match_by_length" in printed


@pytest.mark.parametrize("language", ["", ".zh-CN"])
@pytest.mark.parametrize("page", ["encoding", "model", "positions"])
def test_the_code_of_a_chapter_holds(page: str, language: str) -> None:
    """Its blocks assert what the text says; the table of the first is the project's own."""
    names: dict[str, torch.Tensor] = {}
    code = "".join(blocks(f"docs/{page}{language}.md", "python"))
    exec(compile(code, f"{page}.md", "exec"), names)
    if page == "encoding":
        table = PositionalEncoding(4, 3).pe[0]
        torch.testing.assert_close(names["table"], table, atol=1e-6, rtol=0)


def dog_bites_man(page: str) -> list[np.ndarray | float]:
    """The numbers of the running example on a page, in its order, in float64."""
    words = dog, bites, man = np.array([[-1.0, 1, 1, 0], [0, 2, 0, 0], [-1, 1, -1, 0]])
    angle = np.arange(8)[:, None] / [1, 100]
    pe = np.stack((np.sin(angle), np.cos(angle)), axis=-1).reshape(8, 4)
    x = words + pe[:3]

    def shares(scores: np.ndarray) -> np.ndarray:
        return np.exp(scores) / np.exp(scores).sum()

    plain, seen, later = (each @ each[1] / 2 for each in (words, x, words + pe[5:]))
    if page == "encoding":
        mirrored = (words[::-1] + pe[:3]) @ x[1] / 2
        parts = [np.array([a @ b for a in (bites, pe[1]) for b in (dog, pe[r])]) for r in (0, 2)]
        return [
            *(plain, np.exp(plain), np.exp(plain).sum(), shares(plain), shares(plain) @ words),
            *(pe[:3], x, plain[0], x[0] * x[1], seen[0], mirrored[2]),
            *(seen, shares(seen), mirrored[::-1], shares(mirrored)[::-1]),
            *np.transpose(parts), *(np.sum(parts, axis=1) / by for by in (1, 2)), parts[0][3],
        ]  # fmt: skip
    integer = words + np.arange(3)[:, None]
    integer = integer @ integer[1] / 2
    turns = [complex(-1, 1) * np.exp(1j * by) for by in (-1, 1)]  # a pair as a complex number
    left, right = (np.array([turn.real, turn.imag]) for turn in turns)
    rotary = np.array([left[1], plain[1], right[1]])
    biased = [plain + bias for bias in ([1, 0, -1], [-0.5, 0, -0.5], [0.7, 0, -0.2])]
    return [
        *(integer, shares(integer), shares(integer)[[2, 0]]),
        *(seen, shares(seen), shares(seen[:2]), 0.0, shares(x @ x[0] / 2)),
        *(n for pair in (left, right) for n in (pair, pair, pair[1])), plain[0], rotary[::2],
        *(plain, plain, seen, later), *np.repeat([biased[0], rotary, *biased[1:]], 2, axis=0),
    ]  # fmt: skip


@pytest.mark.parametrize("page", ["encoding", "positions"])
@pytest.mark.parametrize("language", ["", ".zh-CN"])
def test_every_number_of_dog_bites_man_is_right(page: str, language: str) -> None:
    """All numbers with two decimals, in the order of the page."""
    text = (ROOT / "docs" / f"{page}{language}.md").read_text(encoding="utf-8")
    text = re.sub(r"^```python.*?^```$", "", text, flags=re.M | re.S)
    printed = re.findall(r"(?:− ?)?\b\d+\.\d\d\b", text)
    expected = np.concatenate([np.ravel(numbers) for numbers in dog_bites_man(page)])
    assert [re.sub("− ?", "-", n) for n in printed] == [f"{n.round(2) + 0:.2f}" for n in expected]


@pytest.mark.parametrize("page", ["encoding", "positions", "lab_sheet"])
@pytest.mark.parametrize("language", ["", ".zh-CN"])
def test_a_formula_is_no_wider_than_a_phone(page: str, language: str) -> None:
    """41 columns at 390 px; what is cut off is often the result."""
    lines = "".join(blocks(f"docs/{page}{language}.md", "text")).splitlines()
    assert lines and [line for line in lines if len(line) > 41] == []


CHAPTERS = sorted(
    str(path.relative_to(ROOT / "docs").with_suffix(""))
    for path in ROOT.glob("docs/**/*.md")
    if "zh-CN" not in path.stem and path.parent.name != "answers"  # those threads are English
) + ["../README"]


def millions(thousands: str) -> str:
    """``200,000`` as 0.2; numbers below 10,000 stay, since Chinese writes them in digits."""
    number = int(thousands.replace(",", ""))
    return f"{number / 1e6:g}" if number >= 10_000 else thousands


@pytest.mark.parametrize("page", CHAPTERS)
def test_a_chapter_has_the_same_numbers_in_both_languages(page: str) -> None:
    """A number that was changed on one page alone is a wrong one."""
    numbers = []
    for name in (f"{page}.md", f"{page}.zh-CN.md"):
        text = (ROOT / "docs" / name).read_text(encoding="utf-8")
        text = re.sub(r"(\d{4}) 年 \d+ 月 (\d+) 日", r"\2 … \1", text)  # months have a name
        # Chinese counts in 10^4 and 10^8: 260 万 is 2.6 million, 20 万 is 200,000.
        text = re.sub(r"\d[\d,]+,000\b", lambda each: millions(each[0]), text)
        text = re.sub(r"([\d.]+) 万", lambda each: f"{float(each[1]) / 100:g}", text)
        text = re.sub(r"([\d.]+) 亿", lambda each: f"{float(each[1]) * 100:g}", text)
        numbers.append(sorted(re.findall(r"\d+", re.sub(r"\]\([^)]*\)", "", text))))
    assert numbers[0] == numbers[1]


def test_a_score_of_the_lab_sheet_is_that_of_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """With an edited table a right answer is another number, and is said to be that one."""
    assert lab_sheet.score("0.64") == "the score is 0.64"
    table = PositionalEncoding.make_table
    monkeypatch.setattr(PositionalEncoding, "make_table", lambda self, n: 0 * table(self, n))
    assert lab_sheet.score("0.5") == "the score is 0.50"


def test_the_lab_sheets_checks_tell_its_solutions_from_mistakes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The folded answers; exercise 2 breaks a copy, exercise 5 measures a trained model."""
    folded, chinese = (
        [re.findall(r"^```(?:bash|python)\n(.*?)^```$", part, flags=re.M | re.S)
         for part in re.findall(r"<details>.*?</details>", (ROOT / page).read_text("utf-8"), re.S)]
        for page in ("docs/lab_sheet.md", "docs/lab_sheet.zh-CN.md")
    )  # fmt: skip
    assert folded == chinese

    def check(answer: str) -> str:
        monkeypatch.setattr(sys, "argv", ["lab_sheet.py", *answer.split()])
        try:
            lab_sheet.main()
        except SystemExit as wrong:
            return str(wrong)
        return capsys.readouterr().out

    (tmp_path / "tests" / "core").mkdir(parents=True)
    for name in ("pyproject.toml", "tests/core/test_positional.py"):
        shutil.copy(ROOT / name, tmp_path / name)
    # Without what other tests share, which takes seconds to import.
    (tmp_path / "tests" / "conftest.py").write_text(
        "from hypothesis import settings\n"
        "settings.register_profile('no_deadline', deadline=None)\n"
        "settings.load_profile('no_deadline')\n"
    )
    copy_code(tmp_path, "wawa_transformer", "configs", "scripts", "data")
    monkeypatch.setattr(lab_sheet, "CONFIG_DIR", tmp_path / "configs")
    monkeypatch.chdir(tmp_path)
    study, alibi = lab_sheet.STUDY, Path("my_alibi.py")
    few = "task.validation_size=20", "task.test_per_length=2", "trainer.check=false"
    quiet = (
        f"run_dir={study / 'reverse' / 'sinusoidal' / 'seed0-a'}",
        "quiet=true",
        "pictures=false",
    )
    fast = "trainer.steps=300", "trainer.lr=4e-3", "trainer.warmup=30"
    train(configure("task=reverse", *few, *quiet, *fast))
    assert "run the study of exercise 4 first" in check("4 sinusoidal")
    measured = {"sinusoidal": 0.99, "divided": 0.93, "slow_half": 0.016, "none": 0.013}
    rows = pd.DataFrame(measured.items(), columns=["pe", "exact_match"])
    rows = rows.assign(task="reverse", seed=0, length=5, examples=9, trained=True)
    rows.to_csv(study / "results.csv", index=False)
    alibi.write_text(folded[2][0].replace("-slopes", "slopes"), encoding="utf-8")
    with monkeypatch.context() as unbroken:
        both = "".join(
            f"PASSED tests/core/test_positional.py::{test}\n"
            for test in (lab_sheet.TABLE, lab_sheet.BUFFER)
        )
        done = subprocess.CompletedProcess("pytest", 0, both)
        unbroken.setattr(lab_sheet.subprocess, "run", lambda *command, **how: done)
        assert "wrong: " in (said := check("2")) and "buffer passes" in said
    for mistake, hint in (
        ("1 1.28", "divide by"),
        ("1 3.5", "multiply number by number"),
        ("3 my_alibi.py", "head 1 of 2"),
        ("4 sinusoidal slow_half", "slow_half 0.016"),
        ("5 0 8 56", "the mean in place"),
    ):
        assert (said := check(mistake)).startswith("wrong: ") and hint in said
    alibi.write_text("bias = lambda q, k, heads: [[[float('nan')] * 7] * 4] * heads", "utf-8")
    assert "head 1 of 2, query at 3, key at 0: nan and not" in check("3 my_alibi.py")
    alibi.write_text(folded[2][0], encoding="utf-8")
    subprocess.run(folded[1][0].splitlines()[0], shell=True, check=True)
    answers = re.findall(r"scripts/lab_sheet.py (.+)", "".join(sum(folded, [])))
    assert [check(answer)[:7] for answer in answers] == ["right: "] * 5


def test_a_file_that_a_reader_writes_says_what_it_is() -> None:
    """Otherwise ``--help`` has an encoding without a line, which a test refuses."""
    for page in (ROOT / "docs").glob("*.md"):
        for file in re.findall(r"^```yaml\n(.*?)^```$", page.read_text("utf-8"), re.M | re.S):
            assert file.startswith("# ") or "\nkind:" not in f"\n{file}", page


def test_without_pytest_no_test_is_said_to_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab_sheet.sys, "executable", shutil.which("false"))
    with pytest.raises(SystemExit, match=r"^error: .* make check"):
        lab_sheet.failing_test()


PAGES = ("*.md", "docs/**/*.md", "docs/*.html", "docs/*.ipynb", "data/*.md", "benchmarks/**/*.md")


def links(page: Path) -> Iterator[tuple[str, str]]:
    """Every link and picture of a page: the file, if any, and the heading in it."""
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".html":  # without what its scripts make
        text = re.sub(r"<script.*?</script>", "", text, flags=re.S)
        found = re.findall(r'(?:src|href)="([^"#]*)', text)
        yield from ((each, "") for each in found)
    else:
        yield from re.findall(r"\]\(([^)#\s]*)(?:#([^)]+))?\)", text)


def test_every_link_leads_somewhere() -> None:
    """To a file that is there, and to a heading of the page, whose address GitHub forms so."""
    for page in [path for part in PAGES for path in ROOT.glob(part)]:
        for file, anchor in links(page):
            if re.match(r"https?:|data:|mailto:", file):
                continue
            there = page.parent / file if file else page
            assert there.exists(), f"{page.name}: {file}"
            if anchor and there.suffix == ".md":
                headings = re.findall(r"^#+ (.*)$", there.read_text("utf-8"), flags=re.M)
                anchors = [re.sub(r"[^\w\- ]", "", each.lower()) for each in headings]
                assert anchor in [each.replace(" ", "-") for each in anchors], (page.name, anchor)


def test_no_page_and_no_table_is_wider_than_the_screen(browser: Browser, tmp_path: Path) -> None:
    """The pages without a server, and the reports with the widest tables."""
    pages = [*ROOT.glob("docs/*.html")]
    for study in ("addition_hundred", "mask_causal_ten", "cross"):
        pages.append(tmp_path / f"{study}.html")
        pages[-1].write_text(report.html(evidence.page(study), {}), "utf-8")
    for path, language in product(pages, ("en", "zh")):
        browser.open(f"{path.as_uri()}#lang={language}", 1400)
        for width in (1400, 390):
            browser.resize(width)
            wide = browser.read(
                "[document.documentElement, ...document.querySelectorAll('.scroll:has(table)')]"
                ".filter(each => each.scrollWidth > each.clientWidth + 1)"
                ".map(each => each.innerText)"
            )
            assert wide == [], (path.name, language, width)


def test_chinese_has_a_space_after_a_latin_name() -> None:
    """And before it, as in the names that a verdict is about; titles of notes are as they are."""
    for page in ROOT.glob("docs/**/*.zh-CN.md"):
        text = re.sub(r"\]\([^)]*\)|`[^`]*`|PE公式", "]", page.read_text(encoding="utf-8"))
        touching = r"\w*[A-Za-z0-9][\u4e00-\u9fff]|[\u4e00-\u9fff][A-Za-z0-9]\w*"
        assert re.findall(touching, text) == [], page.name


def test_a_picture_is_committed_only_where_a_page_shows_it() -> None:
    """Any other is drawn again by a command."""
    listed = subprocess.run(
        ["git", "ls-files", "*.png", "*.gif"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    pages = [path for part in PAGES for path in ROOT.glob(part)]
    shown = {(page.parent / file).resolve() for page in pages for file, _ in links(page)}
    assert [name for name in listed.stdout.split() if (ROOT / name).resolve() not in shown] == []


def test_a_number_below_zero_has_a_minus_sign() -> None:
    """In prose and tables of every page, as in formulas: a line may break after a hyphen."""
    for page in [path for part in PAGES if part.endswith("md") for path in ROOT.glob(part)]:
        code = r"^ *```.*?^ *```$|`[^`\n]*`|\]\([^)]*\)"
        text = re.sub(code, "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
        assert re.findall(r"(?<![\w\-/.\[])-\d+(?:\.\d+)?(?![\w-])", text) == [], page


# What each kind of picture has written beside its axes and in its legend, in English on all pages.
LABELS = {
    "exact_match_by_length": ("exact match", "unseen_lengths", "longest_trained"),
    "ranking": ("axis_trained", "scale stretched", "ceiling"),
    "reach": ("axis_reach", "axis_half", "longest_trained", "longest_tested", "not_learned"),
    "learning_nll": ("axis_step", "NLL, nats per token"),
}


def test_a_chinese_caption_translates_the_labels_of_its_picture() -> None:
    for page in (ROOT / "README.zh-CN.md", *ROOT.glob("docs/**/*.zh-CN.md")):
        shown = r"!\[[^]]*\]\(\S*/figures/(\w+)\.png\)\n\n(.*)"
        for kind, caption in re.findall(shown, page.read_text(encoding="utf-8")):
            for key in LABELS.get(kind, ()):
                assert tr(Text(key), "en").strip("()") in caption, (page.name, key)


def test_a_study_takes_as_long_as_the_page_says() -> None:
    """What compare.py says beforehand, and the list of docs/comparing.md."""
    page = (ROOT / "docs" / "comparing.md").read_text(encoding="utf-8")
    told: dict[str, float] = {}
    for names, times in re.findall(r"^- (`.+?) \(([^)]+ min)\b.*\): ", page, re.M):
        minutes = map(float, re.findall(r"\d+", times))
        told |= zip(re.findall(r"`(\w+)`", names), minutes, strict=True)
    assert told.keys() == {path.stem for path in (ROOT / "configs" / "study").glob("*.yaml")}
    for name in told.keys() - {"scan_length"}:  # which takes days that nobody has counted
        file = ROOT / "configs" / "study" / f"{name}.yaml"
        configured = yaml.safe_load(file.read_text("utf-8"))["study"].get("expected_minutes")
        configured = configured or configure(f"study={name}").study.expected_minutes
        tolerance = 0.5 * told[name] if name == "dropout" else 0
        assert configured == pytest.approx(told[name], abs=tolerance)


def test_the_page_names_every_property_of_the_check() -> None:
    page, chinese = (
        (ROOT / f"docs/check_model{end}").read_text("utf-8") for end in (".md", ".zh-CN.md")
    )
    assert [name for name in promises.REMEDIES if f"| {name} |" not in page] == []
    assert page.count("\n| ") == chinese.count("\n| ")


def test_the_package_says_what_there_is() -> None:
    """Every script is named and every script named is there."""
    named = set(re.findall(r"^  wawa (\w+)", overview(), flags=re.M))
    scripts = (path for path in SCRIPTS.glob("*.py") if "__main__" in path.read_text("utf-8"))
    assert named == {path.stem for path in scripts}
