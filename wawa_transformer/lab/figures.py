"""The report's pictures: one panel per task, one look per encoding."""

import functools
import io
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from wawa_transformer.common.files import write_atomically
from wawa_transformer.lab import scores
from wawa_transformer.lab.pages import Text, name_of, own_words, tr
from wawa_transformer.lab.scores import SCORES, Score, Scores
from wawa_transformer.lab.statistics import Estimate, estimate
from wawa_transformer.lab.styles import CEILING, GREY, styles_of
from wawa_transformer.lab.tables import NEEDED, Study, of_task
from wawa_transformer.train.evaluation import shown_metrics

# What the length of a task counts, by its kind; for other tasks it is the sequence length.
LENGTHS = {"scan": "axis_actions", "addition": "axis_digits"}
# Inches, by the number of columns. On a phone the letters of a wider picture are too small.
WIDTHS = {1: 6, 2: 7.6}
MANY = 4  # with more encodings, lines hide which is best, so a ranking is drawn too


def pictures(made: Scores) -> dict[str, Callable[[], Figure]]:
    """List the pictures that a study's tables allow, each with the function that draws it."""
    study = made.study
    styles = styles_of(study)
    trained = {task: scores.trained_lengths(study, task) for task in study.tasks}
    generated = {task: lengths[1] for task, lengths in trained.items() if lengths}
    drawings: dict[str, Callable[[], Figure]] = {}
    # Targets of words, or too short for BLEU, have a BLEU that says nothing.
    scored_by = study.bleu["task"].map(functools.partial(scores.first_score, study))
    if len(translated := study.bleu[scored_by.eq("bleu")]):
        drawings["bleu"] = lambda: bleu(translated, styles)
    if generated and len(study.encodings) > MANY:
        most = {task: scores.ceiling(study, task) for task in generated}
        limits = {task: each.mean for task, each in most.items() if each}
        tops: dict[str, float] = dict.fromkeys(generated, 1.0)
        scored = ranks(made, "exact_match", tops)
        drawings["ranking"] = lambda: ranking(scored, styles, tops, limits)
        tested = {
            task: longer[1]
            for task in generated
            if (longer := scores.unseen_lengths(study, task))
            and any(made.interpretable("reach", task, pe) for pe in study.encodings)
        }
        if tested:
            drawings["reach"] = lambda: ranking(
                ranks(made, "reach", tested), styles, tested, generated, reach=True
            )
    if generated:
        rows = by_length(study, list(generated))
        drawings["exact_match_by_length"] = lambda: panels(curves(study, rows, "length"), styles)
    if len(study.attention):
        drawings["attention"] = lambda: attention(study.attention)
    if study.curves["task"].isin(study.tasks).any():
        own = [metric.name for metric in shown_metrics() if metric.name not in NEEDED["curves"]]
        for name in ("exact_match", "nll", *own):
            if study.curves[name].notna().any():
                drawings[f"learning_{name}"] = functools.partial(learning, study, styles, name)
    return drawings


def learning(study: Study, styles: Mapping[str, dict[str, Any]], name: str) -> Figure:
    """Plot a metric of the validations over the steps of training."""
    return panels(curves(study, study.curves, "step", name), styles)


# ------------------------------------------------------------------------------- what is drawn


def by_length(study: Study, tasks: list[str]) -> pd.DataFrame:
    """Select what is drawn by length: at trained lengths the sources that the scores rest on."""
    parts = []
    for task in tasks:
        rows = of_task(study.results, task).copy()
        if scores.rests_on_new(study, task):
            seen = rows["trained"].eq(True)
            for column in ("exact_match", "ceiling"):
                rows.loc[seen, column] = rows.loc[seen, f"{column}_new"]
        parts.append(rows)
    return pd.concat(parts)


@dataclass(frozen=True)
class Panel:
    """What is drawn of one task: a score against ``x``, as (x, mean, low, high) by encoding.

    ``rows`` are the rows of the table, and ``kind`` is the kind of the task.
    """

    task: str
    kind: str
    x: str
    score: Score
    points: Mapping[str, list[tuple[float, ...]]]
    rows: pd.DataFrame


