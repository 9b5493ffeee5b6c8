"""Tests of the model against ``torch.nn.Transformer``, of its symmetries and its loss."""

import copy
import functools
import inspect
import itertools
import re
from collections.abc import Callable
from dataclasses import KW_ONLY, asdict, dataclass, fields, replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from omegaconf import OmegaConf
from support import (
    FF,
    HEADS,
    LAYERS,
    MODELS,
    PLACED,
    PLAIN,
    POSITION_IDS,
    D,
    V,
    padded_ids,
    perturbed,
    small_model,
)
from torch import Tensor, nn

from wawa_transformer import PositionalEncoding, Transformer
from wawa_transformer.common.limits import setting
from wawa_transformer.data.load import load_data
from wawa_transformer.model import config, transformer
from wawa_transformer.model.attention import AttentionPosition
from wawa_transformer.model.config import PLACEMENT, POSITIONS, TransformerConfig
from wawa_transformer.model.layers import EncoderLayer, FeedForward, ResidualConnection
from wawa_transformer.model.loss import loss_and_nll
from wawa_transformer.model.masks import causal_mask, padding_mask
from wawa_transformer.model.merged import MergedAttention
from wawa_transformer.positional import Placement, build_encoding
from wawa_transformer.positional.base import EncodingContext, consecutive
from wawa_transformer.positional.position_ids import PositionIds
from wawa_transformer.run.config import build_model
from wawa_transformer.train.tracking import attention_maps


def torch_transformer(model: Transformer, norm: str, activation: str) -> nn.Transformer:
    """Build a ``torch.nn.Transformer`` that shares the tensors of ``model``."""
    options: Any = dict(batch_first=True, activation=activation, norm_first=norm == "pre")
    peer = nn.Transformer(D, HEADS, LAYERS, LAYERS, FF, dropout=0.0, **options).double()
    # The paper has no norm at the end of a post-norm stack, but torch adds one.
    if norm == "post":
        peer.encoder.norm = peer.decoder.norm = None

    def copy(target: Any, source: Any) -> None:
        target.weight, target.bias = source.weight, source.bias

    stacks = (peer.encoder, model.encoder_layers), (peer.decoder, model.decoder_layers)
    for stack, layers in stacks:
        for layer, own in zip(stack.layers, layers, strict=True):
            attentions = [(layer.self_attn, own.self_attention)]
            if stack is peer.decoder:
                attentions.append((layer.multihead_attn, own.cross_attention))
            for attention, mine in attentions:
                attention.in_proj_weight = mine.in_proj.weight
                attention.in_proj_bias = mine.in_proj.bias
                copy(attention.out_proj, mine.out_proj)
            copy(layer.linear1, own.feed_forward.inner)
            copy(layer.linear2, own.feed_forward.outer)
            for i, residual in enumerate(own.residuals):
                copy(getattr(layer, f"norm{i + 1}"), residual.norm)
    if norm == "pre":
        copy(peer.encoder.norm, model.encoder_norm)
        copy(peer.decoder.norm, model.decoder_norm)
    return peer


# A kind of mask and its window: whether query i may not see key j.
HIDDEN: dict[str, Callable[[int, int], bool]] = {
    "full 0": lambda i, j: False,
    "causal 0": lambda i, j: j > i,
    "anti_causal 0": lambda i, j: j < i,
    "full 2": lambda i, j: abs(i - j) > 2,
    "causal 1": lambda i, j: j > i or i - j > 1,
}


def hidden_keys(ids: torch.Tensor, hides: Callable[[int, int], bool]) -> torch.Tensor:
    """The mask of torch's attention, True where a key of ``ids (B,S)`` is hidden: (B*H,S,S)."""
    length = range(ids.size(1))
    rows = [
        [[i != j and (hides(i, j) or not row[j]) for j in length] for i in length] for row in ids
    ]
    return torch.tensor(rows).repeat_interleave(HEADS, dim=0)


