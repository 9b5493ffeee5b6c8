"""The sentences that answer a study's question; each has a test."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from wawa_transformer.lab.intervals import (
    CONFIDENCE,
    Estimate,
    estimate,
    paired_difference,
    sampling_interval,
    verdict,
)
from wawa_transformer.lab.judging import Judged, Measure, Values, ahead, over_sentences
from wawa_transformer.lab.language import Words, encoding_name, joined, listed, say
from wawa_transformer.lab.rules import Outcome, Rule, headline

VERDICTS = {
    "better": Words("better", "更好"),
    "worse": Words("worse", "更差"),
    "mixed": Words("better in one, worse in another", "一项更好，另一项更差"),
    "unclear": Words("no difference seen", "看不出差别"),
}


def in_words(judged: Sequence[Judged]) -> str:
    """Write the verdicts of one task, with the deciding numbers."""
    if not judged:
        return say("No pair has been finished yet.", "还没有哪一对编码都训练完。")
    parts = []
    for key, words in VERDICTS.items():
        named = [
            pair_name(each) + (say(f" ({each.by})", f"（{each.by}）") if each.by else "")
            for each in judged
            if each.known and each.verdict == key
        ]
        parts += [say(f"{words}: ", f"{words}：") + joined(named)] if named else []
    parts = parts or [say("no pair could be compared", "没有哪一对能比较")]
    sentence = say(". ", "。").join(f"{part[0].upper()}{part[1:]}" for part in parts)
    of = len(judged)
    corrected = say(f", corrected for {of} comparisons", f"，按 {of} 次比较校正") if of > 1 else ""
    unread = joined(pair_name(each) for each in judged if each.unread)
    longer = say(
        f" Longer lengths are not compared if one encoding of a pair has not learned the trained "
        f"lengths: {unread}.",
        f"有的对里，两种编码没有都学会训练过的长度，就不看更长的长度：{unread}。",
    )
    return say(
        f"{sentence}. (95% intervals{corrected}.)", f"{sentence}。（95% 区间{corrected}。）"
    ) + (longer if unread else "")


def pair_name(judged: Judged) -> str:
    """Name the two encodings of a comparison."""
    a, b = encoding_name(judged.a), encoding_name(judged.b)
    return say(f"{a} against {b}", f"{a} 比 {b}")


def label(pe: str, settings: str) -> str:
    """Name an encoding for a verdict, with its initial scale if set.

    The scale of a learned table can decide the comparison.
    """
    scales = [setting for setting in settings.split(", ") if setting.startswith("init_std")]
    return f"{encoding_name(pe)} ({', '.join(scales)})" if scales else encoding_name(pe)


def first_and_last(
    what: str,
    measure: Measure,
    values: Values,
    labels: Mapping[str, str],
    ceiling: tuple[float, float] | None = None,
) -> tuple[bool, str]:
    """Compare the best and the worst encoding of a task.

    Returns True if they differ, and a sentence.

    The best and the worst were picked after the runs, so with many encodings their 95% interval
    may exclude zero by chance. They differ only if the interval corrected for all pairs
    (Bonferroni) excludes zero.
    """
    estimates = {pe: estimate(seeds.values()) for pe, seeds in values.items()}
    ranked = sorted(estimates, key=lambda pe: estimates[pe].mean, reverse=measure.higher_is_better)
    named = ranked if len(ranked) <= 4 else [ranked[0], ranked[-1]]
    shown = listed(
        f"{labels[pe]} {estimates[pe]:{measure.form}} (n={estimates[pe].n})" for pe in named
    )
    answer = say(f"{what}: {shown}. ", f"{what}：{shown}。")
    differs = False
    if len(ranked) == 1:
        answer += say("No other encoding has finished a run.", "没有别的编码训练完。")
    else:
        first, last = ranked[0], ranked[-1]
        difference = paired_difference(values[first], values[last])
        answer += verdict(difference, labels[first], labels[last], measure.higher_is_better)
        pairs = math.comb(len(ranked), 2)
        differs = paired_difference(values[first], values[last], of=pairs).excludes_zero
        if difference.excludes_zero and not differs:
            answer += say(
                f" This is the largest of {pairs} differences and may be chance: the interval "
                f"corrected for all comparisons (Bonferroni) includes zero.",
                f"它是 {pairs} 个差异中最大的，可能出于偶然：按比较的次数校正（Bonferroni）后，"
                f"区间包含零。",
            )
    return differs, answer + (not_above(ceiling, estimates, labels) if ceiling else "")


def not_above(
    ceiling: tuple[float, float], estimates: Mapping[str, Estimate], labels: Mapping[str, str]
) -> str:
    """Name the encodings that are not above the ceiling beyond chance."""
    mean, standard_error = ceiling
    splits = min(value.n for value in estimates.values())
    chance = sampling_interval(standard_error, splits)
    blind = listed(labels[pe] for pe, value in estimates.items() if value.mean <= mean + chance)
    within = f"{CONFIDENCE:.0%}: {chance:.3f}"
    sentence = say(
        f" A model without positions reaches at most {mean:.3f} on average. Not above this ceiling "
        f"by more than chance on {splits} test split{'s' if splits > 1 else ''} "
        f"({within}): {blind}.",
        f"没有位置的模型平均至多达到 {mean:.3f}。不高于它，或高出的部分可以用 {splits} 个测试集上的"
        f"偶然来解释（{within}）：{blind}。",
    )
    return sentence if blind else ""


def lead(
    tasks: Sequence[dict[str, Any]],
    rule: Rule | None = None,
    outcomes: Sequence[Outcome] = (),
    missing: int = 0,
) -> str:
    """Write the study's answer as one sentence.

    With a rule, the answer is the rule's outcome. Otherwise it names the tasks on which the
    encodings differ.
    """
    if not tasks:
        return say(
            "No run has finished, so there is no answer yet.", "还没有训练完一次，所以还没有答案。"
        )
    if rule:
        return headline(rule, outcomes, missing)
    if len({pe for task in tasks for pe in task["glance"]["means"]}) == 1:
        return say(
            "Only one encoding was trained, so nothing is compared.",
            "只训练了一种编码，无从比较。",
        )
    differing = listed(task["name"] for task in tasks if task["differs"])
    others = listed(task["name"] for task in tasks if not task["differs"])
    beyond = listed(task["name"] for task in tasks if task["differs_unseen"])
    affected = say(
        f"the encoding makes a difference on {differing}", f"在 {differing} 上，编码有影响"
    )
    alike = say(
        f"we saw no difference between encodings on {others}",
        f"在 {others} 上，看不出编码之间的差别",
    )
    longer = say(
        f"beyond the trained lengths the encoding makes a difference on {beyond}",
        f"超出训练过的长度时，编码在 {beyond} 上有影响",
    )
    parts = ((differing, affected), (others, alike), (beyond, longer))
    sentence = joined(words for names, words in parts if names)
    return say(f"{sentence[0].upper()}{sentence[1:]}.", f"{sentence}。")


def highest(tasks: Sequence[Mapping[str, Any]]) -> str:
    """Name the best encoding of each task on which the encodings differ.

    The sentence has the means of the best and the worst encoding, as in the report's first table.
    """
    parts = []
    for task in tasks:
        glance = task["glance"]
        last = [pe for pe in glance["means"] if pe not in glance["best"]]
        if task["differs"] and last:
            mean = glance["means"][glance["best"][0]].mean
            worst = max(last, key=lambda pe: abs(glance["means"][pe].mean - mean))
            best = say(" and ", " 和 ").join(map(encoding_name, glance["best"]))
            value, other = (glance["cells"][pe] for pe in (glance["best"][0], worst))
            worst = encoding_name(worst)
            parts.append(
                say(
                    f"on {task['name']}: {best} ({value}; {worst} has {other})",
                    f"{task['name']} 上最好的是 {best}（{value}，{worst} 为 {other}）",
                )
            )
    sentence = joined(parts)
    return say(f"Best {sentence}.", f"{sentence}。") if parts else ""


def told_apart(tests: Sequence[Mapping[str, Any]]) -> str:
    """Name the pairs that differ in the paired test over sentences.

    A pair differs if the test has the same direction with every seed, there are at least two seeds,
    and every p is significant after correction for all tests (Bonferroni).
    """
    found = []
    for a, b in dict.fromkeys((test["a"], test["b"]) for test in tests):
        for pair in ((a, b), (b, a)):
            seeds = over_sentences(tests, pair)
            if ahead(seeds, of=len(tests)):
                largest = max(p_value for _, p_value in seeds)
                better, worse = map(encoding_name, pair)
                found.append(
                    say(
                        f"{better} above {worse} (p ≤ {largest:.4f})",
                        f"{better} 高于 {worse}（p ≤ {largest:.4f}）",
                    )
                )
    if not found:
        return ""
    sentence = listed(found)
    return say(
        f"In the paired test over test sentences, with every seed: {sentence}.",
        f"逐句做配对检验，每个种子都得出：{sentence}。",
    )
