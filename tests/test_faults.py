"""A handful of the attacks of ``scripts/dev/faults.py``; the script itself makes hundreds."""

import faults


def test_a_few_attacks_end_right_or_in_a_sentence() -> None:
    """The first of those that the script makes."""
    done = faults.table(seed="0", n="3", seconds="120")
    assert {*done.outcome} <= {"right", "sentence"}, "".join(done.said)
