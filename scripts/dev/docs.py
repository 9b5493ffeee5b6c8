"""Write what the documentation takes from measurements:  python scripts/dev/docs.py

docs/claims.md from docs/claims.yaml, each finding from its template in docs/findings, and
docs/findings.md from the question, answer and certainty that the templates set; and
docs/which_encoding.md from its template; all in Chinese, too, from the files whose names say
zh-CN. A test fails when a page is stale.
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
from wawa_transformer.lab.language import (
    LANGUAGES,
    Words,
    encoding_name,
    joined,
    listed,
    say,
    speaking,
)
from wawa_transformer.lab.rules import verdicts

DOCS = BENCHMARKS.parent / "docs"
CLAIMS = yaml.safe_load((DOCS / "claims.yaml").read_text(encoding="utf-8"))
CHINESE = yaml.safe_load((DOCS / "claims.zh-CN.yaml").read_text(encoding="utf-8"))
FLOOR = 0.5  # exact match below which the best encoding is not recommended
VERDICTS = {
    "holds": Words("holds", "成立"),
    "restricted": Words("holds with a restriction", "有条件成立"),
    "fails": Words("does not hold", "不成立"),
    "open": Words("open", "未定"),
}
HEADINGS = {
    "corrected": Words("**What is true.**", "**正确的说法。**"),
    "measured": Words("**What we measured.**", "**测量。**"),
    "changed": Words("**Earlier verdict.**", "**改判。**"),
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


def between(first: tuple[str, str, str], second: tuple[str, str, str], **part: Any) -> str:
    """The difference in exact match between two (study, task, encoding), paired by seed."""
    one, other = (evidence.exact_match(*each, **part) for each in (first, second))
    return f"{evidence.difference(one, other):+z.3f}"


def interaction(studies: tuple[str, str], task: str, a: str, b: str) -> str:
    """The difference a − b in exact match in the first study minus that in the second, by seed."""
    gaps = []
    for study in studies:
        first, second = (evidence.exact_match(study, task, pe) for pe in (a, b))
        gaps.append({seed: first[seed] - second[seed] for seed in first})
    return f"{evidence.difference(gaps[0], gaps[1]):z.3f}"


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
    return say(" ", "").join(found)


def bleu(pe: str, study: str = "multi30k") -> str:
    """Greedy BLEU on Multi30k, each seed's."""
    values = evidence.bleu(study, "multi30k", pe)
    return say(" and ", " 和 ").join(f"{value:.1f}" for _, value in sorted(values.items()))


def reach(study: str, task: str, pe: str) -> str:
    """The longest length with an exact match of one half."""
    if not evidence.learned(study, task, pe):
        return "–"
    return f"{evidence.mean(evidence.reaches(study, task, pe)):.1f}"


def every_reach(study: str, task: str, pe: str) -> str:
    """Each seed's reach, from the shortest on."""
    values = evidence.reaches(study, task, pe).values()
    return ", ".join(f"{length:.0f}" for length in sorted(values))


def seeds_to(study: str, task: str, pe: str, length: int) -> str:
    """How many seeds reach a length."""
    values = evidence.reaches(study, task, pe).values()
    good = sum(each >= length for each in values)
    return say(f"{good} of {len(values)}", f"{len(values)} 个中 {good} 个")


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
    """The claim of the study's rule, then the verdict."""
    rule = evidence.rule_of(study)
    assert rule is not None
    verdict = verdicts(evidence.outcomes(study))
    return say(f"the claim “{rule.claim}” is {verdict}.", f"“{rule.claim}”：{verdict}。")


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
        f"| {encoding_name(pe)} | "
        + " | ".join(", ".join(f"{gap:+.1f} (p {p:.4f})" for gap, p in found[pe, t]) for t in tests)
        + " |"
        for pe in dict.fromkeys(pe for pe, _ in found)
    )


def steps(study: str, task: str, pe: str, level: float) -> str:
    """The median over seeds of the first validated step with this exact match."""
    median = pd.Series(evidence.steps_to(study, task, pe, level)).median()
    return f"{median:.0f}" if median < float("inf") else say("never", "从未")


def learners(study: str, task: str) -> str:
    """How many of a study's encodings learn the trained lengths to 0.95, and which."""
    every = evidence.encodings(study, task)
    able = [pe for pe in every if evidence.learned(study, task, pe)]
    failed = [pe for pe in every if pe not in able]
    of = say(f"{len(able)} of {len(every)}", f"{len(every)} 种中 {len(able)} 种")
    if len(able) < len(failed):
        return of + say(": ", "：") + listed(map(encoding_name, able))
    return of + (
        say("; not ", "；没学会的：") + listed(map(encoding_name, failed)) if failed else ""
    )


