"""The report of a study's folder, computed once from scores and claims.

:func:`write_report` reads a folder's tables and writes its pages. Words are keys of ``words.yaml``;
only the templates turn them into sentences, once for each language.
"""

import math
import re
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from wawa_transformer.common.files import make_directory, write_atomically
from wawa_transformer.lab import cells, claims, comparisons, figures, rules, scores, styles
from wawa_transformer.lab.board import Board, board
from wawa_transformer.lab.claims import Outcome, Rule
from wawa_transformer.lab.comparisons import Pair, PairTests
from wawa_transformer.lab.pages import (
    LANGUAGES,
    Text,
    name_of,
    own_words,
    render,
    sentence,
    tr,
    translated,
    warning,
    words,
)
from wawa_transformer.lab.reading import read_study
from wawa_transformer.lab.scores import Scores
from wawa_transformer.lab.tables import RUN, Study, of_task
from wawa_transformer.lab.weaknesses import weaknesses
from wawa_transformer.train.evaluation import shown_metrics

LEAST_BLEU = 1  # below it a model does not translate
LEAD = ("bleu", "ranking", "exact_match_by_length")  # one is the picture under the first table
ROWS_SAID = 10  # of the table in the terminal
NAMED = 4  # cases of one verdict; more are counted, and the table of verdicts names them


def write_report(folder: Path, key: str = "output_dir") -> dict[str, Any]:
    """Write ``report.md``, ``report.html`` and ``figures/`` from a folder's tables.

    ``key`` is that of the command line which names the folder. Returns the page, as of
    :func:`page_of`.

    Raises:
        UserError: as in :func:`~wawa_transformer.lab.reading.read_study`.
    """
    study = read_study(folder)
    for each in (folder, folder / "figures"):
        make_directory(each, key)
    page = page_of(scores.score_study(study))
    # A folder that has pictures keeps those: in a repository, the ones that a page shows.
    there = {path.stem for path in (folder / "figures").glob("*.png")}
    for name in there - page["drawn"].keys():
        # A report's own, of tables that were there before.
        if f"picture_{name}" in words() or name in {f"learning_{m.name}" for m in shown_metrics()}:
            (folder / "figures" / f"{name}.png").unlink()
    kept = there.union(in_markdown(page)) if there else page["drawn"]
    pictures = {
        name: figures.save(
            draw(), name, folder / "figures" / f"{name}.png" if name in kept else None
        )
        for name, draw in page["drawn"].items()
    }
    write_atomically(folder / "report.md", markdown(page))
    write_atomically(folder / "report.html", html(page, pictures))
    return page


def markdown(page: dict[str, Any]) -> str:
    """Write a page as Markdown, in English, with the first pictures."""
    shown = dict.fromkeys(in_markdown(page), "")
    written = render("page.jinja", "md", pictures=shown, **page)
    return re.sub(r"\n{3,}", "\n\n", re.sub(r" +\n", "\n", written)).strip() + "\n"


def in_markdown(page: dict[str, Any]) -> list[str]:
    """Name the pictures that ``report.md`` shows."""
    return [name for name in page["drawn"] if name in (page["lead_picture"], "attention")]


def html(page: dict[str, Any], pictures: dict[str, str]) -> str:
    """Write a page as HTML, in every language."""
    bodies = {}
    for language in LANGUAGES:
        shown = {name: translated(svg, language) for name, svg in pictures.items()}
        bodies[language] = render("page.jinja", "html", language=language, pictures=shown, **page)
    title = page["name"]
    return render("report.html.jinja", "html", bodies=bodies, languages=LANGUAGES, title=title)


def answer(page: Mapping[str, Any]) -> str:
    """Write a page's answer for a terminal: the verdict, and the first rows of a table."""
    said = [tr(page["question"]), tr(page["claim"]), *(sentence(tr(t)) for t in page["lead"])]
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


