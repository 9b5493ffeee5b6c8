"""Write the pages that quote measurements:  python scripts/dev/docs.py

Templates are in scripts/dev/templates. docs/claims.md also needs docs/claims.yaml. docs/findings.md
also needs the question, answer and certainty that the templates of all findings set. The Chinese
pages come from the files that have zh-CN in their names. A test fails when a page is stale.
"""

import json
import math
from pathlib import Path
from typing import Any

import evidence
import jinja2
import pandas as pd
import yaml
from evidence import BENCHMARKS

from wawa_transformer.lab.answers import VERDICTS as VERDICTS_OF_PAIRS
from wawa_transformer.lab.judging import over_sentences
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
TEMPLATES = Path(__file__).with_name("templates")
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
    """Format exact match at the trained lengths.

    ``unseen=True`` takes the longer lengths, with a dash if the trained lengths are not learned.
    """
    if part.get("unseen") and not evidence.learned(study, task, pe):
        return "–"
    return f"{evidence.mean(evidence.exact_match(study, task, pe, **part)):.3f}"


def middle(study: str, task: str, pe: str, **part: Any) -> str:
    """Format the median over seeds, where :func:`em` gives the mean."""
    return f"{pd.Series(evidence.exact_match(study, task, pe, **part)).median():.3f}"


def diff(study: str, task: str, a: str, b: str, of: int = 1, **part: Any) -> str:
    """Format the paired difference a − b in exact match; see :func:`between`."""
    return between((study, task, a), (study, task, b), of, **part)


Cell = tuple[str, str, str]  # study, task, encoding


def between(first: Cell, second: Cell, of: int = 1, **part: Any) -> str:
    """Format the difference in exact match between two cells, paired by seed.

    The interval is corrected for ``of`` comparisons.
    """
    one, other = (evidence.exact_match(*each, **part) for each in (first, second))
    return f"{evidence.difference(one, other, of):+z.3f}"


def interaction(studies: tuple[str, str], task: str, a: str, b: str) -> str:
    """Format how the difference a − b changes between two studies.

    The value is a − b in exact match in the first study minus a − b in the second, paired by seed.
    """
    gaps = []
    for study in studies:
        first, second = (evidence.exact_match(study, task, pe) for pe in (a, b))
        gaps.append({seed: first[seed] - second[seed] for seed in first})
    return f"{evidence.difference(gaps[0], gaps[1]):z.3f}"


def ceiling(study: str, task: str, of: str | None = None) -> str:
    """Format the ceiling without positions, with its sampling interval."""
    return f"{evidence.ceiling(study, task, of):.3f}"


def chosen(study: str, task: str, pe: str) -> str:
    """Format the learning rate and the warmup that tuning chose."""
    (found,) = (each["chosen"][pe] for each in evidence.rates(study) if each["name"] == task)
    return f"{found.lr:g}, {found.warmup}"


def orders(study: str, task: str) -> str:
    """Say whether a shared learning rate changes each pair's order."""
    (found,) = (each["orders"] for each in evidence.rates(study) if each["name"] == task)
    return say(" ", "").join(found)


def bleu(pe: str, study: str = "multi30k") -> str:
    """Format each seed's greedy BLEU on Multi30k."""
    values = evidence.bleu(study, "multi30k", pe)
    return say(" and ", " 和 ").join(f"{value:.1f}" for _, value in sorted(values.items()))


def bleu_gaps(first: tuple[str, str], second: tuple[str, str]) -> str:
    """Format each seed's BLEU difference between two cells (study, encoding)."""
    one, other = (evidence.bleu(study, "multi30k", pe) for study, pe in (first, second))
    return say(" and ", " 和 ").join(f"{one[seed] - other[seed]:+.2f}" for seed in sorted(one))


def reach(study: str, task: str, pe: str) -> str:
    """Format the mean of the reach over seeds.

    The reach is the longest length up to which exact match is at least one half.
    """
    if not evidence.learned(study, task, pe):
        return "–"
    return f"{evidence.mean(evidence.reaches(study, task, pe)):.1f}"


