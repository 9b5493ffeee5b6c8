"""Encodings against their formulas, and the promise that nothing else changes between them."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
import torch
from conftest import MODELS
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from wawa_transformer import PositionalEncoding, Transformer
from wawa_transformer.positional import build_encoding
from wawa_transformer.positional.base import (
    ENCODINGS,
    ROLES,
    Encoding,
    EncodingContext,
    NoEncoding,
    Positions,
    SequenceTooLong,
    consecutive,
)
from wawa_transformer.positional.learned import LearnedEncoding
from wawa_transformer.positional.sinusoid_designs import BANDS, LAYOUTS, ORDERS, SPACINGS
from wawa_transformer.positional.sinusoidal import sinusoid_table


def formula(position: int, dimension: int, d_model: int) -> float:
    """Vaswani et al. 2017, section 3.5, in float64 with the power and not the exponential."""
    angle = position / 10000.0 ** (2 * (dimension // 2) / d_model)
    return math.cos(angle) if dimension % 2 else math.sin(angle)


@settings(max_examples=25)
@given(st.integers(1, 65), st.integers(0, 20_000), st.data())
def test_the_table_is_the_papers_formula(d_model: int, position: int, data: st.DataObject) -> None:
    """Every entry is the float64 value rounded to float32, odd widths and far positions too."""
    dimension = data.draw(st.integers(0, d_model - 1))
    table = sinusoid_table(position + 1, d_model)
    assert table.shape == (1, position + 1, d_model)
    expected = formula(position, dimension, d_model)
    # Half a float32 step below 1, and the float64 rounding of an angle of this size.
    assert table[0, position, dimension].item() == pytest.approx(expected, abs=6e-8 + 1e-11)


def test_the_contract_of_the_buffer() -> None:
    """``pe`` is a float32 buffer (1, max_len, d_model) that is neither trained nor saved."""
    encoding = PositionalEncoding(16, max_len=50)
    assert encoding.pe.shape == (1, 50, 16) and encoding.pe.dtype == torch.float32
    assert not list(encoding.parameters()) and not encoding.state_dict()
    assert not encoding.pe.requires_grad
    PositionalEncoding(16, max_len=7).load_state_dict(encoding.state_dict())


def test_forward_adds_the_table_and_then_drops_out() -> None:
    """``dropout(x + pe)``: exactly the sum in evaluation, our dropout of the sum in training."""
    encoding, x = PositionalEncoding(6, dropout=0.3), torch.randn(2, 5, 6)
    total = x + sinusoid_table(5, 6)
    assert torch.equal(encoding.eval()(x), total)
    torch.manual_seed(1)
    ours = encoding.train()(x)
    torch.manual_seed(1)
    assert torch.equal(ours, Dropout(0.3)(total))


@pytest.mark.parametrize(
    "design",
    [
        {}, {"base": 100.0}, {"spacing": "linear"}, {"spacing": "textbook"}, {"order": "rising"},
        {"order": "permuted"}, {"layout": "concatenated"}, {"band": "fast"}, {"band": "slow"},
        {"stretch": 2.0}, {"spacing": "fairseq"}, {"spacing": "divided"},
    ],
)  # fmt: skip
def test_a_longer_input_grows_the_table(design: dict[str, Any]) -> None:
    """A formula has no last position; growing gives what a longer table of its design holds."""
    short, long = (PositionalEncoding(8, length, 0.0, **design) for length in (4, 100))
    x = torch.zeros(1, 50, 8)
    assert torch.equal(short(x), long(x))
    assert short.pe.size(1) >= 50
    paper = PositionalEncoding(8, 100, 0.0)(x)
    assert torch.equal(long(x), paper) == (not design), "the design must show in the values"


@settings(max_examples=20)
@given(st.data())
def test_each_token_gets_the_row_of_its_own_position(data: st.DataObject) -> None:
    """Rows and heads may stand elsewhere; a pair of dimensions follows the head of its turn."""
    rows, heads = data.draw(st.sampled_from([1, 3])), data.draw(st.sampled_from([1, 2, 3]))
    places = st.lists(st.integers(0, 30), min_size=5, max_size=5)
    index = torch.tensor([[data.draw(places) for _ in range(heads)] for _ in range(rows)])
    for kind, d_model in (("sinusoidal", 7), ("learned", 12)):
        encoding: Any = build_encoding(kind, EncodingContext(d_model, dropout=0.0))
        table = encoding.pe[0] if kind == "sinusoidal" else encoding.table
        added = encoding(torch.zeros(3, 5, d_model), Positions(index, 31))
        for b, s, d in ((0, 0, 0), (2, 4, d_model - 1), (1, 3, 4), (2, 1, 3)):
            stands = index[b % rows, d // 2 % heads, s]
            assert added[b, s, d] == table[stands, d]


def test_half_precision_keeps_the_float32_table() -> None:
    """The model may be cast and cast back; the sum comes in the input's dtype."""
    encoding = PositionalEncoding(32, 600, 0.0).bfloat16()
    assert encoding.pe.dtype == torch.float32
    assert encoding(torch.zeros(1, 600, 32, dtype=torch.bfloat16)).dtype == torch.bfloat16
    assert torch.equal(encoding.float().pe, sinusoid_table(600, 32))


