"""Numbers that pages written by hand quote, from benchmarks/.

Pages with a template are written from the tables, and test_claims.py holds them fresh. Here each
function yields what its page must say, in English; test_docs.py holds the Chinese pages to it.
"""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import evidence
import pandas as pd
import pytest
from conftest import SCRIPTS

from wawa_transformer import Transformer
from wawa_transformer.lab.conditions import Alike, Praise
from wawa_transformer.lab.judging import LEARNED_IN_RANGE, over_sentences

ROOT = SCRIPTS.parent
Quotes = Callable[[], Iterator[str]]
QUOTES: dict[str, Quotes] = {}


def quoted_by(page: str) -> Callable[[Quotes], Quotes]:
    """Register what a page quotes."""

    def register(quotes: Quotes) -> Quotes:
        QUOTES[f"{page} {quotes.__name__}"] = quotes
        return quotes

    return register


def results(name: str) -> dict[str, Any]:
    """What the benchmark wrote."""
    return json.loads((ROOT / "benchmarks" / name / "results.json").read_text(encoding="utf-8"))


def mean(study: str, task: str, pe: str, **part: bool) -> str:
    """Exact match at the trained lengths, or the longer ones, with its interval."""
    found = evidence.mean(evidence.exact_match(study, task, pe, **part))
    return f"{found:.3f}".replace(", all seeds equal", "")


def reach(study: str, pe: str) -> str:
    return f"{evidence.mean(evidence.reaches(study, 'copy', pe)).mean:.1f}"


@quoted_by("README.md")
def answers() -> Iterator[str]:
    for task in ("reverse", "sort"):
        for pe in ("sinusoidal", "none"):
            yield mean("default", task, pe)
    for pe in ("sinusoidal", "randomized"):
        yield mean("length", "copy", pe, unseen=True)
    for pe in ("shaw", "shaw_cross"):
        yield f"{mean('cross', 'copy', pe, unseen=True)} with `{pe}`"
    lost = over_sentences(evidence.sentence_tests("multi30k"), ("sinusoidal", "none"))
    yield f"| {sum(gap for gap, _ in lost) / len(lost):.0f} [BLEU]"
    tests = evidence.sentence_tests("multi30k_encodings")
    gained = [gap for gap, _ in over_sentences(tests, ("shaw_cross", "sinusoidal"))]
    cells = (("multi30k_cross", "shaw_cross"), ("multi30k", "sinusoidal"))
    in_fp32 = [evidence.bleu(study, "multi30k", pe) for study, pe in cells]
    gained += [in_fp32[0][seed] - in_fp32[1][seed] for seed in (0, 1)]
    yield f"`shaw_cross` adds {min(gained):.1f}–{max(gained):.1f}"
    paper = evidence.exact_match("sinusoid_again", "reverse", "sinusoidal")
    for pe in ("linear", "base100"):
        other = evidence.exact_match("sinusoid_again", "reverse", pe)
        yield f"gain {evidence.difference(other, paper, of=2):.3f}"


@quoted_by("docs/speed.md")
def steps() -> Iterator[str]:
    found, sides = results("model"), ("bf16", "torch", "x_transformers", "marian", "mkl", "plain")
    for shape in "TSB":
        ratios = [f"{found[f'{shape}_{side}_over_ours']:.2f}" for side in (*sides, "floor")]
        yield " | ".join((f"| {found[f'{shape}_ours_milliseconds']:,.0f}", *ratios))
    by_mkl = [found[f"{s}_torch_over_ours"] / found[f"{s}_mkl_over_ours"] for s in "TSB"]
    yield "`torch.nn.Transformer` {:.2f}, {:.2f} and {:.2f}.".format(*by_mkl)


@quoted_by("docs/speed.md")
def decoding() -> Iterator[str]:
    found = results("decoding")
    for name, label in (("batch1", "1, greedy"), ("batch32", "32, greedy"), ("beam4", "beam of 4")):
        cells = [f"{label} | {found[f'{name}_ours_milliseconds']:,.0f}"]
        for side in ("marian", "ctranslate2", "plain"):
            ratio = found.get(f"{name}_{side}_over_ours")
            cells.append("–" if ratio is None else f"{ratio:.2f}")
        yield " | ".join(cells)