def every_reach(study: str, task: str, pe: str) -> str:
    """Format each seed's reach, in ascending order."""
    values = evidence.reaches(study, task, pe).values()
    return ", ".join(f"{length:.0f}" for length in sorted(values))


def seeds_to(study: str, task: str, pe: str, length: int) -> str:
    """Say how many seeds reach a length."""
    values = evidence.reaches(study, task, pe).values()
    good = sum(each >= length for each in values)
    return say(f"{good} of {len(values)}", f"{len(values)} 个中 {good} 个")


def change(study: str, task: str, pe: str, to: str, of: int, in_reach: bool = False) -> str:
    """Format the means of two encodings and their paired difference.

    The interval is corrected for ``of`` comparisons. ``in_reach`` takes the reach, not exact match.
    """
    if in_reach and not (evidence.learned(study, task, pe) and evidence.learned(study, task, to)):
        return "–"
    read = evidence.reaches if in_reach else evidence.exact_match
    before, after = (read(study, task, each) for each in (pe, to))
    means = [f"{evidence.mean(v).mean:.{1 if in_reach else 3}f}" for v in (before, after)]
    gap, form = evidence.difference(after, before, of), "+z.1f" if in_reach else "+z.3f"
    shown = f"{gap:{form}}"
    if gap.every_seed_equal:
        shown = f"{gap.mean:{form}}" + say(" in every seed", "，每个种子都是")
    return f"{' → '.join(means)} ({shown})"


def judged(study: str, task: str, kinds: tuple[str, ...]) -> str:
    """Group encodings by the verdict on positions in cross-attention."""
    found = evidence.judged(study, task, [(f"{pe}_cross", pe) for pe in kinds])
    parts = []
    for verdict, words in VERDICTS_OF_PAIRS.items():
        if named := [pe.removesuffix("_cross") for pe, said in found.items() if said == verdict]:
            parts.append(say(f"{words}: ", f"{words}：") + listed(named))
    return joined(parts)


def outcome(study: str) -> str:
    """State the claim of the study's rule, then the verdict."""
    rule = evidence.rule_of(study)
    assert rule is not None
    verdict = verdicts(evidence.outcomes(study))
    return say(f"the claim “{rule.claim}” is {verdict}.", f"“{rule.claim}”：{verdict}。")


def loss(study: str, task: str, pe: str) -> str:
    """Format NLL in nats per token at the trained lengths."""
    return f"{evidence.mean(evidence.nll(study, task, pe)):.3f}"


def loss_diff(study_a: str, study_b: str, task: str, pe: str) -> str:
    """Format the paired difference of one encoding's NLL between two studies."""
    first, second = (evidence.nll(study, task, pe) for study in (study_a, study_b))
    return f"{evidence.difference(first, second):+z.3f}"


def loss_by_length(study: str, task: str, a: str, b: str, least: int) -> str:
    """Write table rows: length, NLL of ``b``, and ``a`` minus ``b``.

    The difference is given for each seed. Lengths have at least ``least`` test examples.
    """
    of_a, of_b = (evidence.nll_by_length(study, task, pe, least) for pe in (a, b))
    lines = []
    for length, before in of_b.items():
        gaps = ", ".join(f"{of_a[length][seed] - before[seed]:+.3f}" for seed in sorted(before))
        lines.append(f"| {length} | {evidence.mean(before).mean:.3f} | {gaps} |")
    return "\n".join(lines)


def by_length(study: str, task: str, encodings: tuple[str, ...], least: int) -> str:
    """Write table rows: length, and each encoding's BLEU and NLL.

    The values are means over seeds. Lengths have at least ``least`` test examples.
    """
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
    """Format the BLEU difference a − b for each seed, with p.

    p is from the paired test over sentences.
    """
    found = over_sentences(evidence.sentence_tests(study), (a, b))
    return ", ".join(f"{gap:+.2f} (p {p:.4f})" for gap, p in found)


