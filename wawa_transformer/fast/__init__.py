"""Faster versions of a model's modules on a CPU."""
