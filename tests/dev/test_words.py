"""Sentences of the pages that were false once: each is computed, and the false one stays away."""

import re
from pathlib import Path

import evidence
import formatted
import pandas as pd
import pytest
import torch

from wawa_transformer import Transformer
from wawa_transformer.common import EOS
from wawa_transformer.positional.base import Encoding, Positions
from wawa_transformer.positional.sinusoid_designs import SinusoidDesign

ROOT = Path(__file__).parents[2]
SIZES = {"d_model": 64, "num_layers": 1, "num_heads": 4, "d_ff": 128, "dropout": 0.0, "seed": 0}
PAGES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in (*ROOT.glob("README*.md"), *ROOT.glob("docs/**/*.md"))
}


def said(page: str) -> str:
    """A page on one line."""
    return " ".join(PAGES[page].split())


def finding(number: int, end: str = ".md") -> str:
    """The page of one finding, on one line."""
    name = rf"docs/findings/{number:02d}-[\w-]+{re.escape(end)}"
    [page] = (page for page in PAGES if re.fullmatch(name, page))
    return said(page)


def mean(study: str, task: str, pe: str, *score: str) -> str:
    """Mean exact match, or another score, as pages print it."""
    return f"{evidence.mean(study, task, pe, *score).mean:.3f}"


class Integer(Encoding):
    """The position itself, added to every dimension."""

    def embed(self, x: torch.Tensor, positions: Positions) -> torch.Tensor:
        return x + positions.ids[:, 0, :, None]  # (1,S) -> (1,S,1)


