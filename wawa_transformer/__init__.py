"""A small encoder-decoder Transformer and a laboratory for positional encodings."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wawa_transformer.model.check import check_model
    from wawa_transformer.model.transformer import Transformer
    from wawa_transformer.positional.sinusoidal import PositionalEncoding
    from wawa_transformer.train.load import load
    from wawa_transformer.train.trainer import train_run as train

__version__ = "0.1.0"
__all__ = ["PositionalEncoding", "Transformer", "check_model", "load", "train"]
MODULES = {
    "PositionalEncoding": "positional.sinusoidal",
    "Transformer": "model.transformer",
    "check_model": "model.check",
    "load": "train.load",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    # So that the command line answers without importing torch.
    if name == "train":  # a room of the package that can be called
        return import_module(f"{__name__}.train")
    if name not in MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{MODULES[name]}"), name)
