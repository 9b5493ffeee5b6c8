"""Fast attention by itself: its formula, padded keys, chunks of queries, what is formed how often.

That whole models with it equal plain ones is in test_accelerate.py.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from core.helpers import HEADS, LAYERS, D, padded_ids, perturbed, small_model
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from wawa_transformer.fast import accelerate, attention, positional
from wawa_transformer.fast.attention import FastAttention, attention_with_bias, query_chunks, sdpa
from wawa_transformer.model.attention import AttentionPosition, MultiHeadAttention
from wawa_transformer.model.masks import causal_mask
from wawa_transformer.positional import build_encoding
from wawa_transformer.positional.base import ENCODINGS, Encoding, EncodingContext, consecutive

BIASED = sorted(kind for kind, cls in ENCODINGS.items() if cls.bias is not Encoding.bias)


@pytest.fixture
def chunked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """If the parameter says so: as if a processor's cache held two queries' scores and no more."""
    if request.param:
        monkeypatch.setattr(attention, "MAX_SCORES", 1)
        monkeypatch.setattr(attention, "MIN_ROWS", 2)
        monkeypatch.setattr(positional, "MANY_PAIRS", 1)
    return request.param


in_chunks = pytest.mark.parametrize("chunked", [False, True], indirect=True)
two_by_two = pytest.mark.parametrize("chunked", [True], indirect=True)


def encoding_of(kind: str, role: str = "encoder") -> Encoding:
    encoding = perturbed(build_encoding(kind, EncodingContext(D, HEADS, role=role)).double())
    accelerate(encoding)
    return encoding


def qkv(length: int, seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shape = (3, 2, HEADS, length, D // HEADS)
    return list(torch.randn(shape, dtype=torch.float64, generator=generator))


def layer(cls: type[MultiHeadAttention] = FastAttention) -> MultiHeadAttention:
    return cls(D, HEADS).double()


@two_by_two
@pytest.mark.parametrize(
    ("pe", "expected"), [("t5", [(2, 2), (2, 4), (1, 5)]), ("rotary", [(5, 5)])]
)
def test_a_chunk_has_the_keys_that_it_may_see(
    pe: str, expected: list[tuple[int, int]], chunked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under a causal mask none to the right; without a bias the kernel is given all at once."""
    at, seen = consecutive(5), []
    real = attention.sdpa

    def noted(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, *kernel: Any) -> Tensor:
        assert mask.shape[-2:] == (q.size(2), k.size(2)) and v.shape == k.shape
        seen.append((q.size(2), k.size(2)))
        return real(q, k, v, mask, *kernel)

    monkeypatch.setattr(attention, "sdpa", noted)
    position = AttentionPosition(encoding_of(pe, "decoder"), at, at)
    layer().attend(*qkv(5), causal_mask(5), position)
    assert seen == expected


@two_by_two
@pytest.mark.parametrize("kind", BIASED)
def test_one_query_far_along_is_the_last_of_all(kind: str, chunked: bool) -> None:
    """As in decoding, where keys are many and the query comes after them."""
    encoding, (q, k, v) = encoding_of(kind, "decoder"), qkv(9)
    key, last = consecutive(9), consecutive(1, 8)
    every = layer().attend(q, k, v, causal_mask(9), AttentionPosition(encoding, key, key))
    one = layer().attend(q[:, :, -1:], k, v, None, AttentionPosition(encoding, last, key))
    torch.testing.assert_close(one, every[:, :, -1:], rtol=0, atol=1e-6)


