"""Strange values and strange files, drawn from the schema: one sentence or a result, nothing else.

Every field of every schema is drawn, so that a new setting, task or encoding is covered with no
line here. Hypothesis draws the same examples each time; on a failure it prints the overrides.
"""

from __future__ import annotations

import contextlib
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
import yaml
from conftest import TINY, configure
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from omegaconf import DictConfig, OmegaConf

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
    "${", "???", "[]", "[1,2]", "[null]", "[[]]", "[a,a]", "{}", "{a:1}", "{a:{b:[]}}",
    "a=b", "a,b",
]  # fmt: skip
SMALL = [*TINY, "trainer.steps=2", "trainer.warmup=0", "trainer.eval_every=1"]
SECONDS = 6.0  # of this process alone, for one configuration


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


def is_small(config: DictConfig) -> bool:
    """Whether no number in it makes much work; a threshold for the test's time, not a limit."""
    model, trainer = config.model, config.trainer
    sizes = [(config.task, 2**9), (config.pe, 2**13)]
    return (
        model.d_model <= 64
        and model.num_layers <= 2
        and model.d_ff <= 256
        and trainer.steps * trainer.accumulate <= 4
        and trainer.batch_tokens <= 2**12
        and trainer.device == "cpu"
        and not trainer.compile
        and trainer.threads == 1
        and config.task.kind not in ("scan", "text")
        and all(n <= most for part, most in sizes for n in part.values() if isinstance(n, int))
    )


def reduced(config: DictConfig, drawn: list[str], folder: Path) -> DictConfig:
    """The same with everything small that was not drawn, to train for two steps in ``folder``."""
    config = config.copy()
    given = {override.partition("=")[0].lstrip("+") for override in drawn}
    for override in SMALL:
        key, value = override.split("=")
        if key not in given and OmegaConf.select(config, key) is not None:
            OmegaConf.update(config, key, yaml.safe_load(value))
    config.output_dir, config.run_dir = str(folder), None
    return config


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_configuration_is_accepted_or_answered_by_one_sentence(
    name: str, nowhere: Path, tmp_path: Path
) -> None:
    """Eight hundred of them: no other exception, no hang, nothing written; what is accepted trains.

    Two steps, and where it is refused later than here, then by one sentence as well.
    """
    compose([])  # what the first one takes is torch's and Hydra's own beginning
    trained, most = 0, 12 if name == "config" else 2

    @fuzz(260 if name == "config" else 20)
    @given(overrides(name))
    def holds(drawn: list[str]) -> None:
        nonlocal trained
        with at_once():
            config, sentence = compose(drawn)
        if config is None:
            assert is_a_sentence(sentence), sentence
        elif trained < most and is_small(config := reduced(config, drawn, tmp_path / str(trained))):
            trained += 1
            try:
                validate(config)
                with at_once(10):
                    train(config)
            except UserError as error:
                assert is_a_sentence(str(error)), error

    holds()
    assert trained or name in ("task=scan", "task=text")


def texts() -> dict[str, bytes]:
    """Contents that a text file should not have, but may."""
    lines = b"a b c\nd e f\ng h\ni j k\nl m\nn o p\n"
    packed = gzip.compress(lines)
    plain = {
        "empty": b"", "blank": b" \n\t\n  \n", "one byte": b"a", "no last newline": lines[:-1],
        "NULs": lines.replace(b" ", b"\0"), "all NUL": b"\0" * 99, "lone CR": b"a\rb\rc\r",
        "CRLF": lines.replace(b"\n", b"\r\n"), "BOM": b"\xef\xbb\xbf" + lines,
        "UTF-16": lines.decode().encode("utf-16"), "Latin-1": "für\n".encode("latin-1") * 6,
        "half a character": lines + b"\xe2\x82", "surrogate": b"\xed\xa0\x80\n" * 6,
        "overlong": b"\xc0\x80\n" * 6, "U+2028": "a\u2028b\n".encode() * 6,
        "form feeds": b"a\fb\n" * 6, "one long line": b"word " * 20_000 + b"\n",
        "a long word": b"x" * 100_000 + b"\n", "newlines": b"\n" * 999,
        "emoji": "👩‍👩‍👧\n".encode() * 6,
        "specials": b"[PAD] [BOS]\n[EOS] [UNK]\n" * 3, "right to left": "שלום עולם\n".encode() * 6,
        "combining": ("e" + "\u0301" * 99 + "\n").encode() * 6, "good": lines,
    }  # fmt: skip
    bomb = gzip.compress(b"a\n" * 100_000)
    gzipped = {
        f"{name}.gz": content
        for name, content in {
            "whole": packed, "cut": packed[:-9], "cut short": packed[:15], "head": packed[:5],
            "flipped": packed[:20] + bytes([packed[20] ^ 255]) + packed[21:], "empty": b"",
            "not packed": lines, "twice": packed * 2, "tail": packed + b"garbage", "bomb": bomb,
        }.items()
    }  # fmt: skip
    return plain | gzipped


