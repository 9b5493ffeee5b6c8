"""Encodings that act inside attention, against their papers' formulas."""

from __future__ import annotations

import cmath
import math
from typing import Any

import pytest
import torch
from conftest import MODELS, RELATIVE
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from wawa_transformer import Transformer
from wawa_transformer.positional import build_encoding, relative
from wawa_transformer.positional.alibi import alibi_slopes
from wawa_transformer.positional.base import Encoding, EncodingContext, Positions, consecutive
from wawa_transformer.positional.position_ids import PositionIds
from wawa_transformer.positional.sinusoidal import sinusoid_table

B, H, DH, D = 2, 3, 4, 12


def make(kind: str, causal: bool = False, **given: Any) -> Encoding:
    """An encoding in float64, alone."""
    place = EncodingContext(D, H, dropout=0.0, role="decoder" if causal else "encoder")
    return build_encoding(kind, place, given).double().eval()


def heads(length: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(B, H, length, DH, dtype=torch.float64, generator=generator)


def sentences() -> tuple[Tensor, Tensor]:
    """Ids of three sources of nine and three targets of six, the same at every call."""
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randint(4, 11, (3, n), generator=generator) for n in (9, 6))  # type: ignore[return-value]


def scores(encoding: Encoding, q: Tensor, k: Tensor, offset: int = 0) -> Tensor:
    """What attention computes before the softmax: doors 2 and 3 applied, ``(B,H,Q,K)``."""
    query, key = consecutive(q.size(2), offset), consecutive(k.size(2))
    turned, keys = encoding.rotate(q, k, query, key)
    bias = encoding.bias(turned, keys, query, key)
    product = turned @ keys.transpose(-2, -1) / math.sqrt(DH)
    return product if bias is None else product + bias


