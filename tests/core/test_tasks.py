"""Tests of generated tasks against formulas, and of the ceiling against counts."""

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from datasets import DatasetDict, Value
from hypothesis import given, settings
from hypothesis import strategies as st

from wawa_transformer.common.messages import UserError
from wawa_transformer.common.schema import schema_of, typed
from wawa_transformer.data.load import check_columns
from wawa_transformer.data.tasks import TASKS, GeneratedTask, SequenceTask, Task, letters
from wawa_transformer.data.words import SPECIAL_TOKENS

GENERATED = sorted(kind for kind, cls in TASKS.items() if issubclass(cls, GeneratedTask))
SEQUENCES = ["copy", "cumsum", "duplicate", "letters", "reverse", "sort"]
SMALL = dict(train_size=200, validation_size=30, test_per_length=7, test_max_length=12)


@settings(max_examples=50)
@given(st.lists(st.integers(1, 26), min_size=1, max_size=12))
def test_targets(symbols: list[int]) -> None:
    expected = {
        "letters": [chr(64 + n) for n in symbols],
        "copy": [str(n) for n in symbols],
        "duplicate": [str(n) for _ in range(2) for n in symbols],
        "reverse": [str(n) for n in symbols[::-1]],
        "sort": [str(n) for n in sorted(symbols)],
        "cumsum": [str(total % 26) for total in np.cumsum(symbols)],
    }
    for kind, target in expected.items():
        assert TASKS[kind](symbols=26).target(symbols) == target


def test_letters_go_on_as_a_spreadsheet_does() -> None:
    alphabet = [chr(65 + i) for i in range(26)]
    pairs = ["".join(pair) for pair in itertools.product(alphabet, repeat=2)]
    assert [letters(n) for n in range(1, 26 + 676 + 1)] == alphabet + pairs


@pytest.mark.parametrize("kind", GENERATED)
def test_the_data_is_a_function_of_the_seed(kind: str) -> None:
    task = TASKS[kind](**SMALL)
    first, again, other = task.dataset(0), task.dataset(0), task.dataset(1)
    for split in ("train", "validation", "test"):
        assert first[split].to_dict() == again[split].to_dict()
        assert first[split].to_dict() != other[split].to_dict()
    assert first["train"]["source"][:30] != first["validation"]["source"][:30]
    assert task.test(0)["test"].to_dict() == first["test"].to_dict()


@pytest.mark.parametrize("kind", SEQUENCES)
def test_lengths_and_symbols(kind: str) -> None:
    """Lengths and symbols are in range, and targets follow from sources."""
    task = TASKS[kind](**SMALL, symbols=5, min_length=2, max_length=6)
    data = task.dataset(3)
    assert set(data["train"]["length"]) == set(range(2, 7))
    assert sorted(data["test"]["length"]) == sorted(list(range(2, 13)) * 7)
    for row in data["train"]:
        symbols = [int(word) for word in row["source"].split()]
        assert len(symbols) == row["length"] and set(symbols) <= set(range(1, 6))
        assert row["target"].split() == task.target(symbols)


@pytest.mark.parametrize(
    ("unique", "every"),
    [(False, [*itertools.product(range(1, 5), repeat=3)]),
     (True, [*itertools.permutations(range(1, 5), 3)])],
)  # fmt: skip
def test_every_sequence_is_drawn_equally_often(unique: bool, every: list[tuple[int, ...]]) -> None:
    """Within five standard deviations of a count, which the ceiling without positions rests on."""
    task = TASKS["copy"](symbols=4, unique=unique, max_length=3, test_max_length=3)
    random, expected = np.random.default_rng(0), 200
    drawn = Counter(tuple(task.draw(3, random)) for _ in range(expected * len(every)))
    assert drawn.keys() == {*every}
    assert all(abs(drawn[each] - expected) < 5 * expected**0.5 for each in every)


