"""The pictures of the lesson on positional encodings.

Every function marked ``@picture`` draws one picture. ``t(english, chinese)`` chooses the words in
the language of the picture.
"""

import contextlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
import torch
from matplotlib import font_manager
from matplotlib.figure import Figure
from matplotlib.patches import Arc, FancyBboxPatch
from torch.nn.functional import layer_norm

from wawa_transformer.lab.styles import BLACK, BLUE, GREEN, GREY, ORANGE, VERMILION, encoding_styles
from wawa_transformer.positional.alibi import ALiBi
from wawa_transformer.positional.base import EncodingContext, consecutive
from wawa_transformer.positional.rotary import Rotary
from wawa_transformer.positional.sinusoid_designs import frequencies
from wawa_transformer.positional.sinusoidal import PositionalEncoding, sinusoid
from wawa_transformer.positional.t5 import T5Buckets

Words = Callable[[str, str], str]
GALLERY: dict[str, Callable[[Words], Figure]] = {}
# The paper's spacing and three that people mistake for it, with the encoding of each.
SPACINGS = {"geometric": "sinusoidal"} | {n: n for n in ("linear", "exponential", "textbook")}
COLOURS = {name: encoding_styles([pe])[pe]["color"] for name, pe in SPACINGS.items()}
CJK_FONTS = (
    "Noto Sans CJK SC", "Noto Sans CJK JP", "Source Han Sans SC", "Source Han Sans CN",
    "WenQuanYi Micro Hei", "WenQuanYi Zen Hei", "PingFang SC", "Heiti SC", "Hiragino Sans GB",
    "Microsoft YaHei", "SimHei", "Arial Unicode MS",
)  # fmt: skip
CHINESE = {"geometric": "几何", "linear": "线性", "exponential": "exp(−i)", "textbook": "教科书"}


def picture(draw: Callable[[Words], Figure]) -> Callable[[Words], Figure]:
    """Add a picture to the gallery under its function's name."""
    GALLERY[draw.__name__] = draw
    return draw


def cjk_font() -> str | None:
    """Find an installed font with Chinese characters."""
    manager = font_manager.fontManager
    # matplotlib caches a list of fonts at its first run, so look for fonts installed since.
    for path in set(font_manager.findSystemFonts()) - {font.fname for font in manager.ttflist}:
        with contextlib.suppress(OSError, RuntimeError):  # a file that is not a readable font
            manager.addfont(path)
    installed = {font.name for font in manager.ttflist}
    return next((name for name in CJK_FONTS if name in installed), None)


def draw_all(folder: Path, lang: str) -> list[Path]:
    """Draw every picture in one language as PNG.

    Raises:
        LookupError: ``lang`` is ``zh`` and no installed font has Chinese characters.
    """
    rc: dict[str, object] = {"axes.spines.top": False, "axes.spines.right": False}
    rc |= {"axes.titlesize": "medium", "figure.titlesize": "medium"}
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
    with matplotlib.rc_context(rc):  # type: ignore[arg-type]
        for name, draw in GALLERY.items():
            paths.append(folder / f"{name}.png")
            draw(lambda en, zh: zh if lang == "zh" else en).savefig(paths[-1], dpi=130)
    return paths


def canvas(height: float, columns: int = 1, lines: int = 1) -> tuple[Figure, list]:
    """Create a figure with lines of ``columns`` axes side by side.

    On a phone the letters of a wider figure are too small.
    """
    figure = Figure(figsize=(7.6, height), layout="constrained")
    return figure, list(figure.subplots(lines, columns, squeeze=False).flat)


@picture
def table(t: Words) -> Figure:
    """Draw the sinusoidal table as a heat map."""
    figure, [axes] = canvas(4.2)
    values = PositionalEncoding(128, max_len=100).pe[0].numpy()
    how: Any = {"aspect": "auto", "interpolation": "nearest"}
    image = axes.imshow(values, cmap="RdBu_r", vmin=-1, vmax=1, **how)
    axes.set_xlabel(t("dimension (even: sine, odd: cosine)", "维度（偶数：正弦，奇数：余弦）"))
    axes.set_ylabel(t("position", "位置"))
    axes.set_title(t("The table: fast on the left, slow on the right",
                     "编码表：左边变化快，右边变化慢"))  # fmt: skip
    figure.colorbar(image, label=t("value", "数值"))
    return figure


