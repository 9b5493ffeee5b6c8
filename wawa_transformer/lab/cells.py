"""The tables of a report: each cell is a text in no language, and the number that sorts it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
import yaml

from wawa_transformer.lab import claims, scores, statistics
from wawa_transformer.lab.board import UNSEEN, Board
from wawa_transformer.lab.claims import Outcome, Rule
from wawa_transformer.lab.comparisons import Pair, PairTests
from wawa_transformer.lab.pages import Text, name_of, own_words
from wawa_transformer.lab.scores import SCORES, Score, Scores
from wawa_transformer.lab.statistics import Estimate, estimate, signed
from wawa_transformer.lab.tables import COSTS, Study, of_task
from wawa_transformer.run.schema import PeConfig


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


def encoding(pe: str) -> Cell:
    """A cell that names an encoding."""
    return Cell(name_of(pe), pe=pe)


def number(value: Any, form: str) -> Cell:
    """A cell with a number, or a dash if the number is missing."""
    return Cell("–", math.nan) if pd.isna(value) else Cell(signed(value, form), float(value))


def p_value(p: float) -> Cell:
    """A cell with the p of a test."""
    return Cell("< 0.0001", p) if p < 0.0001 else number(p, ".4f")


def interval(value: Estimate, digits: int, strong: bool = False) -> Cell:
    """A cell with a mean and its interval."""
    return Cell(f"{value:z.{digits}f}", value.mean, strong)


def span(low: float, high: float, form: str) -> Cell:
    """A cell with both ends of an interval, or a dash if there is none."""
    ends = {"low": signed(low, form), "high": signed(high, form)}
    return Cell("–" if pd.isna(low) else Text("span", ends))


def share(count: int, n: int) -> Cell:
    """A cell with a share of seeds and its exact binomial interval; a dash without seeds."""
    if not n:
        return number(None, "")
    interval = statistics.share(count, n)
    ends = {"low": f"{interval.low:.2f}", "high": f"{interval.high:.2f}"}
    return Cell(Text("share", {"count": count, "n": n, **ends}), interval.mean)


def minus(a: str, b: str) -> Text:
    """Name a pair of encodings, as first minus second."""
    return Text("minus", {"a": name_of(a), "b": name_of(b)})


def case_name(case: claims.Case) -> Text | str:
    """Name a case: its pair or encoding, and its task."""
    who = minus(*case.pair) if case.pair else name_of(case.encoding)
    both = Text("who_on", {"who": who, "task": case.task})
    return both if who and case.task else who or case.task


def summary_table(made: Scores, rule: Rule | None) -> Table:
    """Each encoding's mean on every task; the best are marked.

    The score that answers comes first, and those that the rule is about stand beside it.
    """
    study = made.study
    heads: list[Text | str] = [Text("encoding")]
    columns, most = [], [Cell(Text("ceiling"))]
    for task in study.tasks:
        limit = scores.ceiling(study, task)
        for score in SCORES.values():
            first = score.name == scores.first_score(study, task)
            if not first and not (rule and score.name in rule.measures):
                continue
            means = {pe: made.mean(task, pe, score.name) for pe in study.encodings}
            known = [
                each.mean
                for pe, each in means.items()
                if not math.isnan(each.mean) and made.interpretable(score.name, task, pe)
            ]
            best = (max if score.higher_is_better else min)(known, default=math.nan)
            heads.append(Text("task_score", {"task": task, "score": own_words(score.label)}))
            columns.append({pe: score_cell(made, score, task, pe, best) for pe in means})
            most.append(number(limit.mean if limit and first else None, ".3f"))
    rows = [[encoding(pe), *(column[pe] for column in columns)] for pe in study.encodings]
    counts = sorted(set(study.results.groupby(["task", "pe"])["seed"].nunique())) or [0]
    shown = f"{counts[0]}–{counts[-1]}" if len(counts) > 1 else counts[0]
    last = most if any(cell.text != "–" for cell in most[1:]) else []
    return Table(Text("summary_caption", {"n": shown}), heads, rows, last)


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
                Cell(f"{trained.mean:.3f} → {unseen.mean:.3f}", unseen.mean)
                for trained, unseen in row.tasks.values()
            ),
            Cell(f"{row.total:z.3f}{beside.short(row)}", row.total.mean, row.own),
            Cell("–") if row.gap is None else Cell(f"{row.gap:+z.3f}", row.gap.mean),
        ]
        for row in beside.rows
    ]  # fmt: skip
    fill = {"seeds": beside.seeds, "unseen": f"{UNSEEN:.0%}"}
    return Table(Text("board_caption", fill), heads, rows)


def verdict_table(outcomes: Sequence[Outcome]) -> Table:
    """The verdict of every case, supported ones first, and how many checks hold."""
    heads: list[Text | str] = [Text("case"), Text("verdict")]
    for each in outcomes[0].answers:
        given = {k: v for k, v in each.given.items() if v not in (None, [])}
        asked = yaml.safe_dump(given, default_flow_style=True, sort_keys=False, width=1000)
        fill = {"verdict": Text(each.side), "condition": asked.strip()}
        heads.append(Text(f"{each.side}_if", fill))
    rows = [
        [
            Cell(case_name(outcome.case) or Text("whole_study")),
            Cell(Text(outcome.verdict), strong=True),
            *(
                Cell(Text("met" if a.met else "not_met", {"holds": a.holds, "of": a.checks}))
                for a in outcome.answers
            ),
        ]
        for outcome in sorted(outcomes, key=lambda each: claims.VERDICTS.index(each.verdict))
    ]
    return Table(Text("verdict_caption"), heads, rows)


def share_table(tested: PairTests, rule: Rule) -> Table:
    """How many seeds reach the value of a condition that counts seeds."""
    asked = {
        (task, pe, given["value"]): None
        for given in rule.conditions
        if given.get("seeds") is not None
        for task in given["tasks"] or rule.tasks
        for pe in given["encodings"] or rule.encodings
    }
    measures = [own_words(SCORES[name].label) for name in rule.measures]
    rows = [
        [
            Cell(task),
            encoding(pe),
            Cell(Text("at_least", {"score": measures, "value": f"{value:g}"})),
            share(*claims.seeds_reaching(tested, task, pe, value)),
        ]
        for task, pe, value in asked
    ]
    heads = ["task", "encoding", "measure", "share_of_seeds"]
    return Table(Text("share_caption"), list(map(Text, heads)), rows)


def comparison_table(tested: PairTests, others: pd.DataFrame) -> Table:
    """Every comparison: the difference, its interval, the corrected p, and the word for it."""
    heads = ["task", "pair", "measure", "seeds", "difference", "interval", "corrected_p", "verdict"]
    parts = [tested.comparisons, others]
    rows = []
    for row in pd.concat([part for part in parts if len(part)] or parts[:1]).to_dict("records"):
        score = SCORES[row["measure"]]
        measure = Text(
            f"test_{row['test']}", {"score": own_words(score.label), "size": f"{row['size']:g}"}
        )
        form = f"+z.{score.digits}f"
        rows.append(
            [
                Cell(row["task"]), Cell(minus(row["a"], row["b"])), Cell(measure),
                number(row["n"], "d"),
                number(row["mean"], form), span(row["low"], row["high"], form),
                p_value(row["corrected"]),
                Cell(Text(row["word"]), strong=row["word"] in ("better", "worse", "alike")),
            ]
        )  # fmt: skip
    return Table(Text("comparison_caption"), list(map(Text, heads)), rows)


def score_table(made: Scores, task: str) -> Table:
    """Every score of a task: a column for each that has values."""
    study, frame = made.study, made.frame.xs(task)
    shown = [s for s in SCORES.values() if s.shown and frame[s.name].notna().any()]
    heads = [Text("encoding"), Text("seeds"), *(own_words(score.label) for score in shown)]
    rows = []
    for pe in study.encodings:
        count = max((made.mean(task, pe, score.name).n for score in shown), default=0)
        cells = (score_cell(made, score, task, pe) for score in shown)
        rows.append([encoding(pe), number(count, "d"), *cells])
    return Table(Text("score_caption"), heads, rows)


def score_cell(made: Scores, score: Score, task: str, pe: str, best: float = math.nan) -> Cell:
    """A cell with an encoding's score on a task; the ``best`` mean is marked."""
    mean = made.mean(task, pe, score.name)
    cell = interval(mean, score.digits, mean.mean == best)
    if mean.n and not made.interpretable(score.name, task, pe):
        return Cell(Text("unread_value", {"value": cell.text}), cell.value)
    if score.name == "reach":
        at_end = made.seeds(task, pe, "reach") == of_task(made.study.results, task)["length"].max()
        if at_end.any():
            more = Text("or_more" if at_end.all() else "some_more", {"value": cell.text})
            return Cell(more, cell.value, cell.strong)
    return cell


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


