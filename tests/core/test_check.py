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
from wawa_transformer.model.layers import EncoderLayer, ResidualConnection
from wawa_transformer.model.loss import loss_and_nll
from wawa_transformer.model.masks import causal_mask
from wawa_transformer.positional.alibi import ALiBi
from wawa_transformer.positional.base import (
    ENCODINGS,
    Encoding,
    EncodingContext,
    Positions,
    consecutive,
)
from wawa_transformer.positional.kerple import Kerple
from wawa_transformer.positional.learned import LearnedEncoding
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


def test_encodings_that_need_the_real_sizes_are_checked_at_these(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An encoding that refuses the tiny model, long sequences or negative numbers passes.

    One that asks for a width is tried at this width, the others at a smaller one.
    """

    class Strict(LearnedEncoding, kind="strict"):
        def check_length(self, longest: int) -> None:
            if longest > 5:
                raise UserError("at most 5.")

    class Sixfold(RelativeEncoding, kind="sixfold"):
        """Needs six heads, the real layers, and positive numbers."""

        per_layer = True

        def __init__(self, context: EncodingContext) -> None:
            super().__init__(context)
            if context.num_heads != 6 or context.num_layers != 2:
                raise ValueError("six heads and two layers.")
            self.slopes = nn.Parameter(torch.ones(6))
            self.buckets = nn.Parameter(torch.arange(6), requires_grad=False)

        def bias(self, q: Tensor, k: Tensor, query: Positions, key: Positions) -> Tensor:
            return -self.slopes.log().exp()[:, None, None] * self.distances(query, key).abs()

    class Wide(Sixfold, kind="wide"):
        def bias(self, q: Tensor, k: Tensor, query: Positions, key: Positions) -> Tensor:
            return (
                super().bias(q, k, query, key) + (q * torch.linspace(-1, 1, 21)).sum(-1)[..., None]
            )

    for length in (3, 5):
        require_promises(shape({"pe": "strict"}), length)
    widths, right = [], check.tiny_model

    def tiny(config: TransformerConfig, *given: Any) -> Transformer:
        widths.append(config.d_model)
        return right(config, *given)

    monkeypatch.setattr(check, "tiny_model", tiny)
    for kind, width in (("sixfold", 24), ("sixfold", 126), ("wide", 126)):
        sizes = {"num_heads": 6, "num_layers": 2, "d_model": width}
        require_promises(shape({**sizes, "pe": kind}), 9)
    assert widths == [24, 78, 78, 126]


def test_order_and_meeting_are_told_and_are_no_promise(capsys: pytest.CaptureFixture[str]) -> None:
    """Without positions order does not matter; distances in cross-attention let positions meet.

    The queries' rotation alone does not.
    """
    told = {}
    for name, given in {
        "none": {"pe": "none"}, "causal": MODELS["none_causal"], "alibi": {"pe": "alibi"},
        "rotary": {"pe": "rotary"}, "rotary_cross": MODELS["rotary_cross"],
        "query": {"pe": "rotary", "cross": "rotary_query"},
        "key": {"pe": "rotary", "cross": "rotary_key"},
        "shaw": {"pe": "shaw", "where": ["cross"]},
    }.items():  # fmt: skip
        report = check_model(tiny_model(shape({**given})))
        assert not report.broken
        found = {each.name: each.holds for each in report}
        told[name] = found[probe.ORDER], found[promises.MEET]
    assert told == {
        "none": (False, False), "causal": (True, False), "alibi": (True, False),
        "rotary": (True, False), "rotary_cross": (True, True), "query": (True, False),
        "key": (True, False), "shaw": (True, True),
    }  # fmt: skip
    assert capsys.readouterr().out.count(probe.CACHED) == 8


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


class FirstRow(ALiBi):
    """The first row's positions for all rows."""

    def bias(self, q: Tensor, k: Tensor, query: Positions, key: Positions) -> Tensor:
        query, key = (Positions(each.ids[:1], each.end) for each in (query, key))
        return super().bias(q, k, query, key)


class Neighbours(Encoding):
    """Positions from a convolution over the embeddings of neighbours."""

    def __init__(self, context: EncodingContext) -> None:
        super().__init__(context)
        self.mix = nn.Conv1d(context.d_model, context.d_model, 3, padding=1)

    def embed(self, x: Tensor, positions: Positions) -> Tensor:
        return x + self.mix(x.transpose(1, 2)).transpose(1, 2)


class Dropped(Encoding):
    """Dropout that never ends."""

    def bias(self, q: Tensor, k: Tensor, query: Positions, key: Positions) -> Tensor:
        far = (key.ids[..., None, :] - query.ids[..., :, None]).abs()
        return F.dropout(-far.to(q.dtype), self.context.dropout)


class Exploding(RelativeEncoding):
    """A penalty too large for a number, from distance 89 on."""

    def bias(self, q: Tensor, k: Tensor, query: Positions, key: Positions) -> Tensor:
        far = self.distances(query, key).abs().to(q.dtype)
        return far.exp() - far.exp()


class Content(RelativeEncoding):
    """A bias that reads the queries and says that it does not."""

    content_independent = True

    def bias(self, q: Tensor, k: Tensor, query: Positions, key: Positions) -> Tensor:
        return self.distances(query, key) * q.mean(-1, keepdim=True)


class Gate(RelativeEncoding):
    """A mistake behind a gate that starts at zero."""

    def __init__(self, context: EncodingContext) -> None:
        super().__init__(context)
        self.gate = nn.Parameter(torch.zeros(context.num_heads, 1, 1))

    def bias(self, q: Tensor, k: Tensor, query: Positions, key: Positions) -> Tensor:
        return self.gate * torch.arange(key.ids.size(-1)) * (key.ids.size(-1) - query.ids.size(-1))


class Distances(RelativeEncoding):
    """The right distances, which the mistakes below alter by a factor."""

    def bias(self, q: Tensor, k: Tensor, query: Positions, key: Positions) -> Tensor:
        return -self.distances(query, key).abs().to(q.dtype) * self.wrong(q, k, query, key)

    def wrong(self, q: Tensor, k: Tensor, query: Positions, key: Positions) -> Any:
        return 1.0


class Untrained(Distances):
    """Training has no positions."""

    def wrong(self, q: Tensor, k: Tensor, query: Positions, key: Positions) -> Any:
        return 0.0 if self.training else 1.0


class Cheating(Encoding):
    """Training sees the future through a mean, beside noise."""

    def embed(self, x: Tensor, positions: Positions) -> Tensor:
        noise = torch.randn(()) / 9
        return x + (noise + x.mean(1, keepdim=True)) if self.training else x


class LateSteps(Distances):
    """A single new token is off, from position 18 on."""

    def wrong(self, q: Tensor, k: Tensor, query: Positions, key: Positions) -> Any:
        return 2.0 if q.size(2) == 1 and query.end > 17 else 1.0


class LaterSteps(Distances):
    """A single new token is off, from a position on that no row of the check has by itself."""

    def wrong(self, q: Tensor, k: Tensor, query: Positions, key: Positions) -> Any:
        return 2.0 if q.size(2) == 1 and query.end > 50 else 1.0


class LongRows(Distances):
    """The length counts in the third head, in rows of more than 16."""

    def wrong(self, q: Tensor, k: Tensor, query: Positions, key: Positions) -> Any:
        return torch.tensor([1.0, 1.0, 16 / max(16, k.size(2))])[:, None, None]


class Counted(RelativeEncoding):
    """Positions counted from the shapes, with the right end."""

    def bias(self, q: Tensor, k: Tensor, query: Positions, key: Positions) -> Tensor:
        i, j = (torch.arange(at.end - at.ids.size(-1), at.end) for at in (query, key))
        return -(j - i[:, None]).abs().to(q.dtype)[None, None]


class Grown(Encoding):
    """A table that each call changes in place."""

    def __init__(self, context: EncodingContext) -> None:
        super().__init__(context)
        self.table = torch.linspace(0, 9, 500)[:, None] * torch.linspace(-1, 1, context.d_model)

    def embed(self, x: Tensor, positions: Positions) -> Tensor:
        rows = self.table[: positions.end]
        rows *= 1.01
        return x + rows[positions.ids[:, 0]]


class OneToken(Distances):
    """Undefined for a single token, as a division by the length less one."""

    def wrong(self, q: Tensor, k: Tensor, query: Positions, key: Positions) -> Any:
        return 1.0 if k.size(2) > 1 or self.context.causal else torch.nan


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


class Ready(Encoding):
    """A table that is computed once from a weight, which training changes."""

    def __init__(self, context: EncodingContext) -> None:
        super().__init__(context)
        self.rate = nn.Parameter(torch.linspace(-1, 1, context.d_model))
        self.table = torch.zeros(0)

    def embed(self, x: Tensor, positions: Positions) -> Tensor:
        if self.training:
            return x + positions.ids[:, 0, :, None] * self.rate
        if not len(self.table):
            self.table = torch.arange(500)[:, None] * self.rate
        return x + self.table[positions.ids[:, 0]]


class Drawn(Encoding):
    """Adds random features that its buffer does not save."""

    def __init__(self, context: EncodingContext) -> None:
        super().__init__(context)
        self.register_buffer("features", torch.randn(context.d_model), persistent=False)

    def embed(self, x: Tensor, positions: Positions) -> Tensor:
        return x + torch.sin(positions.ids[:, 0, :, None] * self.features)


class NumpyStart(Encoding):
    """Starts a trained number with numpy, which the seed does not reach."""

    def __init__(self, context: EncodingContext) -> None:
        super().__init__(context)
        self.rate = nn.Parameter(torch.from_numpy(np.random.randn(context.d_model)).float())

    def embed(self, x: Tensor, positions: Positions) -> Tensor:
        return x + torch.sin(positions.ids[:, 0, :, None] * self.rate)


class SeededStart(NumpyStart):
    """Seeds torch, so that its numbers start alike under every seed."""

    def __init__(self, context: EncodingContext) -> None:
        super().__init__(context)
        torch.manual_seed(0)
        self.rate = nn.Parameter(torch.randn(context.d_model))


class Scaled(Encoding):
    """Scales the embeddings, which the model has scaled."""

    def embed(self, x: Tensor, positions: Positions) -> Tensor:
        return x * self.context.d_model**0.5 + torch.sin(positions.ids[:, 0, :, None] / 3)


class Fading(Encoding):
    """Fades over many steps of training, which it counts in a plain number."""

    steps = 0

    def embed(self, x: Tensor, positions: Positions) -> Tensor:
        self.steps += self.training
        return x + torch.sin(positions.ids[:, 0, :, None] / 3) * max(0, 1 - self.steps / 20000)


class Twice(Encoding):
    """Drops out what the base class drops out."""

    def embed(self, x: Tensor, positions: Positions) -> Tensor:
        return self.dropout(x + torch.sin(positions.ids[:, 0, :, None] / 3))


class Undropped(Encoding):
    """Has a forward of its own."""

    def embed(self, x: Tensor, positions: Positions) -> Tensor:
        return x + torch.sin(positions.ids[:, 0, :, None] / 3)

    def forward(self, x: Tensor, positions: Positions | None = None) -> Tensor:
        return self.embed(x, positions or consecutive(x.size(1)))


class Idle(Distances):
    """A trained number that is read as a plain one."""

    def __init__(self, context: EncodingContext) -> None:
        super().__init__(context)
        self.rate = nn.Parameter(torch.ones(()))

    def wrong(self, q: Tensor, k: Tensor, query: Positions, key: Positions) -> Any:
        return self.rate.item()


class Stepped(Idle):
    """A trained number that is rounded, so that its gradient is 0."""

    def wrong(self, q: Tensor, k: Tensor, query: Positions, key: Positions) -> Any:
        return self.rate.round() + 1


class OneSided(Idle):
    """A number that starts at 0 and acts where it is at most 0, or at least 0."""

    side = 1

    def __init__(self, context: EncodingContext) -> None:
        super().__init__(context)
        nn.init.zeros_(self.rate)

    def wrong(self, q: Tensor, k: Tensor, query: Positions, key: Positions) -> Any:
        return 1 + (self.side * self.rate).clamp(max=0)


class Rootless(Idle):
    """A root, which has no finite gradient where the distance is 0."""

    def bias(self, q: Tensor, k: Tensor, query: Positions, key: Positions) -> Tensor:
        distance = self.distances(query, key).abs()
        return -(self.rate.abs() * distance).sqrt().to(q.dtype)


class Listed(Distances):
    """A trained factor in a list, which torch does not look into."""

    def __init__(self, context: EncodingContext) -> None:
        super().__init__(context)
        self.factors = [nn.Parameter(torch.ones(()))]

    def wrong(self, q: Tensor, k: Tensor, query: Positions, key: Positions) -> Any:
        return self.factors[0]


class Start(Distances):
    """Declares distances, and divides by a position, as FIRE does."""

    def wrong(self, q: Tensor, k: Tensor, query: Positions, key: Positions) -> Any:
        return 1 / (1 + query.ids[..., None])


class Hidden(Distances):
    """Declares that positions do not matter."""

    relative, uses_positions = False, False

    def wrong(self, q: Tensor, k: Tensor, query: Positions, key: Positions) -> Any:
        return 1.0


class Whole(Distances):
    """Declares that half a position counts, and rounds it."""

    fractional = True

    def bias(self, q: Tensor, k: Tensor, query: Positions, key: Positions) -> Tensor:
        far = query.ids.long()[..., None] - key.ids.long()[..., None, :]
        return -far.abs().to(q.dtype)


class LaterHeads(Distances):
    """Heads five to eight are off where there is padding."""

    def wrong(self, q: Tensor, k: Tensor, query: Positions, key: Positions) -> Any:
        off = torch.full((k.size(1), 1, 1), k.size(2) / 10)
        off[:4] = 1
        return off


class FirstHead(Rotary):
    """The first head's positions for all heads."""

    headwise = True

    def turn(self, x: Tensor, positions: Positions) -> Tensor:
        return super().turn(x, Positions(positions.ids[:, :1], positions.end))


@pytest.mark.parametrize(
    ("cls", "names"),
    [
        (NumpyStart, {promises.STARTED}),
        (SeededStart, {promises.STARTED}),
        (Scaled, {promises.SCALED}),
        (Fading, {promises.COUNTED}),
        (Twice, {promises.DROPPED}),
        (Undropped, {promises.DROPPED}),
        (OneToken, {probe.ALONE}),
        (Idle, {promises.REACHED}),
        (Stepped, {promises.REACHED}),
        (Rootless, {promises.DEFINED}),
        (Listed, {promises.REACHED}),
        (Start, {promises.RELATIVE}),
        (Hidden, {promises.UNUSED}),
        (Whole, {promises.FRACTIONAL}),
        (Seeding, {promises.KEPT}),
        (Growing, {promises.KEPT}),
        (Untrained, {promises.TRAINED}),
        (Cheating, {probe.FUTURE}),
        (LateSteps, {probe.CACHED}),
        (LaterSteps, {probe.CACHED}),
        (LongRows, {probe.PADDING, probe.ALONE}),
        (Counted, {promises.READ}),
        (Grown, {probe.REPEATED}),
        (FirstRow, {probe.ALONE}),
        (Neighbours, {probe.PADDING, probe.FUTURE, probe.CACHED}),
        (Dropped, {probe.REPEATED}),
        (Exploding, {probe.FINITE}),
        (Content, {promises.SHARED}),
        (Gate, {probe.CACHED}),
        (Ready, {promises.SAVED}),
        (Drawn, {promises.SAVED}),
    ],
)
def test_a_mistake_is_found(cls: type[Encoding], names: set[str]) -> None:
    """The properties that a mistake breaks are among those found."""
    ENCODINGS["wrong"] = cls
    report = reported(shape({"pe": "wrong"}), 60)
    assert names <= {each.name for each in report.broken}, str(report)


def test_a_gradient_that_is_not_finite_is_said_of_the_encodings_own_number() -> None:
    """Not of the embeddings below it, which come first."""

    class Rooted(Idle, kind="wrong"):
        def embed(self, x: Tensor, positions: Positions) -> Tensor:
            return x + (self.rate.abs() * positions.ids[:, 0, :, None] * x.square()).sqrt()

    broken = {each.name: each.where for each in reported(shape({"pe": "wrong"}), 20).broken}
    assert broken[promises.DEFINED] == "Rooted.rate"


class Square(Distances):
    """As many queries as keys are taken for one sequence."""

    def wrong(self, q: Tensor, k: Tensor, query: Positions, key: Positions) -> Any:
        return 1.0 if q.size(2) == k.size(2) else 0.5


def test_a_source_as_long_as_its_target_is_another_sequence() -> None:
    """A batch of such rows must not tell its cross-attention from self-attention by a shape."""
    ENCODINGS["square"] = Square
    config = shape({"pe": "square", "where": ["cross"]})
    for length in (6, 20):
        assert reported(config, length).broken[0].name == probe.ALONE


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
        ENCODINGS["onesided"] = type("OneSided", (OneSided,), {"side": side})
        require_promises(shape({"pe": "onesided", "where": ["decoder"]}), length)


class Table(Encoding):
    """A table that ends, without a word to anyone."""

    def __init__(self, context: EncodingContext) -> None:
        super().__init__(context)
        self.table = nn.Parameter(torch.randn(30, context.d_model))

    def embed(self, x: Tensor, positions: Positions) -> Tensor:
        return x + self.table[positions.ids[:, 0]].to(x.dtype)


def test_the_end_of_a_table_is_named() -> None:
    """By a sentence: of a class that does not declare it, and of one that does."""
    ENCODINGS["table"] = Table
    require_promises(shape({"pe": "table"}), 15)
    with pytest.raises(UserError, match=r"fails at 40 tokens \(index .*declares max_positions"):
        require_promises(shape({"pe": "table"}), 20)
    ENCODINGS["table"] = type("Ending", (Table,), {"max_positions": 30, "kind": "table"})
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


def test_a_state_that_is_no_tensor_is_refused() -> None:
    ENCODINGS["extra"] = Extra
    with pytest.raises(UserError, match="_extra_state of the model's state is no tensor"):
        require_promises(shape({"pe": "extra"}), 4)


def test_a_mistake_in_any_head_is_found() -> None:
    ENCODINGS["laterheads"] = LaterHeads
    for heads in (4, 8):
        report = reported(shape({"pe": "laterheads", "num_heads": heads}), 60)
        assert bool(report.broken) == (heads > 4)


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


class FirstAdded(Encoding):
    """The first head's positions in all dimensions."""

    def embed(self, x: Tensor, positions: Positions) -> Tensor:
        return x + positions.ids[:, 0, :, None] * torch.linspace(-1, 1, x.size(-1))


@pytest.mark.parametrize(("cls", "cross"), [(FirstHead, "same"), (FirstAdded, "none")])
def test_positions_of_another_head_are_found_where_heads_have_their_own(
    cls: type[Encoding], cross: str
) -> None:
    ENCODINGS["first"] = cls
    report = reported(shape({"pe": "first", "origin": "both", "cross": cross}), 12)
    assert report.broken[0].name == promises.HEADS_APART


def test_a_mistake_in_forward_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Training and evaluation call it, and the check as well."""
    right = Transformer.forward

    def forward(self: Transformer, src: Tensor, tgt: Tensor, *args: Any, **more: Any) -> Any:
        return right(self, src, tgt, cross_mask=torch.ones(1, 1, 1, src.size(1), dtype=torch.bool))

    monkeypatch.setattr(Transformer, "forward", forward)
    report = check.TransformerProbe(tiny_model(shape({"pe": "sinusoidal"}))).report()
    assert probe.PADDING in {each.name for each in report.broken}


def test_an_encoding_that_overrides_nothing_is_refused() -> None:
    """As by a slip in a method's name; it would train as pe=none."""

    class Slip(Encoding):
        def apply_rotary(self, q: Tensor) -> Tensor:
            return q

    ENCODINGS["slip"] = Slip
    with pytest.raises(UserError, match="pe.kind=slip overrides none of embed, rotate, bias"):
        require_promises(shape({"pe": "slip"}), 12)


def test_a_layer_without_a_shape_is_named() -> None:
    """Starting values are drawn before the first call, which would give it its shape."""

    class Lazy(Encoding):
        def __init__(self, context: EncodingContext) -> None:
            super().__init__(context)
            self.mix = nn.LazyLinear(context.d_model)

        def embed(self, x: Tensor, positions: Positions) -> Tensor:
            return x + self.mix(x)

    ENCODINGS["lazy"] = Lazy
    with pytest.raises(UserError, match="src_position.mix.weight has no shape before"):
        require_promises(shape({"pe": "lazy"}), 12)


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
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self.norm = nn.BatchNorm1d(context.d_model)

    def embed(self, x: Tensor, positions: Positions) -> Tensor:
        self.steps += self.training
        late = positions.ids[:, 0, :, None] * torch.linspace(-1, 1, x.size(-1))
        return self.norm((x + late * (self.steps > 0)).flatten(0, 1)).view_as(x)


class Assigned(Encoding):
    """Counts in a buffer that each step replaces."""

    def __init__(self, context: EncodingContext) -> None:
        super().__init__(context)
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def embed(self, x: Tensor, positions: Positions) -> Tensor:
        self.steps = self.steps + 1 if self.training else self.steps
        late = positions.ids[:, 0, :, None] * torch.linspace(-1, 1, x.size(-1))
        return x + late * (self.steps / 10).clamp(max=1)


class Noisy(Encoding):
    """Positions with dropout of their own."""

    def embed(self, x: Tensor, positions: Positions) -> Tensor:
        late = positions.ids[:, 0, :, None] * torch.linspace(-1, 1, x.size(-1))
        return x + F.dropout(late, 0.3, self.training)


class Watched(Noisy):
    """Keeps a number of its last use in training, as for a loss."""

    def __init__(self, context: EncodingContext) -> None:
        super().__init__(context)
        self.size = torch.zeros(())

    def embed(self, x: Tensor, positions: Positions) -> Tensor:
        out = super().embed(x, positions)
        self.size = out.norm() if self.training else self.size
        return out


@pytest.mark.parametrize("cls", [Counter, Assigned, Noisy, Watched])
def test_counters_batch_norm_and_noise_of_training_are_no_mistake(cls: type[Encoding]) -> None:
    """The check leaves what they count as it was."""
    ENCODINGS["own"] = cls
    require_promises(shape({"pe": "own"}), 9)
    model = Transformer(9, 9, **SIZES, pe="own")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    check_model(model)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_a_buffer_that_counts_every_use_is_no_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in evaluation: a checkpoint holds it, and no answer depends on it."""
    built, right = EncoderLayer.__init__, EncoderLayer.forward

    def own(self: EncoderLayer, config: TransformerConfig) -> None:
        built(self, config)
        self.register_buffer("uses", torch.zeros((), dtype=torch.int64))

    def counted(self: EncoderLayer, *given: Any) -> Tensor:
        self.uses += 1
        return right(self, *given)

    monkeypatch.setattr(EncoderLayer, "__init__", own)
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
    right = Transformer.decode

    def decode(
        self: Transformer, tgt: Tensor, memory: Tensor, mask: Any, cross: Any, cache: Any = None,
        positions: Any = None,
    ) -> Tensor:  # fmt: skip
        before = len(cache[0][0]) if cache else 0
        window = causal_mask(tgt.size(1), before).triu(before - 2)
        mask = window if mask is None else mask
        return right(self, tgt, memory, mask, cross, cache, positions)

    monkeypatch.setattr(Transformer, "decode", decode)
    with pytest.raises(UserError, match=f"{promises.TRAINED}.*mask of train_step.*in the model"):
        require_promises(shape({"pe": "rotary"}), 20)


@pytest.mark.parametrize("name", ["sinusoidal", "t5_cross"])
@pytest.mark.parametrize("mistake", ["keep", "offset", "forget"])
def test_a_mistake_of_the_cache_is_found(
    name: str, mistake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache may lose a row's place, a position, or its first token; below it mixes rows."""
    cache = check.Transformer.new_cache(tiny_model(shape({"pe": "none"})))[0][0]
    cls: Any = type(cache)
    seen = cls.seen
    if mistake == "keep":
        monkeypatch.setattr(cls, "keep", lambda self, rows: None)
    elif mistake == "offset":
        monkeypatch.setattr(cls, "__len__", lambda self: self.length + (self.length > 0))
    else:

        def forgetful(self: Any) -> Any:
            k, v = seen(self)
            return k.index_fill(2, torch.tensor([0]), 0.0), v

        monkeypatch.setattr(cls, "seen", forgetful)
    model = tiny_model(shape(MODELS[name]))
    try:
        report = check_model(model)
    except RuntimeError:  # rows that do not fit each other
        assert mistake in ("keep", "offset")
        return
    assert probe.CACHED in {each.name for each in report.broken}


@pytest.mark.parametrize(
    ("name", "mistake"), [("none", "ahead"), ("rotary_cross_continued", "rows")]
)
def test_a_mistake_in_the_model_is_not_blamed_on_the_encoding(
    name: str, mistake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sentence names the model's folder where no encoding is needed for the mistake."""
    if mistake == "rows":
        cls: Any = type(tiny_model(shape({"pe": "none"})).new_cache()[0][0])
        append = cls.append
        monkeypatch.setattr(cls, "append", lambda self, k, v: append(self, k.roll(1, 0), v))
    else:
        forward = Transformer.decode
        monkeypatch.setattr(
            Transformer,
            "decode",
            lambda self, *given, **more: (
                forward(self, *given, **more) + given[0].float().mean(-1)[:, None, None]
            ),
        )
    with pytest.raises(
        UserError, match=r"with pe=none: the cause is in the model \(.*model\)"
    ) as it:
        require_promises(shape(MODELS[name]), 12)
    assert "positional" not in str(it.value)


def rezero(self: ResidualConnection, x: Tensor, sublayer: nn.Module, *args: Any) -> Tensor:
    return x + self.gain * sublayer(self.norm(x), *args)


def at_random(self: ResidualConnection, x: Tensor, sublayer: nn.Module, *args: Any) -> Tensor:
    left_out = self.training and torch.rand(()) < 0.3
    return x if left_out else x + sublayer(self.norm(x), *args)


@pytest.mark.parametrize("edit", ["rezero", "out_proj", "output", "at_random", "no_bias", "head"])
def test_an_edit_of_the_model_that_people_make_is_no_mistake(
    edit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gate or a matrix that starts at zero, a layer that training leaves out at random.

    And projections without a bias, or a network in place of the output's matrix.
    """
    places = dict.fromkeys(("out_proj", "no_bias"), MultiHeadAttention)
    places |= dict.fromkeys(("output", "head"), Transformer)
    cls: Any = places.get(edit, ResidualConnection)
    right = cls.__init__

    def init(self: Any, *given: Any, **more: Any) -> None:
        right(self, *given, **more)
        if edit == "rezero":
            self.gain = nn.Parameter(torch.zeros(()))
        elif edit in ("out_proj", "output"):
            nn.init.zeros_(getattr(self, edit).weight)
        elif edit == "no_bias":
            self.in_proj.register_parameter("bias", None)
        elif edit == "head":
            words = self.output.out_features
            self.output = nn.Sequential(nn.Linear(self.d_model, 8), nn.GELU(), nn.Linear(8, words))

    monkeypatch.setattr(cls, "__init__", init)
    if edit in ("rezero", "at_random"):
        monkeypatch.setattr(cls, "forward", globals()[edit])
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


def test_a_model_of_ones_own_is_tried() -> None:
    """Where it leaks, the cause is said to be in the model."""

    class Leaking(Transformer):
        def decode(self, *given: Any, **named: Any) -> Tensor:
            return (logits := super().decode(*given, **named)) + logits.roll(-1, dims=1)

    with pytest.raises(UserError, match="the cause is in the model"):
        require_promises(shape({}), 4, False, Leaking)


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


def test_sparse_gradients_are_tried_as_dense_ones_are() -> None:
    """Someone's own loop may take them."""
    model = Transformer(9, 9, d_model=16, num_layers=1, num_heads=2, d_ff=16, seed=0)
    model.tgt_embedding.sparse = model.src_embedding.sparse = True
    check_model(model)
