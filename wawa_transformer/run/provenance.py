"""Record what produced a result: versions, commit and processor."""

import contextlib
import dis
import functools
import hashlib
import importlib.metadata
import platform
import subprocess
import sys
import types
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig

from wawa_transformer.common import CONFIG_DIR, PACKAGE
from wawa_transformer.common.code import (
    code_of,
    file_of,
    files_below,
    imported,
    is_foreign,
    is_installed,
    mentioned,
    modules_in,
    on_path,
    reached,
    source_of,
)
from wawa_transformer.data.load import digest_of
from wawa_transformer.data.tasks import TASKS, Task
from wawa_transformer.positional.base import ENCODINGS, Encoding
from wawa_transformer.run.imports import helpers_of

# What finds a class by its kind.
REGISTRIES = {"ENCODINGS", "TASKS", "build_encoding", "build_encodings", "build_task"}
# What Python itself writes into a class.
BOOKKEEPING = (
    "__module__", "__doc__", "__dict__", "__weakref__", "__firstlineno__", "__static_attributes__",
)  # fmt: skip
BESIDE = {"lab", "lesson"}  # what computes no run


def provenance(device: torch.device) -> dict[str, Any]:
    """Collect versions, commit and processor for a result."""
    libraries = ("torch", "numpy", "datasets", "tokenizers", "sacrebleu", "hydra-core")
    on_cuda = device.type == "cuda"
    return {
        "device": torch.cuda.get_device_name(device) if on_cuda else device.type,
        "cpu": processor(),
        "versions": {
            "python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in libraries},
        },
        "commit": commit(),
    }


def code_digest(config: DictConfig) -> str:
    """Hash the code that a run depends on to eight hexadecimal digits.

    Comments, docstrings, layout, and encodings and tasks of other kinds do not count.
    """
    pe, task = config.pe, config.task
    chosen = ENCODINGS.get(pe.kind), ENCODINGS.get(pe.get("cross", "none")), TASKS.get(task.kind)
    classes: frozenset[type] = frozenset(cls for cls in chosen if cls)
    digest = digest_for(classes)
    return with_users(digest, [base for cls in classes for base in cls.__mro__])


def with_users(digest: str, used: Iterable[type] = ()) -> str:
    """Add to a digest the code that users have put in place of the project's.

    The classes ``used`` that a notebook defines count, too. Read each time: a cell may run again.
    """
    users = replaced()
    parts = {live_code(each).encode() for each in used if of_notebook(each)}
    parts |= {live_code(each).encode() for each in users if any(map(of_notebook, written(each)))}
    files = {path for module in modules_of(users) if (path := file_of(module))}
    parts |= {code_of(path) for path in reached(files, is_foreign) - helpers()}
    return digest_of(digest.encode(), *sorted(parts)) if parts else digest


def replaced() -> list[Any]:
    """List what users have put into modules and classes of the project and of torch."""
    modules = [
        module
        for name, module in sys.modules.copy().items()
        if name.partition(".")[0] == PACKAGE.name and not BESIDE & {*name.split(".")}
    ]
    # By their ids: many modules name the same ones, and some values are no keys.
    named = {id(each): each for module in modules for each in vars(module).values()}.values()
    classes: list[Any] = [each for each in named if isinstance(each, type)]
    own = [cls for cls in classes if cls.__module__.partition(".")[0] == PACKAGE.name]
    values = [value for place in (*modules, *own) for value in vars(place).values()]
    theirs: list[Any] = [torch, torch.Tensor, torch.nn, torch.nn.functional, torch.nn.init]
    theirs += [torch.nn.utils, torch.optim]
    for room in (torch.nn, torch.optim):
        theirs += [each for each in vars(room).values() if isinstance(each, type)]
    # These alone: to look into torch's other values is slow, and some of them warn.
    inside = [value for place in theirs for value in vars(place).values()]
    values += [each for each in inside if issubclass(type(each), types.FunctionType | type)]
    each_once = {id(each): each for each in values}.values()
    return [each for each in each_once if any(is_users(module_of(code)) for code in written(each))]


