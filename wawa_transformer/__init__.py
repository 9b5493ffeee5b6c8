"""A small encoder-decoder Transformer and a laboratory for positional encodings."""

from wawa_transformer.positional import PositionalEncoding
from wawa_transformer.transformer import Transformer

__version__ = "0.1.0"
__all__ = ["PositionalEncoding", "Transformer"]
