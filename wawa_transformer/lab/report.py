"""The report of a study's folder: its cells, computed once from scores and claims.

:func:`write_report` reads a folder's tables and writes its pages. Words are keys of ``words.yaml``;
only the templates turn them into sentences, once for each language.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from wawa_transformer.common.files import make_directory, write_atomically
from wawa_transformer.lab import claims, figures, scores
from wawa_transformer.lab.board import UNSEEN, Board, board
from wawa_transformer.lab.claims import Found, Outcome, Pair, Rule
from wawa_transformer.lab.pages import LANGUAGES, Text, name_of, render, tr, translated, warning
from wawa_transformer.lab.scores import (
    SCORES,
    Estimate,
    best_points,
    by_point,
    by_seed,
    estimate,
    orders_of,
)
from wawa_transformer.lab.tables import RUN, Study, read_study

LEAST_BLEU = 1  # below it no encoding translates
LEAD = (
    "bleu",
    "ranking",
    "exact_match_by_length",
)  # the picture under the first table is one of these
ROWS_SAID = 10  # of the table in the terminal


@dataclass(frozen=True)
class Cell:
    """A cell of a table: its text, and the number by which the column is sorted."""

    text: Text | str
    value: float | None = None
    strong: bool = False
    pe: str = ""  # the encoding that the cell names


@dataclass(frozen=True)
class Table:
    """A table of a page."""

    caption: Text
    heads: Sequence[Text | str]
    rows: Sequence[Sequence[Cell]]
    last: Sequence[Cell] = field(default_factory=list)  # a row that is not sorted


def write_report(folder: Path) -> Path:
    """Write ``report.md``, ``report.html`` and ``figures/`` from a folder's tables.

    Returns the path of ``report.html``.

    Raises:
        UserError: as in :func:`~wawa_transformer.lab.tables.read_study`.
    """
    study = read_study(folder)
    frame = scores.scores(study)
    page = page_of(study, frame)
    make_directory(folder / "figures")
    # A folder that has pictures keeps those: in a repository, the ones that a page shows.
    there = {path.stem for path in (folder / "figures").glob("*.png")}
    kept = there.union(in_markdown(page)) if there else page["drawn"]
    pictures = {
        name: figures.save(
            draw(), name, folder / "figures" / f"{name}.png" if name in kept else None
        )
        for name, draw in figures.pictures(study, frame).items()
    }
    write_atomically(folder / "report.md", markdown(page))
    path = folder / "report.html"
    write_atomically(path, html(page, pictures))
    return path


def markdown(page: dict[str, Any]) -> str:
    """Write a page as Markdown, in English, with the first pictures."""
    shown = dict.fromkeys(in_markdown(page), "")
    written = render("page.jinja", form="md", pictures=shown, **page)
    return re.sub(r"\n{3,}", "\n\n", re.sub(r" +\n", "\n", written)).strip() + "\n"


def in_markdown(page: dict[str, Any]) -> list[str]:
    """Name the pictures that ``report.md`` shows."""
    return [name for name in page["drawn"] if name in (page["lead_picture"], "attention")]


def html(page: dict[str, Any], pictures: dict[str, str]) -> str:
    """Write a page as HTML, in every language."""
    bodies = {}
    for language in LANGUAGES:
        shown = {name: translated(svg, language) for name, svg in pictures.items()}
        bodies[language] = render(
            "page.jinja", language=language, form="html", pictures=shown, **page
        )
    title = page["name"]
    return render("report.html.jinja", bodies=bodies, languages=LANGUAGES, title=title)


def answer(folder: Path) -> str:
    """Write a study's answer for a terminal: the verdict, and the first rows of a table."""
    study = read_study(folder)
    page = page_of(study, scores.scores(study))
    said = [tr(page["question"]), tr(page["claim"]), *map(tr, page["lead"])]
    table = page["board"] or page["summary"]
    rows = [[tr(cell.text) for cell in row] for row in table.rows]
    # A board is shown whole, so that an encoding's row stands among the others.
    shown = rows if page["board"] else rows[:ROWS_SAID]
    lines = [[tr(head) for head in table.heads], *shown] if rows else []
    wide = [max(map(len, column)) for column in zip(*lines, strict=True)]
    said += ["  ".join(map(str.ljust, line, wide)).rstrip() for line in lines]
    if left := len(rows) - len(shown):
        said.append(tr(Text("more_rows", {"n": left})))
    return "\n".join(line for line in said if line)


