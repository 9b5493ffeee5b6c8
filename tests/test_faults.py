"""A handful of the attacks of ``scripts/dev/faults.py``; the script itself makes hundreds."""

import faults


def test_an_attack_ends_right_or_in_a_sentence() -> None:
    """The first of those that the script makes for a seed."""
    done = faults.table(seed="0", n="1", seconds="120")
    assert {*done.outcome} <= {"right", "sentence"}, "".join(done.said)
