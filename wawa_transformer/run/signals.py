"""Stop on a signal after a checkpoint; the same command continues the run.

SIGTERM and SIGUSR1 come from schedulers (Slurm before a time limit, spot machines before they are
taken away), SIGINT from Ctrl-C. After any of them a script exits with :data:`STATUS`.
"""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any, Self

STATUS = 75  # EX_TEMPFAIL of sysexits.h: not finished, try again
NAMES = ("SIGINT", "SIGTERM", "SIGUSR1")  # Windows has no SIGUSR1
SIGNALS = [getattr(signal, name) for name in NAMES if hasattr(signal, name)]


class Stopped(KeyboardInterrupt):
    """A signal asked to stop; checkpoints written so far are kept."""


class GracefulStop:
    """A context manager that turns signals into :class:`Stopped`.

    It acts only in the main thread, where Python delivers signals.
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
            if handler is not None:  # None: another program's, not set from Python
                signal.signal(number, handler)

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Raise :class:`Stopped`, unless deferred; a second Ctrl-C is never deferred."""
        name = signal.Signals(number).name
        if not self.deferring or (self.asked and number == signal.SIGINT):
            raise Stopped(f"stopped by {name}")
        self.asked = name

    @contextlib.contextmanager
    def deferred(self) -> Iterator[None]:
        """Let signals only set ``asked``, which the body must check."""
        self.deferring = True
        try:
            yield
        finally:
            self.deferring = False
