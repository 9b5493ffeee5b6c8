"""SCAN against an interpreter and the published sets; tasks of two lists against their formulas."""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wawa_transformer.common.schema import UserError
from wawa_transformer.data.scan import Scan, scan_commands
from wawa_transformer.data.tasks import TASKS


def two_lists(source: str) -> tuple[list[str], list[str]]:
    first, second = source.split(" ; ")
    return first.split(), second.split()


@pytest.mark.parametrize("kind", ["cartesian", "intersection"])
def test_both_lists_are_of_trained_lengths_or_both_longer(kind: str) -> None:
    """``length`` counts the first; the second takes every length on the same side, no other."""
    sizes = dict(min_length=2, max_length=4, test_max_length=6, test_per_length=99)
    data = TASKS[kind](**sizes, train_size=300, validation_size=30).dataset(0)
    for split in ("train", "test"):
        beside = defaultdict(set)
        for row in data[split]:
            first, second = two_lists(row["source"])
            assert len(first) == row["length"]
            beside[len(first)].add(len(second))
        trained = {2: {2, 3, 4}, 3: {2, 3, 4}, 4: {2, 3, 4}}
        assert beside == trained | ({5: {5, 6}, 6: {5, 6}} if split == "test" else {})


@settings(max_examples=100)
@given(st.integers(1, 20), st.integers(0, 2**32))
def test_cartesian_pairs_each_number_with_each_letter(length: int, seed: int) -> None:
    """Number i and letter j are the pair at place i m + j, of three words."""
    source, target = TASKS["cartesian"]().example(length, np.random.default_rng(seed))
    numbers, names = two_lists(" ".join(source))
    assert len(target) == 3 * len(numbers) * len(names)
    assert set(numbers) <= set(map(str, range(1, 11))) and set(names) <= set("ABCDEFGHIJ")
    for i, j in itertools.product(range(len(numbers)), range(len(names))):
        at = 3 * (i * len(names) + j)
        assert target[at : at + 3] == [numbers[i], names[j], ";"]


@pytest.mark.parametrize(("symbols", "length"), [(2, 1), (2, 2), (2, 3), (3, 2), (3, 3)])
def test_the_ceiling_of_cartesian_is_what_counting_gives(symbols: int, length: int) -> None:
    """The best answer to each multiset of words, over all pairs of lists."""
    task = TASKS["cartesian"](symbols=symbols, max_length=2, test_max_length=3)
    ceilings = []
    for second in (1, 2) if length <= 2 else (3,):
        targets = defaultdict(Counter)
        for numbers in itertools.product(range(symbols), repeat=length):
            for names in itertools.product("ABC"[:symbols], repeat=second):
                words = frozenset(Counter([*numbers, *names]).items())
                targets[words][tuple(itertools.product(numbers, names))] += 1
        best = sum(max(answers.values()) for answers in targets.values())
        ceilings.append(best / sum(answers.total() for answers in targets.values()))
    assert task.ceiling(length) == pytest.approx(sum(ceilings) / len(ceilings))


@settings(max_examples=200)
@given(st.integers(1, 20), st.integers(0, 2**32), st.integers(40, 60))
def test_intersection_answers_whether_lists_share(length: int, seed: int, symbols: int) -> None:
    """Sets say the same; so does a repeated word, which needs no order: the ceiling is 1."""
    task = TASKS["intersection"](symbols=symbols)
    source, target = task.example(length, np.random.default_rng(seed))
    first, second = two_lists(" ".join(source))
    assert len(set(first)) == len(first) and len(set(second)) == len(second)
    assert set(first + second) <= set(map(str, range(1, symbols + 1)))
    assert target == ["false" if set(first).isdisjoint(second) else "true"]
    assert (max(Counter(source).values()) == 2) == (target == ["true"])
    assert task.ceiling(length) == 1.0


def test_intersection_is_balanced_at_every_length() -> None:
    """Half of the answers are true, within five standard deviations of a fair coin."""
    sizes = dict(train_size=1, validation_size=1, test_per_length=400)
    test = TASKS["intersection"](**sizes).dataset(0)["test"]
    true = Counter(row["length"] for row in test if row["target"] == "true")
    assert set(true) == set(range(1, 21))
    assert all(abs(count - 200) < 5 * 10 for count in true.values())


