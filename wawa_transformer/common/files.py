"""Files written atomically, folders locked."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import filelock

from wawa_transformer.common.schema import CONFIG_DIR as CONFIG_DIR
from wawa_transformer.common.schema import UserError

LOCK = "lock"  # the file in a folder that whoever works there holds locked


@contextlib.contextmanager
def lock_directory(directory: Path, patience: float = 0.0) -> Iterator[None]:
    """Be the only process that works in ``directory``.

    The lock is the operating system's and ends with its process, however that ends. Who holds it
    stands in the file.
    """
    path = directory / LOCK
    lock = filelock.FileLock(path, timeout=patience, fallback_to_soft=False)
    try:
        lock.acquire()
    except filelock.Timeout:
        raise UserError(
            f"{directory} is in use by {lock_holder(path) or 'another process'}; wait for it or "
            f"stop it."
        ) from None
    except (OSError, NotImplementedError) as error:
        print(
            f"warning: {directory} cannot be locked on this file system ({error}), so nobody can "
            f"know whether another process works in it; be sure that none does.",
            file=sys.stderr,
        )
        yield
        return
    try:
        here = socket.gethostname()
        since = datetime.now().astimezone().isoformat(timespec="seconds")
        path.write_text(f"process {os.getpid()} on host {here}, since {since}", encoding="utf-8")
        yield
    finally:
        with contextlib.suppress(OSError):
            path.write_text("", encoding="utf-8")
        lock.release()


def lock_holder(path: Path) -> str:
    """What :func:`lock_directory` wrote of the process that holds a lock, or did not let it go."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def make_directory(directory: Path) -> None:
    """Make ``directory`` and its parents, and be sure that it can be written."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        reason = "" if os.access(directory, os.W_OK) else "permission denied"
    except OSError as error:
        reason = error.strerror or str(error)
    if reason:
        raise UserError(
            f"{directory} cannot be written ({reason}); set output_dir to a folder of yours."
        )


def write_atomically(path: Path, content: str | bytes | memoryview) -> None:
    """The old file or the new one, never half of it, whatever happens meanwhile."""
    unfinished = path.with_name(f"{path.name}.tmp")
    try:
        with unfinished.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except BaseException:  # a full disk, or a signal
        with contextlib.suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise


def write_lines(path: Path, lines: list[str]) -> None:
    """One sentence a line."""
    write_atomically(path, "".join(f"{line}\n" for line in lines))


def read_lines(path: Path) -> list[str]:
    """What :func:`write_lines` wrote; ``splitlines`` would also split at U+2028."""
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