def test_nth_asks_for_every_place() -> None:
    rows = TASKS["nth"](**SMALL, min_length=1, max_length=4).dataset(0)["train"]
    asked = {(row["length"], int(row["source"].split()[0])) for row in rows}
    assert asked == {(length, place) for length in range(1, 5) for place in range(1, length + 1)}


@pytest.mark.parametrize("kind", GENERATED)
def test_the_tokenizer_knows_every_symbol_and_no_special_token_in_text(kind: str) -> None:
    """The ids 0 to 3 are special, and text decodes to itself."""
    task = TASKS[kind](**SMALL)
    data = task.dataset(0)
    tokenizer = task.tokenizer(data)
    assert [tokenizer.id_to_token(i) for i in range(4)] == SPECIAL_TOKENS
    for row in itertools.chain(data["train"], data["test"]):
        for side in ("source", "target"):
            ids = tokenizer.encode(row[side]).ids
            assert tokenizer.decode(ids) == row[side] and min(ids) > 3
    assert tokenizer.encode("[EOS]").ids == [3]


@pytest.mark.parametrize(("symbols", "length"), [(2, 1), (2, 5), (3, 4), (4, 3), (5, 4)])
def test_the_ceiling_is_what_counting_gives(symbols: int, length: int) -> None:
    """The ceiling is the number of multisets over the number of sequences."""
    sequences = list(itertools.product(range(symbols), repeat=length))
    different = [each for each in sequences if len(set(each)) == length]
    for unique, these in ((False, sequences), (True, different)):
        if not these:
            continue
        multisets = {tuple(sorted(sequence)) for sequence in these}
        for kind in ("letters", "copy", "duplicate", "reverse", "cumsum"):
            task = TASKS[kind](symbols=symbols, test_max_length=length, max_length=1, unique=unique)
            assert task.ceiling(length) == pytest.approx(len(multisets) / len(these))
    assert TASKS["sort"](symbols=symbols).ceiling(length) == 1.0


SHARED: dict[str, Callable[[list[int]], list[int]]] = {
    "max": lambda s: [max(s)],
    "parity": lambda s: [sum(s) % 2],
    "ends": lambda s: [*s[1:-1], s[0] + s[-1]],
    "odd": lambda s: [n for n in s if n % 2],
    "sorted after 1": lambda s: sorted(s) if s[0] == 1 else s,
    "sorted after 9": lambda s: sorted(s) if s[0] == 9 else s,
    "runs": lambda s: [n for n, _ in itertools.groupby(s)],
}


@pytest.mark.parametrize("name", SHARED)
def test_a_task_whose_orders_share_an_answer_has_no_ceiling(name: str) -> None:
    """At no length, however few share one: the best of their orders is no longer one of n!."""

    @dataclass
    class One(SequenceTask):
        def target(self, symbols: list[int]) -> list[str]:
            return list(map(str, SHARED[name](symbols)))

    assert [One(symbols=10).ceiling(n) for n in (1, 2, 3, 4, 8)] == [None] * 5


@pytest.mark.parametrize(
    ("base", "method"), [(SequenceTask, "target"), (GeneratedTask, "example"), (Task, "dataset")]
)
def test_a_task_without_a_method_that_it_needs_is_told_so(base: type[Task], method: str) -> None:
    task = type("Mine", (base,), {})()
    with pytest.raises(UserError, match=rf"Mine has no {method}\(.*; write this method"):
        task.dataset(0)


@pytest.mark.parametrize("drawn", [0, 9])
def test_lengths_that_a_report_would_call_untrained_are_refused(drawn: int) -> None:
    """As drawn for training by a class of one's own; a list of lengths is as good as an array."""
    body = {"draw_lengths": lambda self, size, random: [5] * (size - 1) + [drawn]}
    task = type("Other", (TASKS["copy"],), body)(max_length=8, train_size=9, validation_size=9)
    with pytest.raises(UserError, match=f"Other.draw_lengths draws {drawn}, .*task.max_length=8"):
        task.dataset(0)
    drawn = 8
    assert set(task.dataset(0)["train"]["length"]) == {5, 8}


