"""The house is what docs/architecture.md says: three parts, and chapters in an order."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import SCRIPTS

ROOT = SCRIPTS.parent
PACKAGE = ROOT / "wawa_transformer"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
OUTSIDE = ("__init__", "__main__")  # the package's face, which looks at all of it


def imported(path: Path) -> set[str]:
    """The package's own modules that a file imports: ``attention``, ``lab.report``."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("wawa_transformer"):
            inner = (node.module or "").split(".")[1:]
            names = [".".join([*inner, alias.name]) for alias in node.names]
            found |= {name for name in names if (PACKAGE / f"{name.replace('.', '/')}.py").exists()}
            if inner and (PACKAGE / f"{'/'.join(inner)}.py").exists():
                found.add(".".join(inner))
    return found


def chapters() -> list[set[str]]:
    """The rows of the table of modules, in order."""
    table = PAGE.split("| module | what lives there |")[1].split("\n\n")[0]
    rows = [re.findall(r"`(\w+)`", row.split("|")[1]) for row in table.splitlines()[2:]]
    return [set(row) for row in rows]


def test_a_lower_chapter_never_serves_a_higher_one() -> None:
    """Each imports chapters above it, or beside it in its own row."""
    above: set[str] = set()
    for row in chapters():
        above |= row
        for module in row:
            assert imported(PACKAGE / f"{module}.py") <= above, module


@pytest.mark.parametrize(
    ("part", "may_use"), [("lab", {"lab"}), ("lesson", {"lab", "lesson"}), (".", set())]
)
def test_a_part_never_imports_one_below_it(part: str, may_use: set[str]) -> None:
    """The baseline knows neither laboratory nor lesson; the laboratory knows no lesson."""
    for path in (PACKAGE / part).glob("*.py"):
        parts = {name.split(".")[0] for name in imported(path) if "." in name}
        assert parts <= may_use, path


def test_the_model_needs_torch_alone() -> None:
    """A fresh process that imports the model has loaded none of the configuration's libraries."""
    code = "import sys\nfrom wawa_transformer import Transformer, PositionalEncoding\n"
    code += "print(*(name.split('.')[0] for name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    loaded = set(done.stdout.split())
    assert "torch" in loaded, done.stderr
    assert not loaded & {"hydra", "omegaconf", "datasets", "tokenizers", "matplotlib", "rich"}


def test_what_must_be_read_is_short() -> None:
    """Less than 1,500 lines from the encodings to the loop."""
    table = PAGE.split("| module | what lives there |")[1].split("\n\n")[0]
    marked = re.findall(r"^\| `(\w+)` \| \*\*must read\*\*", table, flags=re.M)
    lines = {m: len((PACKAGE / f"{m}.py").read_text().splitlines()) for m in marked}
    assert len(lines) == 6 and sum(lines.values()) < 1500, lines
