"""Tests of position ids: origins, random draws, and shared draws."""

from typing import Any

import pytest
import torch
from conftest import ABSOLUTE, RELATIVE, RESET
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from wawa_transformer import Transformer
from wawa_transformer.common.schema import UserError
from wawa_transformer.data.text import build_task
from wawa_transformer.positional.base import Positions
from wawa_transformer.positional.position_ids import PositionIds
from wawa_transformer.run.config import build_model

IDS = st.lists(st.lists(st.integers(3, 9), min_size=1, max_size=8), min_size=1, max_size=3)
COUNTED = ["start", "end", "both"]  # origins at a token of the source, for any encoding
ORIGINS = st.sampled_from(COUNTED)


def padded(rows: list[list[int]]) -> Tensor:
    width = max(map(len, rows))
    return torch.tensor([[*row, *[0] * (width - len(row))] for row in rows])


def flat(positions: Positions) -> list[int]:
    return positions.ids.flatten().tolist()


def parts(row: list[int], reset: bool) -> list[list[int]]:
    """Cut a row after every reset token."""
    cut: list[list[int]] = [[]]
    for i, token in enumerate(row):
        cut[-1].append(token)
        if reset and token == RESET and i + 1 < len(row):
            cut.append([])
    return cut


def build(kind: str, cross: str = "none", num_heads: int = 2, **given: Any) -> Transformer:
    """Build a model that has an encoding, one of cross-attention, and position ids."""
    ids = PositionIds(**given)
    return Transformer(9, 9, 8, 1, num_heads, 8, pe=kind, cross=cross, position_ids=ids)


@settings(max_examples=150)
@given(IDS, st.sampled_from([*COUNTED, "continued"]), st.booleans())
def test_the_source_is_counted_from_its_origin(
    rows: list[list[int]], origin: str, reset: bool
) -> None:
    """The ids equal a count of every part of every row.

    Padding is left out.
    """
    reset &= origin != "continued"
    position_ids = PositionIds(origin=origin, reset_token=RESET if reset else None)
    ids = position_ids(padded(rows), training=False, num_heads=4).source.ids
    ids = ids.expand(len(rows), 4, -1)
    for head in range(4):
        end = origin == "end" or origin == "both" and head % 2
        for row, found in zip(rows, ids[:, head].tolist(), strict=True):
            expected = []
            for part in parts(row, reset):
                count = list(range(len(part)))
                expected += count[::-1] if end else count
            assert found[: len(row)] == expected
    assert ids.min() >= 0 and ids.max() < padded(rows).size(1)


@settings(max_examples=60)
@given(
    IDS, ORIGINS, st.sampled_from([(0, 0, 1), (3, 0, 1), (0, 20, 2)]), st.booleans(),
    st.booleans(), st.integers(0, 4),
)  # fmt: skip
def test_positions_are_called_consecutive_where_they_are(
    rows: list[list[int]], origin: str, drawn: tuple[int, int, int], reset: bool,
    training: bool, offset: int,
) -> None:  # fmt: skip
    """Ids marked consecutive are consecutive.

    The target's ids are marked exactly if nothing is drawn. The source's ids must also count once,
    from the source's start.
    """
    position_ids = PositionIds(origin, *drawn, RESET if reset else None)
    positions = position_ids(padded(rows), training, num_heads=2)
    plain = drawn == (0, 0, 1) or drawn[0] > 0 and not training
    assert positions.target(offset, 3).consecutive == plain
    assert positions.source.consecutive == (plain and origin == "start" and not reset)
    for at in (positions.source, positions.target(offset, 3)):
        assert not at.consecutive or flat(at) == list(range(at.start, at.end))
        assert at.ids.max() < at.end


@pytest.mark.parametrize("origin", COUNTED)
def test_source_and_target_start_at_one_random_position(origin: str) -> None:
    """Both sides have the same random start in 0 … max_shift.

    Evaluation starts at 0.
    """
    position_ids, src = PositionIds(max_shift=3, origin=origin), padded([[7, 8, 9, 6], [9, 6]])
    still = PositionIds(origin=origin)(src, training=False, num_heads=2).source.ids
    seen = set()
    for _ in range(60):
        positions = position_ids(src, training=True, num_heads=2)
        [start] = (positions.source.ids - still).unique().tolist()
        assert flat(positions.target(0, 5)) == list(range(start, start + 5))
        ends = positions.source.end, positions.target(0, 5).end
        assert max(ends) <= position_ids.reach(5)
        seen.add(start)
    assert seen == {0, 1, 2, 3}
    evaluated = position_ids(src, training=False, num_heads=2).source.ids
    assert torch.equal(evaluated, still)