def test_a_task_that_draws_otherwise_has_no_ceiling() -> None:
    """The count of orders is of symbols that are uniform and independent."""
    for name in ("draw", "example", "split", "dataset", "test"):
        assert type("Other", (TASKS["copy"],), {name: lambda self, *_: ()})().ceiling(3) is None
    assert TASKS["nth"]().ceiling(3) is None and TASKS["copy"]().ceiling(3) is not None


def test_a_task_that_draws_with_numpys_own_numbers_follows_from_the_seed_too() -> None:
    body = {"draw": lambda self, length, _: np.random.randint(1, 10, length).tolist()}
    task = type("Other", (TASKS["copy"],), body)(**SMALL)
    np.random.seed(5)
    one, same, other = (task.dataset(seed)["test"]["source"][:] for seed in (0, 0, 1))
    assert one == same != other and one == task.test(0)["test"]["source"][:]
    drawn = np.random.rand()
    np.random.seed(5)
    assert drawn == np.random.rand(), "the caller's own numbers"


def test_a_pair_takes_two_values() -> None:
    """OmegaConf reads a tuple as a list of any length."""

    @dataclass
    class Pair(SequenceTask):
        span: tuple[int, int] = (0, 2)
        other: tuple[float, float, float] | None = None
        any_length: tuple[int, ...] = ()

    for wrong in ({"span": [1]}, {"span": [1, 2, 3]}, {"other": [1.0, 2.0]}):
        [key] = wrong
        with pytest.raises(UserError, match=f"^task.{key}=.* must be a list of [23] values"):
            typed(Pair, wrong, "task")
    right = {"span": [1, 2], "other": None, "any_length": [1, 2, 3]}
    assert right.items() <= typed(Pair, right, "task").items()
    assert typed(Pair, {"other": [1, 2, 3]}, "task")["other"] == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("target", ["1 2", [1, 2], None, ["1", ""], ["1 2"], [["1"]], "12"])
def test_what_is_no_list_of_words_is_refused_by_its_class(target: Any) -> None:
    """Text would be spelled out, and an empty word vanish."""

    @dataclass
    class Odd(SequenceTask):
        def target(self, symbols: list[int]) -> list[str]:
            return target

    with pytest.raises(UserError, match="^Odd makes .* must be a list of words"):
        Odd(**SMALL).dataset(0)


def test_a_dataset_without_a_column_or_a_split_is_refused_by_its_class() -> None:
    right = TASKS["copy"](**SMALL).dataset(0)
    check_columns(TASKS["copy"](), right)
    for splits, said in (
        (right.remove_columns("length"), "train without length"),
        (DatasetDict({"train": right["train"]}), "validation without length"),
        ({"train": right["train"].to_dict()}, "train without length"),
        ([right["train"]], "train without length"),
        (right.cast_column("length", Value("string")), "train .* length is of type string"),
        (right.cast_column("length", Value("float32")), "train .* length is of type float"),
        (right.map(lambda row: {"length": row["length"] - 2}), "train with length -1"),
        (right.map(lambda row: {"source": [row["source"]]}), "train .* source is of type list"),
        (right.map(lambda row: {"target": None if row["length"] == 1 else "1"}), ".* 17 None"),
        (right.filter(lambda row: False), "train with 0 rows"),
    ):
        with pytest.raises(UserError, match=f"Copy.dataset.. returns {said}.*; give every split"):
            check_columns(TASKS["copy"](), splits)


def test_more_unique_symbols_than_there_are_are_refused() -> None:
    with pytest.raises(UserError, match=r"task.test_max_length=4 .* raise task.symbols"):
        TASKS["copy"](symbols=3, unique=True, max_length=3, test_max_length=4)


def test_nth_gives_the_number_at_the_named_place() -> None:
    for row in TASKS["nth"](**SMALL).dataset(0)["test"]:
        place, sequence = row["source"].split(" : ")
        assert len(sequence.split()) == row["length"]
        assert row["target"] == sequence.split()[int(place.replace(" ", "")) - 1]


