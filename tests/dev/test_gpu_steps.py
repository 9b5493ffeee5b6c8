"""``make gpu``: its steps are commands that exist."""

from __future__ import annotations

import shlex

import gpu
from conftest import configure
from gpu import STEPS


def test_every_step_is_a_command_that_can_be_given() -> None:
    """Its script is there, its overrides compose, and all leave fewer than five files."""
    for step in STEPS:
        script, *words = shlex.split(step.command)
        if script.endswith("compare.py"):
            configure(*words)
        elif script != "-m":
            assert (gpu.ROOT / script).exists()
    assert 1 + sum(len(step.results) for step in STEPS) < 5
