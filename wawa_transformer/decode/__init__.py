"""Greedy decoding, beam search, sampling, and translations."""
