"""The ids that every vocabulary shares."""

from __future__ import annotations

PAD, BOS, EOS, UNK = 0, 1, 2, 3  # padding, begin and end of a sequence, unknown
