"""Fast encodings by themselves: relative shifts, Shaw's spread, complex rotary, FIRE's lookup."""

import copy
from typing import Any

import pytest
import torch
from conftest import RELATIVE
from core.helpers import heads, make, perturbed
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from wawa_transformer.fast import accelerate, positional
from wawa_transformer.positional.base import ENCODINGS, Encoding, Positions, consecutive

SHIFTED = [kind for kind in RELATIVE if ENCODINGS[kind].bias is not Encoding.bias]
BEGINS = st.tuples(st.integers(0, 40), st.integers(0, 40))
SIZES = st.tuples(st.integers(1, 9), st.integers(1, 9))


@pytest.fixture(autouse=True)
def few_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if few queries and keys were many."""
    monkeypatch.setattr(positional, "MANY_PAIRS", 1)


def plain_and_fast(kind: str, **changes: Any) -> tuple[Any, Any]:
    plain = perturbed(make(kind, **changes))
    fast = copy.deepcopy(plain)
    accelerate(fast)
    assert type(plain) is not type(fast)
    return plain, fast


def outcome(encoding: Any, q: Tensor, k: Tensor, query: Positions, key: Positions) -> list[Tensor]:
    """Rotated queries and keys, the bias, and every gradient."""
    q, k = q.clone().requires_grad_(), k.clone().requires_grad_()
    outputs = [*encoding.rotate(q, k, query, key)]
    bias = encoding.bias(*outputs, query, key)
    if bias is not None:
        outputs.append(bias.expand(q.size(0), q.size(1), q.size(2), k.size(2)))
    encoding.zero_grad()
    sum((each.sin() * each.detach().cos()).sum() for each in outputs).backward()
    gradients = [each.grad for each in (q, k, *encoding.parameters())]
    return [*outputs, *(each for each in gradients if each is not None)]


@pytest.mark.parametrize("kind", RELATIVE)
@settings(max_examples=40)
@given(begins=BEGINS, sizes=SIZES)
def test_a_shift_is_a_gather(kind: str, begins: tuple[int, int], sizes: tuple[int, int]) -> None:
    """Wherever queries and keys begin: far to the left of all keys, or to the right.

    For positions that are called consecutive, and for the same ones, of which that is not said.
    """
    q, k = (heads(size, seed) for seed, size in enumerate(sizes))
    plain, fast = plain_and_fast(kind, **({"max_distance": 5} if kind == "shaw" else {}))
    query, key = (consecutive(n, first) for n, first in zip(sizes, begins, strict=True))
    expected = outcome(plain, q, k, query, key)
    for at in ((query, key), [Positions(each.ids, each.end) for each in (query, key)]):
        torch.testing.assert_close(outcome(fast, q, k, *at), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", SHIFTED)
@pytest.mark.parametrize("called_consecutive", [False, True])
def test_other_positions_are_not_taken_for_the_last_ones(
    kind: str, called_consecutive: bool
) -> None:
    """What is formed once a pass is formed anew for other queries or keys."""
    plain, fast = plain_and_fast(kind)
    q, k = heads(3), heads(6, 1)
    first, second = ((consecutive(3, i), consecutive(6, j)) for i, j in ((0, 0), (5, 3)))
    if not called_consecutive:
        first, second = (
            tuple(Positions(at.ids, at.end) for at in each) for each in (first, second)
        )
    for at in (first, (first[0], second[1]), second, (second[0], first[1]), first):
        torch.testing.assert_close(fast.bias(q, k, *at), plain.bias(q, k, *at))


@settings(max_examples=60)
@given(st.integers(1, 6), st.integers(0, 10**6))
def test_fire_looks_up_what_its_network_computes(width: int, seed: int) -> None:
    """Values and every gradient; some units have no kink, or none within reach."""
    plain = make("fire", width=width)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name in ("inner", "inner_bias", "outer"):
            parameter = getattr(plain, name)
            parameter.normal_(generator=generator)
            some = torch.randint(0, 4, parameter.shape, generator=generator)
            parameter[some == 0] = 0.0
        plain.inner[torch.randint(0, 3, (width,), generator=generator) == 0] *= 0.1
    fast = copy.deepcopy(plain)
    accelerate(fast)
    share = 2 * torch.rand(2, 1, 3, 5, dtype=torch.float64, generator=generator) - 1
    share[0, 0, 0, :2] = torch.tensor([-1.0, 1.0])
    direction = torch.randn(2, 3, 3, 5, dtype=torch.float64, generator=generator)
    found, expected = [], []
    for encoding, results in ((fast, found), (plain, expected)):
        at = (share.clone().requires_grad_(), encoding.inner, encoding.inner_bias, encoding.outer)
        values = encoding.network(at[0])
        results += [values, *torch.autograd.grad((values * direction).sum(), at)]
    torch.testing.assert_close(found, expected)
