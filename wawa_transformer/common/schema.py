"""Settings checked against a schema; a user's mistake is one sentence."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException


class UserError(ValueError):
    """A mistake of the user's, in one sentence: the value, the limit, the remedy, the key."""

    def __init__(self, sentence: str) -> None:
        super().__init__(printable(sentence))


def setting(default: Any, **limits: float) -> Any:
    """A field with limits, of ``least``, ``above``, ``below`` and ``most``."""
    return field(default=default, metadata={"limits": limits})


def choice(*choices: str) -> Any:
    """A field that takes one of ``choices``; the first is the default."""
    return field(default=choices[0], metadata={"choices": choices})


def check(schema: type, values: Any, prefix: str = "") -> None:
    """Hold ``values``, a mapping or an object, against the fields and limits of ``schema``."""
    if isinstance(values, Mapping):
        check_known(schema, values, prefix)
        check_present((each.name for each in dataclasses.fields(schema)), values, prefix)
    for each in dataclasses.fields(schema):
        value = values[each.name] if isinstance(values, Mapping) else getattr(values, each.name)
        choices, limits = each.metadata.get("choices"), each.metadata.get("limits", {})
        if value is None:  # OmegaConf lets it pass only where the schema does
            continue
        if choices and value not in choices:
            raise UserError(
                f"{prefix}{each.name}={value} does not exist; choose one of {', '.join(choices)}."
            )
        if not all(LIMITS[name][1](value, limit) for name, limit in limits.items()):
            words = " and ".join(f"{LIMITS[name][0]} {limit}" for name, limit in limits.items())
            raise UserError(f"{prefix}{each.name}={value} must be {words}.")


def check_known(schema: type, given: Iterable[str], prefix: str) -> None:
    """Refuse a key that is no field of ``schema``, with the nearest that is."""
    names = [each.name for each in dataclasses.fields(schema)]
    for key in given:
        if key not in names:
            raise UserError(f"{prefix}{key} does not exist{nearest(key, names)}.")


def check_present(names: Iterable[str], given: Mapping[str, Any], prefix: str) -> None:
    """Refuse a configuration from which a key was deleted."""
    for name in names:
        if name not in given:
            raise UserError(f"{prefix}{name} is missing; leave ~{prefix}{name} out.")


# How each limit is said and tested; NaN passes none of them.
LIMITS = {
    "least": ("at least", lambda value, limit: value >= limit),
    "above": ("greater than", lambda value, limit: value > limit),
    "below": ("less than", lambda value, limit: value < limit),
    "most": ("at most", lambda value, limit: value <= limit),
}


def typed(cls: type, given: Any, group: str, exclude: Iterable[str] = ()) -> dict[str, Any]:
    """Check ``given`` against what ``cls`` takes and return it converted.

    The settings of a class are its dataclass fields or the arguments of its ``__init__``, so that
    adding a class adds its schema; ``exclude`` names arguments that are no settings. ``group``
    names the configuration group in errors.
    """
    if dataclasses.is_dataclass(cls):
        schema: Any = cls
    else:
        parameters = inspect.signature(cls, eval_str=True).parameters.values()
        own = [p for p in parameters if p.name not in exclude]
        schema = dataclasses.make_dataclass(
            cls.__name__, [(p.name, p.annotation, p.default) for p in own]
        )
    check_known(schema, given, f"{group}.")
    try:
        return OmegaConf.to_container(OmegaConf.merge(OmegaConf.structured(schema), given))  # type: ignore[return-value]
    except (OmegaConfBaseException, OverflowError) as error:  # the latter: a huge int for a float
        key = ".".join(filter(None, (group, getattr(error, "full_key", None))))
        raise UserError(f"{key}: {first_line(error)}.") from None


def choose(registry: dict[str, Any], kind: str, key: str) -> Any:
    """Look ``kind`` up; an unknown one names the choices."""
    if kind not in registry:
        raise UserError(
            f"{key}={kind} does not exist; choose one of {', '.join(sorted(registry))}."
        )
    return registry[kind]


def nearest(name: str, choices: Iterable[str]) -> str:
    """``" (did you mean …?)"`` or nothing."""
    close = difflib.get_close_matches(name, list(choices), n=1)
    return f" (did you mean {close[0]}?)" if close else ""


def printable(sentence: str) -> str:
    """One line for a terminal: what a quoted value would do to it is spelled out."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in sentence)


def first_line(error: Exception) -> str:
    """The first line of an exception's message, without its full stop."""
    return str(error).strip().splitlines()[0].rstrip(".")


def disk_error(error: OSError) -> str:
    """One sentence for a file that cannot be read or written."""
    where = f"{error.filename}: " if error.filename else ""
    return (
        f"{where}{error.strerror or error}; make room or see to the folder's permissions, and give "
        f"the same command again: what was kept is kept."
    )
