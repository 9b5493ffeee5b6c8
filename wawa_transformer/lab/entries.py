"""The entries of ``study.pe``: an encoding, and keys that its runs have for themselves."""

import re
from collections.abc import Mapping
from typing import Any

from wawa_transformer.common.messages import UserError

OF_MODEL = "model."  # begins a key of the model that is one encoding's own


def entry_overrides(entry: str) -> list[str]:
    """Convert an entry to the overrides of its runs.

    ``shaw pe.cross=same`` becomes ``pe=shaw``, ``pe.cross=same`` and ``pe.name=shaw_cross_same``.
    The name stands in folders, tables and reports; a ``pe.name`` in the entry takes precedence.
    Keys of ``model`` may follow as well: ``none model.encoder_mask=causal``.

    Raises:
        UserError: the entry has a key outside ``pe`` and ``model``, or the same key twice.
    """
    # A value may hold spaces, as in pe.layers=[0, 1].
    file, *given = re.split(r"\s+(?=[^\s=\[\]]+=)", entry.strip())
    values = dict(each.split("=", 1) for each in given)
    for key in values:
        if not key.startswith(("pe.", OF_MODEL)):
            raise UserError(
                f"study.pe holds {entry!r}; after an encoding's name only keys of pe and "
                f"model may follow, such as pe.cross=same, and {key} is none. Give a key of all "
                f"runs by itself: {key}={values[key]}."
            )
    if len(values) < len(given):
        raise UserError(f"study.pe holds {entry!r}, which gives a key twice; leave one out.")
    if given and "pe.name" not in values:
        words = [file]
        for key, value in values.items():
            # The name is a folder's name, too.
            plain = re.sub(r"[^\w.+-]+", "-", value.strip("[]\"' "), flags=re.ASCII)
            words += [key.partition(".")[2], plain.rstrip("-")]
        given.append(f"pe.name={'_'.join(words)}")
    return [f"pe={file}", *given]


def model_keys(encodings: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Select the keys of the model that some encoding has for itself, each with one value."""
    every = (pair for settings in encodings.values() for pair in settings.items())
    return {key.removeprefix(OF_MODEL): v for key, v in every if key.startswith(OF_MODEL)}