@settings(max_examples=60)
@given(IDS, st.booleans(), st.booleans(), st.integers(0, 2**30))
def test_abacus_counts_the_digits_of_each_number(
    rows: list[list[int]], reset: bool, training: bool, seed: int
) -> None:
    """A digit's id is its place in its number, from 1 on.

    Other tokens have the id 0 (McLeish et al. 2024). Training adds one random k to all digits, also
    in the target.
    """
    torch.manual_seed(seed)
    position_ids = PositionIds("abacus", max_shift=5, reset_token=RESET if reset else None)
    positions = position_ids(padded(rows), training)
    begin, first, second = flat(positions.target(0, 3))
    k = first - 1
    assert begin == 0 and second == k + 2 and 0 <= k <= 5 * training
    for row, found in zip(rows, positions.source.ids[:, 0].tolist(), strict=True):
        place, expected = 0, []
        for token in [*row, *[0] * (len(found) - len(row))]:
            digit = token > 3 and not (reset and token == RESET)
            place = place + 1 if digit else 0
            expected.append(place + k if digit else 0)
        assert found == expected
    assert positions.source.end <= position_ids.reach(padded(rows).size(1))


@settings(max_examples=30)
@given(IDS, ORIGINS, st.integers(1, 8), st.integers(0, 2**30))
def test_random_positions_keep_the_order_and_are_shared(
    rows: list[list[int]], origin: str, target: int, seed: int
) -> None:
    """The n-th position is the n-th smallest of its side's draw.

    The draw depends on the length. The longer side's draw contains the shorter side's.
    """
    torch.manual_seed(seed)
    src = padded(rows)
    plain = PositionIds(origin=origin)(src, training=True, num_heads=2).source.ids
    positions = PositionIds(origin=origin, random_positions=30)(src, training=True, num_heads=2)
    drawn = flat(positions.first(src.size(1)))
    assert drawn == sorted(set(drawn)) and drawn[0] >= 0 and drawn[-1] < 30
    assert torch.equal(torch.tensor(drawn)[plain], positions.source.ids)
    other = set(flat(positions.target(0, target)))
    assert other <= set(drawn) or set(drawn) <= other


def test_random_positions_are_drawn_from_all_and_spaced_in_evaluation() -> None:
    """Training draws every position; evaluation takes every stride-th position.

    The error for a longer sequence names the key to raise.
    """
    position_ids = PositionIds(random_positions=30, stride=2)
    src = torch.ones(1, 8, dtype=torch.int64)
    drawn: set[int] = set()
    for _ in range(60):  # that one of 30 is never among 8 drawn: 3 in 10 million
        drawn |= set(flat(position_ids(src, training=True).source))
    assert drawn == set(range(30))
    positions = position_ids(src, training=False)
    assert flat(positions.source) == list(range(0, 16, 2))
    assert flat(positions.target(6, 2)) == [12, 14]
    assert position_ids.longest(None) == 15
    position_ids.check_length(15)
    message = r"16 positions .* set pe.random_positions=31 or more"
    with pytest.raises(UserError, match=message):
        position_ids(torch.ones(1, 16, dtype=torch.int64), training=False)


def test_a_table_must_reach_all_position_ids() -> None:
    """A table must have a row for every possible position id.

    A shift leaves fewer positions. Random positions must all fit.
    """
    shifted = build("learned", max_shift=5)
    assert shifted.max_positions == 251
    shifted.check_length(251)
    with pytest.raises(UserError, match="a sequence of 257 positions"):
        shifted.check_length(252)
    with pytest.raises(UserError, match="a sequence of 300 positions"):
        build("learned", random_positions=300)


def test_decoding_asks_for_what_it_cannot_know() -> None:
    """``decode()`` requires positions that it cannot compute.

    It cannot compute positions that depend on the source's ids or on a draw.
    """
    src, tgt = padded([[4, 5, 6], [7, 8]]), torch.tensor([[1, 4], [1, 5]])
    shift = PositionIds(max_shift=4)
    for position_ids, training in (
        (PositionIds(origin="end"), False), (PositionIds(reset_token=RESET), False), (shift, True),
    ):  # fmt: skip
        model = Transformer(9, 9, 8, 1, 2, 8, dropout=0.0, position_ids=position_ids)
        positions = model.train(training).batch_positions(src)
        memory = model.encode(src, positions=positions)
        with pytest.raises(ValueError, match=r"decode\(\) needs positions=model.batch_positions"):
            model.decode(tgt, memory)
        assert model.decode(tgt, memory, positions=positions).isfinite().all()
    model = Transformer(9, 9, 8, 1, 2, 8, position_ids=shift).eval()
    memory, positions = model.encode(src), model.batch_positions(src)
    given = model.decode(tgt, memory, positions=positions)
    assert torch.equal(model.decode(tgt, memory), given)


