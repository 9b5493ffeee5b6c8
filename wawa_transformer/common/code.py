"""What a file of Python does, without comments, docstrings and layout."""

import ast
import functools
from collections.abc import Collection
from pathlib import Path
from typing import Any

DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def code_of(path: Path, without: Collection[str] = ()) -> bytes:
    """Read what a file does: its syntax, without docstrings, layout and classes ``without``."""
    return b"".join(code for name, code in statements(path) if name not in without)


@functools.cache  # the code that this process has loaded
def statements(path: Path) -> list[tuple[str, bytes]]:
    """List the statements of a file, with the names that they define."""
    tree = ast.parse(path.read_bytes())
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
    return [(getattr(node, "name", ""), repr(syntax(node)).encode()) for node in tree.body]


def syntax(node: Any) -> Any:
    """Turn a syntax tree into lists; empty fields, which differ by version, are left out."""
    if isinstance(node, list):
        return [syntax(each) for each in node]
    if not isinstance(node, ast.AST):
        return node
    fields = [(name, value) for name, value in ast.iter_fields(node) if value not in (None, [])]
    constant = isinstance(node, ast.Constant)  # None is a value there
    kept = ast.iter_fields(node) if constant else fields
    return [type(node).__name__, *((name, syntax(value)) for name, value in kept)]
