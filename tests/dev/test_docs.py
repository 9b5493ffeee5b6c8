"""The documentation does what it says."""

from __future__ import annotations

import functools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import evidence
import numpy as np
import pandas as pd
import pytest
import torch
from conftest import SCRIPTS, TINY, configure, warm_python

from wawa_transformer import PositionalEncoding, Transformer
from wawa_transformer.__main__ import overview
from wawa_transformer.common.schema import UserError
from wawa_transformer.common.special_ids import EOS
from wawa_transformer.data.text import build_task
from wawa_transformer.decode.greedy import greedy
from wawa_transformer.lab.conditions import over_sentences
from wawa_transformer.train.trainer import train

ROOT = SCRIPTS.parent


def blocks(page: str, language: str) -> list[str]:
    """The fenced code of one language on a page of ``docs/``."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.M | re.S)


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A command of the documentation, in a copy of the project, on small data."""
    words = shlex.split(command)
    assert words[0] == "python"
    return subprocess.run(
        [*warm_python(), *words[1:], *TINY], cwd=folder, capture_output=True, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(folder)}, timeout=240,
    )  # fmt: skip


def copy_project(folder: Path) -> None:
    """What the documentation's commands need; the captions of Multi30k stay behind."""
    for name in ("wawa_transformer", "configs", "scripts", "data"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("multi30k"))


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project in which the tutorial's code and files stand."""
    folder = tmp_path_factory.mktemp("extended")
    copy_project(folder)
    page = "docs/tutorial.md"
    encoding, task, metric = blocks(page, "python")
    package = folder / "wawa_transformer"
    (package / "positional" / "learned_slopes.py").write_text(encoding, encoding="utf-8")
    with (package / "data" / "tasks.py").open("a", encoding="utf-8") as module:
        module.write(f"\n\n{task}")
    [metric] = re.findall(r"^    Metric.*\n", metric, flags=re.M)
    path = package / "train" / "evaluation.py"
    before, after = path.read_text(encoding="utf-8").split(")\nSHOWN", 1)
    path.write_text(f"{before}{metric})\nSHOWN{after}", encoding="utf-8")
    text = (ROOT / page).read_text(encoding="utf-8")
    files = re.findall(r"`(configs/\S+\.yaml)`[^`]*```yaml\n(.*?)^```$", text, flags=re.M | re.S)
    assert len(files) == len(blocks(page, "yaml")) == 3
    for name, content in files:
        (folder / name).write_text(content, encoding="utf-8")
    return folder


def test_the_tutorial_does_what_it_says(extended: Path) -> None:
    """An encoding, a task, a metric and a study are added; the report shows them."""
    for block in blocks("docs/tutorial.md", "bash"):
        result = run(block.strip(), extended)
        assert result.returncode == 0, result.stderr
    study = extended / "results" / "cycle"
    report = (study / "report.md").read_text(encoding="utf-8")
    assert re.search(r"^\| learned_slopes \| 3 \|", report, flags=re.M)
    assert "can reach at most" in report  # the ceiling without positions
    assert re.search(
        r"^\*\*(Supported|Refuted|Unclear): trained slopes carry pos", report, flags=re.M
    )
    assert "| NLL, nats per token | perplexity |" in report
    for table in ("results.csv", "curves.csv"):
        rows = pd.read_csv(study / table)
        assert (rows["perplexity"] / np.exp(rows["nll"])).to_numpy() == pytest.approx(1)
    refused = run("python scripts/train.py pe=learned_slopes pe.first_slop=1", extended)
    assert refused.returncode == 1 and "did you mean pe.first_slope?" in refused.stderr


