"""The decorator of a script's ``main``; scripts import it first, since libraries take seconds."""

import sys
from types import TracebackType
from typing import Any

from wawa_transformer.common.messages import UserError


def excepthook(
    kind: type[BaseException], error: BaseException, traceback: TracebackType | None
) -> None:
    """Turn Ctrl-C during imports, and a mistake in what is imported, into one sentence."""
    if issubclass(kind, KeyboardInterrupt):
        print("interrupted; the same command continues", file=sys.stderr)
    elif issubclass(kind, UserError):
        print(f"error: {error}", file=sys.stderr)
    else:
        sys.__excepthook__(kind, error, traceback)


sys.excepthook = excepthook


def script(*arguments: Any, **keys: Any) -> Any:
    """Decorate a script's ``main(config)``, as :func:`wawa_transformer.run.cli.hydra_main` says."""
    from wawa_transformer.run import cli

    return cli.hydra_main(*arguments, **keys)
