"""Tests of the encodings inside attention against their papers' formulas."""

import math
from typing import Any

import pytest
import torch
from support import heads, make, perturbed
from torch import Tensor

from wawa_transformer import PositionalEncoding, Transformer
from wawa_transformer.positional import build_encoding
from wawa_transformer.positional.alibi import alibi_slopes
from wawa_transformer.positional.base import Encoding, EncodingContext, Positions, consecutive

H, DH = 3, 4
QUERY, KEY = consecutive(4, 3), consecutive(8)  # positions 3 … 6 and 0 … 7
PAIRS = [(i, j) for i in range(4) for j in range(8)]
ROLES = pytest.mark.parametrize("role", ["encoder", "decoder", "cross"])


def scores(
    encoding: Encoding, q: Tensor, k: Tensor, query: Positions = QUERY, key: Positions = KEY
) -> Tensor:
    """Compute attention's scores before the softmax: ``(B,H,Q,K)``."""
    width = q.size(-1)
    q, k = encoding.rotate(q, k, query, key)
    bias = encoding.bias(q, k, query, key)
    product = q @ k.transpose(-2, -1) / math.sqrt(width)
    return product if bias is None else product + bias


def added(encoding: Encoding, q: Tensor, k: Tensor) -> Tensor:
    return scores(encoding, q, k) - q @ k.transpose(-2, -1) / math.sqrt(DH)


@pytest.mark.parametrize("base", [100.0, 10000.0])
@pytest.mark.parametrize("divisor", [None, 0.5, 7.0])
def test_rotary(base: float, divisor: float | None) -> None:
    """Rotary equals equation 12 of Su et al. 2021, at whole and at divided positions."""
    given = {} if base == 10000 else {"base": base}  # 10000 is the paper's
    rotary, at = build_encoding("rotary", EncodingContext(16), given), consecutive(41)
    if divisor is not None:
        at = Positions(at.ids / divisor, at.end)
    x = torch.randn(1, 1, 41, 16, dtype=torch.float64)
    angle = (
        torch.arange(41)[:, None] / (divisor or 1) * base ** (-torch.arange(0, 16, 2).double() / 16)
    )
    pairs = torch.view_as_complex(x.unflatten(-1, (8, 2)))
    expected = torch.view_as_real(pairs * (1j * angle).exp()).flatten(-2)
    for found in rotary.rotate(x, x, at, at):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-6 if divisor is None else 1e-4)


@pytest.mark.parametrize("divisor", [None, 3.0])
def test_pope_is_the_papers_sum_of_cosines(divisor: float | None) -> None:
    """The scores are those of Gopalakrishnan et al. 2025, section 3."""
    encoding = make("pope")
    with torch.no_grad():  # some below -2π, some above 0
        encoding.delta.copy_(torch.linspace(-8, 1, H * DH).view(H, DH))
    q, k = heads(4), heads(8, 1)
    query, key = (
        at if divisor is None else Positions(at.ids / divisor, at.end) for at in (QUERY, KEY)
    )
    found = scores(encoding, q, k, query, key)
    for i, j in PAIRS:
        for h in range(H):
            expected = 0.0
            for c in range(DH):
                far = (j - (i + 3)) / (divisor or 1) * 10000 ** (-c / DH)
                turn = min(0.0, max(-2 * math.pi, encoding.delta[h, c].item()))
                sizes = [math.log1p(math.exp(x[1, h, n, c])) for x, n in ((q, i), (k, j))]
                expected += math.prod(sizes) * math.cos(far + turn) / math.sqrt(DH)
            assert found[1, h, i, j].item() == pytest.approx(expected, abs=1e-5)
    assert not make("pope").delta.any(), "it starts at zero, as for longer sequences in the paper"


def test_alibi_slopes() -> None:
    """The slopes are those of Press et al. 2022."""
    eight = [2.0**-h for h in range(1, 9)]  # the paper's own example, section 3
    assert alibi_slopes(8) == pytest.approx(eight)
    assert alibi_slopes(12) == pytest.approx([*eight, 2.0**-0.5, 2.0**-1.5, 2.0**-2.5, 2.0**-3.5])
    assert alibi_slopes(1) == [2.0**-8]


@ROLES
@pytest.mark.parametrize("directed", [False, True])
def test_alibi_is_minus_slope_times_distance(role: str, directed: bool) -> None:
    found = added(make("alibi", role, directed=directed), heads(4), heads(8, 1))
    slopes = [2.0**-4, 2.0**-8, 2.0**-2]
    for i, j in PAIRS:
        to_the_right = j > i + 3 and (directed or role == "cross")
        for h in range(H):
            slope = slopes[::-1][h] if to_the_right else slopes[h]
            assert found[1, h, i, j].item() == pytest.approx(-slope * abs(i + 3 - j), abs=1e-12)


