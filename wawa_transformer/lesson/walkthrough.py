"""The lesson: how the sinusoidal table is computed and used, every step printed, in two languages.

It needs no knowledge of torch. The default sizes and the seed are those of the printed walk-through
that this project grew from, and with ``all_digits`` its every number can be found here again.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator
from typing import Any

import torch
from rich.cells import cell_len
from torch import Tensor, nn

from wawa_transformer.positional.sinusoidal import PositionalEncoding

SEED = 3832814983  # gives the random embeddings of the original walk-through
SHOWN = 5  # positions that step 6 and step 7 look at
WIDTH = 80
NEXT = (  # what to read after it
    (
        "docs/positions.md",
        "why just so, and what else there is",
        "为什么偏偏这样，还有什么别的办法",
    ),
    ("docs/explore.html", "the same to move by hand", "亲手拖动"),
    ("docs/playground.html", "models that use it, in the browser", "用它的模型，在浏览器里运行"),
)
RULE = "─" * WIDTH


class Lesson:
    """Prints in one language; each step stores what the next one needs.

    Args:
        lang: ``en`` or ``zh``.
        d_model: dimensions of an encoding.
        max_len: positions in the table.
        dropout: probability of zeroing an element in step 7.
        all_digits: print numbers as torch does unasked and the original did, not with four digits.
    """

    def __init__(
        self, lang: str, d_model: int, max_len: int, dropout: float, all_digits: bool = False
    ) -> None:
        self.zh, self.all_digits = lang == "zh", all_digits
        self.d_model, self.max_len, self.dropout = d_model, max_len, dropout
        self.compute()

    def compute(self) -> None:
        """All values, in float32 and step by step, as one would type them."""
        self.position_1d = torch.arange(self.max_len)
        self.position = self.position_1d.unsqueeze(1)
        self.even = torch.arange(0, self.d_model, 2)
        self.scale = -math.log(10000.0) / self.d_model
        self.exponents = self.even * self.scale
        self.div_term = torch.exp(self.exponents)
        self.angle = self.position * self.div_term
        self.sines = torch.sin(self.angle)
        self.cosines = torch.cos(self.angle)[:, : self.d_model // 2]
        self.pe = torch.zeros(self.max_len, 1, self.d_model)
        self.pe[:, 0, 0::2] = self.sines
        self.half_filled = self.pe[:, 0, :].clone()
        self.pe[:, 0, 1::2] = self.cosines

    # ------------------------------------------------------------------------- printing

    def say(self, en: str, zh: str) -> None:
        """A sentence, in the lesson's language."""
        line = ""
        # A word of Latin letters stays whole, and no line begins with a closing mark.
        for piece in re.findall(r"[!-~]+ ?|“?.[，。、；：）”]*", zh if self.zh else en):
            if cell_len(f"  {line}{piece.rstrip()}") > WIDTH:
                print(f"  {line.rstrip()}")
                line = ""
            line += piece
        print(f"  {line}")

    def head(self, number: str, en: str, zh: str) -> None:
        """The title of a sub-step."""
        print(f"\n{number} {zh if self.zh else en}")

    def show(self, code: str, value: Any) -> None:
        """A line of code and what it gives: shape, type and values."""
        print(f"    >>> {code}")
        if isinstance(value, Tensor):
            shape, kind = ("形状", "类型") if self.zh else ("shape", "dtype")
            print(f"    {shape} {tuple(value.shape)}   {kind} {value.dtype}")
            value = str(value)
        print("    " + str(value).replace("\n", "\n    "))

    def number(self, value: float) -> str:
        """One number, with four digits, or with the six of the original."""
        return f"{value:.{6 if self.all_digits else 4}f}"

    def row(self, values: Tensor) -> str:
        """A vector on one line."""
        numbers = values.tolist() if self.all_digits else [f"{v:7.4f}" for v in values.tolist()]
        return f"[{', '.join(str(number) for number in numbers)}]"

    def steps(self) -> Iterator[tuple[int, str, str, Callable[[], None]]]:
        """Number, both titles and the function of each step, in order."""
        titles = (
            ("Positions", "位置索引"),
            ("Angular frequencies", "角频率"),
            ("An empty table", "空的编码表"),
            ("Sines into even dimensions", "正弦填入偶数维"),
            ("Cosines into odd dimensions", "余弦填入奇数维"),
            ("Reading the table", "读懂编码表"),
            ("Use in a network", "在网络中使用"),
        )
        for number, (en, zh) in enumerate(titles, start=1):
            yield number, en, zh, getattr(self, f"step{number}")

    def introduce(self) -> None:
        """What the lesson is about, and its sizes."""
        print(RULE)
        print("正弦位置编码：一步一步" if self.zh else "The sinusoidal encoding, step by step")
        print(RULE)
        self.say(
            "A Transformer reads all words of a sentence at once and cannot tell their order. So a "
            "vector that says where a word stands is added to each word's vector. Here is how it "
            "is made.",
            "Transformer 同时读入句子里的所有词，自己分不出先后。所以每个位置都有一个"
            "说明“我在第几位”的向量，加到词的向量上。下面看它怎样算出来。",
        )
        print(f"    d_model = {self.d_model}   max_len = {self.max_len}   dropout = {self.dropout}")
        self.say(
            "d_model: numbers in a vector. max_len: positions in the table. A tensor is a box of "
            "numbers; its shape says how many along each axis.",
            "d_model：一个向量有几个数。max_len：表里有几个位置。张量（tensor）就是装数的盒子，"
            "形状（shape）说明每个轴上有几个数。",
        )

    def what_next(self) -> None:
        """Where a reader goes from here."""
        print(f"\n{RULE}")
        self.say("Next:", "接下来：")
        for page, en, zh in NEXT:
            page = page.replace(".md", ".zh-CN.md") if self.zh else page
            print(f"    {page:26}{zh if self.zh else en}")

    # ---------------------------------------------------------------------------- steps

    def step1(self) -> None:
        self.head("1.1", "Number the positions", "给位置编号")
        self.show(f"position = torch.arange({self.max_len})", self.position_1d)
        self.say(
            "arange counts from 0 and stops before its end. int64: whole numbers.",
            "arange 从 0 数起，到终点之前为止（不含终点）。int64 是整数。",
        )
        self.head("1.2", "Stand them up as a column", "竖起来成为一列")
        self.show("position = position.unsqueeze(1)", self.position)
        self.say(
            f"unsqueeze(1) puts a new axis of length 1 at place 1: ({self.max_len},) becomes "
            f"({self.max_len}, 1). No number changes.",
            f"unsqueeze(1) 在第 1 轴插入长度为 1 的新轴：({self.max_len},) 变为 "
            f"({self.max_len}, 1)，数值不变。",
        )
        self.head("1.3", "Why a column?", "为什么要竖成一列？")
        pairs = len(self.even)
        self.say(
            f"We shall multiply every position by each of {pairs} frequencies. Broadcasting "
            f"stretches axes of length 1:",
            f"后面每个位置都要乘以 {pairs} 个频率。广播（broadcasting）会把长度为 1 的轴自动拉长：",
        )
        print(f"    ({self.max_len}, 1) × ({pairs},)  →  ({self.max_len}, {pairs})")
        self.say(
            f"Without the column, ({self.max_len},) × ({pairs},) has nothing to stretch, and torch "
            f"refuses (or, worse, pairs them one by one where the lengths agree).",
            f"不竖起来，({self.max_len},) × ({pairs},) 没有可拉长的轴，torch 会报错"
            f"（长度碰巧相等时更糟：会一一相乘）。",
        )

    def step2(self) -> None:
        self.head("2.1", "Even dimensions", "偶数维的编号")
        self.show(f"even = torch.arange(0, {self.d_model}, 2)", self.even)
        self.say(
            "Two dimensions share a frequency: 0 and 1, 2 and 3, … Each pair is named by its even "
            "number.",
            "两维共用一个频率：0 和 1、2 和 3……每一对用其中的偶数作代表。",
        )
        self.head("2.2", "One number that sets the pace", "决定快慢的一个数")
        self.show("math.log(10000.0)", self.number(math.log(10000.0)))
        self.show(f"scale = -math.log(10000.0) / {self.d_model}", self.number(self.scale))
        self.say(
            "The minus sign makes the frequencies fall: high dimensions turn slowly.",
            "有了负号，频率随维度升高而下降：高维转得慢，低维转得快。",
        )
        self.head("2.3", "Exponents", "指数")
        self.show("exponents = even * scale", self.exponents)
        self.say(
            "Whole numbers times a decimal number become float32: torch promotes the type.",
            "整数张量乘小数，结果成为 float32：这叫类型提升（type promotion）。",
        )
        self.head("2.4", "Frequencies", "频率")
        self.show("div_term = torch.exp(exponents)", self.div_term)
        self.say(
            "exp(even · (−ln 10000 / d)) is 1 / 10000^(even/d), written another way. The first "
            "pair turns by 1 radian a step; the last is the slowest.",
            "exp(even · (−ln 10000 / d)) 就是 1 / 10000^(even/d)，换个写法而已。"
            "第一对每走一步转 1 弧度，最后一对最慢。",
        )

    def step3(self) -> None:
        empty = torch.zeros(self.max_len, 1, self.d_model)
        self.head("3.1", "Zeros, one row for each position", "全零，每个位置一行")
        self.show(f"pe = torch.zeros({self.max_len}, 1, {self.d_model})", f"{tuple(empty.shape)}")
        self.show("pe[:, 0, :]", empty[:, 0, :])
        self.say(
            f"Axis 0: {self.max_len} positions. Axis 1: the batch, of length 1 so that it "
            f"stretches over any number of sentences. Axis 2: {self.d_model} dimensions.",
            f"第 0 轴：{self.max_len} 个位置。第 1 轴：批次，长度 1，能拉长到任意多个句子。"
            f"第 2 轴：{self.d_model} 个维度。",
        )
        self.say(
            f"The layout here is (position, batch, dimension). The project is batch-first, "
            f"(1, {self.max_len}, {self.d_model}), a sentence in one block. Step 7 shows both.",
            f"这里的布局是 (位置, 批次, 维度)。本项目用批次在前的 (1, {self.max_len}, "
            f"{self.d_model})，一个句子就是一整块。第 7 步两种都看。",
        )

    def step4(self) -> None:
        self.head("4.1", "Two shapes that meet", "两个形状相遇")
        self.show("position.shape, div_term.shape", f"{tuple(self.position.shape)}, "
                  f"{tuple(self.div_term.shape)}")  # fmt: skip
        self.head("4.2", "Angles: position times frequency", "角度：位置乘频率")
        self.show("angle = position * div_term", self.angle)
        self.say(
            "Row: a position. Column: a pair of dimensions. The entry is how far that pair has "
            "turned, in radians.",
            "一行是一个位置，一列是一对维度；表中的数是这一对转过的角度（弧度）。",
        )
        self.head("4.3", "Sine of each angle", "对每个角取正弦")
        self.show("torch.sin(angle)", self.sines)
        self.head("4.4", "Into columns 0, 2, 4, …", "填入第 0、2、4…… 列")
        self.show("pe[:, 0, 0::2] = torch.sin(angle);  pe[:, 0, :]", self.half_filled)
        self.say(
            "0::2 means: from 0 on, every second one. The odd columns are still 0.",
            "0::2 的意思：从 0 开始，每隔一个取一个。奇数列还是 0。",
        )

    def step5(self) -> None:
        self.head("5.1", "Cosine of the same angles", "同样的角取余弦")
        self.show("torch.cos(angle)", torch.cos(self.angle))
        if self.d_model % 2:
            self.say(
                "The width is odd: the last pair has a sine only, so the last cosine is left out.",
                "维数是奇数：最后一对只有正弦，最后一列余弦不用。",
            )
        self.head("5.2", "Into columns 1, 3, 5, …", "填入第 1、3、5…… 列")
        self.show("pe[:, 0, 1::2] = torch.cos(angle);  pe[:, 0, :]", self.pe[:, 0, :])
        self.say(
            "Sine and cosine of one angle are a point on a circle, like the hand of a clock: each "
            "pair is a clock, the first the fastest.",
            "同一个角的正弦和余弦是圆上的一点，像钟的指针：每一对就是一座钟，第一座走得最快。",
        )

    def step6(self) -> None:
        self.head("6.1", "What each dimension is", "每一维是什么")
        for i in range(self.d_model):
            name, frequency = ("cos" if i % 2 else "sin"), float(self.div_term[i // 2])
            turn, period = self.number(frequency), f"{2 * math.pi / frequency:.2f}"
            if self.zh:
                kind = "奇数" if i % 2 else "偶数"
                print(f"    第 {i} 维（{kind}）：{name}，角频率 {turn}，周期 {period}")
            else:
                print(f"    dimension {i}: {name}, angular frequency {turn}, period {period}")
        self.say(
            "The period 2π / frequency is the number of positions after which a clock is back.",
            "周期 = 2π ÷ 角频率，即走多少个位置后指针回到原处。",
        )
        self.head("6.2", "Vectors of the first positions", "前几个位置的向量")
        rows = self.pe[:SHOWN, 0, :]
        word = "位置" if self.zh else "position"
        for p, row in enumerate(rows):
            print(f"    {word} {p}: {self.row(row)}")
        if self.all_digits:
            self.say(
                "All digits of float32 are shown; the last ones are rounding.",
                "这里印出 float32 的全部数字，末几位是舍入误差。",
            )
        else:
            self.say(
                "Four digits after the point are shown; all_digits=true shows all of float32.",
                "这里印出小数点后四位；all_digits=true 会印出 float32 的全部数字。",
            )
        self.head("6.3", "From one position to the next", "相邻位置之差")
        for p in range(min(SHOWN - 1, self.max_len) - 1):
            print(f"    {word} {p + 1} − {p}: {self.row(rows[p + 1] - rows[p])}")
        self.say(
            "Neighbours differ mostly in the first, fast dimensions, and hardly in the last.",
            "相邻位置的差别主要在前面转得快的维度，后面的几乎不变。",
        )

    def step7(self) -> None:
        torch.manual_seed(SEED)
        shown = min(SHOWN, self.max_len)
        x = torch.randn(shown, 2, self.d_model)
        dropout = nn.Dropout(self.dropout)
        self.head("7.1", "Dropout", "随机失活（dropout）")
        self.show(f"dropout = nn.Dropout(p={self.dropout})", dropout)
        self.say(
            f"In training it sets each number to 0 with probability {self.dropout} and multiplies "
            f"the others by 1 / (1 − {self.dropout}), so that the mean stays.",
            f"训练时，每个数以概率 {self.dropout} 变成 0，其余的乘以 1 / (1 − {self.dropout})，"
            f"平均值因此不变。",
        )
        self.head("7.2", "Word vectors, here random ones", "词向量（这里用随机数代替）")
        self.show(f"torch.manual_seed({SEED})", "")
        self.show(f"x = torch.randn({shown}, 2, {self.d_model})", x)
        self.say(
            f"{shown} positions of 2 sentences. A seed makes chance repeatable.",
            f"2 个句子各 {shown} 个位置。固定随机种子，结果就能重现。",
        )
        self.head("7.3", "The rows that are needed", "取出要用的行")
        self.show(f"pe[:{shown}].shape", f"{tuple(self.pe[:shown].shape)}")
        self.show(f"pe[:{shown}, 0, :]", self.pe[:shown, 0, :])
        self.head("7.4", "Add", "相加")
        total = x + self.pe[:shown]
        self.show(f"y = x + pe[:{shown}]", total)
        self.say(
            "The batch axis of length 1 stretches: both sentences get the same encoding.",
            "长度为 1 的批次轴被拉长：两个句子得到同样的位置编码。",
        )
        self.head("7.5", "Dropout, in training", "训练时的 dropout")
        dropped = dropout(total)
        self.show("dropout(y)", dropped)
        zeros = int((dropped == 0).sum())
        self.say(
            f"{zeros} of {dropped.numel()} numbers became 0, the others grew by "
            f"{1 / (1 - self.dropout):.4f}.",
            f"{dropped.numel()} 个数里有 {zeros} 个变成 0，其余乘了 {1 / (1 - self.dropout):.4f}。",
        )
        self.head("7.6", "Training and evaluation", "训练与评估")
        self.show("torch.equal(dropout.eval()(y), y)", torch.equal(dropout.eval()(total), total))
        self.say(
            "eval() switches dropout off: a trained model answers the same every time.",
            "eval() 关闭 dropout：训练好的模型每次回答都一样。",
        )
        self.head("7.7", "A buffer, not a parameter", "是缓冲区（buffer），不是参数")
        encoding = PositionalEncoding(self.d_model, self.max_len, self.dropout).eval()
        self.show(
            f"encoding = PositionalEncoding({self.d_model}, {self.max_len})",
            f"{len(list(encoding.parameters()))} {'个参数' if self.zh else 'parameters'}",
        )
        self.say(
            "Training changes parameters. The table is a buffer: it moves to the GPU with the "
            "model and never changes.",
            "训练会改变参数；编码表是缓冲区：跟着模型搬到 GPU，但从不改变。",
        )
        self.head("7.8", "The same, batch first", "批次在前的写法")
        batch_first = x.transpose(0, 1)
        same = torch.allclose(encoding(batch_first), total.transpose(0, 1), atol=1e-6)
        self.show("encoding.pe.shape", f"{tuple(encoding.pe.shape)}")
        self.show("torch.allclose(encoding(x.transpose(0, 1)), y.transpose(0, 1), atol=1e-6)", same)
        self.say(
            f"PositionalEncoding takes (batch, position, dimension): here "
            f"{tuple(batch_first.shape)}. Two rows of one position get the same encoding, and "
            f"mixing the axes up would raise no error: check it once.",
            f"PositionalEncoding 的输入是（批次, 位置, 维度），这里是 {tuple(batch_first.shape)}。"
            f"同一位置的两行编码相同；两轴弄反不会报错，务必检查一次。",
        )


def walk(
    lang: str = "zh",
    d_model: int = 8,
    max_len: int = 10,
    dropout: float = 0.1,
    only: int | None = None,
    pause: Callable[[], object] | None = None,
    all_digits: bool = False,
) -> None:
    """Print the lesson, or the one step ``only``; ``pause`` is called between steps."""
    lesson = Lesson(lang, d_model, max_len, dropout, all_digits)
    lesson.introduce()
    if not all_digits:
        torch.set_printoptions(sci_mode=False, linewidth=90)
    try:
        for number, en, zh, step in lesson.steps():
            if only is not None and number != only:
                continue
            title = f"{'步骤' if lesson.zh else 'Step'} {number}: {zh if lesson.zh else en}"
            print(f"\n{RULE}\n{title}\n{RULE}")
            step()
            if pause is not None and only is None and number < 7:
                pause()
    finally:
        torch.set_printoptions(profile="default")
    if only is None:
        lesson.what_next()


def spoken(lang: str) -> str:
    """``lang``, or for ``auto`` that of the shell, which is English unless it is Chinese."""
    if lang != "auto":
        return lang
    names = (os.environ.get(name) for name in ("LC_ALL", "LC_MESSAGES", "LANG"))
    return "zh" if next(filter(None, names), "").startswith("zh") else "en"
