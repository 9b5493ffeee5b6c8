"""What the pages say of committed results in words of their own, from benchmarks/."""

from __future__ import annotations

import dataclasses
import functools
import json
import re

import evidence
import numpy as np
import pandas as pd
import pytest
import scipy.stats
from conftest import SCRIPTS

from wawa_transformer.lab.conditions import LEARNED_IN_RANGE, Alike, Praise, over_sentences
from wawa_transformer.lab.intervals import Estimate

ROOT = SCRIPTS.parent


def test_findings_on_cross_attention_say_what_was_measured() -> None:
    """Findings 10, 11, 17, 18: each sentence that has no number in it, from benchmarks/."""
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

    unseen = functools.partial(evidence.exact_match, "cross_rotation", "copy", unseen=True)
    queries = evidence.difference(unseen("rotary_query"), unseen("rotary"), 2)
    assert max(abs(queries.low), abs(queries.high)) < 0.06
    for pe in ("rotary_key", "rotary_continued"):
        assert evidence.learned("cross_rotation", "copy", pe)
        assert evidence.difference(unseen(pe), unseen("rotary_cross"), 6).high < 0

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
    four = [
        evidence.exact_match(study, "reverse", pe)
        for study in ("default", "default_tuned")
        for pe in ("learned", "sinusoidal")
    ]
    fall = [
        a - b - (c - d)
        for a, b, c, d in zip(*(map(each.__getitem__, range(5)) for each in four), strict=True)
    ]
    low, high = scipy.stats.ttest_1samp(fall, 0).confidence_interval()
    page = (ROOT / "docs" / "findings" / "15-learning-rate.md").read_text(encoding="utf-8")
    said = f"the lead falls by {np.mean(fall):.3f} ± {(high - low) / 2:.3f} (the same five seeds"
    assert low > 0 and said in " ".join(page.split())
    rates = {each["name"]: each for each in evidence.rates("default_tuned")}
    for task in ("letters", "reverse"):
        for pe in ("sinusoidal", "learned"):
            assert f"{pe} is better than no encoding at each of 10 points." in rates[task]["orders"]
    assert [task for task, each in rates.items() if each["at_edge"]] == ["letters"]
    assert rates["reverse"]["chosen"]["sinusoidal"].lr > 0.002, "the default's"
    tried = pd.read_csv(ROOT / "benchmarks" / "default_tuned" / "tuning.csv")
    right = tried[(tried["task"] == "letters") & (tried["pe"] != "none")]
    assert len(tried) == 270 and right["exact_match"].min() == 1

    page = (ROOT / "docs" / "comparing.md").read_text(encoding="utf-8")
    table = pd.read_csv(ROOT / "benchmarks" / "default" / "results.csv")
    seen = table[table["trained"]]
    share = 1 - seen["examples_new"].sum() / seen["examples"].sum()
    assert f"Of the test sources of 1–10 symbols {share:.0%} are" in page
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


STUDIES = sorted(path.parent.name for path in (ROOT / "benchmarks").glob("*/report.md"))
WITHOUT_RULE = {
    "dropout",
    "no_dropout",
    "far",
    "multi30k_wu",
}  # one encoding; other pairs than the rule


BEFORE = {
    "cross_rotation_tasks",
    "cross_rotation_again",
}  # a size decides, and was written before the runs


@pytest.mark.parametrize("study", sorted({*STUDIES} - WITHOUT_RULE - BEFORE))
def test_no_outcome_depends_on_what_was_chosen_later(study: str) -> None:
    """Without floors and sizes verdicts are the same, but for ``alike``, which needs a size."""
    rule = evidence.rule_of(study)
    assert rule is not None
    tasks = {task: evidence.measured(study, task) for task in rule.tasks}
    said = [outcome.verdict for outcome in rule.decide(tasks)]
    assert said == [outcome.verdict for outcome in evidence.outcomes(study)]
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