def test_wrong_shapes_are_named() -> None:
    """An input of another width or rank would broadcast silently; it is refused instead."""
    with pytest.raises(ValueError, match=r"d_model=8\), got \(2, 3, 4\)"):
        PositionalEncoding(8)(torch.zeros(2, 3, 4))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"d_model": 0}, "d_model=0 must be at least 1 and at most 65,536"),
        ({"dropout": 1.0}, "dropout=1.0 must be at least 0 and less than 1"),
        ({"max_len": 0.1}, "pe.max_len=0.1 must be at least 1"),  # others take dropout second
    ],
)
def test_an_encoding_alone_checks_what_a_model_would(given: dict[str, Any], message: str) -> None:
    """Used without a model, there is no model to have refused a size."""
    with pytest.raises(ValueError, match=f"^{message}"):
        PositionalEncoding(**{"d_model": 8, **given})


@pytest.mark.parametrize("elsewhere", [{"seq_len": 10}, {"batch_first": False}])
def test_arguments_it_has_elsewhere_are_answered(elsewhere: dict[str, Any]) -> None:
    """By name, with what to do here; they are in no signature, and so no setting either."""
    [name] = elsewhere
    answer = {"seq_len": "max_len", "batch_first": r"x\.transpose\(0, 1\)"}[name]
    with pytest.raises(TypeError, match=f"^{name} is .*{answer}"):
        PositionalEncoding(8, **elsewhere)


def test_a_subclass_needs_no_name() -> None:
    """Without a kind it is an ordinary class: not registered, arguments and steps of its own."""
    before = dict(ENCODINGS)

    class Louder(PositionalEncoding):
        def __init__(self, width: int, volume: float) -> None:
            super().__init__(width, max_len=5, dropout=0.0)
            self.volume = nn.Parameter(torch.tensor(volume))

        def embed(self, x: Tensor, at: Positions) -> Tensor:
            return x + self.volume * self.rows(self.table(at.end), at.index)

    class Same(PositionalEncoding):
        pass

    x = torch.randn(2, 7, 6)
    assert torch.equal(Louder(6, 2.0)(x), x + 2 * sinusoid_table(7, 6))
    assert torch.equal(Same(6, dropout=0.0)(x), x + sinusoid_table(7, 6))
    assert list(Louder(6, 2.0).state_dict()) == ["volume"]
    assert before == ENCODINGS


def test_a_learned_table_that_is_too_short() -> None:
    """The error names both lengths and the configuration key."""
    with pytest.raises(SequenceTooLong, match=r"9 positions .* pe.max_len=8; set pe.max_len=9"):
        LearnedEncoding(4, max_len=8)(torch.zeros(1, 9, 4))


def test_no_encoding_only_drops_out() -> None:
    """All three doors are shut; dropout stays, since the ablation removes positions alone."""
    encoding, x = NoEncoding(EncodingContext(4, dropout=0.5)), torch.ones(1, 400, 4)
    assert torch.equal(encoding.eval()(x), x)
    at = consecutive(400)
    assert encoding.bias(x, x, at, at) is None and encoding.rotate(x, x, at, at) == (x, x)
    dropped = encoding.train()(x)
    assert set(dropped.unique().tolist()) == {0.0, 2.0}


