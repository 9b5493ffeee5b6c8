"""Record what produced a result: versions, commit and processor."""

import functools
import hashlib
import importlib.metadata
import os
import platform
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig

from wawa_transformer.common.code import code_of, is_foreign, mentioned, reached
from wawa_transformer.common.schema import CONFIG_DIR, PACKAGE
from wawa_transformer.data.tasks import TASKS
from wawa_transformer.positional.base import ENCODINGS


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
    kinds = config.pe.kind, config.pe.get("cross", "none"), config.task.kind
    registries: tuple[Any, ...] = (ENCODINGS, ENCODINGS, TASKS)
    defined = (known.get(kind) for known, kind in zip(registries, kinds, strict=True))
    return digest_for(*kinds, *defined)


@functools.cache
def shared_digest() -> str:
    """Hash the code that all runs share, whatever their encodings and tasks."""
    return hashlib.sha256(b"".join(map(code_of, rooms()))).hexdigest()[:8]


def rooms() -> list[Path]:
    """List the files of all runs: those without an encoding or a task of the registries."""
    kinds = kind_files()
    files = [path for path in PACKAGE.rglob("*.py") if path not in kinds]
    return sorted(
        path for path in files if path.relative_to(PACKAGE).parts[0] not in ("lab", "lesson")
    )


def kind_files() -> set[Path]:
    """List the files that define the encodings and tasks of the registries."""
    registered = {*ENCODINGS.values(), *TASKS.values()}
    return {file for cls in registered if (file := file_of(cls))}


@functools.cache  # the code that this process has loaded
def digest_for(pe: str, cross: str, task: str, *defined: type | None) -> str:
    """Hash the code of an encoding, an encoding of cross-attention and a task.

    With the classes of these kinds as ``defined`` now, a class that is defined again counts anew.
    """
    registered, kinds = {*ENCODINGS.values(), *TASKS.values()}, kind_files()

    def follows(path: Path) -> bool:
        return path in kinds or is_foreign(path, PACKAGE)

    chosen = ENCODINGS.get(pe), ENCODINGS.get(cross), TASKS.get(task)
    used: set[type] = {cls for cls in chosen if cls}
    before = -1
    while len(used) > before:  # until no class that is used mentions another one
        before = len(used)
        used |= {base for cls in used for base in cls.__mro__}
        files = reached(filter(None, map(file_of, used)), follows)
        others = {cls.__name__ for cls in registered - used}
        named = {name for path in files for name in mentioned(path, others)}
        used |= {cls for cls in registered if cls.__name__ in named and file_of(cls) in files}
    ours = {*rooms(), *(path for path in files if path.is_relative_to(PACKAGE))}
    digest = hashlib.sha256()
    for path in sorted(ours):
        digest.update(code_of(path, others))
    for code in sorted(code_of(path, others) for path in files - ours):  # of any folder
        digest.update(code)
    live = [cls for cls in used if cls.__module__ == "__main__" and not file_of(cls)]
    for code in sorted(map(live_code, live)):
        digest.update(code)
    return digest.hexdigest()[:8]


def file_of(cls: type) -> Path | None:
    """The file that defines a class; None for a class of a notebook or of C."""
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    return Path(file) if file and os.path.isfile(file) else None  # "<stdin>" is none


def live_code(cls: type) -> bytes:
    """What a class without a file does, one of a notebook: its instructions and constants."""

    def parts(value: Any, doc: str | None = None) -> Any:
        if isinstance(value, frozenset):
            return sorted(map(repr, value))
        if not isinstance(value, types.CodeType):
            return value
        constants = [parts(each) for each in value.co_consts if doc is None or each != doc]
        return value.co_code, value.co_names, constants

    own: dict[str, Any] = {}
    for name, value in vars(cls).items():
        function = getattr(value, "__func__", value)  # of a static or class method
        if isinstance(function, types.FunctionType):
            defaults = function.__defaults__, function.__kwdefaults__
            own[name] = parts(function.__code__, function.__doc__), defaults
        elif not name.startswith("__") and isinstance(value, (int, float, str)):
            own[name] = value
    return repr(sorted(own.items())).encode()


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