def t5_bucket(distance: int, side: int, most: int, causal: bool) -> int:
    """Compute the bucket of a distance in whole numbers (Raffel et al. 2020)."""
    exact, wide = side // 2, side - side // 2
    n = max(-distance, 0) if causal else abs(distance)
    bucket = n
    if n >= exact:
        steps = sum(n**wide * exact**j >= exact**wide * most**j for j in range(1, wide))
        bucket = exact + steps
    return bucket + side if distance > 0 and not causal else bucket


@ROLES
@pytest.mark.parametrize(
    ("num_buckets", "most"),
    # In the last two an edge is a whole number, which the logarithm in floats misses.
    [(32, 128), (16, 10), (8, 20), (4, 7), (16, 1000), (18, 128), (10, 160)],
)
def test_t5_adds_the_number_of_each_distances_bucket(
    num_buckets: int, most: int, role: str
) -> None:
    """Every distance up to past the last edge has the bucket of exact arithmetic."""
    encoding = make("t5", role, num_buckets=num_buckets, max_distance=most)
    causal, far = role == "decoder", most + 20
    side = num_buckets if causal else num_buckets // 2
    expected = [t5_bucket(n, side, most, causal) for n in range(-far, far + 1)]
    at = consecutive(1, far), consecutive(2 * far + 1)
    [found] = encoding.bias(heads(1), heads(1), *at)  # (H,1,2·far+1)
    assert torch.equal(found[:, 0].T, encoding.table[expected])


def test_shaw_adds_a_clipped_relative_key() -> None:
    """The scores equal equation 4 of Shaw et al. 2018."""
    encoding = make("shaw", max_distance=2)
    q, k = heads(4), heads(8, 1)
    found = scores(encoding, q, k)
    for i, j in PAIRS:
        row = encoding.table[max(-2, min(2, j - (i + 3))) + 2]
        expected = ((k[:, :, j] + row) * q[:, :, i]).sum(-1) / 2
        torch.testing.assert_close(found[:, :, i, j], expected, rtol=0, atol=1e-12)


def test_transformer_xl_is_the_sum_of_four_terms() -> None:
    """The scores have four terms (Dai et al. 2019, section 3.3)."""
    encoding = make("transformer_xl", "decoder")
    q, k = heads(4), heads(8, 1)
    found, table = scores(encoding, q, k), PositionalEncoding(H * DH).pe[0].double()
    for i, j in PAIRS:
        far = i + 3 - j
        sines = table[abs(far)].clone()
        sines[0::2] *= math.copysign(1, far)  # sin(−x) = −sin x
        key = (encoding.project.weight @ sines).view(H, DH)
        terms = (
            q[:, :, i] * k[:, :, j] + q[:, :, i] * key
            + encoding.u * k[:, :, j] + encoding.v * key
        )  # fmt: skip
        torch.testing.assert_close(found[:, :, i, j], terms.sum(-1) / 2, rtol=0, atol=1e-6)


@pytest.mark.parametrize("form", ["log", "power"])
@ROLES
def test_kerple_is_its_kernel(form: str, role: str) -> None:
    """The bias equals equations 2 and 3 of Chi et al. 2022."""
    encoding = perturbed(make("kerple", role, form=form))
    found = added(encoding, heads(4), heads(8, 1))
    for i, j in PAIRS:
        far = abs(j - (i + 3))
        side = 0 if role == "decoder" or j <= i + 3 else 1
        for h in range(H):
            a, beta = math.exp(encoding.alpha[side, h].item()), encoding.beta[side, h].item()
            if form == "log":
                expected = -a * math.log(1 + math.exp(beta) * far)
            else:
                expected = -a * far ** (2 / (1 + math.exp(-beta)))
            assert found[1, h, i, j].item() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("form", ["log", "power"])
def test_kerple_starts_where_its_code_does(form: str) -> None:
    encoding: Any = build_encoding("kerple", EncodingContext(4000, 1000), {"form": form})
    a = encoding.alpha.exp()
    b = encoding.beta.exp() if form == "log" else 2 * encoding.beta.sigmoid()
    for value, most in ((a, 2.0 if form == "log" else 1.0), (b, 1.0 if form == "log" else 2.0)):
        assert value.min() >= 0.0099 and value.max() <= most
        assert value.mean().item() == pytest.approx(most / 2, abs=0.05 * most)


