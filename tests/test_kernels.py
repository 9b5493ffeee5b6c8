"""KERPLE, FIRE, CoPE, and rotary's variants against their papers' formulas, pair by pair."""

from __future__ import annotations

import cmath
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_relative import DH, H, heads, make, scores
from torch import Tensor

from wawa_transformer import Transformer
from wawa_transformer.positional import build_encoding
from wawa_transformer.positional.base import EncodingContext, Positions, consecutive
from wawa_transformer.train.tracking import attention_maps

PAIRS = [(i, j) for i in range(4) for j in range(8)]  # queries 3 … 6, keys 0 … 7


def bias(encoding: Any, q: Tensor, k: Tensor) -> Tensor:
    """What is added to the scores of queries from position 3 on."""
    return scores(encoding, q, k, offset=3) - q @ k.transpose(-2, -1) / math.sqrt(DH)


def drawn(encoding: Any, seed: int = 0) -> Any:
    """The encoding with every parameter somewhere else than where it starts."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in encoding.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) / 3)
    return encoding


@pytest.mark.parametrize("form", ["log", "power"])
@pytest.mark.parametrize("causal", [True, False])
def test_kerple_is_its_kernel(form: str, causal: bool) -> None:
    """Chi et al. 2022, equations 2 and 3, with numbers of its own for either side."""
    encoding = drawn(make("kerple", causal, form=form))
    q, k = heads(4), heads(8, 1)
    got = bias(encoding, q, k)
    for i, j in PAIRS:
        far = abs(j - (i + 3))
        side = 0 if causal or j <= i + 3 else 1
        for h in range(H):
            a, beta = math.exp(encoding.alpha[side, h].item()), encoding.beta[side, h].item()
            if form == "log":
                expected = -a * math.log(1 + math.exp(beta) * far)
            else:
                expected = -a * far ** (2 / (1 + math.exp(-beta)))
            assert got[1, h, i, j].item() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("form", ["log", "power"])
def test_kerple_starts_where_its_code_does(form: str) -> None:
    """a and b uniform below 1 or 2, at least 0.01; head by head and side by side."""
    place = EncodingContext(4000, 1000, role="encoder")
    encoding: Any = build_encoding("kerple", place, {"form": form})
    a = encoding.alpha.exp()
    b = encoding.beta.exp() if form == "log" else 2 * encoding.beta.sigmoid()
    for value, most in ((a, 2.0 if form == "log" else 1.0), (b, 1.0 if form == "log" else 2.0)):
        assert value.min() >= 0.0099 and value.max() <= most
        assert value.mean().item() == pytest.approx(most / 2, abs=0.05 * most)


def test_fire_is_the_papers_function_of_the_share() -> None:
    """Li et al. 2024, equation 3, with its default network written out, keys at or left of it."""
    encoding = drawn(make("fire", causal=True, width=5, threshold=4.0))
    q, k = heads(4), heads(8, 1)
    got = bias(encoding, q, k)
    c, limit = abs(encoding.c.item()), abs(encoding.share.item()) * 4
    for i, j in PAIRS:
        if j > i + 3:
            continue
        ratio = math.log(c * (i + 3 - j) + 1) / math.log(c * max(limit, i + 3) + 1)
        hidden = [
            max(0.0, ratio * w.item() + b.item())
            for w, b in zip(encoding.inner, encoding.inner_bias, strict=True)
        ]
        for h in range(H):
            expected = sum(w.item() * x for w, x in zip(encoding.outer[h], hidden, strict=True))
            assert got[0, h, i, j].item() == pytest.approx(expected, abs=1e-5)


@settings(max_examples=60)
@given(st.integers(1, 6), st.integers(0, 10**6))
def test_fire_looks_up_what_its_network_computes(width: int, seed: int) -> None:
    """Values and every gradient, of all units at once; some have no kink, or none within reach."""
    encoding: Any = make("fire", width=width).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name in ("inner", "inner_bias", "outer"):
            parameter = getattr(encoding, name)
            parameter.normal_(generator=generator)
            some = torch.randint(0, 4, parameter.shape, generator=generator)
            parameter[some == 0] = 0.0
        encoding.inner[torch.randint(0, 3, (width,), generator=generator) == 0] *= 0.1
    share = 2 * torch.rand(2, 1, 3, 5, dtype=torch.float64, generator=generator) - 1
    share[0, 0, 0, :2] = torch.tensor([-1.0, 1.0])
    share.requires_grad_()
    units = share[..., None] * encoding.inner + encoding.inner_bias  # (2,1,3,5,width)
    plain = (units.relu() @ encoding.outer.T)[:, 0].permute(0, 3, 1, 2)
    looked_up = encoding.network(share)
    torch.testing.assert_close(looked_up, plain)
    turned = torch.randn(plain.shape, dtype=torch.float64, generator=generator)
    at = (share, encoding.inner, encoding.inner_bias, encoding.outer)
    for got, expected in zip(
        *(torch.autograd.grad((out * turned).sum(), at) for out in (looked_up, plain)), strict=True
    ):
        torch.testing.assert_close(got, expected)


@settings(max_examples=50)
@given(st.integers(0, 60), st.integers(0, 60), st.floats(1, 100))
def test_fire_keeps_the_side_and_stays_within_one(i: int, j: int, threshold: float) -> None:
    """Where the published code has |i − j| and max(L, i): left and right differ, and no share
    of a position exceeds it."""
    encoding: Any = make("fire", width=2, threshold=threshold)
    with torch.no_grad():  # f(x) = relu(x) − relu(−x) = x: the share itself comes out
        encoding.inner.copy_(torch.tensor([1.0, -1.0]))
        encoding.inner_bias.zero_()
        encoding.outer.copy_(torch.tensor([[1.0, -1.0]] * H))
    query, key = consecutive(1, i), consecutive(1, j)
    share, mirrored = (
        encoding.bias(heads(1), heads(1), *pair)[0, 0, 0, 0].item()
        for pair in ((query, key), (key, query))
    )
    assert share == pytest.approx(-mirrored) and -1 - 1e-6 <= share <= 1 + 1e-6
    assert (share > 0) == (i > j) and (share < 0) == (i < j)


@pytest.mark.parametrize("causal", [True, False])
def test_cope_counts_what_the_query_attends_to(causal: bool) -> None:
    """Golovneva et al. 2024, equations 3 to 5: gates, their sum to the query, interpolation."""
    encoding = drawn(make("cope", causal, num_positions=4))
    q, k = heads(4), heads(8, 1)
    got = bias(encoding, q, k)
    beyond = 0
    for i, j in PAIRS:
        at = i + 3
        if causal and j > at:
            continue
        between = range(j, at + 1) if j <= at else range(at + 1, j + 1)
        table = encoding.table[0 if j <= at else 1]
        for h in range(H):
            gates = (q[0, h, i] @ k[0, h, n] / math.sqrt(DH) for n in between)
            count = sum(1 / (1 + math.exp(-gate)) for gate in gates)
            beyond += count > 3
            count = min(count, 3.0)
            low = int(count)
            row = table[low] + (count - low) * (table[min(3, low + 1)] - table[low])
            assert got[0, h, i, j].item() == pytest.approx((q[0, h, i] @ row).item(), abs=1e-6)
    assert beyond, "no count reached the last position"


def test_cope_begins_as_no_encoding_does() -> None:
    """Its vectors start at zero, as in the paper."""
    src, tgt = torch.tensor([[4, 5, 6, 7]]), torch.tensor([[1, 4, 5]])
    cope, none = (Transformer(9, 9, 8, 1, 2, 8, pe=pe, seed=0).eval() for pe in ("cope", "none"))
    torch.testing.assert_close(cope(src, tgt), none(src, tgt))


@settings(max_examples=30)
@given(
    st.integers(0, 40), st.sampled_from([(1.0, 1.0), (0.5, 1.0), (1.0, 0.5), (0.75, 0.7)]),
    st.sampled_from([1.0, 4.0]),
)  # fmt: skip
def test_variants_of_rotary(position: int, shares: tuple[float, float], stretch: float) -> None:
    """Partial rotary has a smaller head's frequencies, p-RoPE the fastest of its own; the other
    dimensions stay; and stretched positions are positions divided."""
    width, (fraction, p) = 16, shares
    place = EncodingContext(width, 1, dropout=0.0)
    rotary = build_encoding(
        "rotary", place, {"fraction": fraction, "p": p, "stretch": stretch}
    ).double()
    x = torch.randn(1, 1, 1, width, dtype=torch.float64)
    at = consecutive(1, position)
    turned = rotary.rotate(x, x, at, at)[0].flatten().tolist()
    part = int(fraction * width) // 2 * 2
    kept = int(p * part / 2)  # pairs
    for pair in range(width // 2):
        angle = position / stretch * 10000.0 ** (-2 * pair / part) if pair < kept else 0.0
        even, odd = x.flatten()[2 * pair : 2 * pair + 2].tolist()
        number = complex(even, odd) * cmath.exp(1j * angle)
        assert turned[2 * pair] == pytest.approx(number.real, abs=1e-6)
        assert turned[2 * pair + 1] == pytest.approx(number.imag, abs=1e-6)


def test_rotary_must_turn_something() -> None:
    """Less than one pair of dimensions is no position at all."""
    with pytest.raises(ValueError, match=r"^pe.fraction=0.1 and pe.p=1.0 leave no pair"):
        build_encoding("rotary", EncodingContext(16, 1), {"fraction": 0.1})


@pytest.mark.parametrize("role", ["encoder", "cross"])
def test_directed_slopes_differ_by_side(role: str) -> None:
    """To the left slope h, to the right slope H + 1 − h; cross-attention always, the encoder if
    asked."""
    directed: Any = build_encoding(
        "alibi", EncodingContext(8, 4, role=role), {"directed": role == "encoder"}
    )
    query, key = consecutive(1, 5), consecutive(9)
    got = directed.bias(torch.zeros(1, 4, 1, 2), torch.zeros(1, 4, 9, 2), query, key)[0, :, 0]
    slopes = [2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8]
    for h in range(4):
        assert got[h, 2].item() == pytest.approx(-3 * slopes[h])
        assert got[h, 8].item() == pytest.approx(-3 * slopes[3 - h])


@pytest.mark.parametrize("distance", [-2, 0, 1, 3])
def test_cross_attention_sees_source_minus_target(distance: int) -> None:
    """One bucket made loud: every target attends to the source that stands at that distance."""
    model = Transformer(11, 11, 8, 1, 2, 16, dropout=0.0, pe="t5", cross="same", seed=0).eval()
    table: Any = model.cross_position
    with torch.no_grad():
        table.table[table.bucket(torch.tensor(distance))] = 50.0
    src, tgt = torch.randint(4, 11, (1, 9)), torch.randint(4, 11, (1, 6))
    weights = attention_maps(model, src, tgt)["cross"]  # (H,Q,K)
    for target in range(6):
        if 0 <= target + distance < 9:
            assert (weights[:, target, target + distance] > 0.99).all()


def test_heads_may_count_differently() -> None:
    """A bias at positions of each head's own is, head by head, the bias at those positions."""
    q, k = heads(5), heads(7, 1)
    generator = torch.Generator().manual_seed(2)
    query = Positions(torch.randint(0, 20, (2, H, 5), generator=generator), 20)
    key = Positions(torch.randint(0, 20, (1, H, 7), generator=generator), 20)
    for kind in ("alibi", "t5", "shaw", "transformer_xl", "kerple", "fire", "rotary"):
        encoding = make(kind)
        turned = encoding.rotate(q, k, query, key)
        together = encoding.bias(*turned, query, key)
        for b in range(2):
            for h in range(H):
                alone = [
                    Positions(at.index[b % at.index.size(0), h].expand(1, 1, -1), 20)
                    for at in (query, key)
                ]
                one = encoding.rotate(q, k, *alone)
                for got, expected in zip(turned, one, strict=True):
                    torch.testing.assert_close(got[b, h], expected[b, h])
                expected = encoding.bias(*one, *alone)
                if together is None or expected is None:
                    assert kind == "rotary"
                    continue
                whole = together.expand(2, H, 5, 7), expected.expand(2, H, 5, 7)
                torch.testing.assert_close(whole[0][b, h], whole[1][b, h])
