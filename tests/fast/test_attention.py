"""Fast attention by itself: masks of any shape, chunks of queries, autocast.

That whole models with it equal plain ones is in test_accelerate.py.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from core.helpers import HEADS, padded_ids, small_model

from wawa_transformer.fast import accelerate, attention, positional
from wawa_transformer.fast.attention import sdpa


@pytest.fixture
def chunked(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a processor's cache held two queries' scores and no more."""
    monkeypatch.setattr(attention, "MAX_SCORES", 1)
    monkeypatch.setattr(attention, "MIN_ROWS", 2)
    monkeypatch.setattr(positional, "MANY_PAIRS", 1)


@pytest.mark.parametrize("shape", [(), (6,), (6, 1), (6, 6), (HEADS, 6, 6), (2, 1, 1, 6)])
@pytest.mark.parametrize("kind", ["alibi", "shaw"])
def test_a_mask_of_any_shape_is_divided_right(
    kind: str, shape: tuple[int, ...], chunked: None
) -> None:
    """One that broadcasts, and one that leaves rows without keys."""
    model = small_model(kind)
    mask, src = torch.rand(shape) < 0.5, padded_ids(2, 6, 0)
    expected = model.encode(src, mask)
    accelerate(model)
    torch.testing.assert_close(model.encode(src, mask), expected, rtol=0, atol=1e-12)


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
