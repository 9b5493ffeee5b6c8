"""Faster CPU versions of the modules of a finished model."""

from wawa_transformer.fast.accelerate import accelerate

__all__ = ["accelerate"]
