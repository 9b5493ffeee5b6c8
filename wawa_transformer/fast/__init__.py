"""Faster versions of a model's modules on a CPU, put on a finished model from outside."""

from wawa_transformer.fast.accelerate import accelerate

__all__ = ["accelerate"]
