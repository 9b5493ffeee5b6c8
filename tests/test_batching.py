"""Batches: every example once, within the budget, in an order that only a seed decides."""

from __future__ import annotations

import pytest
import torch
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st

from wawa_transformer.batching import Examples, collate, encode, plan
from wawa_transformer.config import UserError
from wawa_transformer.tasks import TASKS
from wawa_transformer.transformer import BOS, EOS

SIZES = st.lists(st.integers(1, 40), min_size=1, max_size=200)


@settings(max_examples=60, deadline=None)
@given(SIZES, st.integers(40, 300), st.integers(0, 5), st.integers(0, 5), st.booleans())
def test_a_plan_is_a_partition_within_the_budget(
    sizes: list[int], budget: int, seed: int, epoch: int, bucket: bool
) -> None:
    """Each index exactly once; rows times the longest never above the budget; repeatable."""
    batches = plan(sizes, budget, seed, epoch, bucket)
    assert sorted(i for batch in batches for i in batch) == list(range(len(sizes)))
    assert all(len(batch) * max(sizes[i] for i in batch) <= budget for batch in batches)
    assert all(batches)
    assert plan(sizes, budget, seed, epoch, bucket) == batches


@pytest.mark.parametrize("bucket", [False, True])
def test_epochs_and_seeds_differ(bucket: bool) -> None:
    """The same order twice would mean an epoch that teaches nothing new about order."""
    sizes = [1 + i % 30 for i in range(500)]
    plans = [plan(sizes, 200, seed, epoch, bucket) for seed in (0, 1) for epoch in (0, 1)]
    assert all(a != b for i, a in enumerate(plans) for b in plans[:i])


def test_buckets_save_padding_and_are_still_shuffled() -> None:
    """Bucketed batches hold less padding, and do not run from short to long."""
    sizes = torch.randint(1, 60, (3000,), generator=torch.Generator().manual_seed(0)).tolist()

    def padding(bucket: bool) -> float:
        batches = plan(sizes, 600, 0, 0, bucket)
        cells = sum(len(batch) * max(sizes[i] for i in batch) for batch in batches)
        return 1 - sum(sizes) / cells

    assert padding(True) < 0.05 < 0.3 < padding(False)
    longest = [max(sizes[i] for i in batch) for batch in plan(sizes, 600, 0, 0, True)]
    rank = torch.tensor(longest, dtype=torch.float64)
    time = torch.arange(len(longest), dtype=torch.float64)
    assert abs(torch.corrcoef(torch.stack((rank, time)))[0, 1]) < 0.3


def test_a_sequence_longer_than_the_budget_is_named() -> None:
    """Both numbers and the key."""
    with pytest.raises(UserError, match="50 positions does not fit trainer.batch_tokens=40"):
        plan([3, 50], 40, 0, 0, False)


def test_collate_pads_on_the_right_and_shifts_the_target() -> None:
    """target_in starts on BOS, target_out ends on EOS, one is the other shifted by one."""
    task = TASKS["letters"]()
    data = Dataset.from_dict({"source": ["1 2 3", "4"], "target": ["A B C", "D"], "length": [3, 1]})
    tokenizer = task.tokenizer({})
    examples = encode(data, tokenizer)
    batch = collate(examples, [0, 1])
    a, d = tokenizer.token_to_id("A"), tokenizer.token_to_id("D")
    assert batch.source.tolist()[1] == [tokenizer.token_to_id("4"), EOS, 0, 0]
    assert batch.target_in.tolist()[0][:2] == [BOS, a]
    assert batch.target_out.tolist()[1] == [d, EOS, 0, 0]
    assert torch.equal(batch.target_in[0, 1:], batch.target_out[0, :-1])
    assert batch.target_tokens == 4 + 2
    assert examples.sizes.tolist() == [4, 2]


def test_pairs_that_are_too_long_are_left_out() -> None:
    """``max_tokens`` counts BOS or EOS; when nothing is left, the key is named."""
    data = Dataset.from_dict({"source": ["1 2 3", "4"], "target": ["A", "D"], "length": [3, 1]})
    tokenizer = TASKS["letters"]().tokenizer({})
    kept: Examples = encode(data, tokenizer, max_tokens=3)
    assert kept.length == [1]
    with pytest.raises(UserError, match="task.max_tokens=1"):
        encode(data, tokenizer, max_tokens=1)
