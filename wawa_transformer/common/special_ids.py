"""The ids that every vocabulary shares."""

PAD, BOS, EOS, UNK = 0, 1, 2, 3  # padding, begin and end of a sequence, unknown