@settings(max_examples=20)
@given(st.integers(0, 40), st.integers(0, 40), st.sampled_from([100.0, 10000.0]))
def test_rotary_is_multiplication_by_a_unit_complex_number(
    first: int, second: int, base: float
) -> None:
    """Su et al. 2021, equation 12: q' = q e^{i m θ}; and the score depends on m − n alone."""
    rotary = make("rotary", base=base)
    q, k = heads(1), heads(1, seed=1)
    turned = rotary.rotate(q, k, consecutive(1, first), consecutive(1))[0][0, 0, 0]
    for pair in range(DH // 2):
        number = complex(q[0, 0, 0, 2 * pair], q[0, 0, 0, 2 * pair + 1])
        number *= cmath.exp(1j * first * base ** (-2 * pair / DH))
        assert turned[2 * pair].item() == pytest.approx(number.real, abs=1e-6)
        assert turned[2 * pair + 1].item() == pytest.approx(number.imag, abs=1e-6)

    def product(m: int, n: int) -> Tensor:
        turned, keys = rotary.rotate(q, k, consecutive(1, m), consecutive(1, n))
        return (turned * keys).sum(-1)

    torch.testing.assert_close(
        product(first, second), product(first + 7, second + 7), atol=1e-5, rtol=0
    )


@pytest.mark.parametrize(
    ("num_heads", "expected"),
    [
        (8, [2.0**-h for h in range(1, 9)]),  # the paper's own example, section 3
        (16, [2.0 ** (-h / 2) for h in range(1, 17)]),
        (1, [2.0**-8]),
        (3, [2.0**-4, 2.0**-8, 2.0**-2]),  # two of H=2, then the first of H=4
        (12, [2.0**-h for h in range(1, 9)] + [2.0**-0.5, 2.0**-1.5, 2.0**-2.5, 2.0**-3.5]),
    ],
)
def test_alibi_slopes(num_heads: int, expected: list[float]) -> None:
    """Press et al. 2022: geometric, and interpolated where H is no power of two."""
    assert alibi_slopes(num_heads) == pytest.approx(expected)


def test_alibi_is_minus_slope_times_distance() -> None:
    """Symmetric in the encoder; in the decoder the mask leaves the causal half of it."""
    q, k = heads(5), heads(9, 1)
    bias = scores(make("alibi"), q, k, offset=4) - q @ k.transpose(-2, -1) / 2
    slopes = [2.0**-4, 2.0**-8, 2.0**-2]
    for h, i, j in ((0, 0, 0), (1, 4, 0), (2, 2, 8), (0, 3, 7)):
        assert bias[1, h, i, j].item() == pytest.approx(-slopes[h] * abs(i + 4 - j), abs=1e-12)


@settings(max_examples=60)
@given(
    st.integers(-300, 300), st.booleans(), st.sampled_from([(32, 128), (8, 20), (4, 7), (16, 1000)])
)
def test_t5_buckets(distance: int, causal: bool, shape: tuple[int, int]) -> None:
    """Raffel et al. 2020, with the logarithm's floor decided in whole numbers.

    floor(log(n/e) / log(m/e) · w) ≥ j exactly when n^w e^j ≥ e^w m^j.
    """
    num_buckets, most = shape
    side = num_buckets if causal else num_buckets // 2
    exact, wide = side // 2, side - side // 2
    n = max(-distance, 0) if causal else abs(distance)
    expected = n
    if n >= exact:
        steps = sum(n**wide * exact**j >= exact**wide * most**j for j in range(1, wide + 1))
        expected = exact + min(steps, wide - 1)
    if not causal and distance > 0:
        expected += side
    encoding: Any = make("t5", causal, num_buckets=num_buckets, max_distance=most)
    assert encoding.bucket(torch.tensor(distance)).item() == expected < num_buckets


def test_t5_adds_the_bucket_of_each_distance() -> None:
    """One trained number for each head and bucket, the same in every row of the batch."""
    encoding: Any = make("t5", causal=True, num_buckets=8, max_distance=20)
    q, k = heads(3), heads(9, 1)
    bias = scores(encoding, q, k, offset=6) - q @ k.transpose(-2, -1) / 2
    for h, i, j in ((0, 0, 0), (2, 2, 8), (1, 1, 5)):
        bucket = encoding.bucket(torch.tensor(j - (i + 6)))
        assert bias[0, h, i, j].item() == pytest.approx(encoding.table[bucket, h].item(), abs=1e-12)


def test_shaw_adds_a_clipped_relative_key() -> None:
    """Equation 4: e_ij = q_i · (k_j + a_clip(j−i)) / √d, pair by pair."""
    encoding: Any = make("shaw", clip=2)
    q, k = heads(4), heads(7, 1)
    got = scores(encoding, q, k, offset=3)
    for i in range(4):
        for j in range(7):
            row = encoding.table[max(-2, min(2, j - (i + 3))) + 2]
            expected = ((k[:, :, j] + row) * q[:, :, i]).sum(-1) / 2
            torch.testing.assert_close(got[:, :, i, j], expected, rtol=0, atol=1e-12)


def test_transformer_xl_is_the_sum_of_four_terms() -> None:
    """Dai et al. 2019, section 3.3: content, position, and the two global biases."""
    encoding: Any = make("transformer_xl", causal=True)
    q, k = heads(4), heads(7, 1)
    got = scores(encoding, q, k, offset=3)
    for i in range(4):
        for j in range(7):
            far = i + 3 - j
            sines = sinusoid_table(abs(far) + 1, D)[0, abs(far)].double()
            sines[0::2] *= math.copysign(1, far)  # sin(−x) = −sin x
            key = (encoding.project.weight @ sines).view(H, DH)
            terms = (
                q[:, :, i] * k[:, :, j] + q[:, :, i] * key
                + encoding.u * k[:, :, j] + encoding.v * key
            )  # fmt: skip
            torch.testing.assert_close(got[:, :, i, j], terms.sum(-1) / 2, rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", RELATIVE)
@settings(max_examples=10)
@given(shift=st.integers(1, 30))
def test_relative_encodings_see_distances_only(kind: str, shift: int) -> None:
    """Moving queries and keys together changes no score."""
    encoding = make(kind)
    q, k = heads(3), heads(6, 1)
    moved = torch.cat((torch.zeros(B, H, shift, DH, dtype=torch.float64), k), dim=2)
    at_zero = scores(encoding, q, k, offset=2)
    torch.testing.assert_close(
        scores(encoding, q, moved, offset=2 + shift)[..., shift:], at_zero, rtol=0, atol=1e-5
    )


@pytest.mark.parametrize("name", MODELS)
def test_gradients_reach_every_parameter(name: str) -> None:
    """One backward pass in training gives each parameter a gradient that is not all zero."""
    model = Transformer(11, 11, 8, 2, 2, 16, **MODELS[name], seed=1)
    src, tgt = sentences()
    torch.manual_seed(0)  # dropout, and what an encoding draws
    model(src, tgt).square().sum().backward()
    for parameter, value in model.named_parameters():
        assert value.grad is not None and value.grad.abs().sum() > 0, parameter


@pytest.mark.parametrize("name", MODELS)
def test_every_encoding_runs_in_half_precision(name: str) -> None:
    """Under bf16 autocast the logits stay close to those in float32."""
    model = Transformer(11, 11, 16, 1, 2, 32, **MODELS[name], dropout=0.0, seed=1).eval()
    src, tgt = sentences()
    with torch.autocast("cpu", torch.bfloat16):
        low = model(src, tgt)
    torch.testing.assert_close(low.float(), model(src, tgt), rtol=0.1, atol=0.1)


@pytest.mark.parametrize(
    ("kind", "given", "message"),
    [
        ("t5", {"num_buckets": 7}, "pe.num_buckets=7 must be even"),
        ("t5", {"max_distance": 3}, "pe.max_distance=3 greater than"),
    ],
)
def test_buckets_that_do_not_fit_together(kind: str, given: dict[str, Any], message: str) -> None:
    """The value, the limit, the key."""
    with pytest.raises(ValueError, match=message):
        make(kind, **given)


def test_an_odd_head_width_cannot_be_turned() -> None:
    """Rotary names the two sizes that make the width odd."""
    with pytest.raises(ValueError, match=r"model.d_model=12 over model.num_heads=4 .* width 3"):
        Transformer(9, 9, 12, 1, 4, 16, pe="rotary")


BEGINS = st.tuples(st.integers(0, 40), st.integers(0, 40))
SIZES = st.tuples(st.integers(1, 9), st.integers(1, 9))


@pytest.mark.parametrize("kind", sorted(set(RELATIVE) - {"rotary", "fire"}))
@settings(max_examples=40)
@given(begins=BEGINS, sizes=SIZES)
def test_a_row_moved_is_every_pair_picked(
    kind: str, begins: tuple[int, int], sizes: tuple[int, int]
) -> None:
    """One bias for positions said to be consecutive and for the same ones, of which that is not
    said, wherever they begin: far to the left of all keys, or to the right.
    """
    q, k = (heads(size, seed) for seed, size in enumerate(sizes))
    query, key = (consecutive(n, first) for n, first in zip(sizes, begins, strict=True))
    unsaid = [Positions(at.index, at.end) for at in (query, key)]
    encoding = make(kind, clip=5) if kind == "shaw" else make(kind)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(relative, "MANY_PAIRS", 1)
        moved = encoding.bias(q, k, query, key)
    picked = encoding.bias(q, k, *unsaid)
    assert moved is not None and picked is not None
    torch.testing.assert_close(*torch.broadcast_tensors(moved, picked), rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", sorted(set(RELATIVE) - {"rotary", "fire"}))
def test_only_rows_that_are_in_step_are_moved(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stride, or a sequence counted from its end, goes pair by pair, however many there are."""
    monkeypatch.setattr(relative, "MANY_PAIRS", 1)
    ids = torch.ones(1, 6, dtype=torch.long)
    place = PositionIds(randomized=12, stride=2)(ids, training=False).source
    assert not relative.can_rel_shift(place, consecutive(6)) and relative.can_rel_shift(
        *[consecutive(6)] * 2
    )
    encoding, q, k = make(kind), heads(6), heads(6, 1)
    for i in range(6):
        one = encoding.bias(q[:, :, i : i + 1], k, consecutive(1, 2 * i), consecutive(6))
        every = encoding.bias(q, k, place, consecutive(6))
        assert one is not None and every is not None
        pair = torch.broadcast_tensors(every[..., i : i + 1, :], one)
        torch.testing.assert_close(*pair, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", sorted(set(RELATIVE) - {"rotary"}))
def test_other_positions_are_not_taken_for_the_last_ones(kind: str) -> None:
    """What is formed once a pass is formed anew where query or key stand elsewhere."""
    q, k = heads(3), heads(6, 1)
    here, there = ((consecutive(3, i), consecutive(6, j)) for i, j in ((0, 0), (5, 3)))
    for pair in (here, (here[0], there[1]), (there[0], here[1]), there, here):
        fresh, kept = make(kind), make(kind)
        kept.load_state_dict(fresh.state_dict())
        kept.bias(q, k, *here)
        torch.testing.assert_close(kept.bias(q, k, *pair), fresh.bias(q, k, *pair))