def test_the_outcomes_are_those_that_the_findings_speak_of() -> None:
    """Findings 1, 2, 5, 6, 10 to 14, 16 to 19: what each says of its rule in words of its own."""
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
    assert said["cross_rotation"] == said["mask_full"] == {"": "supported"}
    ten = {"copy": "unclear", "addition_reversed": "unclear"}
    ten |= {"reverse": "supported", "sort": "supported"}
    assert said["mask_causal_ten"] == ten
    assert said["mask_causal"][""] == ten["copy"]
    assert said["mask_causal_tasks"].items() <= ten.items()
    assert said["mask_full_ten"] == dict.fromkeys(("copy", "reverse"), "supported")
    assert said["mask_full_sort"] == {"": "supported"}
    assert said["mask_unique"] == {"copy_unique": "supported", "copy": "refuted"}
    farther = functools.partial(evidence.exact_match, "mask_causal_ten", unseen=True)
    leads = {
        (task, pe): evidence.difference(farther(task, "none"), farther(task, pe), 5)
        for task in ("copy", "reverse", "sort")
        for pe in ("sinusoidal", "rotary", "alibi", "t5", "shaw")
    }
    relative = ("rotary", "alibi", "t5", "shaw")
    behind = [*(("copy", pe) for pe in relative), ("reverse", "alibi")]
    assert [pair for pair, lead in leads.items() if lead.high < 0] == behind
    assert [pair for pair, lead in leads.items() if lead.low <= 0 <= lead.high] == [
        ("reverse", "t5")
    ]
    unclear = dict.fromkeys(("duplicate", "reverse"), "unclear")
    assert said["cross_rotation_tasks"] == {"letters": "supported"} | unclear
    assert said["cross_rotation_again"] == help_on
    assert set(said["addition_hundred"].values()) == {"supported", "refuted"}
    assert said["addition_hundred"]["coupled_cross"] == "supported"
    adding = ("addition_hundred", "addition_reversed")
    known = evidence.exact_match(*adding, "coupled")
    reach = evidence.reaches(*adding, "coupled")
    assert sorted(reach[seed] for seed in known if known[seed] >= 0.95) == [10, 11, 12, 12]
    assert max(evidence.exact_match(*adding, "abacus").values()) < 0.95
    assert max(v for pe in ("coupled", "abacus", "shaw_cross", "sinusoidal")
               for v in evidence.reaches(*adding, pe).values()) == 12  # fmt: skip
    assert said["origin_mix"] == {"copy": "refuted", "reverse": "unclear"}
    assert said["ontanon"] == {"reverse": "supported", "duplicate": "unclear"}
    assert said["ontanon_addition"] == {"addition_aligned": "unclear"}
    assert said["scan_cross"] == {"transformer_xl": "supported", "transformer_xl_cross": "refuted"}
    for pe in ("shaw_cross_end", "shifted_end"):
        assert said["origin"][f"{pe} on reverse"] == "supported"
        assert said["origin"][f"{pe} on copy"] == "refuted"
    assert set(said["sinusoid_again"].values()) == {"supported"}
    open_ = dict.fromkeys(("learned", "rotary", "t5"), "unclear")
    assert said["multi30k_encodings"] == open_ | {"none": "refuted", "shaw_cross": "supported"}


def test_an_encoding_costs_what_the_benchmark_wrote() -> None:
    """In docs/speed.md: with the default study's sequences, and as the length grows."""
    found = json.loads((ROOT / "benchmarks" / "cost" / "results.json").read_text("utf-8"))
    over = {n.removesuffix("_over_sinusoidal"): r for n, r in found.items() if n.endswith("dal")}
    ratios = [f"`{name}` {r:.2f}" for name, r in over.items() if not name.startswith("length")]
    assert len(ratios) == 10 and ratios[0].startswith("`learned` ")
    for end, comma in ((".md", ", "), (".zh-CN.md", "、")):
        assert comma.join(ratios) in (ROOT / "docs" / f"speed{end}").read_text("utf-8")

    page = (ROOT / "docs" / "speed.md").read_text(encoding="utf-8")
    sizes = (64, 256, 1024, 2048, 4096)
    times = [found[f"length_{size}_sinusoidal_milliseconds"] for size in sizes]
    table = {"encoding": [f"{size:,}" for size in sizes]}
    table["`sinusoidal`"] = [f"{time:,.0f} ms" for time in times]
    names = {name.removeprefix("length_64_") for name in over if name.startswith("length_64_")}
    for kind in {name.removesuffix("_cross") for name in names}:
        both = [name for name in (kind, f"{kind}_cross") if name in names]
        table[f"`{kind}`"] = [
            " / ".join(f"{over[f'length_{size}_{name}']:.1f}" for name in both) for size in sizes
        ]
    assert len(table) == 2 + 8
    for name, cells in table.items():
        assert f"| {name} | {' | '.join(cells)} |" in page, cells


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
