"""Numbers that pages written by hand quote, from benchmarks/.

Pages with a template are written from the tables, and test_claims.py holds them fresh. Here each
function yields what its page must say, in English; test_docs.py holds the Chinese pages to it.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from types import ModuleType

import evidence
import formatted
import mistakes
import page_seeds
import pandas as pd
import pytest
from speed import cost
from support import SCRIPTS

from wawa_transformer import Transformer
from wawa_transformer.lab import statistics
from wawa_transformer.model import probe, promises

ROOT = SCRIPTS.parent
Quotes = Callable[[], Iterator[str]]
QUOTES = defaultdict[str, list[Quotes]](list)


def quoted_by(page: str) -> Callable[[Quotes], None]:
    """Register what a page quotes."""
    return QUOTES[page].append


def mean(study: str, task: str, pe: str, score: str = "exact_match") -> str:
    """A score's mean with its interval."""
    return f"{evidence.mean(study, task, pe, score):.3f}"


def reach(study: str, pe: str, task: str = "copy") -> float:
    return evidence.mean(study, task, pe, "reach").mean


@quoted_by("README.md")
def answers() -> Iterator[str]:
    for task in ("reverse", "sort"):
        for pe in ("sinusoidal", "none"):
            yield mean("default", task, pe)
    for pe in ("sinusoidal", "randomized"):
        yield mean("length", "copy", pe, "beyond")
    for pe in ("shaw", "shaw_cross"):
        yield f"{mean('cross', 'copy', pe, 'beyond')} with `{pe}`"
    without, there = (
        mean("cross_rotation", "copy", pe, "beyond") for pe in ("rotary", "rotary_cross")
    )
    yield f"RoPE in cross-attention helps, too: {there}, and {without} without"
    lost = evidence.gap("multi30k", "multi30k", "none", "sinusoidal", "bleu").mean
    yield f"falls by {-lost:.0f}."
    cells = (("multi30k_cross", "shaw_cross"), ("multi30k", "sinusoidal"))
    in_fp32 = statistics.gaps(*(evidence.seeds(s, "multi30k", pe, "bleu") for s, pe in cells))
    gain = formatted.span("multi30k_encodings", ("multi30k",), ("shaw_cross", "sinusoidal"))
    yield f"`shaw_cross` adds {gain} to the sinusoid in [bf16]"
    yield f"and {in_fp32.min():.1f}–{in_fp32.max():.1f} in fp32"
    for pe in ("linear", "base100"):
        yield f"gain {evidence.gap('sinusoid_again', 'reverse', pe, 'sinusoidal'):.3f}"
    lost = evidence.gap("sinusoid", "reverse", "slow_half", "sinusoidal")
    yield f"the sinusoid loses {-lost.mean:.3f} ± {lost.half_width:.3f}"


@quoted_by("docs/cross_attention.md")
def published_choices() -> Iterator[str]:
    columns = ("exact_match", "just_beyond", "beyond")
    arms = {
        "cross": ("t5", "t5_cross", "shaw", "shaw_cross"),
        "cross_rotation": (
            "rotary", "rotary_query", "rotary_cross", "rotary_continued"
        ),
        "cross_merged": ("t5gemma2", "merged_rotated"),
        "cross_published": ("larope", "t5gemma_tts", "pope_cross"),
    }  # fmt: skip
    for study, names in arms.items():
        for pe in names:
            yield " | ".join([f"`{pe}`", *(mean(study, "copy", pe, each) for each in columns)])
    yield f"right on {mean('cross', 'copy', 'alibi_cross')} of copies at trained lengths, " + (
        f"{mean('cross', 'copy', 'alibi')} without"
    )
    shaw, cross = (reach("cross", pe) for pe in ("shaw", "shaw_cross"))
    yield f"reach {shaw:.0f} → {cross:.0f} symbols with `shaw_cross`"
    start, end = (reach("origin", pe, "reverse") for pe in ("shaw_cross", "shaw_cross_end"))
    yield f"(`pe.origin=end`) reach {start:.0f} → {end:.0f}"
    for pe in ("t5_cross", "rotary_cross"):
        yield f"copied about {reach('cross', pe):.0f}"
    harm = evidence.gap("scan_cross", "scan", "transformer_xl_cross", "transformer_xl", "beyond")
    yield f"longer commands −{-harm.mean:.3f} ± {harm.half_width:.3f}"
    gain = formatted.span("other_text", ("multi30k_de_en",), ("shaw_cross", "shaw"))
    yield f"`shaw_cross` {gain} BLEU above `shaw`"
    gain = formatted.span("other_text", ("debian_en_fr",), ("rotary_cross", "rotary"))
    yield f"`rotary_cross` {gain} above `rotary`"


