"""An accelerated model against the plain one: outputs, all gradients, and what stays as it is."""

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from conftest import MODELS, assert_same_but_for_rounding, curves
from core.helpers import FF, HEADS, LAYERS, D, V, padded_ids
from torch import Tensor, nn

from wawa_transformer import Transformer
from wawa_transformer.fast import accelerate, attention, linear, loss, positional
from wawa_transformer.fast.attention import FastAttention, sdpa
from wawa_transformer.fast.dropout import LEVELS, FastDropout, draw_mask
from wawa_transformer.fast.linear import PACKED, FastLinear
from wawa_transformer.fast.positional import FastRelative
from wawa_transformer.model.masks import causal_mask, padding_mask
from wawa_transformer.positional.base import ENCODINGS, Encoding, EncodingContext, Positions
from wawa_transformer.positional.relative import RelativeEncoding
from wawa_transformer.run.run_dir import Run
from wawa_transformer.train.load import load_model
from wawa_transformer.train.setup import build_state
from wawa_transformer.train.tracking import attention_maps
from wawa_transformer.train.trainer import train


@pytest.fixture
def lowered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small tensors go every way that large ones go, on any processor."""
    monkeypatch.setattr(attention, "MAX_SCORES", 1)
    monkeypatch.setattr(attention, "MIN_ROWS", 2)
    monkeypatch.setattr(positional, "MANY_PAIRS", 1)
    monkeypatch.setattr(loss, "MANY_WORDS", 1)
    monkeypatch.setattr(loss, "CHUNK", 1)
    monkeypatch.setattr(loss, "MIN_ROWS", 4)
    if hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        monkeypatch.setattr(linear, "MIN_MULTIPLICATIONS", 1)
        monkeypatch.setattr(linear, "mkl_is_slow", lambda: True)


class SameMasks(nn.Dropout):
    """Plain dropout with the masks of FastDropout."""

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or not self.p:
            return x
        return x * draw_mask(x.shape, round(self.p * LEVELS), x.dtype)


def plain_and_fast(name: str, dtype: torch.dtype = torch.float64, **changes: Any) -> Any:
    """An entry of MODELS and its accelerated copy; no parameter is 0 or 1."""
    plain = Transformer(V, V, D, LAYERS, HEADS, FF, seed=3, **{**MODELS[name], **changes})
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in plain.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) / 5)
    plain.to(dtype)
    fast = copy.deepcopy(plain)
    accelerate(fast)
    for module in plain.modules():
        if type(module) is nn.Dropout:
            module.__class__ = SameMasks
    return plain, fast


def batch(source: int, target: int) -> tuple[Tensor, Tensor, Tensor]:
    """Five pairs with padding on both sides; the first source is padding alone."""
    src, tgt, targets = (padded_ids(5, n, n) for n in (source, target, target))
    src[0] = 0
    return src, tgt, targets


def outcome(model: Transformer, causal: bool, *ids: Tensor) -> dict[str, Tensor]:
    """Logits, loss, NLL and every gradient, of one draw of dropout and positions."""
    src, tgt, targets = ids
    mask = causal_mask(tgt.size(1)) if causal else None
    torch.manual_seed(7)
    with torch.no_grad():
        logits = model(src, tgt, tgt_mask=mask)
    torch.manual_seed(7)
    loss, nll = model(src, tgt, tgt_mask=mask, targets=targets, label_smoothing=0.1)
    model.zero_grad()
    (0.37 * loss).backward()
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return {"logits": logits, "loss": loss, "nll": nll, **gradients}


@pytest.mark.parametrize("way", ["as shipped", "lowered", "float32"])
@pytest.mark.parametrize("name", MODELS)
def test_every_fast_model_equals_the_plain_one(
    name: str, way: str, request: pytest.FixtureRequest
) -> None:
    """Outputs and gradients, with padding on both sides, rows without keys, long and short.

    In evaluation with the thresholds as they are; in training with low ones and the same masks of
    dropout; and in float32, where products go to oneDNN, keys are padded, and no logits are formed.
    """
    if way != "as shipped":
        request.getfixturevalue("lowered")
    dtype = torch.float32 if way == "float32" else torch.float64
    plain, fast = plain_and_fast(name, dtype, dropout=0.2 if way == "lowered" else 0.0)
    for model in (plain, fast):
        model.train(way != "as shipped")
    # FIRE's numbers pass through float32 in the plain model, too.
    close = 1e-5 if name.startswith("fire") else 1e-9
    close = 2e-3 if way == "float32" else close
    long = 13 if name.endswith("_random") else 19  # 40 random positions hold no more
    for causal, source, target in ((True, long, long - 1), (False, 6, 5), (True, 0, 0)):
        ids = batch(source, target)
        expected, found = (outcome(each, causal, *ids) for each in (plain, fast))
        assert all(each.isfinite().all() for each in found.values())
        torch.testing.assert_close(found, expected, rtol=close, atol=close)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", MODELS)
def test_decoding_equals_the_plain_models(name: str, dtype: torch.dtype, lowered: None) -> None:
    """A position at a time, in float32 with packed weights, against all at once."""
    plain, fast = (model.eval() for model in plain_and_fast(name, dtype))
    src, tgt, _ = batch(9, 8)
    src[0, :2] = 4
    tgt = tgt[-1:].clamp(min=1).expand(5, -1)  # no padding: a cache does not hide it
    positions, mask = plain.batch_positions(src), padding_mask(src)
    close: Any = dict.fromkeys(("rtol", "atol"), 1e-3 if dtype == torch.float32 else 1e-6)
    with torch.no_grad():
        memory = plain.encode(src, positions=positions)
        expected = plain.decode(tgt, memory, None, mask, positions=positions)
        found, cache = fast.encode(src, positions=positions), fast.new_cache()
        real = src != 0  # a query at padding may not see all keys that CoPE counts
        torch.testing.assert_close(found[real], memory[real], **close)
        steps = [
            fast.decode(tgt[:, i : i + 1], found, None, mask, cache, positions) for i in range(8)
        ]
    torch.testing.assert_close(torch.cat(steps, dim=1), expected, **close)


def test_parameters_are_the_same_by_other_modules() -> None:
    """Trained weights stay the optimiser's, and a checkpoint of either fits the other."""
    model = Transformer(V, V, D, LAYERS, HEADS, FF, pe="fire", cross="shaw", tie_embeddings=True)
    before = list(model.state_dict())
    kept = {name: id(parameter) for name, parameter in model.named_parameters()}
    accelerate(model)
    assert list(model.state_dict()) == before
    assert {name: id(parameter) for name, parameter in model.named_parameters()} == kept
    assert model.output.weight is model.tgt_embedding.weight