def leader(study: str, task: str) -> str:
    """Cells of a table: the encoding to take beyond the trained lengths, its numbers, its lead."""
    able = [pe for pe in evidence.encodings(study, task) if evidence.learned(study, task, pe)]
    if len(able) < 2:
        return say("unknown | – | –", "不知道 | – | –")
    values = {pe: evidence.exact_match(study, task, pe, unseen=True) for pe in able}
    first, second, lead = evidence.best_two(values)
    best, there = encoding_name(first), em(study, task, first, unseen=True)
    if evidence.mean(values[first]).mean < FLOOR:
        return say(f"no good one | {best}: {there} | –", f"都不行 | {best}：{there} | –")
    ahead = say("ahead: ", "领先：") if lead.excludes_zero else say("unclear: ", "未定：")
    return f"{best} | {there} | {ahead}{encoding_name(second)}, {lead:+z.3f}"


def setting(study: str, task: str) -> str:
    """Cells of a table: trained and longest tested length, seeds, layers and width."""
    table = evidence.table_of(BENCHMARKS / study / "results.csv")
    table, model = table[table["task"] == task], evidence.config_of(study).model
    lengths = table.loc[table["trained"].eq(True), "length"]
    trained = f"{lengths.min()}–{lengths.max()} → {table['length'].max()}"
    layers = f"{model.num_layers} + {model.num_layers}, {model.d_model}"
    return f"{trained} | {table['seed'].nunique()} | {layers}"


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
# What a template may call: every function above.
ENVIRONMENT.globals |= {"named": encoding_name, **globals()}


def claims() -> str:
    """The page of claims and verdicts, in the language that is spoken."""
    topics = []
    for topic in CLAIMS["topics"]:
        chinese = CHINESE["topics"][topic["topic"]]
        rows = [
            (number, *(say(*both) for both in zip(said, translated, strict=True)), verdict)
            for (number, *said, verdict), translated in zip(
                topic["claims"], chinese["claims"], strict=True
            )
        ]
        found = [
            f"{heading} {ENVIRONMENT.from_string(words).render(topic.get('numbers', {}))}"
            for key, heading in HEADINGS.items()
            if (words := say(topic.get(key, ""), chinese.get(key, "")))
        ]
        title = say(topic["title"], chinese["title"])
        topics.append(topic | {"title": title, "claims": rows, "found": found})
    notes, chinese = CLAIMS["notes"], CHINESE["notes"]
    verdicts = [verdict for topic in topics for *_, verdict in topic["claims"]]
    return template(say("claims.md", "claims.zh-CN.md")).render(
        topics=topics,
        notes={name: say(notes[name], chinese[name]) for name in notes},
        counts={key: verdicts.count(key) for key in VERDICTS},
        verdicts=VERDICTS,
        count=len(verdicts),
    )


def findings() -> dict[str, str]:
    """A page for each template in docs/findings, and the summary of what they set."""
    end, other = say(".md", ".zh-CN.md"), say(".zh-CN.md", ".md")
    written, rows = {}, []
    for name in sorted({path.name.split(".")[0] for path in (DOCS / "findings").glob("*.jinja")}):
        body = template(f"findings/{name}{end}").make_module()
        number, parts = int(name[:2]), vars(body)
        question, answer, sure = parts["question"], parts["answer"], parts["sure"]
        how = say("**How sure.** {}{}.", "**有多大把握。** {}{}。")
        rows.append(f"| [{number}](findings/{name}{end}) | {question} | {answer} | {sure} |")
        written[f"findings/{name}{end}"] = "\n\n".join(
            (
                f"# {number}. {question}",
                say("[中文]", "[English]") + f"({name}{other}) · "
                f"[{say('All findings', '全部发现')}](../findings{end}) · "
                f"[{say('Glossary', '词汇表')}](../glossary{end})",
                say("**Answer.** ", "**回答。** ") + answer,
                how.format(sure[0].upper(), sure[1:]),
                str(body).strip() + "\n",
            )
        )
    summary = template(f"findings{end}").render(rows="\n".join(rows), count=len(rows))
    return written | {f"findings{end}": summary}


def template(name: str) -> jinja2.Template:
    """The template of a page in docs/."""
    return ENVIRONMENT.from_string((DOCS / f"{name}.jinja").read_text(encoding="utf-8"))


def pages() -> dict[str, str]:
    """Every page by its name, in both languages."""
    written: dict[str, str] = {}
    for language in LANGUAGES:
        with speaking(language):
            written |= {say("claims.md", "claims.zh-CN.md"): claims()} | findings()
            name = say("which_encoding.md", "which_encoding.zh-CN.md")
            written[name] = template(name).render()
    return written


if __name__ == "__main__":
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    for name, page in pages().items():
        (DOCS / name).write_text(page, encoding="utf-8")
        print(DOCS / name)