def page_of(study: Study, frame: pd.DataFrame) -> dict[str, Any]:
    """Compute everything that a page shows, in no language."""
    rule = claims.rule_of(study)
    found = compared(study, frame, rule)
    outcomes = claims.decide(rule, found) if rule else []
    config = study.config.get("study", {})
    tasks, drawn = study.tasks, list(figures.pictures(study, frame))
    beside = board(study, frame)
    return {
        "name": study.name,
        "question": Text(config.get("question") or study.name),
        "claim": Text("claim_of", {"claim": Text(rule.claim)}) if rule else "",
        "lead": (placed(beside) if beside else []) or lead(study, found, outcomes),
        "notices": notices(study, frame, found, rule),
        "board": board_table(beside) if beside and beside.rows else None,
        "summary": summary_table(study, frame, rule),
        "drawn": drawn,
        "lead_picture": next((name for name in LEAD if name in drawn), ""),
        "verdicts": verdict_table(outcomes) if rule else None,
        "shares": share_table(found, rule) if rule else None,
        "rule": written(study) if rule else "",
        "comparisons": comparison_table(found),
        "tests_made": int(found.comparisons["corrected"].notna().sum()),
        "tasks": {task: score_table(study, frame, task) for task in tasks},
        "sources": {task: sources(study, task) for task in tasks},
        "answers": answer_tables(study),
        "rates": rate_tables(study),
        "translations": translation_tables(study),
        "learning": learning_table(study),
        "costs": cost_table(study),
        "command": study.config.get("command", ""),
        "made": study.config.get("made", {}),
        "styles": figures.encoding_styles(beside.encodings if beside else ())
        | figures.encoding_styles(study.encodings),
        "notes": reading_notes(study, frame, rule),
    }


def pairs_of(study: Study) -> list[Pair]:
    """List the pairs that a report compares."""
    return claims.compared_pairs(study.encodings, study.config.get("study", {}).get("pairs", []))


def compared(study: Study, frame: pd.DataFrame, rule: Rule | None) -> Found:
    """Make the tests of a study's rule; without a rule, those of its pairs on every task.

    Without ``study.yaml`` nothing is tested, since nobody knows what the study compares.
    """
    if rule:
        return claims.find(study, frame, rule)
    measures, asked = dict[str, float](), list[tuple[str, str, Pair]]()
    for task in study.tasks if study.config else ():
        kind = "sentences" if first_score(study, task) == "bleu" else "differs"
        asked += [(kind, task, pair) for pair in pairs_of(study)]
        measures |= {"exact_match": 0.0} if kind == "differs" else {}
        measures |= {"beyond": 0.0} if scores.unseen_lengths(study, task) else {}
    return Found(study, frame, claims.compare(study, frame, asked, measures), measures)


def described(study: Study, found: Found) -> pd.DataFrame:
    """Compute the differences of pairs that no verdict rests on, which get no p and no word."""
    asked = [
        ("differs", task, pair)
        for task in study.tasks
        for pair in pairs_of(study)
        if scores.trained_lengths(study, task) and not len(found.of_pair("differs", task, pair))
    ]
    table = claims.compare(study, found.frame, asked, {"exact_match": 0.0, "beyond": 0.0})
    table = table[table["n"] > 0]
    return table.assign(corrected=math.nan, word="untested")


