"""The lesson: how the sinusoidal table is computed and used, every step printed, in two languages.

``walkthrough.txt`` holds the text. A line of it is a section (``#``), a sub-step (``##``), code to
run and show with its value (``>>>``), a line as it is (``==``), a sentence (``en``, ``zh``), or one
sentence for each turn of a loop (``en*``, ``zh*``). Braces hold expressions.

The default sizes and the seed are those of the printed walk-through that this project grew from.
With ``all_digits`` every number of it can be found here again.
"""

from __future__ import annotations

import ast
import io
import math
import os
import re
from collections.abc import Callable
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import Any

import torch
from rich.cells import cell_len
from torch import Tensor, nn

from wawa_transformer.positional.sinusoidal import PositionalEncoding

SEED = 3832814983  # gives the random embeddings of the original walk-through
SHOWN = 5  # positions that step 6 and step 7 look at
WIDTH = 80
RULE = "─" * WIDTH
SECTIONS = ("\n" + Path(__file__).with_suffix(".txt").read_text(encoding="utf-8")).split("\n# ")[1:]


def say(text: str) -> None:
    """Print a sentence, wrapped."""
    line = ""
    # A word of Latin letters stays whole, and no line begins with a closing mark.
    for piece in re.findall(r"[!-~]+ ?|“?.[，。、；：）”]*", text):
        if cell_len(f"  {line}{piece.rstrip()}") > WIDTH:
            print(f"  {line.rstrip()}")
            line = ""
        line += piece
    print(f"  {line}")


class Lesson:
    """Runs the script in one language; ``names`` holds what its code has assigned.

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
        self.lang, self.all_digits = lang, all_digits
        self.names: dict[str, Any] = {
            "torch": torch, "math": math, "nn": nn, "PositionalEncoding": PositionalEncoding,
            "SEED": SEED, "d_model": d_model, "max_len": max_len, "rate": dropout,
            "pairs": -(-d_model // 2), "shown": min(SHOWN, max_len), "all_digits": all_digits,
            "number": self.number, "row": self.row,
        }  # fmt: skip

    def number(self, value: float) -> str:
        """One number, with four digits, or with the six of the original."""
        return f"{value:.{6 if self.all_digits else 4}f}"

    def row(self, values: Tensor) -> str:
        """A vector on one line."""
        numbers = values.tolist() if self.all_digits else [f"{v:7.4f}" for v in values.tolist()]
        return f"[{', '.join(str(number) for number in numbers)}]"

    def fill(self, text: str) -> str:
        """A line of the script with its expressions evaluated."""
        return str(eval(f"f{text!r}", self.names))

    def run(self, code: str) -> None:
        """Run a line and show it with what it gives: shape, type and values."""
        *before, last = ast.parse(code).body
        if isinstance(last, ast.Assign):
            before, last = [*before, last], ast.Expr(last.targets[0])
        exec(compile(ast.Module(before, []), "walkthrough.txt", "exec"), self.names)
        value = eval(ast.unparse(last), self.names)
        print(f"    >>> {code}")
        if isinstance(value, Tensor):
            shape, kind = ("形状", "类型") if self.lang == "zh" else ("shape", "dtype")
            print(f"    {shape} {tuple(value.shape)}   {kind} {value.dtype}")
        elif isinstance(value, float):
            value = self.number(value)
        if not isinstance(value, torch.Generator):
            print("    " + str(value).replace("\n", "\n    "))

    def section(self, number: int, title: str, *lines: str) -> None:
        """One section of the script, and in it sub-steps with their numbers."""
        zh, part = self.lang == "zh", 0
        print(f"\n{RULE}\n{title.split(' | ')[zh]}\n{RULE}")
        for line in lines:
            kind, text = line.split(" ", 1)
            if kind == "##":
                part += 1
                print(f"\n{number}.{part} {text.split(' | ')[zh]}")
            elif kind == ">>>":
                self.run(self.fill(text))
            elif kind == "==":
                print(f"    {self.fill(text)}")
            elif kind == self.lang:
                say(self.fill(text))
            elif kind == f"{self.lang}*":
                loop, text = text.split(": ", 1)
                exec(f"for {loop}: print('    ' + f{text!r})", self.names)


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
    if not all_digits:
        torch.set_printoptions(sci_mode=False, linewidth=90)
    try:
        for number, section in enumerate(SECTIONS):
            # A step that is not shown is computed all the same, for those after it.
            shown = only is None or number in (0, only)
            with nullcontext() if shown else redirect_stdout(io.StringIO()):
                lesson.section(number, *section.splitlines())
            if pause is not None and only is None and 0 < number < len(SECTIONS) - 2:
                pause()
    finally:
        torch.set_printoptions(profile="default")


def spoken(lang: str) -> str:
    """``lang``, or for ``auto`` that of the shell, which is English unless it is Chinese."""
    if lang != "auto":
        return lang
    names = (os.environ.get(name) for name in ("LC_ALL", "LC_MESSAGES", "LANG"))
    return "zh" if next(filter(None, names), "").startswith("zh") else "en"
