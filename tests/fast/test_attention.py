"""The fast ways to score queries and keys against the plain ones."""

from __future__ import annotations

import functools
import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from conftest import MODELS, RELATIVE
from hypothesis import given, settings
from hypothesis import strategies as st
from test_transformer import HEADS, LAYERS, D, ours, padded
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from wawa_transformer.fast import attention
from wawa_transformer.fast.attention import fast_attention
from wawa_transformer.model.attention import MultiHeadAttention
from wawa_transformer.model.masks import causal_mask
from wawa_transformer.positional import build_encoding
from wawa_transformer.positional.base import ENCODINGS, Encoding, EncodingContext, consecutive

BIASED = sorted(kind for kind, cls in ENCODINGS.items() if cls.bias is not Encoding.bias)
ACROSS = [f"{kind}_cross" if kind in RELATIVE else kind for kind in BIASED]


@pytest.fixture
def two_by_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a processor's cache held the scores of two queries and no more."""
    monkeypatch.setattr(attention, "SCORES", 1)
    monkeypatch.setattr(attention, "FEWEST_ROWS", 2)
    monkeypatch.setattr("wawa_transformer.positional.relative.MANY_PAIRS", 1)


def trained(name: str, src: Tensor, tgt: Tensor, whole: bool = False) -> list[Tensor]:
    """Logits and every gradient; ``whole``: all queries at once, with torch's kernel."""
    model = ours(**MODELS[name])
    for module in model.modules():
        if isinstance(module, MultiHeadAttention):
            module.whole = whole
    logits = model(src, tgt)
    logits.square().sum().backward()
    return [logits, *(p.grad for p in model.parameters() if p.grad is not None)]


@pytest.mark.parametrize("name", MODELS)
def test_queries_in_parts_attend_as_all_at_once(name: str, request: pytest.FixtureRequest) -> None:
    """Logits and gradients of all queries, and of two at a time, with padding on both sides."""
    src, tgt = padded(3, 7, 0), padded(3, 5, 1)
    plain = trained(name, src, tgt, whole=True)
    close = 1e-6 if name.startswith(("cope", "fire")) else 1e-11  # these reckon in float32
    torch.testing.assert_close(trained(name, src, tgt), plain, rtol=0, atol=close)
    request.getfixturevalue("two_by_two")
    torch.testing.assert_close(trained(name, src, tgt), plain, rtol=0, atol=close)


@pytest.mark.parametrize("name", ["sinusoidal", *ACROSS])
@pytest.mark.parametrize("in_parts", [False, True])
def test_a_query_that_may_see_nothing_gets_zeros(
    name: str, in_parts: bool, request: pytest.FixtureRequest
) -> None:
    """A source of padding alone beside another: finite, and all as torch's kernel has it."""
    if in_parts:
        request.getfixturevalue("two_by_two")
    src, tgt = padded(2, 5, 0), padded(2, 3, 1)
    src[0] = 0
    found, plain = trained(name, src, tgt), trained(name, src, tgt, whole=True)
    assert all(each.isfinite().all() for each in found)
    torch.testing.assert_close(found, plain, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("pe", "parts"), [("t5", [(2, 2), (2, 4), (1, 5)]), ("rotary", [(5, 5)])])
