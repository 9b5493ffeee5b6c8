"""Tests of the check that every encoding must pass before training."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from support import MODELS, PLACED, begun, configure
from torch import Tensor, nn

from wawa_transformer import PositionalEncoding, Transformer, check_model
from wawa_transformer.common import CONFIG_DIR
from wawa_transformer.common.messages import UserError
from wawa_transformer.decode.strategies import Beam
from wawa_transformer.model import check, probe, promises, transformer
from wawa_transformer.model.attention import MultiHeadAttention
from wawa_transformer.model.check import require_promises, tiny_model
from wawa_transformer.model.config import TransformerConfig
from wawa_transformer.model.kv_cache import KeyValueCache
from wawa_transformer.model.layers import EncoderLayer, ResidualConnection
from wawa_transformer.model.loss import loss_and_nll
from wawa_transformer.model.masks import causal_mask
from wawa_transformer.positional.alibi import ALiBi
from wawa_transformer.positional.base import ENCODINGS, Encoding, EncodingContext, Positions
from wawa_transformer.positional.kerple import Kerple
from wawa_transformer.positional.position_ids import BatchPositions
from wawa_transformer.positional.relative import RelativeEncoding
from wawa_transformer.positional.rotary import Rotary
from wawa_transformer.run.config import transformer_config
from wawa_transformer.run.run_dir import Run
from wawa_transformer.train import setup
from wawa_transformer.train.trainer import train

SIZES: dict[str, Any] = {
    "d_model": 24, "num_layers": 1, "num_heads": 3, "d_ff": 8, "dropout": 0.0,
}  # fmt: skip


def shape(given: dict[str, Any]) -> TransformerConfig:
    """A small model with an encoding's arguments."""
    return TransformerConfig(9, 9, **{**SIZES, **given})


def reported(config: TransformerConfig, length: int, bf16: bool = False) -> probe.Report:
    """What the check of a run finds in a tiny model, without looking for the cause."""
    return check.TransformerProbe(tiny_model(config), length=length).report(bf16=bf16, saved=True)


pytestmark = pytest.mark.usefixtures("registry")


# ------------------------------------------------------------------------ what is right passes


FILES = sorted(each.stem for each in (CONFIG_DIR / "pe").glob("*.yaml"))
# Heads with positions of their own, and positions that are no whole numbers.
OTHERS = [
    name for name, given in MODELS.items() if given.get("origin") == "both" or "divided" in given
]
PLACES = [name for name in PLACED if name not in FILES and f"{name}_both" not in OTHERS]


@pytest.mark.parametrize("name", [*PLACES, *OTHERS, "shaw_random"])
def test_every_encoding_keeps_its_promises(name: str) -> None:
    """No encoding breaks a promise, wherever it acts; the shortest row has one token."""
    require_promises(shape({"encoder_mask": "causal", **MODELS[name]}), 20)


@pytest.mark.parametrize(
    ("pe", "settings", "more", "length"),
    [
        ("learned", {"max_len": 1}, {}, 1),
        ("learned", {"max_len": 4, "init_std": 0.0}, {"tie_sides": True}, 4),
        (
            "sinusoidal", {"max_len": 1},
            {"where": ["decoder"], "embedding_scale": "position_down"}, 4,
        ),
        ("shaw", {"max_distance": 1}, {"where": ["cross"], "norm": "post"}, 4),
        ("rotary", {}, {"layers": [2], "num_layers": 3, "num_heads": 1}, 1),
        ("learned", {}, {"layers": [2, 1], "num_layers": 3, "embedding_scale": "position_down"}, 4),
        ("t5", {}, {"tie_sides": True, "num_heads": 24}, 4),
        ("fire", {"threshold": 1.0}, {"cross": "same"}, 4),
        ("kerple", {"form": "power"}, {"cross": "alibi"}, 1),
    ],
)  # fmt: skip
def test_settings_at_their_edge_are_not_refused(
    pe: str, settings: dict[str, Any], more: dict[str, Any], length: int
) -> None:
    require_promises(shape({"pe": pe, "pe_settings": settings, **more}), length)


@pytest.mark.parametrize("name", FILES)
def test_every_pe_file_keeps_its_promises_at_its_own_settings(name: str) -> None:
    sizes = (f"model.{key}={value}" for key, value in SIZES.items())
    require_promises(transformer_config(configure(f"pe={name}", *sizes)), 8)


class Sixfold(RelativeEncoding):
    """Needs six heads, the real layers, positive numbers, and some width."""

    per_layer = True
    widths: Any = ()

    def __init__(self, context: EncodingContext) -> None:
        super().__init__(context)
        real = context.num_heads == 6 and context.num_layers == 2
        if not real or context.head_width not in self.widths:
            raise ValueError("six heads and two layers.")
        self.slopes = nn.Parameter(torch.ones(6))
        self.buckets = nn.Parameter(torch.arange(6), requires_grad=False)

    def bias(self, q: Tensor, k: Tensor, query: Positions, key: Positions) -> Tensor:
        return -self.slopes.log().exp()[:, None, None] * self.distances(query, key).abs()