def test_every_text_file_is_read_or_refused_by_one_sentence(tmp_path: Path) -> None:
    """Each against a good one, against itself and beside it; then what is not a file at all."""
    paths = []
    for number, (name, content) in enumerate(texts().items()):
        paths.append(tmp_path / f"{number}{'.gz' * name.endswith('.gz')}")
        paths[-1].write_bytes(content)
    good = str(tmp_path / f"{list(texts()).index('good')}")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "nowhere").symlink_to(tmp_path / "nothing")
    odd = ["pipe", "loop", "nowhere", "missing", ".", "..", "x" * 300, "a\0b", "", "\udcff", "\n"]
    names = [*map(str, paths), *odd, "/dev/zero", "/dev/null", "/dev/stdin", "/proc/self/mem"]
    tried = 0
    for name in names:
        for source, target in ((name, good), (good, name), (name, name)):
            for more in ({}, {"test_source": source, "test_target": target}):
                task = TextTask(
                    "text", "text", data_dir=str(tmp_path), source=source if not more else good,
                    target=target if not more else good, validation_size=1, test_size=1, **more,
                )  # fmt: skip
                tried += 1
                try:
                    with at_once(3):
                        data = task.dataset(0)
                        assert all(len(data[split]) for split in data), name
                except UserError as error:
                    assert is_a_sentence(str(error)), error
    for folder in odd:
        with contextlib.suppress(UserError):
            TextTask("text", "text", data_dir=folder, source=good, target=good).dataset(0)
    assert tried >= 200


RECORDS = [
    b"", b"\0", b"null", b"{}", b"[]", b"1", b'"a"', b"[" * 100_000, b'{"a":' * 50_000, b"\xff\xfe",
    b'{"step": 1e999}\n', b'{"step": true}\n', b'{"step": -1}\n', b'{"step": "1"}\n',
    b'{"step": 1' + b"0" * 400 + b"}\n", b'{"step": 1' + b"0" * 9000 + b"}\n", b"NaN\n",
    b"a: &a [*a]", b"a: 2026-99-99", b"? [a]\n: b", b"!!python/object/apply:os.getpid []", b"a: *b",
    b"task: 1\npe: 2\nseed: 3", b"task: {name: [1]}\npe: {name: {}}\nseed: x", b"%YAML 9",
    b"task: {name: ../..}\npe: {name: ''}\nseed: 10", b"\t",
    b'{"configuration": 1}', b"PK\x03\x04",
]  # fmt: skip


def test_whatever_stands_in_a_runs_folder_is_read_or_refused_by_one_sentence(
    tmp_path: Path,
) -> None:
    """Each record in each file's place: what looks at a run sees no result and no traceback."""
    config = configure(*SMALL, f"output_dir={tmp_path}/run")
    train(config)
    run = Run.of(config)
    files = (
        run.config_file, run.metrics_file, run.result_file, run.error_file, run.checkpoint("last"),
    )  # fmt: skip
    for path in files:
        whole = path.read_bytes() if path.exists() else b""
        cuts = [whole[: len(whole) * part // 5] for part in range(5)]
        flips = [
            bytes([*whole[:at], whole[at] ^ 1, *whole[at + 1 :]])
            for at in (len(whole) * part // 9 for part in range(1, 9) if len(whole) < 10**5)
            if whole
        ]
        for content in [*RECORDS, *cuts, *flips, whole + b"x", whole * 2]:
            path.write_bytes(content)
            with at_once(5):
                assert run.status in ("finished", "failed", "running", "waiting")
                assert isinstance(run.failure(), str)
                assert 0 <= run.progress(2) <= 1, content[:60]
                try:
                    if path == run.checkpoint("last"):
                        checkpoint.load(path)
                    else:
                        Run.at(run.directory)
                except UserError as error:
                    assert is_a_sentence(str(error)), error
        path.write_bytes(whole)
    run.error_file.unlink()
    assert run.status == "finished"