@pytest.mark.parametrize("threshold", [1.0, 4.0, 40.0])
def test_fire_is_the_papers_function_of_the_share(threshold: float) -> None:
    """The bias equals equation 3 of Li et al. 2024.

    The default network is written out. To the right of the query the share is negative. The
    published code has |i − j| and max(L, i) instead.
    """
    encoding = perturbed(make("fire", width=5, threshold=threshold))
    found = added(encoding, heads(4), heads(8, 1))
    c, limit = abs(encoding.c.item()), abs(encoding.share.item()) * threshold
    for i, j in PAIRS:
        above = math.copysign(math.log(c * abs(i + 3 - j) + 1), i + 3 - j)
        share = above / math.log(c * max(limit, i + 3, j) + 1)
        hidden = (share * encoding.inner + encoding.inner_bias).relu()
        torch.testing.assert_close(found[0, :, i, j], encoding.outer @ hidden, rtol=0, atol=1e-5)


@pytest.mark.parametrize("role", ["encoder", "decoder"])
def test_cope_counts_what_the_query_attends_to(role: str) -> None:
    """The bias equals equations 3 to 5 of Golovneva et al. 2024."""
    encoding = perturbed(make("cope", role, num_positions=4))
    q, k = heads(4), heads(8, 1)
    found, beyond = added(encoding, q, k), 0
    for i, j in PAIRS:
        at = i + 3
        if role == "decoder" and j > at:
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
            assert found[0, h, i, j].item() == pytest.approx((q[0, h, i] @ row).item(), abs=1e-6)
    assert beyond, "no count reached the last position"
    assert not make("cope", role).table.any(), "its vectors start at zero, as in the paper"


@pytest.mark.parametrize("role", ["encoder", "decoder"])
def test_cope_keeps_its_digits_far_into_a_sequence(role: str) -> None:
    """CoPE in float32 is close to float64 after 2,000 gates."""
    encoding, q, k = perturbed(make("cope", role)), heads(2000)[:, :, -20:], heads(2000, 1)
    pair = consecutive(20, 1980), consecutive(2000)
    expected = encoding.bias(q, k, *pair)
    found = encoding.float().bias(q.float(), k.float(), *pair).double()
    torch.testing.assert_close(found, expected, rtol=0, atol=3e-5)


def test_query_only_scores_stay_where_equal_keys_swap_places() -> None:
    q, k = heads(1).expand(-1, -1, 4, -1), heads(8, 1)
    order = [0, 5, 2, 3, 4, 1, 6, 7]
    found, swapped = (scores(make("rotary_query"), q, keys) for keys in (k, k[:, :, order]))
    torch.testing.assert_close(found[..., order], swapped)
    assert not torch.allclose(found[..., 0, :], found[..., 1, :], atol=1e-2)
    found, swapped = (scores(make("rotary_key"), q, keys) for keys in (k, k[:, :, order]))
    torch.testing.assert_close(found[..., 0, :], found[..., 3, :])
    assert not torch.allclose(found[..., order], swapped, atol=1e-2)


def test_mixed_scores_are_the_mean_of_both_counts() -> None:
    q, k, end = heads(4), heads(8, 1), Positions(KEY.ids.flip(-1), 8)
    both = Positions(torch.cat((KEY.ids, end.ids, KEY.ids), dim=1), 8)  # as origin=both has it
    counts = torch.stack([scores(make("rotary"), q, k, QUERY, key) for key in (KEY, end)])
    found = scores(make("rotary_mix"), q, k, QUERY, both)
    torch.testing.assert_close(found, counts.mean(0), rtol=0, atol=1e-6)


def test_cross_attention_has_an_encoding_of_its_own() -> None:
    """Cross-attention's encoding has its own parameters."""
    shape, given = (9, 9, 8, 1, 2, 8), {"max_distance": 3}
    same: Any = Transformer(*shape, pe="shaw", pe_settings=given, cross="same", seed=0)
    assert same.cross_position.table.shape == same.src_position.table.shape == (7, 4)
    assert not torch.equal(same.cross_position.table, same.src_position.table)
    other: Any = Transformer(*shape, pe="learned", pe_settings={"max_len": 9}, cross="shaw")
    assert other.cross_position.table.shape == (33, 4)
    for pe, cross, message in (
        ("sinusoidal", "same", "pe.cross=same: sinusoidal is not for cross-attention"),
        ("cope", "same", "pe.cross=same: cope is not for cross-attention"),
        ("t5", "tee5", "pe.cross=tee5: tee5 does not exist"),
    ):
        with pytest.raises(ValueError, match=f"^{message}; choose none or one of .*shaw"):
            Transformer(*shape, pe=pe, cross=cross)
