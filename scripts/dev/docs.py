"""Write what the documentation takes from measurements:  python scripts/dev/docs.py

docs/claims.md from docs/claims.yaml and docs/findings.md from docs/findings.md.jinja, both from the
numbers in benchmarks/; and both in Chinese, from the files whose names say zh-CN. A test fails when
a page is stale.
"""

import argparse
import json
from typing import Any

import evidence
import jinja2
import pandas as pd
import yaml
from evidence import BENCHMARKS

from wawa_transformer.lab.answers import VERDICTS as VERDICTS_OF_PAIRS
from wawa_transformer.lab.conditions import over_sentences
from wawa_transformer.lab.language import LANGUAGES, Words, joined, listed, say, speaking
from wawa_transformer.lab.rules import headline

DOCS = BENCHMARKS.parent / "docs"
CLAIMS = yaml.safe_load((DOCS / "claims.yaml").read_text(encoding="utf-8"))
CHINESE = yaml.safe_load((DOCS / "claims.zh-CN.yaml").read_text(encoding="utf-8"))
VERDICTS = {
    "holds": Words("holds", "成立"),
    "restricted": Words("holds with a restriction", "有条件成立"),
    "fails": Words("does not hold", "不成立"),
    "open": Words("open", "未定"),
}
HEADINGS = {
    "measured": Words("Measured: ", "测得："),
    "corrected": Words("Put right: ", "更正："),
    "changed": Words("Changed: ", "改判："),
}


def em(study: str, task: str, pe: str, **part: Any) -> str:
    """Exact match at the trained lengths, or with ``unseen=True`` at the longer ones."""
    if part.get("unseen") and not evidence.learned(study, task, pe):
        return "–"
    return f"{evidence.mean(evidence.exact_match(study, task, pe, **part)):.3f}"


def middle(study: str, task: str, pe: str, **part: Any) -> str:
    """The median over seeds of what :func:`em` is the mean of."""
    return f"{pd.Series(evidence.exact_match(study, task, pe, **part)).median():.3f}"


def diff(study: str, task: str, a: str, b: str, of: int = 1, **part: Any) -> str:
    """The paired difference a − b in exact match, its interval corrected as one ``of`` several."""
    first, second = (evidence.exact_match(study, task, pe, **part) for pe in (a, b))
    return f"{evidence.difference(first, second, of):+z.3f}"


def ceiling(study: str, task: str, of: str | None = None) -> str:
    """What a model without positions can reach, and what chance adds to it on the seeds' splits."""
    return f"{evidence.ceiling(study, task, of):.3f}"


def chosen(study: str, task: str, pe: str) -> str:
    """The learning rate and the warmup that tuning chose."""
    (found,) = (each["chosen"][pe] for each in evidence.rates(study) if each["name"] == task)
    return f"{found.lr:g}, {found.warmup}"


def orders(study: str, task: str) -> str:
    """Whether the order of each pair depends on a rate that both share."""
    (found,) = (each["orders"] for each in evidence.rates(study) if each["name"] == task)
    return " ".join(found)


def bleu(pe: str, study: str = "multi30k") -> str:
    """Greedy BLEU on Multi30k, each seed's."""
    values = evidence.bleu(study, "multi30k", pe)
    return say(" and ", " 和 ").join(f"{value:.1f}" for _, value in sorted(values.items()))


def reach(study: str, task: str, pe: str) -> str:
    """The longest length with an exact match of one half."""
    if not evidence.learned(study, task, pe):
        return "–"
    return f"{evidence.mean(evidence.reaches(study, task, pe)):.1f}"


def change(study: str, task: str, pe: str, to: str, of: int, in_reach: bool = False) -> str:
    """From one encoding to another: both means, and the paired difference, one ``of`` several."""
    if in_reach and not (evidence.learned(study, task, pe) and evidence.learned(study, task, to)):
        return "–"
    read = evidence.reaches if in_reach else evidence.exact_match
    before, after = (read(study, task, each) for each in (pe, to))
    means = [f"{evidence.mean(v).mean:.{1 if in_reach else 3}f}" for v in (before, after)]
    difference = f"{evidence.difference(after, before, of):{'+z.1f' if in_reach else '+z.3f'}}"
    for alike, every in (
        (", all seeds equal", " in every seed"),
        ("，各种子相同", "，每个种子都是"),
    ):
        difference = difference.replace(alike, every)
    return f"{' → '.join(means)} ({difference})"


