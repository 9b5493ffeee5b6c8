"""Strange values, drawn from the schema: one sentence or a result, nothing else.

Every field of every schema is drawn, so that a new setting, task or encoding is covered with no
line here. Hypothesis draws the same examples each time; on a failure it prints the overrides.
"""

import dataclasses
import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from support import answer

from wawa_transformer.common import CONFIG_DIR
from wawa_transformer.common.schema import schema_of
from wawa_transformer.data.tasks import TASKS
from wawa_transformer.positional.base import ENCODINGS
from wawa_transformer.run.config import CONTEXT_ARGUMENTS
from wawa_transformer.run.overrides import fields
from wawa_transformer.run.schema import Config

# As they are typed. Hydra reads some as null, truth, number, list, dictionary or interpolation.
STRANGE = [
    "null", "true", "false", "-1", "0", "1", "2", "3", "0.5", "-0.5", "1e-308", "1e308", "1e400",
    "2147483648", "9223372036854775808", "1" + "0" * 400, "nan", "inf", "-inf", "0x10", "1_000",
    "", "''", "' '", "'0'", "☃", "'Ünï 文'", "a", "..", "../..", "/etc", "'it\\'s'", '"two\nlines"',
    "'\x00'", "'\x1b[2J'", "'" + "long" * 300 + "'", "${oc.env:HOME}", "${seed}", "${nothing}",
    "${", "???", "[]", "[1,2]", "[null]", "[[]]", "[a,a]", "{}", "{a:1}", "{a:{b:[]}}",
    "a=b", "a,b",
]  # fmt: skip


def near(field: dataclasses.Field[Any]) -> list[str]:
    """Values on, beside and between the limits of a field, its words, and its default."""
    limits = field.metadata.get("limits", {}).values()
    beside = [limit + step for limit in limits for step in (-1, 0, 1)]
    words = field.metadata.get("choices", ())
    default = [] if field.default is dataclasses.MISSING else [field.default]
    return [json.dumps(value) for value in (*beside, *words, *default)]


def choices(group: str) -> list[str]:
    paths = (CONFIG_DIR / group).glob("**/*.yaml")
    return sorted(str(path.relative_to(CONFIG_DIR / group).with_suffix("")) for path in paths)


# What is drawn together: of each choice the overrides it begins with, and its fields by key.
SCHEMAS = {"config": [([], [*fields(Config)])]}
for group, classes in (("pe", ENCODINGS), ("task", TASKS)):
    SCHEMAS[group] = [
        (
            [f"{group}={kind}" if kind in choices(group) else f"++{group}.kind={kind}"],
            [*fields(schema_of(cls, CONTEXT_ARGUMENTS), f"{group}.")],
        )
        for kind, cls in classes.items()
    ]


@st.composite
def overrides(draw: st.DrawFn, name: str) -> list[str]:
    """A few keys of one schema with values near their limits or far from all sense."""
    begin, known = draw(st.sampled_from(SCHEMAS[name]))
    given = list(begin)
    if name == "config":
        for group in draw(st.lists(st.sampled_from(["pe", "task", "model", "trainer", "study"]))):
            given.append(f"{group}={draw(st.sampled_from([*choices(group), *STRANGE]))}")
    for key, field in draw(
        st.lists(st.sampled_from(known), max_size=3, unique_by=lambda pair: pair[0])
        if known else st.just([])
    ):  # fmt: skip
        given.append(f"{key}={draw(st.sampled_from([*near(field), *STRANGE]))}")
    return given


def hang(number: int, frame: Any) -> None:
    raise AssertionError("no answer within a minute")


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_configuration_is_accepted_or_answered_by_one_sentence(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twelve of each kind: no other exception, no hang, nothing written."""
    monkeypatch.chdir(tmp_path)
    signal.signal(signal.SIGALRM, hang)
    answer()  # what the first one takes is torch's and Hydra's own beginning
    accepted = 0

    # The same examples each time; not made smaller after a failure, which may be a hang.
    @settings(
        max_examples=12, derandomize=True, database=None,
        phases=[Phase.generate], report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(overrides(name))
    def holds(drawn: list[str]) -> None:
        nonlocal accepted
        signal.alarm(60)
        try:
            sentence = answer(*drawn)
        finally:
            signal.alarm(0)
        accepted += not sentence
        if sentence:  # one line, a full stop, no name of a class and no control character
            odd = re.search(r"Traceback|\w(Error|Exception)\b", sentence)
            assert sentence.isprintable() and sentence.endswith(".") and not odd, sentence

    holds()
    assert accepted and not list(tmp_path.iterdir())