@quoted_by("docs/speed.md")
def encodings() -> Iterator[str]:
    """With the default study's sequences, and as the length grows."""
    found, sizes = results("cost"), (64, 256, 1024, 2048, 4096)
    over = {n.removesuffix("_over_sinusoidal"): r for n, r in found.items() if n.endswith("dal")}
    ratios = [f"`{name}` {r:.2f}" for name, r in over.items() if not name.startswith("length")]
    assert len(ratios) == 10
    yield ", ".join(ratios)
    took = (found[f"length_{size}_sinusoidal_milliseconds"] for size in sizes)
    yield " | ".join(("| `sinusoidal`", *(f"{time:,.0f} ms" for time in took)))
    names = {name.removeprefix("length_64_") for name in over if name.startswith("length_64_")}
    for kind in {name.removesuffix("_cross") for name in names}:
        both = [name for name in (kind, f"{kind}_cross") if name in names]
        cells = (" / ".join(f"{over[f'length_{n}_{name}']:.1f}" for name in both) for n in sizes)
        yield " | ".join((f"| `{kind}`", *cells))


@quoted_by("docs/training.md")
def bf16() -> Iterator[str]:
    halved = sorted(results("model")[f"{shape}_bf16_over_ours"] for shape in "TSB")
    yield f"{halved[0]:.2f} to {halved[-1]:.2f}"


@quoted_by("docs/translation.md")
def the_published_model() -> Iterator[str]:
    printed = (ROOT / "benchmarks" / "multi30k_wu" / "scores.txt").read_text(encoding="utf-8")
    words = {"last": "last step", "average": "averaged", "greedy": "greedy", "beam": "beam of 5"}
    score = r"([\d.]+ \[[^]]+\])"
    block = rf"checkpoint=(\w+) decode=(\w+).*?^BLEU {score}.*?^BLEU, lowercased {score}"
    found = re.findall(block, printed, flags=re.M | re.S)
    assert len(found) == 4
    for checkpoint, decode, *scores in found:
        yield " | ".join((f"| {words[checkpoint]}", words[decode], *scores))
    best = max(float(lowercased.split()[0]) for *_, lowercased in found)
    yield f"is {41.02 - best:.1f} below the published BLEU"


@quoted_by("docs/positions.md")
def reached() -> Iterator[str]:
    yield f"the reach of the learned table is {reach('length', 'learned')} symbols"
    for pe in ("shaw", "rotary", "t5"):
        yield f"only in self-attention, the reach is {reach('length', pe)}"
        yield f"in cross-attention, the reach is {reach('cross', f'{pe}_cross')}"
    for study, pe in (("length", "alibi"), ("cross", "alibi_cross")):
        yield f"{evidence.mean(evidence.exact_match(study, 'copy', pe)).mean:.3f}"


@quoted_by("docs/comparing.md")
def trained_on() -> Iterator[str]:
    table = pd.read_csv(ROOT / "benchmarks" / "default" / "results.csv")
    seen = table[table["trained"]]
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


@pytest.mark.parametrize("name", QUOTES)
def test_a_page_quotes_what_was_measured(name: str) -> None:
    text = " ".join((ROOT / name.split()[0]).read_text(encoding="utf-8").split())
    missing = [said for said in QUOTES[name]() if said not in text]
    assert not missing


WITHOUT_RULE = {"dropout", "no_dropout", "far", "multi30k_wu"}  # one encoding, or other pairs
SIZED_BEFORE = {"cross_rotation_tasks", "cross_rotation_again"}  # by a size, named before the runs
STUDIES = {path.parent.name for path in (ROOT / "benchmarks").glob("*/report.md")}


@pytest.mark.parametrize("study", sorted(STUDIES - WITHOUT_RULE - SIZED_BEFORE))
def test_no_outcome_depends_on_what_was_chosen_later(study: str) -> None:
    """Without floors and sizes verdicts are the same, but for ``alike``, which needs a size."""
    rule = evidence.rule_of(study)
    assert rule is not None
    tasks = {task: evidence.measured(study, task) for task in rule.tasks}
    said = [outcome.verdict for outcome in rule.decide(tasks)]
    for condition in rule.supported:
        if isinstance(condition, Praise):
            assert condition.floor in (None, LEARNED_IN_RANGE, 30)
            condition.floor = None
    assert [outcome.verdict for outcome in rule.decide(tasks)] == said
    rule.measures = dict.fromkeys(rule.measures, 0.0)
    for conditions, decided in ((rule.refuted, "refuted"), (rule.supported, "supported")):
        if any(isinstance(condition, Alike) for condition in conditions):
            said = ["unclear" if verdict == decided else verdict for verdict in said]
    assert [outcome.verdict for outcome in rule.decide(tasks)] == said
