"""Tests of the sinusoid, its designs, the learned table and subclasses."""

import math
import re
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from wawa_transformer import PositionalEncoding, Transformer
from wawa_transformer.common.messages import UserError
from wawa_transformer.positional import build_encoding
from wawa_transformer.positional.base import ENCODINGS, ROLES, EncodingContext, Positions
from wawa_transformer.positional.sinusoid_designs import SinusoidDesign


def table(length: int, d_model: int, **design: Any) -> Tensor:
    """Get what the sinusoid or a design adds: ``(length, d_model)``."""
    cls = SinusoidDesign if design else PositionalEncoding
    return cls(d_model, 2, 0.0, **design)(torch.zeros(1, length, d_model))[0]


@settings(max_examples=25)
@given(st.integers(1, 65), st.integers(0, 20_000), st.data())
def test_the_table_is_the_papers_formula(d_model: int, position: int, data: st.DataObject) -> None:
    """Every entry is the paper's value, computed in float64."""
    dimension = data.draw(st.integers(0, d_model - 1))
    found = table(position + 1, d_model)
    assert found.shape == (position + 1, d_model)
    # Vaswani et al. 2017, section 3.5, with the power and not the exponential.
    angle = position / 10000.0 ** (2 * (dimension // 2) / d_model)
    expected = math.cos(angle) if dimension % 2 else math.sin(angle)
    # Half a float32 step below 1, and the float64 rounding of an angle of this size.
    assert found[position, dimension].item() == pytest.approx(expected, abs=6e-8 + 1e-11)


def test_the_contract_of_the_buffer() -> None:
    encoding = PositionalEncoding(32, max_len=600, dropout=0.0)
    assert encoding.pe.shape == (1, 600, 32) and encoding.pe.dtype == torch.float32
    assert not list(encoding.parameters()) and not encoding.state_dict()
    assert not encoding.pe.requires_grad
    PositionalEncoding(32, max_len=7).load_state_dict(encoding.state_dict())
    encoding.bfloat16()
    assert encoding(torch.zeros(1, 600, 32, dtype=torch.bfloat16)).dtype == torch.bfloat16
    assert torch.equal(encoding.pe[0], table(600, 32))


@pytest.mark.parametrize("kind", ["sinusoidal", "learned", "none"])
def test_forward_adds_the_table_and_then_drops_out(kind: str) -> None:
    encoding: Any = build_encoding(kind, EncodingContext(6, dropout=0.3))
    x = torch.randn(2, 5, 6)
    rows = {"sinusoidal": lambda: table(5, 6), "learned": lambda: encoding.table[:5]}
    total = x + rows.get(kind, lambda: torch.zeros(5, 6))()
    assert torch.equal(encoding.eval()(x), total)
    torch.manual_seed(1)
    dropped = encoding.train()(x)
    torch.manual_seed(1)
    assert torch.equal(dropped, nn.Dropout(0.3)(total)) and (dropped == 0).any()


@settings(max_examples=20)
@given(st.data())
def test_each_token_gets_the_row_of_its_own_position(data: st.DataObject) -> None:
    """Each token has the table's row of its own position."""
    rows, num_heads = data.draw(st.sampled_from([1, 3])), data.draw(st.sampled_from([1, 2, 3]))
    one = st.lists(st.integers(0, 30), min_size=5, max_size=5)
    ids = torch.tensor([[data.draw(one) for _ in range(num_heads)] for _ in range(rows)])
    for kind, d_model in (("sinusoidal", 7), ("learned", 12)):
        encoding: Any = build_encoding(kind, EncodingContext(d_model, dropout=0.0))
        values = encoding.pe[0] if kind == "sinusoidal" else encoding.table
        added = encoding(torch.zeros(3, 5, d_model), Positions(ids, 31))
        for b, s, d in ((0, 0, 0), (2, 4, d_model - 1), (1, 3, 4), (2, 1, 3)):
            assert added[b, s, d] == values[ids[b % rows, d // 2 % num_heads, s], d]


def test_a_linear_encoding_is_the_position_times_a_vector() -> None:
    """Also where positions are divided by a length, and where heads count from both ends."""
    encoding: Any = build_encoding("linear", EncodingContext(8, dropout=0.0))
    for ids in ([[0, 1, 2]], [[0.0, 0.5, 1.0]], [[0, 1, 2], [2, 1, 0]]):
        at = torch.tensor([ids])  # (1,H,S)
        added = encoding(torch.ones(1, 3, 8), Positions(at, 3))
        vector = encoding.direction.tolist()
        for s, d in ((0, 0), (1, 3), (2, 2), (0, 7)):
            position = ids[d // 2 % len(ids)][s]
            assert added[0, s, d].item() == pytest.approx(1 + position * vector[d])
    model = Transformer(9, 9, 8, 1, 2, 16, pe="linear", divided=1.0, seed=0)
    at = model.batch_positions(torch.tensor([[4, 5, 6, 7], [4, 5, 0, 0]])).source
    assert at.ids[:, 0, :2].tolist() == [[0, 0.25], [0, 0.5]]


def test_a_concatenated_sinusoid_leaves_the_token_its_own_half() -> None:
    encoding = build_encoding("sinusoidal_concatenated", EncodingContext(12, dropout=0.0))
    x = torch.randn(2, 5, 12)
    expected = torch.cat((x[..., :6], table(5, 6).expand(2, 5, 6)), dim=-1)
    assert torch.equal(encoding(x), expected)
    with pytest.raises(UserError, match="halves model.d_model=7; make it even"):
        build_encoding("sinusoidal_concatenated", EncodingContext(7))


def test_nested_dropout_keeps_the_first_dimensions() -> None:
    encoding = build_encoding("sinusoidal_nested", EncodingContext(12, dropout=0.0)).train()
    out = encoding(torch.full((400, 2, 12), 9.0))  # 9 plus a sine is never 0
    kept = (out != 0).sum(-1)
    assert (kept == kept[:, :1]).all() and set(kept[:, 0].tolist()) == set(range(1, 13))
    assert ((out != 0).int().diff(dim=-1) <= 0).all()
    assert (encoding.eval()(torch.full((4, 2, 12), 9.0)) != 0).all()


def test_a_subclass_needs_no_kind() -> None:
    before = dict(ENCODINGS)

    class Louder(PositionalEncoding):
        def __init__(self, width: int, volume: float) -> None:
            super().__init__(width, max_len=5, dropout=0.0)
            self.volume = nn.Parameter(torch.tensor(volume))

        def embed(self, x: Tensor, positions: Positions) -> Tensor:
            return x + self.volume * self.rows(self.table(positions.end), positions.ids)

    x = torch.randn(2, 7, 6)
    assert torch.equal(Louder(6, 2.0)(x), x + 2 * table(7, 6))
    assert list(Louder(6, 2.0).state_dict()) == ["volume"]
    assert before == ENCODINGS


# Each design of the sinusoid, and the frequency of its dimension i at width d.
DESIGNS: dict[str, tuple[dict[str, Any], Any]] = {
    "base1e6": ({"base": 1e6}, lambda i, d: 1e6 ** (-2 * (i // 2) / d)),
    "exponential": ({"spacing": "exponential"}, lambda i, d: math.exp(-(i // 2))),
    "fairseq": ({"spacing": "fairseq"}, lambda i, d: 10000.0 ** (-(i // 2) / (d // 2 - 1))),
    "textbook": ({"spacing": "textbook"}, lambda i, d: 10000.0 ** (-i / d)),
    "divided": ({"spacing": "divided"}, lambda i, d: 10000.0 ** (2 * (i // 2) / d)),
    "rising": ({"order": "rising"}, lambda i, d: 10000.0 ** (-2 * (d // 2 - 1 - i // 2) / d)),
    "linear": (
        {"spacing": "linear"},
        lambda i, d: 1 - (1 - 10000.0 ** (-(d - 2) / d)) * (i // 2) / (d // 2 - 1),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DESIGNS)
@pytest.mark.parametrize("d_model", [4, 10, 64])
def test_designs_of_the_sinusoid(name: str, d_model: int) -> None:
    design, frequency = DESIGNS[name]
    found = table(60, d_model, **design)
    for position in (0, 1, 17, 59):
        for i in range(d_model):
            angle = position * frequency(i, d_model)
            expected = math.cos(angle) if i % 2 else math.sin(angle)
            assert found[position, i].item() == pytest.approx(expected, abs=1e-6)


def test_designs_that_only_move_columns_or_leave_some_out() -> None:
    """Layout and order move columns; the two bands sum to the whole."""
    paper = table(40, 12)
    concatenated = table(40, 12, layout="concatenated")
    assert torch.equal(concatenated, torch.cat((paper[:, 0::2], paper[:, 1::2]), dim=1))
    permuted = table(40, 12, order="permuted")
    pairs = [paper[:, i : i + 2].tolist() for i in range(0, 12, 2)]
    found = [pairs.index(permuted[:, i : i + 2].tolist()) for i in range(0, 12, 2)]
    # The order was drawn once with seed 0. Another order would break old checkpoints.
    assert found == [2, 5, 3, 0, 1, 4]
    fast, slow = (table(30, 10, band=band) for band in ("fast", "slow"))
    assert torch.equal(fast + slow, table(30, 10))
    assert (fast[:, 5:] == 0).all() and (slow[:, :5] == 0).all()


@pytest.mark.parametrize(
    ("kind", "setting", "value", "message"),
    [
        ("sinusoidal", "max_len", -5, "must be at least 1 and at most 1,000,000"),
        ("sinusoid_design", "base", 1.0, "must be greater than 1 and less than inf"),
        ("sinusoid_design", "band", "mixed", "does not exist; choose one of [a-z]+,"),
        ("learned", "max_len", 2**40, "must be at least 1 and at most 1,000,000"),
        ("kerple", "form", "mixed", "does not exist; choose one of log, power"),
        ("t5", "num_buckets", 7, "must be even"),
        ("shaw", "max_distance", 2**40, "must be at least 1 and at most 1,000,000"),
    ],
)
def test_impossible_settings(kind: str, setting: str, value: Any, message: str) -> None:
    """The message names the key, the value and the limit."""
    sentence = f"^pe.{setting}={re.escape(str(value))} {message}"
    for role in ROLES:
        for device in ("cpu", "meta"):
            with torch.device(device), pytest.raises(ValueError, match=sentence):
                build_encoding(kind, EncodingContext(8, role=role), {setting: value})


def test_other_refusals() -> None:
    with pytest.raises(ValueError, match="pe.max_distance=3 greater than 8"):
        build_encoding("t5", EncodingContext(8), {"max_distance": 3})
    with pytest.raises(ValueError, match=r"model.d_model=12 over model.num_heads=4 .* width 3"):
        build_encoding("rotary", EncodingContext(12, 4))
    for wrong in (torch.zeros(2, 3, 4), torch.zeros(3, 8), torch.zeros(2, 3, 8, dtype=torch.int64)):
        with pytest.raises(ValueError, match=r"^need floats \(batch, seq, 8\), got torch\."):
            PositionalEncoding(8).eval()(wrong)
    with pytest.raises(ValueError, match="dropout=None must be a number"):
        PositionalEncoding(8, dropout=None)  # type: ignore[arg-type]
    for wrong in ({"d_model": 8.0}, {"d_model": 8, "max_len": 9.5}):
        with pytest.raises(ValueError, match=r"=(8.0|9.5) must be a whole number\.$"):
            PositionalEncoding(**wrong)  # type: ignore[arg-type]
