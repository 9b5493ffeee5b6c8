"""Being told to stop: a run keeps its state and leaves, and the same command continues it.

SIGTERM and SIGUSR1 come from schedulers (Slurm before a time limit, spot machines before they are
taken away), SIGINT from Ctrl-C. All end a script with :data:`STATUS`.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any, Self

STATUS = 75  # sysexits.h, EX_TEMPFAIL: not done, and worth trying again
NAMES = ("SIGINT", "SIGTERM", "SIGUSR1")  # the last is not there on Windows
SIGNALS = [getattr(signal, name) for name in NAMES if hasattr(signal, name)]


class Stopped(KeyboardInterrupt):
    """Told to stop; whatever had been kept is kept."""


class GracefulStop:
    """Turns signals into :class:`Stopped` while it is entered; a context manager.

    In the main thread alone, where Python delivers signals.
    """

    def __init__(self) -> None:
        self.asked = ""  # the name of the signal that came while deferring
        self.deferring = False
        self.before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self.before = {number: signal.signal(number, self.handle) for number in SIGNALS}
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Stop at once, or at the next step where that is deferred; a second Ctrl-C is at once."""
        name = signal.Signals(number).name
        if not self.deferring or (self.asked and number == signal.SIGINT):
            raise Stopped(f"stopped by {name}")
        self.asked = name

    @contextlib.contextmanager
    def deferred(self) -> Iterator[None]:
        """Let a signal set ``asked`` and nothing else; whoever is inside looks at it."""
        self.deferring = True
        try:
            yield
        finally:
            self.deferring = False
