"""Positional encodings, one file each; importing this room registers all of them."""

from importlib import import_module
from pkgutil import iter_modules

from wawa_transformer.positional.placement import Placement as Placement
from wawa_transformer.positional.placement import build_encoding as build_encoding
from wawa_transformer.positional.placement import build_encodings as build_encodings

for module in iter_modules(__path__):
    import_module(f"{__name__}.{module.name}")
