"""Where positions are counted from: true lengths, what is drawn, what both sides share."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from conftest import ABSOLUTE, RELATIVE
from hypothesis import given, settings
from hypothesis import strategies as st

from wawa_transformer import Transformer
from wawa_transformer.common.schema import UserError
from wawa_transformer.data.text import build_task
from wawa_transformer.positional import build_encoding
from wawa_transformer.positional.base import Encoding, EncodingContext, SequenceTooLong
from wawa_transformer.positional.position_ids import PositionIds
from wawa_transformer.run.config import build_model

PLUS = 5
IDS = st.lists(st.lists(st.integers(3, 9), min_size=1, max_size=8), min_size=1, max_size=3)


def padded(rows: list[list[int]]) -> torch.Tensor:
    width = max(map(len, rows))
    return torch.tensor([[*row, *[0] * (width - len(row))] for row in rows])


def parts(row: list[int], restart: bool) -> list[list[int]]:
    """The row cut after every separator."""
    cut: list[list[int]] = [[]]
    for i, word in enumerate(row):
        cut[-1].append(word)
        if restart and word == PLUS and i + 1 < len(row):
            cut.append([])
    return cut


@settings(max_examples=150)
@given(IDS, st.sampled_from(PositionIds.ORIGINS), st.booleans())
def test_the_source_is_counted_from_where_it_says(
    rows: list[list[int]], origin: str, restart: bool
) -> None:
    """Against a count by hand of every part of every row, padding left out."""
    counting = PositionIds(origin=origin, restart=PLUS if restart else None)
    index = counting(padded(rows), training=False, num_heads=4).source.index
    index = index.expand(len(rows), 4, -1)
    for head in range(4):
        end = origin == "end" or origin == "both" and head % 2
        for row, found in zip(rows, index[:, head].tolist(), strict=True):
            expected = []
            for part in parts(row, restart):
                count = list(range(len(part)))
                expected += count[::-1] if end else count
            assert found[: len(row)] == expected
    assert index.min() >= 0 and index.max() < padded(rows).size(1)


@settings(max_examples=60)
@given(
    IDS, st.sampled_from(PositionIds.ORIGINS), st.sampled_from([(0, 0, 1), (3, 0, 1), (0, 20, 2)]),
    st.booleans(), st.booleans(), st.integers(0, 4),
)  # fmt: skip
def test_what_is_called_consecutive_is(
    rows: list[list[int]], origin: str, drawn: tuple[int, int, int], restart: bool,
    training: bool, offset: int,
) -> None:  # fmt: skip
    """Every position from the first to the last; and where nothing is drawn, it is called so."""
    moved, randomized, stride = drawn
    counting = PositionIds(origin, "start", moved, randomized, stride, PLUS if restart else None)
    count = counting(padded(rows), training, num_heads=2)
    plain = drawn == (0, 0, 1) or moved > 0 and not training
    assert count.target(offset, 3).consecutive == plain
    assert count.source.consecutive == (plain and origin == "start" and not restart)
    for at in (count.source, count.target(offset, 3)):
        every = torch.arange(at.start, at.end)[None, None]
        assert not at.consecutive or torch.equal(at.index, every)


@pytest.mark.parametrize("origin", PositionIds.ORIGINS)
def test_source_and_target_start_at_one_random_position(origin: str) -> None:
    """Uniform in 0 … moved, one draw for both sides; evaluation starts at 0."""
    counting, ids = PositionIds(moved=3, origin=origin), padded([[7, 8, 9, 6], [9, 6]])
    still = PositionIds(origin=origin)(ids, training=False, num_heads=2).source.index
    seen = set()
    for _ in range(60):
        count = counting(ids, training=True, num_heads=2)
        [start] = (count.source.index - still).unique().tolist()
        assert count.target(0, 5).index.flatten().tolist() == list(range(start, start + 5))
        assert max(count.source.end, count.target(0, 5).end) <= counting.reach(5)
        seen.add(start)
    assert seen == {0, 1, 2, 3}
    assert torch.equal(counting(ids, training=False, num_heads=2).source.index, still)


@settings(max_examples=30)
@given(IDS, st.sampled_from(PositionIds.ORIGINS), st.integers(1, 8), st.integers(0, 2**30))
def test_random_positions_keep_the_order_and_are_shared(
    rows: list[list[int]], origin: str, target: int, seed: int
) -> None:
    """The k-th count of either side is the k-th smallest drawn; the shorter side's are among them.

    The draw depends on how long a sequence is, so the longer of both holds the shorter one's.
    """
    torch.manual_seed(seed)
    ids = padded(rows)
    plain = PositionIds(origin=origin)(ids, training=True, num_heads=2).source.index
    count = PositionIds(origin=origin, randomized=30)(ids, training=True, num_heads=2)
    drawn = count.place(ids.size(1)).index.flatten().tolist()
    assert drawn == sorted(set(drawn)) and drawn[0] >= 0 and drawn[-1] < 30
    assert torch.equal(torch.tensor(drawn)[plain], count.source.index)
    other = set(count.target(0, target).index.flatten().tolist())
    assert other <= set(drawn) or set(drawn) <= other


def test_random_positions_are_drawn_from_all_and_spaced_in_evaluation() -> None:
    """Every position is met; evaluation takes every stride-th, and says where they end."""
    counting, ids = PositionIds(randomized=30, stride=2), torch.ones(1, 8, dtype=torch.int64)
    drawn: set[int] = set()
    for _ in range(60):  # that one of 30 is never among 8 drawn: 3 in 10 million
        drawn |= set(counting(ids, training=True).source.index.flatten().tolist())
    assert drawn == set(range(30))
    count = counting(ids, training=False)
    assert count.source.index.flatten().tolist() == list(range(0, 16, 2))
    assert count.target(6, 2).index.flatten().tolist() == [12, 14]
    assert counting.longest(None) == 15
    counting.check_length(15)
    with pytest.raises(
        SequenceTooLong, match=r"16 positions .* set pe.random_positions=31 or more"
    ):
        counting(torch.ones(1, 16, dtype=torch.int64), training=False)


def test_a_table_must_reach_where_counting_leads() -> None:
    """A moved table serves what its last rows leave; a randomised one must hold every draw."""
    moved = Transformer(9, 9, 8, 1, 2, 8, pe="learned", pe_settings={"max_len": 20},
                        counting=PositionIds(moved=5))  # fmt: skip
    assert moved.max_positions == 15
    moved.check_length(15)
    with pytest.raises(SequenceTooLong, match="a sequence of 21 positions"):
        moved.check_length(16)
    with pytest.raises(SequenceTooLong, match="a sequence of 30 positions"):
        Transformer(9, 9, 8, 1, 2, 8, pe="learned", pe_settings={"max_len": 20},
                    counting=PositionIds(randomized=30))  # fmt: skip


def test_decoding_asks_for_what_it_cannot_know() -> None:
    """Where ids or a draw decide positions, decode() takes them from count, or refuses."""
    src, tgt = padded([[4, 5, 6], [7, 8]]), torch.tensor([[1, 4], [1, 5]])
    for counting, training in (
        (PositionIds(origin="end"), False), (PositionIds(restart=PLUS), False), (PositionIds(moved=4), True)
    ):  # fmt: skip
        model = Transformer(9, 9, 8, 1, 2, 8, dropout=0.0, counting=counting).train(training)
        count = model.count(src)
        memory = model.encode(src, count=count)
        with pytest.raises(ValueError, match=r"decode\(\) needs count=model.count\(src\)"):
            model.decode(tgt, memory)
        assert model.decode(tgt, memory, count=count).isfinite().all()
    model = Transformer(9, 9, 8, 1, 2, 8, counting=PositionIds(moved=4)).eval()
    memory = model.encode(src)
    assert torch.equal(model.decode(tgt, memory), model.decode(tgt, memory, count=model.count(src)))


@pytest.mark.parametrize("kind", RELATIVE)
def test_distances_from_the_end_make_reverse_a_copy(kind: str) -> None:
    """Between target t and the source's t-th symbol from the end lies distance 0, at any length.

    So cross-attention scores a source counted from its end as those of its mirror image counted
    from its start.
    """
    model = Transformer(11, 11, 8, 2, 2, 16, pe=kind, cross="same", seed=0).double().eval()
    generator = torch.Generator().manual_seed(0)
    memory = torch.randn(1, 6, 8, dtype=torch.float64, generator=generator)
    tgt = torch.tensor([[1, 5, 4, 7]])
    ids = torch.full((1, 6), 4)
    ends = PositionIds(origin="end")(ids, training=False, num_heads=2)
    starts = PositionIds()(ids, training=False, num_heads=2)
    torch.testing.assert_close(
        model.decode(tgt, memory, count=ends), model.decode(tgt, memory.flip(1), count=starts)
    )


def encodings(kind: str, cross: str | None = None, heads: int = 2) -> list[Encoding | None]:
    """The encoder's encoding, and that of cross-attention."""
    between = build_encoding(cross, EncodingContext(8, heads, role="cross")) if cross else None
    return [build_encoding(kind, EncodingContext(8, heads)), between]