def test_a_model_elsewhere_stays_plain() -> None:
    """On a GPU, or without memory, there is nothing to offer."""
    with torch.device("meta"):
        model = Transformer(V, V, D, LAYERS, HEADS, FF, pe="shaw", seed=0)
    before = [type(module) for module in model.modules()]
    accelerate(model)
    assert before == [type(module) for module in model.modules()]
    assert not any("fast" in each.__module__ for each in before)


@pytest.mark.parametrize("name", ["shaw_cross", "fire_cross", "rotary", "transformer_xl"])
def test_a_copy_and_other_weights(name: str, lowered: None) -> None:
    """A copy that was in use is a model of its own; loaded weights are those that count."""
    plain, fast = (model.eval() for model in plain_and_fast(name, torch.float32))
    src, tgt, _ = batch(3, 2)  # fewer rows than any weight: all weights are packed
    close: Any = dict(rtol=1e-3, atol=1e-3)
    with torch.no_grad():
        for _ in range(2):
            fast(src, tgt)
        twin = copy.deepcopy(fast)
        for parameter in twin.parameters():
            parameter.mul_(0.5)
        torch.testing.assert_close(fast(src, tgt), plain(src, tgt), **close)
        fast.load_state_dict(twin.state_dict())
        plain.load_state_dict(twin.state_dict())
        for _ in range(3):
            torch.testing.assert_close(fast(src, tgt), plain(src, tgt), **close)
            torch.testing.assert_close(twin(src, tgt), plain(src, tgt), **close)
    packed = {type(module) for module in fast.modules() if module in PACKED}
    assert not linear.mkl_is_slow() or packed == {FastLinear, FastAttention}
    assert not any(module in PACKED for module in fast.train().modules())


@pytest.mark.parametrize("name", ["sinusoidal", "alibi_cross", "shaw_cross"])
def test_maps_of_attention_are_the_plain_models(name: str, lowered: None) -> None:
    """Whoever looks at the weights gets them from the plain path."""
    plain, fast = plain_and_fast(name)
    src, tgt, _ = batch(9, 8)
    found, expected = (attention_maps(each, src[1:2], tgt[1:2]) for each in (fast, plain))
    torch.testing.assert_close(found, expected)


