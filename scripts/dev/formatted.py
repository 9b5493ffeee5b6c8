"""Numbers of the committed studies as text, for the templates of docs/."""

import functools
import json
import math
from collections.abc import Iterator
from itertools import combinations, product
from typing import Any

import evidence
import pandas as pd
import yaml
from evidence import BENCHMARKS

from wawa_transformer.lab import claims, comparisons, rules, scores, statistics
from wawa_transformer.lab.scores import SCORES
from wawa_transformer.lab.statistics import Estimate, signed

CLAIMS = yaml.safe_load((BENCHMARKS.parent / "docs" / "claims.yaml").read_text(encoding="utf-8"))
FLOOR = 0.5  # exact match below which the best encoding is not recommended


def number(value: Estimate, score: str, sign: str = "") -> str:
    """Format an estimate with the digits of a score."""
    return f"{value:{sign}z.{SCORES[score].digits}f}"


def em(study: str, task: str, pe: str, score: str = "exact_match") -> str:
    """Format a score's mean; a dash for longer lengths if the trained ones are not learned."""
    if not evidence.scored(study).interpretable(score, task, pe):
        return "–"
    return number(evidence.mean(study, task, pe, score), score)


def median(study: str, task: str, pe: str, score: str) -> str:
    """Format a score's median over seeds, where :func:`em` gives the mean."""
    return f"{evidence.seeds(study, task, pe, score).median():.{SCORES[score].digits}f}"


def diff(study: str, task: str, a: str, b: str, score: str = "exact_match") -> str:
    """Format the paired difference a − b with its 95% interval.

    If the rule of the study compares the pair in this score, the difference is followed by p,
    corrected for all comparisons of the rule.
    """
    gap = number(evidence.gap(study, task, a, b, score), score, "+")
    made = evidence.tested(study).of_pair("differs", task, (a, b)).query("measure == @score")
    return with_p(gap, made["corrected"].item()) if len(made) else gap


def with_p(gap: str, p: float) -> str:
    """Add p to a difference, if there is one."""
    return gap if math.isnan(p) else f"{gap}, {p_value(p)}"


def p_value(p: float) -> str:
    """Format a p with two digits."""
    return "p < 0.0001" if p < 0.0001 else f"p {p:.2g}"


Cell = tuple[str, str, str]  # study, task, encoding


def between(first: Cell, second: Cell, score: str = "exact_match") -> str:
    """Format the difference between two cells of different studies or tasks, paired by seed."""
    one, other = (evidence.seeds(*cell, score) for cell in (first, second))
    return number(statistics.difference(one, other), score, "+")


def interaction(studies: tuple[str, str], task: str, a: str, b: str) -> str:
    """Format how the difference a − b in exact match falls from one study to another."""
    gaps = [
        statistics.gaps(evidence.seeds(study, task, a), evidence.seeds(study, task, b))
        for study in studies
    ]
    return number(statistics.difference(*gaps), "exact_match")


def ceiling(study: str, task: str, sources: str = "new") -> str:
    """Format the ceiling without positions, with the chance of the test splits."""
    most = scores.ceiling(evidence.study(study), task, sources)
    return number(most, "exact_match") if most else "–"


def change(study: str, task: str, pe: str, to: str, score: str = "exact_match") -> str:
    """Format the means of two encodings, and their difference as in :func:`diff`."""
    if not evidence.scored(study).interpretable(score, task, pe, to):
        return "–"
    form = f".{SCORES[score].digits}f"
    before, after = (evidence.mean(study, task, each, score).mean for each in (pe, to))
    return f"{before:{form}} → {after:{form}} ({diff(study, task, to, pe, score)})"


def chosen(study: str, task: str, pe: str) -> tuple[float, int]:
    """Get the learning rate and the warmup that tuning chose."""
    return scores.best_points(evidence.study(study).tuning)[task, pe]


def orders(study: str, task: str) -> Iterator[tuple[str, str, dict[str, int]]]:
    """Count at how many points of the tuning each encoding of a pair is better."""
    tried = evidence.study(study).tuning.query("task == @task")
    return scores.orders_of(
        tried, list(combinations(evidence.encodings(study, task), 2)), "exact_match"
    )


def bleu(pe: str, study: str = "multi30k", task: str = "multi30k") -> list[str]:
    """Format each seed's greedy BLEU."""
    return [f"{value:.1f}" for value in evidence.seeds(study, task, pe, "bleu")]


def bleu_gaps(first: tuple[str, str], second: tuple[str, str]) -> list[str]:
    """Format each seed's BLEU difference between two cells (study, encoding)."""
    one, other = (evidence.seeds(study, "multi30k", pe, "bleu") for study, pe in (first, second))
    return [signed(value, "+z.2f") for value in statistics.gaps(one, other)]