@pytest.mark.parametrize(
    ("kind", "settings_", "message"),
    [
        ("cartesian", {"max_length": 60, "test_max_length": 60}, "make up to 178,524,000 symbols"),
        ("intersection", {"symbols": 39}, "task.symbols=39 must be at least 40, for two lists"),
    ],
)
def test_impossible_settings_of_two_lists(kind: str, settings_: dict, message: str) -> None:
    """A product grows with the square of the length; two lists must have room to differ."""
    with pytest.raises(UserError, match=message):
        TASKS[kind](**settings_, test_per_length=1)


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


@pytest.mark.parametrize(
    ("settings_", "train", "test"),
    [
        ({"split": "simple"}, 16_728, 4_182),
        ({"split": "length"}, 16_990, 3_920),
        ({"split": "primitive"}, 14_670, 7_706),
        ({"split": "primitive", "primitive": "turn left"}, 21_890, 1_208),
    ],
)
def test_scan_splits_have_the_published_sizes(settings_: dict, train: int, test: int) -> None:
    """Counting what is held out; no command is in two splits, the primitive apart."""
    task = Scan(**settings_, held_out=100)
    data = task.dataset(0)
    within = 100 if task.split == "length" else 0
    assert len(data["train"]) + len(data["validation"]) + within == train
    assert len(data["test"]) - within == test
    splits = [set(data[name]["source"]) for name in ("train", "validation", "test")]
    assert sum(map(len, splits)) == len(set.union(*splits))
    if task.split == "length":
        assert max(data["train"]["length"]) == 22 and max(data["test"]["length"]) == 48
    if task.split == "primitive":
        holding = [s for s in data["train"]["source"] if f" {task.primitive} " in f" {s} "]
        assert set(holding) == {task.primitive} and len(holding) == round(train / 10)


# Of github.com/brendenlake/SCAN at c4b756c, folder template_split: how many lines tasks_train_….txt
# and tasks_test_….txt have, and the SHA-256 of the latter's commands, sorted, joined by newlines.
@pytest.mark.parametrize(
    ("template", "train", "test", "sha256"),
    [
        ("jump around right", 18_528, 1_173,
         "a199b29c0fa549113aa7f3dabae2d9097316e7da24c43a9ecccf36d4eb9b8710"),
        ("primitive right", 15_225, 4_476,
         "04722124d0552afb37f6cf65eb4ef0a27fd611fe96853c8ca9f5cc7a80774044"),
        ("primitive opposite right", 15_225, 4_476,
         "c46b07626e97d867c8664572315a4582866695dc555cbb47306df249b4a3e8a9"),
        ("primitive around right", 15_225, 4_476,
         "efe2e4af1cb769288988415809732c68d469c33586ba7469ae0e8dd462e9defa"),
    ],
)  # fmt: skip
def test_scan_template_splits_are_the_published_ones(
    template: str, train: int, test: int, sha256: str
) -> None:
    """The same test set, as many to train on, and no command with ``turn`` for the first word."""
    data = Scan(split="template", template=template, held_out=100).dataset(0)
    commands = sorted(data["test"]["source"])
    assert hashlib.sha256("\n".join(commands).encode()).hexdigest() == sha256
    trained = {*data["train"]["source"], *data["validation"]["source"]}
    assert len(data["train"]) + len(data["validation"]) == len(trained) == train
    assert len(commands) == test and trained.isdisjoint(commands)
    turned = "turn " + template.partition(" ")[2]
    left = set(scan_commands()) - trained - set(commands)
    assert left == {command for command in scan_commands() if turned in command}


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"cutoff": 48}, "task.cutoff=48 .* the longest of SCAN has 48 actions: choose a cutoff"),
        ({"cutoff": 1}, "task.cutoff=1 splits nothing off or leaves 6 commands"),
        (
            {"split": "jump"},
            "task.split=jump does not exist; choose one of length, simple",
        ),
    ],
)
def test_impossible_settings_of_scan(settings_: dict, message: str) -> None:
    """The value, the limit and the key."""
    with pytest.raises(UserError, match=message):
        Scan(**settings_)
