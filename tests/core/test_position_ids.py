"""Tests of position ids: origins, random draws, and shared draws."""

from dataclasses import asdict
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from support import ABSOLUTE, ACROSS, RESET
from torch import Tensor

from wawa_transformer import Transformer
from wawa_transformer.common.messages import UserError
from wawa_transformer.data.tasks import build_task
from wawa_transformer.data.text import TextTask
from wawa_transformer.model.config import TransformerConfig
from wawa_transformer.model.transformer import positions_of
from wawa_transformer.positional.base import Positions
from wawa_transformer.positional.position_ids import PositionIds
from wawa_transformer.run.config import build_model, reset_token

IDS = st.lists(st.lists(st.integers(3, 9), min_size=1, max_size=8), min_size=1, max_size=3)
COUNTED = ["start", "end", "both"]  # origins at a token of the source, for any encoding
ORIGINS = st.sampled_from(COUNTED)


def padded(rows: list[list[int]]) -> Tensor:
    width = max(map(len, rows))
    return torch.tensor([[*row, *[0] * (width - len(row))] for row in rows])


def flat(positions: Positions) -> list[int]:
    return positions.ids.flatten().tolist()


def parts(row: list[int], reset: bool) -> list[list[int]]:
    cut: list[list[int]] = [[]]
    for i, token in enumerate(row):
        cut[-1].append(token)
        if reset and token == RESET and i + 1 < len(row):
            cut.append([])
    return cut


def build(kind: str, cross: str = "none", num_heads: int = 2, **given: Any) -> Transformer:
    return Transformer(9, 9, 8, 1, num_heads, 8, pe=kind, cross=cross, **given)


@settings(max_examples=150)
@given(IDS, st.sampled_from([*COUNTED, "continued"]), st.booleans())
def test_the_source_is_counted_from_its_origin(
    rows: list[list[int]], origin: str, reset: bool
) -> None:
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
    IDS, ORIGINS, st.sampled_from([(0, 0), (3, 0), (0, 20)]), st.booleans(), st.booleans(),
    st.integers(0, 4),
)  # fmt: skip
def test_positions_are_called_consecutive_where_they_are(
    rows: list[list[int]], origin: str, drawn: tuple[int, int], reset: bool, training: bool,
    offset: int,
) -> None:  # fmt: skip
    """Ids marked consecutive are consecutive."""
    position_ids = PositionIds(origin, *drawn, RESET if reset else None)
    positions = position_ids(padded(rows), training, num_heads=2)
    plain = drawn == (0, 0)
    assert positions.target(offset, 3).consecutive == plain
    assert positions.source.consecutive == (plain and origin == "start" and not reset)
    for at in (positions.source, positions.target(offset, 3)):
        assert not at.consecutive or flat(at) == list(range(at.start, at.end))
        assert at.ids.max() < at.end


@pytest.mark.parametrize("origin", COUNTED)
def test_source_and_target_start_at_one_random_position(origin: str) -> None:
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


@settings(max_examples=60)
@given(IDS, st.booleans(), st.booleans(), st.integers(0, 2**30))
def test_abacus_counts_the_digits_of_each_number(
    rows: list[list[int]], reset: bool, training: bool, seed: int
) -> None:
    """A digit's id is its place in its number, from 1 on."""
    torch.manual_seed(seed)
    position_ids = PositionIds("abacus", max_shift=5, reset_token=RESET if reset else None)
    positions = position_ids(padded(rows), training)
    target = positions.target(0, 3).ids.expand(len(rows), 1, 3)[:, 0].tolist()
    for row, found, (begin, first, second) in zip(
        rows, positions.source.ids[:, 0].tolist(), target, strict=True
    ):
        k = first - 1
        assert begin == 0 and second == k + 2 and 0 <= k <= 5
        place, expected = 0, []
        for token in [*row, *[0] * (len(found) - len(row))]:
            digit = token > 3 and not (reset and token == RESET)
            place = place + 1 if digit else 0
            expected.append(place + k if digit else 0)
        assert found == expected
    assert positions.source.end <= position_ids.reach(padded(rows).size(1))


DRAWN = [{"max_shift": 30}, {"random_positions": 31}]