def written(value: Any) -> list[Any]:
    """The functions and the class that a value is, holds or is made of."""
    # Most values are functions that hold nothing, and to ask each for what it may hold takes long.
    if isinstance(value, types.FunctionType) and not vars(value):
        return [value]
    inner = [] if isinstance(value, types.ModuleType | type) else [*held_by(value), type(value)]
    return [each for each in (value, *inner) if isinstance(each, types.FunctionType | type)]


def modules_of(values: Iterable[Any]) -> set[str]:
    """The names of the modules in which values, and what they hold, were written."""
    return {module_of(code) for each in values for code in written(each)}


def module_of(value: Any) -> str:
    """The name of the module in which a function or a class was written."""
    # A function's __module__ may be that of what it wraps.
    is_function = isinstance(value, types.FunctionType)
    return str(value.__globals__.get("__name__") if is_function else value.__module__)


@functools.cache
def is_users(module: str) -> bool:
    """True for a notebook, a script, and a module that is neither the project's nor a library's."""
    file = file_of(module)
    return module == "__main__" or bool(file and is_foreign(file))


def digest_of_files(files: Iterable[Path], without: Mapping[Path | None, set[str]]) -> str:
    """Hash the code of all runs and of ``files``, wherever they are.

    The classes ``without``, by file, do not count.
    """
    every = {*rooms(), *helpers(), *files}
    return digest_of(*sorted(code_of(path, without.get(path, ())) for path in every))


@functools.cache
def shared_digest() -> str:
    """Hash the code that all runs share, whatever their encodings and tasks.

    Of a file with an encoding or a task that another such file imports, it is the rest.
    """
    kinds = {file for file in kind_files() if file.is_relative_to(PACKAGE)}
    shared = {file for each in kinds for file in imported(each) if file in kinds and file != each}
    return digest_of_files(shared, names_by_file(registered()))


@functools.cache
def helpers() -> set[Path]:
    """Find the user's files outside the package that files of all runs import."""
    # Only of files that name a user's module: to follow every import would take 0.4 s.
    named = {
        path: {name.partition(".")[0] for level, name in modules_in(path) if not level}
        for path in rooms()
    }
    names = set().union(*named.values()) - {PACKAGE.name}
    theirs = {name for name in names if not all(map(is_installed, on_path(name)))}
    return helpers_of([path for path in named if named[path] & theirs])


def rooms() -> list[Path]:
    """List the files of all runs: those without an encoding or a task of the registries."""
    kinds = kind_files()
    files = [path for path in files_below(PACKAGE) if path not in kinds]
    return [path for path in files if path.relative_to(PACKAGE).parts[0] not in BESIDE]


def registered() -> set[type]:
    """List the encodings and tasks of the registries."""
    return {*ENCODINGS.values(), *TASKS.values()}


def kind_files() -> set[Path]:
    """List the files that define the encodings and tasks of the registries."""
    return {path for path in names_by_file(registered()) if path}


@functools.cache  # the code that this process has loaded
def digest_for(classes: frozenset[type]) -> str:
    """Hash the code of encodings and tasks, and of all that they use."""
    every, kinds = registered(), kind_files()
    for path in kinds:
        source_of(path)  # now: a later run of this process may use what is edited meanwhile
    registries = {file_of(Encoding.__module__), file_of(Task.__module__)}
    used, before = {*classes}, -1
    while len(used) > before:  # until no class that is used mentions another one
        before = len(used)
        used |= {base for cls in used for base in cls.__mro__}
        files = reached(
            filter(None, names_by_file(used)), lambda path: path in kinds or is_foreign(path)
        )
        others = names_by_file(every - used)
        named = {path: mentioned(path, others[path]) for path in files}
        if any(named[path] & REGISTRIES for path in files - registries):
            used |= every  # a class that is looked up by its kind may be any
        names = set().union(*named.values())
        used |= {cls for cls in every if cls.__name__ in names and file_of(cls.__module__) in files}
    return digest_of_files(files, others)


def names_by_file(classes: Iterable[type]) -> defaultdict[Path | None, set[str]]:
    """Sort the names of classes by their files, where other classes may have the same names."""
    names: defaultdict[Path | None, set[str]] = defaultdict(set)
    for cls in classes:
        names[file_of(cls.__module__)].add(cls.__qualname__)
    return names


