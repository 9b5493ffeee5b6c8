"""A user's mistake, and what the terminal says, in one sentence."""

import sys


class UserError(ValueError):
    """A user's mistake in one sentence: value, limit, remedy and key."""

    def __init__(self, sentence: str) -> None:
        super().__init__(printable(sentence))


def printable(sentence: str) -> str:
    """Escape unprintable characters, so that a quoted value cannot affect the terminal."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in sentence)


def tell(sentence: str) -> None:
    """Print a line that may quote a user's value, such as a folder's name."""
    print(printable(sentence), flush=True)


def warn(sentence: str) -> None:
    """Print a warning or a note to standard error."""
    print(printable(sentence), file=sys.stderr)


def unfinished_of(count: int, runs: int) -> str:
    """Say how many of several runs did not finish."""
    return f"{count} of {runs} runs did not finish; the same command tries again."


def first_line(error: BaseException) -> str:
    """Get the first line of an exception's message, or its class, without a full stop."""
    [line, *_] = str(error).strip().splitlines() or [type(error).__name__]
    return line.rstrip(".")


def disk_error(error: OSError) -> str:
    """Explain in one sentence why a file cannot be read or written."""
    where = f"{error.filename}: " if error.filename else ""
    return (
        f"{where}{error.strerror or error}; make room or see to the folder's permissions, and give "
        f"the same command again: what was kept is kept."
    )
