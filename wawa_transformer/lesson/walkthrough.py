"""The printed lesson on the sinusoidal table, in two languages.

``walkthrough.txt`` holds the text. Each line is a section (``#``), a sub-step (``##``), code to run
and show with its value (``>>>``), a line to print as it is (``==``), a sentence (``en``, ``zh``),
or one sentence for each turn of a loop (``en*``, ``zh*``). Braces hold expressions.

This project grew from an earlier printed walk-through. Its sizes and seed are the defaults here.
With ``all_digits`` the lesson prints every number of that walk-through.
"""

import ast
import io
import math
import os
import re
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import Any

import torch
from rich.cells import cell_len
from torch import Tensor, nn

from wawa_transformer.positional.sinusoidal import PositionalEncoding

SEED = 3832814983  # gives the random embeddings of the original walk-through
SHOWN = 5  # positions that steps 6 and 7 show
WIDTH = 80
RULE = "─" * WIDTH
SECTIONS = ("\n" + Path(__file__).with_suffix(".txt").read_text(encoding="utf-8")).split("\n# ")[1:]


def say(text: str) -> None:
    """Print a sentence, wrapped to :data:`WIDTH` columns."""
    line = ""
    # A word of Latin letters stays whole, and no line begins with a closing mark.
    for piece in re.findall(r"[!-~]+ ?|“?.[，。、；：）”]*", text):
        if cell_len(f"  {line}{piece.rstrip()}") > WIDTH:
            print(f"  {line.rstrip()}")
            line = ""
        line += piece
    print(f"  {line}")


class Lesson:
    """The lesson in one language.

    ``names`` holds the variables that the lesson's code has assigned.

    Args:
        lang: ``en`` or ``zh``.
        d_model: dimensions of an encoding.
        max_len: positions in the table.
        dropout: probability of zeroing an element in step 7.
        all_digits: print numbers in torch's own format, as the original did, not with four digits.
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
        """Format a number with four digits, or with the original's six."""
        return f"{value:.{6 if self.all_digits else 4}f}"

    def row(self, values: Tensor) -> str:
        """Format a vector on one line."""
        numbers = values.tolist() if self.all_digits else [f"{v:7.4f}" for v in values.tolist()]
        return f"[{', '.join(str(number) for number in numbers)}]"

    def fill(self, text: str) -> str:
        """Evaluate the expressions in a line of the text."""
        return str(eval(f"f{text!r}", self.names))

    def run(self, code: str) -> None:
        """Run a line of code and print its result: shape, type, values."""
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
        """Print one section of the text, with numbered sub-steps."""
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
    all_digits: bool = False,
) -> None:
    """Print the lesson, or its introduction and the step ``only``."""
    lesson = Lesson(lang, d_model, max_len, dropout, all_digits)
    if not all_digits:
        torch.set_printoptions(sci_mode=False, linewidth=90)
    try:
        for number, section in enumerate(SECTIONS):
            # Hidden steps are computed too, because later steps use their values.
            shown = only is None or number in (0, only)
            with nullcontext() if shown else redirect_stdout(io.StringIO()):
                lesson.section(number, *section.splitlines())
    finally:
        torch.set_printoptions(profile="default")


def spoken(lang: str) -> str:
    """Return ``lang``, or for ``auto`` the language of the shell.

    A shell whose language is not Chinese counts as English.
    """
    if lang != "auto":
        return lang
    names = (os.environ.get(name) for name in ("LC_ALL", "LC_MESSAGES", "LANG"))
    return "zh" if next(filter(None, names), "").startswith("zh") else "en"
