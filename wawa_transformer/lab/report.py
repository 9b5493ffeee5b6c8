"""The report of a study: one page with the answer first.

Everything is computed from the runs' files, so a report can be written again at any time, even if
some runs are still training or have failed.
"""

import os
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import pandas as pd
from torch.utils.tensorboard import SummaryWriter

from wawa_transformer.common.files import write_atomically
from wawa_transformer.decode.significance import TRIALS
from wawa_transformer.lab.analysis import task_summary, translations
from wawa_transformer.lab.answers import highest, lead
from wawa_transformer.lab.examples import examples
from wawa_transformer.lab.intervals import estimate
from wawa_transformer.lab.judging import LEARNED_IN_RANGE
from wawa_transformer.lab.language import LANGUAGES, Words, in_both, say, speaking
from wawa_transformer.lab.learning_curves import STILL, learning
from wawa_transformer.lab.pages import render, write_page
from wawa_transformer.lab.plots import encoding_styles, fonts, heading, panels, ranking, save
from wawa_transformer.lab.rates import Rows, rates_summary
from wawa_transformer.lab.results import (
    Pairs,
    Result,
    check_comparable,
    compared_pairs,
    distinct,
    rests_on_new,
)
from wawa_transformer.lab.rules import OUTCOMES, Rule
from wawa_transformer.lab.run_tables import (
    bleu_table,
    curve_table,
    length_table,
    overall_table,
    reach_table,
)
from wawa_transformer.lab.tuning import TUNED
from wawa_transformer.run.run_dir import Run
from wawa_transformer.train.evaluation import SHOWN
from wawa_transformer.train.tracking import add_scalar

STATUSES = {
    "finished": Words("finished", "完成"),
    "failed": Words("failed", "失败"),
    "running": Words("running", "进行中"),
    "waiting": Words("waiting", "未开始"),
}


def write_report(
    directory: Path,
    runs: list[Run],
    title: str,
    command: str,
    question: str = "",
    pairs: Pairs = (),
    rule: Rule | None = None,
    unjudged: str = "",
    tried: Rows = (),
) -> Path:
    """Write ``report.html``, ``report.md``, CSV files and ``figures/`` into ``directory``.

    ``results.csv`` has a row for each run and test length, ``curves.csv`` for each run and
    validation, ``bleu.csv`` for each run that translates. ``tuning.csv`` has the rows of ``tried``,
    from which each encoding's learning rate was chosen.

    ``command`` is the shell command that repeats the study, and ``question`` its question.
    ``pairs`` are the compared encodings (see :func:`compared_pairs` for the default). ``rule``
    decides the outcome, or ``unjudged`` says why there is no verdict. Unfinished runs are named on
    the page and enter no number. Returns the path of ``report.html``.
    """
    if len({(run.task, run.pe, run.seed) for run in runs}) < len(runs):
        raise ValueError("two runs share task, encoding and seed: report them as two studies")
    (directory / "figures").mkdir(parents=True, exist_ok=True)
    # Read once: a run that finishes meanwhile must not be listed as counted.
    kept = {run: run.result() for run in runs}
    finished = [run for run in runs if kept[run]]
    results: list[Result] = [
        {**result, "task": run.task, "pe": run.pe, "seed": run.seed, "run": run}
        for run, result in kept.items()
        if result
    ]
    check_comparable(results, TUNED if tried else ())
    by_length = length_table(results)
    write_atomically(directory / "results.csv", by_length.to_csv(index=False))

    curves = curve_table(finished)
    write_atomically(directory / "curves.csv", curves.to_csv(index=False))
    if any(result["translation"] for result in results):
        write_atomically(directory / "bleu.csv", bleu_table(results).to_csv(index=False))
    if tried:
        write_atomically(directory / "tuning.csv", pd.DataFrame(tried).to_csv(index=False))
    by_task = {
        task: [result for result in results if result["task"] == task]
        for task in dict.fromkeys(run.task for run in finished)
    }
    translated = {task: translations(those, pairs, rule) for task, those in by_task.items()}
    texts = {result["task"] for result in results if result["train_max_length"] is None}
    of_tasks = {task: [run for run in finished if run.task == task] for task in by_task}
    asked = [examples(those) for task, those in of_tasks.items() if task not in texts]
    training = learning(curves, texts)
    styles = encoding_styles(run.pe for run in runs)
    counts = sorted({*Counter((run.task, run.pe) for run in finished).values()} or {0})
    environment = _environment(results)
    facts = {
        "title": title,
        "command": command,
        "rule": rule,
        "outcome_words": OUTCOMES,
        "unjudged": unjudged,
        "answered": [found for found in asked if found],
        "styles": styles,
        "learning": training,
        "texts": texts,
        "still": STILL,
        "runs": [
            _run_entry(run, bool(kept[run]), directory)
            | {"improving": bool(kept[run]) and run.seed in training[run.task, run.pe]["improving"]}
            for run in runs
        ],
        "seeds": counts[0] if len(counts) == 1 else f"{counts[0]}–{counts[-1]}",
        "metrics": [metric for metric in SHOWN if metric.name != "exact_match"],
        "heading": heading,
        "learned_in_range": LEARNED_IN_RANGE,
        "randomisations": TRIALS,
        "environment": environment,
        "mixed": {name: value for name, value in environment.items() if "; " in value},
    }
    templates = Path(__file__).parent / "templates"

    def write_in(language: str) -> str:
        """Render the page in the current language; in English also write ``report.md``."""
        pictures = draw(results, curves, directory / "figures")
        tasks = [
            task_summary(task, those, pairs, rule, translated[task])
            for task, those in by_task.items()
        ]
        outcomes = rule.decide({task["name"]: task["measured"] for task in tasks}) if rule else []
        words = {
            "question": str(in_both(question)),
            "lead": lead(tasks, rule, outcomes, len(runs) - len(finished)),
            "highest": highest(tasks),
            "outcomes": outcomes,
            "tasks": tasks,
            "rates": rates_summary(
                tried,
                compared_pairs(list(styles), pairs),
                [task for task, found in translated.items() if found],
            ),
            "pictures": pictures,
            "comparisons": sum(
                row["difference"].n > 1 for task in tasks for row in task["differences"]
            ),
        }
        context = facts | words
        if language == "en":
            write_page(directory / "report.md", templates, **context)
        return render("report_body.html.jinja", templates, **context)

    bodies = {}
    for language in LANGUAGES:
        with speaking(language), fonts():
            bodies[language] = write_in(language)
    page = directory / "report.html"
    write_page(page, templates, title=title, languages=LANGUAGES, bodies=bodies)
    return page


