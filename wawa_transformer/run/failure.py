"""Explain an exception: one sentence for what a user can mend, and whose mistake another one is."""

import errno
import functools
import importlib.metadata
import re
import subprocess
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from wawa_transformer.common import CONFIG_DIR, PACKAGE
from wawa_transformer.common.code import is_foreign
from wawa_transformer.common.messages import UserError, disk_error, first_line, printable

# What the processor, CUDA, cuBLAS, cuDNN, Apple's GPU and the loader of libraries say.
NO_MEMORY = re.compile(
    "out of memory|DefaultCPUAllocator|not enough memory|allocate memory|bad_alloc|ALLOC_FAILED|"
    "Storage size calculation overflowed|Invalid buffer size|failed to map segment",
    re.IGNORECASE,
)
# A full or failing disk, which is no mistake of the code that writes, whosoever it is.
DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)
SCRIPTS = CONFIG_DIR.parent / "scripts"
MISTAKE = "This is a mistake in"
# The extra of pyproject.toml that brings a library.
EXTRAS = {
    "scipy": "lab", "pandas": "lab", "jinja2": "lab", "werkzeug": "serve",
    "safetensors": "export", "ctranslate2": "export",
}  # fmt: skip
# The modules of import=, which may lie among the installed packages: when they were read, and their
# specs.
LOADED: dict[str, tuple[float, Any]] = {}


def is_out_of_memory(error: BaseException) -> bool:
    """True if memory ran out, of the machine or of a device."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    if isinstance(error, MemoryError):
        return True
    return isinstance(error, (RuntimeError, ImportError)) and bool(NO_MEMORY.search(str(error)))


def sentence_of(error: BaseException) -> str | None:
    """Explain an error that the user can mend in one sentence; None for any other.

    These are a :class:`UserError`, a lack of memory, a file that cannot be read or written, and a
    library that was not installed.
    """
    if isinstance(error, UserError):
        return str(error)
    if any(is_out_of_memory(each) for each in causes(error)):
        return printable(
            f"the memory ran out ({first_line(error)}); close other programs, or ask for less: "
            f"in training lower trainer.batch_tokens, model.d_model, model.num_layers, "
            f"task.train_size or workers, and with a trained run give shorter lines or a smaller "
            f"decode.size."
        )
    if isinstance(error, ModuleNotFoundError) and error.name in EXTRAS:
        extra = f"{PACKAGE.name}[{EXTRAS[error.name]}]"
        return f"{error.name} is not installed; give: pip install '{extra}'."
    if isinstance(error, OSError) and (error.errno in DISK or foreign_place(error) is None):
        return printable(disk_error(error))
    return None


def whose(error: BaseException) -> str:
    """Say whose mistake an unexpected exception is: the project's, or a user's file's."""
    if place := foreign_place(error):
        return (
            f"{MISTAKE} {place}, which is not part of wawa_transformer as it was published; mend "
            f"it there."
        )
    # No file tells the published code from a fork's commits.
    place = next((line for each in causes(error) for _, line in own_lines(each)), "its code")
    edits = [f"import={name}" for name in LOADED]
    edits += [line[3:] for line in git_status(PACKAGE).splitlines()]
    perhaps = f", perhaps in what was changed here ({', '.join(edits)})" if edits else ""
    return (
        f"{MISTAKE} wawa_transformer, not in the command: it shows in {place}{perhaps}; mend it if "
        f"this copy of the code is your own, and otherwise report it with all of this."
    )


def is_marked(error: BaseException) -> bool:
    """True if an exception has the note of :func:`whose`."""
    return any(note.startswith(MISTAKE) for note in getattr(error, "__notes__", ()))


def foreign_place(error: BaseException) -> str | None:
    """Find the innermost line of code that is neither this project's nor a library's.

    A file of this project that was changed here counts if the error comes out of the file itself.
    """
    for each in causes(error):
        for number, (where, line) in enumerate(own_lines(each)):
            if where == "foreign" or (where == "changed" and number == 0):
                return line
    return None


def own_lines(error: BaseException) -> list[tuple[str, str]]:
    """List the lines of no library that an exception passed, innermost first, by their origin."""
    frames = reversed(list(traceback.walk_tb(error.__traceback__)))
    every = [(origin(frame), f"{frame.f_code.co_filename}, line {line}") for frame, line in frames]
    return [each for each in every if each[0] != "library"]


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an exception and what it was raised from."""
    while error is not None:
        yield error
        error = error.__cause__


def origin(frame: FrameType) -> str:
    """Where code comes from: ``ours``, ``changed`` here, ``foreign`` or a ``library``."""
    path, module = Path(frame.f_code.co_filename).resolve(), frame.f_globals.get("__name__", "")
    if path.is_relative_to(PACKAGE) or path.is_relative_to(SCRIPTS):
        return origin_of_ours(path)
    if any(f"{module}.".startswith(f"{name}.") for name in LOADED):
        return "foreign"
    return "foreign" if is_foreign(path) else "library"


@functools.cache
def origin_of_ours(path: Path) -> str:
    """``ours``, or for a file that was added or changed here ``foreign`` or ``changed``."""
    # An installed package has a list of its files, and a checkout has git. A bare copy has neither.
    if "site-packages" in path.parts:
        listed = [Path(str(each.locate())) for each in importlib.metadata.files(PACKAGE.name) or []]
        return "ours" if path in listed or not listed else "foreign"
    status = git_status(path)
    if status.startswith(("??", "A")):
        return "foreign"
    return "changed" if status else "ours"


def git_status(path: Path) -> str:
    """List what was changed here at ``path``, one file a line; empty without git."""
    command = ["git", "-C", str(path.parent), "status", "--porcelain", "--", path.name]
    try:
        return subprocess.check_output(command, stderr=subprocess.DEVNULL, text=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