def test_a_part_has_the_keys_that_it_may_see(
    pe: str, parts: list[tuple[int, int]], two_by_two: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under a causal mask none to the right; without a bias the kernel is given all at once."""
    at, encoding, seen = (
        consecutive(5),
        build_encoding(pe, EncodingContext(D, HEADS, role="decoder"), {}),
        [],
    )

    def noted(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, *kernel: Any) -> Tensor:
        assert mask.shape[-2:] == (q.size(2), k.size(2)) and v.shape == k.shape
        seen.append((q.size(2), k.size(2)))
        return fused(q, k, v, mask, *kernel)

    monkeypatch.setattr(attention, "fused", noted)
    fast_attention(
        *torch.randn(3, 2, HEADS, 5, D // HEADS), causal_mask(5), Doors(encoding, at, at)
    )
    assert seen == parts


@pytest.mark.parametrize("kind", BIASED)
def test_one_query_far_along_is_the_last_of_all(kind: str, two_by_two: None) -> None:
    """As in decoding, where keys are many and the query stands behind them."""
    encoding = build_encoding(kind, EncodingContext(D, HEADS, role="decoder"), {}).double()
    with torch.no_grad():
        for parameter in encoding.parameters():
            parameter.add_(torch.randn_like(parameter))
    q, k, v = torch.randn(3, 2, HEADS, 9, D // HEADS, dtype=torch.float64)
    key, last = consecutive(9), consecutive(1, 8)
    every = fast_attention(q, k, v, causal_mask(9), Doors(encoding, key, key))
    one = fast_attention(q[:, :, -1:], k, v, None, Doors(encoding, last, key))
    torch.testing.assert_close(one, every[:, :, -1:], rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", BIASED)
@pytest.mark.parametrize("in_parts", [False, True])
def test_what_positions_alone_decide_is_formed_once_for_all_layers(
    kind: str, in_parts: bool, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Encodings that say so add one thing to whatever queries and keys; the others do not."""
    if in_parts:
        request.getfixturevalue("two_by_two")
    cls, asked = ENCODINGS[kind], []
    encoding = build_encoding(kind, EncodingContext(D, HEADS), {})
    with torch.no_grad():
        for parameter in encoding.parameters():
            parameter.add_(torch.randn_like(parameter))
    at = consecutive(6)
    added = [encoding.bias(*torch.randn(2, 2, HEADS, 6, D // HEADS), at, at) for _ in range(2)]
    assert torch.equal(*torch.broadcast_tensors(*added)) == cls.content_independent

    formed = cls.bias

    def noted(self: Encoding, *given: Any) -> Tensor | None:
        asked.append(self.context.role)
        return formed(self, *given)

    monkeypatch.setattr(cls, "bias", noted)
    trained(f"{kind}_cross" if cls.relative else kind, padded(2, 6, 0), padded(2, 6, 1))
    parts = 3 if in_parts else 1
    for role in ("encoder", "decoder", *(["cross"] if cls.relative else [])):
        assert asked.count(role) == parts * (1 if cls.content_independent else LAYERS), role


@pytest.mark.parametrize("kind", ["alibi", "shaw"])
@pytest.mark.parametrize("in_parts", [False, True])
def test_another_mask_is_obeyed(kind: str, in_parts: bool, request: pytest.FixtureRequest) -> None:
    """Whatever an earlier layer formed under its own."""
    if in_parts:
        request.getfixturevalue("two_by_two")
    at, encoding = consecutive(6), build_encoding(kind, EncodingContext(D, HEADS), {})
    q, k, v = torch.randn(3, 2, HEADS, 6, D // HEADS)
    doors, whole = Doors(encoding, at, at), Doors(encoding, at, at)
    for mask in (causal_mask(6), None, causal_mask(6).flip(0, 1)):
        fresh = Doors(encoding, at, at)
        expected = fast_attention(q, k, v, mask, fresh)
        assert torch.equal(fast_attention(q, k, v, mask, doors), expected)
        assert torch.equal(whole.added(q, k, mask), fresh.added(q, k, mask))


SIZES = st.integers(1, 4)


@settings(max_examples=40)
@given(SIZES, SIZES, SIZES, st.integers(2, 6), st.tuples(*[st.booleans()] * 3), st.integers(0, 99))
def test_scores_that_are_summed_give_what_torchs_kernel_gives(
    batch: int, heads: int, queries: int, keys: int, wide: tuple[bool, bool, bool], seed: int
) -> None:
    """Values and all gradients, whichever dimensions of the bias are shared."""
    generator = torch.Generator().manual_seed(seed)
    draw = functools.partial(torch.randn, dtype=torch.float64, generator=generator)
    sizes = [
        size if given else 1 for size, given in zip((batch, heads, queries), wide, strict=True)
    ]
    bias = draw(*sizes, keys)
    bias[..., 0][torch.rand(sizes, generator=generator) < 0.3] = -math.inf
    given = [draw(batch, heads, n, 3) for n in (queries, keys, keys)] + [bias]
    for tensor in given:
        tensor.requires_grad_()
    results = summed(*given), F.scaled_dot_product_attention(*given[:3], attn_mask=bias)
    turned = draw(batch, heads, queries, 3)
    found, expected = (torch.autograd.grad((out * turned).sum(), given) for out in results)
    torch.testing.assert_close((results[0], *found), (results[1], *expected))


@pytest.mark.parametrize("bias", [False, True])
def test_a_cpu_attends_in_float32_under_autocast(bias: bool) -> None:
    """To the bit what it gives without autocast, from the same queries, keys and values."""
    torch.manual_seed(0)
    given = torch.randn(3, 2, 2, 16, 8).bfloat16()
    mask = torch.randn(2, 2, 16, 16).bfloat16() if bias else torch.ones(16, 16).tril().bool()
    low, high = given.clone().requires_grad_(), given.float().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        ours = fused(*low, mask)
    expected = F.scaled_dot_product_attention(*high, mask.float() if bias else mask)
    assert ours.dtype == torch.float32 and torch.equal(ours, expected)
    for output in (ours, expected):
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
    seen=st.sampled_from(["all", "padding", "pairs", "queries", "bias", "summed"]),
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
    if seen in ("bias", "summed"):
        mask = torch.randn(1, heads, queries, keys, generator=draw)
    elif seen != "all":
        mask = torch.rand(sizes[seen], generator=draw) < 0.5
        mask[..., 0, :] |= not blind
    found = []

    def kernel(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        found.append(k.size(2))
        return (summed if seen == "summed" else F.scaled_dot_product_attention)(q, k, v, mask)

    ours, exact = (
        [t.detach().to(kind).requires_grad_() for t in given]
        for kind in (torch.float32, torch.float64)
    )
    trains = mask is not None and mask.is_floating_point()
    biases = (
        [mask.clone().requires_grad_(), mask.double().requires_grad_()] if trains else [mask] * 2
    )
    y = fused(*ours, biases[0], kernel)
    expected = by_formula(*exact, biases[1])
    weights = torch.randn(y.shape, generator=draw)
    for output in (y, expected):
        (output * weights).sum().backward()
    assert found == [attention.VECTOR]
    torch.testing.assert_close(y.double(), expected, rtol=1e-4, atol=1e-5)
    both = zip(ours, exact, strict=True)
    for mine, reference in [*both, *([biases] if trains else [])]:
        torch.testing.assert_close(mine.grad.double(), reference.grad, rtol=1e-4, atol=1e-5)


def test_keys_are_added_where_it_is_worth_it() -> None:
    """Not for a few queries, enough keys, other types, a compiler, or one who counts."""

    def given_to_the_kernel(
        queries: int, keys: int, kind: torch.dtype = torch.float32
    ) -> tuple[int, bool]:
        found: list[tuple[int, bool]] = []

        def kernel(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
            found.append((k.size(2), mask is not None))
            return q

        q, k = torch.randn(1, 2, queries, 8, dtype=kind), torch.randn(1, 2, keys, 8, dtype=kind)
        fused(q, k, k, None, kernel)
        return found[0]

    more = (16, True)
    assert given_to_the_kernel(4, 15) == given_to_the_kernel(9, 3) == more
    assert given_to_the_kernel(3, 15) == (15, False) and given_to_the_kernel(4, 16) == (16, False)
    assert given_to_the_kernel(4, 15, torch.float64) == (15, False)
    with torch.autocast("cpu", torch.bfloat16):
        assert given_to_the_kernel(4, 15, torch.bfloat16) == more, "which attends in float32"
    with sdpa_kernel(SDPBackend.MATH):
        assert given_to_the_kernel(4, 15) == (15, False)
    torch._dynamo.reset()
    compiled = torch.compile(given_to_the_kernel, backend="eager", fullgraph=True)
    assert compiled(4, 15) == (15, False)