@pytest.mark.parametrize("kind", RELATIVE)
def test_distances_from_the_end_make_reverse_a_copy(kind: str) -> None:
    """A source counted from its end scores as its mirror image does.

    The mirror image is counted from its start. Between target t and the source's t-th symbol from
    the end the distance is 0, at any length.
    """
    model = Transformer(11, 11, 8, 2, 2, 16, pe=kind, cross="same", seed=0).double().eval()
    generator = torch.Generator().manual_seed(0)
    memory = torch.randn(1, 6, 8, dtype=torch.float64, generator=generator)
    tgt, src = torch.tensor([[1, 5, 4, 7]]), torch.full((1, 6), 4)
    ends = PositionIds(origin="end")(src, training=False, num_heads=2)
    starts = PositionIds()(src, training=False, num_heads=2)
    torch.testing.assert_close(
        model.decode(tgt, memory, positions=ends),
        model.decode(tgt, memory.flip(1), positions=starts),
    )


def test_a_continued_target_goes_on_where_its_source_ends() -> None:
    """Source and target ids form one sequence, as in a decoder-only model.

    Padding of the source does not matter.
    """
    rows = [[7, 8, 9, 6, 5], [9, 6], [4]]
    positions = PositionIds(origin="continued")(padded(rows), training=True)
    positions = positions.keep(torch.tensor([True, False, True]))
    query = positions.target(4, 2)
    for row, ids in zip((rows[0], rows[2]), query.ids[:, 0].tolist(), strict=True):
        one = list(range(len(row) + 4 + 2))  # source, then target
        assert flat(positions.source)[: len(row)] + ids == one[: len(row)] + one[-2:]
        assert max(ids) < query.end


@pytest.mark.parametrize(
    ("given_", "used", "message"),
    [
        ({"origin": "middle"}, (), "pe.origin=middle does not exist; choose one of start, end"),
        ({"stride": 10, "random_positions": 9}, (), "pe.stride=10 must be 1 without"),
        ({"max_shift": 3, "random_positions": 9}, (),
         "pe.max_shift=3 and pe.random_positions=9 exclude each other"),
        ({"max_shift": 3}, ("t5",), "pe.kind=t5 sees distances alone, which pe.max_shift=3 does"),
        ({"origin": "end"}, ("alibi",), "pe.kind=alibi sees distances .* pe.origin=end within"),
        ({"origin": "both"}, ("learned", "none", 1), "pe.origin=both divides the heads between"),
        ({"origin": "end"}, ("none",), "pe.kind=none uses no positions"),
        ({"origin": "continued"}, ("learned", "t5"), "pe.origin=continued .*pe.kind=learned"),
    ],
)  # fmt: skip
def test_what_would_have_no_effect_is_refused(
    given_: dict[str, Any], used: tuple[Any, ...], message: str
) -> None:
    """The message names the key, the value, and a remedy."""
    with pytest.raises(ValueError, match=f"^{message}"):
        build(*(used or ("sinusoidal",)), **given_)


@pytest.mark.parametrize("origin", [*COUNTED, "abacus"])
def test_what_has_an_effect_is_not_refused(origin: str) -> None:
    """Any origin suits absolute encodings and relative cross-attention."""
    for kind in ABSOLUTE:
        for more in ({}, {"max_shift": 3}, {"reset_token": 1}):
            build(kind, origin=origin, **more)
    build("t5", "t5", origin=origin)
    build("none", "shaw", origin=origin)


def test_the_reset_token_is_a_word_of_the_task(tiny) -> None:
    """``pe.reset_token=+`` restarts counting after ``+``.

    A word outside the task's vocabulary is refused.
    """
    for word, same in (("+", False), ("null", True)):
        config = tiny("task=addition", "pe=sinusoidal", f"pe.reset_token={word}")
        tokenizer = build_task(config).tokenizer({})  # type: ignore[arg-type]
        model = build_model(config, tokenizer)
        src = torch.tensor([tokenizer.encode("3 4 + 5 6").ids])
        assert (flat(model.batch_positions(src).source) == list(range(5))) == same
    config = tiny("task=letters", "pe.reset_token=+")
    with pytest.raises(UserError, match=r"^pe.reset_token=\+ is no word of this task's vocabulary"):
        build_model(config, build_task(config).tokenizer({}))  # type: ignore[arg-type]
