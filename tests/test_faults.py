"""A handful of the attacks of ``scripts/dev/faults.py``; the script itself makes hundreds."""

import faults
import pytest


def test_an_attack_ends_right_or_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of those that the script makes for a seed, on shorter runs."""
    for name, steps in (("RUN", 60), ("TEXT", 4)):
        monkeypatch.setattr(faults, name, [*getattr(faults, name), f"trainer.steps={steps}"])
    done = faults.table(seed="0", n="1", seconds="120")
    assert {*done.outcome} <= {"right", "sentence"}, "".join(done.said)
