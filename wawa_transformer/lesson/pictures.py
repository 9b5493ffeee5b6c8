"""The pictures of the lesson: what the sinusoidal encoding looks like and why it works.

Every function draws one picture; ``t(english, chinese)`` chooses the language of its words.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
import torch
from matplotlib.figure import Figure
from matplotlib.patches import Arc, FancyBboxPatch
from matplotlib.ticker import MaxNLocator
from plotly.offline import get_plotlyjs
from torch import nn
from torch.nn.functional import layer_norm

from wawa_transformer.lab.language import say, speaking
from wawa_transformer.lab.pages import write_page
from wawa_transformer.lab.plots import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PINK,
    VERMILION,
    cjk_font,
)
from wawa_transformer.positional.alibi import ALiBi
from wawa_transformer.positional.base import EncodingContext, consecutive
from wawa_transformer.positional.rotary import Rotary
from wawa_transformer.positional.sinusoid_designs import SinusoidDesign, frequencies
from wawa_transformer.positional.sinusoidal import PositionalEncoding, sinusoid
from wawa_transformer.positional.t5 import T5Buckets

Words = Callable[[str, str], str]
GALLERY: dict[str, Callable[[Words], Figure]] = {}
# The spacings that people take for the paper's; the others are drawn nowhere.
COLOURS = {"geometric": BLUE, "linear": ORANGE, "exponential": GREEN, "textbook": PINK}
CHINESE = {"geometric": "几何", "linear": "线性", "exponential": "exp(−i)", "textbook": "教科书"}


def picture(draw: Callable[[Words], Figure]) -> Callable[[Words], Figure]:
    """Put a picture into the gallery under its function's name."""
    GALLERY[draw.__name__] = draw
    return draw


def draw_all(folder: Path, lang: str) -> list[Path]:
    """Draw every picture in one language as PNG.

    Raises:
        LookupError: Chinese is asked for and no font has it.
    """
    rc: dict[str, object] = {"axes.spines.top": False, "axes.spines.right": False}
    if lang == "zh":
        font = cjk_font()
        if font is None:
            raise LookupError(
                "no font with Chinese characters is installed, so the Chinese pictures are left "
                "out; install one, for example with: apt install fonts-noto-cjk"
            )
        rc |= {"font.family": [font], "axes.unicode_minus": False}
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    with speaking(lang), matplotlib.rc_context(rc):  # type: ignore[arg-type]
        for name, draw in GALLERY.items():
            paths.append(folder / f"{name}.png")
            draw(say).savefig(paths[-1], dpi=130)
    return paths


def write_explorer(path: Path) -> None:
    """Write ``explore.html``, the interactive page: one file that needs no network."""
    colours = [BLUE, ORANGE, GREEN, VERMILION]
    templates = Path(__file__).parent / "templates"
    write_page(path, templates, plotly=get_plotlyjs(), spacings=list(COLOURS), colours=colours)