@picture
def spacings(t: Words) -> Figure:
    """Draw every spacing's frequencies on a linear and a logarithmic axis."""
    figure, both = canvas(3.6, columns=2)
    for axes, scale in zip(both, ("linear", "log"), strict=True):
        for name in COLOURS:
            sine, cosine = frequencies(64, spacing=name)
            pairs = torch.stack((sine, cosine), dim=1).flatten()
            # The textbook variant shares the paper's sines, so its marks are rings around dots.
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
def similarity(t: Words) -> Figure:
    """Draw cosine similarity against distance, and the first rise of a narrow model enlarged."""
    figure, [far, near] = canvas(3.4, columns=2)
    distance = torch.arange(0, 201, dtype=torch.float64)
    for d, colour in ((512, BLUE), (64, ORANGE)):
        values = torch.cos(distance[:, None] * frequencies(d)[0]).mean(dim=1)
        far.plot(values, color=colour, label=f"d_model = {d}")
    rise = int((values.diff() > 0).nonzero()[0])
    near.plot(range(4, 9), values[4:9], "o-", color=colour)
    for k in (rise, rise + 1):
        near.annotate(f"{values[k]:.4f}", (k, values[k]), (0, -18), textcoords="offset points",
                      ha="center")  # fmt: skip
    near.set_xticks(range(4, 9))
    near.margins(y=0.2)
    far.set_title(t("It depends on the distance alone", "只取决于距离"))
    words = t(f"d_model = 64: it rises from {rise} to {rise + 1}",
              f"d_model = 64：从 {rise} 到 {rise + 1} 回升")  # fmt: skip
    near.set_title(words)
    for axes in (far, near):
        axes.set_xlabel(t("distance between two positions", "两个位置的距离"))
        axes.set_ylabel(t("cosine similarity", "余弦相似度"))
    far.legend(frameon=False)
    return figure


@picture
def attempts(t: Words) -> Figure:
    """Draw the distances between positions under five ways to encode them.

    The integer is added to one word and layer-normalised, as a pre-norm layer sees the sum.
    """
    figure, [*panels, last] = canvas(5.2, columns=3, lines=2)
    last.axis("off")
    position = torch.arange(48)
    word = torch.randn(64, generator=torch.Generator().manual_seed(1)).double()
    integer = layer_norm(word + position[:, None], (64,))
    digits = (position[:, None] >> torch.arange(6)) & 1
    drawn = torch.randn(48, 64, generator=torch.Generator().manual_seed(0))
    for axes, name, rows in zip(
        panels,
        (
            t("the integer,\nafter a layer norm", "整数，\n层归一化之后"),
            t(
                "0 to 1, in a text of 48 words\n(below: of 24 words)",
                "0 到 1，文本有 48 个词\n（左下：24 个词）",
            ),
            t("binary digits", "二进制"),
            t("the sinusoid", "正弦"),
            t("learned, before training", "可学习的表，训练之前"),
        ),
        (integer, position[:, None], digits, sinusoid(position, 64), drawn),
        strict=True,
    ):
        apart = torch.cdist(rows.double(), rows.double())
        largest = float(apart.max())
        # Below 1e-3 the distances are rounding errors, which must not be scaled up.
        apart = apart / (largest if largest > 1e-3 else 1.0)
        # The lower triangle of the second panel shows a text half as long, which has no later row.
        if axes is panels[1]:
            half = (position[:, None] - position) / 23
            apart = torch.where(position[:, None] > position, half, apart)
            apart[24:, :] = torch.where(position[24:, None] > position, torch.nan, apart[24:, :])
        image = axes.imshow(apart.numpy(), cmap="cividis", vmin=0, vmax=1)
        axes.set_title(name)
        axes.set_xlabel(t("position", "位置"))
    for axes in (panels[0], panels[3]):
        axes.set_ylabel(t("position", "位置"))
    words = t("distance of two vectors\n(1: the largest)", "两个向量的距离\n（1：最大的）")
    figure.colorbar(image, cax=last.inset_axes((0.3, 0, 0.1, 1)), label=words)
    return figure


