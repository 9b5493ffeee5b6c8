"""Check a command line against the schema, before Hydra composes the configuration."""

import contextlib
import dataclasses
import functools
import itertools
import os
import re
import types
import typing
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import yaml
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, Quote, QuotedString
from hydra.errors import OverrideParseException
from omegaconf import MISSING, DictConfig, OmegaConf
from yaml.nodes import MappingNode, Node, SequenceNode

from wawa_transformer.common import CONFIG_DIR
from wawa_transformer.common.messages import UserError, first_line
from wawa_transformer.common.schema import TEXT, check, keys_by_kind, nearest
from wawa_transformer.run.schema import (
    EvaluateConfig,
    ExportConfig,
    PeConfig,
    ServeConfig,
    TranslateConfig,
)

# The schema of each script's file in configs/, and the function that checks its values.
SCHEMAS: dict[str, type] = {}
CHECKS: dict[str, Callable[[DictConfig], None]] = {}
# A schema's types, which are looked up once for each key of a command and of its files.
hints = functools.cache(typing.get_type_hints)
# The schemas of scripts that use a trained run, which brings its own configuration.
TRAINED: dict[str, type] = {
    "evaluate": EvaluateConfig, "translate": TranslateConfig, "serve": ServeConfig,
    "export": ExportConfig,
}  # fmt: skip


def register(
    config_name: str, schema: type, checks: Callable[[DictConfig], None] | None = None
) -> None:
    """Register the schema of ``configs/CONFIG_NAME.yaml``.

    ``checks`` raises :class:`UserError` for a wrong value; by default it reads the schema's limits.
    """
    SCHEMAS[config_name] = schema
    CHECKS[config_name] = checks or functools.partial(check, schema)
    node = OmegaConf.structured(schema)
    for each in dataclasses.fields(schema):
        if each.default is MISSING:  # its keys depend on the class that its kind names
            node[each.name] = dataclasses.asdict(PeConfig()) if each.name == "pe" else {}
            OmegaConf.set_struct(node[each.name], False)
    ConfigStore.instance().store(name=f"{config_name}_schema", node=node)


def inner_schema(annotation: Any) -> type | None:
    """The dataclass in a field's type, such as ``RuleConfig | None``; None for other types."""
    options = typing.get_args(annotation) if is_union(annotation) else (annotation,)
    return next((each for each in options if dataclasses.is_dataclass(each)), None)  # type: ignore


def is_union(annotation: Any) -> bool:
    """True for ``A | B`` and ``Optional[A]``."""
    return typing.get_origin(annotation) in (types.UnionType, typing.Union)


def fields(schema: type, prefix: str = "") -> Iterator[tuple[str, dataclasses.Field[Any]]]:
    """Yield every field of a schema, nested ones included, with its key."""
    annotations = hints(schema)
    for each in dataclasses.fields(schema):
        inner = inner_schema(annotations[each.name])
        if inner:
            yield from fields(inner, f"{prefix}{each.name}.")
        if not inner or each.default is None:  # the latter: null in place of all its keys
            yield prefix + each.name, each


def nullable_groups(config_name: str) -> list[str]:
    """List the keys that hold other keys, or null in place of them all."""
    schema = SCHEMAS[config_name]
    return [key for key, _ in fields(schema) if inner_schema(type_of(schema, key))]


def type_of(schema: type, key: str) -> Any:
    """The type of a key's value; Any inside a dictionary or list, None for an unknown key.

    A list of lists or dictionaries has parts of their type.
    """
    name, *rest = re.split(r"\.|\[", key, maxsplit=1)
    annotation = hints(schema).get(name)
    if annotation is None or not rest:
        return annotation
    if inner := inner_schema(annotation):
        return type_of(inner, rest[0])
    if typing.get_origin(annotation) is list and re.fullmatch(r"\d+\]", rest[0]):
        [part] = typing.get_args(annotation)
        return part if typing.get_origin(part) else Any
    return Any if typing.get_origin(annotation) in (dict, list) else None


def parse(text: str) -> Override:
    """Parse one argument of a command line."""
    try:
        [override] = OverridesParser.create().parse_overrides([text])
    except ValueError as error:  # a number of thousands of digits
        raise UserError(f"{text.split('=')[0]}: {first_line(error)}.") from None
    except (OverrideParseException, RecursionError):
        raise UserError(unreadable(text)) from None
    # Hydra would take the last value. YAML needs a space after a key's colon.
    inline = re.sub(r"([{,]\s*[^\s{}\[\],:]+):", r"\1: ", text.partition("=")[2])
    with contextlib.suppress(yaml.YAMLError, RecursionError):
        for key in repeated(yaml.compose(inline, yaml.SafeLoader)):
            raise UserError(f"{text[:100]}: {key.value} is there twice; leave one out.")
    return override


