"""Summarise the results of each task in numbers and in words."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean, median
from typing import Any

from wawa_transformer.decode.significance import paired_randomisation
from wawa_transformer.decode.translation import bleu_metric
from wawa_transformer.lab.answers import first_and_last, in_words, label, not_above, told_apart
from wawa_transformer.lab.intervals import estimate, verdict
from wawa_transformer.lab.judging import MEASURES, Measured, Values, judge
from wawa_transformer.lab.language import say
from wawa_transformer.lab.results import (
    Pairs,
    Result,
    at_trained,
    by_encoding,
    compared_pairs,
    distinct,
    mean_ceiling,
    reached,
    rests_on_new,
    tested_in,
    was_trained,
)
from wawa_transformer.lab.rules import Rule
from wawa_transformer.train.evaluation import SHOWN

TRANSLATIONS_SHOWN = 8
LEAST_BLEU = 1  # a model with a lower BLEU does not translate, so no encoding is praised


def task_summary(
    name: str,
    results: Sequence[Result],
    declared: Pairs = (),
    rule: Rule | None = None,
    translation: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Compute everything that the report says about one task.

    ``declared`` are the pairs that the study compares, first minus second. The default is that of
    :func:`compared_pairs`. Declared pairs are judged by the measures of the ``rule``, if any.
    ``translation`` is the result of :func:`translations` for the same results.
    """
    by_pe = by_encoding(results)
    ceilings = {row["length"]: row["ceiling"] for r in results for row in r["by_length"]}
    trained = sorted(length for length in ceilings if was_trained(length, results[0]))
    unseen = sorted(length for length in ceilings if trained and length > trained[-1])

    def values_of(read: Callable[[Result], float]) -> Values:
        return {pe: {seed: read(r) for seed, r in seeds.items()} for pe, seeds in by_pe.items()}

    def at_unseen(result: Result, column: str) -> float:
        return fmean(r[column] for r in result["by_length"] if r["length"] in unseen)

    new = rests_on_new(results)
    ceiling, ceiling_of_all = mean_ceiling(results, new), mean_ceiling(results, new=False)
    pairs = compared_pairs(list(by_pe), declared)
    tested = {m.name: values_of(partial(tested_in, m.name)) for m in SHOWN}
    values = tested | {"exact_match": values_of(partial(at_trained, new=new))}
    oracle: Values = {}
    if unseen:
        values["beyond"] = values_of(lambda result: at_unseen(result, "exact_match"))
        values["reach"] = values_of(reached)
        oracle = values_of(lambda result: at_unseen(result, "oracle_exact_match"))
    if translation:
        values["bleu"] = values_of(lambda result: result["translation"]["bleu"])
    tests = translation["tests"] if translation else ()
    measured = Measured(values, trained[-1] if trained else None, ceiling, tests)
    learned = [pe for pe in by_pe if measured.read("reach", pe)]

    rows: list[dict[str, Any]] = [
        {
            "pe": pe,
            "n": len(seeds),
            "exact_match": measured.mean("exact_match", pe),
            "exact_match_of_all": estimate(tested["exact_match"][pe].values()),
            "unseen": measured.mean("beyond", pe) if unseen else None,
            "oracle": estimate(oracle[pe].values()) if unseen else None,
            "reach": measured.mean("reach", pe) if unseen else None,
            "censored": unseen and max(values["reach"][pe].values()) == unseen[-1],
            "interpreted": pe in learned,
            "tested": {name: estimate(each[pe].values()) for name, each in tested.items()},
            "bleu": measured.mean("bleu", pe) if translation else None,
            "cost": _cost(list(seeds.values())),
        }
        for pe, seeds in by_pe.items()
    ]
    labels = {row["pe"]: label(row["pe"], row["cost"]["settings"]) for row in rows}
    trained_range = f"{trained[0]}–{trained[-1]}" if trained else None
    unseen_range = f"{unseen[0]}–{unseen[-1]}" if unseen else None
    if trained:
        sources = say(", new sources", "，新的源") if new else ""
        compared = {
            "exact_match": say(
                f"exact match, trained lengths {trained_range}",
                f"完全匹配率，训练过的长度 {trained_range}",
            )
            + sources
        }
        if unseen:
            compared["beyond"] = say(
                f"exact match, unseen lengths {unseen_range}",
                f"完全匹配率，没见过的长度 {unseen_range}",
            )
            compared["reach"] = str(MEASURES["reach"].words)
    else:
        names = ("bleu", "nll") if translation else ("nll",)
        compared = {name: str(MEASURES[name].words) for name in names}
    differences = []
    for measure, what in compared.items():
        for a, b in pairs:
            difference, known = measured.difference(measure, (a, b)), MEASURES[measure]
            words = verdict(difference, labels[a], labels[b], known.higher_is_better)
            if not measured.read(measure, a, b):
                words = say(
                    "Not interpreted: at least one encoding has not learned the trained lengths.",
                    "不作解读：两种编码没有都学会训练过的长度。",
                )
            row = {"what": what, "a": a, "b": b, "difference": difference, "verdict": words}
            differences.append(row | {"shown": f"{difference:+{known.form}}"})

    differs_unseen, judged = False, None
    if declared:
        measures = dict.fromkeys(compared, 0.0)
        measures.pop("beyond", None)  # reach already measures unseen lengths
        if rule and rule.measures:
            measures = rule.measures
        judged = [judge(pair, measures, measured, of=len(pairs)) for pair in pairs]
        differs, answer = any(each.verdict != "unclear" for each in judged), in_words(judged)
        if ceiling:
            answer += not_above(ceiling, {r["pe"]: r["exact_match"] for r in rows}, labels)
    else:
        measure, what = next(iter(compared.items()))
        differs, answer = first_and_last(what, MEASURES[measure], values[measure], labels, ceiling)
    if not declared and unseen and len(learned) > 1:
        what = say(f"At unseen lengths {unseen_range}", f"在没见过的长度 {unseen_range} 上")
        readable = {pe: values["beyond"][pe] for pe in learned}
        differs_unseen, words = first_and_last(what, MEASURES["beyond"], readable, labels)
        answer += f"{say(' ', '')}{words}" if differs_unseen else ""
    if translation and max(fmean(values["bleu"][pe].values()) for pe in by_pe) < LEAST_BLEU:
        differs = False
        answer += say(
            f" No encoding translates: every mean BLEU is below {LEAST_BLEU}. Train longer.",
            f"没有一种编码会翻译：BLEU 的均值都低于 {LEAST_BLEU}。请训练更久。",
        )
    elif words := told_apart(tests):
        differs, answer = True, f"{answer}{say(' ', '')}{words}"
    first, what = next(iter(compared.items()))
    return {
        "name": name,
        "glance": {"what": what} | _glance(measured, first, list(by_pe)),
        "trained": trained_range,
        "unseen": unseen_range,
        "new": new,
        "overlap": overlap(results, new),
        "ceiling": ceiling[0] if ceiling else None,
        "ceiling_of_all": ceiling_of_all[0] if ceiling_of_all else None,
        "rows": rows,
        "differences": differences,
        "differs": differs,
        "differs_unseen": differs_unseen,
        "judged": judged,
        "measured": measured,
        "answer": answer,
        "translation": translation,
    }