def judged(study: str, task: str, kinds: tuple[str, ...]) -> str:
    """Which encodings are better with positions in cross-attention, and which not."""
    found = evidence.judged(study, task, [(f"{pe}_cross", pe) for pe in kinds])
    parts = []
    for verdict, words in VERDICTS_OF_PAIRS.items():
        named = [pe.removesuffix("_cross") for pe, said in found.items() if said == verdict]
        parts += [say(f"{words}: ", f"{words}：") + listed(named)] if named else []
    return joined(parts)


def outcome(study: str) -> str:
    """The first sentence of the study's report, by its rule."""
    rule = evidence.rule_of(study)
    assert rule is not None
    return headline(rule, evidence.outcomes(study))


def loss(study: str, task: str, pe: str) -> str:
    """NLL in nats per token at the trained lengths."""
    return f"{evidence.mean(evidence.nll(study, task, pe)):.3f}"


def loss_diff(study_a: str, study_b: str, task: str, pe: str) -> str:
    """The paired difference in NLL between two studies of one encoding."""
    first, second = (evidence.nll(study, task, pe) for study in (study_a, study_b))
    return f"{evidence.difference(first, second):+z.3f}"


def loss_by_length(study: str, task: str, a: str, b: str, least: int) -> str:
    """Rows of a table: length, NLL of ``b``, and of ``a`` minus ``b``, seed by seed."""
    of_a, of_b = (evidence.nll_by_length(study, task, pe, least) for pe in (a, b))
    lines = []
    for length, before in of_b.items():
        gaps = ", ".join(f"{of_a[length][seed] - before[seed]:+.3f}" for seed in sorted(before))
        lines.append(f"| {length} | {evidence.mean(before).mean:.3f} | {gaps} |")
    return "\n".join(lines)


def by_length(study: str, task: str, encodings: tuple[str, ...], least: int) -> str:
    """Rows of a table: length, and each encoding's BLEU and NLL, means over seeds."""
    bleus = evidence.bleu_by_length(study)
    nlls = {pe: evidence.nll_by_length(study, task, pe, least) for pe in encodings}

    def cell(pe: str, n: int) -> str:
        of = bleus[pe, n], nlls[pe][n]
        means = [evidence.mean(values).mean for values in of]
        return f"{means[0]:.1f} ({means[1]:.3f})"

    return "\n".join(
        f"| {n} | " + " | ".join(cell(pe, n) for pe in encodings) + " |" for n in nlls[encodings[0]]
    )


def apart(study: str, a: str, b: str) -> str:
    """BLEU of the first minus the second, and p of the paired test over sentences, by seed."""
    found = over_sentences(evidence.sentence_tests(study), (a, b))
    return ", ".join(f"{gap:+.2f} (p {p:.4f})" for gap, p in found)


def on_more_tests(study: str) -> str:
    """Rows of a table: BLEU beside the encoding that each was held against, by test and seed."""
    found = evidence.more_tests(study)
    tests = list(dict.fromkeys(test for _, test in found))
    return "\n".join(
        f"| {named(pe)} | "
        + " | ".join(", ".join(f"{gap:+.1f} (p {p:.4f})" for gap, p in found[pe, t]) for t in tests)
        + " |"
        for pe in dict.fromkeys(pe for pe, _ in found)
    )


def named(pe: str) -> str:
    """The name of an encoding in a table; the ablation is no name."""
    return say("no encoding", "不用编码") if pe == "none" else pe


def steps(study: str, task: str, pe: str, level: float) -> str:
    """The median over seeds of the first validated step with this exact match."""
    median = pd.Series(evidence.steps_to(study, task, pe, level)).median()
    return f"{median:.0f}" if median < float("inf") else say("never", "从未")


def speed(name: str) -> str:
    """A figure of ``benchmarks/table``, to two digits."""
    found = json.loads((BENCHMARKS / "table" / "results.json").read_text(encoding="utf-8"))
    return f"{found[name]:.2g}"


def checked(topic: str, name: str) -> str:
    """A number of docs/claims.yaml, which a test computes anew."""
    [numbers] = [entry["numbers"] for entry in CLAIMS["topics"] if entry["topic"] == topic]
    return numbers[name]


