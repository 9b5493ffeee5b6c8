"""Positional encodings, one file each; importing this room registers all of them."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from wawa_transformer.positional.base import ENCODINGS, Encoding, EncodingContext

for module in iter_modules(__path__):
    import_module(f"{__name__}.{module.name}")


def build_encoding(
    kind: str, context: EncodingContext, settings: dict[str, Any] | None = None
) -> Encoding:
    """The encoding ``kind`` for one context; ``settings`` are those of its YAML file."""
    if kind not in ENCODINGS:
        raise ValueError(f"pe={kind} does not exist; choose one of {', '.join(ENCODINGS)}")
    return ENCODINGS[kind].build(context, **(settings or {}))


def build_cross_encoding(
    cross: str, kind: str, context: EncodingContext, settings: dict[str, Any] | None = None
) -> Encoding | None:
    """The encoding of cross-attention: ``none``, the ``same`` as ``kind``, or another kind."""
    if cross == "none":
        return None
    able = [
        name
        for name, each in ENCODINGS.items()
        if each.relative or each.rotate is not Encoding.rotate
    ]
    wanted = kind if cross == "same" else cross
    if wanted not in able:
        what = "does not exist" if wanted not in ENCODINGS else "is not for cross-attention"
        raise ValueError(
            f"pe.cross={cross}: {wanted} {what}; choose none or one of {', '.join(able)}"
        )
    return build_encoding(wanted, context, settings if cross == "same" else None)
