"""Limits of settings, and checks that answer another value with one sentence."""

import math
import sys
from collections.abc import Iterable
from numbers import Integral

MAX_POSITIONS = 1_000_000  # in a table; also distances and buckets. At width 512: 2 GB
MAX_WIDTH = 65_536  # several times the widest models there are
MAX_VOCAB_SIZE, MAX_LAYERS = 1_000_000, 256
# Choices of the model.
NORMS = ("pre", "post")
ACTIVATIONS = ("relu", "gelu")
EMBEDDING_SCALES = ("token_up", "position_down")
ENCODER_MASKS = ("full", "causal")


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


def check_choice(name: str, given: str, choices: Iterable[str]) -> None:
    """Refuse a word that is not one of ``choices``."""
    if given not in choices:
        raise UserError(f"{name}={given} does not exist; choose one of {', '.join(choices)}.")


def check_number(name: str, given: float, least: float, most: float) -> None:
    """Refuse a number outside ``least … most``, and NaN.

    If ``least`` is an int, fractions are refused too.
    """
    if isinstance(least, int) and not isinstance(given, Integral):
        raise UserError(f"{name}={given} must be a whole number.")
    if not least <= given <= most:
        raise UserError(f"{name}={given} must be at least {least:g} and at most {most:,}.")


def check_base(given: float) -> None:
    """Refuse a base whose frequencies are undefined or all equal."""
    if not 1 < given < math.inf:
        raise UserError(f"pe.base={given} must be greater than 1 and finite.")