def lead(study: Study, found: Found, outcomes: Sequence[Outcome]) -> list[Text]:
    """The first sentences of a page: each verdict with its cases, and what is missing."""
    if not study.config:
        return [Text("no_config")]
    said = []
    if study.config.get("missing"):
        said.append(Text("not_final", {"n": len(study.config["missing"])}))
    for verdict in ("supported", "refuted", "unclear"):
        cases = [each.case for each in outcomes if each.verdict == verdict]
        if cases:
            names = ", ".join(filter(None, map(case_name, cases)))
            said.append(Text(f"{verdict}_for" if names else f"{verdict}_all", {"cases": names}))
    if outcomes:
        return said
    if study.results.empty:
        return [*said, Text("no_run")]
    if len(study.encodings) < 2:
        return [*said, Text("one_encoding")]
    if study.results["seed"].nunique() < 2:
        return [*said, Text("one_seed_answer")]
    words = found.comparisons["word"].isin(["better", "worse"])
    count = {"n": int(found.comparisons["corrected"].notna().sum()), "differ": int(words.sum())}
    return [*said, Text("no_rule_answer" if count["n"] else "no_test_answer", count)]


def case_name(case: claims.Case) -> str:
    """Name a case: its pair or encoding, and its task."""
    who = " − ".join(case.pair) if case.pair else case.encoding
    return f"{who} ({case.task})" if who and case.task else who or case.task


def notices(study: Study, frame: pd.DataFrame, found: Found, rule: Rule | None) -> list[Text]:
    """What a reader must know before the first number: what is missing, mixed or weak."""
    said = []
    if why := study.config.get("unjudged"):
        said.append(Text("unjudged", {"why": why}))
    for run in study.config.get("missing", []):
        said.append(Text("missing_run", {key: run[key] for key in (*RUN, "status", "why")}))
    for column in ("code", "device"):
        if column in study.results:
            known = study.results[study.results[column].notna()].replace({column: {"": "unknown"}})
            # The code of an encoding does not count for the others.
            groups = known.groupby(["task", "pe"])[column] if column == "code" else None
            several = (groups.nunique() if groups else pd.Series([known[column].nunique()])).gt(1)
            if several.any():
                kinds = ", ".join(sorted(set(known[column])))
                said.append(Text(f"mixed_{column}", {"kinds": kinds}))
    mixed = {k: v for k, v in study.config.get("made", {}).items() if "; " in str(v)}
    if mixed:
        kinds = ", ".join(f"{key} {value}" for key, value in mixed.items())
        said.append(Text("mixed_made", {"kinds": kinds}))
    for task in study.tasks:
        said += spoilt(study, frame, task)
        for pe, (validation, training) in scores.harder_validation(study, task).items():
            nll = {"validation": f"{validation:.3f}", "training": f"{training:.3f}"}
            said.append(Text("harder_validation", {"task": task, "pe": name_of(pe), **nll}))
    if rule:
        encodings = study.config["encodings"]
        said += [warning(*each) for each in claims.warnings(rule, encodings, found)]
    return said


def spoilt(study: Study, frame: pd.DataFrame, task: str) -> list[Text]:
    """What a text's scores leave out, or cannot show."""
    said = []
    for split, left in study.config.get("left_out", {}).get(task, {}).items():
        if any(left.values()):
            said.append(Text("left_pairs", {"task": task, "split": split, **left}))
    runs = study.bleu[study.bleu["task"] == task]
    for column in ("reached_limit", "altered"):
        if column in runs and (count := runs[column].sum()):
            said.append(Text(column, {"task": task, "n": f"{count:.0f}", "runs": len(runs)}))
    if not len(runs):
        return said
    if first_score(study, task) == "exact_match":
        return [*said, Text("exact_match_answers", {"task": task})]
    means = [estimate(by_seed(frame, task, pe, "bleu")).mean for pe in study.encodings]
    if max(means) < LEAST_BLEU:
        said.append(Text("no_translation", {"task": task, "least": LEAST_BLEU}))
    return said


