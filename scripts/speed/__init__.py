"""The parts of scripts/benchmark.py, a file for each, and what they share."""
