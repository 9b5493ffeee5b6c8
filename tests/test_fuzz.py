"""Strange values and strange files, drawn from the schema: one sentence or a result, nothing else.

Every field of every schema is drawn, so that a new setting, task or encoding is covered with no
line here. Hypothesis draws the same examples each time; on a failure it prints the overrides.
"""

from __future__ import annotations

import dataclasses
import gzip
import inspect
import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import TINY, configure
from hydra.errors import HydraException
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from wawa_transformer import checkpoint
from wawa_transformer.commandline import check_groups, explain, fields, validate
from wawa_transformer.config import CONFIG_DIR, Config, UserError
from wawa_transformer.positional import ENCODINGS, Place
from wawa_transformer.runs import Run
from wawa_transformer.tasks import TASKS
from wawa_transformer.text import TextTask
from wawa_transformer.training import train

# As they are typed. Hydra reads some as null, truth, number, list, dictionary or interpolation.
STRANGE = [
    "null", "true", "false", "-1", "0", "1", "2", "3", "0.5", "-0.5", "1e-308", "1e308", "1e400",
    "2147483648", "9223372036854775808", "1" + "0" * 400, "nan", "inf", "-inf", "0x10", "1_000",
    "", "''", "' '", "'0'", "☃", "'Ünï 文'", "a", "..", "../..", "/etc", "'it\\'s'", '"two\nlines"',
    "'\x00'", "'\x1b[2J'", "'" + "long" * 300 + "'", "${oc.env:HOME}", "${seed}", "${nothing}",
    "${", "???", "[]", "[1,2]", "[null]", "[[]]", "[a,a]", "{}", "{a:1}", "{a:{b:[]}}", "a=b", "a,b",
]  # fmt: skip
SECONDS = 2.0  # of this process alone, for one configuration


def near(field: dataclasses.Field[Any]) -> list[str]:
    """Values on, beside and between the limits of a field, its words, and its default."""
    limits = field.metadata.get("limits", {}).values()
    beside = [limit + step for limit in limits for step in (-1, 0, 1)]
    words = field.metadata.get("choices", ())
    default = [] if field.default is dataclasses.MISSING else [field.default]
    return [json.dumps(value) for value in (*beside, *words, *default)]


def arguments(cls: type) -> list[dataclasses.Field[Any]]:
    """The settings of an encoding's class: what the model does not tell it."""
    told = {"place", *(field.name for field in dataclasses.fields(Place))}
    parameters = inspect.signature(cls, eval_str=True).parameters.values()
    own = [(p.name, p.annotation, p.default) for p in parameters if p.name not in told]
    return list(dataclasses.fields(dataclasses.make_dataclass("Settings", own)))


def choices(group: str) -> list[str]:
    paths = (CONFIG_DIR / group).glob("**/*.yaml")
    return sorted(str(path.relative_to(CONFIG_DIR / group).with_suffix("")) for path in paths)


# What is drawn together: a name, the overrides it begins with, and its fields with their keys.
SCHEMAS = {
    "config": ([], [(key, field) for key, field in fields(Config)]),
    **{
        f"pe={kind}": ([f"pe={kind}"], [(f"++pe.{each.name}", each) for each in arguments(cls)])
        for kind, cls in ENCODINGS.items()
    },
    **{
        f"task={kind}": (
            [f"task={kind}" if kind in choices("task") else f"++task.kind={kind}"],
            [(f"++task.{each.name}", each) for each in dataclasses.fields(cls)],
        )
        for kind, cls in TASKS.items()
    },
}


@st.composite
def overrides(draw: st.DrawFn, name: str, strangest: int = 3) -> list[str]:
    """A few keys of one schema with values near their limits or far from all sense."""
    begin, known = SCHEMAS[name]
    given = list(begin)
    if name == "config":
        for group in draw(st.lists(st.sampled_from(["pe", "task", "model", "trainer", "study"]))):
            given.append(f"{group}={draw(st.sampled_from([*choices(group), *STRANGE]))}")
    for key, field in draw(
        st.lists(st.sampled_from(known), max_size=strangest, unique_by=lambda pair: pair[0])
        if known else st.just([])
    ):  # fmt: skip
        given.append(f"{key}={draw(st.sampled_from([*near(field), *STRANGE]))}")
    return given


@contextmanager
def at_once(seconds: float = SECONDS) -> Iterator[None]:
    """Fail where what is inside takes more of the processor, or ten times as long by the clock."""

    def hang(number: int, frame: Any) -> None:
        raise AssertionError(f"no answer within {10 * seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, hang)
    signal.setitimer(signal.ITIMER_REAL, 10 * seconds)
    started = time.process_time()
    try:
        yield
        taken = time.process_time() - started
        assert taken < seconds, f"{taken:.1f} s of the processor"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def is_a_sentence(words: str) -> bool:
    """One line, a full stop, no name of a class and no control character."""
    return words.isprintable() and not re.search(r"Traceback|\w(Error|Exception)\b", words)


def compose(given: list[str]) -> tuple[DictConfig | None, str]:
    """A valid configuration, or the sentence that answers the command line, as a script says it."""
    try:
        check_groups(given)
        config = configure(*given)
    except (HydraException, OmegaConfBaseException) as error:
        return None, explain(error)
    except UserError as error:
        return None, str(error)
    try:
        validate(config)
    except UserError as error:
        return None, str(error)
    return config, ""


def fuzz(examples: int) -> Callable[..., Any]:
    """The same examples each time; not made smaller after a failure, which may be a hang."""
    return settings(
        max_examples=examples, deadline=None, derandomize=True, database=None,
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
    """A thousand of them: no other exception, no hang, nothing written."""

    @fuzz(280 if name == "config" else 30)
    @given(overrides(name))
    def holds(drawn: list[str]) -> None:
        with at_once():
            config, sentence = compose(drawn)
        assert config is not None or is_a_sentence(sentence), sentence

    holds()
