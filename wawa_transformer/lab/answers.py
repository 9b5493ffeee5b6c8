"""What a study answers, in sentences; each can be wrong, so each is held by a test."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from wawa_transformer.lab.conditions import (
    Judged,
    Measure,
    Values,
    ahead,
    over_sentences,
)
from wawa_transformer.lab.intervals import (
    CONFIDENCE,
    Estimate,
    estimate,
    paired_difference,
    sampling_interval,
    verdict,
)
from wawa_transformer.lab.rules import Outcome, Rule, headline

VERDICTS = {
    "better": "better",
    "worse": "worse",
    "mixed": "better in one, worse in another",
    "unclear": "not shown to differ",
}


def in_words(judged: Sequence[Judged]) -> str:
    """The verdicts of one task in a sentence, with what they rest on."""
    if not judged:
        return "No pair has been finished yet."
    parts = []
    for key, words in VERDICTS.items():
        found = [each for each in judged if each.verdict == key]
        named = [f"{e.a} than {e.b} ({e.by})" if e.by else e.a for e in found]
        parts += [f"{words}: {'; '.join(named)}"] if found else []
    sentence = ". ".join(f"{part[0].upper()}{part[1:]}" for part in parts)
    corrected = f", corrected for {len(judged)} comparisons" if len(judged) > 1 else ""
    unread = [each.a for each in judged if each.unread]
    longer = (
        f" Longer lengths are not read where one of a pair has not learned the trained ones: "
        f"{'; '.join(unread)}."
        if unread
        else ""
    )
    return f"{sentence}. (95% intervals{corrected}.){longer}"


def label(pe: str, settings: str) -> str:
    """The name for a verdict: with the initial scale wherever one was chosen, since it decides."""
    scales = [setting for setting in settings.split(", ") if setting.startswith("init_std")]
    return f"{pe} ({', '.join(scales)})" if scales else pe


def first_and_last(
    what: str,
    measure: Measure,
    values: Values,
    labels: Mapping[str, str],
    ceiling: tuple[float, float] | None = None,
) -> tuple[bool, str]:
    """Whether the first and the last encoding differ, and the sentence that says so.

    They were picked as the largest of all differences, so with many encodings their 95% interval
    excludes zero by chance. The headline asks for more: Bonferroni's interval over all pairs.
    """
    estimates = {pe: estimate(seeds.values()) for pe, seeds in values.items()}
    ranked = sorted(estimates, key=lambda pe: estimates[pe].mean, reverse=measure.higher_is_better)
    named = ranked if len(ranked) <= 4 else [ranked[0], ranked[-1]]
    shown = (f"{labels[pe]} {estimates[pe]:{measure.form}} (n={estimates[pe].n})" for pe in named)
    answer = f"{what}: {', '.join(shown)}. "
    differs = False
    if len(ranked) == 1:
        answer += "No other encoding has finished a run."
    else:
        first, last = ranked[0], ranked[-1]
        difference = paired_difference(values[first], values[last])
        answer += verdict(difference, labels[first], labels[last], measure.higher_is_better)
        pairs = math.comb(len(ranked), 2)
        differs = paired_difference(values[first], values[last], of=pairs).excludes_zero
        if difference.excludes_zero and not differs:
            answer += f" As the largest of {pairs} differences it may be chance: the interval "
            answer += "corrected for picking it (Bonferroni) includes zero."
    return differs, answer + (not_above(ceiling, estimates, labels) if ceiling else "")


def not_above(
    ceiling: tuple[float, float], estimates: Mapping[str, Estimate], labels: Mapping[str, str]
) -> str:
    """The encodings whose mean is not above the ceiling by more than chance, in a sentence."""
    mean, standard_error = ceiling
    splits = min(value.n for value in estimates.values())
    chance = sampling_interval(standard_error, splits)
    blind = [labels[pe] for pe, value in estimates.items() if value.mean <= mean + chance]
    if not blind:
        return ""
    return (
        f" Not above {mean:.3f}, the most that any model without positions can reach on average, "
        f"by more than chance explains on {splits} test split{'s' if splits > 1 else ''} "
        f"({CONFIDENCE:.0%}: {chance:.3f}): {', '.join(blind)}."
    )


def lead(
    tasks: Sequence[dict[str, Any]],
    rule: Rule | None = None,
    outcomes: Sequence[Outcome] = (),
    missing: int = 0,
) -> str:
    """The answer in one sentence: the outcome by the study's rule, where there is one."""
    if not tasks:
        return "No run has finished, so there is no answer yet."
    if rule:
        return headline(rule, outcomes, missing)
    if any(task["judged"] for task in tasks):
        parts = []
        for key, words in VERDICTS.items():
            counts = {t["name"]: [e.verdict for e in t["judged"]].count(key) for t in tasks}
            found = [f"{counts[t['name']]} of {len(t['judged'])} on {t['name']}" for t in tasks
                     if counts[t["name"]]]  # fmt: skip
            parts += [f"{words} {', '.join(found)}"] if found else []
        sentence = "; ".join(parts)
        return f"Each encoding against the one it is compared with: {sentence}."
    differing = ", ".join(task["name"] for task in tasks if task["differs"])
    others = ", ".join(task["name"] for task in tasks if not task["differs"])
    parts = [f"the encoding makes a difference on {differing}"] if differing else []
    parts += [f"no difference between encodings is shown on {others}"] if others else []
    beyond = ", ".join(task["name"] for task in tasks if task["differs_unseen"])
    parts += [f"beyond the trained lengths it makes a difference on {beyond}"] if beyond else []
    sentence = "; ".join(parts)
    return f"{sentence[0].upper()}{sentence[1:]}."


def highest(tasks: Sequence[Mapping[str, Any]]) -> str:
    """Which encoding leads on each task where they are told apart, and by how much, in a sentence.

    By how much: the means of the first and the last, as in the table under it.
    """
    parts = []
    for task in tasks:
        glance = task["glance"]
        last = [pe for pe in glance["means"] if pe not in glance["best"]]
        if task["differs"] and last:
            mean = glance["means"][glance["best"][0]].mean
            worst = max(last, key=lambda pe: abs(glance["means"][pe].mean - mean))
            best = " and ".join(glance["best"])
            values = f"{glance['cells'][glance['best'][0]]}, against {glance['cells'][worst]}"
            parts.append(f"on {task['name']} {best} ({values} for {worst})")
    return f"First {'; '.join(parts)}." if parts else ""


def told_apart(tests: Sequence[Mapping[str, Any]]) -> str:
    """The pairs that the paired test of every seed tells apart in the same direction, or nothing.

    It asks for two seeds at least, and for a p that stands Bonferroni's correction for all tests.
    """
    found = []
    for a, b in dict.fromkeys((test["a"], test["b"]) for test in tests):
        for better, worse in ((a, b), (b, a)):
            seeds = over_sentences(tests, (better, worse))
            if ahead(seeds, of=len(tests)):
                largest = max(p_value for _, p_value in seeds)
                found.append(f"{better} above {worse} (p ≤ {largest:.4f})")
    if not found:
        return ""
    return f"In the paired test over test sentences, with every seed: {', '.join(found)}."