def sources(study: Study, task: str) -> list[Text]:
    """Say which sources a task's scores count, and what a model without positions can reach."""
    seen, new = scores.seen_share(study, task), scores.rests_on_new(study, task)
    known = "seen_unknown" if math.isnan(seen) else "seen_left_out" if new else "seen_counted"
    said = [Text(known, {"share": f"{seen:.1%}"}) if seen != 0 else Text("seen_none")]
    if trained := scores.trained_lengths(study, task):
        said.insert(0, Text("trained_on", {"first": trained[0], "last": trained[1]}))
    if longer := scores.unseen_lengths(study, task):
        said.insert(1, Text("tested_to", {"first": longer[0], "last": longer[1]}))
    if most := scores.ceiling(study, task):
        said.append(Text("ceiling_is", {"value": f"{most:.3f}"}))
    return said


def reading_notes(study: Study, frame: pd.DataFrame, rule: Rule | None) -> list[Text]:
    """The notes on how to read the page, of which a page shows those that it needs."""
    new = any(scores.rests_on_new(study, task) for task in study.tasks)
    there = {
        "note_interval": True,
        "note_scores": True,
        "note_new": new,
        "note_unseen": frame["beyond"].notna().any(),
        "note_scale": any("learned" in pe for pe in study.encodings),
        "note_ceiling": any(scores.ceiling(study, task) for task in study.tasks),
        "note_pairs": len(study.encodings) > 1,
        "note_holm": len(study.encodings) > 1,
        "note_rule": rule is not None,
        "note_sentences": len(study.tests) > 0,
        "note_curves": len(study.curves) > 0,
    }
    fill = {"learned": scores.LEARNED, "still": f"{scores.STILL:.0%}"}
    return [Text(key, fill) for key, shown in there.items() if shown]


def written(study: Study) -> str:
    """Write the rule as in the study's YAML file."""
    rule = {k: v for k, v in study.config["study"]["rule"].items() if k != "claim" and v}
    return yaml.safe_dump(rule, sort_keys=False, default_flow_style=None, width=100).strip()


def encoding(pe: str) -> Cell:
    """A cell that names an encoding."""
    return Cell(name_of(pe), pe=pe)


def number(value: Any, form: str) -> Cell:
    """A cell with a number, or a dash if the number is missing."""
    missing = value is None or pd.isna(value)
    return Cell("–", math.nan) if missing else Cell(f"{value:{form}}", float(value))


def p_value(p: float) -> Cell:
    """A cell with the p of a test."""
    return Cell("< 0.0001", p) if p < 0.0001 else number(p, ".4f")


def interval(value: Estimate, digits: int, strong: bool = False) -> Cell:
    """A cell with a mean and its interval."""
    return Cell(f"{value:z.{digits}f}", value.mean, strong)


def share(count: int, n: int) -> Cell:
    """A cell with a share of seeds and its exact binomial interval."""
    found = scores.share(count, n)
    ends = {"low": f"{found.low:.2f}", "high": f"{found.high:.2f}"}
    return Cell(Text("share", {"count": count, "n": n, **ends}), found.mean)


def first_score(study: Study, task: str) -> str:
    """The score that answers a task's question: BLEU for a translation, else exact match.

    Exact match answers for a text of words, and where references are too short for BLEU.
    """
    runs = study.bleu[study.bleu["task"] == task]
    by_words = "answer" in runs and (runs["answer"] == "exact_match").any()
    return "bleu" if len(runs) and not by_words else "exact_match"


