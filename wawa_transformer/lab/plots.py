"""The report's pictures: one panel per task, one look per encoding."""

import contextlib
import io
import math
import re
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib import font_manager
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from wawa_transformer.lab.intervals import estimate
from wawa_transformer.lab.language import Words, encoding_name, say
from wawa_transformer.train.evaluation import METRICS, Metric

# Every encoding has the same colour and marker in all pictures and pages. Colour-blind readers can
# distinguish the first eight colours: Okabe & Ito, "Color Universal Design" (2008).
BLUE, ORANGE, BLACK, VERMILION, GREEN, PINK, SKY, YELLOW = MAIN_COLOURS = (
    "#0072B2", "#E69F00", "#000000", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#A89400",
)  # fmt: skip
MORE_COLOURS = (
    "#8470D8", "#A0703C", "#44AA99", "#CC6677", "#AA4499", "#6B8E23", "#5F7F9F", "#C2A26B",
    "#C44E52", "#98BF64", "#B07AA1", "#8C8680",
)  # fmt: skip
MARKERS = "osX^Dv*Pd<hp>"
ENCODINGS = (
    "sinusoidal", "learned", "none", "rotary", "alibi", "t5", "shaw", "transformer_xl",
    "kerple", "fire", "cope", "randomized", "shifted", "coupled",
    "linear", "exponential", "textbook", "fairseq", "divided", "base100", "base1e6",
    "concatenated", "permuted", "rising", "fast_half", "slow_half",
)  # fmt: skip
VARIANT_DASHES = ("--", ":", "-.")
GREY = "#808080"  # visible on a white page and on a dark page
CEILING = "#D02090"
CJK_FONTS = (
    "Noto Sans CJK SC", "Noto Sans CJK JP", "Source Han Sans SC", "Source Han Sans CN",
    "WenQuanYi Micro Hei", "WenQuanYi Zen Hei", "PingFang SC", "Heiti SC", "Hiragino Sans GB",
    "Microsoft YaHei", "SimHei", "Arial Unicode MS",
)  # fmt: skip

# The Chinese names of the metrics. A metric that is missing here keeps its English name.
CHINESE = {
    "exact_match": "完全匹配率",
    "token_accuracy": "词元准确率，给出正确前文",
    "nll": "NLL，nat 每词元",
    "oracle_exact_match": "完全匹配率，给定长度",
}
AXIS_LABELS = {
    "length": Words("sequence length", "序列长度"),
    "bin": Words("source words (upper edge of bin)", "源的词数（区段上界）"),
    "step": Words("training step", "训练步"),
    **{
        metric.name: Words(metric.axis, CHINESE.get(metric.name, metric.axis)) for metric in METRICS
    },
}
TOPS = {metric.name: metric.top for metric in METRICS}


def heading(metric: Metric) -> str:
    """The heading of a metric's column."""
    return say(metric.heading, CHINESE.get(metric.name, metric.heading))