@pytest.mark.parametrize(
    ("given_", "used", "message"),
    [
        ({"origin": "middle"}, None, "pe.origin=middle does not exist; choose one of start, end"),
        ({"target_origin": "end"}, None, "pe.target_origin=end would need the length of a target"),
        ({"moved": 2**40}, None, "pe.max_shift=1099511627776 must be at least 0 and at most"),
        ({"stride": 10, "randomized": 9}, None, "pe.stride=10 must be 1 without"),
        ({"moved": 3, "randomized": 9}, None, "pe.max_shift=3 and pe.random_positions=9 exclude each other"),
        ({"moved": 3}, ("t5",), "pe.max_shift=3 moves all positions alike, and pe.kind=t5 sees"),
        ({"origin": "end"}, ("alibi",), "pe.origin=end mirrors the distances within the source"),
        ({"origin": "both"}, ("learned", None, 1), "pe.origin=both divides the heads between"),
        ({"origin": "end"}, ("none",), "pe.kind=none counts no positions"),
        ({"randomized": 300}, ("learned",), "a sequence of 300 positions does not fit the learned"),
    ],
)  # fmt: skip
def test_what_would_have_no_effect_is_refused(
    given_: dict[str, Any], used: tuple[Any, ...] | None, message: str
) -> None:
    """The key, the value, and what to do instead."""
    with pytest.raises(ValueError, match=f"^{message}"):
        counting = PositionIds(**given_)
        counting.check(*encodings(*used or ("sinusoidal",)))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ABSOLUTE)