def summary_table(study: Study, frame: pd.DataFrame, rule: Rule | None) -> Table:
    """Each encoding's mean on every task; the best are marked.

    Scores at unseen lengths stand beside exact match if the rule is about them.
    """
    heads: list[Text | str] = [Text("encoding")]
    columns, most = [], [Cell(Text("ceiling"))]
    for task in study.tasks:
        limit = scores.ceiling(study, task)
        for score in SCORES.values():
            first = score.name == first_score(study, task)
            if not first and not (score.unseen and rule and score.name in rule.measures):
                continue
            means = {pe: estimate(by_seed(frame, task, pe, score.name)) for pe in study.encodings}
            known = [each.mean for each in means.values() if not math.isnan(each.mean)]
            best = (max if score.higher_is_better else min)(known, default=math.nan)
            heads.append(Text("task_score", {"task": task, "score": Text(score.label)}))
            columns.append(
                {pe: interval(e, score.digits, e.mean == best) for pe, e in means.items()}
            )
            most.append(number(limit.mean if limit and first else None, ".3f"))
    rows = [[encoding(pe), *(column[pe] for column in columns)] for pe in study.encodings]
    counts = sorted(set(study.results.groupby(["task", "pe"])["seed"].nunique())) or [0]
    shown = f"{counts[0]}–{counts[-1]}" if len(counts) > 1 else counts[0]
    last = most if any(cell.text != "–" for cell in most[1:]) else []
    return Table(Text("summary_caption", {"n": shown}), heads, rows, last)


def placed(beside: Board) -> list[Text]:
    """Say where each encoding of the study stands among the committed rows, or why it does not."""
    if not beside.rows:
        return [Text(*beside.why)]
    [best] = [row for row in beside.rows if row.gap is None]
    named = {"n": len(beside.rows), "best": name_of(best.pe)}
    return [
        Text("board_place", named | {"pe": name_of(row.pe), "place": place,
             "total": f"{row.total:z.3f}", "gap": f"{row.gap:+z.3f}"})
        for place, row in enumerate(beside.rows, start=1)
        if row.own
    ] or [Text("board_best", named | {"total": f"{best.total:z.3f}"})]  # fmt: skip


def board_table(beside: Board) -> Table:
    """The committed rows and those of the study, each with the digest of the setting."""
    tasks = beside.rows[0].tasks
    heads: list[Text | str] = [Text("encoding"), Text("setting"), *tasks]
    heads += [Text("total"), Text("minus_best")]
    rows = [
        [
            Cell(Text("this_study", {"pe": name_of(row.pe)}), strong=True)
            if row.own else encoding(row.pe),
            Cell(beside.setting),
            *(
                Cell(
                    Text("trained_unseen", {"trained": f"{trained.mean:.3f}",
                         "unseen": f"{unseen.mean:.3f}"}), unseen.mean
                )
                for trained, unseen in row.tasks.values()
            ),
            interval(row.total, 3, strong=row.own),
            Cell("–") if row.gap is None else Cell(f"{row.gap:+z.3f}", row.gap.mean),
        ]
        for row in beside.rows
    ]  # fmt: skip
    fill = {"seeds": max(row.total.n for row in beside.rows), "unseen": f"{UNSEEN:.0%}"}
    return Table(Text("board_caption", fill), heads, rows)


def verdict_table(outcomes: Sequence[Outcome]) -> Table:
    """The verdict of every case, and how many checks of each condition hold."""
    heads: list[Text | str] = [Text("case"), Text("verdict")]
    for each in outcomes[0].answers:
        given = {k: v for k, v in each.given.items() if v not in (None, [])}
        asked = yaml.safe_dump(given, default_flow_style=True, sort_keys=False, width=1000)
        heads.append(Text(f"{each.side}_if", {"condition": asked.strip()}))
    rows = [
        [
            Cell(case_name(outcome.case) or Text("whole_study")),
            Cell(Text(outcome.verdict), strong=True),
            *(
                Cell(Text("met" if a.met else "not_met", {"holds": a.holds, "of": a.checks}))
                for a in outcome.answers
            ),
        ]
        for outcome in outcomes
    ]
    return Table(Text("verdict_caption"), heads, rows)


