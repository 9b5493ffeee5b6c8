"""The documentation does what it says."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path

import evidence
import numpy as np
import pandas as pd
import pytest
import redraw
import torch
import yaml
from conftest import SCRIPTS, TINY, configure, warm_python

from wawa_transformer import PositionalEncoding, Transformer
from wawa_transformer.__main__ import overview
from wawa_transformer.common.schema import UserError
from wawa_transformer.data.text import build_task
from wawa_transformer.lab import answers, tables
from wawa_transformer.lab.conditions import Alike, over_sentences
from wawa_transformer.lab.intervals import Estimate

ROOT = SCRIPTS.parent
CLAIMS = yaml.safe_load((ROOT / "docs" / "claims.yaml").read_text(encoding="utf-8"))


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
            *output_dir=results/notebook*) ;;
            *study=length*) exec $python "$@" study.pe=[none,alibi] {small} {tiny} ;;
            *study=multi30k*) exec $python "$@" study.seeds=[0] {sample} workers=1 ;;
            scripts/compare.py*) set -- "$@" {small} ;;
            *task=text*) exec $python "$@" progress=false trainer.steps=5 model.d_model=16 ;;
        esac
        case "$1" in
            scripts/figures.py) exec $python "$@" lang=en ;;
            scripts/train.py | scripts/compare.py) exec $python "$@" {tiny} ;;
        esac
        exec $python "$@" """,
    "make": 'case "$1" in compare) python scripts/compare.py ;; *) echo "make $1" ;; esac',
    "torchrun": 'exec {python} -m torch.distributed.run "$@" {tiny}',
    "tensorboard": 'test -d "$2"',  # a server that would not end
}


SMALL = "study.task=[letters] study.seeds=[0] workers=1"
# In place of the captions, which are not shipped, the sample that is.
SAMPLE = (
    "task.data_dir=data task.source=sample.en task.target=sample.de task.vocab_size=300 "
    "task.validation_source=null task.validation_target=null task.test_source=null "
    "task.test_target=null +task.test_size=20 +task.validation_size=20 trainer.steps=5 "
    "trainer.warmup=1 model.d_model=16 model.num_layers=1"
)


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
        body = body.replace("{sample}", SAMPLE).replace("{small}", SMALL)
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


def test_no_shell_block_needs_another_shell() -> None:
    """Pasted into zsh a comment is words, brackets and question marks are names of files."""
    pages = ("*.md", "docs/*.md", "data/*.md", "benchmarks/*.md")
    found = 0
    for page in [path for part in pages for path in ROOT.glob(part)]:
        for block in blocks(str(page.relative_to(ROOT)), "bash"):
            for line in block.splitlines():
                bare = re.sub(r"'[^']*'|\"[^\"]*\"|\$\(ls -d [^)]*\)", "", line)
                assert not re.search(r"(^|\s)#|[][?*]", bare), f"{page.name}: {line}"
                found += 1
    assert found > 60


def test_every_command_of_the_readme_runs(shell: Callable[[str], str], tmp_path: Path) -> None:
    """In the order of the page, in one shell."""
    typed = commands("README.md")
    assert len(typed) == 8 and typed[0] == "make compare"
    shell("\n".join(typed))
    assert (tmp_path / "results" / "length" / "report.html").exists()


