"""What text alone decides and takes long to compute, kept between runs."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path

from wawa_transformer.runs import sha256, write_atomically

WORTH = 1.0  # seconds: what is computed faster is not kept


def directory() -> Path:
    """``$XDG_CACHE_HOME/wawa_transformer``, which may be deleted at any time."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "wawa_transformer"


def cached(key: str, make: Callable[[], bytes]) -> bytes:
    """``make()``, or what it gave before for the same ``key``, which says all it depends on.

    A file that is not what was written is made again, and a folder that cannot be written does
    without.
    """
    path = directory() / sha256(key.encode("utf-8", "surrogatepass"))
    with contextlib.suppress(OSError):
        seal, content = (whole := path.read_bytes())[:64], whole[64:]
        if seal == sha256(content).encode():
            return content
    started = time.perf_counter()
    content = make()
    if time.perf_counter() - started > WORTH:
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, sha256(content).encode() + content)
    return content