def curves(study: Study, table: pd.DataFrame, x: str, y: str = "exact_match") -> list[Panel]:
    """Compute each encoding's mean of ``y`` over seeds with its 95% interval, for each ``x``.

    A text shows token accuracy instead of exact match, which is near 0 for whole sentences.
    Intervals are cut at the bounds of the metric, in the pictures only.
    """
    drawn = []
    for task in [task for task in study.tasks if task in set(table["task"])]:
        rows, text = of_task(table, task), scores.trained_lengths(study, task) is None
        score = SCORES["token_accuracy" if text and y == "exact_match" else y]
        points: dict[str, list[tuple[float, ...]]] = {}
        for pe in study.encodings:
            known = rows[rows["pe"] == pe].dropna(subset=score.name)
            means: Any = ((at, estimate(seeds)) for at, seeds in known.groupby(x)[score.name])
            points[pe] = [(at, each.mean, *each.within(score.top)) for at, each in means]
        kind = study.config.get("tasks", {}).get(task, {}).get("kind", task)
        drawn.append(Panel(task, kind, x, score, points, rows))
    return drawn


# The seeds and the mean of each encoding, the best last; None if they are not interpreted.
Ranks = dict[str, dict[str, tuple[pd.Series, Estimate] | None]]


def ranks(made: Scores, score: str, tasks: Iterable[str]) -> Ranks:
    """Rank the encodings of each task by one score."""
    ranked: Ranks = {}
    for task in tasks:
        means = {pe: made.mean(task, pe, score) for pe in made.study.encodings}
        read = {pe: made.interpretable(score, task, pe) for pe, mean in means.items() if mean.n}
        order = sorted(read, key=lambda pe: (read[pe], means[pe].mean))
        ranked[task] = {
            pe: (made.seeds(task, pe, score), means[pe]) if read[pe] else None for pe in order
        }
    return ranked


# ------------------------------------------------------------------------------------- drawing


def panels(drawn: Sequence[Panel], styles: Mapping[str, dict[str, Any]]) -> Figure:
    """Plot each encoding's curve with its band, one panel per task."""
    columns, lines = arrangement(len(drawn))
    figure, legend = Figure(layout="constrained"), dict[str, Any]()
    for place, panel in enumerate(drawn, start=1):
        axes, top = figure.add_subplot(lines, columns, place), panel.score.top
        for order, (pe, points) in enumerate(panel.points.items()):
            # Later lines are thinner, so that overlapping lines all stay visible.
            width = 1.2 + 2.2 * (1 - order / max(1, len(panel.points) - 1))
            look = styles[pe] | {"linewidth": width, "markersize": 3 + 1.5 * width}
            # A hundred markers would hide the dash.
            every = 1 if len(points) <= 40 else len(points) // 10
            at, means, low, high = zip(*points, strict=True) if points else ((),) * 4
            axes.plot(at, means, markevery=every, **look)
            legend[pe] = Line2D([], [], label=tr(name_of(pe)), **look)
            axes.fill_between(at, low, high, color=look["color"], alpha=0.2, linewidth=0)
        if panel.x == "length":
            legend |= draw_limits(axes, panel.rows)
        label = Text("axis_step" if panel.x == "step" else LENGTHS.get(panel.kind, "axis_length"))
        axes.set(title=panel.task, xlabel=tr(label), ylabel=tr(own_words(panel.score.label)))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
        lowest = min(0, axes.dataLim.y0)
        axes.set_ylim(*((lowest, None) if top is None else (-0.03 * top, 1.03 * top)))
        plain(axes)
    height = 2.9 * lines
    where: dict[str, Any] = {"loc": "center", "bbox_to_anchor": (0.5, 0, 0.5, 1 / lines)}
    # The legend takes the place that an odd number of panels leaves, if it is short enough.
    if len(drawn) == lines * columns or len(legend) > 11:
        where = {"loc": "outside lower center", "ncols": columns + 1}
        height += 0.25 * math.ceil(len(legend) / (columns + 1))
    figure.set_size_inches(WIDTHS[columns], height)
    figure.legend(handles=list(legend.values()), frameon=False, **where)
    return figure