@pytest.mark.parametrize(
    ("norm", "activation", "tied", "mask"),
    [
        # Every pair of two choices.
        ("pre", "relu", False, "full 0"), ("pre", "gelu", True, "full 0"),
        ("post", "relu", True, "full 0"), ("post", "gelu", False, "full 0"),
        *(("pre", "relu", False, mask) for mask in HIDDEN if mask != "full 0"),
    ],
)  # fmt: skip
def test_logits_and_gradients_equal_torch(
    norm: str, activation: str, tied: bool, mask: str
) -> None:
    """Logits and all gradients equal torch's, with the same weights."""
    kind, window = mask.split()
    seen = {"encoder_mask": kind, "encoder_window": int(window)}
    model = small_model(norm=norm, activation=activation, tie_embeddings=tied, **seen)
    tables = model.src_embedding.weight, model.tgt_embedding.weight, model.output.weight
    assert len({id(each) for each in tables}) == (1 if tied else 3)
    with torch.no_grad():
        # Moved parameters, so that no bias is 0 and no norm is 1.
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) / 5)
    src, tgt = padded_ids(3, 7, 0), padded_ids(3, 5, 1)
    weight = torch.randn(3, 5, V, dtype=torch.float64)
    # Predictions at padding never reach a loss.
    weight[tgt == 0] = 0
    logits = model(src, tgt)
    assert torch.equal(model(src, tgt, targets=tgt)[0], loss_and_nll(logits, tgt)[0])
    (logits * weight).sum().backward()
    found = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}

    model.zero_grad()
    peer = torch_transformer(model, norm, activation)
    hidden = peer(
        model.src_position(model.src_embedding(src) * D**0.5),
        model.tgt_position(model.tgt_embedding(tgt) * D**0.5),
        src_mask=hidden_keys(src, HIDDEN[mask]),
        tgt_mask=~causal_mask(5),
        tgt_key_padding_mask=tgt == 0,
        memory_key_padding_mask=src == 0,
    )  # fmt: skip
    expected = hidden @ model.output.weight.T
    (expected * weight).sum().backward()
    torch.testing.assert_close(logits[tgt != 0], expected[tgt != 0], rtol=0, atol=1e-10)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(found[name], parameter.grad, rtol=0, atol=1e-9, msg=name)


@functools.cache
def seeded(name: str, seed: int, merged: bool) -> dict[str, nn.Parameter]:
    return dict(small_model(name, seed=seed, merged_attention=merged).named_parameters())


def test_a_key_of_any_kind_can_be_added(monkeypatch: pytest.MonkeyPatch) -> None:
    """A list, whose default is made anew, and a key without a default."""

    @dataclass
    class More(TransformerConfig):
        widths: list[int] = setting([8], "inner widths")
        _: KW_ONLY
        rate: float

    monkeypatch.setattr(config, "TransformerConfig", More)
    found = OmegaConf.structured(config.part("Part", ("d_ff", "widths", "rate"), __name__))
    assert (found.d_ff, found.widths) == (2048, [8]) and OmegaConf.is_missing(found, "rate")


SIZES: Any = dict(d_model=8, num_layers=1, num_heads=2, d_ff=6, seed=0)


def half(module: Any) -> Any:
    nn.init.constant_(module.weight, 0.5)
    return module


class Halves(nn.Linear):
    def reset_parameters(self) -> None:
        half(self)


def load_halves(self: FeedForward) -> None:
    half = {name: torch.full_like(each, 0.5) for name, each in self.inner.state_dict().items()}
    self.inner.load_state_dict(half, assign=True)


@pytest.mark.parametrize(
    "edit",
    [
        lambda self: half(self.inner),
        lambda self: nn.init.constant_(self.outer.bias, 0.5),
        # What is only read is drawn as ever.
        lambda self: self.outer.weight.data.fill_(
            self.inner.weight.data.sign().square().mean() / 2
        ),
        lambda self: self.inner.weight.detach().numpy().fill(0.5),
        lambda self: setattr(self.inner.bias, "data", torch.full((6,), 0.5)),
        lambda self: setattr(self.inner, "weight", nn.Parameter(torch.full((6, 8), 0.5))),
        lambda self: setattr(self, "inner", Halves(8, 6, bias=False)),
        lambda self: setattr(self, "inner", half(nn.utils.skip_init(nn.Linear, 8, 6, bias=False))),
        load_halves,
        lambda self: setattr(self, "given", nn.Embedding.from_pretrained(torch.full((7, 8), 0.5))),
    ],
)
def test_a_start_that_a_fork_sets_stays(edit: Any, after_init: Any) -> None:
    """However it was set: other values than torch's own draw. All others are as usual."""
    usual = Transformer(9, 9, **SIZES).state_dict()
    after_init(FeedForward, edit)
    found = Transformer(9, 9, **SIZES).state_dict()
    halves = {name for name, value in found.items() if value.eq(0.5).all()}
    assert len(halves) in (2, 4) and all("feed_forward" in name for name in halves)
    assert all(torch.equal(found[name], usual[name]) for name in found if name not in halves)


