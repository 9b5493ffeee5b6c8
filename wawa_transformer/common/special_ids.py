"""The ids that every vocabulary shares."""

from __future__ import annotations

PAD = 0  # the id of padding


BOS, EOS, UNK = 1, 2, 3  # ids beside PAD, 0: begin and end of a sequence, unknown
