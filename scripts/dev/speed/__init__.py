"""The parts of scripts/dev/benchmark.py, a file for each, and what they share."""