def share_table(found: Found, rule: Rule) -> Table:
    """How many seeds reach the value of a condition that counts seeds."""
    asked = {
        (task, pe, given["value"]): None
        for given in rule.conditions
        if given.get("seeds") is not None
        for task in given["tasks"] or rule.tasks
        for pe in given["encodings"] or rule.encodings
    }
    measures = Text(", ".join(SCORES[name].label for name in rule.measures))
    rows = [
        [
            Cell(task),
            encoding(pe),
            Cell(Text("at_least", {"score": measures, "value": f"{value:g}"})),
            share(*claims.seeds_reaching(found, task, pe, value)),
        ]
        for task, pe, value in asked
    ]
    heads = ["task", "encoding", "measure", "share_of_seeds"]
    return Table(Text("share_caption"), list(map(Text, heads)), rows)


def comparison_table(found: Found) -> Table:
    """Every comparison: the difference, its interval, the corrected p, and the word for it."""
    heads = ["task", "pair", "measure", "seeds", "difference", "interval", "corrected_p", "verdict"]
    parts = [found.comparisons, described(found.study, found)]
    rows = []
    for row in pd.concat([part for part in parts if len(part)] or parts[:1]).to_dict("records"):
        score = SCORES[row["measure"]]
        measure = Text(
            f"test_{row['test']}", {"score": Text(score.label), "size": f"{row['size']:g}"}
        )
        form = f"+z.{score.digits}f"
        span = {end: f"{row[end]:{form}}" for end in ("low", "high")}
        pair = Text("minus", {"a": name_of(row["a"]), "b": name_of(row["b"])})
        rows.append(
            [
                Cell(row["task"]), Cell(pair), Cell(measure), number(row["n"], "d"),
                number(row["mean"], form), Cell("–" if pd.isna(row["low"]) else Text("span", span)),
                p_value(row["corrected"]),
                Cell(Text(row["word"]), strong=row["word"] in ("better", "worse", "alike")),
            ]
        )  # fmt: skip
    return Table(Text("comparison_caption"), list(map(Text, heads)), rows)


def score_table(study: Study, frame: pd.DataFrame, task: str) -> Table:
    """Every score of a task: a column for each that has values."""
    of_task = frame[frame.index.get_level_values("task") == task]
    shown = [s for s in SCORES.values() if s.shown and of_task[s.name].notna().any()]
    heads = [Text("encoding"), Text("seeds"), *(Text(score.label) for score in shown)]
    longer = scores.unseen_lengths(study, task)
    rows = []
    for pe in study.encodings:
        seeds = {score.name: by_seed(frame, task, pe, score.name) for score in shown}
        cells = []
        for score in shown:
            cell = interval(estimate(seeds[score.name]), score.digits)
            if not scores.interpretable(frame, score.name, task, pe):
                cell = Cell(Text("unread_value", {"value": cell.text}), cell.value)
            elif score.name == "reach" and longer and seeds["reach"].max() == longer[1]:
                cell = Cell(Text("or_more", {"value": cell.text}), cell.value)
            cells.append(cell)
        count = max((len(values) for values in seeds.values()), default=0)
        rows.append([encoding(pe), number(count, "d"), *cells])
    return Table(Text("score_caption"), heads, rows)


def answer_tables(study: Study) -> list[tuple[Text, list[Any]]]:
    """The shown answers of each task: for each source, what every encoding answered."""
    tables = []
    for (task, seed), rows in study.answers.groupby(["task", "seed"], sort=False):
        samples = [
            (source, answers["target"].iloc[0], answers[["pe", "answer"]].to_dict("records"))
            for source, answers in rows.groupby("source", sort=False)
        ]
        tables.append((Text("answers_of", {"task": task, "seed": seed}), samples))
    return tables