def of_notebook(value: Any) -> bool:
    """True for a class or a function that a notebook defines."""
    is_code = isinstance(value, types.FunctionType | type)
    return is_code and module_of(value) == "__main__" and not file_of("__main__")


def live_code(value: Any, known: dict[int, tuple[Any, str]] | None = None) -> str:
    """Hash what a class or a function of a notebook does, and all that its code names there.

    Other values are what they are; where they lie in memory does not count. ``known`` has the hash
    of each value that was met before, and the value, so that its id stays its own.
    """
    known = {} if known is None else known
    if id(value) in known:
        return known[id(value)][1]
    known[id(value)] = value, "again"  # while it is read: a function may call itself
    parts: list[Any] = []
    text = type(value).__name__
    if isinstance(value, type):
        text = repr(value)
        if of_notebook(value):
            parts = [each for each in vars(value).items() if each[0] not in BOOKKEEPING]
    elif isinstance(value, types.FunctionType) and of_notebook(value):
        parts = [*named_by(value), *held_by(value)]
    elif isinstance(value, types.CellType):
        with contextlib.suppress(ValueError):  # it is empty
            parts = [value.cell_contents]
    elif isinstance(value, dict):
        parts = [*value.items()]
    elif isinstance(value, list | tuple):
        parts = [*value]
    elif isinstance(value, set | frozenset):
        text = str(sorted(map(repr, value)))
    elif isinstance(value, types.ModuleType):
        text = value.__name__
    elif hasattr(value, "tolist"):  # of torch and numpy, which print a part
        text = str(value.tolist())
    elif of_notebook(type(value)):
        parts = [type(value), getattr(value, "__dict__", repr(value))]
    elif not (parts := held_by(value)):
        text = getattr(value, "__qualname__", text) if " at 0x" in repr(value) else repr(value)
    content = "\n".join([text, *(live_code(each, known) for each in parts)])
    known[id(value)] = value, hashlib.sha256(content.encode("utf-8", "replace")).hexdigest()
    return known[id(value)][1]


def named_by(function: types.FunctionType) -> list[Any]:
    """What a function does, and the values that its code and the code inside it name."""
    place, codes = function.__globals__, [function.__code__]
    parts: list[Any] = [function.__defaults__, function.__kwdefaults__, function.__closure__]
    for code in codes:
        codes += [each for each in code.co_consts if isinstance(each, types.CodeType)]
        consts = [each for each in code.co_consts if each != function.__doc__]
        # The body of a class reads a global by LOAD_NAME.
        reads = {
            each.argval
            for each in dis.get_instructions(code)
            if "GLOBAL" in each.opname or each.opname == "LOAD_NAME"
        }
        names = sorted(reads & place.keys())
        parts += [code.co_code, consts, code.co_names, names, *(place[name] for name in names)]
    return parts


def held_by(value: Any) -> list[Any]:
    """The functions in a method, a property, or what functools makes, and their arguments."""
    names = ("__func__", "__wrapped__", "fget", "fset", "fdel", "func", "args", "keywords")
    return [getattr(value, name) for name in names if hasattr(value, name)]


@functools.cache
def processor() -> str:
    """The CPU's name, or its architecture if the name is unknown."""
    name = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        named = next(line for line in lines if line.startswith("model name"))
        name = named.split(":", 1)[1].strip()
    except (OSError, StopIteration):
        pass  # not Linux, or no name in the file
    return name


@functools.cache  # a worker's runs share the code that was loaded once
def commit() -> str | None:
    """The checkout's commit, ``+changes`` if code or configs differ; None without git."""

    def ask(*words: str) -> str:
        command = ["git", "-C", str(CONFIG_DIR.parent), *words]
        return subprocess.check_output(command, stderr=subprocess.DEVNULL, text=True).strip()

    try:
        ask("ls-files", "--error-unmatch", str(PACKAGE / "__init__.py"))  # not another's checkout
        changed = ask("status", "--porcelain", "--", str(PACKAGE), str(CONFIG_DIR))
        return ask("rev-parse", "--short", "HEAD") + ("+changes" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return None