@quoted_by("docs/answers/opennmt-py-2599.md")
def on_captions() -> Iterator[str]:
    gain = formatted.span("other_text", ("multi30k_de_en",), ("shaw_cross", "shaw"))
    yield f"gained {gain} BLEU"


@quoted_by("docs/answers/attention_with_linear_biases-5.md")
def alibi_in_cross_attention() -> Iterator[str]:
    alone, cross = (mean("cross", "copy", pe) for pe in ("alibi", "alibi_cross"))
    yield f"from {alone} to {cross} (five seeds)"


@quoted_by("docs/cross_attention.md")
def divided_polar_and_merged() -> Iterator[str]:
    new = "cross_published"
    yield f"`pope` | {mean(new, 'copy', 'pope')} | – | –"
    yield f"exact match {formatted.change(new, 'copy', 'rotary', 'pope')} against `rotary`"
    yield f"`rotary` scores {mean(new, 'copy', 'rotary', 'beyond')} at 11–40 symbols and " + (
        f"`rotary_cross` {mean(new, 'copy', 'rotary_cross', 'beyond')}"
    )
    for study, a, b in (
        (new, "larope", "rotary"),
        (new, "larope", "rotary_cross"),
        (new, "t5gemma_tts", "rotary_cross"),
        (new, "pope_cross", "rotary_cross"),
        ("cross_merged", "merged_rotated", "t5gemma2"),
    ):
        reach = (formatted.change(study, task, b, a, "reach") for task in ("copy", "letters"))
        yield f"| `{a}` | `{b}` | {' | '.join(reach)} |"
    gaps = (
        formatted.diff("cross_merged", task, "merged_rotated", "t5gemma2", "just_beyond")
        for task in ("copy", "letters")
    )
    yield f"better on 11–15 symbols: {next(gaps)} on copy and {next(gaps)} on letters against"
    assert formatted.outcome(new)[1] == {
        "supported": {
            "copy": ["larope", "larope", "t5gemma_tts", "pope_cross"],
            "letters": ["larope", "t5gemma_tts", "pope_cross"],
        },
        "refuted": {"copy": ["pope"], "letters": ["pope"]},
        "unclear": {"letters": ["larope"]},
    }
    assert formatted.outcome("cross_merged")[1] == {"supported": {"copy": [""], "letters": [""]}}


@quoted_by("docs/cross_attention.md")
def published_on_reverse_and_duplicate() -> Iterator[str]:
    new, first, merged = "cross_published_tasks", "just_beyond", "cross_merged_tasks"
    yield f"`rotary` is right on {mean(new, 'reverse', 'rotary', first)} of 11–15 symbols"
    for pe, said in (
        ("t5gemma_tts", "is right on {} of sources of 11–15 symbols"),
        ("larope", "is right on {},"),
    ):
        yield f"`{pe}` {said.format(mean(new, 'duplicate', pe, first))}"
        p = formatted.diff(new, "duplicate", pe, "rotary_cross", first).split(", ")[1]
        yield f"({p})"
    yield f"`rotary_cross` on {mean(new, 'duplicate', 'rotary_cross', first)} ("
    yield f"after 1,500 steps ({mean(new, 'duplicate', 'rotary')}), and `larope` has"
    for task, said in (
        ("reverse", "worse on {} at trained lengths"),
        ("duplicate", "better on {}"),
    ):
        change = formatted.change(merged, task, "t5gemma2", "merged_rotated")
        yield f"{said.format(task)}, {change}"
    assert formatted.outcome(new)[1]["supported"] == {"duplicate": ["larope", "t5gemma_tts"]}
    assert formatted.outcome(merged)[1] == {
        "supported": {"duplicate": [""]}, "refuted": {"reverse": [""]},
    }  # fmt: skip


@quoted_by("docs/lab_sheet.md")
def exercises_3_and_4() -> Iterator[str]:
    alone, cross = (mean("cross", "copy", pe) for pe in ("alibi", "alibi_cross"))
    yield f"{cross} ({alone} without)"
    with_positions, without = (
        evidence.seeds("default", "reverse", pe, "exact_match") for pe in ("sinusoidal", "none")
    )
    for seed in (0, 1):
        yield f"| {seed} | {with_positions[seed]:.3f} | "
        yield f" | {without[seed]:.3f} |"


