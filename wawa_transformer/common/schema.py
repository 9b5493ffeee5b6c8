"""Settings checked against a schema; a user's mistake is one sentence."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import inspect
from collections.abc import Iterable, Mapping
from dataclasses import field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

# A checkout has configs/ and scripts/ beside the package, a wheel inside it.
PACKAGE = Path(__file__).resolve().parents[1]
CONFIG_DIR = (PACKAGE if (PACKAGE / "configs").is_dir() else PACKAGE.parent) / "configs"


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
        check_known(names_of(schema), values, prefix)
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


def check_known(
    names: Iterable[str],
    given: Iterable[str],
    prefix: str,
    others: Mapping[str, Iterable[str]] = MappingProxyType({}),
) -> None:
    """Refuse a key that is none of ``names``, with the nearest or which ``others`` have it."""
    for key in given:
        if key not in names:
            every = {name for has in others.values() for name in has}
            meant = nearest(key, names, prefix) or nearest(key, every, prefix)
            if kinds := [kind for kind, has in others.items() if key in has]:
                group = prefix.rstrip(".")
                choices = (f"{group}={choice}" for choice in choices_of(group, kinds))
                meant = f" here; it is a setting of {' or '.join(choices)}"
            raise UserError(f"{prefix}{key} does not exist{meant}.")


def choices_of(group: str, kinds: Iterable[str]) -> list[str]:
    """Up to three files of a configuration group that name one of the classes ``kinds``."""
    files = sorted((CONFIG_DIR / group).rglob("*.yaml"))
    chosen = [path for path in files if yaml.safe_load(path.read_bytes()).get("kind") in kinds]
    return [str(path.relative_to(CONFIG_DIR / group).with_suffix("")) for path in chosen[:3]]


def names_of(schema: type) -> list[str]:
    """The fields of a schema by name."""
    return [each.name for each in dataclasses.fields(schema)]


@functools.cache
def schema_of(cls: type, exclude: tuple[str, ...] = ()) -> type:
    """A class's settings: its dataclass fields, or its arguments but those to ``exclude``."""
    if dataclasses.is_dataclass(cls):
        return cls
    parameters = inspect.signature(cls, eval_str=True).parameters.values()
    own = [(p.name, p.annotation, p.default) for p in parameters if p.name not in exclude]
    return dataclasses.make_dataclass(cls.__name__, own)


# How each limit is said and tested; NaN passes none of them.
LIMITS = {
    "least": ("at least", lambda value, limit: value >= limit),
    "above": ("greater than", lambda value, limit: value > limit),
    "below": ("less than", lambda value, limit: value < limit),
    "most": ("at most", lambda value, limit: value <= limit),
}


def typed(
    cls: type,
    given: Any,
    group: str,
    registry: Mapping[str, type] = MappingProxyType({}),
    exclude: tuple[str, ...] = (),
    beside: Iterable[str] = (),
) -> dict[str, Any]:
    """Check ``given`` against what ``cls`` takes and return it converted.

    Adding a class adds its schema. For errors: the configuration ``group``, the ``registry`` of
    classes that may take another key, and the keys ``beside`` those of a class.
    """
    schema: Any = schema_of(cls, exclude)
    others = {kind: names_of(schema_of(other, exclude)) for kind, other in registry.items()}
    check_known([*names_of(schema), *beside], given, f"{group}.", others)
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


def nearest(name: str, choices: Iterable[str], prefix: str = "") -> str:
    """``" (did you mean …?)"``, with the ``prefix`` of all choices, or nothing."""
    close = difflib.get_close_matches(name, list(choices), n=1)
    return f" (did you mean {prefix}{close[0]}?)" if close else ""


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