SHIMS = {
    # Small runs: every study one task and one seed, every text training five steps.
    "python": """
        case "$1" in
            scripts/*) python={warm} ;;
            *) exec {python} "$@" ;;
        esac
        case "$1 $*" in
            scripts/train.py*=results/notebook*) set -- "$@" study.name=default ;;
            *output_dir=results/notebook*) ;;
            *study=length*) exec $python "$@" study.pe=[none,alibi] {small} {tiny} ;;
            scripts/compare.py*) set -- "$@" {small} ;;
            *task=text*) exec $python "$@" progress=false trainer.steps=5 model.d_model=16 ;;
        esac
        case "$1" in
            scripts/figures.py) exec $python "$@" lang=en ;;
            scripts/train.py | scripts/compare.py) exec $python "$@" {tiny} ;;
        esac
        exec $python "$@" """,
    "make": 'case "$1" in compare) python scripts/compare.py ;; *) echo "make $1" ;; esac',
}


SMALL = "study.task=[letters] study.seeds=[0] workers=1"


def commands(page: str) -> list[str]:
    """What a reader types: the lines of all shell blocks, without comments, and what is inline."""
    lines = "".join(blocks(page, "bash")).replace("\\\n", " ").splitlines()
    inline = re.findall(r"`((?:python|eval) [^`]+)`", (ROOT / page).read_text(encoding="utf-8"))
    lines += [line for line in inline if line not in lines]
    return [" ".join(line.split(" #")[0].split()) for line in lines if "activate" not in line]


