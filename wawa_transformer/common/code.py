"""What a file of Python does, without comments, docstrings and layout, and what it imports."""

import ast
import functools
import glob
import os
import re
import sys
import sysconfig
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from wawa_transformer.common import PACKAGE

STARTED = time.time()  # when this process began to read the project's code
LIBRARIES = [Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib")]


def code_of(path: Path, without: Collection[str] = ()) -> bytes:
    """Read what a file does: its syntax, without docstrings, layout and classes ``without``."""
    return b"".join(code for name, code in statements(path) if name not in without)


@functools.cache  # the code that this process has loaded, whatever is edited later
def source_of(path: Path) -> bytes:
    """Read a file."""
    return path.read_bytes()


@functools.cache
def tree_of(path: Path) -> ast.Module:
    """Parse a file."""
    return ast.parse(source_of(path))


def is_string(node: Any) -> bool:
    """True for a statement that is a string, as a docstring."""
    constant = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return constant and isinstance(node.value.value, str)


@functools.cache
def statements(path: Path) -> list[tuple[str, bytes]]:
    """List the statements of a file, with the names that they define."""
    body = [each for each in tree_of(path).body if not is_string(each)]
    return [(getattr(node, "name", ""), syntax(node).encode()) for node in body]


def mentioned(path: Path, without: Collection[str]) -> set[str]:
    """List every name that a file mentions outside the classes ``without``."""
    return set().union(*(names for name, names in mentions(path) if name not in without))


@functools.cache
def mentions(path: Path) -> list[tuple[str, set[str]]]:
    """List the names that each statement of a file mentions, with the name that it defines."""
    found = []
    for node in tree_of(path).body:
        names: set[str] = set()
        for each in ast.walk(node):
            match each:
                case ast.Name(id=name) | ast.Attribute(attr=name):
                    names.add(name)
                case ast.alias(name=name):
                    names.add(name.rpartition(".")[2])
        found.append((getattr(node, "name", ""), names))
    return found


def syntax(node: Any) -> str:
    """Write a syntax tree as nested lists, without docstrings.

    Empty fields, and empty texts in an f-string, differ by version and are left out. In ASCII,
    since what repr escapes of other scripts depends on Python's version.
    """
    if isinstance(node, list):
        return f"[{', '.join([syntax(each) for each in node if not is_string(each)])}]"
    if not isinstance(node, ast.AST):
        return ascii(node)
    if isinstance(node, ast.JoinedStr):
        whole = [each for each in node.values if getattr(each, "value", None) != ""]
        return f"['JoinedStr', {syntax(whole)}]"
    constant = isinstance(node, ast.Constant)  # None is a value there
    fields = [
        f", ({name!r}, {syntax(value)})"
        for name, value in ast.iter_fields(node)
        if constant or value not in (None, [])
    ]
    return f"[{type(node).__name__!r}{''.join(fields)}]"


def reached(paths: Iterable[Path], follows: Callable[[Path], bool]) -> set[Path]:
    """Find the files that ``paths`` import, directly or not, of those that ``follows`` accepts."""
    files: set[Path] = set()
    waiting = [*paths]
    while waiting:
        path = waiting.pop()
        if path not in files and follows(path):
            files.add(path)
            waiting += imported(path)
    return files


@functools.cache
def modules_in(path: Path) -> list[tuple[int, str]]:
    """List the modules that a file imports, wherever in it, each with its leading dots."""
    modules: list[tuple[int, str]] = []
    for node in ast.walk(tree_of(path)):
        match node:
            case ast.Import():
                modules += [(0, each.name) for each in node.names]
            case ast.ImportFrom():
                whole = f"{node.module}." if node.module else ""
                inner = [f"{whole}{each.name}" for each in node.names]
                modules += [(node.level, name) for name in (node.module or "", *inner)]
            case ast.Call(
                func=ast.Name("import_module" | "__import__") | ast.Attribute(attr="import_module"),
                args=[ast.Constant(str(given)), *_],
            ):
                name = given.lstrip(".")
                modules += [(len(given) - len(name), name)]
    return modules


def imported(path: Path) -> Iterator[Path]:
    """Yield the files that a file imports, whether they are loaded or not."""
    modules = modules_in(path)
    tops = {name.split(".")[0] for level, name in modules if not level}
    elsewhere = {top: [*on_path(top)] for top in tops}
    for level, name in modules:
        loaded = None if level else getattr(sys.modules.get(name), "__file__", None)
        top, *rest = name.split(".")
        beside = path.parents[max(0, level - 1)] / top
        places = [place.joinpath(*rest) for place in [beside, *([] if level else elsewhere[top])]]
        files = [Path(f"{each}.py") for each in places]
        files += [each / "__init__.py" for each in places]
        files = [Path(loaded).resolve()] if loaded else files
        yield from (file for file in files if file.suffix == ".py")  # and not in C


def on_path(name: str) -> Iterator[Path]:
    """Where Python would find a module that no package holds, without the suffix of a file."""
    spec = None if name in sys.stdlib_module_names else PathFinder.find_spec(name)
    if spec and spec.submodule_search_locations is not None:
        yield from (Path(each).resolve() for each in spec.submodule_search_locations)
    elif spec and spec.origin:
        yield Path(spec.origin).resolve().with_suffix("")


def file_of(module: str) -> Path | None:
    """The file of a loaded module; None for a notebook or a module of C."""
    file = getattr(sys.modules.get(module), "__file__", None)
    return Path(file).resolve() if file and os.path.isfile(file) else None  # "<stdin>" is none


def files_below(folder: Path) -> list[Path]:
    """List the files of Python in a folder, also behind links to other folders."""
    return sorted(folder / name for name in glob.glob("**/*.py", root_dir=folder, recursive=True))


# At once: a fork, as a worker that replaces a dead one, has these modules, whatever is edited.
for each in files_below(PACKAGE):
    source_of(each)


def is_foreign(path: Path) -> bool:
    """True for a file of Python that is neither the project's nor a library's."""
    ours = any(path.is_relative_to(folder) for folder in (PACKAGE, *LIBRARIES))
    return not ours and not is_installed(path) and path.is_file()


def is_installed(path: Path) -> bool:
    """True for a file of an installed package, also one in a folder of another name."""
    return bool({"site-packages", "dist-packages"} & {*path.parts}) or any(
        path.relative_to(folder).parts[0] in installed_in(folder) for folder in path.parents
    )


@functools.cache
def installed_in(folder: Path) -> set[str]:
    """List what packages have put into a folder, as with ``pip install --target``."""
    records = (each.read_text("utf-8") for each in folder.glob("*.dist-info/RECORD"))
    return {re.split("[/,]", line)[0] for record in records for line in record.splitlines()}