@pytest.mark.parametrize(
    ("width", "widths", "tried"),
    [(24, range(999), [24]), (126, range(999), [78]), (126, [21], [78, 126])],
)
def test_encodings_that_need_the_real_sizes_are_checked_at_these(
    width: int, widths: list[int], tried: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that asks for a width is tried at this width, the others at a smaller one."""
    ENCODINGS["own"] = type("Own", (Sixfold,), {"widths": widths})
    found, right = [], check.tiny_model

    def tiny(config: TransformerConfig, *given: Any) -> Transformer:
        found.append(config.d_model)
        return right(config, *given)

    monkeypatch.setattr(check, "tiny_model", tiny)
    require_promises(shape({"pe": "own", "num_heads": 6, "num_layers": 2, "d_model": width}), 9)
    assert found == tried


@pytest.mark.parametrize(
    ("given", "order", "meet"),
    [
        ({"pe": "none"}, False, False),
        (MODELS["none_causal"], True, False),
        ({"pe": "alibi"}, True, False),
        ({"pe": "rotary"}, True, False),
        (MODELS["rotary_cross"], True, True),
        ({"pe": "rotary", "cross": "rotary_query"}, True, False),
        ({"pe": "rotary", "cross": "rotary_key"}, True, False),
        ({"pe": "shaw", "where": ["cross"]}, True, True),
    ],
)
def test_order_and_meeting_are_told_and_are_no_promise(
    given: dict[str, Any], order: bool, meet: bool
) -> None:
    """Without positions order does not matter; distances in cross-attention let positions meet.

    The queries' rotation alone does not.
    """
    report = check_model(tiny_model(shape(given)))
    found = {each.name: each.holds for each in report}
    assert not report.broken and (found[probe.ORDER], found[promises.MEET]) == (order, meet)


class LayerMix(Encoding):
    """Rotary in the lower layers, a trained kernel in the upper ones."""

    per_layer, relative = True, True

    def __init__(self, context: EncodingContext) -> None:
        super().__init__(context)
        assert context.layer is not None
        self.lower = context.layer * 2 < context.num_layers
        self.rotary, self.kernel = Rotary(context), Kerple(context)

    def rotate(
        self, q: Tensor, k: Tensor, query: Positions, key: Positions
    ) -> tuple[Tensor, Tensor]:
        return self.rotary.rotate(q, k, query, key) if self.lower else (q, k)

    def bias(self, q: Tensor, k: Tensor, query: Positions, key: Positions) -> Tensor | None:
        return None if self.lower else self.kernel.bias(q, k, query, key)


class Sandwich(RelativeEncoding):
    """A sum of cosines of the distance (Chi et al. 2023)."""

    content_independent = True

    def bias(self, q: Tensor, k: Tensor, query: Positions, key: Positions) -> Tensor:
        rate = 10000.0 ** (-torch.arange(8) / 8)
        far = self.distances(query, key)[..., None]  # (b,h,Q,K,1)
        return (far * rate).cos().sum(-1).to(q.dtype)


class DAPE(ALiBi):
    """A small network of the score and ALiBi's penalty (Zheng et al. 2024)."""

    content_independent = False

    def __init__(self, context: EncodingContext) -> None:
        super().__init__(context)
        heads = context.num_heads
        self.net = nn.Sequential(nn.Linear(2 * heads, 8), nn.GELU(), nn.Linear(8, heads))

    def bias(self, q: Tensor, k: Tensor, query: Positions, key: Positions) -> Tensor:
        far = super().bias(q, k, query, key)
        scores = q @ k.mT / self.context.head_width**0.5  # (B,H,Q,K)
        both = torch.cat((scores, far.expand_as(scores)), dim=1).movedim(1, -1)
        return far + self.net(both).movedim(-1, 1)


class EverySecond(Rotary):
    """Rotary in every second layer, and no positions in the others."""

    per_layer = True

    def rotate(
        self, q: Tensor, k: Tensor, query: Positions, key: Positions
    ) -> tuple[Tensor, Tensor]:
        return super().rotate(q, k, query, key) if (self.context.layer or 0) % 2 else (q, k)


@pytest.mark.parametrize("cls", [LayerMix, Sandwich, DAPE, EverySecond])
def test_a_published_method_passes(cls: type[Encoding]) -> None:
    """Written as the tutorial says, the method keeps every promise, in cross-attention too."""
    ENCODINGS["own"] = cls
    require_promises(shape({"num_layers": 3, "pe": "own", "cross": "same"}), 12)


# ----------------------------------------------------------------------- what is wrong is found


def wave(at: Positions) -> Tensor:
    """What a right encoding may add to embeddings: ``(B,S,1)``."""
    return torch.sin(at.ids[:, 0, :, None] / 3)


def add_wave(self: Encoding, x: Tensor, at: Positions) -> Tensor:
    return x + wave(at)


def line(x: Tensor, at: Positions) -> Tensor:
    """Positions along a direction of embeddings ``x (B,S,D)``: ``(B,S,D)``."""
    return at.ids[:, 0, :, None] * torch.linspace(-1, 1, x.size(-1))


class Distances(RelativeEncoding):
    """Distances times a factor, beside a trained number."""

    start = 1.0

    def __init__(self, context: EncodingContext) -> None:
        super().__init__(context)
        self.rate = nn.Parameter(torch.tensor(self.start))

    def bias(self, q: Tensor, k: Tensor, query: Positions, key: Positions) -> Tensor:
        return -self.distances(query, key).abs().to(q.dtype) * self.factor(q, k, query, key)

    def factor(self, q: Tensor, k: Tensor, query: Positions, key: Positions) -> Any:
        return self.rate


class Neighbours(Encoding):
    """Positions from a convolution over the embeddings of neighbours."""

    def __init__(self, context: EncodingContext) -> None:
        super().__init__(context)
        self.mix = nn.Conv1d(context.d_model, context.d_model, 3, padding=1)

    def embed(self, x: Tensor, positions: Positions) -> Tensor:
        return x + self.mix(x.transpose(1, 2)).transpose(1, 2)


class Cheating(Encoding):
    """Training sees the future through a mean, beside noise."""

    def embed(self, x: Tensor, positions: Positions) -> Tensor:
        noise = torch.randn(()) / 9
        return x + (noise + x.mean(1, keepdim=True)) if self.training else x


class Seeding(Encoding):
    """Seeds torch for a table of its own, and so the dropout masks of every step."""

    def embed(self, x: Tensor, positions: Positions) -> Tensor:
        torch.manual_seed(0)
        return x + torch.randn(500, x.size(-1))[positions.ids[:, 0]]


class Growing(Encoding):
    """A table in the checkpoint that is as long as the longest sequence so far."""

    def __init__(self, context: EncodingContext) -> None:
        super().__init__(context)
        self.register_buffer("table", torch.zeros(0))

    def embed(self, x: Tensor, positions: Positions) -> Tensor:
        if len(self.table) < positions.end:
            self.table = torch.arange(positions.end) / 9
        return x + self.table[positions.ids[:, 0], None] * torch.linspace(-1, 1, x.size(-1))


class Features(Encoding):
    """Random features that no checkpoint holds."""

    def __init__(self, context: EncodingContext) -> None:
        super().__init__(context)
        self.draw(context.d_model)

    def draw(self, width: int) -> None:
        self.register_buffer("rate", torch.randn(width), persistent=False)

    def embed(self, x: Tensor, positions: Positions) -> Tensor:
        return x + torch.sin(positions.ids[:, 0, :, None] * self.rate)


class Ready(Features):
    """A table that is computed once from a weight, which training changes."""

    table: Tensor | None = None

    def draw(self, width: int) -> None:
        self.rate = nn.Parameter(torch.linspace(-1, 1, width))

    def embed(self, x: Tensor, positions: Positions) -> Tensor:
        if self.training:
            return super().embed(x, positions)
        if self.table is None:
            self.table = torch.sin(torch.arange(500)[:, None] * self.rate)
        return x + self.table[positions.ids[:, 0]]


class OfNumpy(Features):
    """Features whose start does not follow from the seed."""

    def draw(self, width: int) -> None:
        self.rate = nn.Parameter(torch.from_numpy(np.random.randn(width)).float())


class Seeded(Features):
    """Features that start alike under every seed."""

    def draw(self, width: int) -> None:
        torch.manual_seed(0)
        self.rate = nn.Parameter(torch.randn(width))


class Fading(Encoding):
    """Fades over many steps of training, which it counts in a plain number."""

    steps = 0

    def embed(self, x: Tensor, positions: Positions) -> Tensor:
        self.steps += self.training
        return x + wave(positions) * max(0, 1 - self.steps / 20000)


class Table(Encoding):
    """A table that ends, without a word to anyone."""

    def __init__(self, context: EncodingContext) -> None:
        super().__init__(context)
        self.table = nn.Parameter(torch.randn(30, context.d_model))

    def embed(self, x: Tensor, positions: Positions) -> Tensor:
        return x + self.table[positions.ids[:, 0]].to(x.dtype)


def wrong(base: type[Encoding] = Encoding, **parts: Any) -> type[Encoding]:
    """Derive an encoding with other attributes and methods."""
    return type("Wrong", (base,), parts)


UNLISTED = [nn.Parameter(torch.ones(()))]  # torch does not look into a list


def times(factor: Callable[..., Any]) -> type[Encoding]:
    """Distances with another factor, a function of an encoding and what its bias is given."""
    return wrong(Distances, factor=factor)


@pytest.mark.parametrize(
    ("name", "cls"),
    [
        (probe.PADDING, Neighbours),
        (probe.FUTURE, Neighbours),
        (probe.FUTURE, Cheating),
        (promises.KEPT, Seeding),
        (promises.KEPT, Growing),
        (promises.SAVED, Features),
        (promises.SAVED, Ready),
        (promises.STARTED, OfNumpy),
        (promises.STARTED, Seeded),
        (promises.COUNTED, Fading),
        # Embeddings are multiplied once more, dropped out twice, and never.
        (promises.SCALED, wrong(embed=lambda self, x, at: 5 * x + wave(at))),
        (promises.DROPPED, wrong(embed=lambda self, x, at: self.dropout(x + wave(at)))),
        (promises.DROPPED, wrong(embed=add_wave, forward=add_wave)),
        # The first row's positions for all rows, and columns in place of positions.
        (probe.ALONE, wrong(embed=lambda self, x, at: x + line(x, at)[:1])),
        (promises.READ, wrong(embed=lambda self, x, at: x + torch.arange(x.size(1))[:, None] / 9)),
        (promises.READ, wrong(bias=lambda self, q, k, *at: q[..., :1] + torch.arange(k.size(2)))),
        # What a class declares is not so: it rounds, reads queries, divides by a position.
        (promises.UNUSED, wrong(uses_positions=False, embed=add_wave)),
        (promises.FRACTIONAL, wrong(fractional=True, embed=lambda _, x, at: x + at.ids.long().mT)),
        (promises.SHARED, wrong(content_independent=True, bias=lambda self, q, k, *at: q @ k.mT)),
        (promises.RELATIVE, times(lambda self, q, k, i, j: 1 / (1 + i.ids[..., None]))),
        # Training has no positions, and its dropout goes on after it.
        (promises.TRAINED, times(lambda self, *_: 0.0 if self.training else 1.0)),
        (probe.REPEATED, wrong(embed=lambda pe, x, at: x + F.dropout(line(x, at), pe.dropout.p))),
        # Undefined from position 89 on, and for a single token.
        (probe.FINITE, times(lambda self, q, k, i, j: torch.nan if i.end > 89 else 1.0)),
        (probe.ALONE, times(lambda self, q, k, *_: 1.0 if k.size(2) > 1 else torch.nan)),
        # The length counts, in rows of more than 16.
        (probe.PADDING, times(lambda self, q, k, *_: 16 / max(16, k.size(2)))),
        # A single new token is off, as the second of its row, and from a position on that no row of
        # the check has by itself.
        (probe.CACHED, times(lambda self, q, k, *_: 1 + (q.size(2) == 1 and k.size(2) == 2))),
        (probe.CACHED, times(lambda self, q, k, i, j: 1 + (q.size(2) == 1 and i.end > 50))),
        # A trained number is read as a plain one, is rounded, and is in a list.
        (promises.REACHED, times(lambda self, *_: self.rate.item())),
        (promises.REACHED, times(lambda self, *_: self.rate.round() + 1)),
        (promises.REACHED, wrong(embed=lambda self, x, at: x + UNLISTED[0] * wave(at))),
    ],
)
def test_a_mistake_is_found(name: str, cls: type[Encoding]) -> None:
    """The property that a mistake breaks is among those found."""
    ENCODINGS["wrong"] = cls
    report = reported(shape({"pe": "wrong"}), 60)
    assert name in {each.name for each in report.broken}, str(report)


class FirstHead(Rotary):
    """The first head's positions for all heads."""

    def turn(self, x: Tensor, positions: Positions) -> Tensor:
        return super().turn(x, Positions(positions.ids[:, :1], positions.end))


@pytest.mark.parametrize(
    ("name", "cls", "given"),
    [
        (promises.HEADS_APART, FirstHead, {"origin": "both", "cross": "same"}),
        # The first head's positions in all dimensions.
        (promises.HEADS_APART, wrong(embed=lambda _, x, at: x + line(x, at)), {"origin": "both"}),
        # Heads five to eight are off where there is padding.
        (
            probe.PADDING,
            times(
                lambda self, q, k, *_: torch.tensor([1.0] * 4 + [k.size(2) / 10] * 4).view(8, 1, 1)
            ),
            {"num_heads": 8},
        ),
        # As many queries as keys are taken for one sequence, which a source of that length is not.
        (
            probe.ALONE,
            times(lambda self, q, k, *_: 1.0 if q.size(2) == k.size(2) else 0.5),
            {"where": ["cross"]},
        ),
    ],
)
def test_a_mistake_that_few_models_show_is_found(
    name: str, cls: type[Encoding], given: dict[str, Any]
) -> None:
    ENCODINGS["wrong"] = cls
    broken = reported(shape({"pe": "wrong", **given}), 12).broken
    assert name in {each.name for each in broken}


def test_a_mistake_behind_a_gate_that_starts_at_zero_is_found() -> None:
    ENCODINGS["wrong"] = wrong(
        Distances, start=0.0, factor=lambda self, q, k, *at: self.rate * (k.size(2) - q.size(2))
    )
    assert reported(shape({"pe": "wrong"}), 12).broken[0].name == probe.CACHED


def test_a_gradient_that_is_not_finite_is_said_of_the_encodings_own_number() -> None:
    """Not of the embeddings below it, which come first."""

    class Rooted(Distances, kind="wrong"):
        def embed(self, x: Tensor, positions: Positions) -> Tensor:
            return x + (self.rate.abs() * positions.ids[:, 0, :, None] * x.square()).sqrt()

    broken = {each.name: each.where for each in reported(shape({"pe": "wrong"}), 20).broken}
    assert broken[promises.DEFINED] == "Rooted.rate"


def test_a_mistake_is_named_with_its_class_and_file() -> None:
    """And by how much, where, and how to train it all the same."""
    ENCODINGS["neighbours"] = Neighbours
    config = shape({"pe": "neighbours"})
    with pytest.raises(UserError) as refused:
        require_promises(config, 60)
    first = reported(config, 60).broken[0]
    for part in ("pe.kind=neighbours ", first.name, first.where, f"{first.change:.2g}",
                 "Neighbours", str(Path(__file__)), "trainer.check=false"):  # fmt: skip
        assert part in str(refused.value)


def focal(logits: Tensor, targets: Tensor, _: float = 0.0) -> tuple[Tensor, Tensor]:
    """The loss of docs/fork.md."""
    flat = logits.flatten(0, 1), targets.flatten()
    nll = F.cross_entropy(*flat, ignore_index=0, reduction="none")
    return ((1 - (-nll).exp()) ** 2 * nll).sum(), nll.sum()


def mean(logits: Tensor, targets: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
    loss, nll = loss_and_nll(logits, targets, smoothing)
    return loss if smoothing else loss / (targets != 0).sum(), nll


def padded(logits: Tensor, targets: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
    loss, nll = loss_and_nll(logits, targets, smoothing)
    return loss - smoothing * logits.log_softmax(dim=-1).mean(dim=-1).sum(), nll


def smoothed(logits: Tensor, targets: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
    loss, _ = loss_and_nll(logits, targets, smoothing)
    return loss, loss.detach()


@pytest.mark.parametrize(
    ("loss", "where"),
    [(focal, ""), (mean, "the loss"), (padded, "the loss"), (smoothed, "the NLL")],
)
def test_a_loss_of_ones_own_is_a_sum_over_real_tokens(
    loss: Callable[..., Any], where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With another one, train_step divides by the wrong number, or logs a wrong NLL."""
    monkeypatch.setattr(transformer, "loss_and_nll", loss)
    found = [(each.name, each.where) for each in reported(shape({}), 9).broken]
    assert found == [(promises.SUMMED, where)][: bool(where)]


@pytest.mark.parametrize("length", [2, 20])
def test_a_number_of_which_one_sign_acts_is_trained(length: int) -> None:
    """As a rate of decay that must not be negative; one token alone shows no gradient."""
    for side in (1, -1):
        ENCODINGS["own"] = wrong(
            Distances, start=0.0, factor=lambda self, *_, side=side: (side * self.rate).clamp(max=0)
        )
        require_promises(shape({"pe": "own", "where": ["decoder"]}), length)


def test_the_end_of_a_table_is_named() -> None:
    """By a sentence: of a class that does not declare it, and of one that does."""
    ENCODINGS["table"] = Table
    require_promises(shape({"pe": "table"}), 15)
    with pytest.raises(UserError, match=r"fails at 40 tokens \(index .*declares max_positions"):
        require_promises(shape({"pe": "table"}), 20)
    ENCODINGS["table"] = wrong(Table, max_positions=30, kind="table")
    require_promises(shape({"pe": "table"}), 20)
    model = Transformer(shape({"pe": "table"}))
    model.check_length(30)
    with pytest.raises(UserError, match="31 positions does not fit the 30 of pe.kind=table"):
        model.check_length(31)


class Extra(Table):
    """A setting that torch would keep beside tensors."""

    def get_extra_state(self) -> Any:
        return {"slope": 1}

    def set_extra_state(self, state: Any) -> None:
        pass


class Lazy(Encoding):
    """A layer without a shape, though starting values are drawn before its first call."""

    def __init__(self, context: EncodingContext) -> None:
        super().__init__(context)
        self.mix = nn.LazyLinear(context.d_model)


@pytest.mark.parametrize(
    ("cls", "said"),
    [
        (Extra, "_extra_state of the model's state is no tensor"),
        (wrong(Lazy, embed=lambda self, x, at: self.mix(x)), "_position.mix.weight has no shape"),
        # A slip in a method's name, which would train as pe=none.
        (wrong(apply_rotary=add_wave), "pe.kind=wrong overrides none of embed, rotate, bias"),
    ],
)
def test_what_cannot_be_tried_is_refused(cls: type[Encoding], said: str) -> None:
    ENCODINGS["wrong"] = cls
    with pytest.raises(UserError, match=said):
        require_promises(shape({"pe": "wrong"}), 4)


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        (torch.float64, "sinusoidal"),
        (torch.bfloat16, "shaw_cross"),
        (torch.float16, "merged_rotary_query"),
    ],
)
def test_rounding_in_a_type_of_few_digits_is_no_mistake(name: str, dtype: torch.dtype) -> None:
    """A mistake is found in it, too."""
    model = Transformer(9, 9, 16, 1, 4, 32, seed=0, **MODELS[name]).to(dtype)
    assert not check_model(model).broken
    ENCODINGS["neighbours"] = Neighbours
    wrong = Transformer(9, 9, 16, 1, 4, 32, seed=0, pe="neighbours").to(dtype)
    assert probe.FUTURE in {each.name for each in check_model(wrong).broken}


def test_the_class_of_a_notebook_is_named_without_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one of ``__main__``, which has no file there."""
    monkeypatch.setattr(Neighbours, "__module__", "no_module")
    ENCODINGS["neighbours"] = Neighbours
    with pytest.raises(UserError, match=r"In Neighbours \(this notebook\)"):
        require_promises(shape({"pe": "neighbours"}), 12)


def test_a_mistake_in_forward_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Training and evaluation call it, and the check as well."""
    right = Transformer.forward

    def forward(self: Transformer, src: Tensor, tgt: Tensor, *args: Any, **more: Any) -> Any:
        return right(self, src, tgt, cross_mask=torch.ones(1, 1, 1, src.size(1), dtype=torch.bool))

    monkeypatch.setattr(Transformer, "forward", forward)
    report = check.TransformerProbe(tiny_model(shape({"pe": "sinusoidal"}))).report()
    assert probe.PADDING in {each.name for each in report.broken}


class Rounded(Rotary):
    """Angles in the type of the queries."""

    def turn(self, x: Tensor, positions: Positions) -> Tensor:
        rate = 10000.0 ** (-torch.arange(0, x.size(-1), 2) / x.size(-1))
        angle = positions.ids[..., None].to(x.dtype) * rate.to(x.dtype)
        return self.rotate_pairs(x.unflatten(-1, (-1, 2)), angle.sin(), angle.cos()).flatten(-2)


def test_angles_in_bf16_are_refused_where_a_run_trains_in_bf16() -> None:
    """At positions that bf16 cannot hold; in float32 they are right. No other encoding is."""
    ENCODINGS["rounded"] = Rounded
    for bf16 in (False, True):
        report = reported(shape({"pe": "rounded"}), 200, bf16)
        assert [each.name for each in report.broken] == [promises.BF16][: int(bf16)]
    for name in ("rotary", "t5_cross", "fire", "cope", "transformer_xl", "kerple", "shaw_cross"):
        one = check.TransformerProbe(tiny_model(shape(MODELS[name])), length=200)
        with torch.no_grad():
            one.check_bf16()
        assert one.findings[promises.BF16].holds, name


class Counter(Encoding):
    """Acts from the first step of training on, which it counts."""

    def __init__(self, context: EncodingContext) -> None:
        super().__init__(context)
        self.register_buffer("steps", torch.tensor(0))
        self.norm = nn.BatchNorm1d(context.d_model)

    def embed(self, x: Tensor, positions: Positions) -> Tensor:
        self.steps += self.training
        return self.norm((x + line(x, positions) * (self.steps > 0)).flatten(0, 1)).view_as(x)


class Assigned(Encoding):
    """Counts in a buffer that each step replaces."""

    def __init__(self, context: EncodingContext) -> None:
        super().__init__(context)
        self.register_buffer("steps", torch.tensor(0))

    def embed(self, x: Tensor, positions: Positions) -> Tensor:
        self.steps = self.steps + 1 if self.training else self.steps
        return x + line(x, positions) * (self.steps / 10).clamp(max=1)


class Watched(Encoding):
    """Has dropout of its own, and keeps a number of its last use in training, as for a loss."""

    def __init__(self, context: EncodingContext) -> None:
        super().__init__(context)
        self.size = torch.zeros(())

    def embed(self, x: Tensor, positions: Positions) -> Tensor:
        out = x + F.dropout(line(x, positions), 0.3, self.training)
        self.size = out.norm() if self.training else self.size
        return out


@pytest.mark.parametrize("cls", [Counter, Assigned, Watched])
def test_counters_batch_norm_and_noise_of_training_are_no_mistake(cls: type[Encoding]) -> None:
    """The check leaves what they count as it was."""
    ENCODINGS["own"] = cls
    require_promises(shape({"pe": "own"}), 9)
    model = Transformer(9, 9, **SIZES, pe="own")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    check_model(model)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_a_buffer_that_counts_every_use_is_no_mistake(after_init: Any, monkeypatch: Any) -> None:
    """Also in evaluation: a checkpoint holds it, and no answer depends on it."""
    after_init(EncoderLayer, lambda self: self.register_buffer("uses", torch.tensor(0)))
    right = EncoderLayer.forward

    def counted(self: EncoderLayer, *given: Any) -> Tensor:
        self.uses += 1
        return right(self, *given)

    monkeypatch.setattr(EncoderLayer, "forward", counted)
    require_promises(shape({"pe": "rotary"}), 20)


@pytest.mark.parametrize("noise", [random.random, np.random.rand])
def test_noise_that_no_checkpoint_saves_is_found(
    noise: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = EncoderLayer.forward
    monkeypatch.setattr(
        EncoderLayer, "forward", lambda self, *given: right(self, *given) + noise() * self.training
    )
    found = {each.name: each.where for each in reported(shape({"pe": "rotary"}), 20).broken}
    assert "random" in found[promises.COUNTED]


def test_a_window_that_training_does_not_have_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the mask that the model makes itself; a training step gives its own."""

    def window(length: int, offset: int = 0, device: Any = None) -> Tensor:
        return causal_mask(length, offset).triu(offset - 2)

    monkeypatch.setattr(transformer, "causal_mask", window)
    found = {each.name: each.where for each in reported(shape({"pe": "rotary"}), 20).broken}
    assert "under the mask of train_step" in found[promises.TRAINED]


def without_first(self: KeyValueCache) -> tuple[Tensor, Tensor]:
    k, v = seen(self)
    return k.index_fill(2, torch.tensor([0]), 0.0), v


keep, seen = KeyValueCache.keep, KeyValueCache.seen


@pytest.mark.parametrize(
    ("method", "edit"),
    [("keep", lambda self, rows: keep(self, torch.arange(len(rows)))), ("seen", without_first)],
)
def test_a_mistake_of_the_cache_is_found(
    method: str, edit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache may keep other rows, or lose its first token; below it mixes rows."""
    monkeypatch.setattr(KeyValueCache, method, edit)
    report = check_model(tiny_model(shape({"pe": "sinusoidal"})))
    assert probe.CACHED in {each.name for each in report.broken}


class Leaking(Transformer):
    """Each logit knows the next one."""

    def decode(self, *given: Any, **named: Any) -> Tensor:
        return (logits := super().decode(*given, **named)) + logits.roll(-1, dims=1)


@pytest.mark.parametrize(
    ("name", "cls"), [("none", Leaking), ("rotary_cross_continued", Transformer)]
)
def test_a_mistake_in_the_model_is_not_blamed_on_the_encoding(
    name: str, cls: type[Transformer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sentence names the model's folder where no encoding is needed for the mistake."""
    if cls is Transformer:  # with a cache that mixes rows
        append = KeyValueCache.append
        monkeypatch.setattr(
            KeyValueCache, "append", lambda self, k, v: append(self, k.roll(1, 0), v)
        )
    said = r"with pe=none: the cause is in the model \(.*model\)"
    with pytest.raises(UserError, match=said) as refused:
        require_promises(shape(MODELS[name]), 12, False, cls)
    assert "positional" not in str(refused.value)


def with_gain(self: ResidualConnection) -> None:
    self.gain = nn.Parameter(torch.zeros(()))


def rezero(self: ResidualConnection, x: Tensor, sublayer: nn.Module, *args: Any) -> Tensor:
    return x + self.gain * sublayer(self.norm(x), *args)


def at_random(self: ResidualConnection, x: Tensor, sublayer: nn.Module, *args: Any) -> Tensor:
    left_out = self.training and torch.rand(()) < 0.3
    return x if left_out else x + sublayer(self.norm(x), *args)


def with_head(self: Transformer) -> None:
    words = self.output.out_features
    self.output = nn.Sequential(nn.Linear(self.d_model, 8), nn.GELU(), nn.Linear(8, words))


@pytest.mark.parametrize(
    ("cls", "work", "forward"),
    [
        (ResidualConnection, with_gain, rezero),
        (ResidualConnection, lambda self: None, at_random),
        (MultiHeadAttention, lambda self: nn.init.zeros_(self.out_proj.weight), None),
        (MultiHeadAttention, lambda self: self.in_proj.register_parameter("bias", None), None),
        (Transformer, lambda self: nn.init.zeros_(self.output.weight), None),
        (Transformer, with_head, None),
    ],
)
def test_an_edit_of_the_model_that_people_make_is_no_mistake(
    cls: Any, work: Any, forward: Any, after_init: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gate or a matrix that starts at zero, a layer that training leaves out at random.

    And projections without a bias, or a network in place of the output's matrix.
    """
    after_init(cls, work)
    monkeypatch.setattr(cls, "forward", forward or cls.forward)
    require_promises(shape({"pe": "t5"}), 12)
    model = Transformer(9, 9, **SIZES, pe="t5", seed=0)
    assert not check_model(model).broken
    assert len(Beam(size=2)(model, torch.tensor([[4, 5]]), 3)[0][0]) == 2


def test_a_mistake_that_only_positions_show_is_not_blamed_on_the_encoding(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each new token is taken for one at position 0."""
    target = BatchPositions.target
    monkeypatch.setattr(
        BatchPositions,
        "target",
        lambda self, start, length: target(self, start * (length > 1), length),
    )
    said = f"{probe.CACHED}.*with pe=sinusoidal and pe=alibi: the cause is in the model"
    with pytest.raises(UserError, match=said):
        require_promises(shape(MODELS["t5_cross"]), 12)


def test_a_mistake_in_the_sinusoid_is_not_blamed_on_the_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Though pe=sinusoidal, with which others are compared, breaks the same promise."""
    monkeypatch.setattr(PositionalEncoding, "embed", lambda self, x, at: x + x.roll(-1, dims=1))
    with pytest.raises(UserError, match=r"In PositionalEncoding \("):
        require_promises(shape({}), 12)


@pytest.mark.parametrize(
    ("method", "wrong", "said"),
    [
        ("embed", lambda self, x, at: x[:, :1], r"embed .*\(2, 6, 24\) .*\(2, 1, 24\).* \(B,S,D\)"),
        ("rotate", lambda self, q, k, *at: (q, k[..., :2]), r"rotate .*\(2, 3, 6, 2\).*as wide as"),
        ("rotate", lambda self, q, k, *at: (q.mT, k.mT), r"rotate .*\(2, 3, 8, 6\)"),
        ("bias", lambda self, q, k, *at: q.sum(-1), r"bias .*\(2, 3, 6\).*broadcastable"),
        ("embed", lambda self, x, at: None, "embed .* returned NoneType; it must be"),
        ("embed", lambda self, x, at: x.double(), "embed .* returned torch.float64 of"),
        ("embed", lambda self, x, at: x.numpy(), "embed .* returned ndarray;"),
        ("embed", lambda self, x: x, "embed cannot be called .* the arguments of Encoding.embed"),
        ("embed", lambda self, x, at: x.add_(1), "embed changed its arguments in place"),
        ("rotate", lambda self, q, k, *at: q, "rotate .* it must be two tensors"),
        ("rotate", lambda self, q, k, *at: (q, k, k), "rotate .* it must be two tensors"),
        ("rotate", lambda self, q, k, *at: (q, None), "rotate .* and NoneType; it must be two"),
        ("rotate", lambda self, q, k, *at: (q.mul_(2), k), "rotate changed its arguments"),
        ("bias", lambda self, q, k, *at: 0.5, "bias .* returned float;"),
        ("bias", lambda self, q, k, *at: (q[..., :1],), "bias .* returned torch.float32 of"),
        ("bias", lambda self, q, *at: at[2].ids.view(1, 1, 1, -1), "bias .* returned torch.int64"),
        ("bias", lambda self, q, k, *at: [each.ids.add_(1) for each in at], "bias changed its arg"),
        ("bias", lambda self: None, "bias cannot be called .*takes 1 positional"),
        # Keys in rows and queries in columns, and rows of positions in place of heads.
        ("bias", lambda self, q, k, i, j: (j.ids[..., None] - i.ids[..., None, :]).to(q),
         r"bias .*\(2, 1, 6, 5\); it must be .*, here \(2, 3, 5, 6\)"),
        ("bias", lambda self, q, k, i, j: j.ids.squeeze()[..., None, :].to(q),
         r"bias .*\(2, 1, 6\); it must be .*, here \(2, 3, 6, 6\)"),
    ],
)  # fmt: skip
def test_a_tensor_of_another_shape_is_refused(method: str, wrong: Any, said: str) -> None:
    """The sentence has the class, the method, what it returned and what it must return."""
    ENCODINGS["wrong"] = type("Wrong", (Encoding,), {method: wrong})
    with pytest.raises(UserError, match=f"Wrong.{said}"):
        require_promises(shape({"pe": "wrong"}), 6)


def test_every_run_is_checked_before_its_first_step(tiny, monkeypatch) -> None:
    """In the model, at the length and with the precision of the run."""

    class Wrong(Neighbours, kind="wrong"):
        pass

    config = tiny("pe=none", "trainer.steps=1", "trainer.check=true")
    config.pe.kind = "wrong"
    with pytest.raises(UserError, match="pe.kind=wrong breaks a promise"):
        train(config)
    assert not Run.from_config(config).directory.exists()
    config.trainer.check = False
    assert begun(config).step == 0

    class Mine(Transformer):
        pass

    monkeypatch.setattr("wawa_transformer.run.config.Transformer", Mine)
    monkeypatch.setattr(setup, "require_promises", asked := Mock())
    begun(tiny("trainer.check=true", "trainer.bf16=true"))
    assert asked.call_args.args[1:] == (7, True, Mine)


def test_a_model_of_ones_own_has_all_its_layers_and_its_loss() -> None:
    """What only the loss trains is reached, and what nothing trains is named."""

    class Headed(Transformer):
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            self.encoder_layers[1].feed_forward = self.encoder_layers[0].feed_forward
            self.length = nn.Linear(self.d_model, 2)

        def forward(self, src: Tensor, *given: Any, targets: Any = None, **named: Any) -> Any:
            out = super().forward(src, *given, targets=targets, **named)
            if targets is None:
                return out
            tokens = (src != 0).sum(dim=1, keepdim=True)
            return out[0] + (self.length(self.encode(src)[:, 0]) * tokens).sum(), out[1]

    class Idle(Headed):
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            self.idle = nn.Linear(self.d_model, 2)

    assert not require_promises(shape({"num_layers": 2}), 4, False, Headed).broken
    with pytest.raises(UserError, match="a gradient reaches every trained number.* at idle.weight"):
        require_promises(shape({"num_layers": 2}), 4, False, Idle)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.int8])
def test_a_parameter_of_another_type_does_not_decide_what_is_tried(dtype: torch.dtype) -> None:
    """A model's own parameters come first, as a complex filter's or one of integers."""

    class Filtered(Transformer):
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            filters = torch.ones(self.d_model // 2 + 1, dtype=dtype)
            self.filter = nn.Parameter(filters, requires_grad=dtype.is_complex)

        def encode(self, *given: Any, **named: Any) -> Tensor:
            x = super().encode(*given, **named)
            return torch.fft.irfft(torch.fft.rfft(x) * self.filter, n=x.size(-1))

    assert not require_promises(shape({}), 4, False, Filtered).broken


def test_the_check_leaves_modes_and_random_numbers_alone() -> None:
    """A model in training stays there, each module in its mode, and no draw is moved."""
    model = Transformer(9, 9, 8, 1, 2, 8, pe="shaw").train()
    model.encoder_layers[0].eval()  # type: ignore[operator]
    modes = [module.training for module in model.modules()]
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    check_model(model)
    tiny_model(shape({"pe": "kerple"}))
    assert torch.equal(torch.rand(3), expected)
    assert [module.training for module in model.modules()] == modes


def test_sparse_gradients_and_frozen_models_are_tried_as_others_are() -> None:
    """Someone's own loop may take sparse gradients, and a trained model may need none."""
    model = Transformer(9, 9, d_model=16, num_layers=1, num_heads=2, d_ff=16, seed=0)
    model.tgt_embedding.sparse = model.src_embedding.sparse = True
    assert not check_model(model).broken and not check_model(model.requires_grad_(False)).broken