def plain(axes: Any) -> None:
    """Draw a faint grid, and no frame at the top and on the right."""
    axes.grid(color=GREY, alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def arrangement(tasks: int) -> tuple[int, int]:
    """Choose the number of columns and of lines for the panels."""
    columns = min(2, tasks)
    return columns, math.ceil(tasks / columns)


def draw_limits(axes: Any, rows: pd.DataFrame) -> dict[str, Any]:
    """Draw the longest trained length, the unseen lengths and the ceiling."""
    legend: dict[str, Any] = {}
    tested, trained = rows["length"], rows.loc[rows["trained"].eq(True), "length"]
    left, right = tested.min() - 0.5, tested.max() + 0.5
    axes.axvline(trained.max(), color=GREY, linewidth=1.2)
    longest = tr(Text("longest_trained"))
    legend["trained"] = Line2D([], [], color=GREY, linewidth=1.2, label=longest)
    for start, end in ((left, trained.min()), (trained.max(), right)):
        if end - start > 0.5:
            axes.axvspan(start, end, color=GREY, alpha=0.15, linewidth=0)
            legend["unseen"] = Patch(color=GREY, alpha=0.15, label=tr(Text("unseen_lengths")))
    if rows["ceiling"].lt(1).any():
        ceiling = rows.dropna(subset="ceiling").groupby("length")["ceiling"].mean()
        look: dict[str, Any] = {"color": CEILING, "linewidth": 1.8, "linestyle": (0, (3, 2))}
        # Drawn above the line of a model that reaches the ceiling.
        axes.plot(ceiling.index, ceiling, zorder=3, **look)
        legend["ceiling"] = Line2D([], [], label=tr(Text("ceiling")), **look)
    axes.set_xlim(left, right)
    return legend


def ranking(
    ranked: Ranks,
    styles: Mapping[str, dict[str, Any]],
    tops: Mapping[str, float],
    limits: Mapping[str, float],
    reach: bool = False,
) -> Figure:
    """Plot a ranking of the encodings by exact match or by reach, one panel per task.

    Each encoding has a dot per seed, its mean and its 95% interval. The best is on top. ``tops``
    has each task's largest value, and ``limits`` the place of a line below it. The scale of a share
    is stretched towards 1: the distance from 0.9 to 0.99 is nearly that from 0 to 0.9.
    """
    columns, lines = arrangement(len(ranked))
    rows_of = max(map(len, ranked.values()))
    size = (WIDTHS[columns], (0.26 * rows_of + 1.2) * lines + 0.3)
    figure, legend = Figure(figsize=size, layout="constrained"), dict[str, Any]()
    for panel, (task, order) in enumerate(ranked.items(), start=1):
        axes = figure.add_subplot(lines, columns, panel)
        most = tops[task]
        for place, (pe, known) in enumerate(order.items()):
            if known is None:
                said = tr(Text("not_learned"))
                axes.text(0.98 * most, place, said, va="center", ha="right", color=GREY, size=7)
                continue
            (seeds, mean), colour = known, styles[pe]["color"]
            axes.plot(seeds, [place] * len(seeds), "o", color=colour, alpha=0.35, markersize=4)
            axes.plot(mean.within(most), [place, place], color=colour, linewidth=2)
            axes.plot(mean.mean, place, "|", color=colour, markersize=11, markeredgewidth=2.5)
        if limits.get(task, most) < most:
            look: dict[str, Any] = {"color": CEILING, "linestyle": (0, (3, 2))}
            if reach:
                look = {"color": GREY}
            label = tr(Text("longest_trained" if reach else "ceiling"))
            legend[label] = axes.axvline(limits[task], zorder=0, label=label, **look)
        if reach:
            tested = tr(Text("longest_tested"))
            legend[tested] = axes.axvline(most, linestyle=":", label=tested, color=GREY)
        axes.set_yticks(range(len(order)), [tr(name_of(pe)) for pe in order])
        axes.set_ylim(len(order) - 0.5 - rows_of, len(order) - 0.5)  # equal spacing in all panels
        if reach:
            axes.set_xlim(-0.03 * most, 1.03 * most)
        else:
            axes.set_xscale("function", functions=(nines, from_nines))
            axes.set_xticks([0, 0.5, 0.9, 0.99, 1], ["0", ".5", ".9", ".99", "1"])
            axes.set_xlim(-0.06, from_nines(nines(1) + 0.06))
        keys = ("axis_reach", "axis_half") if reach else ("axis_trained", "axis_stretched")
        # On the right, as there is room below the names, and none at the edge of the picture.
        axes.set_xlabel("\n".join(tr(Text(key)) for key in keys), loc="right")
        axes.set_title(task)
        plain(axes)
    handles = list(legend.values())
    figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False)
    return figure