def rate_tables(study: Study, pairs: Sequence[Pair]) -> list[tuple[Table, list[Text]]]:
    """The learning rates that were tried, and whether they decide the order of encodings."""
    tables = []
    for task, rows in study.tuning.groupby("task", sort=False):
        best = {pe: point for (_, pe), point in scores.best_points(rows).items()}
        heads: list[Text | str] = [Text("learning_rate"), Text("warmup"), *map(name_of, best)]
        lines = []
        for point, tried in rows.groupby(scores.POINT, sort=False):
            cells = [number(point[0], "g"), number(point[1], "d")]
            for pe, chosen in best.items():
                nll = estimate(tried.loc[tried["pe"] == pe, "nll"])
                cells.append(interval(nll, 4, point == chosen))
            lines.append(cells)
        text = str(task) in set(study.bleu["task"])
        said = [
            Text("rates_order", {"a": name_of(a), "b": name_of(b), **counts})
            for a, b, counts in scores.orders_of(rows, pairs, "nll" if text else "exact_match")
        ]
        ends = [{rows[key].min(), rows[key].max()} for key in scores.POINT]
        if at_edge := [
            name_of(pe)
            for pe, point in best.items()
            if any(len(two) > 1 and each in two for each, two in zip(point, ends, strict=True))
        ]:
            said.append(Text("rates_edge", {"names": at_edge}))
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
                span(row["bleu_low"], row["bleu_high"], ".2f"),
                number(row["chrf"], ".2f"),
            ]
            for row in rows.to_dict("records")
        ]  # fmt: skip
        signature = "; ".join(dict.fromkeys(rows["signature"]))
        caption = Text("bleu_caption", {"task": task, "signature": signature})
        tables.append(Table(caption, heads, lines))
        tests = of_task(study.tests, str(task))
        heads = [Text("seed"), Text("pair"), Text("difference"), "p"]
        lines = [
            [
                number(row["seed"], "d"),
                Cell(minus(row["a"], row["b"])),
                number(row["difference"], "+.2f"),
                Cell(Text("same_translations")) if pd.isna(row["p"]) else p_value(row["p"]),
            ]
            for row in tests.to_dict("records")
        ]
        if lines and scores.first_score(study, str(task)) == "bleu":
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


def cost_table(study: Study) -> Table:
    """What the runs of each encoding cost, as medians over seeds."""
    heads = [Text("task"), Text("encoding"), *map(Text, COSTS), Text("device"), Text("settings")]
    rows = [
        [
            Cell(row["task"]), encoding(row["pe"]),
            *(number(row[name], form) for name, form in COSTS.items()),
            Cell(row["device"]), Cell(settings(study, row["pe"])),
        ]
        for row in study.costs.to_dict("records")
    ]  # fmt: skip
    return Table(Text("cost_caption"), heads, rows)


def settings(study: Study, pe: str) -> str:
    """List the settings of an encoding, without those of every encoding that are off."""
    given = study.config.get("encodings", {}).get(pe, {})
    off = {"name": pe, "kind": given.get("kind")} | vars(PeConfig)
    shown = {k: v for k, v in given.items() if v is not None and v != off.get(k)}
    return ", ".join(f"{key} {value}" for key, value in shown.items())