MACHINES = {
    "EPYC without AVX-512": "model/results",
    "EPYC with AVX-512": "model/epyc_avx512",
    "Xeon": "model/xeon",
    "H100": "gpu/model",
}


@quoted_by("docs/speed.md")
def steps() -> Iterator[str]:
    """Rows of the first section, and the matrix products' share of a step."""
    for machine, file in MACHINES.items():
        found = json.loads((evidence.BENCHMARKS / f"{file}.json").read_text())
        fp32 = [found[f"{shape}_torch_over_ours"] for shape in "TSB"]
        yield f"| {machine}, fp32 | {' | '.join(f'{value:.2f}' for value in fp32)} |"
        if f"{machine}, bf16" in (ROOT / "docs" / "speed.md").read_text(encoding="utf-8"):
            slower = [found[f"{shape}_bf16_over_ours"] for shape in "TSB"]
            cells = [f"{value / times:.2f}" for value, times in zip(fp32, slower, strict=True)]
            yield f"| {machine}, bf16 | {' | '.join(cells)} |"
        if machine.startswith("EPYC"):
            yield f"{found['B_floor_over_ours']:.0%}"


@quoted_by("docs/speed.md")
def costs() -> Iterator[str]:
    """Rows of the table, in the order of its columns."""
    found = json.loads((evidence.BENCHMARKS / "cost" / "results.json").read_text())
    columns = ("default", "length_64", "length_256", "length_1024")
    for pe in (name for name in cost.PES if name != "sinusoidal"):
        cells = [
            ", ".join(
                f"{found[key]:.2f}"
                for key in (f"{at}_{pe}_over_sinusoidal", f"{at}_{pe}_cross_over_sinusoidal")
                if key in found
            )
            for at in columns
        ]
        yield f"| `{pe}` | {' | '.join(cells)} |"
    yield " | ".join(f"{found[f'{at}_sinusoidal_milliseconds']:.1f} ms" for at in columns)


def test_an_answer_has_rows_of_the_page() -> None:
    """Each number in a table of docs/answers stands in its row of docs/cross_attention.md."""
    page = (ROOT / "docs" / "cross_attention.md").read_text(encoding="utf-8")
    for answer in ROOT.glob("docs/answers/*.md"):
        rows = [each for each in answer.read_text("utf-8").splitlines() if each[:3] == "| `"]
        assert all(row in page for row in rows[1:]), answer.name  # below the names of columns


@quoted_by("docs/translation.md")
def the_published_model() -> Iterator[str]:
    table = evidence.evaluated("multi30k_wu", "scores")
    words = {"last": "last step", "average": "averaged", "greedy": "greedy", "beam": "beam of 5"}
    for row in table.to_dict("records"):
        cells = [f"| {words[row['checkpoint']]}", words[row["decode"]]]
        for name in ("bleu", "lowercased"):
            cells.append(f"{row[name]} [{row[f'{name}_low']}, {row[f'{name}_high']}]")
        yield " | ".join(cells)
    yield f"is {41.02 - table['lowercased'].max():.1f} below the published BLEU"


@quoted_by("docs/positions.md")
def reached() -> Iterator[str]:
    yield f"the reach of the learned table is {reach('length', 'learned'):.1f} symbols"
    for pe in ("shaw", "rotary", "t5"):
        yield f"only in self-attention, the reach is {reach('cross', pe):.1f}"
        yield f"in cross-attention, the reach is {reach('cross', f'{pe}_cross'):.1f}"
    for pe in ("alibi", "alibi_cross"):
        yield f"{evidence.mean('cross', 'copy', pe).mean:.3f}"


@quoted_by("docs/does_not_learn.md")
def what_it_should_look_like() -> Iterator[str]:
    for task, longer in (("letters", "cross"), ("reverse", "cross"), ("sort", "length")):
        for name, step in (("default", 100), ("default", 500), (longer, 1500)):
            of = f"task == {task!r} and pe == 'sinusoidal'"
            curve = evidence.study(name).curves.query(f"{of} and step == {step}")
            cells = [
                f"{curve[each].mean():.3f}" for each in ("nll", "token_accuracy", "exact_match")
            ]
            lengths = evidence.study(name).results.query(of).groupby("length")["exact_match"].mean()
            if step > 100:  # the tests are after the last step
                cells += [f"{lengths[n]:.3f}" for n in (5, 10, 11, 15)]
            yield f"| {task} | {step:,} | {' | '.join(cells)} |"


