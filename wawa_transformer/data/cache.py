"""What text alone decides and takes long to compute, kept between runs."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from wawa_transformer.common.files import (
    LOCK,
    lock_directory,
    lock_holder,
    make_directory,
    sha256,
    write_atomically,
)
from wawa_transformer.common.schema import UserError

WORTH = 1.0  # seconds: what is computed faster is not kept
WHOLE = "whole.json"  # the file that is written into a folder last


def directory() -> Path:
    """``$XDG_CACHE_HOME/wawa_transformer``, which may be deleted at any time."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "wawa_transformer"


def place(key: str) -> Path:
    """Where what belongs to ``key`` is kept; the key says all that it depends on."""
    return directory() / sha256(key.encode("utf-8", "surrogatepass"))


def cached(key: str, make: Callable[[], bytes]) -> bytes:
    """``make()``, or what it gave before for the same ``key``.

    A file that is not what was written is made again, and a folder that cannot be written does
    without.
    """
    path = place(key)
    with contextlib.suppress(OSError):
        seal, content = (whole := path.read_bytes())[:64], whole[64:]
        if seal == sha256(content).encode():
            return content
    started = time.perf_counter()
    content = make()
    if time.perf_counter() - started > WORTH:
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, sha256(content).encode() + content)
    return content


def folder(key: str, make: Callable[[Path], dict[str, int]]) -> tuple[Path, dict[str, int]]:
    """A folder that ``make`` filled, and what it returned: once for each ``key``.

    Half a folder is never taken for a whole one: ``WHOLE`` comes last, when all else is on the
    disk, and knows the size of every file. A process that makes the same one is waited for.

    Raises:
        UserError: the folder cannot be written, or the disk is full.
    """
    path = place(key)
    remedy = "set XDG_CACHE_HOME to a folder of yours that has room"
    if (found := whole(path)) is None:
        make_directory(path, remedy)
        if who := lock_holder(path / LOCK):
            print(f"waiting for {who}, which writes {path}", file=sys.stderr)
        with lock_directory(path, patience=-1):
            if (found := whole(path)) is None:
                clear(path)
                try:
                    found = make(path)
                    seal(path, found)
                except BaseException as error:
                    clear(path)  # what is left of it would fill the disk
                    if isinstance(error, OSError):
                        reason = error.strerror or error
                        raise UserError(f"{path} cannot be written ({reason}); {remedy}.") from None
                    raise
    return path, found


def whole(path: Path) -> dict[str, int] | None:
    """What was returned by the one who filled a folder, or None where it is not all there."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        noted = json.loads((path / WHOLE).read_bytes())
        if all((path / name).stat().st_size == size for name, size in noted["files"].items()):
            return noted["said"]
    return None


def seal(path: Path, said: dict[str, int]) -> None:
    """Say that a folder is whole, once all of it has reached the disk."""
    sizes = {}
    for file in contents(path):
        with file.open("rb+") as opened:
            os.fsync(opened.fileno())
        sizes[file.name] = file.stat().st_size
    write_atomically(path / WHOLE, json.dumps({"files": sizes, "said": said}))


def clear(path: Path) -> None:
    """Take out of a folder all but its lock."""
    for file in sorted(contents(path), key=lambda file: file.name != WHOLE):  # that one first
        file.unlink()


def contents(path: Path) -> list[Path]:
    """Every file in a folder but its lock."""
    return [file for file in path.iterdir() if file.name != LOCK]