def _glance(measured: Measured, measure: str, encodings: Sequence[str]) -> dict[str, Any]:
    """Compute each encoding's mean in one measure, and find the best."""
    known = MEASURES[measure]
    means = {pe: measured.mean(measure, pe) for pe in encodings}
    pick = max if known.higher_is_better else min
    best = pick(value.mean for value in means.values())
    return {
        "means": means,
        "cells": {
            pe: f"{value.mean:{known.form}}" if value.every_seed_equal else f"{value:{known.form}}"
            for pe, value in means.items()
        },
        "best": [pe for pe, value in means.items() if value.mean == best],
    }


def overlap(results: Sequence[Result], new: bool) -> str:
    """Describe how many test sources are also in the training split."""
    if not all("new" in result["test"] for result in results):
        return say(
            "Some of these runs did not record which of the test's sources are also in the "
            "training split, so the answer counts every source.",
            "有的训练没有记下测试集的哪些源也在训练集里，所以答案计入所有的源。",
        )
    every = ((row, was_trained(row["length"], r)) for r in results for row in r["by_length"])
    rows = [row for row, was in every if was is not False]
    seen = sum(row["examples"] - row["new"]["examples"] for row in rows)
    trained = results[0]["train_max_length"] is not None
    sources = "sources at trained lengths" if trained else "sources"
    yuan = "训练过的长度上的源" if trained else "源"
    if not seen:
        return say(
            f"None of the test's {sources} is in the training split.",
            f"测试集里{yuan}都不在训练集里。",
        )
    share = f"{seen / sum(row['examples'] for row in rows):.1%}"
    does = say("does not count them", "不计它们") if new else say("counts them", "计入它们")
    return say(
        f"{share} of the test's {sources} are also in the training split; the answer {does}.",
        f"测试集里{yuan}有 {share} 也在训练集里；答案{does}。",
    )


