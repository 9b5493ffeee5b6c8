"""Fixtures of the tests of the baseline."""

from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
def after_init(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any, Callable[[Any], object]], None]:
    """Edit a class: ``after_init(cls, work)`` lets its ``__init__`` end with ``work(self)``."""

    def edit(cls: Any, work: Callable[[Any], object]) -> None:
        right = cls.__init__

        def init(self: Any, *given: Any, **named: Any) -> None:
            right(self, *given, **named)
            work(self)

        monkeypatch.setattr(cls, "__init__", init)

    return edit