@pytest.fixture
def shell(tmp_path: Path) -> Callable[[str], str]:
    """``shell(script)``: what it prints, in a copy of the project, on small data."""
    copy_project(tmp_path)
    shims = tmp_path / "bin"
    shims.mkdir()
    for name, body in SHIMS.items():
        body = body.replace("{warm}", shlex.quote(shlex.join(warm_python())))
        body = body.replace("{python}", sys.executable).replace("{tiny}", shlex.join(TINY))
        body = body.replace("{small}", SMALL)
        (shims / name).write_text(f"#!/bin/bash\n{body}\n", encoding="utf-8")
        (shims / name).chmod(0o755)
    paths = {"PYTHONPATH": str(tmp_path), "PATH": f"{shims}:{os.environ['PATH']}"}

    def run_all(script: str) -> str:
        done = subprocess.run(
            ["bash", "-euxc", script], cwd=tmp_path, capture_output=True, text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", **paths},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    return run_all


def test_every_command_of_the_readme_runs(shell: Callable[[str], str], tmp_path: Path) -> None:
    """In the order of the page, in one shell."""
    typed = commands("README.md")
    assert len(typed) == 8 and typed[0] == "make compare"
    assert commands("README.zh-CN.md") == typed
    shell("\n".join(typed))
    assert (tmp_path / "results" / "length" / "report.html").exists()


def test_the_readmes_lines_of_python_train_and_generate(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """They print what they say: the source reversed, then the end; fewer steps suffice."""
    [block] = blocks("README.md", "python")
    assert "range(500)" in block
    torch.manual_seed(0)
    exec(compile(block.replace("500", "200"), "README.md", "exec"), {})
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


def test_the_notebook_runs(
    shell: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every cell in order; what Jupyter would show is collected instead."""
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


def test_the_readmes_numbers_are_the_committed_ones() -> None:
    """The five answers and what they rest on, from benchmarks/."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| [^|]+\? \| .*$", text, flags=re.M)
    need, far, where, worth, design = rows

    def mean(study: str, task: str, pe: str, **part: bool) -> str:
        found = evidence.mean(evidence.exact_match(study, task, pe, **part))
        return f"{found:.3f}".replace(", all seeds equal", "")

    for task in ("reverse", "sort"):
        for pe in ("sinusoidal", "none"):
            assert mean("default", task, pe) in need
    for pe in ("sinusoidal", "randomized"):
        assert mean("length", "copy", pe, unseen=True) in far
    for pe in ("shaw", "shaw_cross"):
        assert mean("cross", "copy", pe, unseen=True) in where
    assert mean("origin", "copy", "shaw_cross", unseen=True) == "1.000"
    lost = over_sentences(evidence.sentence_tests("multi30k"), ("sinusoidal", "none"))
    tests = evidence.sentence_tests("multi30k_encodings")
    gained = [gap for gap, _ in over_sentences(tests, ("shaw_cross", "sinusoidal"))]
    assert round(sum(gap for gap, _ in lost) / 2) == 7 and " 7 " in worth
    assert f"{min(gained):.1f}–{max(gained):.1f}" in worth
    again = functools.partial(evidence.exact_match, "sinusoid_again", "reverse")
    for pe in ("linear", "base100"):
        assert f"{evidence.difference(again(pe), again('sinusoidal'), of=2):.3f}" in design
    assert [row.split(" | ")[2] for row in rows] == ["5", "3", "5", "2", "10"]
    steps = [configure(f"study={study}").trainer.steps for study in ("default", "length", "cross")]
    assert [*steps, configure("study=sinusoid").trainer.steps] == [500, 1500, 1500, 1000]
    assert evidence.sources("default") == "_new"
    assert evidence.sources("length") == evidence.sources("cross") == ""


def test_the_speed_of_a_step_is_what_the_benchmark_wrote() -> None:
    """Every number of docs/speed.md but those of encodings."""
    model, decoding = (
        json.loads((ROOT / "benchmarks" / name / "results.json").read_text("utf-8"))
        for name in ("model", "decoding")
    )
    page = (ROOT / "docs" / "speed.md").read_text(encoding="utf-8")
    sides = ("bf16", "torch", "x_transformers", "marian", "mkl", "plain", "floor")
    for shape in "TSB":
        ratios = (model[f"{shape}_{side}_over_ours"] for side in sides)
        cells = [f"{model[f'{shape}_ours_milliseconds']:,.0f}", *(f"{r:.2f}" for r in ratios)]
        [row] = (line for line in page.splitlines() if line.startswith(f"| {shape} |"))
        assert row.endswith(f"| {' | '.join(cells)} |"), cells
    by_mkl = [model[f"{s}_torch_over_ours"] / model[f"{s}_mkl_over_ours"] for s in "TSB"]
    assert "`torch.nn.Transformer` {:.2f}, {:.2f} and {:.2f}.".format(*by_mkl) in page
    halved = sorted(model[f"{shape}_bf16_over_ours"] for shape in "TSB")
    training = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
    assert f"{halved[0]:.2f} to {halved[-1]:.2f}" in training
    rows = {"batch1": "1, greedy", "batch32": "32, greedy", "beam4": "32, beam of 4"}
    for name, label in rows.items():
        ratios = (decoding.get(f"{name}_{s}_over_ours") for s in ("marian", "ctranslate2", "plain"))
        cells = [f"{decoding[f'{name}_ours_milliseconds']:,.0f}"]
        cells += ["–" if ratio is None else f"{ratio:.2f}" for ratio in ratios]
        assert f"| {label} | {' | '.join(cells)} |" in page, cells


def test_the_published_model_scores_what_was_printed() -> None:
    """Its table in docs/translation.md, and how far it is from the published score."""
    printed = (ROOT / "benchmarks" / "multi30k_wu" / "scores.txt").read_text(encoding="utf-8")
    text = (ROOT / "docs" / "translation.md").read_text(encoding="utf-8")
    words = {"last": "last step", "average": "averaged", "greedy": "greedy", "beam": "beam of 5"}
    best = 0.0
    for block in printed.split("$ python ")[1:]:
        how = re.search(r"checkpoint=(\w+) decode=(\w+)", block)
        assert how
        score = r"^BLEU(?:, lowercased)? ([\d.]+ \[[\d.]+, [\d.]+\])"
        cells = [*(words[word] for word in how.groups()), *re.findall(score, block, flags=re.M)]
        assert len(cells) == 4 and f"| {' | '.join(cells)} |" in text, cells
        best = max(best, float(cells[-1].split()[0]))
    assert f"is {41.02 - best:.1f} below the published BLEU" in text


@pytest.mark.parametrize("language", ["", ".zh-CN"])
@pytest.mark.parametrize("page", ["encoding", "model", "positions"])
def test_the_code_of_a_chapter_holds(page: str, language: str) -> None:
    """Its blocks assert what the text says; the table of the first is the project's own."""
    code = "".join(blocks(f"docs/{page}{language}.md", "python"))
    names: dict[str, torch.Tensor] = {}
    exec(compile(code, f"{page}.md", "exec"), names)
    if page == "encoding":
        table = PositionalEncoding(4, 3).pe[0]
        torch.testing.assert_close(names["table"], table, atol=1e-6, rtol=0)
    else:
        assert "assert " in code


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
            *(n for four in parts for n in (four.sum(), four, four.sum() / 2)), parts[0][3],
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


CHAPTERS = sorted(
    str(path.relative_to(ROOT / "docs").with_suffix(""))
    for path in ROOT.glob("docs/**/*.md")
    if "zh-CN" not in path.stem
) + ["../README"]


@pytest.mark.parametrize("page", CHAPTERS)
def test_a_chapter_has_the_same_numbers_in_both_languages(page: str) -> None:
    """A number that was changed on one page alone is a wrong one."""
    numbers = []
    for name in (f"{page}.md", f"{page}.zh-CN.md"):
        text = (ROOT / "docs" / name).read_text(encoding="utf-8")
        text = re.sub(r"(\d{4}) 年 \d+ 月 (\d+) 日", r"\2 … \1", text)  # months have a name
        numbers.append(sorted(re.findall(r"\d+", re.sub(r"\]\([^)]*\)", "", text))))
    assert numbers[0] == numbers[1]


def anchor_of(heading: str) -> str:
    """Where a link with ``#`` finds a heading, as GitHub forms it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_the_lab_sheets_checks_tell_its_solutions_from_mistakes(
    shell: Callable[[str], str], tmp_path: Path
) -> None:
    """The folded commands, in a copy of the project; exercise 5 measures a trained model."""
    for name in ("pyproject.toml", "tests/conftest.py", "tests/chromium.py", "tests/warm.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copytree(ROOT / "tests" / "core", tmp_path / "tests" / "core")
    folded, chinese = (
        [re.findall(r"^```(?:bash|python)\n(.*?)^```$", part, flags=re.M | re.S)
         for part in re.findall(r"<details>.*?</details>", (ROOT / page).read_text("utf-8"), re.S)]
        for page in ("docs/lab_sheet.md", "docs/lab_sheet.zh-CN.md")
    )  # fmt: skip
    assert folded == chinese
    study, alibi = tmp_path / "results" / "lab_sheet" / "reverse", tmp_path / "my_alibi.py"
    train(configure("task=reverse", f"run_dir={study / 'sinusoidal' / 'seed0-a'}", "quiet=true"))
    for pe, score in {"divided": 0.999, "slow_half": 0.016, "none": 0.013}.items():
        (study / pe / "seed0-a").mkdir(parents=True)
        result = {"pe": pe, "test": {"new": {"exact_match": score}}}
        (study / pe / "seed0-a" / "result.json").write_text(json.dumps(result), encoding="utf-8")
    alibi.write_text(folded[2][0].replace("-slopes", "slopes"), encoding="utf-8")
    mistakes = ["1 1.28", "2", "3 my_alibi.py", "4 sinusoidal slow_half", "5 0 8 56"]
    hints = ["divide by", "buffer passes", "head 1 of 2", "slow_half 0.016", "the mean in place"]
    said = shell("\n".join(f"! python scripts/lab_sheet.py {each} 2>&1" for each in mistakes))
    for line, hint in zip(said.splitlines(), hints, strict=True):
        assert line.startswith("wrong: ") and hint in line
    alibi.write_text(folded[2][0], encoding="utf-8")
    said = shell(
        f"git() {{ cp {ROOT}/$2 $2; }}\n"
        + "\n".join(each for part in folded for each in part if "scripts/" in each or "git" in each)
    )
    assert [line[:7] for line in said.splitlines()] == ["right: "] * 5


def test_every_link_leads_somewhere() -> None:
    """To a file that is there, and to a heading of the page."""
    parts = ("*.md", "docs/**/*.md", "data/*.md", "benchmarks/**/*.md")
    for page in [path for part in parts for path in ROOT.glob(part)]:
        text = page.read_text(encoding="utf-8")
        for file, anchor in re.findall(r"\]\(([^)#]*)(?:#([^)]+))?\)", text):
            if not file.startswith("http"):
                there = page.parent / file if file else page
                assert there.exists(), f"{page.name}: {file}"
                if anchor:
                    headings = re.findall(r"^#+ (.*)$", there.read_text("utf-8"), flags=re.M)
                    assert anchor in map(anchor_of, headings), f"{page.name}: {file}#{anchor}"


def test_a_study_takes_as_long_as_the_page_says() -> None:
    """What compare.py says beforehand, and the table of docs/comparing.md."""
    page = (ROOT / "docs" / "comparing.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.+?) \| .+ \| ([^|]+ min)\b[^|]* \|$", page, flags=re.M)
    told = {
        name: float(minutes)
        for names, times in rows
        for name, minutes in zip(
            re.findall(r"`(\w+)`", names), re.findall(r"\d+", times), strict=True
        )
    }
    assert len(told) == len(list((ROOT / "configs" / "study").glob("*.yaml")))
    told.pop("scan_length")  # days, which nobody has counted
    for name, minutes in told.items():
        configured = configure(f"study={name}").study.minutes
        assert configured == pytest.approx(minutes, abs=0.5 * minutes if name == "dropout" else 0)


def test_how_much_of_each_test_was_trained_on_is_what_the_page_says() -> None:
    """Of sequences and SCAN as they are configured, with seed 0."""
    page = (ROOT / "docs" / "comparing.md").read_text(encoding="utf-8")
    found = {}
    for name in ("reverse", "scan"):
        task = build_task(configure(f"task={name}"))
        data, (low, high) = task.dataset(0), task.trained_lengths
        trained = set(data["train"]["source"])
        test = [row for row in data["test"] if low <= row["length"] <= high]
        seen = [row["length"] for row in test if row["source"] in trained]
        found[name] = f"{len(seen) / len(test):.0%}"
        if name == "reverse":
            assert "nearly all no longer than 4" in page
            assert sum(length <= 4 for length in seen) > 0.95 * len(seen)
    assert f"1–10 symbols {found['reverse']} are" in page and found["scan"] == "0%"


def test_the_package_says_what_there_is() -> None:
    """Every script is named and every script named is there."""
    named = set(re.findall(r"^  wawa (\w+)", overview(), flags=re.M))
    scripts = (path for path in SCRIPTS.glob("*.py") if "__main__" in path.read_text("utf-8"))
    assert named == {path.stem for path in scripts}


def test_the_arithmetic_of_scaling_is_right() -> None:
    """Every number of docs/scaling.md that follows from the model's own size and the card's."""
    model = Transformer(16_000, 16_000, seed=0)
    sizes = [sum(p.numel() for p in part.parameters()) for part in
             (model, model.encoder_layers, model.decoder_layers, model.output)]  # fmt: skip
    whole, *used = sizes
    step = 32_768 * 6 * sum(used)
    compute = 1000 * step / (989e12 / 2)
    gradients = 4 * whole

    def summed(cards: int, rate: float) -> float:
        return 1000 * 2 * (cards - 1) / cards * gradients / rate

    page = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")
    for said in (
        f"{whole / 1e6:.1f} M parameters",
        "encoder {:.1f} M + decoder {:.1f} M + output {:.1f} M".format(*(n / 1e6 for n in used)),
        f"| {step / 32_768 / 1e6:.0f} MFLOP |",
        f"| {step / 1e12:.1f} TFLOP |",
        f"| {compute:.1f} ms |",
        f"| {16 * whole / 1e9:.1f} GB |",
        f"| {32_768 * 16_000 * 4 / 1e9:.1f} GB |",
        f"| {gradients / 1e6:.0f} MB |",
        f"from each card, {summed(8, 450e9):.1f} ms",
        f"8 × 1.3 = {8 * 1.3:.0f} ms beside {compute:.0f} ms",
        f"÷ 50 GB/s = {summed(64, 50e9):.0f} ms",
        f"{64 * 65_536 / 1e6:.1f} million a step",
        f"{compute / 64:.2f} ms of work for {summed(64, 50e9):.0f} ms of sums",
    ):
        assert said in page, said
