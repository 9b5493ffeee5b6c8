"""Fixtures, and how a process of tests begins.

The process that only starts the others imports no more than this; support.py has the helpers.
"""

import os

# Before torch is imported: a fork of a process whose libraries have threads may wait for ever.
os.environ["OMP_NUM_THREADS"] = "1"

import gc
import tempfile
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
from chromium import Browser, start_browser

gc.disable()  # until all tests are imported: a fifth of that time
# A fresh cache, so that no test finds a text that another version of the code has kept.
CACHE = tempfile.TemporaryDirectory()
os.environ["HF_DATASETS_CACHE"] = CACHE.name
os.environ["TOKENIZERS_PARALLELISM"] = "false"  # else they warn in every fork
pytest.register_assert_rewrite("support")
# No deadlines: on a busy machine the first example of a test may take a second.
hypothesis.settings.register_profile("no_deadline", deadline=None)
hypothesis.settings.load_profile("no_deadline")


def pytest_collection_finish() -> None:
    """Do once for a process of tests what its runs and forks would do again.

    AdamW's first step imports torch's compiler, a run measures the machine's peak, and every
    command parses the code that it runs and asks git for its commit.
    """
    import torch._dynamo

    from wawa_transformer.common.code import code_of
    from wawa_transformer.run.provenance import commit, kind_files, rooms, shared_digest
    from wawa_transformer.train.trainer import peak_flops

    peak_flops(torch.device("cpu"), False)
    for path in (*rooms(), *kind_files()):
        code_of(path)
    shared_digest()
    commit()
    gc.freeze()  # else Python's collector looks at half a million objects again and again
    gc.enable()


def pytest_runtest_setup() -> None:
    """Seed torch, so that earlier tests do not change a test's draws."""
    import torch

    torch.manual_seed(0)


@pytest.fixture
def tiny(tmp_path: Path):
    """Compose a configuration that trains in a second: ``tiny(*overrides)``.

    The run's folder is in ``tmp_path``.
    """
    from support import TINY, configure

    return lambda *overrides: configure(*TINY, f"output_dir={tmp_path}", *overrides)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One browser for all pages; without Chromium the test is skipped."""
    try:
        with start_browser() as started:
            yield started
    except FileNotFoundError as error:
        pytest.skip(str(error))


@pytest.fixture
def registry() -> Iterator[None]:
    """Take a test's own encodings and tasks out of the registries again."""
    from wawa_transformer.data.tasks import TASKS
    from wawa_transformer.positional.base import ENCODINGS

    before = [(each, dict(each)) for each in (ENCODINGS, TASKS)]
    yield
    for each, known in before:
        each.clear()
        each.update(known)


@pytest.fixture
def after_init(monkeypatch: pytest.MonkeyPatch):
    """Edit a class: ``after_init(cls, work)`` lets its ``__init__`` end with ``work(self)``."""

    def edit(cls, work) -> None:
        right = cls.__init__

        def init(self, *given, **named) -> None:
            right(self, *given, **named)
            work(self)

        monkeypatch.setattr(cls, "__init__", init)

    return edit
