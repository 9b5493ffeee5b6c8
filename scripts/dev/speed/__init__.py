"""The parts of scripts/dev/benchmark.py, and their shared code."""