@pytest.mark.parametrize("origin", PositionIds.ORIGINS)
def test_what_has_an_effect_is_not_refused(kind: str, origin: str) -> None:
    """Every absolute encoding may be counted from anywhere, and so may every distance between."""
    for each in (
        PositionIds(origin=origin),
        PositionIds(origin=origin, moved=3),
        PositionIds(restart=1),
    ):
        each.check(*encodings(kind))  # type: ignore[arg-type]
    PositionIds(origin=origin).check(*encodings("t5", "t5"))  # type: ignore[arg-type]
    PositionIds(origin=origin).check(*encodings("none", "shaw"))  # type: ignore[arg-type]


def test_nested_dropout_keeps_the_first_dimensions() -> None:
    """Each example keeps a prefix of its dimensions, of every length; evaluation keeps all."""
    encoding = build_encoding("sinusoidal_nested", EncodingContext(12, dropout=0.0)).train()
    out = encoding(torch.full((400, 2, 12), 9.0))  # 9 plus a sine is never 0
    kept = (out != 0).sum(-1)
    assert (kept == kept[:, :1]).all() and set(kept[:, 0].tolist()) == set(range(1, 13))
    assert ((out != 0).int().diff(dim=-1) <= 0).all()
    assert (encoding.eval()(torch.full((4, 2, 12), 9.0)) != 0).all()


def test_a_second_encoding_of_the_same_has_the_same_settings() -> None:
    """And numbers of its own; another kind has its defaults."""
    same = Transformer(9, 9, 8, 1, 2, 8, pe="shaw", pe_settings={"clip": 3}, cross="same", seed=0)
    between, encoder = same.cross_position, same.src_position
    assert between.table.shape == encoder.table.shape == (7, 4)  # type: ignore[union-attr]
    assert not torch.equal(between.table, encoder.table)  # type: ignore[union-attr, arg-type]
    other = Transformer(9, 9, 8, 1, 2, 8, pe="learned", pe_settings={"max_len": 9}, cross="shaw")
    assert other.cross_position.table.shape == (33, 4)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("pe", "cross", "message"),
    [
        ("sinusoidal", "same", "pe.cross=same: sinusoidal has no part in attention, and between"),
        ("cope", "same", "pe.cross=same: cope has no part in attention"),
        ("t5", "tee5", "pe.cross=tee5: tee5 does not exist, and between"),
    ],
)
def test_cross_attention_takes_relative_encodings_alone(pe: str, cross: str, message: str) -> None:
    """The key, the value, the choices."""
    with pytest.raises(ValueError, match=f"^{message}.* choose none or one of .*shaw"):
        Transformer(9, 9, 8, 1, 2, 8, pe=pe, cross=cross)


def test_the_word_after_which_counting_restarts_is_looked_up(tiny) -> None:
    """pe.reset_token is a word of the task; one that is none would change nothing, and is refused."""
    for word, same in (("+", False), ("null", True)):
        config = tiny("task=addition", "pe=sinusoidal", f"pe.reset_token={word}")
        tokenizer = build_task(config).tokenizer({})  # type: ignore[arg-type]
        model = build_model(config, tokenizer)
        ids = torch.tensor([tokenizer.encode("3 4 + 5 6").ids])
        straight = torch.arange(5)[None, None]
        assert torch.equal(model.count(ids).source.index, straight) == same
    config = tiny("task=letters", "pe.reset_token=+")
    with pytest.raises(UserError, match=r"^pe.reset_token=\+ is no word of this task's vocabulary"):
        build_model(config, build_task(config).tokenizer({}))  # type: ignore[arg-type]
