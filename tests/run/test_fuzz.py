"""Strange values, drawn from the schema: one sentence or a result, nothing else.

Every field of every schema is drawn, so that a new setting, task or encoding is covered with no
line here. Hypothesis draws the same examples each time; on a failure it prints the overrides.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import configure
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from omegaconf import DictConfig

from wawa_transformer.common.files import CONFIG_DIR
from wawa_transformer.common.schema import UserError
from wawa_transformer.data.tasks import TASKS
from wawa_transformer.positional.base import ENCODINGS, EncodingContext
from wawa_transformer.run.cli import check_groups, explain, fields, validate
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


def arguments(cls: type) -> list[dataclasses.Field[Any]]:
    """The settings of an encoding's class: what the model does not tell it."""
    told = {"context", *(field.name for field in dataclasses.fields(EncodingContext))}
    parameters = inspect.signature(cls, eval_str=True).parameters.values()
    own = [(p.name, p.annotation, p.default) for p in parameters if p.name not in told]
    return list(dataclasses.fields(dataclasses.make_dataclass("Settings", own)))


def choices(group: str) -> list[str]:
    paths = (CONFIG_DIR / group).glob("**/*.yaml")
    return sorted(str(path.relative_to(CONFIG_DIR / group).with_suffix("")) for path in paths)


# What is drawn together: of each choice the overrides it begins with, and its fields by key.
SCHEMAS = {
    "config": [([], [(key, field) for key, field in fields(Config)])],
    "pe": [
        (
            [f"pe={kind}"] if kind in choices("pe") else ["pe=none", f"pe.kind={kind}"],
            [(f"pe.{each.name}", each) for each in arguments(cls)],
        )
        for kind, cls in ENCODINGS.items()
    ],
    "task": [
        (
            [f"task={kind}" if kind in choices("task") else f"++task.kind={kind}"],
            [(f"task.{each.name}", each) for each in dataclasses.fields(cls)],
        )
        for kind, cls in TASKS.items()
    ],
}


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


@contextmanager
def at_once() -> Iterator[None]:
    """Fail where what is inside takes a minute: there is nothing to compute."""

    def hang(number: int, frame: Any) -> None:
        raise AssertionError("no answer within a minute")

    before = signal.signal(signal.SIGALRM, hang)
    signal.alarm(60)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def is_a_sentence(words: str) -> bool:
    """One line, a full stop, no name of a class and no control character."""
    odd = re.search(r"Traceback|\w(Error|Exception)\b", words)
    return words.isprintable() and words.endswith(".") and not odd


def compose(given: list[str]) -> tuple[DictConfig | None, str]:
    """A valid configuration, or the sentence that answers the command line, as a script says it."""
    try:
        check_groups(given)
        config = configure(*given)
    except UserError as error:
        return None, str(error)
    except Exception as error:  # a script explains whatever Hydra raises
        return None, explain(error)
    try:
        validate(config)
    except UserError as error:
        return None, str(error)
    return config, ""


def fuzz(examples: int) -> Callable[..., Any]:
    """The same examples each time; not made smaller after a failure, which may be a hang."""
    return settings(
        max_examples=examples, derandomize=True, database=None,
        phases=[Phase.generate], report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder to be in; it must be left empty."""
    folder = tmp_path / "nowhere"
    folder.mkdir()
    monkeypatch.chdir(folder)
    yield folder
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_configuration_is_accepted_or_answered_by_one_sentence(
    name: str, nowhere: Path
) -> None:
    """Sixty of each kind: no other exception, no hang, nothing written."""
    compose([])  # what the first one takes is torch's and Hydra's own beginning
    accepted = 0

    @fuzz(60)
    @given(overrides(name))
    def holds(drawn: list[str]) -> None:
        nonlocal accepted
        with at_once():
            config, sentence = compose(drawn)
        accepted += config is not None
        assert config is not None or is_a_sentence(sentence), sentence

    holds()
    assert accepted
