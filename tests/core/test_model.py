"""The model against ``torch.nn.Transformer`` with the same weights, and its symmetries."""

from __future__ import annotations

import pytest
import torch
from conftest import MODELS
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch._dynamo.utils import counters
from torch.utils._python_dispatch import TorchDispatchMode

from wawa_transformer import Transformer
from wawa_transformer.model.loss import loss_and_nll
from wawa_transformer.model.masks import causal_mask, padding_mask
from wawa_transformer.positional.base import ENCODINGS
from wawa_transformer.train.tracking import attention_maps

V, D, HEADS, FF, LAYERS = 13, 16, 4, 24, 2


def ours(**changes: object) -> Transformer:
    model = Transformer(V, V, D, LAYERS, HEADS, FF, dropout=0.0, seed=3, **changes)
    return model.double().eval()


def theirs(model: Transformer, norm: str, activation: str) -> nn.Transformer:
    """``torch.nn.Transformer`` holding the very tensors of ``model``."""
    options = dict(dropout=0.0, activation=activation, batch_first=True, norm_first=norm == "pre")
    peer = nn.Transformer(D, HEADS, LAYERS, LAYERS, FF, **options).double()
    if norm == "post":  # the paper has no norm at the end of a post-norm stack, torch adds one
        peer.encoder.norm = peer.decoder.norm = None

    def copy(target: nn.Module, source: nn.Module) -> None:
        target.weight, target.bias = source.weight, source.bias

    for stack, layers in (
        (peer.encoder, model.encoder_layers),
        (peer.decoder, model.decoder_layers),
    ):
        for layer, own in zip(stack.layers, layers, strict=True):
            attentions = [(layer.self_attn, own.self_attention)]
            if stack is peer.decoder:
                attentions.append((layer.multihead_attn, own.cross_attention))
            for attention, mine in attentions:
                attention.in_proj_weight, attention.in_proj_bias = (
                    mine.in_proj.weight,
                    mine.in_proj.bias,
                )
                copy(attention.out_proj, mine.out_proj)
            copy(layer.linear1, own.feed_forward.inner)
            copy(layer.linear2, own.feed_forward.outer)
            for i, residual in enumerate(own.residuals):
                copy(getattr(layer, f"norm{i + 1}"), residual.norm)
    if norm == "pre":
        copy(peer.encoder.norm, model.encoder_norm)
        copy(peer.decoder.norm, model.decoder_norm)
    return peer


