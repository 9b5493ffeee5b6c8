"""Limits of settings; a value outside them is refused in one sentence."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import ParamSpec

MAX_POSITIONS = 1_000_000  # in a table; also distances and buckets. At width 512: 2 GB
MAX_WIDTH = 65_536  # several times the widest models there are


def check_choice(name: str, given: str, choices: tuple[str, ...]) -> None:
    """Refuse a word that is not one of ``choices``."""
    if given not in choices:
        raise ValueError(f"{name}={given} does not exist; choose one of {', '.join(choices)}")


def check_number(name: str, given: float, least: float, most: float) -> None:
    """Refuse a number outside ``least … most``, and NaN."""
    if not least <= given <= most:
        raise ValueError(f"{name}={given} must be at least {least} and at most {most:,}")


def check_base(given: float) -> None:
    """Refuse a base that gives no frequencies, or equal ones."""
    if not 1 < given < math.inf:
        raise ValueError(f"pe.base={given} must be greater than 1 and finite")


P = ParamSpec("P")
FOREIGN_ARGUMENTS = {
    "seq_len": "seq_len is called max_len here: give max_len, the positions in the table",
    "batch_first": "batch_first is not served: this encoding takes (batch, seq, d_model); "
    "transpose what is (seq, batch, d_model) with x.transpose(0, 1)",
}


def explain_foreign_arguments(init: Callable[P, None]) -> Callable[P, None]:
    """Refuse argument names of other projects with a sentence that names ours."""

    @functools.wraps(init)  # keeps the signature, which is the schema of the configuration
    def answering(*args: P.args, **kwargs: P.kwargs) -> None:
        for name in FOREIGN_ARGUMENTS.keys() & kwargs.keys():
            raise TypeError(FOREIGN_ARGUMENTS[name])
        init(*args, **kwargs)

    return answering