def pairs(node: Node | None) -> list[tuple[Node, Node]]:
    """The keys and values of a mapping; nothing for another node."""
    return node.value if isinstance(node, MappingNode) else []


def nodes(node: Node | None) -> Iterator[Node]:
    """Yield a YAML node and every node inside it."""
    if node:
        yield node
        inside = node.value if isinstance(node, SequenceNode) else itertools.chain(*pairs(node))
        yield from itertools.chain.from_iterable(map(nodes, inside))


def repeated(node: Node | None) -> Iterator[Node]:
    """Yield the keys that stand twice in one mapping of a YAML node."""
    for keys in ([key for key, _ in pairs(each)] for each in nodes(node)):
        named = [key.value for key in keys]
        yield from (key for key in keys if named.count(key.value) > 1)


def unreadable(text: str) -> str:
    """Say how an argument is written that the parser, whose message names classes, refuses."""
    special = "special characters or letters beyond ASCII"
    remedy = f"a value with {special} in two kinds of quotes, 'key=\"värde\"'"
    if text.partition("=")[2].startswith("["):
        remedy = f"each element of a list with blanks, {special} in quotes of its own, "
        remedy += "'study.pe=[none,\"shaw pe.cross=same\"]'"
    return f"{text[:100]} cannot be read; write key=value, and {remedy}."


def no_override(text: str, config_name: str) -> str:
    """Say how an argument without ``=`` is written."""
    examples = {"config": "pe=learned", **dict.fromkeys(TRAINED, "run=results/…")}
    example = examples.get(config_name) or f"{next(fields(SCHEMAS[config_name]))[0]}=…"
    lines = "; lines to translate come from standard input" if config_name == "translate" else ""
    return (
        f"{text[:100]} is no key=value; put a plain = between key and value, no blanks around it, "
        f"and quotes around an argument with blanks, as in {example}{lines}; --help lists every "
        "key."
    )


def read_overrides(
    arguments: Sequence[str], config_name: str, sweep: bool = False
) -> dict[str, Override]:
    """Parse overrides and check their keys; the last of several values of a key counts.

    A ``+`` in front changes nothing, except that it adds a key to a dictionary.

    Raises:
        UserError: an unknown key, no value, or several values without ``sweep``.
    """
    overrides: dict[str, Override] = {}
    known_groups = groups(config_name)
    for text in arguments:
        override = parse(text)
        if override.key_or_group in ("import", "imports"):  # the former is no name in Python
            override = imports_override(override)
            text = str(override.input_line)
        key = override.key_or_group
        if not re.match(r"hydra\b", key):
            check_override(override, config_name, known_groups, sweep)
            bare, kind = text.lstrip("+"), type_of(SCHEMAS[config_name], key)
            open_ended = kind is Any or typing.get_origin(kind) is dict
            # A dictionary may bring keys, as in study.rule={measures:{nll:0.1}}.
            brings = isinstance(override.value(), dict) or (open_ended and text != bare)
            added = brings and key not in known_groups
            bare = as_written(bare, override.value(), kind)
            override = dataclasses.replace(override, input_line=f"++{bare}" if added else bare)
        overrides.pop(key, None)  # the last value takes the last place
        overrides[key] = override
    return overrides


def as_written(given: str, value: Any, kind: Any) -> str:
    """Keep the value of a text as it was written, and write ~ in front as the home folder.

    Hydra reads 2026_11_26 as the number 20261126, and true as True; a shell reads ~ outside quotes.
    Where a class has the type, a number that Hydra would change is text until :func:`typed`.

    Raises:
        UserError: it is empty, as a variable of the shell may be, also where a class has the type.
    """
    key, _, written = given.partition("=")
    if kind in (*TEXT, Any) and value == "":
        raise UserError(f"{given} is empty; give a value, or leave {key} out.")
    altered = type(value) in (int, float) and written != str(value)
    if (kind in TEXT and isinstance(value, bool | int | float)) or (kind is Any and altered):
        return f"{key}='{written}'"
    if isinstance(value, str) and value.startswith("~/"):
        return f"{key}={QuotedString(os.path.expanduser(value), Quote.single).with_quotes()}"
    return given


