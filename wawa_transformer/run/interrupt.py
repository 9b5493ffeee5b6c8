"""Turn Ctrl-C during imports into one sentence; scripts import this first."""

import sys
from types import TracebackType


def excepthook(
    kind: type[BaseException], error: BaseException, traceback: TracebackType | None
) -> None:
    if issubclass(kind, KeyboardInterrupt):
        print("interrupted; the same command continues", file=sys.stderr)
    else:
        sys.__excepthook__(kind, error, traceback)


sys.excepthook = excepthook