@quoted_by("docs/does_not_learn.md")
def what_each_mistake_looks_like() -> Iterator[str]:
    table = pd.read_csv(mistakes.TABLE)
    for name, rows in table.groupby("mistake"):
        after = rows.groupby("step").mean(numeric_only=True)
        cells = [f"{after['loss'][step]:.3f}" for step in mistakes.MEASURED]
        cells += [
            f"{after[each][500]:.3f}" for each in ("token_accuracy", "exact_match", "changed")
        ]
        found = {*rows["found"].dropna()} or {"nothing"}
        yield f"| {name} | {' | '.join(cells)} | {found.pop()} |"


def test_every_mistake_of_the_page_can_be_made() -> None:
    """Each edit finds its line in the package, and the pages show the line before and after."""
    pages = [path.read_text(encoding="utf-8") for path in ROOT.glob("docs/does_not_learn*.md")]
    for file, right, wrong in (edit for edits in mistakes.EDITS.values() for edit in edits):
        assert (ROOT / "wawa_transformer" / file).read_text(encoding="utf-8").count(right) == 1
        assert all(right in page and wrong in page for page in pages)


def test_every_property_that_the_page_names_is_checked() -> None:
    """That it finds the mistakes of a mask, a cache and positions, tests/core holds."""
    found = pd.read_csv(mistakes.TABLE)["found"].dropna().str.split("; ")
    assert {*sum(found, [])} <= {*promises.REMEDIES, probe.ORDER}


def test_a_mistake_that_is_kept_is_said_to_be(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The page's command does nothing where the table is whole, and says so."""
    monkeypatch.setattr(sys, "argv", ["mistakes.py"])
    mistakes.main()
    assert "no causal mask 0: kept" in capsys.readouterr().out


@pytest.mark.parametrize("script", [mistakes, page_seeds])
def test_a_script_of_a_page_has_a_help(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["script", "--help"])
    with pytest.raises(SystemExit, match="^0$"):
        script.main()


@quoted_by("docs/comparing.md")
def trained_on() -> Iterator[str]:
    table = evidence.study("default").results
    seen = table[table["trained"].eq(True)]
    share = 1 - seen["examples_new"].sum() / seen["examples"].sum()
    yield f"Of the test sources of 1–10 symbols {share:.0%} are"


@quoted_by("docs/scaling.md")
def arithmetic() -> Iterator[str]:
    """What follows from the model's own size and the card's."""
    model = Transformer(16_000, 16_000, seed=0)
    parts = (model, model.encoder_layers, model.decoder_layers, model.output)
    whole, *used = (sum(p.numel() for p in part.parameters()) for part in parts)
    step, gradients = 32_768 * 6 * sum(used), 4 * whole
    compute = 1000 * step / (989e12 / 2)

    def summed(cards: int, rate: float) -> float:
        return 1000 * 2 * (cards - 1) / cards * gradients / rate

    yield f"{whole / 1e6:.1f} M parameters"
    yield "encoder {:.1f} M + decoder {:.1f} M + output {:.1f} M".format(*(n / 1e6 for n in used))
    yield f"| {step / 32_768 / 1e6:.0f} MFLOP |"
    yield f"| {step / 1e12:.1f} TFLOP |"
    yield f"| {compute:.1f} ms |"
    yield f"| {16 * whole / 1e9:.1f} GB |"
    yield f"| {32_768 * 16_000 * 4 / 1e9:.1f} GB |"
    yield f"| {gradients / 1e6:.0f} MB |"
    yield f"from each card, {summed(8, 450e9):.1f} ms"
    yield f"8 × 1.3 = {8 * 1.3:.0f} ms beside {compute:.0f} ms"
    yield f"÷ 50 GB/s = {summed(64, 50e9):.0f} ms"
    yield f"{64 * 65_536 / 1e6:.1f} million a step"
    yield f"{compute / 64:.2f} ms of work for {summed(64, 50e9):.0f} ms of sums"


@pytest.mark.parametrize("page", QUOTES)
def test_a_page_quotes_what_was_measured(page: str) -> None:
    text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
    assert [said for quotes in QUOTES[page] for said in quotes() if said not in text] == []