@pytest.mark.parametrize(("norm", "invisible"), [("pre", True), ("post", False)])
def test_an_added_integer_is_invisible_to_pre_norm_and_loud_with_post_norm(
    norm: str, invisible: bool
) -> None:
    """The first lesson of docs/positions.md, on the logits of an untrained model."""
    model = Transformer(20, 20, pe="none", norm=norm, **SIZES).eval()  # type: ignore[arg-type]
    source = torch.randint(3, 20, (4, 10), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        without = model(source, source)
        model.src_position = Integer(model.src_position.context)
        model.tgt_position = Integer(model.tgt_position.context)
        moved = (model(source, source) - without).abs().max().item()
    assert moved < 1e-4 if invisible else moved > 1


def test_an_end_symbol_tells_a_sequence_from_its_mirror() -> None:
    """ALiBi: alike without EOS, different with it, and reversed nearly without a mistake."""
    model = Transformer(20, 20, pe="alibi", **SIZES).eval()  # type: ignore[arg-type]
    source = torch.tensor([[5, 6, 7, 8]])
    ended = torch.tensor([[5, 6, 7, 8, EOS], [8, 7, 6, 5, EOS]])
    with torch.no_grad():
        memory, mirror = model.encode(source), model.encode(source.flip(1))
        torch.testing.assert_close(memory, mirror.flip(1))
        memory, mirror = model.encode(ended)[:, :4]
        assert (memory - mirror.flip(0)).abs().max() > 0.01
    rows = evidence.study("encodings").results.query("task == 'reverse' and pe == 'alibi'")
    table = rows.groupby("length")["exact_match"].mean()
    assert table[10] > 0.99


def test_the_tutorial_praises_nothing_that_is_below_its_floor() -> None:
    """Its rule has a floor, and the outcome on the page follows from the numbers on the page."""
    for page in ("docs/tutorial.md", "docs/tutorial.zh-CN.md"):
        text = PAGES[page]
        [floor] = re.findall(r"\{is: better, floor: ([\d.]+),", text)
        [outcome] = re.findall(r"^(Supported|Refuted|Unclear): trained slopes", text, flags=re.M)
        [mean] = re.findall(r"^\| learned_slopes \| ([\d.]+) ±", text, flags=re.M)
        assert outcome == "Unclear" and float(mean) < float(floor)


def test_who_quotes_the_gain_of_a_study_quotes_its_loss() -> None:
    """Ontañón's setting: reverse and sums gain, duplication loses, and two outcomes are unclear."""
    tasks = {"ontanon": ["reverse", "duplicate"], "ontanon_addition": ["addition_aligned"]}
    found = {study: formatted.outcome(study)[1] for study in tasks}
    assert {study: list(verdicts) for study, verdicts in found.items()} == {
        "ontanon": ["supported", "unclear"], "ontanon_addition": ["unclear"]
    }  # fmt: skip
    assert list(found["ontanon"]["supported"]) == ["reverse"]
    [gain, *others] = (
        [
            mean(study, task, pe, "beyond")
            for pe in ("shaw16", "shaw16_cross")
            if formatted.em(study, task, pe, "beyond") != "–"  # not interpreted
        ]
        for study, names in tasks.items()
        for task in names
    )
    quoting = [page for page in PAGES if all(value in PAGES[page] for value in gain)]
    assert len(quoting) == 2  # finding 12 in both languages
    for page in quoting:
        assert all(value in PAGES[page] for values in others for value in values)
        assert ("未定" if "zh-CN" in page else "unclear") in PAGES[page]


def test_exact_match_says_how_long_was_trained_and_which_sources_count() -> None:
    """Reverse is 0.986 after 500 steps and 1.000 after 1,500; 0.016 or 0.187 without positions."""
    assert mean("default", "reverse", "sinusoidal") == "0.986"
    assert mean("origin", "reverse", "sinusoidal") == "1.000"
    of_all = mean("default", "reverse", "none", "all_sources")
    for page, trained, new in (
        ("README.md", ("500 steps", "1,500 steps"), "new sources"),
        ("README.zh-CN.md", ("500 步", "1,500 步"), "新的源"),
    ):
        assert of_all not in PAGES[page], "one definition: new sources"
        if "0.986" in PAGES[page] and "1.000" in PAGES[page]:
            assert new in PAGES[page] and all(each in PAGES[page] for each in trained)
    assert all("1,500 steps" in finding(number) for number in (4, 10, 11))


def test_the_findings_that_count_new_sources_are_named() -> None:
    """By the tables of the studies that each links; texts and SCAN are named by their kind."""
    [sentence] = re.findall(r"\*\*Sources\.\*\*(.*?) count only", said("docs/findings.md"))
    spans = re.findall(r"(\d+)(?: to (\d+))?", sentence)
    named = {n for first, last in spans for n in range(int(first), int(last or first) + 1)}
    for number in {*range(1, 24)} - {6, 14}:
        studies = re.findall(r"benchmarks/(\w+)/report\.md", finding(number))
        files = [ROOT / "benchmarks" / name / "results.csv" for name in studies]
        first = [pd.read_csv(file, nrows=1).squeeze() for file in files]  # of each table
        if first and all(row.notna()["trained"] for row in first):
            assert (number in named) == all(row.notna().get("examples_new") for row in first)


FALSE = {  # a false sentence of an old page, as a pattern, and why it is false
    "four attempts|p / length": "five follow; 1/9 of ten words is p / (length − 1)",
    "about one of them at most|至多只能答对其中之一": "EOS tells a sequence from its mirror",
    "tell(s|ing)? cross-attention nothing": "absolute positions are in the memory",
    "交叉注意力里通常没有位置|不告诉交叉注意力任何": "the same",
    "reaches further on copying has met|Whoever has seen late|those that met late": "shaw_cross",
    "走得更远的，都在训练中|训练时见过靠后位置的(走得远|那些)": "met ten, copies forty",
    "nothing but positions|也只有位置": "on sort a model does without",
    "rained keys for distances are ahead|给每个距离一个可学习的键，": "shaw_cross alone was tried",
    "of a network is a linear map|就是一个线性变换，": "a layer holds nonlinear parts",
    "Four things have|有四件事": "five follow",
    "nothing needs more than two cores or a network|没有什么需要两个以上的核": "Multi30k does",
    "nats per token 0[.]08[56]": "the command prints 0.081",
}


@pytest.mark.parametrize("false", FALSE)
def test_a_false_sentence_is_gone(false: str) -> None:
    """From every page."""
    assert [page for page in PAGES if re.search(false, said(page))] == [], FALSE[false]


def test_configurations_name_the_bands_that_the_code_takes() -> None:
    """Every word that a file of configs/pe offers for ``band``."""
    for path in (ROOT / "configs" / "pe").rglob("*.yaml"):
        for offered in re.findall(r"band: .*#(.*\|.*)$", path.read_text("utf-8"), flags=re.M):
            for band in re.findall(r"\w+", offered):
                SinusoidDesign(64, band=band)


PRIOR = {  # finding -> what stands nearest
    2: ("2408.11382",),
    4: ("Kiyono", "Ruoss", "Kazemnejad"),
    6: ("2010.07174", "Csordás"),
    10: ("2305.20019", "Dubois", "2310.11984", "Ontañón"),
    11: ("2305.20019", "2405.20671", "2405.17399", "2402.09371"),
}


@pytest.mark.parametrize("end", [".md", ".zh-CN.md"])
def test_prior_work_is_cited_where_a_finding_stands(end: str) -> None:
    """And nothing is called new."""
    for number, cited in PRIOR.items():
        assert all(each in finding(number, end) for each in cited), number
    for page, text in PAGES.items():
        if "finding" in page or "README" in page:
            new = r"\b(novel|for the first time|we discover)|首次发现|前所未有"
            assert not re.search(new, text), page