@picture
def scores(t: Words) -> Figure:
    """Draw what four encodings add to attention scores."""
    figure, panels = canvas(7, columns=2, lines=2)
    # Two vectors of 64 entries sqrt(1/2) have the scaled score 32 / 8 = 4.
    at, equal = consecutive(40), torch.full((1, 1, 40, 64), 0.5**0.5)
    turned = Rotary(EncodingContext(64, 1)).turn(equal, at)[0, 0]
    distance = torch.arange(40) - torch.arange(40)[:, None]
    drawn = torch.randn(32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        penalty = ALiBi(EncodingContext(64, 8)).bias(equal, equal, at, at)[0, 3]
        bucket = T5Buckets(EncodingContext(64, 8)).bucket(distance)
    step = -1 / float(penalty[1, 0])
    for axes, name, values in zip(
        panels,
        (
            t("rotary: score minus 4, the score\nof the same two vectors at distance 0",
              "rotary：分数减 4，即同样\n两个向量距离为 0 时的分数"),
            t(f"ALiBi: the fourth of 8 heads,\n−1/{step:g} for each position between",
              f"ALiBi：8 个头的第 4 个，\n每隔一个位置 −1/{step:g}"),
            t("T5: one number for each of 32 buckets,\nrandom, as before training",
              "T5：32 个桶各一个数，\n随机的，如同训练之前"),
            t("Shaw: one number for each distance\nup to 8, random",
              "Shaw：到 8 为止，\n每个距离一个随机的数"),
        ),
        (turned @ turned.T / 8 - 4, penalty, drawn[bucket], drawn[8 + distance.clamp(-8, 8)]),
        strict=True,
    ):  # fmt: skip
        image = axes.imshow(values.numpy(), cmap="RdBu_r", vmin=-4, vmax=4)
        axes.set_title(name)
    for panel in panels[2:]:
        panel.set_xlabel(t("position of the key", "键的位置"))
    for panel in panels[::2]:
        panel.set_ylabel(t("position of the query", "查询的位置"))
    words = t("added to the score", "加到分数上的数")
    figure.colorbar(image, ax=panels, label=words, shrink=0.6)
    return figure


@picture
def model(t: Words) -> Figure:
    """Draw the model's sublayers and the three places where positions enter."""
    figure, [axes] = canvas(8.6)
    axes.set(xlim=(0, 12), ylim=(0, 12.6))
    axes.axis("off")
    left, middle, right, door = 2.4, 6.0, 9.6, VERMILION

    def box(x: float, y: float, words: str, colour: str = GREY) -> None:
        look: dict[str, Any] = {"facecolor": colour + "22", "edgecolor": colour}
        look["boxstyle"] = "round,pad=0.05"
        axes.add_patch(FancyBboxPatch((x - 1.4, y - 0.22), 2.8, 0.44, **look))
        axes.text(x, y, words, ha="center", va="center", fontsize=10)

    def arrow(*path: tuple[float, float], colour: str = BLACK) -> None:
        axes.plot(*zip(*path, strict=True), color=colour, linewidth=1)
        look = {"arrowstyle": "->", "color": colour}
        axes.annotate("", xytext=path[-2], xy=path[-1], arrowprops=look)

    def plus(x: float, y: float, colour: str = BLACK) -> None:
        look = {"boxstyle": "circle,pad=0.1", "facecolor": "white", "edgecolor": colour}
        axes.text(x, y, "+", ha="center", va="center", color=colour, bbox=look, zorder=3)

    attention = t("self-attention", "自注意力"), GREEN
    causal = t("causal self-attention", "因果自注意力"), GREEN
    cross = t("cross-attention", "交叉注意力"), GREEN
    forward = t("feed-forward", "前馈网络"), BLUE
    norm = t("layer norm", "层归一化")
    for x, side, name, read, sublayers, above in (
        (left, -1, t("encoder", "编码器"), t("source words", "输入的词"),
         (attention, forward), (norm, t("memory", "记忆（memory）"))),
        (right, 1, t("decoder", "解码器"), t("answer so far", "已写的答案"),
         (causal, cross, forward), (norm, t("linear, softmax", "线性层、softmax"),
                                    t("the next word", "下一个词"))),
    ):  # fmt: skip
        box(x, 0.3, read)
        box(x, 1.1, t("embedding × √d", "词嵌入 × √d"), BLUE)
        plus(x, 1.85, door)
        arrow((x, 0.57), (x, 0.83))
        arrow((x, 1.37), (x, 2.83))
        y = 2.3
        # The residual connection leads around the norm and the layer.
        for words, colour in sublayers:
            box(x, y + 0.8, norm)
            box(x, y + 1.55, words, colour)
            arrow((x, y + 1.07), (x, y + 1.28))
            arrow((x, y + 1.82), (x, y + 3.03))
            around = x + side * 1.75
            arrow((x, y + 0.25), (around, y + 0.25), (around, y + 2.2), (x + side * 0.2, y + 2.2))
            plus(x, y + 2.2)
            y += 2.5
        frame: dict[str, Any] = {"facecolor": "none", "edgecolor": GREY, "linestyle": "--"}
        axes.add_patch(FancyBboxPatch((x - 1.9, 2.4), 3.8, y - 2.35, **frame))
        axes.text(x - side * 1.8, y - 0.3, t(f"{name},\nN layers", f"{name}，\nN 层"), va="center",
                  ha="right" if side < 0 else "left")  # fmt: skip
        for words in above:
            box(x, y + 0.8, words)
            y += 0.8
            arrow((x, y - 0.53), (x, y - 0.27)) if words != norm else None
    arrow((left + 1.45, 8.9), (middle - 0.8, 8.9), (middle - 0.8, 6.35), (right - 1.45, 6.35))
    for y, words, ends in (
        (1.85, t("1  added:\nsinusoid, learned", "1  相加：\n正弦、可学习的表"),
         ((left + 0.2, 1.85), (right - 0.2, 1.85))),
        (3.85, t("2  queries and keys\nturned: rotary\n3  added to the scores:\nALiBi, T5, Shaw",
                 "2  旋转查询和键：\nrotary\n3  加到分数上：\nALiBi、T5、Shaw"),
         ((left + 1.45, 3.85), (right - 1.45, 3.85))),
        (5.6, t("2, 3  in cross-attention\nwhere asked for:\npe=shaw_cross, …",
                "2、3  交叉注意力里可选：\npe=shaw_cross 等"), ((right - 1.45, 6.15),)),
    ):  # fmt: skip
        axes.text(middle, y, words, ha="center", va="center", color=door, fontsize=8.5)
        for end in ends:
            arrow((middle + (1.05 if end[0] > middle else -1.05), y), end, colour=door)
    return figure


@picture
def rotation(t: Words) -> Figure:
    """Draw how a shift by k positions rotates each pair of dimensions.

    A pair turns by k times its frequency.
    """
    figure, panels = canvas(2.5, columns=3)
    start, shift = 2, 5
    for axes, pair in zip(panels, (0, 4, 8), strict=True):
        w = float(frequencies(64)[0][pair])
        axes.add_patch(Arc((0, 0), 2, 2, color=GREY, linewidth=0.8))
        first, last = start * w, (start + shift) * w
        for angle, words, colour in (
            (first, f"p = {start}", BLUE),
            (last, f"p = {start + shift}", VERMILION),
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
    """Draw the largest error up to each position, by number format."""
    figure, [axes] = canvas(4.2)
    position = torch.unique(torch.logspace(0, 5, 160).long())
    exact = sinusoid(position, 512)[:, 0::2]
    even = torch.arange(0, 512, 2).float()
    by_exp = torch.exp(even * (-math.log(10000.0) / 512))
    by_power = 10000.0 ** (-even / 512)
    half = by_exp.bfloat16()
    for words, sines, look in (
        (t("bfloat16", "bfloat16"), (position.bfloat16()[:, None] * half).float().sin(), VERMILION),
        (
            t("float32, exp of log", "float32，先取对数再取 exp"),
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
    axes.set_title(t("The number format of the angles decides the error (d_model = 512)",
                     "误差取决于用哪种精度计算角（d_model = 512）"))  # fmt: skip
    figure.legend(loc="outside right center", frameon=False)
    return figure