@settings(max_examples=60)
@given(IDS, ORIGINS, st.booleans(), st.booleans(), st.integers(0, 2**30))
def test_random_positions_keep_the_order_and_are_shared(
    rows: list[list[int]], origin: str, reset: bool, training: bool, seed: int
) -> None:
    """The token counted as n-th has its row's n-th smallest id, in source and target alike."""
    torch.manual_seed(seed)
    src, reset_token = padded(rows), RESET if reset else None
    plain = PositionIds(origin=origin, reset_token=reset_token)(src, training, num_heads=2)
    drawn = PositionIds(origin=origin, random_positions=30, reset_token=reset_token)
    positions = drawn(src, training, num_heads=2)
    targets = positions.target(0, 30).ids[:, 0].expand(len(rows), -1).tolist()
    counts = plain.source.ids.expand(len(rows), 2, -1).tolist()
    found = positions.source.ids.expand(len(rows), 2, -1).tolist()
    for row, target, count, ids in zip(rows, targets, counts, found, strict=True):
        longest = max(n + 1 for head in count for n in head[: len(row)])
        assert target[:longest] == sorted(target[:longest])
        assert sorted(target) == list(range(30))
        for head, own in zip(count, ids, strict=True):
            assert [target[n] for n in head[: len(row)]] == own[: len(row)]


@pytest.mark.parametrize("given_", DRAWN)
@pytest.mark.parametrize("origin", [*COUNTED, "abacus"])
def test_a_draw_in_evaluation_belongs_to_its_source(given_: dict[str, int], origin: str) -> None:
    """Neither padding, nor other rows, nor torch's random numbers change an evaluated row."""
    rows = [[7, 8, 9, 6], [9, 6], [9, 6, 7], [8], [7, 8, 9, 4]]
    position_ids = PositionIds(**given_, origin=origin)
    together = position_ids(F.pad(padded(rows), (0, 3)), training=False, num_heads=2)
    targets = together.target(2, 5).ids.tolist()
    assert len({str(each) for each in targets}) == len(rows)  # different draws
    kept = together.keep(torch.tensor([3, 1, 1]))
    assert kept.target(2, 5).ids.tolist() == [targets[i] for i in (3, 1, 1)]
    for i, row in enumerate(rows):
        torch.manual_seed(i)
        alone = position_ids(torch.tensor([row]), training=False, num_heads=2)
        assert torch.equal(alone.source.ids[0], together.source.ids[i, :, : len(row)])
        assert alone.target(2, 5).ids[0].tolist() == targets[i]
        assert torch.equal(together.keep(torch.tensor([i])).source.ids[0, :, : len(row)],
                           alone.source.ids[0])  # fmt: skip


@pytest.mark.parametrize("given_", DRAWN)
@pytest.mark.parametrize("length", [1, 9])
def test_evaluation_draws_positions_as_training_does(given_: dict[str, int], length: int) -> None:
    """Over many sources the ids have the same distribution; a start keeps below the last one.

    Each share of a place's ids in six classes is of 500 draws. A share that differs by 0.12 has
    five standard deviations; a fixed start, or a fixed distance of ids, differs by 0.8.
    """
    sources = torch.randint(4, 1000, (500, length))
    position_ids = PositionIds(**given_)
    tested = position_ids(sources, training=False).source.ids[:, 0]
    trained = torch.cat(
        [position_ids(sources[:1], training=True).source.ids[:, 0] for _ in range(500)]
    )
    if shift := given_.get("max_shift"):  # starts that let a source end at max_shift
        trained = trained[trained[:, -1] <= shift]
        assert tested.max() <= shift
    for place in range(length):
        shares = [
            torch.histc(ids[:, place].float(), 6, 0, 31) / len(ids) for ids in (tested, trained)
        ]
        assert (shares[0] - shares[1]).abs().max() < 0.12


def test_a_source_takes_the_first_ids_of_an_order_and_an_answer_goes_on_above_them() -> None:
    """Then come the ids that the source has passed over. The numbers are written by hand."""
    order, taken = torch.tensor([4, 7, 1, 8, 0, 2, 6, 3, 5]), torch.tensor([3, 1, 9])
    ids = PositionIds(random_positions=9).ids_in_order(order, taken, training=True)
    assert ids.tolist() == [
        [1, 4, 7, 8, 0, 2, 3, 5, 6], [4, 5, 6, 7, 8, 0, 1, 2, 3], [0, 1, 2, 3, 4, 5, 6, 7, 8]
    ]  # fmt: skip