def _cost(results: Sequence[Result]) -> dict[str, Any]:
    """Summarise the cost of one encoding's runs as medians over seeds."""
    names = (
        "parameters", "flops_per_step", "mfu", "tokens_per_second", "seconds",
        "peak_memory_mb",
    )  # fmt: skip
    known = {name: [r[name] for r in results if r.get(name) is not None] for name in names}
    settings = (", ".join(f"{k} {v}" for k, v in r["settings"]["pe"].items()) for r in results)
    return {
        **{name: median(values) if values else None for name, values in known.items()},
        "device": distinct(result["device"] for result in results),
        "settings": distinct(settings),
    }


def translations(
    results: Sequence[Result], declared: Pairs = (), rule: Rule | None = None
) -> dict[str, Any] | None:
    """Collect the BLEU scores, paired tests and sample translations of one task.

    The samples are the same sentences, translated with every encoding. None if any of the runs does
    not translate.
    """
    if not all(result["translation"] for result in results):
        return None
    by_pe = by_encoding(results)
    pairs = [*compared_pairs(list(by_pe), declared), *(rule.compared() if rule else ())]
    seeds = sorted({result["seed"] for result in results})
    seed = max(seeds, key=lambda seed: sum(seed in finished for finished in by_pe.values()))
    shown = {pe: finished[seed] for pe, finished in by_pe.items() if seed in finished}
    once: dict[frozenset[str], tuple[str, str]] = {}
    for pair in pairs:
        once.setdefault(frozenset(pair), pair)
    samples = {pe: r["translation"]["samples"][:TRANSLATIONS_SHOWN] for pe, r in shown.items()}
    return {
        "runs": results,
        "signature": distinct(result["translation"]["signature"] for result in results),
        "chrf_signature": distinct(result["translation"]["chrf_signature"] for result in results),
        "tests": [test for seed in seeds for test in _bleu_tests(by_pe, seed, list(once.values()))],
        "seed": seed,
        "samples": [
            {
                "source": alike[0]["source"],
                "reference": alike[0]["reference"],
                "hypotheses": dict(zip(samples, (s["hypothesis"] for s in alike), strict=True)),
            }
            for alike in zip(*samples.values(), strict=True)
        ],
    }


def _bleu_tests(
    by_pe: dict[str, dict[int, Result]], seed: int, pairs: Sequence[tuple[str, str]]
) -> Iterable[dict[str, Any]]:
    """Test each pair's difference in BLEU under one seed."""
    finished = {pe: seeds[seed] for pe, seeds in by_pe.items() if seed in seeds}
    hypotheses = {pe: read_lines(r["run"].translations_file) for pe, r in finished.items()}
    for a, b in (pair for pair in pairs if set(pair) <= finished.keys()):
        # Equal translations need no test: the page says "same translations".
        p = None
        if hypotheses[a] != hypotheses[b]:
            references = read_lines(finished[a]["run"].references_file)
            p = paired_randomisation(
                hypotheses[a], hypotheses[b], references, bleu_metric(references)
            )
        bleu = [finished[pe]["translation"]["bleu"] for pe in (a, b)]
        yield {"seed": seed, "a": a, "b": b, "difference": bleu[0] - bleu[1], "p": p}


def read_lines(path: Path) -> list[str]:
    """Read one sentence per line."""
    # str.splitlines would also split at U+2028.
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