def padded(batch: int, length: int, seed: int) -> Tensor:
    """Ids with right padding of different lengths, no row empty."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(1, V, (batch, length), generator=generator)
    for row in range(batch):
        ids[row, length - row :] = 0
    return ids


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("tied", [False, True])
def test_logits_and_gradients_equal_torch(norm: str, activation: str, tied: bool) -> None:
    """Same weights, padded batch: logits and the gradient of every parameter agree."""
    model = ours(norm=norm, activation=activation, tie_embeddings=tied)
    src, tgt = padded(3, 7, 0), padded(3, 5, 1)
    weight = torch.randn(3, 5, V, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    weight[tgt == 0] = 0  # what stands at padding never reaches a loss

    logits = model(src, tgt)
    (logits * weight).sum().backward()
    mine = {name: p.grad.clone() for name, p in model.named_parameters()}

    model.zero_grad()
    peer = theirs(model, norm, activation)
    hidden = peer(
        model.src_position(model.src_embedding(src) * D**0.5),
        model.tgt_position(model.tgt_embedding(tgt) * D**0.5),
        tgt_mask=~causal_mask(5),
        src_key_padding_mask=src == 0, tgt_key_padding_mask=tgt == 0,
        memory_key_padding_mask=src == 0,
    )  # fmt: skip
    expected = hidden @ model.output.weight.T
    (expected * weight).sum().backward()
    torch.testing.assert_close(logits[tgt != 0], expected[tgt != 0], rtol=0, atol=1e-10)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(mine[name], parameter.grad, rtol=0, atol=1e-9, msg=name)


@settings(max_examples=40)
@given(st.integers(0, 4), st.integers(1, V - 1), st.sampled_from(sorted(MODELS)))
def test_the_future_is_not_seen(position: int, token: int, name: str) -> None:
    """Changing the target at one position changes no logits before it."""
    model, src, tgt = ours(**MODELS[name]), padded(1, 6, 0), padded(1, 5, 1)
    changed = tgt.clone()
    changed[0, position] = token
    before, after = model(src, tgt), model(src, changed)
    torch.testing.assert_close(before[:, :position], after[:, :position], rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=3)
@given(more_source=st.integers(0, 5), more_target=st.integers(0, 5))
def test_padding_changes_nothing(more_source: int, more_target: int, name: str) -> None:
    """However much padding follows, the logits of real positions stay."""
    model, src, tgt = ours(**MODELS[name]), padded(2, 6, 0), padded(2, 5, 1)
    wide = model(nn.functional.pad(src, (0, more_source)), nn.functional.pad(tgt, (0, more_target)))
    real = tgt != 0
    torch.testing.assert_close(model(src, tgt)[real], wide[:, :5][real], rtol=0, atol=1e-12)


@settings(max_examples=15)
@given(st.permutations(range(6)))
def test_without_positions_the_encoder_is_permutation_equivariant(order: list[int]) -> None:
    """Permuting the source permutes the memory and leaves the logits; a sinusoid breaks both."""
    src = torch.tensor([[1, 2, 3, 4, 5, 6]])
    tgt = torch.tensor([[1, 4, 2]])
    none = ours(pe="none")
    torch.testing.assert_close(none.encode(src[:, order]), none.encode(src)[:, order])
    torch.testing.assert_close(none(src[:, order], tgt), none(src, tgt))
    if list(order) != sorted(order):
        sinusoidal = ours(pe="sinusoidal")
        assert not torch.allclose(sinusoidal(src[:, order], tgt), sinusoidal(src, tgt))


def test_masks_given_equal_masks_derived() -> None:
    """Passing what would be derived changes nothing; passing another mask does."""
    model, src, tgt = ours(), padded(2, 6, 0), padded(2, 5, 1)
    masks = padding_mask(src), causal_mask(5) & padding_mask(tgt), padding_mask(src)
    assert torch.equal(model(src, tgt), model(src, tgt, *masks))
    everything = torch.ones(5, 5, dtype=torch.bool)
    assert not torch.allclose(model(src, tgt), model(src, tgt, tgt_mask=everything))


NUMBERS = [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8]


@pytest.mark.parametrize("pe", ["sinusoidal", "alibi"])
@pytest.mark.parametrize("dtype", NUMBERS)
def test_a_mask_of_zeros_and_ones_means_what_a_boolean_one_means(
    pe: str, dtype: torch.dtype
) -> None:
    """Whatever their type, numbers are never added to the scores, which would show the future."""
    model, src, tgt = ours(pe=pe), padded(2, 6, 0), padded(2, 5, 1)
    masks = padding_mask(src), causal_mask(5) & padding_mask(tgt), padding_mask(src)
    logits = model(src, tgt, *(mask.to(dtype) for mask in masks))
    assert torch.equal(logits, model(src, tgt))
    memory, cache = model.encode(src, masks[0].to(dtype)), model.new_cache()
    steps = [
        model.decode(tgt[:, i : i + 1], memory, mask[:, :, i : i + 1, : i + 1], masks[2], cache)
        for i, mask in enumerate([masks[1].to(dtype)] * 5)
    ]
    torch.testing.assert_close(torch.cat(steps, 1), logits, rtol=0, atol=1e-12)


@pytest.mark.parametrize("pe", ["sinusoidal", "alibi"])
@pytest.mark.parametrize("shape", [(), (6,), (6, 1), (6, 6), (HEADS, 6, 6), (2, 1, 1, 6)])
def test_a_mask_broadcasts_from_the_last_dimension(
    pe: str, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As written out in full; one dimension and none, which torch's attention refuses, too. And
    where queries come in parts.
    """
    model, src = ours(pe=pe), padded(2, 6, 0)
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(0)) < 0.7
    written_out = mask.expand(2, HEADS, 6, 6).contiguous()
    assert torch.equal(model.encode(src, mask), whole := model.encode(src, written_out))
    monkeypatch.setattr("wawa_transformer.fast.attention.SCORES", 1)
    monkeypatch.setattr("wawa_transformer.fast.attention.FEWEST_ROWS", 4)
    torch.testing.assert_close(model.encode(src, mask), whole, rtol=0, atol=1e-12)


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
    """The argument, what was given, what is wanted."""
    model, ids = ours(), padded(2, 5, 0)
    with pytest.raises(ValueError, match=f"^{name} .*{message}"):
        model(ids, ids, **{name: mask})


def test_boolean_masks_leave_one_graph() -> None:
    """A compiler that must not break the graph takes masks, too, of sizes that vary."""
    torch._dynamo.reset()
    model = ours()
    graph = torch.compile(model, backend="eager", fullgraph=True)
    for rows, source, target in ((2, 6, 5), (3, 8, 7), (4, 9, 6)):
        src, tgt = padded(rows, source, 0), padded(rows, target, 1)
        masks = padding_mask(src), causal_mask(target) & padding_mask(tgt), padding_mask(src)
        assert torch.equal(graph(src, tgt, *masks), model(src, tgt))


def test_attention_that_is_looked_at_is_attention_that_is_used() -> None:
    """Keeping the weights takes another path to the same logits; each row is a distribution."""
    model, src, tgt = ours(), padded(1, 6, 0), padded(1, 5, 1)
    fast = model(src, tgt)
    maps = attention_maps(model, src, tgt)
    assert {name: tuple(w.shape) for name, w in maps.items()} == {
        "encoder": (HEADS, 6, 6), "decoder": (HEADS, 5, 5), "cross": (HEADS, 5, 6),
    }  # fmt: skip
    for weights in maps.values():
        torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights.sum(-1)))
    assert (maps["decoder"].triu(1) == 0).all()
    for layer in model.decoder_layers:
        layer.self_attention.keep_weights = layer.cross_attention.keep_weights = True
    torch.testing.assert_close(model(src, tgt), fast, rtol=0, atol=1e-12)