def test_a_source_too_long_for_a_shift_starts_at_zero() -> None:
    """No position lies beyond those that training saw, where that is possible."""
    position_ids = PositionIds(max_shift=9)
    for length, last in ((10, 9), (11, 10), (40, 39)):
        ids = position_ids(torch.randint(4, 9, (50, length)), training=False).source.ids
        assert int(ids.max()) == last
    assert set(flat(position_ids(torch.randint(4, 999, (90, 9)), False).target(0, 1))) == {0, 1}


def test_a_sequence_has_at_most_the_drawn_positions() -> None:
    position_ids = PositionIds(random_positions=30)
    assert position_ids.longest(None) == 30 and position_ids.longest(200) == 30
    position_ids.check_length(30)
    for training in (True, False):
        with pytest.raises(UserError, match=r"31 positions .* set pe.random_positions=31 or more"):
            position_ids(torch.ones(1, 31, dtype=torch.int64), training)


def test_a_table_must_reach_all_position_ids() -> None:
    shifted = build("learned", max_shift=5)
    assert shifted.max_positions == 251
    shifted.check_length(251)
    with pytest.raises(UserError, match="a sequence of 257 positions"):
        shifted.check_length(252)
    with pytest.raises(UserError, match="a sequence of 300 positions"):
        build("learned", random_positions=300)


def test_decoding_asks_for_what_it_cannot_know() -> None:
    src, tgt = padded([[4, 5, 6], [7, 8]]), torch.tensor([[1, 4], [1, 5]])
    shift = PositionIds(max_shift=4)
    for position_ids, training in (
        (PositionIds(origin="end"), False), (PositionIds(reset_token=RESET), False), (shift, True),
        (shift, False), (PositionIds(random_positions=9), False),
    ):  # fmt: skip
        model = Transformer(9, 9, 8, 1, 2, 8, dropout=0.0, **asdict(position_ids))
        positions = model.train(training).batch_positions(src)
        memory = model.encode(src, positions=positions)
        with pytest.raises(ValueError, match=r"decode\(\) needs positions=model.batch_positions"):
            model.decode(tgt, memory)
        assert model.decode(tgt, memory, positions=positions).isfinite().all()


@pytest.mark.parametrize("kind", ACROSS)
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
    rows = [[7, 8, 9, 6, 5], [9, 6], [4]]
    positions = PositionIds(origin="continued")(padded(rows), training=True)
    positions = positions.keep(torch.tensor([True, False, True]))
    query = positions.target(4, 2)
    for row, ids in zip((rows[0], rows[2]), query.ids[:, 0].tolist(), strict=True):
        one = list(range(len(row) + 4 + 2))  # source, then target
        assert flat(positions.source)[: len(row)] + ids == one[: len(row)] + one[-2:]
        assert max(ids) < query.end


