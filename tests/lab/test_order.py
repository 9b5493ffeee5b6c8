"""The laboratory computes first and words last: a report's way through it goes down only."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import wawa_transformer.lab as lab

ROOM = Path(lab.__file__).parent
# From the bottom up. What computes knows no language, and the words are a leaf.
COMPUTING = (
    "entries", "tables", "reading", "statistics", "scores", "comparisons", "claims", "rules",
    "weaknesses", "board",
)  # fmt: skip
WORDING = {"tr", "render", "sentence", "translated"}  # of pages.py


def tree(name: str) -> ast.Module:
    return ast.parse((ROOM / f"{name}.py").read_text(encoding="utf-8"))


def imported(name: str) -> dict[str, str]:
    """The files of the laboratory that a file imports from, by the imported name."""
    found = {}
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(lab.__name__):
            file = (node.module or "").rpartition(".")[2]
            found |= {each.name: each.name if file == "lab" else file for each in node.names}
    return found


def functions(name: str) -> Iterator[tuple[str, set[str], set[str]]]:
    """Each function of a file: its name, its words, and its calls of what computes."""
    files = imported(name)
    for node in ast.walk(tree(name)):
        if not isinstance(node, ast.FunctionDef):
            continue
        words, computes = set[str](), set[str]()
        for call in (each.func for each in ast.walk(node) if isinstance(each, ast.Call)):
            if isinstance(call, ast.Name) and call.id in WORDING:
                words.add(call.id)
            if isinstance(call, ast.Name) and call.id.islower() and files.get(call.id) in COMPUTING:
                computes.add(call.id)
            if isinstance(call, ast.Attribute) and isinstance(call.value, ast.Name):
                scored = call.attr in ("seeds", "interpretable")
                if call.value.id in COMPUTING and call.value.id in files or scored:
                    computes.add(call.attr)
        yield node.name, words, computes


@pytest.mark.parametrize("place", range(len(COMPUTING)))
def test_what_computes_imports_what_is_below_it_and_no_words(place: int) -> None:
    assert set(imported(COMPUTING[place]).values()) <= set(COMPUTING[:place])


def test_the_words_are_a_leaf() -> None:
    """But for the level of intervals and tests, which sentences name."""
    assert imported("pages") == {"statistics": "statistics"}


@pytest.mark.parametrize("name", sorted(path.stem for path in ROOM.glob("*.py")))
def test_no_function_that_words_calls_one_that_computes(name: str) -> None:
    assert [each for each in functions(name) if each[1] and each[2]] == []


def test_the_report_computes_and_words() -> None:
    """Else the test above would see nothing."""
    seen = {name: (words, computes) for name, words, computes in functions("report")}
    assert seen["answer"][0] and seen["page_of"][1] and "score_study" in seen["write_report"][1]
