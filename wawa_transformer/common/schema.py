"""Check settings against a schema, and report mistakes in one sentence."""

import contextlib
import dataclasses
import difflib
import functools
import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from types import MappingProxyType
from typing import Any, get_type_hints

import yaml
from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from wawa_transformer.common import CONFIG_DIR
from wawa_transformer.common.limits import check_choice, check_field, check_flat, setting
from wawa_transformer.common.messages import UserError, first_line

TEXT = (str, str | None)  # the types of a key that holds a text


def check(schema: type, values: Any, prefix: str = "") -> None:
    """Check ``values``, an object with the fields of ``schema``, against its limits."""
    for each in dataclasses.fields(schema):
        value = getattr(values, each.name)
        if dataclasses.is_dataclass(each.default_factory):
            if isinstance(value, Real | Sequence):  # by a reference, as ${seed}
                raise UserError(f"{prefix}{each.name}={value} takes keys with values, {{a: b}}.")
            check(each.default_factory, value, f"{prefix}{each.name}.")
            continue
        check_field(each, value, prefix)


def check_known(
    given: Iterable[str],
    names: Sequence[str],
    group: str,
    registry: Mapping[str, type] = MappingProxyType({}),
    exclude: tuple[str, ...] = (),
) -> None:
    """Refuse a setting whose name is not among ``names``.

    The sentence names a class of ``registry`` that has the setting, or the nearest name.
    """
    key = next((key for key in given if key not in names), None)
    if key is None:
        return
    others = keys_by_kind(registry, exclude)
    if kinds := [kind for kind, has in others.items() if key in has]:
        files = sorted((CONFIG_DIR / group).rglob("*.yaml"))
        has = [path for path in files if yaml.safe_load(path.read_bytes()).get("kind") in kinds]
        named = [str(path.relative_to(CONFIG_DIR / group).with_suffix("")) for path in has]
        # A class of a user's module has its kind alone, and no file.
        choices = " or ".join(f"{group}={name}" for name in (named or kinds)[:3])
        raise UserError(f"{group}.{key} does not exist here; it is a setting of {choices}.")
    every = set().union(*others.values())
    meant = nearest(key, names, f"{group}.") or nearest(key, every, f"{group}.")
    raise UserError(f"{group}.{key} does not exist{meant or '; --help lists every key'}.")


def names_of(schema: type) -> list[str]:
    """List the names of a schema's fields."""
    return [each.name for each in dataclasses.fields(schema)]


@functools.cache
def schema_of(cls: type, exclude: tuple[str, ...] = ()) -> type:
    """Get a class's settings: its dataclass fields, or its arguments without ``exclude``."""
    if dataclasses.is_dataclass(cls):
        check_dataclass(cls)
        return cls
    try:
        parameters = inspect.signature(cls, eval_str=True).parameters.values()
    except NameError as error:
        raise UserError(
            f"{cls.__name__}.__init__: {error}; import the types of its arguments outside of "
            f"TYPE_CHECKING, since its settings are read from them."
        ) from None
    own = []
    for each in (each for each in parameters if each.name not in exclude):
        named = each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
        if not named or each.annotation is each.empty:
            raise UserError(
                f"{cls.__name__}.__init__: give {each} a name and a type, since its settings are "
                f"read from them: slope: float = 1.0."
            )
        default = MISSING if each.default is each.empty else each.default
        own.append((each.name, each.annotation, setting(default)))
    try:
        return dataclasses.make_dataclass(cls.__name__, own, kw_only=True)
    except ValueError as error:  # a default that two objects would share
        raise UserError(
            f"{cls.__name__}.__init__: {first_line(error)}; give a setting a number, a text, or a "
            f"list or dictionary of these as its default."
        ) from None


