"""One run: its loop, evaluation, checkpoints and tracking.

``wawa_transformer.train([...])`` trains a run from Python. A room and a function cannot both have
this name, so the room itself can be called.
"""

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any


class Room(ModuleType):
    """The module ``wawa_transformer.train``, which is a function as well."""

    def __call__(self, overrides: Sequence[str] = ()) -> dict[str, Any]:
        """Train the run of a command line and return its result; see ``trainer.train_run``."""
        from wawa_transformer.train.trainer import train_run

        return train_run(overrides)

    def __reduce__(self) -> tuple[Callable[[str], ModuleType], tuple[str]]:
        """Let other processes get the room by its name."""
        return import_module, (self.__name__,)


sys.modules[__name__].__class__ = Room