def apart(study: str, a: str, b: str) -> str:
    """Format the BLEU difference a − b for each seed, with p of the paired test over sentences."""
    tests = comparisons.sentence_tests(evidence.study(study), "multi30k", (a, b))
    rows = zip(tests["difference"], tests["p"], strict=True)
    return ", ".join(f"{signed(gap, '+z.2f')} ({p_value(p)})" for gap, p in rows)


def ahead(study: str, task: str, a: str, b: str) -> str:
    """Format the BLEU difference a − b for each seed, and the rule's one corrected p."""
    tests = comparisons.sentence_tests(evidence.study(study), task, (a, b))
    gaps = ", ".join(signed(gap, "+z.1f") for gap in tests["difference"])
    corrected = evidence.tested(study).of_pair("sentences", task, (a, b))["corrected"]
    return with_p(gaps, corrected.item())


def span(study: str, tasks: tuple[str, ...], *pairs: tuple[str, str]) -> str:
    """Format the smallest and the largest BLEU difference of any seed, task and pair."""
    made = evidence.study(study)
    tests = [comparisons.sentence_tests(made, *each) for each in product(tasks, pairs)]
    gaps = pd.concat(tests)["difference"]
    return f"{gaps.min():.1f}–{gaps.max():.1f}"


def more_test(study: str, pe: str, test: str) -> str:
    """Format the BLEU difference on another test for each seed, with p as in :func:`apart`."""
    tests = evidence.evaluated(study, "more_tests").query("pe == @pe and test == @test")
    rows = zip(tests["difference"], tests["p"], strict=True)
    return ", ".join(f"{signed(gap, '+z.1f')} ({p_value(p)})" for gap, p in rows)


def reaches(study: str, task: str, pe: str) -> list[int]:
    """List each seed's reach, in ascending order."""
    return sorted(evidence.seeds(study, task, pe, "reach").astype(int))


def share_of(study: str, task: str, pe: str, length: int) -> str:
    """Format the exact 95% interval of the share of seeds that reach a length."""
    all_seeds = reaches(study, task, pe)
    interval = statistics.share(sum(each >= length for each in all_seeds), len(all_seeds))
    return f"{interval.low:.3f}–{interval.high:.3f}"


@functools.cache  # for both languages
def outcome(study: str) -> tuple[str, dict[str, dict[str, list[str]]]]:
    """Decide a study's rule: the claim, and for each verdict the subjects of each task.

    A subject is an encoding, or the first encoding of a pair.
    """
    rule, groups = rules.rule_of(evidence.study(study)), dict[str, dict[str, list[str]]]()
    assert rule is not None
    for each in claims.decide(rule, evidence.tested(study)):
        case = each.case
        subjects = groups.setdefault(each.verdict, {}).setdefault(case.task, [])
        subjects += [case.pair[0] if case.pair else case.encoding]
    return rule.claim, {word: groups[word] for word in claims.VERDICTS if word in groups}


def lost_to_correction(study: str) -> tuple[int, dict[str, list[str]]]:
    """Name the supported cases whose reach is not past training if corrected for all cases.

    Returns the number of supported cases, and the lost encodings of each task. The p is that of a
    t-test of reach against the longest trained length (Holm, over the cases that are interpreted).
    Seeds of equal reach have no p, and stay.
    """
    made, p = evidence.study(study), {}
    for task in made.tasks:
        _, longest = scores.trained_lengths(made, task) or (0, 0)
        for pe in learners(study, task)[0]:
            p[task, pe] = statistics.estimate(evidence.seeds(study, task, pe, "reach") - longest).p
    corrected = statistics.holm(pd.Series(p))
    supported = outcome(study)[1]["supported"]
    lost = {
        task: [pe for pe in encodings if corrected[task, pe] >= statistics.SIGNIFICANT]
        for task, encodings in supported.items()
    }
    return sum(map(len, supported.values())), {task: pes for task, pes in lost.items() if pes}


def judged(study: str, task: str, kinds: tuple[str, ...]) -> dict[str, list[str]]:
    """Group encodings by the verdict of a study's rule on distances in cross-attention."""
    groups: dict[str, list[str]] = {}
    for pe in kinds:
        word = pair_word(study, task, f"{pe}_cross", pe)
        groups.setdefault("no_difference" if word == "unclear" else word, []).append(pe)
    order = ("better", "worse", "mixed", "no_difference", "unread")
    return {word: groups[word] for word in order if word in groups}


def learners(study: str, task: str) -> tuple[list[str], list[str]]:
    """Divide the encodings into those that learn the trained lengths and the others."""
    every = evidence.encodings(study, task)
    able = [pe for pe in every if evidence.scored(study).interpretable("beyond", task, pe)]
    return able, [pe for pe in every if pe not in able]