def test_the_readmes_lines_of_python_train_and_generate(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """They print what they say: the source reversed, then the end."""
    [block] = blocks("README.md", "python")
    torch.manual_seed(0)
    exec(compile(block, "README.md", "exec"), {})
    printed = [int(number) for number in re.findall(r"\d+", capsys.readouterr().out)]
    assert printed == [*range(10, 2, -1), 2]


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
    printed = "\n".join(map(str, shown))
    assert "exact match" in printed and "report: " in printed and "exact_match_by_length" in printed


def test_the_notebook_is_the_same_in_both_languages_and_shows_what_it_prints() -> None:
    """The same code with the same output, none of it an error."""
    english, chinese = (
        [
            cell
            for cell in json.loads((ROOT / "docs" / name).read_text(encoding="utf-8"))["cells"]
            if cell["cell_type"] == "code"
        ]
        for name in ("five_minutes.ipynb", "five_minutes.zh-CN.ipynb")
    )
    assert english == chinese
    outputs = [output for cell in english for output in cell["outputs"]]
    assert outputs and all(output["output_type"] != "error" for output in outputs)


def test_both_readmes_show_the_same_commands_and_numbers() -> None:
    """Whoever reads the Chinese one gets as far."""
    chinese, english = (ROOT / name for name in ("README.zh-CN.md", "README.md"))
    assert commands(chinese.name) == commands(english.name)
    code = r"`([^`\n]+)`"
    texts = [page.read_text(encoding="utf-8") for page in (english, chinese)]
    for pattern in (code, r"\d+\.\d+"):
        assert set(re.findall(pattern, texts[0])) == set(re.findall(pattern, texts[1]))


@pytest.mark.parametrize("page", ["README.md", "README.zh-CN.md"])
def test_the_readmes_numbers_are_the_committed_ones(page: str) -> None:
    """The five answers and what they rest on, from benchmarks/."""
    rows = re.findall(r"^\| [^|]+[？?] \| .*$", (ROOT / page).read_text("utf-8"), flags=re.M)
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


@pytest.mark.parametrize(
    ("page", "labels"),
    [
        ("translation.md", ("seed 0, with the bootstrap's 95% interval", "seed 1")),
        ("translation.zh-CN.md", ("种子 0，方括号内是自助法 95% 区间", "种子 1")),
    ],
)
def test_the_table_of_captions_is_the_committed_one(page: str, labels: tuple[str, str]) -> None:
    """BLEU on Multi30k with the bootstrap's intervals."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    bleu = pd.read_csv(ROOT / "benchmarks" / "multi30k" / "bleu.csv").set_index("pe")
    for seed, label in enumerate(labels):
        rows = bleu[bleu["seed"] == seed].loc[["sinusoidal", "learned", "none"]]
        cells = [f"{r.bleu:.1f} [{r.bleu_low:.1f}, {r.bleu_high:.1f}]" for r in rows.itertuples()]
        assert f"| {label} | {' | '.join(cells)} |" in text


@pytest.mark.parametrize(
    "report", sorted((ROOT / "benchmarks").glob("*/report.md")), ids=lambda path: path.parent.name
)
def test_the_reports_speak_of_the_ceiling_as_their_data_does(report: Path) -> None:
    """Who is not above it, from results.csv: the reports were written before chance was counted."""
    page, table = report.read_text(encoding="utf-8"), pd.read_csv(report.parent / "results.csv")
    sentences, study = [], report.parent.name
    for task, rows in table[table["trained"].eq(True)].groupby("task", sort=False):
        ceiling = evidence.blind(study, str(task))
        if ceiling is not None:
            means = {
                pe: evidence.mean(evidence.exact_match(study, str(task), pe))
                for pe in rows["pe"].unique()
            }
            ranked = dict(sorted(means.items(), key=lambda item: -item[1].mean))
            labels = {pe: re.sub(r"^(learned\w*)$", r"\1 (init_std 1.0)", pe) for pe in ranked}
            sentences.append(answers.not_above(ceiling, ranked, labels).strip())
    said = [sentence for sentence in sentences if sentence]
    assert page.count("Not above") == len(said) and all(sentence in page for sentence in said)


def test_findings_on_cross_attention_say_what_was_measured() -> None:
    """Findings 10 and 11: each sentence that has no number in it, from benchmarks/."""
    kinds = ("rotary", "alibi", "t5", "shaw", "transformer_xl")
    pairs = [(f"{pe}_cross", pe) for pe in kinds]
    verdicts = {
        task: evidence.judged("cross", task, pairs)
        for task in ("copy", "letters", "reverse", "duplicate")
    }
    for task in ("copy", "letters"):
        said = list(verdicts[task].values())
        assert said.count("better") >= 3 and set(said) <= {"better", "unclear"}
        for pe in ("shaw_cross", "transformer_xl_cross"):
            assert set(evidence.reaches("cross", task, pe).values()) == {40}
        assert not evidence.learned("cross", task, "alibi")
        assert evidence.learned("cross", task, "alibi_cross")
    gains = {task: {pe for pe in of if of[pe] == "better"} for task, of in verdicts.items()}
    assert gains["reverse"] == {"t5_cross"} and gains["duplicate"] == {"rotary_cross", "t5_cross"}
    assert {said for of in verdicts.values() for said in of.values()} == {"better", "unclear"}
    for pe in ("sinusoidal", *kinds, *(f"{pe}_cross" for pe in kinds)):
        if evidence.learned("cross", "duplicate", pe):  # "no encoding … reaches further"
            assert evidence.mean(evidence.reaches("cross", "duplicate", pe)).mean <= 10.5, pe

    adding = evidence.judged("cross_addition", "addition", pairs)
    assert set(adding.values()) == {"unclear"}
    for pe in (each for pair in pairs for each in pair):
        if evidence.learned("cross_addition", "addition", pe):
            assert set(evidence.reaches("cross_addition", "addition", pe).values()) == {3}
        else:
            mean = evidence.mean(evidence.exact_match("cross_addition", "addition", pe)).mean
            assert pe.startswith("alibi") and mean < 0.45

    origin = functools.partial(evidence.reaches, "origin")
    assert set(origin("reverse", "shaw_cross_end").values()) == {40}
    assert set(origin("copy", "shaw_cross").values()) == {40}
    assert max(origin("copy", "shaw_cross_end").values()) < 40
    moved = [
        evidence.learned("origin", "reverse", pe) for pe in ("sinusoidal_shifted", "shifted_end")
    ]
    assert moved == [False, True]
    for task in ("copy", "reverse"):
        every = {
            f"{short}_{end}": pe
            for short, pe in (("sinusoidal", "sinusoidal"), ("shifted", "sinusoidal_shifted"),
                              ("shaw_cross", "shaw_cross"))
            for end in ("end", "both")
        }  # fmt: skip
        said = evidence.judged("origin", task, list(every.items()))
        assert said["sinusoidal_end"] == said["sinusoidal_both"] == "unclear"
        for pe in ("sinusoidal", "sinusoidal_end", "sinusoidal_both"):
            assert max(origin(task, pe).values()) <= 11


def test_finding_15_and_the_referees_list_say_what_was_measured() -> None:
    """What a learning rate decides and what not; sources, pairs and budgets in comparing.md."""

    def lead(study: str) -> Estimate:
        learned, sinusoidal = (
            evidence.exact_match(study, "reverse", pe) for pe in ("learned", "sinusoidal")
        )
        return evidence.difference(learned, sinusoidal)

    assert lead("default").low > 0 > lead("default_tuned").low
    assert lead("default_tuned").high > 0, "the lead is gone, and not turned round"
    rates = {each["name"]: each for each in evidence.rates("default_tuned")}
    for task in ("letters", "reverse"):
        for pe in ("sinusoidal", "learned"):
            assert f"{pe} is better than none at each of 10 points." in rates[task]["orders"]
    assert [task for task, each in rates.items() if each["at_edge"]] == ["letters"]
    assert rates["reverse"]["chosen"]["sinusoidal"].lr > 0.002, "the default's"
    tried = pd.read_csv(ROOT / "benchmarks" / "default_tuned" / "tuning.csv")
    right = tried[(tried["task"] == "letters") & (tried["pe"] != "none")]
    assert len(tried) == 270 and right["exact_match"].min() == 1

    page = (ROOT / "docs" / "comparing.md").read_text(encoding="utf-8")
    table = pd.read_csv(ROOT / "benchmarks" / "default" / "results.csv")
    seen = table[table["trained"]]
    share = 1 - seen["examples_new"].sum() / seen["examples"].sum()
    assert f"{share:.0%} of the sources of 1–10 symbols were" in page
    old = seen[seen["length"] > 4]
    assert (old["examples"] - old["examples_new"]).sum() < 0.02 * share * seen["examples"].sum()
    for study in ("default", "default_tuned"):  # the two ways agree
        rule = evidence.rule_of(study)
        assert rule is not None and evidence.sources(study) == "_new"
        tasks = {task: evidence.measured(study, task) for task in rule.tasks}
        every = {
            task: dataclasses.replace(
                measured,
                values={
                    "exact_match": {
                        pe: evidence.exact_match(study, task, pe, of="") for pe in rule.encodings
                    }
                },
                ceiling=evidence.blind(study, task, ""),
            )
            for task, measured in tasks.items()
        }
        said = [[each.verdict for each in rule.decide(part)] for part in (tasks, every)]
        assert said == [["supported"], ["supported"]]
    rule = evidence.rule_of("cross")
    assert rule is not None and len(rule.pairs) * len(rule.tasks) == 20
    assert "twenty comparisons" in page


@pytest.mark.parametrize("study", ["default", "length", "multi30k"])
def test_pictures_are_drawn_again_from_what_the_report_drew(study: str) -> None:
    """A run's result, put together from its lines in results.csv, has the run's numbers."""
    results = redraw.results_of(ROOT / "benchmarks" / study)
    table = pd.read_csv(ROOT / "benchmarks" / study / "results.csv")
    pd.testing.assert_frame_equal(
        tables.length_table(results)[table.columns.drop("trained")].fillna(math.nan),
        table.drop(columns="trained"),
        check_dtype=False,
    )
    generated = [result for result in results if result["train_max_length"] is not None]
    assert bool(generated) == (study != "multi30k")
    for row in tables.overall_table(generated).to_dict("records"):
        expected = evidence.exact_match(study, row["task"], row["pe"])[row["seed"]]
        assert row["value"] == pytest.approx(expected)


STUDIES = sorted(path.parent.name for path in (ROOT / "benchmarks").glob("*/report.md"))
WITHOUT_RULE = {
    "dropout",
    "no_dropout",
    "far",
    "multi30k_wu",
}  # one encoding; other pairs than the rule


@pytest.mark.parametrize("study", STUDIES)
def test_no_outcome_depends_on_a_size_that_was_chosen_later(study: str) -> None:
    """Where any difference counts the verdicts are the same, but for ``alike``, which needs one."""
    if study == "far":
        with pytest.raises(UserError, match="compares pairs, and there are none"):
            evidence.rule_of(study)
        return
    rule = evidence.rule_of(study)
    assert (rule is None) == (study in WITHOUT_RULE)
    if rule is None:
        return
    tasks = {task: evidence.measured(study, task) for task in rule.tasks}
    said = [outcome.verdict for outcome in rule.decide(tasks)]
    assert said == [outcome.verdict for outcome in evidence.outcomes(study)]
    rule.measures = dict.fromkeys(rule.measures, 0.0)
    sizeless = [outcome.verdict for outcome in rule.decide(tasks)]
    if any(isinstance(condition, Alike) for condition in rule.refuted):
        said = ["unclear" if verdict == "refuted" else verdict for verdict in said]
    assert said == sizeless


def test_the_outcomes_are_those_that_the_findings_speak_of() -> None:
    """Findings 1, 2, 5, 6, 10 to 14, 16: what each says of its rule in words of its own."""
    said = {
        study: {o.case.label: o.verdict for o in evidence.outcomes(study)}
        for study in STUDIES if study not in WITHOUT_RULE
    }  # fmt: skip
    assert said["default"] == said["multi30k"] == {"": "supported"}
    assert said["scan_length"] == said["multi30k_cross"] == {"": "unclear"}
    assert set(said["encodings"].values()) == {"refuted", "unclear"}
    assert said["encodings"]["none"] == "refuted"
    help_on = {"copy": "supported", "letters": "supported"}
    assert said["cross"] == help_on | {"reverse": "unclear", "duplicate": "unclear"}
    assert said["cross_addition"] == {"addition": "unclear"}
    assert said["ontanon"] == {"reverse": "supported", "duplicate": "unclear"}
    assert said["ontanon_addition"] == {"addition_aligned": "unclear"}
    assert said["scan_cross"] == {"transformer_xl": "supported", "transformer_xl_cross": "refuted"}
    for pe in ("shaw_cross_end", "shifted_end"):
        assert said["origin"][f"{pe} on reverse"] == "supported"
        assert said["origin"][f"{pe} on copy"] == "refuted"
    assert set(said["sinusoid_again"].values()) == {"supported"}
    open_ = dict.fromkeys(("learned", "rotary", "t5"), "unclear")
    assert said["multi30k_encodings"] == open_ | {"none": "refuted", "shaw_cross": "supported"}


def test_the_speed_of_a_step_is_what_the_benchmark_wrote() -> None:
    """Each row of the tables in docs/model.md."""
    found = json.loads((ROOT / "benchmarks" / "model" / "results.json").read_text("utf-8"))
    page = (ROOT / "docs" / "model.md").read_text(encoding="utf-8")
    sides = ("bf16", "torch", "x_transformers", "marian", "mkl", "plain", "floor")
    for shape in "TSB":
        ratios = (found[f"{shape}_{side}_over_ours"] for side in sides)
        cells = [f"{found[f'{shape}_ours_milliseconds']:,.0f}", *(f"{r:.2f}" for r in ratios)]
        [row] = (line for line in page.splitlines() if line.startswith(f"| {shape} |"))
        assert row.endswith(f"| {' | '.join(cells)} |"), cells
    by_mkl = [found[f"{s}_torch_over_ours"] / found[f"{s}_mkl_over_ours"] for s in "TSB"]
    said = "with `torch.nn.Transformer` {:.2f}, {:.2f} and {:.2f}.".format(*by_mkl)
    assert said in " ".join(page.split()), said
    halved = sorted(found[f"{shape}_bf16_over_ours"] for shape in "TSB")
    training = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
    assert f"(model.md#speed) {halved[0]:.2f} to {halved[-1]:.2f};" in training
    found = json.loads((ROOT / "benchmarks" / "decoding" / "results.json").read_text("utf-8"))
    rows = {"batch1": "1, greedily", "batch32": "32, greedily", "beam4": "32, with a beam of 4"}
    for name, label in rows.items():
        ratios = (found.get(f"{name}_{s}_over_ours") for s in ("marian", "ctranslate2", "plain"))
        cells = [f"{found[f'{name}_ours_milliseconds']:,.0f}"]
        cells += ["–" if ratio is None else f"{ratio:.2f}" for ratio in ratios]
        assert f"| {label} | {' | '.join(cells)} |" in page, cells
    found = json.loads((ROOT / "benchmarks" / "text" / "results.json").read_text("utf-8"))
    page = " ".join(page.split())
    for said in (
        f"takes {found['torch_mixed_over_ours']:.2f} times as long a token",
        f"it takes {found['ours_mixed_over_ours']:.2f} times as long.",
        f"ours takes {found['ours_bf16_over_ours']:.2f} times as long.",
        f"are {found['ours_mixed_real_percent']:.0f}% real tokens",
        f"buckets are {found['ours_real_percent']:.0f}%",
    ):
        assert said in page, said


def test_a_run_of_the_study_takes_what_the_benchmark_wrote() -> None:
    """Every row of the table in docs/training.md, in both languages."""
    found = json.loads((ROOT / "benchmarks" / "study" / "results.json").read_text("utf-8"))
    names = [name.removeprefix("first_") for name in found if name.startswith("first_")]
    assert names[0] == "seconds" and len(names) == 8
    rows = [[f"{found[f'{side}_{n}']:.2f}" for side in ("first", "later")] for n in names]
    for page in ("training.md", "training.zh-CN.md"):
        text = (ROOT / "docs" / page).read_text(encoding="utf-8")
        table = re.findall(r"^\| [^|]+ \| (\d\.\d\d) \| (\d\.\d\d) \|$", text, re.MULTILINE)
        assert [*map(list, table)] == [*rows[1:], rows[0]]
    ratios = [f"`{n[:-16]}` {r:.2f}" for n, r in found.items() if n.endswith("_over_sinusoidal")]
    assert len(ratios) == 10 and ratios[0].startswith("`learned` ")
    for page, comma in (("model.md", ", "), ("model.zh-CN.md", "、")):
        assert comma.join(ratios) in (ROOT / "docs" / page).read_text(encoding="utf-8")


def test_a_step_grows_with_the_length_as_the_benchmark_wrote() -> None:
    """The table of docs/model.md: every encoding, and with it in cross-attention where it can."""
    rows = pd.read_csv(ROOT / "benchmarks" / "growth" / "results.csv")
    found = rows[rows["grows"] == "length"].set_index(["encoding", "size"])
    page = (ROOT / "docs" / "model.md").read_text(encoding="utf-8")
    sizes = (64, 256, 1024, 2048, 4096)
    cells = [f"{found['milliseconds']['sinusoidal', size]:,.0f} ms" for size in sizes]
    table = {"encoding": [f"{size:,}" for size in sizes], "`sinusoidal`": cells}
    ratios = found["over_sinusoidal"]
    names = set(ratios.index.unique(0))
    for kind in {name.removesuffix("_cross") for name in names} - {"sinusoidal"}:
        both = [name for name in (kind, f"{kind}_cross") if name in names]
        table[f"`{kind}`"] = [
            " / ".join(f"{ratios[name, size]:.1f}" for name in both) for size in sizes
        ]
    assert len(table) == 2 + 8
    for name, cells in table.items():
        assert f"| {name} | {' | '.join(cells)} |" in page, cells
    small, large = (found["megabytes"][name, 4096] / 1000 for name in ("sinusoidal", "cope"))
    said = f"takes {small:.1f} GB of memory with the sinusoid and {large:.0f} with `cope`."
    assert said in " ".join(page.split()), said


def test_the_finding_on_scan_with_shared_layers_says_what_was_measured() -> None:
    """Finding 14 and the README: better, then worse; what the report's headline says of each."""
    pairs = [("transformer_xl", "sinusoidal"), ("transformer_xl_cross", "transformer_xl")]
    found = functools.partial(evidence.exact_match, "scan_cross", "scan", unseen=True)
    better, worse = (evidence.difference(found(a), found(b), of=2) for a, b in pairs)
    assert better.n == worse.n == 5 and better.low > 0 > worse.high
    reach = functools.partial(evidence.reaches, "scan_cross", "scan")
    further, less = (evidence.difference(reach(a), reach(b), of=2) for a, b in pairs)
    assert further.low < 0 < further.high and less.high < 0
    assert evidence.judged("scan_cross", "scan", pairs) == {
        "transformer_xl": "unclear", "transformer_xl_cross": "worse"
    }  # fmt: skip


def test_findings_on_a_published_setting_and_on_translation_say_what_was_measured() -> None:
    """Findings 12 and 13: the order on longer sequences, and what two seeds can tell."""
    found = functools.partial(evidence.exact_match, "ontanon", "reverse")
    for a, b in (("shaw16", "sinusoidal"), ("shaw16_cross", "shaw16")):
        gap = evidence.difference(found(a, unseen=True), found(b, unseen=True), of=2)
        assert gap.n == 5 and gap.low > 0, (a, b)
        assert evidence.learned("ontanon", "reverse", a)
        assert evidence.learned("ontanon", "reverse", b)
    assert set(evidence.reaches("ontanon", "reverse", "shaw16_cross").values()) == {24}
    pair = [("shaw_cross", "shaw")]
    assert evidence.judged("cross", "reverse", pair) == {"shaw_cross": "unclear"}

    twice = [("shaw16", "sinusoidal"), ("shaw16_cross", "shaw16")]
    assert evidence.judged("ontanon", "duplicate", twice) == dict.fromkeys(
        ("shaw16", "shaw16_cross"), "unclear"
    )
    found = functools.partial(evidence.exact_match, "ontanon", "duplicate")
    for a, b in twice:
        gap = evidence.difference(found(a, unseen=True), found(b, unseen=True), of=2)
        assert gap.n == 5 and gap.low < 0 < gap.high, (a, b)
    table = evidence.rows("ontanon", "duplicate", "shaw16_cross").set_index("length")["exact_match"]
    assert table[16].min() > 0.99 and table[17].max() <= 0.25, "right to 16, lost at 17"

    assert evidence.judged("ontanon_addition", "addition_aligned", twice) == dict.fromkeys(
        ("shaw16", "shaw16_cross"), "unclear"
    )
    found = functools.partial(evidence.exact_match, "ontanon_addition", "addition_aligned")
    first, second = (
        evidence.difference(found(a, unseen=True), found(b, unseen=True), of=2) for a, b in twice
    )
    assert first.low < 0 < first.high and second.low > 0.85 and second.n == 5
    know = [pe for pe in ("sinusoidal", "shaw16", "shaw16_cross")
            if evidence.learned("ontanon_addition", "addition_aligned", pe)]  # fmt: skip
    assert know == ["shaw16_cross"]
    table = evidence.rows("ontanon_addition", "addition_aligned", "shaw16_cross")
    assert table[table["length"] > 8]["exact_match"].min() > 0.97, "in every seed"

    with_it, without = (
        evidence.nll_by_length("multi30k_cross", "multi30k", pe, 20) for pe in pair[0]
    )
    gaps = {n: [with_it[n][seed] - without[n][seed] for seed in (0, 1)] for n in without}
    assert {n for n, both in gaps.items() if max(both) < 0} == {10, 15, 20}
    assert [n for n, both in gaps.items() if min(both) < 0 < max(both)] == [25] == list(gaps)[3:]
    report = (ROOT / "benchmarks" / "multi30k_cross" / "report.md").read_text(encoding="utf-8")
    tests = re.findall(r"^\| [01] \| shaw_cross − shaw \| .* \| (0\.\d+) \|$", report, flags=re.M)
    assert len(tests) == 2 and min(map(float, tests)) > 0.05
    either = [
        score
        for pe in pair[0]
        for score in evidence.bleu("multi30k_cross", "multi30k", pe).values()
    ]
    assert min(either) > max(evidence.bleu("multi30k", "multi30k", "sinusoidal").values())


def test_six_encodings_translate_as_finding_16_says() -> None:
    """Its sentences on the rule, on further tests and on lengths; the README's on trained keys."""
    study, base = "multi30k_encodings", "sinusoidal"
    tests = evidence.sentence_tests(study)
    ahead = {pe: over_sentences(tests, (pe, base)) for pe in ("shaw_cross", "rotary")}
    assert min(gap for gap, _ in ahead["shaw_cross"]) > 1
    assert sorted(p < 0.05 / 5 for _, p in ahead["rotary"]) == [False, True]
    assert min(gap for gap, _ in ahead["rotary"]) > 0
    for pe in ("learned", "t5"):
        assert min(p for _, p in over_sentences(tests, (pe, base))) > 0.05
    behind = [gap for gap, _ in over_sentences(tests, ("none", base))]
    assert len(behind) == 2 and round(-sum(behind) / 2) == 7
    more = evidence.more_tests(study)
    assert all(len(seeds) == 2 for seeds in more.values()) and len(more) == 5 * 2
    for (pe, test), seeds in more.items():
        if pe in ("shaw_cross", "rotary", "none"):
            assert all(gap > 0 if pe != "none" else gap < 0 for gap, _ in seeds)
            flickr = more[pe, "test_2017_flickr"]
            assert max(p for _, p in flickr) <= max(p for _, p in more[pe, test])
    order = ["shaw_cross", "rotary", "t5", "sinusoidal", "learned", "none"]
    found = {pe: evidence.nll_by_length(study, "multi30k", pe, 20) for pe in order}
    means = {n: [evidence.mean(found[pe][n]).mean for pe in order] for n in found[base]}
    assert len(means) == 4 and all(each == sorted(each) for each in means.values())
    bleus = evidence.bleu_by_length(study)
    lost = (evidence.difference(bleus[base, n], bleus["none", n]).mean for n in (10, 15, 20))
    assert [round(each) for each in lost] == [5, 8, 11] and set(means) == {10, 15, 20, 25}
    printed = evidence.printed(study, "test_2016_flickr.txt")
    trained = [(pe, seed) for pe in order for seed in (0, 1)]
    assert sorted((pe, seed) for pe, seed, _ in printed) == sorted(trained)
    for pe, seed, block in printed:
        whole = re.findall(r"^BLEU ([\d.]+) ", block, flags=re.M)
        score = evidence.bleu(study, "multi30k", pe)[seed]
        assert whole == [f"{score:.1f}"], "the same runs"


@pytest.mark.parametrize(
    ("page", "rows", "missing"),
    [
        ("translation.md", ("last step", "averaged", "greedy", "beam of 5"), "{} are missing"),
        ("translation.zh-CN.md", ("最后一步", "平均", "贪心", "束宽 5"), "还差 {}"),
    ],
)
def test_the_published_model_scores_what_was_printed(
    page: str, rows: tuple[str, ...], missing: str
) -> None:
    """Its table in docs/translation.md, and how far it is from the published score."""
    printed = (ROOT / "benchmarks" / "multi30k_wu" / "scores.txt").read_text(encoding="utf-8")
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    words = dict(zip(("last", "average", "greedy", "beam"), rows, strict=True))
    blocks = printed.split("$ python ")[1:]
    assert len(blocks) == 4
    best = 0.0
    for block in blocks:
        how = re.search(r"checkpoint=(\w+) decode=(\w+)", block)
        assert how
        score = r"^BLEU(?:, lowercased)? ([\d.]+ \[[\d.]+, [\d.]+\])"
        cells = [*(words[word] for word in how.groups()), *re.findall(score, block, flags=re.M)]
        assert len(cells) == 4 and f"| {' | '.join(cells)} |" in text, cells
        best = max(best, float(cells[-1].split()[0]))
    assert missing.format(f"{41.02 - best:.1f}") in text


def test_the_mistaken_table_copies_sooner_and_reverses_worse() -> None:
    """Finding 3's last paragraph, from benchmarks/sinusoid_two."""
    steps = {
        pe: pd.Series(evidence.steps_to("sinusoid_two", "copy", pe, 0.9)).median()
        for pe in ("sinusoidal", "divided")
    }
    assert 3 * steps["divided"] == steps["sinusoidal"]
    found = functools.partial(evidence.exact_match, "sinusoid_two")
    gap = evidence.difference(found("reverse", "divided"), found("reverse", "sinusoidal"), of=2)
    assert gap.excludes_zero and gap.mean < 0
    for task in ("copy", "reverse"):
        gap = evidence.difference(found(task, "fairseq"), found(task, "sinusoidal"), of=2)
        assert not gap.excludes_zero


def test_the_designs_are_as_many_as_the_pages_say() -> None:
    """The paper's, and those that the study of its design compares with it."""
    study = (ROOT / "configs" / "study" / "sinusoid.yaml").read_text(encoding="utf-8")
    assert study.count("sinusoid/") + 1 == 11
    assert "eleven designs" in (ROOT / "docs" / "encoding.md").read_text(encoding="utf-8")
    assert "十一种设计" in (ROOT / "docs" / "encoding.zh-CN.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", ["encoding", "model", "positions"])
def test_the_code_of_a_chapter_holds(page: str) -> None:
    """Its blocks assert what the text says; the table of the first is the project's own."""
    code = "".join(blocks(f"docs/{page}.md", "python"))
    names: dict[str, torch.Tensor] = {}
    exec(compile(code, f"{page}.md", "exec"), names)
    if page == "encoding":
        table = PositionalEncoding(8, 10).pe[0]
        torch.testing.assert_close(names["table"], table, atol=1e-6, rtol=0)
    else:
        assert code.count("assert ") >= 4


CHAPTERS = sorted(path.stem for path in ROOT.glob("docs/*.md") if "zh-CN" not in path.stem)


@pytest.mark.parametrize("page", CHAPTERS)
def test_a_chapter_is_the_same_in_both_languages(page: str) -> None:
    """Its code, its headings and its numbers."""
    texts = [
        (ROOT / "docs" / f"{page}{lang}.md").read_text(encoding="utf-8") for lang in ("", ".zh-CN")
    ]
    texts[1] = re.sub(r"(\d{4}) 年 \d+ 月 (\d+) 日", r"\2 … \1", texts[1])  # months have a name
    fence = r"^```.*?^```$"
    code = [re.findall(fence, text, flags=re.M | re.S) for text in texts]
    assert code[0] == code[1]
    prose = [re.sub(rf"{fence}|\]\([^)]*\)", "", text, flags=re.M | re.S) for text in texts]
    headings = [re.findall(r"^#+ ", text, flags=re.M) for text in prose]
    assert headings[0] == headings[1]
    numbers = [sorted(re.findall(r"\d+", text)) for text in prose]
    assert numbers[0] == numbers[1]


def anchor_of(heading: str) -> str:
    """Where a link with ``#`` finds a heading, as GitHub forms it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_what_each_encoding_is_measured_to_do_is_committed() -> None:
    """The lines of docs/positions.md that begin with *Measured*."""
    page = (ROOT / "docs" / "positions.md").read_text(encoding="utf-8")
    lines = [
        " ".join(each.split())
        for each in re.findall(r"\*Measured\*: .+?\(finding", page, flags=re.S)
    ]

    def copies(study: str, pe: str) -> str:
        return f"{evidence.mean(evidence.reaches(study, 'copy', pe)).mean:.1f}"

    def right(study: str, pe: str) -> str:
        return f"{evidence.mean(evidence.exact_match(study, 'copy', pe)).mean:.3f}"

    found = [re.findall(r"\d+\.\d+", line) for line in lines]
    assert found == [
        [copies("length", "learned")],
        *([copies("length", pe), copies("cross", f"{pe}_cross")] for pe in ("shaw", "rotary")),
        [right("length", "alibi"), right("cross", "alibi_cross")],
        [copies("length", "t5"), copies("cross", "t5_cross")],
    ]


def test_every_link_leads_somewhere() -> None:
    """To a file that is there, and to a heading of the page."""
    parts = ("*.md", "docs/*.md", "data/*.md", "benchmarks/**/*.md")
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
    rows = re.findall(r"^\| (`.+?) \| .+ \| .+ \| ([^|]+ min)\b[^|]* \|$", page, flags=re.M)
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
    """Of sequences, number words and SCAN as they are configured, with seed 0."""
    page = (ROOT / "docs" / "comparing.md").read_text(encoding="utf-8")
    found = {}
    for name in ("reverse", "number_words", "scan"):
        task = build_task(configure(f"task={name}"))
        data, (low, high) = task.dataset(0), task.trained_lengths
        trained = set(data["train"]["source"])
        test = [row for row in data["test"] if low <= row["length"] <= high]
        seen = [row["length"] for row in test if row["source"] in trained]
        found[name] = f"{len(seen) / len(test):.0%}"
        if name == "reverse":
            assert "nearly all no longer than 4" in page
            assert sum(length <= 4 for length in seen) > 0.95 * len(seen)
    assert f"1–10 symbols {found['reverse']} do" in page and found["scan"] == "0%"
    assert f"of the number words {found['number_words']}, of SCAN" in page


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
