"""Check the YAML files that a command line chooses, and find the line of a mistake in them."""

import os
import re
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from wawa_transformer.common import CONFIG_DIR
from wawa_transformer.common.messages import UserError, first_line
from wawa_transformer.run.overrides import (
    SCHEMAS,
    TEXT,
    inner_schema,
    is_union,
    nodes,
    pairs,
    repeated,
    type_of,
    unknown_key,
)

PACKAGE = re.compile(r"#\s*@package\s+(\S+)")  # Hydra's header: the key that a file's keys go into
NULL = "tag:yaml.org,2002:null"
NUMBER = re.compile(r"[-+.]?\d[\w.+-]*|true|false", re.IGNORECASE)  # what may be no text
# Words that YAML 1.1 reads as something else than is written: 010 is 8, 1:30 is 90, no is false.
# Hexadecimal numbers and 1_000 are read as they are written.
TRAPS = {
    "int": re.compile(r"[-+]?0[0-7_]*[1-7][0-7_]+|.*:.*"),
    "float": re.compile(r".*:.*"),
    "bool": re.compile(r"(?!true$|false$)", re.IGNORECASE),
    "str": re.compile(r"[-+]?0o[0-7]+$"),  # of YAML 1.2, and here no number
}


def check_files(
    config_name: str,
    chosen: Mapping[str, Sequence[str]],
    folders: Sequence[Path] = (CONFIG_DIR,),
    given: Iterable[str] = (),
) -> dict[str, str]:
    """Check the files of a configuration; return the file and line of each key in them.

    ``chosen`` are the names of files, by group, in the first of the ``folders`` that has them, and
    ``given`` the keys of the command line. A missing file is left to Hydra.

    Raises:
        UserError: a file is not YAML, has an unknown key, has a value that YAML reads differently
            from what is written, or has kept the name of the file that it is a copy of; the
            sentence names file and line.
    """
    places: dict[str, str] = {}
    copies: dict[str, str] = {}  # by its key, what is wrong with a name
    given_too = {*given}  # keys that the command line or a file of another group gives
    for path, package, root in files_of(config_name, "", chosen, folders):
        own = [pair for pair in pairs(root) if pair[0].value not in ("defaults", "hydra")]
        for key, node, value in keys_of(MappingNode(root.tag, own), package):
            places[key] = place(path, node)
            kind = type_of(SCHEMAS[config_name], key)
            if kind is None and package and type_of(SCHEMAS[config_name], key[len(package) + 1 :]):
                raise UserError(
                    f"{places[key]}: the key {key} does not exist; begin the file with the line "
                    f"# @package _global_, and with nothing before it."
                )
            if kind is None:
                raise UserError(f"{places[key]}: {unknown_key(key, config_name)}")
            if reason := misread(value, kind):
                raise UserError(f"{places[key]}: {key} {reason}.")
            if key == f"{package}.name":
                other = path.parent / f"{value.value}.yaml"
                if other != path and os.path.isfile(other):
                    copies[key] = (
                        f"{places[key]}: {key} is {value.value}, by which reports and folders call "
                        f"what {other} describes; give this file a name of its own, such as "
                        f"{path.stem}."
                    )
            else:
                given_too.add(key)
    for key, said in copies.items():
        if key not in given_too:  # a study's file or the command line may name the copy
            raise UserError(said)
    return places


def misread(value: Node, kind: Any) -> str:
    """Say why a value cannot be of the type ``kind`` as it is written; empty if it may be."""
    if kind in TEXT and isinstance(value, ScalarNode) and value.style is None:
        read_as: Any = [value.value]
        if NUMBER.fullmatch(value.value):
            read_as = OmegaConf.to_container(OmegaConf.create(f"[{value.value}]"))
        if str(read_as[0]) != value.value:
            return f"is a text, and {value.value} reads as {read_as[0]}; write it in quotes"
    if kind in (*TEXT, Any) and isinstance(value, ScalarNode) and value.style and not value.value:
        return "is empty; give a value, or leave the key out"
    options = typing.get_args(kind) if is_union(kind) else (kind,)
    kinds = {typing.get_origin(option) for option in options}
    if kind is Any or value.tag == NULL or value.value[:2] == "${":  # null is left to OmegaConf
        return ""
    if list in kinds:
        return "" if isinstance(value, SequenceNode) else "takes a list, [a, b]"
    if dict in kinds or inner_schema(kind):
        return "" if isinstance(value, MappingNode) else "takes keys with values, {a: b}"
    return "takes no list" if isinstance(value, SequenceNode) else ""


