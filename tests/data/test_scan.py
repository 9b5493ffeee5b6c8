"""SCAN against an interpreter and the published sets."""

import pytest

from wawa_transformer.common.messages import UserError
from wawa_transformer.data.scan import Scan, scan_commands


def interpret(command: str) -> list[str]:
    """SCAN's interpretation function (Lake and Baroni 2018, figure 7), from the command's text."""
    for joint in (" and ", " after "):
        if joint in command:
            first, second = map(interpret, command.split(joint))
            return first + second if joint == " and " else second + first
    for times, word in ((2, " twice"), (3, " thrice")):
        if command.endswith(word):
            return interpret(command.removesuffix(word)) * times
    verb, *rest = command.split()
    act = [] if verb == "turn" else [verb.upper()]
    if not rest:
        return act
    turn = [f"TURN_{rest[-1].upper()}"]
    return {
        "around": (turn + act) * 4, "opposite": turn + turn + act
    }.get(rest[0], turn + act)  # fmt: skip


def test_scan_is_the_published_set() -> None:
    """20,910 distinct commands, each with the actions an independent interpreter gives it."""
    commands = scan_commands()
    assert len(commands) == 20_910
    assert all(interpret(command) == actions for command, actions in commands.items())
    assert max(map(len, commands.values())) == 48
    # Figure 1 of the paper.
    assert " ".join(commands["jump opposite left after walk around left"]) == (
        "TURN_LEFT WALK TURN_LEFT WALK TURN_LEFT WALK TURN_LEFT WALK TURN_LEFT TURN_LEFT JUMP"
    )


def test_the_length_split_has_the_published_sizes() -> None:
    """Counting what is held out; no command is in two splits."""
    data = Scan(held_out=100).dataset(0)
    assert len(data["train"]) + len(data["validation"]) + 100 == 16_990
    assert len(data["test"]) - 100 == 3_920
    splits = [set(data[name]["source"]) for name in ("train", "validation", "test")]
    assert sum(map(len, splits)) == len(set.union(*splits))
    assert max(data["train"]["length"]) == 22 and max(data["test"]["length"]) == 48


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"cutoff": 48}, "task.cutoff=48 .* the longest of SCAN has 48 actions: choose a cutoff"),
        ({"cutoff": 1}, "task.cutoff=1 splits nothing off or leaves 6 commands"),
    ],
)
def test_impossible_settings_of_scan(settings_: dict, message: str) -> None:
    """The value, the limit and the key."""
    with pytest.raises(UserError, match=message):
        Scan(**settings_)