def page_of(made: Scores) -> dict[str, Any]:
    """Compute everything that a page shows, in no language."""
    study = made.study
    rule = rules.rule_of(study)
    tested = compared(made, rule)
    outcomes = claims.decide(rule, tested) if rule else []
    config = study.config.get("study", {})
    drawn, beside = figures.pictures(made), board(made)
    tests = int(tested.comparisons["corrected"].notna().sum())
    return {
        "name": study.name,
        "question": own_words(config["question"]) if config.get("question") else study.name,
        "claim": Text("claim_of", {"claim": own_words(rule.claim)}) if rule and rule.claim else "",
        "lead": (placed(beside) if beside else []) or headline(tested, outcomes),
        "notices": notices(tested, rule),
        "board": cells.board_table(beside) if beside and beside.rows else None,
        "summary": cells.summary_table(made, rule),
        "drawn": drawn,
        "lead_picture": next((name for name in LEAD if name in drawn), ""),
        "verdicts": cells.verdict_table(outcomes) if rule else None,
        "shares": cells.share_table(tested, rule) if rule else None,
        "rule": written(study) if rule else "",
        "comparisons": cells.comparison_table(tested, described(tested)),
        "tests_made": Text("tests_made" if len(tested.comparisons) else "tests_none", {"n": tests}),
        "tasks": {task: cells.score_table(made, task) for task in study.tasks},
        "sources": {task: sources(study, task) for task in study.tasks},
        "answers": cells.answer_tables(study),
        "rates": cells.rate_tables(study, pairs_of(study)),
        "translations": cells.translation_tables(study),
        "learning": cells.learning_table(study),
        "costs": cells.cost_table(study),
        "command": study.config.get("command", ""),
        "made": study.config.get("made", {}),
        "styles": styles.styles_of(study, beside.encodings if beside else ()),
        "notes": reading_notes(made, rule),
    }


def pairs_of(study: Study) -> list[Pair]:
    """List the study's pairs that have results; which runs have finished does not choose pairs."""
    encodings = list(study.config.get("encodings", study.encodings))
    pairs = comparisons.compared_pairs(encodings, study.config.get("study", {}).get("pairs", []))
    return [pair for pair in pairs if {*pair} <= {*study.encodings}]


def compared(made: Scores, rule: Rule | None) -> PairTests:
    """Make the tests of a study's rule; without a rule, those of its pairs on every task.

    Without ``study.yaml`` nothing is tested, since nobody knows what the study compares.
    """
    if rule:
        return comparisons.compare(made, rule.asked(), rule.measures)
    study = made.study
    measures, asked = dict[str, float](), list[tuple[str, str, Pair]]()
    for task in study.tasks if study.config else ():
        kind = "sentences" if scores.first_score(study, task) == "bleu" else "differs"
        asked += [(kind, task, pair) for pair in pairs_of(study)]
        measures |= {"exact_match": 0.0} if kind == "differs" else {}
        measures |= {"beyond": 0.0} if scores.unseen_lengths(study, task) else {}
    return comparisons.compare(made, asked, measures)


def described(tested: PairTests) -> pd.DataFrame:
    """Compute the differences of pairs that no verdict rests on, which get no p.

    They are not tested, or not interpreted.
    """
    study = tested.scores.study
    asked = [
        ("differs", task, pair)
        for task in study.tasks
        for pair in pairs_of(study)
        if scores.trained_lengths(study, task) and not len(tested.of_pair("differs", task, pair))
    ]
    table = comparisons.compare(
        tested.scores, asked, {"exact_match": 0.0, "beyond": 0.0}
    ).comparisons
    table = table[table["n"] > 0]
    word = table["word"].where(~table["read"].astype(bool), "untested")
    return table.assign(corrected=math.nan, word=word)