@pytest.mark.parametrize(("reversed_digits", "width"), [(False, 0), (True, 0), (False, 14)])
def test_addition_adds(reversed_digits: bool, width: int) -> None:
    """The target is the sum, in either direction of writing.

    Operands have ``length`` digits, and the sum has one digit more. With a width all three numbers
    have that many digits, with zeros in front. A width without room for the sum is refused.
    """
    task = TASKS["addition"](**SMALL, reversed_digits=reversed_digits, width=width)
    step = -1 if reversed_digits else 1
    for row in task.dataset(0)["test"]:
        first, second = (side.split()[::step] for side in row["source"].split(" + "))
        total = row["target"].split()[::step]
        assert len(first) == len(second) == (width or row["length"])
        assert len(total) == (width or row["length"] + 1)
        assert {*first[: -row["length"]], *second[: -row["length"]]} <= {"0"}
        assert int("".join(first)) + int("".join(second)) == int("".join(total))
    with pytest.raises(UserError, match=r"task.width=10 has no room .* set it to 0 or to 11 or"):
        TASKS["addition"](width=10, test_max_length=10)


@pytest.mark.parametrize("reversed_digits", [False, True])
def test_uneven_addition_adds_numbers_of_independent_lengths(reversed_digits: bool) -> None:
    """No number begins with a zero, and the longer one has ``length`` digits.

    Of two lengths from 2 to 3 each of the four pairs is as frequent in training. In the test it is
    as frequent as the other pairs with the same longer length.
    """
    sizes: dict[str, Any] = dict(
        min_length=2, max_length=3, test_max_length=3, train_size=2000, test_per_length=1000
    )
    task = TASKS["addition_uneven"](**sizes, reversed_digits=reversed_digits)
    step = -1 if reversed_digits else 1
    of_train, of_test = {2: 4, 3: 4}, {2: 2, 3: 2 * 3}
    data = task.dataset(0)
    for split, one_in in (("train", of_train), ("test", of_test)):
        pairs: Counter[tuple[int, int]] = Counter()
        rows = data[split]
        for row in rows:
            first, second = ("".join(part.split()[::step]) for part in row["source"].split(" + "))
            total = "".join(row["target"].split()[::step])
            assert [first, second, total] == [str(int(n)) for n in (first, second, total)]
            assert int(first) + int(second) == int(total)
            assert row["length"] == max(len(first), len(second))
            pairs[len(first), len(second)] += 1
        assert len(pairs) == 4
        for pair, count in pairs.items():
            assert count == pytest.approx(len(rows) / one_in[max(pair)], rel=0.15), pair


def test_uneven_addition_knows_zero() -> None:
    """A number of one digit may be 0, whose sum has no zero in front."""
    rows = TASKS["addition_uneven"](**{**SMALL, "max_length": 1}).dataset(0)
    assert ("0 + 0", "0") in set(zip(rows["train"]["source"], rows["train"]["target"], strict=True))


def test_a_setting_without_a_dataclass_is_refused() -> None:
    """It would have no effect; what is no setting may stand in the body of a class."""
    bodies: list[dict[str, Any]] = [
        {"symbols": 5}, {"symbols": 5, "__annotations__": {"symbols": int}},
        {"width": 3, "__annotations__": {"width": int}}, {"unique": True},
    ]  # fmt: skip
    for body in bodies:
        made = type("Own", (TASKS["copy"],), {"__module__": __name__, **body})
        if "unique" in body:
            made = dataclass(made)
        with pytest.raises(UserError, match=f"Own.{[*body][0]} is no setting as it is written"):
            schema_of(made)
    body = {"order_matters": False, "__annotations__": {"order_matters": "ClassVar[bool]"}}
    schema_of(type("Own", (TASKS["copy"],), {"__module__": __name__, **body, "rate": 3}))
    body = {"symbols": 5, "__annotations__": {"symbols": int}}
    own = dataclass(type("Own", (TASKS["copy"],), {"__module__": __name__, **body}))
    assert schema_of(own) is own and own().symbols == 5  # type: ignore[attr-defined]