@settings(max_examples=60)
@given(IDS, ORIGINS, st.booleans(), st.integers(0, 3), st.sampled_from([0.5, 10.0, 2000.0]))
def test_divided_positions_are_shares_of_the_sources_length(
    rows: list[list[int]], origin: str, everywhere: bool, offset: int, number: float
) -> None:
    """Positions are a count over the source's length, padding left out, times a number."""
    src, key = padded(rows), "divided" if everywhere else "cross_divided"
    plain = PositionIds(origin=origin)(src, training=False, num_heads=2)
    positions = PositionIds(**{"origin": origin, key: number})(src, training=False, num_heads=2)
    order = torch.arange(len(rows)).flip(0)
    for each, kept in ((positions, [*range(len(rows))]), (positions.keep(order), order.tolist())):
        own = each.target(offset, 5)
        query, key_ = each.across(own) if each.share is not None else (own, each.source)
        source = plain.source.ids.expand(len(rows), -1, -1)
        for row, n in enumerate(kept):
            share = number / len(rows[n])
            for found, counted, divided in (
                (query, torch.arange(offset, offset + 5)[None], True),
                (key_, source[n], True),
                (own, torch.arange(offset, offset + 5)[None], everywhere),
                (each.source, source[n], everywhere),
            ):
                ids = found.ids.expand(len(rows), -1, -1)[row].double()
                expected = (counted * (share if divided else 1)).double()
                torch.testing.assert_close(ids, expected.expand_as(ids), rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    ("given_", "used", "message"),
    [
        ({"divided": 5.0, "cross_divided": 3.0}, ("rotary", "rotary"),
         "pe.divided=5 divides positions in cross-attention too, and pe.cross_divided=3 would"),
        ({"divided": 5.0}, ("learned",), "pe.divided=5 makes .*pe.kind=learned .* choose one of"),
        ({"divided": 5.0}, ("sinusoidal", "rotary"), "pe.divided=5 makes .*pe.kind=sinusoidal"),
        ({"divided": 5.0}, ("rotary", "t5"), "pe.divided=5 makes .*pe.cross=t5 cannot"),
        ({"cross_divided": 5.0}, ("rotary", "shaw"), "pe.cross_divided=5 makes .*pe.cross=shaw"),
        ({"cross_divided": 5.0}, ("rotary",), "pe.cross_divided=5 makes .*pe.cross=none cannot"),
        ({"cross_divided": 5.0}, ("none",), "pe.kind=none uses no positions, so that .*divided"),
        ({"divided": 5.0, "origin": "continued"}, ("rotary", "rotary"), "pe.origin=continued cou"),
        ({"divided": -1.0}, ("rotary",), "pe.divided=-1.0 must be at least 0"),
        ({"origin": "middle"}, (), "pe.origin=middle does not exist; choose one of start, end"),
        ({"max_shift": 3, "random_positions": 9}, (),
         "pe.max_shift=3 and pe.random_positions=9 exclude each other"),
        ({"max_shift": 3}, ("t5",), "pe.kind=t5 sees distances alone, which pe.max_shift=3 does"),
        ({"origin": "end"}, ("alibi",), "pe.kind=alibi sees distances .* pe.origin=end does"),
        ({"origin": "both"}, ("learned", "none", 1), "pe.origin=both divides the heads between"),
        ({"origin": "end"}, ("none",), "pe.kind=none uses no positions"),
        ({"origin": "continued"}, ("learned", "t5"), "pe.origin=continued .*pe.kind=learned"),
    ],
)  # fmt: skip
def test_what_would_have_no_effect_is_refused(
    given_: dict[str, Any], used: tuple[Any, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        build(*(used or ("sinusoidal",)), **given_)


@pytest.mark.parametrize("origin", [*COUNTED, "abacus"])
def test_what_has_an_effect_is_not_refused(origin: str) -> None:
    every: list[dict[str, Any]] = [{"pe": kind, "origin": origin} for kind in ABSOLUTE]
    every += [{**each, **more} for each in every for more in ({"max_shift": 3}, {"reset_token": 1})]
    every += [{"pe": "t5", "cross": "t5", "origin": origin}]
    every += [{"pe": "none", "cross": "shaw", "origin": origin}]
    every += [{"pe": "fire", "max_shift": 3}]  # distances over positions
    for given_ in every:
        positions_of(TransformerConfig(9, 9, 8, 1, 2, 8, **given_))


def test_the_reset_token_is_a_word_of_the_task(tiny) -> None:
    """``pe.reset_token=+`` restarts counting after ``+``."""
    for word, same in (("+", False), ("null", True)):
        config = tiny("task=addition", "pe=sinusoidal", f"pe.reset_token={word}")
        tokenizer = build_task(config).tokenizer({})  # type: ignore[arg-type]
        model = build_model(config, tokenizer)
        src = torch.tensor([tokenizer.encode("3 4 + 5 6").ids])
        assert (flat(model.batch_positions(src).source) == list(range(5))) == same
    task = TextTask(vocab_size=600, test_size=9, validation_size=9)
    tokenizer = task.tokenizer(task.dataset(0))
    assert (
        reset_token("the", tokenizer) == tokenizer.encode("on the").ids[-1]
    )  # and not as in other
    assert tokenizer.token_to_id("the") != tokenizer.encode("on the").ids[-1]
    assert reset_token(".", tokenizer) == tokenizer.encode("the.").ids[-1]
    with pytest.raises(UserError, match="is no word of this task's vocabulary with one id"):
        reset_token("unheard", tokenizer)
    config = tiny("task=letters", "pe.reset_token=+")
    with pytest.raises(UserError, match=r"^pe.reset_token=\+ is no word of this task's vocabulary"):
        build_model(config, build_task(config).tokenizer({}))  # type: ignore[arg-type]