@settings(max_examples=5)
@given(st.integers(0, 2**40))
def test_shared_parameters_start_equal(seed: int) -> None:
    """Under one seed every parameter two encodings share starts with the same bits."""
    models = {
        name: Transformer(9, 11, 8, 2, 2, 16, **arguments, seed=seed)
        for name, arguments in MODELS.items()
    }
    base = dict(models["none"].named_parameters())
    for model in models.values():
        own = dict(model.named_parameters())
        assert base.keys() <= own.keys()
        assert all(torch.equal(own[name], value) for name, value in base.items())
    other = Transformer(9, 11, 8, 2, 2, 16, pe="none", seed=seed + 1)
    assert not torch.equal(other.output.weight, models["none"].output.weight)


def test_a_new_encoding_is_one_class() -> None:
    """Defining the class is enough for the model to use it, through any of the three doors."""
    try:

        class Distance(Encoding, kind="distance"):
            def __init__(self, place: EncodingContext, slope: float = 1.0) -> None:
                super().__init__(place)
                self.slope = slope

            def bias(self, q: Tensor, k: Tensor, query: Positions, key: Positions) -> Tensor:
                far = query.index[..., :, None] - key.index[..., None, :]  # (1,1,Q,K)
                return -self.slope * far.abs().to(q.dtype)

        model = Transformer(
            9, 9, 8, 1, 2, 16, pe="distance", pe_settings={"slope": 2.0}, seed=0
        ).eval()
        assert model.tgt_position.context.causal and not model.src_position.context.causal
        src = torch.tensor([[1, 2, 3, 4, 5, 6], [8, 7, 6, 5, 4, 3]])
        memory, mirrored = model.encode(src), model.encode(src.flip(1)).flip(1)
        plain = Transformer(9, 9, 8, 1, 2, 16, pe="none", seed=0).eval()
        torch.testing.assert_close(memory, mirrored)  # a symmetric bias cannot tell left from right
        assert not torch.allclose(memory, model.encode(src[:, torch.tensor([1, 0, 2, 3, 4, 5])]))
        assert memory.shape == plain.encode(src).shape
    finally:
        ENCODINGS.pop("distance", None)


def test_an_unknown_encoding_names_the_choices() -> None:
    """The registry is the list of choices."""
    with pytest.raises(
        ValueError, match="pe=rotery does not exist; choose one of none, sinusoidal"
    ):
        build_encoding("rotery", EncodingContext(8))


