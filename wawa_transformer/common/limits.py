"""Declare settings with their limits and help, and refuse other values."""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import Field, field
from numbers import Integral, Real
from typing import Any, get_args, get_origin

from wawa_transformer.common.code import file_of
from wawa_transformer.common.messages import UserError

MAX_POSITIONS = 1_000_000  # in a table; also distances and buckets. At width 512: 2 GB
MAX_WIDTH = 65_536  # several times the widest models there are
MAX_VOCAB_SIZE, MAX_LAYERS = 1_000_000, 256


def setting(default: Any, help: str = "", pattern: str = "", **limits: float) -> Any:
    """Declare a field with its help and its limits: ``least``, ``above``, ``below``, ``most``.

    A text matches ``pattern``, and its help says what may be chosen.
    """
    declared = {"help": help, "pattern": pattern, "limits": limits}
    if isinstance(default, list | dict | set):  # which no two objects may share
        return field(default_factory=default.copy, metadata=declared)
    return field(default=default, metadata=declared)


def choice(*choices: str, help: str = "") -> Any:
    """Declare a field with a fixed set of values; the first is the default."""
    return field(default=choices[0], metadata={"help": help, "choices": choices})


# How each limit is said and tested; NaN passes none of them.
LIMITS = {
    "least": ("at least", lambda value, limit: value >= limit),
    "above": ("greater than", lambda value, limit: value > limit),
    "below": ("less than", lambda value, limit: value < limit),
    "most": ("at most", lambda value, limit: value <= limit),
}


def check_field(each: Field[Any], value: Any, prefix: str = "") -> None:
    """Refuse a value outside the limits, choices or pattern of a field; None passes."""
    choices, limits = each.metadata.get("choices"), each.metadata.get("limits", {})
    name, pattern = f"{prefix}{each.name}", each.metadata.get("pattern")
    if value is None:  # OmegaConf lets it pass only where the schema does
        return
    check_flat(name, each.type, value)
    if choices:
        check_choice(name, value, choices)
    if pattern and not re.fullmatch(pattern, value):
        raise UserError(f"{name}={value} does not exist; choose one of {each.metadata['help']}.")
    if limits:
        check_limits(name, value, each.type in (int, int | None), **limits)


def check_flat(name: str, kind: Any, value: Any) -> None:
    """Refuse what OmegaConf lets pass: a list in a list of words, a tuple of another length."""
    # Of list[int] | None, the parts.
    kinds = [kind] if get_origin(kind) in (list, tuple) else get_args(kind)
    flat = {list[str], list[int], list[float]}.intersection(kinds)
    if flat and value is not None:
        # What a key refers to, as ${trainer.steps}, may be no list at all.
        is_list = isinstance(value, Sequence) and not isinstance(value, str)
        if not is_list or any(not isinstance(one, str | Real) for one in value):
            raise UserError(f"{name}={value} must be a list of single values, such as [a, b].")
    for parts in (get_args(each) for each in kinds if get_origin(each) is tuple):
        if ... not in parts and value is not None and len(value) != len(parts):
            raise UserError(f"{name}={value} must be a list of {len(parts)} values.")


def check_limits(name: str, given: Any, whole: bool, **limits: float) -> None:
    """Refuse what is no number, no ``whole`` one, or outside ``limits``."""
    if not isinstance(given, Integral if whole else Real):
        raise UserError(f"{name}={given} must be a {'whole ' if whole else ''}number.")
    if not all(LIMITS[each][1](given, limit) for each, limit in limits.items()):
        words = " and ".join(f"{LIMITS[each][0]} {limit:,}" for each, limit in limits.items())
        raise UserError(f"{name}={given} must be {words}.")


def check_choice(name: str, given: str, choices: Iterable[str]) -> None:
    """Refuse a word that is not one of ``choices``."""
    if given not in choices:
        raise UserError(f"{name}={given} does not exist; choose one of {', '.join(choices)}.")


def check_number(name: str, given: float, least: float, most: float) -> None:
    """Refuse a number outside ``least … most``, and NaN.

    If ``least`` is an int, fractions are refused too.
    """
    check_limits(name, given, isinstance(least, int), least=least, most=most)


def register(registry: dict[str, Any], kind: str, cls: type) -> None:
    """Enter a class under its kind; refuse a kind of another class.

    A class that is defined again, as in a notebook or by a script that is imported, replaces
    itself.
    """
    before = registry.get(kind, cls)
    files = {file_of(each.__module__) or each.__module__ for each in (before, cls)}
    if len(files) > 1 or before.__qualname__ != cls.__qualname__:
        raise UserError(
            f"kind={kind} of {cls.__module__}.{cls.__qualname__} is the kind of "
            f"{before.__module__}.{before.__qualname__}; choose another kind."
        )
    registry[kind] = cls


def check_base(given: float) -> None:
    """Refuse a base whose frequencies are undefined or all equal."""
    check_limits("pe.base", given, False, above=1, below=math.inf)