def test_shared_layers_are_one_layer_applied_again() -> None:
    """As a model whose layers all hold the same numbers; and in steps as at once."""
    shared, deep = ours(share_layers=True), ours()
    for stack in ("encoder_layers", "decoder_layers"):
        [layer] = getattr(shared, stack)
        for each in getattr(deep, stack):
            each.load_state_dict(layer.state_dict())
    src, tgt = padded(2, 6, 0), padded(2, 5, 1)
    assert torch.equal(shared(src, tgt), deep(src, tgt))
    assert sum(p.numel() for p in shared.parameters()) < sum(p.numel() for p in deep.parameters())
    memory, mask, cache = shared.encode(src), padding_mask(src), shared.new_cache()
    steps = [shared.decode(tgt[:1, i : i + 1], memory[:1], None, mask[:1], cache) for i in range(5)]
    torch.testing.assert_close(torch.cat(steps, 1), shared(src, tgt)[:1], rtol=0, atol=1e-12)


def test_scaled_embeddings_have_unit_variance() -> None:
    """N(0, 1/D) times sqrt(D): as loud as the encoding, which it must not drown."""
    model = Transformer(500, 500, 256, 1, 4, 16, seed=0)
    scaled = model.src_embedding.weight * 256**0.5
    assert scaled.std().item() == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"d_model": 10, "num_heads": 4}, "d_model=10 is not divisible by num_heads=4"),
        ({"num_layers": 2**31}, "num_layers=2147483648 must be at least 1 and at most 256"),
        ({"tgt_vocab_size": 2**40}, "tgt_vocab_size=1099511627776 must be at least 1 and at most"),
        ({"dropout": float("nan")}, "dropout=nan must be at least 0"),
        ({"tie_embeddings": True, "src_vocab_size": 5}, "src_vocab_size=5 and tgt_vocab_size=13"),
        ({"norm": "mid"}, "norm=mid does not exist"),
        ({"pe": "nope"}, "pe=nope does not exist"),
    ],
)
def test_impossible_shapes_are_named(changes: dict[str, object], message: str) -> None:
    """The value, the limit and the name of the argument."""
    arguments = {
        "src_vocab_size": V,
        "tgt_vocab_size": V,
        "d_model": D,
        "num_heads": HEADS,
        **changes,
    }
    with pytest.raises(ValueError, match=message):
        Transformer(**arguments)


# Each encoding in every place it has, and each way of counting once; the rest are their products.
COMPILED = [
    *(f"{kind}_cross" if f"{kind}_cross" in MODELS else kind for kind in sorted(ENCODINGS)),
    "sinusoidal_moved", "sinusoidal_both", "sinusoidal_end_restart", "rotary_randomized",
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "bf16"), [*((name, False) for name in COMPILED), ("t5_cross", True)]
)
def test_compilation_takes_the_model_whole_and_settles(name: str, bf16: bool) -> None:
    """One graph without breaks, a second for sizes that vary, and none for any batch after that.

    With the eager backend, so that it takes a second; what it computes is what was written.
    """
    torch._dynamo.reset()
    counters.clear()
    model = Transformer(V, V, 16, 1, 2, 32, dropout=0.0, seed=0, **MODELS[name]).train()
    compiled = Transformer(V, V, 16, 1, 2, 32, dropout=0.0, seed=0, **MODELS[name]).train()
    compiled.compile(backend="eager", fullgraph=True)
    for rows, source, target in ((4, 9, 8), (7, 6, 5), (5, 8, 10), (3, 7, 6)):
        src, tgt = padded(rows, source, 0), padded(rows, target, 1)
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            torch.manual_seed(0)
            expected = model(src, tgt)
            torch.manual_seed(0)
            torch.testing.assert_close(compiled(src, tgt), expected)
    assert counters["stats"]["unique_graphs"] <= 2


class Copies(TorchDispatchMode):
    """Notes the copies from one device to another that are waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.waited: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if func._schema.name == "aten::_to_copy":
            elsewhere = args[0].device != out.device
            if elsewhere and not (kwargs or {}).get("non_blocking"):
                self.waited.append(f"{args[0].device} to {out.device}")
        return out


@pytest.mark.parametrize("name", MODELS)
def test_a_step_never_waits_for_a_device(name: str) -> None:
    """On one that has no numbers to wait for: asking for one is an error there.

    So the next batch is put together while a GPU is still at work on this one.
    """
    model = Transformer(40, 40, 32, 2, 4, 64, seed=0, **MODELS[name]).to("meta").train()
    ids = torch.randint(4, 40, (6, 12), device="meta")
    with Copies() as copies:
        states = model(ids, ids, logits=False)
        loss_and_nll(states, model.output.weight, ids, 0.1)[0].backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    assert not copies.waited
