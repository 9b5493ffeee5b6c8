"""The text of ``--help``, from the schema and from the files in ``configs/``."""

import re
from collections.abc import Iterator
from dataclasses import Field
from pathlib import Path
from typing import Any

from wawa_transformer.common import CONFIG_DIR
from wawa_transformer.common.limits import LIMITS
from wawa_transformer.common.schema import names_of
from wawa_transformer.run.overrides import SCHEMAS, TRAINED, fields, groups
from wawa_transformer.run.schema import COMPARE, Config, PeConfig

SHARED = ("config", *TRAINED)  # the scripts that have groups


def help_text(config_name: str) -> str:
    """List the choices of each group and the keys of a script, one a line."""
    schema = SCHEMAS[config_name]
    # Of a run and of a study; without the laboratory there are no studies.
    absent = () if (CONFIG_DIR.parent / "scripts" / "compare.py").exists() else COMPARE
    chosen = groups(config_name) & {*names_of(schema)} if config_name in SHARED else set()
    lines = []
    for group in sorted(chosen - {*absent}):
        lines += ["", f"== {group}= ==", *choice_lines(group)]
    lines += ["", "== Keys =="]
    for key, each in fields(schema):
        if key.split(".")[0] not in absent:
            lines += key_lines(key, each)
    if schema is Config:
        lines += ["pe.kind, task.kind: the class of a file; pe=t5 --help ends with the keys of t5"]
        lines += [line for key, each in fields(PeConfig, "pe.") for line in key_lines(key, each)]
    if "decode" in chosen:
        lines += ["decode.…: settings of the way of decoding, as decode.size=5 of decode=beam"]
    return "\n".join(lines).strip()


def choice_lines(group: str) -> Iterator[str]:
    """Yield each file of a group, with the first line of its comment."""
    paths = sorted((CONFIG_DIR / group).glob("*.yaml"))
    width = max(len(path.stem) for path in paths)
    for path in paths:
        yield f"{path.stem:{width}}  {first_comment(path)}".rstrip()


def first_comment(path: Path) -> str:
    """Read the first comment of a YAML file, without its command and Hydra's header."""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("#") and not line.startswith("# @"):
            parts = re.split(r"\s{2,}", line.lstrip("# "))
            said = [part for part in parts if not part.startswith("python scripts/")]
            return said[0].rstrip(".:") if said else ""
    return ""


def key_lines(key: str, each: Field[Any]) -> Iterator[str]:
    """Yield a key with its help, choices and limits; nothing for a key without help."""
    if said := each.metadata.get("help"):
        name = "import" if key == "imports" else key
        limits = each.metadata.get("limits", {})
        words = [*each.metadata.get("choices", ())]
        words += [f"{LIMITS[limit][0]} {value}" for limit, value in limits.items()]
        yield f"{name}: {said}" + (f" ({', '.join(words)})" if words else "")