def encoding_styles(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Choose each encoding's colour, marker and dash, as keyword arguments of ``Axes.plot``.

    A variant such as ``t5_cross`` differs from its original only in the dash. Your own encodings
    come after the project's, in alphabetical order.
    """
    short = {name: name.rpartition("/")[2] for name in names}
    original = {
        name: max(filter(end.startswith, ENCODINGS), key=len, default=end)
        for name, end in short.items()
    }
    order = [*ENCODINGS, *sorted({*original.values()}.difference(ENCODINGS))]
    variants = sorted(name for name in short if short[name] != original[name])
    styles = {}
    for name, first in original.items():
        place = order.index(first)
        twins = [each for each in variants if original[each] == first]
        dash = VARIANT_DASHES[twins.index(name) % len(VARIANT_DASHES)] if name in twins else "-"
        more = MORE_COLOURS[place % len(MORE_COLOURS)]
        colour = MAIN_COLOURS[place] if place < len(MAIN_COLOURS) else more
        marker = MARKERS[place % len(MARKERS)]
        styles[name] = {"color": colour, "marker": marker, "linestyle": dash}
    return styles


def panels(
    frame: pd.DataFrame, x: str, y: str, styles: dict[str, dict[str, Any]], texts: set[str]
) -> Figure:
    """Plot each encoding's curve over seeds, one panel per task.

    A curve is the mean of ``y`` against ``x`` with a 95% band. A text (a task in ``texts``) shows
    token accuracy instead of exact match, which is near 0 for whole sentences. Bands are cut at the
    bounds of the metric, in the pictures only.
    """
    tasks = list(dict.fromkeys(frame["task"]))
    encodings = [pe for pe in styles if pe in set(frame["pe"])]
    columns, lines = arrangement(len(tasks))
    figure = Figure(layout="constrained")
    legend: dict[str, Any] = {}
    for place, task in enumerate(tasks, start=1):
        axes = figure.add_subplot(lines, columns, place)
        rows = frame[frame["task"] == task]
        column = "token_accuracy" if y == "exact_match" and task in texts else y
        for order, pe in enumerate(encodings):
            groups = rows[rows["pe"] == pe].groupby(x)[column]
            points = {where: estimate(values) for where, values in groups}
            # Later lines are thinner, so that overlapping lines all stay visible.
            width = 1.2 + 2.2 * (1 - order / max(1, len(encodings) - 1))
            look = styles[pe] | {"linewidth": width, "markersize": 2 + 2 * width}
            # A hundred markers would hide the dash.
            every = 1 if len(points) <= 40 else len(points) // 10
            means = [point.mean for point in points.values()]
            axes.plot(list(points), means, markevery=every, **look)
            legend[pe] = Line2D([], [], label=encoding_name(pe), **look)
            low, high = zip(*(point.within(TOPS[column]) for point in points.values()), strict=True)
            axes.fill_between(list(points), low, high, color=look["color"], alpha=0.2, linewidth=0)
        if x == "length" and task not in texts:
            legend |= _draw_limits(axes, rows)
        axes.set_title(task)
        axes.set_xlabel(str(AXIS_LABELS["bin" if x == "length" and task in texts else x]))
        axes.set_ylabel(str(AXIS_LABELS[column]))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
        top = TOPS[column]
        axes.set_ylim(*((0, None) if top is None else (-0.03 * top, 1.03 * top)))
        axes.grid(color=GREY, alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    per_line = max(3, 2 * columns)
    height = 3.1 * lines + 0.25 * math.ceil(len(legend) / per_line)
    figure.set_size_inches(max(6, 3.9 * columns + 0.6), height)
    figure.legend(
        handles=list(legend.values()), loc="outside lower center", ncols=per_line, frameon=False
    )
    return figure


def arrangement(tasks: int) -> tuple[int, int]:
    """Choose the number of columns and of lines for the panels."""
    columns = 2 if tasks == 4 else min(3, tasks)
    return columns, math.ceil(tasks / columns)


def ranking(
    values: pd.DataFrame, styles: dict[str, dict[str, Any]], label: str, limit: str
) -> Figure:
    """Plot a ranking of the encodings, one panel per task.

    Each encoding has a dot per seed, its mean and its 95% interval. The best is on top.
    ``values`` has a row for each run, with these columns:

    - ``task``, ``pe`` and ``value``, which is NaN if the value is not interpreted;
    - ``limit``, the place of a line with the argument ``limit`` as label, drawn below ``most``;
    - ``most``, the largest possible value, at which intervals are cut.

    A share has a ``most`` of 1, and its scale is stretched towards 1: the distance from 0.9 to 0.99
    is nearly that from 0 to 0.9. A length has the longest tested length, drawn as a dotted line.
    """
    tasks = list(dict.fromkeys(values["task"]))
    rows_of = max(values.groupby("task")["pe"].nunique())
    columns, lines = arrangement(len(tasks))
    size = (max(7, 4.6 * columns + 0.4), (0.26 * rows_of + 1) * lines + 0.2)
    figure = Figure(figsize=size, layout="constrained")
    legend: list[Any] = []
    for panel, task in enumerate(tasks, start=1):
        axes = figure.add_subplot(lines, columns, panel)
        rows = values[values["task"] == task]
        most = rows["most"].max()
        share = most == 1
        means = rows.groupby("pe")["value"].mean().sort_values(na_position="first")
        for place, pe in enumerate(means.index):
            seeds = rows.loc[rows["pe"] == pe, "value"]
            if means.isna()[pe]:
                unread = say("trained lengths not learned", "没有学会训练过的长度")
                axes.text(0.98 * most, place, unread, color=GREY, va="center", ha="right", size=8)
                continue
            interval, colour = estimate(seeds), styles[pe]["color"]
            axes.plot(seeds, [place] * len(seeds), "o", color=colour, alpha=0.35, markersize=4)
            axes.plot(interval.within(most), [place, place], color=colour, linewidth=2)
            axes.plot(interval.mean, place, "|", color=colour, markersize=11, markeredgewidth=2.5)
        where = rows["limit"].dropna().astype(float)
        if len(where) and where.iloc[0] < most:
            look: dict[str, Any] = (
                {"color": CEILING, "linestyle": (0, (3, 2))} if share else {"color": GREY}
            )
            legend = [axes.axvline(where.iloc[0], zorder=0, label=limit, **look)]
            if not share:
                tested = say("longest tested length", "测试的最长长度")
                legend += [axes.axvline(most, linestyle=":", label=tested, **look)]
        axes.set_yticks(range(len(means)), map(encoding_name, means.index))
        axes.set_ylim(len(means) - 0.5 - rows_of, len(means) - 0.5)  # equal spacing in all panels
        if share:
            axes.set_xscale("function", functions=(nines, from_nines))
            axes.set_xticks([0, 0.5, 0.9, 0.99, 1], ["0", ".5", ".9", ".99", "1"])
            axes.set_xlim(-0.06, from_nines(nines(1) + 0.06))
        else:
            axes.set_xlim(-0.03 * most, 1.03 * most)
        stretched = say("\n(scale stretched towards 1)", "\n（刻度向 1 拉伸）") if share else ""
        axes.set_xlabel(label + stretched)
        axes.set_title(task)
        axes.grid(axis="x", color=GREY, alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    figure.legend(handles=legend, loc="outside lower center", frameon=False)
    return figure


def nines(share: Any) -> Any:
    """Count the leading nines of a share, at most 2.5."""
    return -np.log10(np.maximum(1.003 - np.asarray(share, dtype=float), 1e-9))


def from_nines(count: Any) -> Any:
    """Invert :func:`nines`."""
    return 1.003 - 10 ** -np.asarray(count, dtype=float)


def _draw_limits(axes: Any, rows: pd.DataFrame) -> dict[str, Any]:
    """Draw the longest trained length, the unseen lengths and the ceiling."""
    legend: dict[str, Any] = {}
    tested, trained = rows["length"], rows.loc[rows["trained"].eq(True), "length"]
    left, right = tested.min() - 0.5, tested.max() + 0.5
    axes.axvline(trained.max(), color=GREY, linewidth=1.2)
    longest = say("longest trained length", "训练过的最长长度")
    legend["trained"] = Line2D([], [], color=GREY, linewidth=1.2, label=longest)
    for start, end in ((left, trained.min()), (trained.max(), right)):
        if end - start > 0.5:
            axes.axvspan(start, end, color=GREY, alpha=0.15, linewidth=0)
            legend["unseen"] = Patch(
                color=GREY, alpha=0.15, label=say("unseen lengths", "没见过的长度")
            )
    ceiling = rows.drop_duplicates("length").set_index("length")["ceiling"].dropna().astype(float)
    if (ceiling < 1).any():
        look: dict[str, Any] = {"color": CEILING, "linewidth": 1.8, "linestyle": (0, (3, 2))}
        # Drawn above the line of a model that reaches the ceiling.
        axes.plot(ceiling.index, ceiling, zorder=3, **look)
        most = say("ceiling without positions", "没有位置时的上限")
        legend["ceiling"] = Line2D([], [], label=most, **look)
    axes.set_xlim(left, right)
    return legend


def cjk_font() -> str | None:
    """Find an installed font with Chinese characters."""
    manager = font_manager.fontManager
    # matplotlib caches a list of fonts at its first run, so look for fonts installed since.
    for path in set(font_manager.findSystemFonts()) - {font.fname for font in manager.ttflist}:
        with contextlib.suppress(OSError, RuntimeError):  # a file that is not a readable font
            manager.addfont(path)
    installed = {font.name for font in manager.ttflist}
    return next((name for name in CJK_FONTS if name in installed), None)


def save(figure: Figure, folder: Path, name: str) -> str:
    """Return a picture as SVG, and write the English one as PNG.

    There is no Chinese PNG, since this machine may have no font; a browser always finds one. Black
    in the SVG becomes the page's text colour.
    """
    if say("en", "zh") == "en":
        figure.savefig(folder / f"{name}.png", dpi=150)
    buffer = io.StringIO()
    # Text stays text. A fixed salt makes the same report give the same bytes.
    salt = name + say("", "_zh")
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": salt}):
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :].replace("#000000", "currentColor")
    return re.sub(r' id="[\w.]+_\d+"', "", svg)  # ids such as axes_1 repeat in every picture


@contextlib.contextmanager
def fonts() -> Iterator[None]:
    """Use an installed font with Chinese characters inside the block."""
    family = ["DejaVu Sans", *filter(None, [cjk_font()])]
    with warnings.catch_warnings(), matplotlib.rc_context({"font.family": family}):
        warnings.filterwarnings("ignore", "Glyph .* missing from")  # the browser has a font
        yield
