"""Record what produced a result: versions, commit and processor."""

import functools
import hashlib
import importlib.metadata
import inspect
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig

from wawa_transformer.common.code import code_of
from wawa_transformer.common.schema import CONFIG_DIR, PACKAGE
from wawa_transformer.data.tasks import TASKS
from wawa_transformer.positional.base import ENCODINGS
from wawa_transformer.run.failure import LIBRARIES


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
    return digest_for(config.pe.kind, config.pe.get("cross", "none"), config.task.kind)


@functools.cache  # the code that this process has loaded
def digest_for(pe: str, cross: str, task: str) -> str:
    """Hash the code of an encoding, an encoding of cross-attention and a task."""
    chosen = [ENCODINGS.get(pe), ENCODINGS.get(cross), TASKS.get(task)]
    used = {cls for each in chosen if each for cls in each.__mro__}
    registered = {*ENCODINGS.values(), *TASKS.values()}
    others = {cls.__name__ for cls in registered - used}
    needed = {cls.__module__ for cls in used}
    for module in list(needed):  # and what their files take from the files of other kinds
        values = vars(sys.modules[module]).values()
        needed |= {getattr(value, "__module__", None) or "" for value in values}
    beside = {cls.__module__ for cls in registered} - needed
    unread = {Path(inspect.getfile(sys.modules[name])) for name in beside & sys.modules.keys()}
    files = [path for path in PACKAGE.rglob("*.py") if path not in unread]
    files = [path for path in files if path.relative_to(PACKAGE).parts[0] not in ("lab", "lesson")]
    own = (getattr(sys.modules[cls.__module__], "__file__", None) for cls in used)
    foreign = {
        path
        for path in (Path(file) for file in own if file)
        if not any(path.is_relative_to(folder) for folder in (PACKAGE, *LIBRARIES))
        and not {"site-packages", "dist-packages"} & {*path.parts}
    }
    digest = hashlib.sha256()
    for path in [*sorted(files), *sorted(foreign)]:
        digest.update(code_of(path, others))
    return digest.hexdigest()[:8]


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