def nines(share: Any) -> Any:
    """Count the leading nines of a share, at most 2.5."""
    return -np.log10(np.maximum(1.003 - np.asarray(share, dtype=float), 1e-9))


def from_nines(count: Any) -> Any:
    """Invert :func:`nines`."""
    return 1.003 - 10 ** -np.asarray(count, dtype=float)


def bleu(translated: pd.DataFrame, styles: Mapping[str, dict[str, Any]]) -> Figure:
    """Plot BLEU of every run with its 95% interval over test sentences, one panel per task."""
    tasks = translated.groupby("task", sort=False)
    columns, lines = arrangement(len(tasks))
    rows_of = tasks.size().max()
    size = (WIDTHS[columns], (0.2 * rows_of + 1.1) * lines)
    figure = Figure(figsize=size, layout="constrained")
    for panel, (task, rows) in enumerate(tasks, start=1):
        axes = figure.add_subplot(lines, columns, panel)
        order = rows.groupby("pe")["bleu"].mean().sort_values().index
        for place, pe in enumerate(order):
            runs = rows[rows["pe"] == pe].sort_values("seed")
            at = place + np.linspace(0.17, -0.17, len(runs)) if len(runs) > 1 else [place]
            axes.plot(runs["bleu"], at, "o", color=styles[pe]["color"])
            axes.hlines(at, runs["bleu_low"], runs["bleu_high"], color=styles[pe]["color"])
        axes.set_yticks(range(len(order)), [tr(name_of(pe)) for pe in order])
        axes.set(title=str(task), xlabel="BLEU")
        plain(axes)
    return figure


def attention(table: pd.DataFrame) -> Figure:
    """Draw where each answer looks in its source: a panel per encoding, three beside each other.

    Merged tables may have several seeds, of which the first is drawn.
    """
    table = table[table["seed"].eq(table.groupby(["task", "pe"])["seed"].transform("first"))]
    tasks, encodings = (list(dict.fromkeys(table[name])) for name in ("task", "pe"))
    columns = min(3, len(encodings))
    lines = math.ceil(len(encodings) / columns)  # of one task
    size = (2.4 * columns + 0.4, 2.6 * lines * len(tasks) + 0.2)
    figure = Figure(figsize=size, layout="constrained")
    for (i, task), (j, pe) in ((a, b) for a in enumerate(tasks) for b in enumerate(encodings)):
        rows = table[(table["task"] == task) & (table["pe"] == pe)]
        if not len(rows):
            continue
        place = i * lines * columns + j + 1
        axes = figure.add_subplot(lines * len(tasks), columns, place)
        weights = rows.pivot(index="query", columns="key", values="weight")
        axes.imshow(weights, cmap="Blues", vmin=0, vmax=1)
        answer = rows.drop_duplicates("query").sort_values("query")["query_token"]
        source = rows.drop_duplicates("key").sort_values("key")["key_token"]
        axes.set_xticks(range(len(source)), source, fontsize=7)
        axes.set_yticks(range(len(answer)), answer, fontsize=7)
        axes.set_title(f"{task}\n{tr(name_of(pe))}", fontsize=9)
        if i == len(tasks) - 1 and j + columns >= len(encodings):
            axes.set_xlabel(tr(Text("axis_source")))
        if j % columns == 0:
            axes.set_ylabel(tr(Text("axis_answer")))
    return figure


def save(figure: Figure, name: str, png: Path | None = None) -> str:
    """Return a picture as SVG, and write it as PNG if ``png`` is given.

    Black in the SVG becomes the page's text colour.
    """
    if engine := figure.get_layout_engine():
        engine.execute(figure)
        figure.set_layout_engine(None)  # or savefig would draw all twice, first for the places
    if png:
        figure.savefig(picture := io.BytesIO(), dpi=110, metadata={"Software": None})
        write_atomically(png, picture.getvalue())
    buffer = io.StringIO()
    # Text stays text. A fixed salt makes the same report give the same bytes.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :].replace("#000000", "currentColor")
    return re.sub(r' id="[\w.]+_\d+"', "", svg)  # ids such as axes_1 repeat in every picture