DESIGNS = {
    "base100": ({"base": 100.0}, lambda i, d: 100.0 ** (-2 * (i // 2) / d)),
    "base1e6": ({"base": 1e6}, lambda i, d: 1e6 ** (-2 * (i // 2) / d)),
    "exponential": ({"spacing": "exponential"}, lambda i, d: math.exp(-(i // 2))),
    "stretched": ({"stretch": 4.0}, lambda i, d: 10000.0 ** (-2 * (i // 2) / d) / 4),
    "fairseq": (
        {"spacing": "fairseq"}, lambda i, d: 10000.0 ** (-(i // 2) / (d // 2 - 1)),
    ),
    "textbook": ({"spacing": "textbook"}, lambda i, d: 10000.0 ** (-i / d)),
    "rising": ({"order": "rising"}, lambda i, d: 10000.0 ** (-2 * (d // 2 - 1 - i // 2) / d)),
    "linear": (
        {"spacing": "linear"},
        lambda i, d: 1 - (1 - 10000.0 ** (-(d - 2) / d)) * (i // 2) / (d // 2 - 1),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(DESIGNS))
@pytest.mark.parametrize("d_model", [4, 10, 64])
def test_designs_of_the_sinusoid(name: str, d_model: int) -> None:
    """Each spacing, base and order against one scalar formula for the frequency of a dimension."""
    design, frequency = DESIGNS[name]
    table = sinusoid_table(60, d_model, **design)[0]
    for position in (0, 1, 17, 59):
        for i in range(d_model):
            angle = position * frequency(i, d_model)
            expected = math.cos(angle) if i % 2 else math.sin(angle)
            assert table[position, i].item() == pytest.approx(expected, abs=1e-6)


def test_order_and_layout_only_move_columns() -> None:
    """The same columns in another order, and a sine's cosine still next to it."""
    paper = sinusoid_table(40, 12)[0]
    concatenated = sinusoid_table(40, 12, layout="concatenated")[0]
    assert torch.equal(concatenated, torch.cat((paper[:, 0::2], paper[:, 1::2]), dim=1))
    permuted = sinusoid_table(40, 12, order="permuted")[0]
    pairs = [paper[:, i : i + 2].tolist() for i in range(0, 12, 2)]
    found = [pairs.index(permuted[:, i : i + 2].tolist()) for i in range(0, 12, 2)]
    # Drawn once with seed 0 and kept: another order would be another encoding for old checkpoints.
    assert found == [2, 5, 3, 0, 1, 4]


def test_a_band_leaves_half_of_the_dimensions() -> None:
    """Fast and slow add up to the whole; the lower dimensions are the fast ones."""
    fast, slow = (sinusoid_table(30, 10, band=band)[0] for band in ("fast", "slow"))
    assert torch.equal(fast + slow, sinusoid_table(30, 10)[0])
    assert (fast[:, 5:] == 0).all() and (slow[:, :5] == 0).all()


IMPOSSIBLE = [
    ("sinusoidal", "max_len", -5, "at least 1 and at most 1,000,000"),
    ("sinusoidal", "base", 1.0, "greater than 1 and finite"),
    ("sinusoidal", "stretch", math.nan, "at least 1e-06"),
    ("sinusoidal_nested", "max_len", 0, "at least 1"),
    ("learned", "max_len", 2**40, "at least 1 and at most 1,000,000"),
    ("learned", "init_std", -1.0, "at least 0 and at most 1,000"),
    ("rotary", "base", math.inf, "greater than 1 and finite"),
    ("rotary", "stretch", 0.0, "at least 1e-06"),
    ("rotary", "p", 1.5, "at least 0 and at most 1"),
    ("rotary", "fraction", math.nan, "at least 0 and at most 1"),
    ("fire", "width", 0, "at least 1"),
    ("fire", "threshold", 0.5, "at least 1"),
    ("fire", "scale", math.nan, "at least 1e-06"),
    ("cope", "num_positions", 1, "at least 2"),
    ("transformer_xl", "base", -2.0, "greater than 1"),
    ("t5", "num_buckets", 2, "at least 4"),
    ("t5", "max_distance", 2**40, "at least 1 and at most 1,000,000"),
    ("shaw", "clip", 2**40, "at least 1 and at most 1,000,000"),
]


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize(("kind", "setting", "value", "limit"), IMPOSSIBLE)
def test_impossible_settings(
    device: str, kind: str, setting: str, value: float, limit: str
) -> None:
    """The key, the value, the limit, from every encoding and in every place that has it.

    On the device without memory, too, where a size that is refused too late would be served.
    """
    for role in ROLES:
        sentence = f"^pe.{setting}={re.escape(str(value))} must be {limit}"
        with torch.device(device), pytest.raises(ValueError, match=sentence):
            build_encoding(kind, EncodingContext(8, role=role), {setting: value})


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        *(("sinusoidal", word) for word in ("spacing", "order", "layout", "band")),
        ("kerple", "form"),
    ],
)
def test_an_unknown_design_names_the_choices(kind: str, word: str) -> None:
    """The key, the value, and what there is."""
    with pytest.raises(ValueError, match=f"^pe.{word}=mixed does not exist; choose one of [a-z]+,"):
        build_encoding(kind, EncodingContext(8), {word: "mixed"})


@pytest.mark.parametrize("kind", sorted(ENCODINGS))
def test_settings_can_be_checked_without_memory(kind: str) -> None:
    """Every encoding, and every design of the sinusoid, can be constructed on the meta device."""
    designs: list[dict[str, Any]] = [{}]
    if kind == "sinusoidal":
        words = {"spacing": SPACINGS, "order": ORDERS, "layout": LAYOUTS, "band": BANDS}
        designs += [{name: word} for name, choices in words.items() for word in choices]
        designs += [{"max_len": 1_000_000}]
    for design in designs:
        for role in ROLES:
            with torch.device("meta"):
                encoding = build_encoding(kind, EncodingContext(64, 4, 0.1, role), design)
            held = [*encoding.parameters(), *encoding.buffers()]
            assert all(tensor.is_meta for tensor in held)