def rate_tables(study: Study) -> list[tuple[Table, list[Text]]]:
    """The learning rates that were tried, and whether they decide the order of encodings."""
    tables = []
    for task, rows in study.tuning.groupby("task", sort=False):
        best = {pe: point for (_, pe), point in best_points(rows).items()}
        heads: list[Text | str] = [Text("learning_rate"), Text("warmup"), *map(name_of, best)]
        lines = []
        for point, tried in by_point(rows).items():
            cells = [number(point.lr, "g"), number(point.warmup, "d")]
            for pe, chosen in best.items():
                nll = estimate(tried.loc[tried["pe"] == pe, "nll"])
                cells.append(interval(nll, 4, point == chosen))
            lines.append(cells)
        text = str(task) in set(study.bleu["task"])
        said = [
            Text("rates_order", {"a": name_of(a), "b": name_of(b), **counts})
            for a, b, counts in orders_of(rows, pairs_of(study), "nll" if text else "exact_match")
        ]
        edges = {rows["lr"].min(), rows["lr"].max()} if rows["lr"].nunique() > 1 else set()
        if at_edge := [pe for pe, point in best.items() if point.lr in edges]:
            said.append(Text("rates_edge", {"names": ", ".join(at_edge)}))
        tables.append((Table(Text("rates_caption", {"task": task}), heads, lines), said))
    return tables


def translation_tables(study: Study) -> list[Table]:
    """BLEU of every run, and the tests over test sentences."""
    tables = []
    for task, rows in study.bleu.groupby("task", sort=False):
        heads: list[Text | str] = [Text("encoding"), Text("seed"), "BLEU", Text("interval"), "chrF"]
        lines = [
            [
                encoding(row["pe"]), number(row["seed"], "d"), number(row["bleu"], ".2f"),
                Cell(Text("span", {k: f"{row[f'bleu_{k}']:.2f}" for k in ("low", "high")})),
                number(row["chrf"], ".2f"),
            ]
            for row in rows.to_dict("records")
        ]  # fmt: skip
        signature = "; ".join(dict.fromkeys(rows["signature"]))
        caption = Text("bleu_caption", {"task": task, "signature": signature})
        tables.append(Table(caption, heads, lines))
        tests = study.tests[study.tests["task"] == task]
        heads = [Text("seed"), Text("pair"), Text("difference"), "p"]
        lines = [
            [
                number(row["seed"], "d"),
                Cell(Text("minus", {"a": name_of(row["a"]), "b": name_of(row["b"])})),
                number(row["difference"], "+.2f"),
                Cell(Text("same_translations")) if pd.isna(row["p"]) else p_value(row["p"]),
            ]
            for row in tests.to_dict("records")
        ]
        if lines:
            tables.append(Table(Text("sentences_caption", {"task": task}), heads, lines))
    return tables


def learning_table(study: Study) -> Table:
    """How fast each encoding learns, and how many runs were still improving."""
    heads = [Text("task"), Text("encoding"), Text("area"), Text("improving")]
    rows = [
        [
            Cell(str(task)), encoding(str(pe)), interval(estimate(runs["area"]), 3),
            share(int(runs["improving"].sum()), len(runs)),
        ]
        for (task, pe), runs in scores.learning(study).groupby(["task", "pe"], sort=False)
    ]  # fmt: skip
    return Table(Text("learning_caption"), heads, rows)


COSTS = {
    "parameters": ",.0f", "flops_per_step": ".3g", "mfu": ".0%", "tokens_per_second": ",.0f",
    "seconds": ".1f", "peak_memory_mb": ",.0f",
}  # fmt: skip


def cost_table(study: Study) -> Table:
    """What the runs of each encoding cost, as medians over seeds."""
    heads = [Text("task"), Text("encoding"), *map(Text, COSTS), Text("device"), Text("settings")]
    rows = [
        [
            Cell(row["task"]), encoding(row["pe"]),
            *(number(row.get(name), form) for name, form in COSTS.items()),
            Cell(row.get("device", "")), Cell(settings(study, row["pe"])),
        ]
        for row in study.costs.to_dict("records")
    ]  # fmt: skip
    return Table(Text("cost_caption"), heads, rows)


def settings(study: Study, pe: str) -> str:
    """List the settings of an encoding, without those that are off."""
    given = study.config.get("encodings", {}).get(pe, {})
    off = (None, 0, "none", "start")
    shown = {k: v for k, v in given.items() if k not in ("name", "kind") and v not in off}
    return ", ".join(f"{key} {value}" for key, value in shown.items())