def headline(tested: PairTests, outcomes: Sequence[Outcome]) -> list[Text]:
    """The first sentences of a page: each verdict with its few cases, and what is missing."""
    study = tested.scores.study
    if not study.config:
        return [Text("no_config")]
    said = []
    if lacking := len(study.config.get("missing", [])) + len(unrecorded(study)):
        said.append(Text("not_final", {"n": lacking}))
    for verdict in claims.VERDICTS:
        names = [cells.case_name(each.case) for each in outcomes if each.verdict == verdict]
        if names:
            fill = {"verdict": Text(verdict), "cases": names, "n": len(names), "of": len(outcomes)}
            key = "verdict_all" if not names[0] else "verdict_for"
            said.append(Text(key if len(names) <= NAMED else "verdict_count", fill))
    if outcomes:
        return said
    if study.results.empty:
        return [*said, Text("no_run")]
    if len(study.encodings) < 2:
        return [*said, Text("one_encoding")]
    if study.results["seed"].nunique() < 2:
        return [*said, Text("one_seed_answer")]
    words = tested.comparisons["word"].isin(["better", "worse"])
    count = {"n": int(tested.comparisons["corrected"].notna().sum()), "differ": int(words.sum())}
    return [*said, Text("no_rule_answer" if count["n"] else "no_test", count)]


def notices(tested: PairTests, rule: Rule | None) -> list[Text]:
    """What a reader must know before the first number: what is missing, mixed or weak."""
    study, said = tested.scores.study, []
    if why := study.config.get("unjudged"):
        said.append(Text("unjudged", {"why": why}))
    for run in study.config.get("missing", []):
        fill = {**run, "pe": name_of(run["pe"]), "status": own_words(run["status"])}
        said.append(Text("missing_run", fill))
    if others := study.config.get("other_runs"):
        runs = ", ".join(f"{name} ({count})" for name, count in others.items())
        said.append(Text("other_runs", {"n": sum(others.values()), "runs": runs}))
    # The code of an encoding or a task does not count for the others.
    for column, by in (("code", ["task", "pe"]), ("shared_code", []), ("device", [])):
        known = study.results.replace({column: {"": "unknown"}})
        groups = known.groupby(by or (lambda row: 0))[column]
        # A run that was resumed by other code has both digests, joined by a plus.
        if groups.nunique().gt(1).any() or known[column].str.contains("+", regex=False).any():
            kinds = ", ".join(sorted(set(known[column])))
            said.append(Text(f"mixed_{column}", {"kinds": kinds}))
    said += [Text("no_rows", run | {"pe": name_of(run["pe"])}) for run in unrecorded(study)]
    made = study.config.get("made", {})
    mixed = {k: v for k, v in made.items() if "; " in str(v) and k != "device"}
    if mixed:
        kinds = ", ".join(f"{key} {value}" for key, value in mixed.items())
        said.append(Text("mixed_made", {"kinds": kinds}))
    for task in study.tasks:
        said += spoilt(tested.scores, task)
        for pe, (validation, training) in scores.harder_validation(study, task).items():
            nll = {"validation": f"{validation:.3f}", "training": f"{training:.3f}"}
            said.append(Text("harder_validation", {"task": task, "pe": name_of(pe), **nll}))
    return said + [warning(*each) for each in weaknesses(rule, study.config, tested)]


def unrecorded(study: Study) -> list[dict[str, Any]]:
    """List the runs of a study that have no results, and of which nothing is said."""
    there = {tuple(run) for run in study.results[RUN].to_numpy().tolist()}
    there |= {tuple(run[key] for key in RUN) for run in study.config.get("missing", [])}
    parts = (study.config.get("tasks", {}), study.config.get("encodings", {}))
    seeds = study.config["study"]["seeds"] if study.config else []
    return [dict(zip(RUN, run, strict=True)) for run in product(*parts, seeds) if run not in there]


