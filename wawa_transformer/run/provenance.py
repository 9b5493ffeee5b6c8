"""Record what produced a result: versions, commit and processor."""

import functools
import hashlib
import importlib.metadata
import platform
import subprocess
from pathlib import Path
from typing import Any

import torch

from wawa_transformer.common.schema import CONFIG_DIR, PACKAGE


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
        "code": code_digest(),
    }


@functools.cache  # the code that this process has loaded
def code_digest() -> str:
    """Hash the code that a result depends on to eight hexadecimal digits."""
    digest = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.relative_to(PACKAGE).parts[0] not in ("lab", "lesson"):
            digest.update(path.read_bytes())
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