@in_chunks
@pytest.mark.parametrize("kind", BIASED)
def test_a_content_independent_bias_is_formed_once_for_all_layers(
    kind: str, chunked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Encodings that say so add one thing to whatever queries and keys; the others do not."""
    cls, encoding, asked, at = ENCODINGS[kind], encoding_of(kind), [], consecutive(6)
    added = [encoding.bias(*qkv(6, seed)[:2], at, at) for seed in range(2)]
    assert torch.equal(*torch.broadcast_tensors(*added)) == cls.content_independent
    name = f"{kind}_cross" if cls.relative else kind
    model = small_model(name)
    accelerate(model)
    real = type(model.src_position).bias

    def noted(self: Encoding, *given: Any) -> Tensor | None:
        asked.append(self.context.role)
        return real(self, *given)

    monkeypatch.setattr(type(model.src_position), "bias", noted)
    model(padded_ids(2, 6, 0), padded_ids(2, 6, 1))
    chunks = 3 if chunked else 1
    for role in ("encoder", "decoder", *(["cross"] if cls.relative else [])):
        assert asked.count(role) == chunks * (1 if cls.content_independent else LAYERS), role


@in_chunks
@pytest.mark.parametrize("kind", ["alibi", "shaw"])
def test_another_mask_is_obeyed(kind: str, chunked: bool) -> None:
    """Whatever an earlier layer formed under its own."""
    at, encoding, given = consecutive(6), encoding_of(kind), qkv(6)
    positions = [AttentionPosition(encoding, at, at) for _ in range(2)]
    for mask in (causal_mask(6), None, causal_mask(6).flip(0, 1)):
        expected = layer(MultiHeadAttention).attend(
            *given, mask, AttentionPosition(encoding, at, at)
        )
        for cls, position in zip((FastAttention, MultiHeadAttention), positions, strict=True):
            torch.testing.assert_close(layer(cls).attend(*given, mask, position), expected)


@pytest.mark.parametrize("shape", [(), (6,), (6, 1), (6, 6), (HEADS, 6, 6), (2, 1, 1, 6)])
@pytest.mark.parametrize("kind", ["alibi", "shaw"])
@two_by_two
def test_a_mask_of_any_shape_is_divided_right(
    kind: str, shape: tuple[int, ...], chunked: bool
) -> None:
    """One that broadcasts, and one that leaves rows without keys."""
    model = small_model(kind)
    mask, src = torch.rand(shape) < 0.5, padded_ids(2, 6, 0)
    expected = model.encode(src, mask)
    accelerate(model)
    torch.testing.assert_close(model.encode(src, mask), expected, rtol=0, atol=1e-12)


def test_chunks_are_divided_once_for_all_layers() -> None:
    """And anew for another mask."""
    at, mask = consecutive(6), causal_mask(6)
    position = AttentionPosition(encoding_of("alibi"), at, at)
    chunks = query_chunks(position, mask, 2)
    assert query_chunks(position, mask, 2) is chunks
    assert query_chunks(position, mask.clone(), 2) is not chunks
    empty = mask.clone()
    empty[3] = False
    found = query_chunks(position, empty, 2)
    assert [chunk.has_empty_row for chunk in found] == [False, True, False]


SIZES = st.integers(1, 4)


@settings(max_examples=40)
@given(SIZES, SIZES, SIZES, st.integers(2, 6), st.tuples(*[st.booleans()] * 3), st.integers(0, 99))
def test_attention_with_bias_is_torchs_kernel(
    batch: int, heads: int, queries: int, keys: int, wide: tuple[bool, bool, bool], seed: int
) -> None:
    """Values and all gradients, whichever dimensions of the bias are shared."""
    generator = torch.Generator().manual_seed(seed)
    draw = functools.partial(torch.randn, dtype=torch.float64, generator=generator)
    sizes = [n if given else 1 for n, given in zip((batch, heads, queries), wide, strict=True)]
    bias = draw(*sizes, keys)
    bias[..., 0][torch.rand(sizes, generator=generator) < 0.3] = -math.inf
    given = [draw(batch, heads, n, 3) for n in (queries, keys, keys)] + [bias]
    for tensor in given:
        tensor.requires_grad_()
    outputs = attention_with_bias(*given), F.scaled_dot_product_attention(*given[:3], given[3])
    direction = draw(batch, heads, queries, 3)
    found, expected = (torch.autograd.grad((out * direction).sum(), given) for out in outputs)
    torch.testing.assert_close((outputs[0], *found), (outputs[1], *expected))


@pytest.mark.parametrize("kind", ["shaw", "alibi"])
@pytest.mark.parametrize("blind", [False, True])
def test_attention_with_bias_serves_trained_biases(
    kind: str, blind: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not a bias without parameters, and not a query without keys, whose softmax is NaN."""
    used, at, mask = [], consecutive(6), torch.ones(6, 6, dtype=torch.bool)
    mask[2] = not blind

    def noted(*given: Tensor) -> Tensor:
        used.append(given)
        return attention_with_bias(*given)

    monkeypatch.setattr(attention, "attention_with_bias", noted)
    position = AttentionPosition(encoding_of(kind), at, at)
    out = layer().attend(*qkv(6), mask, position)
    assert bool(used) == (kind == "shaw" and not blind)
    assert out.isfinite().all() and (out[:, :, 2] == 0).all() == blind


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


def by_formula(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """Equation 1 of Vaswani et al. 2017; a query that may see nothing gets zeros."""
    scores = q @ k.mT / q.size(-1) ** 0.5
    if mask is None or mask.is_floating_point():
        return (scores if mask is None else scores + mask).softmax(-1) @ v
    exp = scores.exp() * mask
    return exp / exp.sum(-1, keepdim=True).clamp(min=1e-300) @ v


@settings(max_examples=60)
@given(
    queries=st.integers(4, 20),
    keys=st.integers(1, 15),
    seen=st.sampled_from(["all", "padding", "pairs", "queries", "bias", "with_bias"]),
    blind=st.booleans(),
)
def test_few_keys_become_as_many_as_a_vector_holds(
    queries: int, keys: int, seen: str, blind: bool
) -> None:
    """And attention stays what it was: the formula in float64, values and gradients."""
    batch, heads, width = 3, 2, 8
    draw = torch.Generator().manual_seed(queries * keys)
    sizes = {"all": (1,), "padding": (batch, 1, 1, keys), "pairs": (queries, keys)}
    sizes |= {"queries": (batch, 1, queries, 1)}
    given = [
        torch.randn(batch, n, heads, width, generator=draw).transpose(1, 2)
        for n in (queries, keys, keys)
    ]
    mask: Tensor | None = None
    if seen in ("bias", "with_bias"):
        mask = torch.randn(1, heads, queries, keys, generator=draw)
    elif seen != "all":
        mask = torch.rand(sizes[seen], generator=draw) < 0.5
        mask[..., 0, :] |= not blind
    given_to_kernel = []

    def kernel(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        given_to_kernel.append(k.size(2))
        real = attention_with_bias if seen == "with_bias" else F.scaled_dot_product_attention
        return real(q, k, v, mask)

    low, exact = (
        [t.detach().to(dtype).requires_grad_() for t in given]
        for dtype in (torch.float32, torch.float64)
    )
    biases: list[Tensor | None] = [mask, mask]
    if mask is not None and mask.is_floating_point():
        biases = [mask.clone().requires_grad_(), mask.double().requires_grad_()]
    y, expected = sdpa(*low, biases[0], kernel), by_formula(*exact, biases[1])
    direction = torch.randn(y.shape, generator=draw)
    for output in (y, expected):
        (output * direction).sum().backward()
    assert given_to_kernel == [attention.VECTOR]
    torch.testing.assert_close(y.double(), expected, rtol=1e-4, atol=1e-5)
    pairs = [*zip(low, exact, strict=True)]
    if mask is not None and mask.is_floating_point():
        pairs.append(tuple(biases))
    for found, reference in pairs:
        torch.testing.assert_close(found.grad.double(), reference.grad, rtol=1e-4, atol=1e-5)


def test_keys_are_padded_where_it_pays() -> None:
    """Not for few queries, enough keys, or float64."""

    def given_to_kernel(queries: int, keys: int, dtype: torch.dtype = torch.float32) -> Any:
        found = []

        def kernel(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
            found.append((k.size(2), mask is not None))
            return q

        q, k = (torch.randn(1, 2, n, 8, dtype=dtype) for n in (queries, keys))
        sdpa(q, k, k, None, kernel)
        return found[0]

    more = (16, True)
    assert given_to_kernel(4, 15) == given_to_kernel(9, 3) == more
    assert given_to_kernel(3, 15) == (15, False) and given_to_kernel(4, 16) == (16, False)
    assert given_to_kernel(4, 15, torch.float64) == (15, False)
    with torch.autocast("cpu", torch.bfloat16):
        assert given_to_kernel(4, 15, torch.bfloat16) == more, "which attends in float32"