ENVIRONMENT = jinja2.Environment(
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
ENVIRONMENT.globals.update(
    {
        f.__name__: f
        for f in (
            em,
            middle,
            diff,
            ceiling,
            chosen,
            orders,
            bleu,
            reach,
            change,
            judged,
            outcome,
            loss,
            loss_diff,
            loss_by_length,
            by_length,
            apart,
            named,
            on_more_tests,
            steps,
            speed,
            checked,
        )
    }
)


def claims() -> str:
    """The page of claims and verdicts, in the language that is spoken."""
    every = [verdict for topic in CLAIMS["topics"] for *_, verdict in topic["claims"]]
    counts = {key: every.count(key) for key in VERDICTS}
    notes = {number: say(CLAIMS["notes"][number], CHINESE["notes"][number])
             for number in CLAIMS["notes"]}  # fmt: skip
    lines = [
        say(
            "# What the five notes claim, and what became of it", "# 五篇笔记的说法，以及检验的结果"
        ),
        "",
        say("[中文](claims.zh-CN.md)", "[English](claims.md)"),
        "",
        say(
            "Written by `python scripts/dev/docs.py` from [claims.yaml](claims.yaml) and the "
            "results in [benchmarks](../benchmarks); the checks are in "
            "[tests/dev/test_claims.py](../tests/dev/test_claims.py), one for each topic: "
            "it computes the numbers anew, decides every verdict from them, and runs with "
            "`make test`.",
            "由 `python scripts/dev/docs.py` 根据 [claims.yaml](claims.yaml) 和 "
            "[benchmarks](../benchmarks) 里的结果写成；检查在 "
            "[tests/dev/test_claims.py](../tests/dev/test_claims.py) 里，每个主题一个："
            "它重新计算数字，由数字判定每个结论，随 `make test` 一起运行。",
        ),
        "",
        say(
            "This project grew from five Chinese notes on the sinusoidal encoding. Their claims, "
            f"in our words, fall under {len(CLAIMS['topics'])} topics. Of {len(every)} claims "
            f"{counts['holds']} hold, {counts['restricted']} hold with a restriction, "
            f"{counts['fails']} do not hold; open: {counts['open']}.",
            "本项目源于五篇关于正弦编码的中文笔记。笔记的说法用我们的话复述，归入 "
            f"{len(CLAIMS['topics'])} 个主题。{len(every)} 条说法里，{counts['holds']} 条成立，"
            f"{counts['restricted']} 条有条件成立，{counts['fails']} 条不成立；未定的有 "
            f"{counts['open']} 条。",
        ),
        "",
        *(
            say(f"- note {number}: {what}", f"- 笔记 {number}：{what}")
            for number, what in notes.items()
            if number != "own"
        ),
        say("- own: ", "- own：") + notes["own"],
    ]
    head = say("| claim | where | verdict |", "| 说法 | 出处 | 结论 |")
    for topic in CLAIMS["topics"]:
        name, chinese = topic["topic"].rstrip("_"), CHINESE["topics"][topic["topic"]]
        lines += ["", f"## {name}", "", head, "|---|---|---|"]
        for (number, *said, verdict), translated in zip(
            topic["claims"], chinese["claims"], strict=True
        ):
            where, says = (say(*both) for both in zip(said, translated, strict=True))
            lines.append(f"| {says} | {number}, {where} | {VERDICTS[verdict]} |")
        for key, heading in HEADINGS.items():
            if key in topic:
                words = ENVIRONMENT.from_string(say(topic[key], chinese[key]))
                lines += ["", f"{heading}{words.render(topic.get('numbers', {}))}"]
        shown = say("Check: ", "检查：") + f"`pytest tests/dev/test_claims.py -k {name}`"
        if "commands" in topic:
            shown += say(", from ", "，来自 ") + listed(f"`{each}`" for each in topic["commands"])
        lines += ["", shown]
    return "\n".join(lines) + "\n"


def findings() -> str:
    """The page of findings, in the language that is spoken."""
    name = say("findings.md.jinja", "findings.zh-CN.md.jinja")
    return ENVIRONMENT.from_string((DOCS / name).read_text(encoding="utf-8")).render()


def pages() -> dict[str, str]:
    """Every page by its name, in both languages."""
    written: dict[str, str] = {}
    for language in LANGUAGES:
        with speaking(language):
            end = say(".md", ".zh-CN.md")
            written |= {f"claims{end}": claims(), f"findings{end}": findings()}
    return written


if __name__ == "__main__":
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    for name, page in pages().items():
        (DOCS / name).write_text(page, encoding="utf-8")
        print(DOCS / name)