def imports_override(override: Override) -> Override:
    """Write ``import=a`` and ``import=[a,b]`` as the key ``imports``, a list."""
    value = override.value()
    names = value if isinstance(value, list) else [value]
    if override.is_delete() or not all(isinstance(name, str) and name for name in names):
        raise UserError(
            f"{override.input_line} names no module; give import=my_module or import=[one,two]."
        )
    return parse(f"imports=[{','.join(dict.fromkeys(map(str, names)))}]")  # one twice is one


def check_override(
    override: Override, config_name: str, known_groups: set[str], sweep: bool
) -> None:
    """Refuse an unknown key, and an override that chooses nothing or too much."""
    key, given = override.key_or_group, str(override.input_line)
    if override.package or not key:
        raise UserError(unreadable(given))
    # What a rule measures are keys of a dictionary; all other keys are a schema's.
    if override.is_delete() and not key.startswith("study.rule.measures."):
        raise UserError(f"{given}: no key can be taken away; leave it out.")
    kind = type_of(SCHEMAS[config_name], key)
    if kind is None:
        raise UserError(unknown_key(key, config_name))
    single = config_name == "config" and (key in known_groups or kind in (int, float, str))
    listed = single and isinstance(override.value(), list)
    if listed or (override.is_sweep_override() and not sweep):
        each = re.sub(r"[\[\]]", "", given)
        one = ""
        if kind in (*TEXT, Any) and not listed:
            written = given.partition("=")[2]
            one = f"one value with a comma has two kinds of quotes, '{key}=\"{written}\"'; "
        raise UserError(
            f"{given} is several values; {one}scripts/train.py -m {each} trains one run for each, "
            f"and scripts/compare.py takes lists: 'study.pe=[none,learned]', study.task, "
            f"study.seeds."
        )
    if key in known_groups and not choices(override):
        names = sorted(path.stem for path in (CONFIG_DIR / key).glob("*.yaml"))
        raise UserError(f"{given} chooses nothing; choose one of {', '.join(names)}.")


def choices(override: Override) -> list[str]:
    """List the files of its group that an override chooses, several in a sweep."""
    swept = override.is_choice_sweep()
    every = override.sweep_string_iterator() if swept else [override.value()]
    return [each for each in every if each and isinstance(each, str)]


def groups(config_name: str) -> set[str]:
    """Name the configuration groups of a script."""
    names = {path.parent.name for path in CONFIG_DIR.glob("*/*.yaml")}
    own = {group for group in names if type_of(SCHEMAS[config_name], group) is not None}
    return {group for group in own if (group == "decode") == (config_name in TRAINED)}


def known_keys(config_name: str) -> list[str]:
    """List every group, and every key of the schema."""
    return sorted(groups(config_name) | {key for key, _ in fields(SCHEMAS[config_name])})


def class_keys(config_name: str) -> set[str]:
    """List every key of all encodings and tasks, or of all decoding strategies."""
    from wawa_transformer.data.tasks import TASKS
    from wawa_transformer.decode.strategies import STRATEGIES
    from wawa_transformer.positional.base import ENCODINGS
    from wawa_transformer.run.config import CONTEXT_ARGUMENTS, PE_KEYS

    registries: dict[str, Any] = {"decode": STRATEGIES, "pe": ENCODINGS, "task": TASKS}
    keys: set[str] = set()
    for group in registries.keys() & groups(config_name):
        own = keys_by_kind(registries[group], CONTEXT_ARGUMENTS).values()
        names = {"kind", "name", *(PE_KEYS if group == "pe" else ())}.union(*own)
        keys |= {f"{group}.{name}" for name in names}
    return keys


def unknown_key(key: str, config_name: str) -> str:
    """Say that a key does not exist, and which key may be meant."""
    parent, _, tail = key.rpartition(".")
    if key.partition(".")[0] == "decode" and config_name not in TRAINED:
        return f"the key {key} is for a trained run: give it to evaluate.py or translate.py."
    keys = known_keys(config_name)
    typed = parent in keys or any(each.endswith(f".{key}") for each in keys)
    if config_name in TRAINED or not typed:
        keys = sorted({*keys, *class_keys(config_name)})  # which imports torch
    beside = [each.rpartition(".")[2] for each in keys if each.rpartition(".")[0] == parent]
    inside = [each for each in keys if each.endswith(f".{key}")]
    if inside:
        meant = f" (did you mean {' or '.join(inside)}?)"
    elif beside:
        meant = nearest(tail, beside, parent and f"{parent}.")
    elif parent in keys:
        meant = f"; to add it to {parent}, write +{key}=…"
    else:
        meant = nearest(key, [each for each in keys if "." in each])
    where = " here, where a run is used as it was trained" if config_name in TRAINED else ""
    return f"the key {key} does not exist{where}{meant or '; --help lists every key'}."