def test_copies_of_a_layer_start_as_layers_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of what torch has drawn is no start of one's own, nor is a row of padding."""
    sizes: Any = {**SIZES, "num_layers": 3}
    usual, layers = Transformer(9, 9, **sizes).state_dict(), []

    def layer(config: TransformerConfig) -> EncoderLayer:
        layers.append(copy.deepcopy(layers[0]) if layers else EncoderLayer(config))
        return layers[-1]

    monkeypatch.setattr(transformer, "EncoderLayer", layer)
    padded = {"Embedding": functools.partial(nn.Embedding, padding_idx=3)}
    monkeypatch.setattr(transformer, "nn", SimpleNamespace(**{**vars(nn), **padded}))
    found = Transformer(9, 9, **sizes).state_dict()
    assert all(torch.equal(found[name], usual[name]) for name in usual)


def test_an_edited_start_without_a_generator_follows_from_seed_and_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Alike for all encodings, also those with matrices of their own."""
    monkeypatch.setattr(
        nn.init, "xavier_uniform_", lambda weight, generator: nn.init.orthogonal_(weight)
    )
    sizes: Any = dict(d_model=8, num_layers=1, num_heads=2, d_ff=6)
    one, same, other, another = (
        Transformer(9, 9, **sizes, pe=pe, seed=seed).encoder_layers[0].state_dict().values()
        for pe, seed in (("none", 0), ("none", 0), ("transformer_xl", 0), ("none", 1))
    )
    assert all(map(torch.equal, one, same)) and all(map(torch.equal, one, other))
    assert not all(map(torch.equal, one, another))


@pytest.mark.parametrize("name", PLAIN)
def test_shared_parameters_start_equal(name: str) -> None:
    merged = MODELS[name].get("merged_attention", False)
    base, own = (seeded(kind, 2**40, merged) for kind in ("none", name))
    assert base.keys() <= own.keys()
    assert all(torch.equal(own[key], value) for key, value in base.items())
    other = seeded("none", 2**40 + 1, merged)
    assert not torch.equal(own["output.weight"], other["output.weight"])


@pytest.mark.parametrize("order", [[5, 4, 3, 2, 1, 0], [1, 0, 2, 3, 4, 5], [2, 4, 0, 5, 1, 3]])
def test_without_positions_the_encoder_is_permutation_equivariant(order: list[int]) -> None:
    """Without positions, permuting the source permutes the memory."""
    src, tgt = torch.tensor([[1, 2, 3, 4, 5, 6]]), torch.tensor([[1, 4, 2]])
    none = small_model("none")
    torch.testing.assert_close(none.encode(src[:, order]), none.encode(src)[:, order])
    torch.testing.assert_close(none(src[:, order], tgt), none(src, tgt))
    sinusoidal = small_model("sinusoidal")
    assert not torch.allclose(sinusoidal(src[:, order], tgt), sinusoidal(src, tgt))


@pytest.mark.parametrize("pe", ["sinusoidal", "alibi"])
@pytest.mark.parametrize("dtype", [torch.bool, torch.float64, torch.int64])
def test_a_mask_means_the_same_in_every_type(pe: str, dtype: torch.dtype) -> None:
    """A mask of numbers means the same as a mask of booleans.

    Numbers are never added to the scores, which would show the future.
    """
    model, src, tgt = small_model(pe), padded_ids(2, 6, 0), padded_ids(2, 5, 1)
    derived = padding_mask(src), causal_mask(5) & padding_mask(tgt), padding_mask(src)
    masks = [mask.to(dtype) for mask in derived]
    logits = model(src, tgt, *masks)
    assert torch.equal(logits, model(src, tgt))
    memory, cache = model.encode(src, masks[0]), model.new_cache()
    steps = [
        model.decode(tgt[:, i : i + 1], memory, masks[1][:, :, i : i + 1, : i + 1], masks[2], cache)
        for i in range(5)
    ]
    torch.testing.assert_close(torch.cat(steps, 1), logits, rtol=0, atol=1e-12)
    everything = torch.ones(5, 5).to(dtype)
    assert not torch.allclose(model(src, tgt), model(src, tgt, tgt_mask=everything))


@pytest.mark.parametrize("pe", ["sinusoidal", "alibi"])
@pytest.mark.parametrize("shape", [(), (6,), (6, 1), (6, 6), (HEADS, 6, 6), (2, 1, 1, 6)])
def test_a_mask_broadcasts_from_the_last_dimension(pe: str, shape: tuple[int, ...]) -> None:
    """A small mask equals the same mask written out in full."""
    model, src = small_model(pe), padded_ids(2, 6, 0)
    mask = torch.rand(shape) < 0.7
    written_out = mask.expand(2, HEADS, 6, 6).contiguous()
    assert torch.equal(model.encode(src, mask), model.encode(src, written_out))


@pytest.mark.parametrize("name", ["src_mask", "tgt_mask", "cross_mask"])
@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (torch.zeros(5, 5).masked_fill(~causal_mask(5), float("-inf")), "holds -inf; it must be"),
        (torch.eye(5, dtype=torch.int64) * 2, "holds 2; it must be"),
        (torch.ones(3, 5), r"shape \(3, 5\) does not broadcast .* = \(2, 4, 5, 5\)"),
        (torch.ones(2, 5, 5), r"shape \(2, 5, 5\)"),  # a batch without heads
        ([[True] * 5] * 5, "is of type list"),
    ],
)
def test_other_masks_are_refused(name: str, mask: Tensor, message: str) -> None:
    model, ids = small_model(), padded_ids(2, 5, 0)
    with pytest.raises(ValueError, match=f"^{name} .*{message}"):
        model(ids, ids, **{name: mask})


@pytest.mark.parametrize(
    "name", ["sinusoidal", "alibi_cross", "shaw_cross", "merged_sinusoidal", "merged_shaw"]
)
def test_a_query_without_keys_gets_zeros(name: str) -> None:
    """A source and a target of padding alone give finite logits and gradients."""
    model, src, tgt = small_model(name), padded_ids(2, 5, 0), padded_ids(2, 3, 1)
    src[0] = tgt[0] = 0
    logits = model(src, tgt)
    logits.sum().backward()
    assert logits.isfinite().all()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)
    assert not attention_maps(model, src[:1], tgt[:1])["cross"].any()


@pytest.mark.parametrize(
    "name",
    [*PLACED, *(f"sinusoidal_{each}" for each in POSITION_IDS), "shaw_random", "shaw_cross_both"],
)
def test_no_row_no_source_and_no_target_are_served(name: str) -> None:
    """Batch, source and target may each have size 0."""
    model = small_model(name, num_layers=1)
    for b, s, t in ((0, 3, 2), (2, 0, 2), (2, 3, 0)):
        src, tgt = (torch.ones(b, length, dtype=torch.int64) for length in (s, t))
        logits = model.train(s > 0)(src, tgt)
        logits.sum().backward()
        assert logits.shape == (b, t, V) and logits.isfinite().all()


@pytest.mark.parametrize("name", ["sinusoidal", "rotary", "alibi", "t5"])
def test_a_model_made_on_meta_has_its_tables_once_it_has_memory(name: str) -> None:
    """A model made on ``meta`` computes its tables when it gets memory.

    ``to_empty`` fills nothing, and a checkpoint holds only parameters.
    """
    # With 12 heads bfloat16 would round ALiBi's slopes.
    arguments = (V, V, 24, 1, 12, FF)
    with torch.device("meta"):
        model = Transformer(*arguments, pe=name)
    model.to_empty(device="cpu")
    expected, ids = Transformer(*arguments, pe=name).eval(), padded_ids(2, 30, 0)
    model.bfloat16().float().load_state_dict(expected.state_dict())
    torch.testing.assert_close(model.eval()(ids, ids), expected(ids, ids), rtol=0, atol=0)


@pytest.mark.parametrize("name", ["sinusoidal", "t5_cross", "shaw_cross", "pope", "merged_shaw"])
def test_attention_maps_show_the_attention_that_is_used(name: str) -> None:
    """Keeping the weights does not change the logits; those of the last layers are shown."""
    model, src, tgt = small_model(name), padded_ids(1, 6, 0), padded_ids(1, 5, 1)
    logits, maps = model(src, tgt), attention_maps(model, src, tgt)
    assert {name: tuple(w.shape) for name, w in maps.items()} == {
        "encoder": (HEADS, 6, 6), "decoder": (HEADS, 5, 5), "cross": (HEADS, 5, 6),
    }  # fmt: skip
    sums = {name: weights.sum(-1) for name, weights in maps.items()}
    if model.config.merged_attention:
        sums["decoder"] = sums.pop("decoder") + sums.pop("cross")
    for total in sums.values():
        torch.testing.assert_close(total, torch.ones_like(total))
    assert (maps["decoder"].triu(1) == 0).all()
    at = replace(model.batch_positions(src), maps=[])
    memory = model.encode(src, positions=at)
    found = model.decode(tgt, memory, cross_mask=padding_mask(src), positions=at)
    torch.testing.assert_close(found, logits, rtol=0, atol=1e-12)
    # Of two layers each; a decoder layer has a map of its own target and one of the source.
    for name, last in (("encoder", 1), ("decoder", 4), ("cross", 5)):
        assert torch.equal(maps[name], at.maps[last][0]), name


def test_attention_maps_of_an_edit_in_one_branch_are_said_to_be_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model, src, tgt = perturbed(small_model("sinusoidal")), padded_ids(1, 6, 0), padded_ids(1, 5, 1)
    attention_maps(model, src, tgt)
    assert not capsys.readouterr().err
    right = F.scaled_dot_product_attention

    def sharper(*given: Any, scale: float) -> Tensor:
        return right(*given, scale=3 * scale)

    monkeypatch.setattr(F, "scaled_dot_product_attention", sharper)
    attention_maps(model, src, tgt)
    assert "MultiHeadAttention.attend" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["t5_cross", "shaw_cross", "alibi", "merged_shaw"])
def test_layers_share_a_bias_only_where_content_has_no_part_in_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = perturbed(small_model(name))
    source, target = padded_ids(3, 7, seed=0), padded_ids(3, 5, seed=1)
    shared = model(source, target)
    compute = AttentionPosition.masked_bias

    def alone(self: AttentionPosition, *arguments: Any) -> Tensor | None:
        return compute(AttentionPosition(self.encoding, self.query, self.key), *arguments)

    monkeypatch.setattr(AttentionPosition, "masked_bias", alone)
    torch.testing.assert_close(model(source, target), shared)


@pytest.mark.parametrize("across", ["none", "rotary_query", "rotary_key", "rotary"])
def test_merged_attention_is_one_softmax_over_target_and_source(across: str) -> None:
    """Each query's output is written out: one softmax, the same weights for both sides.

    With ``rotary_query`` queries and own keys are rotated, and source keys are not (T5Gemma 2).
    """
    torch.manual_seed(1)
    layer, context = MergedAttention(8, 2).double(), EncodingContext(8, 2)
    x, memory, real = torch.randn(2, 3, 8).double(), torch.randn(2, 4, 8).double(), (4, 2)
    query, key = consecutive(3), consecutive(4)
    positions = (
        AttentionPosition(build_encoding("rotary", context), query, query),
        AttentionPosition(build_encoding(across, context), query, key),
    )
    padding = (torch.arange(4) < torch.tensor(real)[:, None])[:, None, None]  # (2,1,1,4)
    found = layer(x, memory, (causal_mask(3), padding), positions, (None, None))

    def turned(vector: Tensor, position: int) -> Tensor:
        angle = position * 10000.0 ** (-torch.arange(0, 4, 2).double() / 4)
        return torch.view_as_real(torch.view_as_complex(vector.view(2, 2)) * (1j * angle).exp())

    def part(token: Tensor, which: int, head: int) -> Tensor:
        return layer.in_proj(token).view(3, 2, 4)[which, head]

    for row, t in itertools.product(range(2), range(3)):
        heads = []
        for h in range(2):
            q, scores, values = part(x[row, t], 0, h), [], []
            for s in range(t + 1):
                k = turned(part(x[row, s], 1, h), s).flatten()
                scores.append(turned(q, t).flatten() @ k / 2)
                values.append(part(x[row, s], 2, h))
            for s in range(real[row]):
                k, from_q = part(memory[row, s], 1, h), q
                if across in ("rotary", "rotary_key"):
                    k = turned(k, s).flatten()
                if across in ("rotary", "rotary_query"):
                    from_q = turned(q, t).flatten()
                scores.append(from_q @ k / 2)
                values.append(part(memory[row, s], 2, h))
            heads.append(torch.stack(scores).softmax(0) @ torch.stack(values))
        torch.testing.assert_close(
            found[row, t], layer.out_proj(torch.cat(heads)), atol=1e-6, rtol=0
        )


def test_shared_layers_are_one_layer_applied_again() -> None:
    shared, deep = small_model(share_layers=True), small_model()
    for stack in ("encoder_layers", "decoder_layers"):
        [layer] = getattr(shared, stack)
        for each in getattr(deep, stack):
            each.load_state_dict(layer.state_dict())
    src, tgt = padded_ids(2, 6, 0), padded_ids(2, 5, 1)
    assert torch.equal(shared(src, tgt), deep(src, tgt))
    assert sum(p.numel() for p in shared.parameters()) < sum(p.numel() for p in deep.parameters())


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_dropout_acts_on_what_a_sublayer_gives(norm: str) -> None:
    """A sublayer computes ``x + dropout(f(norm(x)))``, or the post-norm formula."""
    config = TransformerConfig(V, V, d_model=8, dropout=0.5, norm=norm)
    residual, sublayer = ResidualConnection(config).train(), nn.Linear(8, 8)
    x, layer_norm = torch.arange(48.0).view(2, 3, 8).sin(), nn.LayerNorm(8)

    def drop(y: Tensor) -> Tensor:
        torch.manual_seed(0)
        return nn.functional.dropout(y, 0.5)

    pre = norm == "pre"
    expected = x + drop(sublayer(layer_norm(x))) if pre else layer_norm(x + drop(sublayer(x)))
    torch.manual_seed(0)
    torch.testing.assert_close(residual(x, sublayer), expected)


def test_tokens_are_as_loud_as_positions(tiny) -> None:
    """Embeddings have unit variance after the scale sqrt(D).

    A run may choose ``position_down`` (Csordás et al. 2021), where the sum is
    embedding + PE / sqrt(D), or ``none``, embedding + PE, and another deviation at the start.
    """
    for std, expected in ((None, 1 / 16), (1.0, 1.0), (0.02, 0.02)):
        model = Transformer(500, 500, 256, 1, 4, 16, seed=0, embedding_std=std)
        for table in (model.src_embedding, model.tgt_embedding):
            assert table.weight.std().item() == pytest.approx(expected, rel=0.02)
    ids, pe = torch.tensor([[4, 5, 6]]), PositionalEncoding(16).pe[:, :3]
    scales = (("token_up", 4.0, 1.0), ("position_down", 1.0, 0.25), ("none", 1.0, 1.0))
    for scale, token, position in scales:
        config = tiny(f"model.embedding_scale={scale}", "pe=sinusoidal")
        model = build_model(config, load_data(config).tokenizer).eval()
        at = model.batch_positions(ids).source
        embedded = model.embed(ids, model.src_embedding, model.src_position, at)
        torch.testing.assert_close(embedded, model.src_embedding(ids) * token + pe * position)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_loss_and_nll_are_the_formula(smoothing: float) -> None:
    """Loss and NLL equal the formula, summed over real tokens."""
    logits = torch.randn(3, 7, V, requires_grad=True)
    targets = padded_ids(3, 7, 0)
    log_p = logits.detach().double().log_softmax(-1)[targets != 0]  # (N,V)
    nll = -sum(row[token] for row, token in zip(log_p, targets[targets != 0], strict=True))
    expected = (1 - smoothing) * nll - smoothing * log_p.mean(-1).sum()
    with torch.autograd.profiler.profile() as operations:
        loss, plain = loss_and_nll(logits, targets, smoothing)
    softmax = [each.name for each in operations.function_events if "_log_softmax" in each.name]
    assert softmax == ["aten::_log_softmax"], "formed once for both"
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
    assert plain.item() == pytest.approx(nll.item(), rel=1e-6) and not plain.requires_grad
    loss.backward()
    share = smoothing / V + (1 - smoothing) * torch.nn.functional.one_hot(targets, V)
    gradient = (logits.detach().softmax(-1) - share) * (targets != 0)[..., None]
    torch.testing.assert_close(logits.grad, gradient, rtol=0, atol=1e-6)
    assert loss_and_nll(logits.bfloat16(), targets)[0].dtype == torch.float32
    forbidden = logits.detach().index_fill(-1, torch.tensor([0]), -torch.inf)  # as padding may be
    assert loss_and_nll(forbidden, targets)[0].isfinite()


def test_a_configuration_makes_the_model_that_its_values_make() -> None:
    """The same weights; values beside a configuration replace its own; help shows all of them."""
    values: dict[str, Any] = {"dropout": 0.0, "pe": "shaw", "cross": "same", "origin": "end"}
    config = TransformerConfig(V, V, D, 2, HEADS, 24, seed=3, **values)
    models = [
        Transformer(config), Transformer(V, V, D, 2, HEADS, 24, seed=3, **values),
        Transformer(TransformerConfig(V, V, num_layers=1), **asdict(config)),
    ]  # fmt: skip
    for model in models:
        assert model.config == config and model.position_ids == PositionIds(origin="end")
        for name, weights in models[0].state_dict().items():
            assert torch.equal(model.state_dict()[name], weights)
    assert Transformer(config, pe="t5").config.cross == "same"
    shown = inspect.signature(Transformer).parameters
    assert [*shown] == [each.name for each in fields(TransformerConfig)]
    paper = {"d_model": 512, "num_layers": 6, "num_heads": 8, "d_ff": 2048, "dropout": 0.1}
    assert {name: shown[name].default for name in paper} == paper


def test_position_keys_change_nothing_by_default() -> None:
    assert PositionIds(**TransformerConfig(V, V).values(POSITIONS)) == PositionIds()
    assert {*POSITIONS} == {each.name for each in fields(PositionIds)}
    assert {*PLACEMENT} == {each.name for each in fields(Placement)}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"d_model": 0}, "d_model=0 must be at least 1 and at most 65,536"),
        ({"dropout": None}, "dropout=None must have a value"),
        ({"num_layers": 2.0}, "num_layers=2.0 must be a whole number"),
        ({"dropout": "0.1"}, "dropout=0.1 must be a number"),
        ({"pe": "rotary", "pe_settings": {"base": "x"}}, "pe.base=x must be a number"),
        ({"pe": "learned", "pe_settings": {"init_std": None}}, "pe.init_std=None must be a number"),
        ({"dropout": 1.0}, "dropout=1.0 must be at least 0 and less than 1"),
        ({"dropout": float("nan")}, "dropout=nan must be at least 0"),
        ({"encoder_mask": "half"}, "encoder_mask=half does not exist; choose one of full, causal"),
        (
            {"d_model": 10, "num_heads": 4},
            "model.d_model=10 is not divisible by model.num_heads=4; choose model.num_heads from "
            "1, 2, 5, 10.",
        ),
        ({"tie_embeddings": True, "tgt_vocab_size": 5}, "tie_embeddings needs equal vocabularies"),
        ({"pe": "nope"}, "pe=nope does not exist"),
        ({"max_shift": -1}, "pe.max_shift=-1 must be at least 0 and at most 1,000,000"),
        ({"seed": 2**63}, f"seed={2**63} must be at least"),
    ],
)
def test_an_impossible_configuration_is_refused(given: dict[str, Any], said: str) -> None:
    """With the value, the limit and the key."""
    with pytest.raises(ValueError, match=f"^{re.escape(said)}"):
        Transformer(**{"src_vocab_size": V, "tgt_vocab_size": V, **given})