class Gap(RelativeEncoding):
    """As a user adds one: a trained bias for each distance, any of them."""

    def __init__(self, context: EncodingContext) -> None:
        super().__init__(context)
        self.slope = nn.Parameter(torch.randn(context.num_heads))

    def bias(self, q: Tensor, k: Tensor, query: Positions, key: Positions) -> Tensor:
        distance = self.all_distances(query, key)  # (R,)
        values = self.slope[:, None].to(q.dtype) * (distance * 0.7).sin()  # (H,R)
        return self.expand_to_pairs(values[None, :, None], query, key)


class GapWithin(Gap):
    """Another, which gives pairs their values in a way of its own."""

    def expand_to_pairs(self, values: Tensor, query: Positions, key: Positions) -> Tensor:
        near = self.distances(query, key).abs() <= 2
        return super().expand_to_pairs(values, query, key) * near


class GapAcross(Gap):
    """Another, whose distance is not the difference of positions."""

    def distances(self, query: Positions, key: Positions) -> Tensor:
        return super().distances(query, key).clamp(min=-2)


class Scores(Encoding):
    """Not one of distances: a bias that depends on content."""

    def bias(self, q: Tensor, k: Tensor, query: Positions, key: Positions) -> Tensor:
        return (q @ k.transpose(-2, -1)).tanh()


@pytest.mark.parametrize("cls", [Gap, GapWithin, GapAcross, Scores])
def test_an_encoding_of_a_users_own(
    cls: type[Encoding], lowered: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It equals the plain one; its distances are computed sooner unless it has a way of its own."""
    monkeypatch.setitem(ENCODINGS, "own", cls)
    monkeypatch.setattr(cls, "kind", "own")
    monkeypatch.setitem(MODELS, "own", {"pe": "own", "cross": "same" if cls.relative else "none"})
    plain, fast = plain_and_fast("own", dropout=0.0)
    assert isinstance(fast.src_position, FastRelative) == (cls is Gap)
    ids = batch(9, 8)
    expected, found = (outcome(each, True, *ids) for each in (plain, fast))
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    ("overrides", "fast"),
    [((), True), (("trainer.fast=false",), False), (("trainer.compile=true",), False)],
)
def test_a_run_is_fast_unless_told_or_compiled(
    tiny, overrides: tuple[str, ...], fast: bool
) -> None:
    """trainer.fast=false and trainer.compile=true leave plain modules."""
    config = tiny("pe=shaw", *overrides)
    modules = build_state(config, Run.of(config), None).model.modules()
    found = {type(module) for module in modules if "fast" in type(module).__module__}
    assert (FastDropout in found) == bool(found) == fast


def test_trainer_fast_changes_no_number(tiny) -> None:
    """Curves, weights and test of a short run; and it evaluates with either kind of modules."""
    runs = []
    for fast in (True, False):
        config = tiny("pe=shaw_cross", f"trainer.fast={str(fast).lower()}", "model.dropout=0")
        train(config)
        runs.append(Run.of(config))
        names = {type(each).__name__ for each in load_model(runs[-1], fast=fast)[0].modules()}
        assert any(name.startswith("Fast") for name in names) == fast
    losses = [row["loss"] for row in curves(runs[0]) if "loss" in row]
    assert losses[-1] < 0.9 * losses[0], "it learns"
    assert_same_but_for_rounding(*runs)


# ------------------------------------------------------------------------ attention by itself


@pytest.mark.parametrize("shape", [(), (6,), (6, 1), (6, 6), (HEADS, 6, 6), (2, 1, 1, 6)])
@pytest.mark.parametrize("kind", ["alibi", "shaw"])
def test_a_mask_of_any_shape_is_divided_right(
    kind: str, shape: tuple[int, ...], lowered: None
) -> None:
    """One that broadcasts, and one that leaves rows without keys."""
    plain, fast = (model.eval() for model in plain_and_fast(kind))
    mask, src = torch.rand(shape) < 0.5, padded_ids(2, 6, 0)
    torch.testing.assert_close(fast.encode(src, mask), plain.encode(src, mask), rtol=0, atol=1e-12)


@pytest.mark.parametrize("bias", [False, True])
def test_a_cpu_attends_in_float32_under_autocast(bias: bool) -> None:
    """To the bit what it gives without autocast, from the same queries, keys and values."""
    given = torch.randn(3, 2, 2, 16, 8).bfloat16()
    mask = torch.randn(2, 2, 16, 16).bfloat16() if bias else torch.ones(16, 16).tril().bool()
    low, high = given.clone().requires_grad_(), given.float().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        found = sdpa(*low, mask)
    expected = F.scaled_dot_product_attention(*high, mask.float() if bias else mask)
    assert found.dtype == torch.float32 and torch.equal(found, expected)
    for output in (found, expected):
        output.square().sum().backward()
    assert torch.equal(low.grad, high.grad.bfloat16())