def on_more_tests(study: str) -> str:
    """Write table rows: each encoding's BLEU difference on further tests.

    A cell has one test's differences to the compared run, seed by seed.
    """
    found = evidence.more_tests(study)
    tests = list(dict.fromkeys(test for _, test in found))
    return "\n".join(
        f"| {encoding_name(pe)} | "
        + " | ".join(", ".join(f"{gap:+.1f} (p {p:.4f})" for gap, p in found[pe, t]) for t in tests)
        + " |"
        for pe in dict.fromkeys(pe for pe, _ in found)
    )


def steps(study: str, task: str, pe: str, level: float) -> str:
    """Format the first validated step that reaches an exact match.

    The value is the median over seeds.
    """
    median = pd.Series(evidence.steps_to(study, task, pe, level)).median()
    return f"{median:.0f}" if median < float("inf") else say("never", "从未")


def learners(study: str, task: str) -> str:
    """Say which encodings learn the trained lengths to 0.95."""
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
    """Write table cells: the best encoding beyond the trained lengths.

    The cells are the encoding, its exact match, and its lead over the next encoding.
    """
    beyond = evidence.measured(study, task).values["beyond"]
    values = {pe: v for pe, v in beyond.items() if evidence.learned(study, task, pe)}
    first, *others = sorted(values, key=lambda pe: -evidence.mean(values[pe]).mean)
    best, there = encoding_name(first), f"{evidence.mean(values[first]):.3f}"
    if evidence.mean(values[first]).mean < FLOOR:
        return say(f"no good one | {best}: {there} | –", f"都不行 | {best}：{there} | –")
    if not others:
        return f"{best} | {there} | {say('the only one', '只有它')}"
    second = others[0]
    lead = evidence.difference(values[first], values[second], math.comb(len(values), 2))
    ahead = say("ahead: ", "领先：") if lead.excludes_zero else say("unclear: ", "未定：")
    return f"{best} | {there} | {ahead}{encoding_name(second)}, {lead:+z.3f}"


def setting(study: str, task: str) -> str:
    """Write table cells: lengths, seeds, layers and width.

    Lengths are the trained lengths and the longest tested length.
    """
    table = evidence.table_of(BENCHMARKS / study / "results.csv")
    table, model = table[table["task"] == task], evidence.config_of(study).model
    lengths = table.loc[table["trained"].eq(True), "length"]
    trained = f"{lengths.min()}–{lengths.max()} → {table['length'].max()}"
    layers = f"{model.num_layers} + {model.num_layers}, {model.d_model}"
    return f"{trained} | {table['seed'].nunique()} | {layers}"


def speed(name: str) -> str:
    """Format a number of ``benchmarks/table`` to two digits."""
    found = json.loads((BENCHMARKS / "table" / "results.json").read_text(encoding="utf-8"))
    return f"{found[name]:.2g}"


def checked(topic: str, name: str) -> str:
    """Get a number of docs/claims.yaml, which a test recomputes."""
    [numbers] = [entry["numbers"] for entry in CLAIMS["topics"] if entry["topic"] == topic]
    return numbers[name]


ENVIRONMENT = jinja2.Environment(
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
# Templates may call every function above.
ENVIRONMENT.globals |= {"named": encoding_name, **globals()}


def claims() -> str:
    """Write the page of claims and verdicts in the current language."""
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
    """Write the page of each finding, and their summary."""
    end, other = say(".md", ".zh-CN.md"), say(".zh-CN.md", ".md")
    written, rows = {}, []
    for name in sorted({path.name.split(".")[0] for path in (TEMPLATES / "findings").glob("*")}):
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
    """Load the template of a page in docs/."""
    return ENVIRONMENT.from_string((TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8"))


def pages() -> dict[str, str]:
    """Write every page in both languages, by name."""
    written: dict[str, str] = {}
    for language in LANGUAGES:
        with speaking(language):
            written |= {say("claims.md", "claims.zh-CN.md"): claims()} | findings()
            name = say("which_encoding.md", "which_encoding.zh-CN.md")
            written[name] = template(name).render()
    return written


if __name__ == "__main__":
    for name, page in pages().items():
        (DOCS / name).write_text(page, encoding="utf-8")
        print(DOCS / name)
