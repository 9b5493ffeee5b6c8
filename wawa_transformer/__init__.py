"""A small encoder-decoder Transformer and a laboratory for positional encodings."""

from wawa_transformer.model.transformer import Transformer
from wawa_transformer.positional.sinusoidal import PositionalEncoding

__version__ = "0.1.0"
__all__ = ["PositionalEncoding", "Transformer"]