def draw(results: Sequence[Result], curves: pd.DataFrame, folder: Path) -> dict[str, str]:
    """Draw and save every picture; return the SVGs by name."""
    styles = encoding_styles(result["pe"] for result in results)
    generated = [result for result in results if result["train_max_length"] is not None]
    texts = {result["task"] for result in results} - {result["task"] for result in generated}
    pictures = {}
    if results:
        for name, frame, x, y in (
            ("exact_match_by_length", length_table(results), "length", "exact_match"),
            ("learning_exact_match", curves, "step", "exact_match"),
            ("learning_nll", curves, "step", "nll"),
        ):
            figure = panels(frame, x, y, styles, texts)
            pictures[name] = save(figure, folder, name)

    at_trained = say("exact match at trained lengths", "训练过的长度上的完全匹配率")
    if rests_on_new(generated):
        at_trained += say(", new sources", "，新的源")
    if generated and len(styles) > 4:  # more than four lines hide which is best
        how_far = (
            "reach: longest length with exact match ≥ ½",
            "到达长度：完全匹配率 ≥ ½ 的最长长度",
        )
        ceiling = say("ceiling without positions", "没有位置时的上限")
        longest = say("longest trained length", "训练过的最长长度")
        for name, values, label, limit in (
            ("ranking", overall_table(generated), at_trained, ceiling),
            ("reach", reach_table(generated), say(*how_far), longest),
        ):
            if len(values):
                figure = ranking(values, styles, label, limit)
                pictures[name] = save(figure, folder, name)
    return pictures


def _run_entry(run: Run, finished: bool, directory: Path) -> dict[str, Any]:
    """Describe one run, with a relative link to its folder."""
    status = "finished" if finished else run.status
    path = Path(os.path.relpath(run.directory, directory)).as_posix()
    entry = {"run": run, "status": status, "words": STATUSES[status], "path": path}
    return entry | {"href": quote(path), "log": run.error_file.name, "error": run.failure()}


def _environment(results: Sequence[Result]) -> dict[str, str]:
    """List the devices, versions and dates of the runs."""
    if not results:
        return {}
    dates = sorted(result["finished"] for result in results)
    versions = dict.fromkeys(name for result in results for name in result["versions"])
    places = ("device", "cpu", "threads", "commit")
    # The code of an encoding does not count for the others: two values of one are two versions.
    codes: dict[tuple[str, str], set[str]] = {}
    for result in results:
        codes.setdefault((result["task"], result["pe"]), set()).add(result.get("code", "unknown"))
    several = any(len(each) > 1 for each in codes.values())
    every = sorted(set().union(*codes.values()))
    return {
        **{name: distinct(result.get(name, "unknown") for result in results) for name in places},
        "code": ("; " if several else ", ").join(every),
        "steps": distinct(result["steps"] for result in results),
        **{name: distinct(r["versions"].get(name) for r in results) for name in versions},
        "finished": dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}",
    }


def write_means(directory: Path) -> None:
    """Log each encoding's mean over seeds for TensorBoard, in ``means/<encoding>``.

    Reads ``curves.csv`` in ``directory``. Each metric has a group, and each task a chart
    ``<metric>/validation/<task>`` with one line per encoding. The tab CUSTOM SCALARS adds the 95%
    interval, cut at the bounds of the metric.
    """
    curves = pd.read_csv(directory / "curves.csv")
    shutil.rmtree(directory / "means", ignore_errors=True)
    # TensorBoard assigns colours in the order of writing. In CUSTOM SCALARS its first two colours
    # are close to those of these two encodings in a report.
    first = ["learned", "sinusoidal"]
    for pe, of_encoding in sorted(curves.groupby("pe"), key=lambda each: each[0] not in first):
        charts: dict[str, dict[str, Any]] = {}
        name = "no_encoding" if pe == "none" else str(pe)
        with SummaryWriter(directory / "means" / name) as writer:
            for task, rows in of_encoding.groupby("task"):
                for metric in SHOWN:
                    tags = [f"{metric.name}/validation/{task}"]
                    # The ends of a band have another prefix, so their charts are not on top.
                    tags += [f"z_interval/{task}/{metric.name}_{end}" for end in ("low", "high")]
                    charts.setdefault(str(task), {})[metric.name] = ["Margin", tags]
                    for step, values in rows.groupby("step")[metric.name]:
                        point = estimate(values)
                        ends = point.within(metric.top) if point.n > 1 else (point.mean, point.mean)
                        for tag, value in zip(tags, (point.mean, *ends), strict=True):
                            add_scalar(writer, tag, value, cast(int, step))
            writer.add_custom_scalars(charts)