def canvas(width: float, height: float, columns: int = 1, rows: int = 1) -> tuple[Figure, list]:
    """A figure and its axes, row by row."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, list(figure.subplots(rows, columns, squeeze=False).flat)


@picture
def table(t: Words) -> Figure:
    """The table as a heat map."""
    figure, [axes] = canvas(8, 4.4)
    image = axes.imshow(
        PositionalEncoding(128, max_len=100).pe[0], aspect="auto", cmap="RdBu_r", vmin=-1, vmax=1,
        interpolation="nearest",
    )  # fmt: skip
    axes.set_xlabel(t("dimension (even: sine, odd: cosine)", "维度（偶数：正弦，奇数：余弦）"))
    axes.set_ylabel(t("position", "位置"))
    axes.set_title(t("The table: fast on the left, slow on the right",
                     "编码表：左边变化快，右边变化慢"))  # fmt: skip
    figure.colorbar(image, label=t("value", "数值"))
    return figure


@picture
def curves(t: Words) -> Figure:
    """Single dimensions along the positions."""
    figure, [axes] = canvas(8, 3.6)
    rows = PositionalEncoding(64, max_len=101).pe[0]
    for i, colour in zip((0, 8, 16, 24, 40), (BLUE, ORANGE, GREEN, VERMILION, PINK), strict=True):
        wave = 2 * math.pi / float(frequencies(64)[0][i // 2])
        words = t(f"dimension {i}, wavelength {wave:.0f}", f"第 {i} 维，波长 {wave:.0f}")
        axes.plot(rows[:, i], color=colour, label=words)
    axes.plot(
        rows[:, 1], color=BLUE, linestyle=":", label=t("dimension 1: its cosine", "第 1 维：余弦")
    )
    axes.set_xlabel(t("position", "位置"))
    axes.set_ylabel(t("value", "数值"))
    axes.set_title(t("Each pair of dimensions is a clock with its own speed (d_model = 64)",
                     "每一对维度是一座快慢不同的钟（d_model = 64）"))  # fmt: skip
    figure.legend(loc="outside right center", frameon=False)
    return figure


@picture
def spacings(t: Words) -> Figure:
    """Frequencies of every spacing, on a linear and on a logarithmic axis."""
    figure, both = canvas(9, 3.8, columns=2)
    for axes, scale in zip(both, ("linear", "log"), strict=True):
        for name in COLOURS:
            sine, cosine = frequencies(64, spacing=name)
            pairs = torch.stack((sine, cosine), dim=1).flatten()
            # The textbook variant shares the paper's sines: rings around its dots.
            size, fill = (5, "none") if name == "textbook" else (2, "full")
            axes.plot(pairs, "o", color=COLOURS[name], label=t(name, CHINESE[name]),
                      markersize=size, fillstyle=fill)  # fmt: skip
        axes.set_yscale(scale)
        axes.set_xlabel(t("dimension", "维度"))
        axes.set_ylabel(t("angular frequency (radians a position)", "角频率（弧度/位置）"))
    both[1].set_ylim(1e-6, 2)
    both[0].set_title(t("linear axis: geometric crowds at 0", "线性轴：几何间距挤在 0 附近"))
    both[1].set_title(t("logarithmic axis: geometric is a line", "对数轴：几何间距是直线"))
    handles, labels = both[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    return figure


@picture
def wavelengths(t: Words) -> Figure:
    """How many pairs complete a turn within a sequence."""
    figure, [axes] = canvas(8, 3.8)
    waves = 2 * math.pi / frequencies(128)[0]
    axes.bar(range(64), waves, color=BLUE, width=0.8)
    axes.set_yscale("log")
    for length in (10, 100, 1000):
        turned = int((waves <= length).sum())
        axes.axhline(length, color=VERMILION, linewidth=1)
        words = t(f"in {length} positions\n{turned} of 64 come round",
                  f"{length} 个位置之内\n64 对中 {turned} 对转满一圈")  # fmt: skip
        axes.text(1.01, length, words, color=VERMILION, va="center",
                  transform=axes.get_yaxis_transform())  # fmt: skip
    axes.set_xlabel(t("pair of dimensions (d_model = 128)", "维度对（d_model = 128）"))
    axes.set_ylabel(t("wavelength (positions)", "波长（位置数）"))
    axes.set_title(
        t("Most pairs never come round within a sentence", "多数维度在一句话里转不满一圈")
    )
    return figure


@picture
def similarity(t: Words) -> Figure:
    """Cosine similarity against distance, with the first rebound."""
    figure, [axes] = canvas(8, 3.8)
    distance = torch.arange(0, 201, dtype=torch.float64)
    for d, colour in ((64, ORANGE), (512, BLUE)):
        w = frequencies(d)[0]
        values = torch.cos(distance[:, None] * w).mean(dim=1)
        rise = int((values.diff() > 0).nonzero()[0])
        words = t(f"first rise after {rise}", f"首次回升在 {rise} 之后")
        axes.plot(values, color=colour, label=f"d_model = {d}: {words}")
        axes.plot(rise, values[rise], "v", color=colour, markersize=9)
    axes.set_xlabel(t("distance between two positions", "两个位置的距离"))
    axes.set_ylabel(t("cosine similarity", "余弦相似度"))
    axes.set_title(t("Similarity depends on distance alone, and does not fall steadily",
                     "相似度只取决于距离，但并非一路下降"))  # fmt: skip
    axes.legend(frameon=False)
    return figure


@picture
def gram(t: Words) -> Figure:
    """Products of all pairs of positions: constant along diagonals, or not."""
    figure, both = canvas(9, 4.2, columns=2)
    for axes, name in zip(both, ("geometric", "textbook"), strict=True):
        rows = SinusoidDesign(64, max_len=60, spacing=name).pe[0].double()
        image = axes.imshow(rows @ rows.T, cmap="viridis", vmin=0, vmax=38)
        axes.set_xlabel(t("position", "位置"))
        axes.set_ylabel(t("position", "位置"))
    both[0].set_title(
        t("the paper's: every diagonal is one number", "原论文：每条对角线是同一个数")
    )
    both[1].set_title(t("cosine exponent (2i+1)/d: it is not", "余弦指数 (2i+1)/d：不再如此"))
    figure.colorbar(image, ax=both, label=t("dot product", "点积"))
    return figure


@picture
def attempts(t: Words) -> Figure:
    """How far apart the vectors of two positions are: five attempts.

    The integer is shown as a pre-norm layer sees it: added to one word, after the layer norm.
    """
    figure, panels = canvas(13, 3.3, columns=5)
    position = torch.arange(48)
    word = torch.randn(64, generator=torch.Generator().manual_seed(1)).double()
    integer = layer_norm(word + position[:, None], (64,))
    digits = (position[:, None] >> torch.arange(6)) & 1
    drawn = torch.randn(48, 64, generator=torch.Generator().manual_seed(0))
    for axes, name, rows in zip(
        panels,
        (
            t("the integer,\nafter a layer norm", "整数，\n层归一化之后"),
            t("0 to 1\n(length 48, below it 24)", "0 到 1\n（长度 48，下半为 24）"),
            t("binary digits", "二进制"),
            t("the sinusoid", "正弦"),
            t("learned, before training", "可学习的表，训练之前"),
        ),
        (integer, position[:, None], digits, sinusoid(position, 64), drawn),
        strict=True,
    ):
        apart = torch.cdist(rows.double(), rows.double())
        largest = float(apart.max())
        apart = apart / (largest if largest > 1e-3 else 1.0)  # rounding alone is no distance
        if axes is panels[1]:  # the lower half is that of a text half as long
            half = (position[:, None] - position).abs() / 23
            apart = torch.where(position[:, None] > position, half.clamp(max=1.0), apart)
        image = axes.imshow(apart, cmap="cividis", vmin=0, vmax=1)
        axes.set_title(name)
        axes.set_xlabel(t("position", "位置"))
    panels[0].set_ylabel(t("position", "位置"))
    words = t("distance, of the largest", "距离，与最大者之比")
    figure.colorbar(image, ax=panels, label=words, shrink=0.8)
    return figure


@picture
def scores(t: Words) -> Figure:
    """What four encodings do to the score of a query and a key."""
    figure, panels = canvas(13, 3.4, columns=4)
    place, at = EncodingContext(64, 8), consecutive(40)
    signed: dict[str, Any] = {"cmap": "RdBu_r", "vmin": -1, "vmax": 1}
    plain: dict[str, Any] = {"cmap": "cividis"}
    ones = torch.ones(1, 1, 40, 64)
    turned = Rotary(EncodingContext(64, 1)).turn(ones, at)[0, 0]
    draw = torch.Generator().manual_seed(0)
    query, key = torch.randn(64, generator=draw), torch.randn(2 * 8 + 1, 64, generator=draw)
    distance = torch.arange(40)[None, :] - torch.arange(40)[:, None]
    added = (key @ query / 64)[distance.clamp(-8, 8) + 8]
    with torch.no_grad():
        penalty = ALiBi(place).bias(ones, ones, at, at)[0, 0]
        bucket = T5Buckets(place).bucket(distance)
    for axes, name, values, look in zip(
        panels,
        (
            t("shaw: added to one query,\nclipped at 8", "shaw：给一个查询\n加上的数，截断到 8"),
            t(
                "rotary: share of the score\nof two equal vectors",
                "rotary：两个相同向量\n的分数还剩多少",
            ),
            t("ALiBi: added, head 1 of 8", "ALiBi：加上的数，8 个头的第 1 个"),
            t("T5: the bucket, of 32", "T5：32 个桶中的哪一个"),
        ),
        (added, turned @ turned.T / 64, penalty, bucket),
        (signed | {"vmin": -0.5, "vmax": 0.5}, signed, plain, plain),
        strict=True,
    ):
        image = axes.imshow(values, **look)
        axes.set_title(name, fontsize=10)
        axes.set_xlabel(t("key", "键"))
        figure.colorbar(image, ax=axes, shrink=0.8)
    panels[0].set_ylabel(t("query", "查询"))
    return figure


@picture
def model(t: Words) -> Figure:
    """What goes where in an encoder-decoder, and the three places where positions enter."""
    figure, [axes] = canvas(9.5, 6)
    axes.set_xlim(0, 11)
    axes.set_ylim(0, 10)
    axes.axis("off")
    width, door = 3.0, VERMILION

    def box(x: float, y: float, words: str, colour: str = BLUE, wide: float = width) -> None:
        edge = FancyBboxPatch(
            (x - wide / 2, y - 0.35), wide, 0.7, boxstyle="round,pad=0.05",
            facecolor=colour + "22", edgecolor=colour,
        )  # fmt: skip
        axes.add_patch(edge)
        axes.text(x, y, words, ha="center", va="center", fontsize=10)

    def arrow(start: tuple[float, float], end: tuple[float, float], colour: str = BLACK) -> None:
        look = {"arrowstyle": "->", "color": colour}
        axes.annotate("", xytext=start, xy=end, arrowprops=look)

    left, middle, right = 2.0, 5.5, 9.0
    columns = {
        left: [
            (0.9, t("source words", "输入的词"), GREY),
            (2.4, t("embedding × √d", "词嵌入 × √d"), BLUE),
            (4.4, t("self-attention", "自注意力"), GREEN),
            (6.2, t("feed-forward", "前馈层"), BLUE),
            (7.9, t("memory", "memory（编码结果）"), GREY),
        ],
        right: [
            (0.9, t("answer so far", "已写的答案"), GREY),
            (2.4, t("embedding × √d", "词嵌入 × √d"), BLUE),
            (4.0, t("causal self-attention", "因果自注意力"), GREEN),
            (5.6, t("cross-attention", "交叉注意力"), GREEN),
            (7.2, t("feed-forward", "前馈层"), BLUE),
            (8.6, t("output, softmax: the next word", "输出、softmax：下一个词"), GREY),
        ],
    }
    for x, boxes in columns.items():
        for y, words, colour in boxes:
            box(x, y, words, colour)
        for (low, *_), (high, *_) in itertools.pairwise(boxes):
            arrow((x, low + 0.42), (x, high - 0.42))
    arrow((left + 1.6, 7.9), (right - 1.6, 5.6))
    added = t("1  added: sinusoid, learned", "1  相加：正弦、学习的表")
    inside = t("2  turned: rotary\n", "2  旋转：rotary\n")
    inside += t("3  a bias: ALiBi, T5, Shaw", "3  偏置：ALiBi、T5、Shaw")
    for y, words in ((3.1, added), (4.2, inside)):
        axes.text(middle, y, words, ha="center", va="center", color=door, fontsize=9)
    for x, side in ((left, 1), (right, -1)):
        arrow((middle - side * 1.4, 3.1), (x + side * 0.1, 3.1), door)
        arrow((middle - side * 1.2, 4.2), (x + side * 1.6, 4.2), door)
    axes.text(left, 9.2, t("encoder, N layers", "编码器，N 层"), ha="center", fontsize=12)
    axes.text(right, 9.6, t("decoder, N layers", "解码器，N 层"), ha="center", fontsize=12)
    return figure


@picture
def rotation(t: Words) -> Figure:
    """A shift of k positions turns each pair by k times its frequency."""
    figure, panels = canvas(10, 3.5, columns=3)
    start, shift = 2, 5
    for axes, pair in zip(panels, (0, 4, 8), strict=True):
        w = float(frequencies(64)[0][pair])
        axes.add_patch(Arc((0, 0), 2, 2, color=GREY, linewidth=0.8))
        first, last = start * w, (start + shift) * w
        for angle, words, colour in (
            (first, t(f"position {start}", f"位置 {start}"), BLUE),
            (last, t(f"position {start + shift}", f"位置 {start + shift}"), VERMILION),
        ):
            x, y = math.cos(angle), math.sin(angle)
            axes.annotate("", (x, y), (0, 0), arrowprops={"arrowstyle": "->", "color": colour})
            axes.text(1.13 * x, 1.13 * y, words, color=colour, ha="left" if x > -0.2 else "right",
                      va="center")  # fmt: skip
        turned = min(shift * w, 2 * math.pi)
        axes.add_patch(Arc((0, 0), 0.7, 0.7, theta1=math.degrees(first),
                           theta2=math.degrees(first + turned), color=BLACK))  # fmt: skip
        axes.set(xlim=(-1.8, 2.2), ylim=(-1.3, 1.3), aspect="equal")
        axes.set_xlabel(t(f"dimension {2 * pair + 1} (cosine)", f"第 {2 * pair + 1} 维（余弦）"))
        axes.set_ylabel(t(f"dimension {2 * pair} (sine)", f"第 {2 * pair} 维（正弦）"))
        axes.set_title(
            t(f"turned by 5 × {w:.3g} = {5 * w:.3g} rad", f"转过 5 × {w:.3g} = {5 * w:.3g} 弧度")
        )
    figure.suptitle(t("Five positions on: a rotation, the same wherever it starts (d_model = 64)",
                      "前进五个位置：一次旋转，与从哪里出发无关（d_model = 64）"))  # fmt: skip
    return figure


@picture
def precision(t: Words) -> Figure:
    """The largest error at a position, by how the table was formed."""
    figure, [axes] = canvas(8, 4.2)
    position = torch.unique(torch.logspace(0, 5, 160).long())
    exact = sinusoid(position, 512)[:, 0::2]
    even = torch.arange(0, 512, 2).float()
    by_exp = torch.exp(even * (-math.log(10000.0) / 512))
    by_power = 10000.0 ** (-even / 512)
    half = by_exp.bfloat16()
    for words, sines, look in (
        (t("bfloat16", "bfloat16"), (position.bfloat16()[:, None] * half).float().sin(), VERMILION),
        (
            t("float32, exp of log", "float32，exp 加 log"),
            (position[:, None] * by_exp).sin(),
            ORANGE,
        ),
        (t("float32, power", "float32，直接求幂"), (position[:, None] * by_power).sin(), GREEN),
        (t("float64, rounded to float32", "float64，最后转 float32"), exact.float(), BLUE),
    ):
        error = (sines.double() - exact).abs().amax(dim=1)
        axes.plot(position, error.cummax(dim=0).values, color=look, label=words)
    axes.set(xscale="log", yscale="log")
    axes.set_xlabel(t("position", "位置"))
    axes.set_ylabel(t("largest error up to here", "到此为止的最大误差"))
    axes.set_title(t("Exp or power is all one; form the angles in float64 (d_model = 512)",
                     "exp 与幂没有差别；角度要用 float64 计算（d_model = 512）"))  # fmt: skip
    figure.legend(loc="outside right center", frameon=False)
    return figure


@picture
def distances(t: Words) -> Figure:
    """How far two encodings are from each other, by the design of the table."""
    figure, [axes] = canvas(8, 4)
    apart = torch.arange(1, 301)
    for name in COLOURS:
        rows = SinusoidDesign(64, max_len=1200, spacing=name).pe[0].double()
        gaps = [(rows[k:] - rows[:-k]).norm(dim=1) for k in apart.tolist()]
        middle = [float(gap.median()) for gap in gaps]
        words = t(name, CHINESE[name])
        axes.plot(apart, middle, color=COLOURS[name], label=words)
        axes.fill_between(apart, [float(g.min()) for g in gaps], [float(g.max()) for g in gaps],
                          color=COLOURS[name], alpha=0.2, linewidth=0)  # fmt: skip
    axes.set_ylim(0, None)
    axes.set_xlabel(t("positions apart", "相隔位置数"))
    axes.set_ylabel(t("distance of the encodings", "编码之间的距离"))
    axes.set_title(t("Only the textbook variant depends on where one stands (band: least to most)",
                     "只有教科书写法与所处位置有关（色带：最小到最大）"))  # fmt: skip
    axes.legend(frameon=False, ncols=4, loc="lower right")
    return figure


@picture
def dropout(t: Words) -> Figure:
    """The sum of words and positions before and after dropout."""
    figure, panels = canvas(10, 3.6, columns=3)
    torch.manual_seed(0)
    total = torch.randn(20, 32) + PositionalEncoding(32, max_len=20).pe[0]
    dropped = nn.Dropout(0.1)(total)
    for axes, values, title in (
        (panels[0], total, t("word + position", "词向量 + 位置编码")),
        (panels[1], dropped, t("after dropout 0.1, training", "dropout 0.1 之后（训练）")),
        (panels[2], torch.where(dropped == 0, torch.nan, dropped / total),
         t("what became of each number", "每个数的变化")),
    ):  # fmt: skip
        ratio = axes is panels[2]
        image = axes.imshow(values, aspect="auto", cmap="cividis" if ratio else "RdBu_r",
                            vmin=1 if ratio else -3, vmax=1.2 if ratio else 3,
                            interpolation="nearest")  # fmt: skip
        axes.set_title(title)
        axes.set_xlabel(t("dimension", "维度"))
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        figure.colorbar(image, ax=axes, label=t("factor (blank: set to 0)", "倍数（空白：变为 0）")
                        if ratio else t("value", "数值"))  # fmt: skip
    panels[0].set_ylabel(t("position", "位置"))
    return figure