def leader(study: str, task: str) -> dict[str, Any]:
    """Find the best encoding beyond the trained lengths, and its lead over the next one.

    The lead's p is corrected for all pairs of encodings that have learned the trained lengths.
    """
    able, _ = learners(study, task)
    best, *others = sorted(able, key=lambda pe: -evidence.mean(study, task, pe, "beyond").mean)
    row: dict[str, Any] = {"best": best, "value": em(study, task, best, "beyond")}
    row["good"] = evidence.mean(study, task, best, "beyond").mean >= FLOOR
    if others:
        asked = [("differs", task, pair) for pair in combinations([best, *others], 2)]
        first = comparisons.compare(
            evidence.scored(study), asked, {"beyond": 0.0}
        ).comparisons.iloc[0]
        lead = number(evidence.gap(study, task, best, others[0], "beyond"), "beyond", "+")
        row |= {"next": others[0], "ahead": first["word"] == "better"}
        row["lead"] = with_p(lead, first["corrected"])
    return row


def of_encoder(study: str, pe: str, column: str) -> str:
    """Format the mean of a column of a study's ``outputs.csv``."""
    rows = evidence.evaluated(study, "outputs").query("pe == @pe")
    return number(statistics.estimate(rows[column]), "exact_match")


def steadiest() -> tuple[str, int]:
    """Correlate, over the runs of encoder_window, steadiness and exact match at unseen lengths."""
    outputs = evidence.evaluated("encoder_window", "outputs").set_index(["pe", "seed"])["cosine"]
    beyond = evidence.scored("encoder_window").frame["beyond"].droplevel("task")
    both = pd.concat([outputs, beyond], axis="columns", join="inner")
    return signed(both.corr(method="spearman").to_numpy()[0, 1], ".2f"), len(both)


def explained(kinds: tuple[str, ...]) -> dict[str, list[str]]:
    """Group encodings by the verdict on whether steady outputs explain a far copy."""
    outputs, groups = evidence.evaluated("encoder_window", "outputs"), dict[str, list[str]]()
    for pe in kinds:
        causal, back, *windows = (
            pair_word("encoder_window", "copy", f"{pe}_{mask}", pe) == "better"
            for mask in ("causal", "anti_causal", "window1", "window2", "window4")
        )
        moved = outputs.query("pe == @pe")["cosine"].mean() < 0.95
        supported = causal and sum(windows) > 1 and moved
        refuted = back or not any(windows)
        word = "refuted" if refuted else "supported" if supported else "unclear"
        groups.setdefault(word, []).append(pe)
    return groups


def pair_word(study: str, task: str, a: str, b: str, test: str = "differs") -> str:
    """Judge a pair by a study's rule: better, worse, mixed, unclear, or unread."""
    return comparisons.verdict(evidence.tested(study), task, (a, b), test) or "unread"


def loss_by_length(study: str, task: str, a: str, b: str, least: int) -> str:
    """Write table rows: length, NLL of ``b``, and ``a`` minus ``b`` for each seed."""
    of_a, of_b = (evidence.by_length(study, task, pe, "nll", least) for pe in (a, b))
    rows = []
    for (length, before), (_, after) in zip(of_b.iterrows(), of_a.iterrows(), strict=True):
        gaps = ", ".join(signed(gap, "+z.3f") for gap in after - before)
        rows.append(f"| {length} | {before.mean():.3f} | {gaps} |")
    return "\n".join(rows)


def bleu_by_length(study: str, task: str, encodings: tuple[str, ...], least: int) -> str:
    """Write table rows: length, and each encoding's BLEU and NLL, means over seeds."""
    tables = {
        pe: [evidence.by_length(study, task, pe, column, least) for column in ("bleu", "nll")]
        for pe in encodings
    }
    rows = []
    for length in tables[encodings[0]][1].index:
        means = [[table.loc[length].mean() for table in tables[pe]] for pe in encodings]
        cells = " | ".join(f"{score:.1f} ({nll:.3f})" for score, nll in means)
        rows.append(f"| {length} | {cells} |")
    return "\n".join(rows)


def still_improving(study: str, task: str, encodings: tuple[str, ...]) -> tuple[int, int]:
    """Count the runs that were still improving at the end, and all runs."""
    runs = scores.learning(evidence.study(study)).loc[task].loc[list(encodings)]
    return int(runs["improving"].sum()), len(runs)


def setting(study: str, task: str) -> str:
    """Write table cells: the trained and the longest tested length, seeds, layers and width."""
    made = evidence.study(study)
    rows = made.results.query("task == @task")
    low, high = scores.trained_lengths(made, task) or (0, 0)
    layers, width = (made.config["model"][key] for key in ("num_layers", "d_model"))
    lengths = f"{low}–{high} → {rows['length'].max()}"
    return f"{lengths} | {rows['seed'].nunique()} | {layers} + {layers}, {width}"


def speed(name: str) -> str:
    """Format a number of ``benchmarks/table`` to two digits."""
    results = json.loads((BENCHMARKS / "table" / "results.json").read_text(encoding="utf-8"))
    return f"{results[name]:.2g}"


def checked(topic: str, name: str) -> str:
    """Get a number of docs/claims.yaml, which a test recomputes."""
    [numbers] = [entry["numbers"] for entry in CLAIMS["topics"] if entry["topic"] == topic]
    return numbers[name]
