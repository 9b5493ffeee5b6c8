"""Scripts import this module first: Ctrl-C while the others load ends in one sentence."""

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
