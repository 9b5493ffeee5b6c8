"""Positional encodings, one file each; importing this room registers all of them."""

from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from wawa_transformer.common.limits import UserError, check_choice
from wawa_transformer.positional.base import ENCODINGS, AbsoluteEncoding, Encoding, EncodingContext

for module in iter_modules(__path__):
    import_module(f"{__name__}.{module.name}")


def build_encoding(
    kind: str, context: EncodingContext, settings: dict[str, Any] | None = None
) -> Encoding:
    """The encoding ``kind`` for one context; ``settings`` are those of its YAML file."""
    check_choice("pe", kind, ENCODINGS)
    cls: Any = ENCODINGS[kind]
    if issubclass(cls, AbsoluteEncoding):  # of any model: it takes the width and the dropout
        return cls(context.d_model, dropout=context.dropout, **(settings or {}))
    return cls(context, **(settings or {}))


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
        raise UserError(
            f"pe.cross={cross}: {wanted} {what}; choose none or one of {', '.join(able)}."
        )
    return build_encoding(wanted, context, settings if cross == "same" else None)
