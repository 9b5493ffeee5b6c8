"""Atomic writes and folder locks."""

import contextlib
import os
import re
import socket
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import filelock

from wawa_transformer.common.messages import UserError, first_line, warn

LOCK = "lock"  # the lock file in a run's or study's folder


@contextlib.contextmanager
def lock_directory(
    directory: Path, patience: float = 0.0, key: str = "output_dir"
) -> Iterator[None]:
    """Create ``directory``, which ``key`` names, and lock it against other processes.

    The operating system releases the lock when the process ends, even if it is killed. The file
    names the process that holds the lock.
    """
    make_directory(directory, key)
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
        warn(
            f"warning: {directory} cannot be locked on this file system ({error}); make sure that "
            f"no other process uses it."
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
    """Read which process holds a lock; empty if unknown, or if it was killed on this machine."""
    try:
        holder = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    named = re.match(r"process (\d+) on host (.+), since ", holder)
    if named and named[2] == socket.gethostname() and os.name == "posix":
        try:
            os.kill(int(named[1]), 0)  # sends nothing
        except (ProcessLookupError, OverflowError):
            return ""
        except OSError:  # another user's
            pass
    return holder


def make_directory(directory: Path, key: str = "output_dir", of_runs: bool = True) -> None:
    """Create ``directory``, the value of ``key``, and its parents; refuse one not writable."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        reason = "" if os.access(directory, os.W_OK) else "permission denied"
    except OSError as error:
        reason = error.strerror or str(error)
    if reason:
        readable = of_runs and directory.is_dir() and os.access(directory, os.R_OK)
        kept = readable and any(directory.iterdir())
        mine = "a folder of yours"
        if kept:  # output_dir holds a study's folder, and run_dir and report are the folder itself
            copied = f"{mine} that holds a copy of {directory.name}"
            mine = copied if key == "output_dir" else f"a copy of {directory}"
        raise UserError(f"{directory} cannot be written ({reason}); set {key} to {mine}.")


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Explain why ``path`` cannot be read now, which proves no damage.

    Raises:
        FileNotFoundError: there is no such file.
        UserError: the system, the disk or the memory does not allow it.
    """
    try:
        yield
    except NotADirectoryError as error:
        raise FileNotFoundError(*error.args) from None
    except FileNotFoundError:
        if path.is_symlink():  # as git-annex and DVC leave a file that they have not fetched
            raise cannot_read(path, OSError(0, "it is a link, and its file is not there")) from None
        raise
    except (OSError, MemoryError) as error:
        raise cannot_read(path, error) from None


def cannot_read(path: object, error: Exception) -> UserError:
    """Make the error for a file that may well be intact."""
    reason = getattr(error, "strerror", None) or first_line(error)
    if isinstance(error, MemoryError):
        reason = "the memory ran out"
    return UserError(
        f"{path} cannot be read now ({reason}); see to its permissions, its disk and the memory, "
        f"and give the same command again: nothing was changed."
    )


def write_atomically(path: Path, content: str | bytes | memoryview) -> None:
    """Replace a file completely or not at all."""
    unfinished = path.with_name(f"{path.name}.tmp")
    try:
        with unfinished.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except BaseException as error:  # a full disk, or a signal
        if isinstance(error, OSError):
            error.filename = error.filename or str(path)  # a full disk's error names none
        with contextlib.suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise


def write_lines(path: Path, lines: list[str]) -> None:
    """Write one sentence per line."""
    write_atomically(path, "".join(f"{line}\n" for line in lines))