def files_of(
    name: str, group: str, chosen: Mapping[str, Sequence[str]], folders: Sequence[Path]
) -> Iterator[tuple[Path, str, Node]]:
    """Yield the file ``GROUP/NAME.yaml`` and those that its defaults name.

    With each comes the key that its content belongs to, and the content.
    """
    # os.path.isfile says no to a name that is too long, where Path.is_file raises.
    paths = [each / group / f"{name}.yaml" for each in folders]
    paths = [path for path in paths if os.path.isfile(path)]
    if not paths:
        return
    path = paths[0]
    text, root = parse(path)
    header = PACKAGE.match(text)
    package = header[1] if header else group.replace("/", ".")
    yield path, "" if package == "_global_" else package, root
    defaults = [value for key, value in pairs(root) if key.value == "defaults"]
    for value in defaults:
        if not isinstance(value, SequenceNode):
            raise UserError(f"{place(path, value)}: defaults takes a list, [a, b].")
    for item in (each for value in defaults for each in value.value):
        # An item is NAME, or [override] GROUP: NAME. A leading / means from the top of configs/.
        for key, value in pairs(item) or [(None, item)]:
            where = key.value.split()[-1] + "/" if key else ""
            of = f"{where}{value.value}".partition("@")[0]
            of = of.removeprefix("/") if of.startswith("/") else f"{group}/{of}".strip("/")
            parent, _, file = of.rpartition("/")
            for choice in chosen.get(parent, [file]) if key else [file]:
                yield from files_of(choice, parent, chosen, folders)


def keys_of(node: Node, prefix: str) -> Iterator[tuple[str, Node, Node]]:
    """Yield every key of nested mappings, as ``trainer.lr``, with its node and its value's.

    A part of a list has its number as its key, as in ``study.pe[0]``.
    """
    for key, value in pairs(node):
        if key.value == "<<":  # YAML's own: what another mapping holds
            yield from keys_of(value, prefix)
        else:
            name = f"{prefix}.{key.value}" if prefix else key.value
            yield name, key, value
            yield from keys_of(value, name)
    for i, each in enumerate(node.value if isinstance(node, SequenceNode) else ()):
        yield f"{prefix}[{i}]", each, each
        yield from keys_of(each, f"{prefix}[{i}]")


def parse(path: Path) -> tuple[str, Node]:
    """Read a file and its YAML, and refuse a word that is not read as it is written."""
    content = path.read_bytes()
    try:
        text = content.decode()
        root = yaml.compose(text, yaml.SafeLoader) or MappingNode("", [])
        for node in nodes(root):
            check_word(path, node)
        for key in repeated(root):
            raise UserError(f"{place(path, key)}: {key.value} is there twice; leave one out.")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UserError(f"{path}, line {line}: the file is not UTF-8; convert it.") from None
    except yaml.MarkedYAMLError as error:
        raise UserError(yaml_mistake(error, path)) from None
    except yaml.reader.ReaderError as error:  # a control character
        line = text.count("\n", 0, error.position) + 1
        raise UserError(f"{path}, line {line}: {first_line(error)}.") from None
    except RecursionError:
        raise UserError(f"{path} is nested too deeply, or its defaults name itself.") from None
    if not isinstance(root, MappingNode):
        raise UserError(f"{place(path, root)}: a file of configs/ holds keys and values, key: 1.")
    return text, root


def check_word(path: Path, node: Node) -> None:
    """Refuse a word whose YAML reading is not what is written, and a key that is no word.

    Raises:
        UserError: the word, its file and its line.
    """
    for key in (key for key, _ in pairs(node) if not isinstance(key, ScalarNode)):
        raise UserError(f"{place(path, key)}: a key is one word.")
    trap = TRAPS.get(node.tag.rpartition(":")[2])
    if isinstance(node, ScalarNode) and node.style is None and trap and trap.match(node.value):
        read_as = yaml.SafeLoader("").construct_object(node)
        read_as = f" reads as {read_as!r}" if read_as != node.value else " is no number"
        raise UserError(
            f"{place(path, node)}: {node.value}{read_as} in YAML; write a number in decimal "
            f"digits without zeros in front, true or false, or a word in quotes."
        )


def place(path: Path, node: Node) -> str:
    """The file and line of a node."""
    return f"{path}, line {node.start_mark.line + 1}"


def yaml_mistake(error: yaml.MarkedYAMLError, path: Path | None = None) -> str:
    """Say in one sentence in which file and line something is no YAML, and why."""
    mark = error.problem_mark or error.context_mark
    where = f"{path or mark.name}, line {mark.line + 1}: " if mark else ""
    return f"{where}{error.problem or error.context}."