def check_dataclass(cls: type) -> None:
    """Refuse a value in the body of a class that is no field, though it is written as one."""
    known = {each.name: each.default for each in dataclasses.fields(cls)}
    plain = [name for name, default in known.items() if getattr(cls, name, default) is not default]
    if "__dataclass_fields__" not in vars(cls):  # its fields are those of its base
        own = inspect.get_annotations(cls)
        plain += [name for name, kind in own.items() if "ClassVar" not in str(kind)]
    if plain:
        raise UserError(
            f"{cls.__name__}.{plain[0]} is no setting as it is written, and would have no effect; "
            f"write @dataclass above the class and a type after the name: {plain[0]}: int = 5."
        )


def keys_by_kind(
    registry: Mapping[str, type], exclude: tuple[str, ...] = ()
) -> dict[str, list[str]]:
    """List the settings of all classes, for suggestions, but for those that cannot be read."""
    keys = {}
    for kind, cls in registry.items():
        with contextlib.suppress(UserError):  # a mistake in a class that nobody has chosen
            keys[kind] = names_of(schema_of(cls, exclude))
    return keys


def typed(
    cls: type,
    given: Any,
    group: str,
    registry: Mapping[str, type] = MappingProxyType({}),
    exclude: tuple[str, ...] = (),
    beside: Iterable[str] = (),
) -> dict[str, Any]:
    """Check the settings ``given`` to ``cls``, and convert their types.

    Errors name the configuration ``group`` and the classes in ``registry`` that have the key. The
    keys ``beside`` are allowed for every class.
    """
    schema: Any = schema_of(cls, exclude)
    check_known(given, [*names_of(schema), *beside], group, registry, exclude)
    try:
        base, kinds = structured(schema), get_type_hints(schema)
        values = {key: number_or_text(value, kinds.get(key, str)) for key, value in given.items()}
        merged = OmegaConf.merge(base, values)
        # Resolved, so that a "${" that was given as text is refused here.
        settings: Any = OmegaConf.to_container(merged, resolve=True, throw_on_missing=True)
    except (OmegaConfBaseException, OverflowError) as error:  # the latter: a huge int for a float
        full = (getattr(error, "full_key", None) or "").removeprefix(f"{group}.")
        key = ".".join(filter(None, (group, full)))
        said = omegaconf_says(error)
        if "Unexpected type" in said:  # as of Literal
            said += (
                f"; {cls.__name__} may have settings of the types int, float, str, bool, and lists "
                f"and dictionaries of these"
            )
        raise UserError(f"{key}: {said}.") from None
    for key, value in settings.items():
        check_flat(f"{group}.{key}", kinds.get(key), value)
    return settings  # type: ignore[no-any-return]


@functools.cache
def structured(schema: type) -> DictConfig:
    """The schema's defaults, which nobody changes: to build them takes longer than to copy them."""
    return OmegaConf.structured(schema)  # type: ignore[no-any-return]


# What OmegaConf says of a value of another form, in which it names classes of its own.
FORMS = {
    r"Invalid value assigned: \w+ is not a ListConfig.*": "it takes a list, [a, b]",
    r"Cannot assign \w+ to Dict.*|'\w+' is incompatible with type hint 'typing.Dict.*"
    r"|Invalid type assigned: \w+ is not a subclass of .*": "it takes keys with values, {a: b}",
}


def omegaconf_says(error: BaseException) -> str:
    """Get the first line of OmegaConf's message, without the names of its classes."""
    said = first_line(error)
    return next((form for theirs, form in FORMS.items() if re.fullmatch(theirs, said)), said)


def number_or_text(value: Any, kind: Any) -> Any:
    """Read a number that the command line left as text, where ``kind`` is not text alone."""
    for number in (int, float) if isinstance(value, str) and kind not in TEXT else ():
        with contextlib.suppress(ValueError):
            return number(value)
    return value


def choose(registry: dict[str, Any], kind: str, key: str) -> Any:
    """Look up ``kind``; the error for an unknown kind lists the choices."""
    check_choice(key, kind, sorted(registry))
    return registry[kind]


def nearest(name: str, choices: Iterable[str], prefix: str = "") -> str:
    """Suggest the nearest choice: ``" (did you mean …?)"``, or an empty string."""
    close = difflib.get_close_matches(name.lower(), list(choices), n=1)
    return f" (did you mean {prefix}{close[0]}?)" if close else ""
