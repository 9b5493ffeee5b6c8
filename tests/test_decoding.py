"""Decoding with a cache against decoding without one."""

from __future__ import annotations

import pytest
import torch
from conftest import MODELS
from hypothesis import given, settings
from hypothesis import strategies as st

from wawa_transformer import Transformer
from wawa_transformer.common.special_ids import BOS, EOS, PAD
from wawa_transformer.decode.greedy import greedy, most_probable
from wawa_transformer.model.masks import padding_mask

SRC = torch.tensor([[5, 6, 7, 8], [4, 9, 0, 0]])


@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=4)
@given(cuts=st.sets(st.integers(1, 6)))
def test_every_cached_step_equals_the_uncached_logits(name: str, cuts: set[int]) -> None:
    """However the target is cut into pieces, a position at a time included."""
    model = Transformer(11, 11, 8, 2, 2, 16, **MODELS[name], seed=1).double().eval()
    tgt = torch.randint(4, 11, (2, 7), generator=torch.Generator().manual_seed(0))
    count, mask = model.count(SRC), padding_mask(SRC)
    memory = model.encode(SRC, count=count)
    whole = model.decode(tgt, memory, cross_mask=mask, count=count)
    assert torch.equal(whole, model(SRC, tgt))
    edges = [0, *sorted(cuts), 7]
    cache = model.new_cache()
    pieces = [
        model.decode(tgt[:, a:b], memory, cross_mask=mask, cache=cache, count=count)
        for a, b in zip(edges, edges[1:], strict=False)
    ]
    torch.testing.assert_close(torch.cat(pieces, dim=1), whole, rtol=0, atol=1e-12)


NAMES = ["sinusoidal", "shaw_cross_both", "sinusoidal_end_restart", "learned_moved"]


@pytest.mark.parametrize(("seed", "name"), enumerate(NAMES))
def test_greedy_takes_the_most_probable_id_at_every_step(seed: int, name: str) -> None:
    """Against a loop that decodes the whole prefix anew; ends on EOS, padding after it."""
    model = Transformer(11, 11, 8, 2, 2, 16, **MODELS[name], seed=seed).double()
    with torch.no_grad():
        model.output.weight[EOS] *= 3  # so that some rows end before others
    out = greedy(model, SRC, max_length=9)
    assert model.training, "greedy() leaves the mode as it found it"
    model.eval()
    for row, source in zip(out.tolist(), SRC, strict=True):
        prefix = [BOS]
        while len(prefix) <= 9 and prefix[-1] != EOS:
            logits = model(source[None], torch.tensor([prefix]), tgt_mask=None)
            prefix.append(int(logits[0, -1].argmax()))
        expected = prefix[1:] + [PAD] * (len(row) - len(prefix) + 1)
        if PAD not in prefix:  # an emitted PAD would be masked as padding by the uncached loop
            assert row == expected


@given(
    rows=st.lists(
        st.lists(
            st.sampled_from([0.0, 1.0, 2.0, torch.inf, -torch.inf, torch.nan]),
            min_size=3,
            max_size=3,
        ),
        min_size=1,
    ),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
    turned=st.booleans(),
)
def test_the_most_probable_is_the_first_of_the_largest(
    rows: list[list[float]], dtype: torch.dtype, turned: bool
) -> None:
    """Whatever reads them: of equals the first, and what is no number before all."""
    logits = torch.tensor(rows, dtype=dtype, requires_grad=True)
    found = most_probable(logits.T.contiguous().T if turned else logits)
    expected = [max(range(3), key=lambda i: (row[i] != row[i], row[i])) for row in rows]
    assert found.dtype == torch.int64 and found.tolist() == expected