def spoilt(made: Scores, task: str) -> list[Text]:
    """What a text's scores leave out, or cannot show."""
    study, said = made.study, []
    for split, left in study.config.get("left_out", {}).get(task, {}).items():
        if any(left.values()):
            said.append(Text("left_pairs", {"task": task, "split": split, **left}))
    runs = of_task(study.bleu, task)
    for column in ("signature", "chrf_signature"):
        if runs[column].nunique() > 1:
            kinds = ", ".join(sorted(map(str, runs[column].unique())))
            said.append(Text("mixed_signature", {"task": task, "kinds": kinds}))
    for column in ("reached_limit", "altered"):
        if count := runs[column].sum():
            said.append(Text(column, {"task": task, "n": f"{count:.0f}", "runs": len(runs)}))
    if not len(runs):
        return said
    if count := untested(study, task):
        said.append(Text("without_sentences", {"task": task, "n": count}))
    if scores.first_score(study, task) == "exact_match":
        return [*said, Text("exact_match_answers", {"task": task})]
    means = [made.mean(task, pe, "bleu").mean for pe in study.encodings]
    if pd.Series(means).max() < LEAST_BLEU:
        said.append(Text("no_translation", {"task": task, "least": LEAST_BLEU}))
    return said


def untested(study: Study, task: str) -> int:
    """Count the pairs of translations that a study compares and no test has."""
    tests, runs = (of_task(table, task) for table in (study.tests, study.bleu))
    tested = {(seed, frozenset(pair)) for seed, *pair in tests[["seed", "a", "b"]].to_numpy()}
    there = {*map(tuple, runs[["seed", "pe"]].to_numpy())}
    return sum(
        {(seed, a), (seed, b)} <= there and (seed, frozenset((a, b))) not in tested
        for seed, (a, b) in product(runs["seed"].unique(), pairs_of(study) if study.config else ())
    )


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


def reading_notes(made: Scores, rule: Rule | None) -> list[Text]:
    """The notes on how to read the page, of which a page shows those that it needs."""
    study = made.study
    new = any(scores.rests_on_new(study, task) for task in study.tasks)
    there = {
        "note_interval": True,
        "note_scores": True,
        "note_new": new,
        "note_init": new and study.config.get("trainer", {}).get("init_from") is not None,
        "note_unseen": made.frame["beyond"].notna().any(),
        "note_scale": any("learned" in pe for pe in study.encodings),
        "note_ceiling": any(scores.ceiling(study, task) for task in study.tasks),
        "note_pairs": len(study.encodings) > 1,
        "note_holm": len(study.encodings) > 1,
        "note_rule": rule is not None,
        "note_sentences": len(study.tests) > 0,
        "note_curves": len(study.curves) > 0,
    }
    fill = {"learned": scores.LEARNED, "near": scores.NEAR, "still": f"{scores.STILL:.0%}"}
    return [Text(key, fill) for key, shown in there.items() if shown]


def written(study: Study) -> str:
    """Write the rule as in the study's YAML file."""
    rule = {k: v for k, v in study.config["study"]["rule"].items() if k != "claim" and v}
    return yaml.safe_dump(rule, sort_keys=False, default_flow_style=None, width=100).strip()


def placed(beside: Board) -> list[Text]:
    """Say where each encoding of the study stands among the committed rows, or why it does not."""
    if not beside.rows:
        return [Text(*beside.why)]
    [best] = [row for row in beside.rows if row.gap is None]
    named = {"n": len(beside.rows), "best": name_of(best.pe)}
    said = [
        Text("board_place", named | {"pe": name_of(row.pe), "place": place,
             "total": f"{row.total:z.3f}{beside.short(row)}", "gap": f"{row.gap:+z.3f}"})
        for place, row in enumerate(beside.rows, start=1)
        if row.own
    ]  # fmt: skip
    if beside.lacking:
        names = [Text("this_study", {"pe": name_of(pe)}) for pe in beside.lacking]
        said.append(Text("board_lacks", {"names": names}))
    return said or [Text("board_best", named | {"total": f"{best.total:z.3f}"})]
