"""Tests of batches: their order, padding, and what padding must not change."""

import dataclasses
import itertools
from typing import NamedTuple
from unittest.mock import Mock

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st
from support import begun, small_model

from wawa_transformer.common import BOS, EOS, PAD
from wawa_transformer.common.messages import UserError
from wawa_transformer.common.seeds import seed_for
from wawa_transformer.data import batching
from wawa_transformer.data.batching import Batch, batch_indices, collate
from wawa_transformer.data.load import Examples, load_data, tokenize_split
from wawa_transformer.data.tasks import TASKS
from wawa_transformer.model.masks import causal_mask
from wawa_transformer.train import setup
from wawa_transformer.train.loop import batch_stream


class Weighted(NamedTuple):
    """A batch to which a fork has added a weight for each row."""

    source: torch.Tensor
    target_in: torch.Tensor
    target_out: torch.Tensor
    weight: torch.Tensor = torch.ones(9)
    shard, pad_rows = Batch.shard, Batch.pad_rows


def test_what_a_fork_adds_to_a_batch_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """With rows for shapes that repeat, and with several processes."""
    monkeypatch.setattr(batching, "Batch", Weighted)
    whole = Weighted(*torch.arange(3 * 4 * 2).view(3, 4, 2), torch.arange(4))
    assert whole.pad_rows(6).weight.tolist() == [0, 1, 2, 3]
    assert whole.shard(1, 2).weight.tolist() == [1, 3]
    idle = whole.shard(5, 6)
    assert idle.weight.tolist() == [0] and not idle.target_out.any()


SIZES = st.lists(st.integers(1, 40), min_size=1, max_size=200)


def plan_before(sizes, batch_tokens, seed, epoch, bucket):
    """Compute the batches of an epoch with plain lists."""
    widths, random = np.asarray(sizes), np.random.default_rng(seed_for(seed, "order", epoch))
    order = random.permutation(len(widths))
    if bucket:
        order = order[np.argsort(widths[order], kind="stable")]
    batches = [[]]
    for index in order.tolist():
        if (len(batches[-1]) + 1) * max(sizes[i] for i in [*batches[-1], index]) > batch_tokens:
            batches.append([])
        batches[-1].append(index)
    return [batches[i] for i in random.permutation(len(batches))] if bucket else batches


@settings(max_examples=60)
@given(SIZES, st.integers(40, 300), st.integers(0, 5), st.integers(0, 5), st.booleans())
def test_the_order_of_an_epoch_is_what_it_always_was(
    sizes: list[int], budget: int, seed: int, epoch: int, bucket: bool
) -> None:
    """The batches of an epoch equal those of a plain implementation.

    Published results and continued runs depend on this order.
    """
    expected = plan_before(sizes, budget, seed, epoch, bucket)
    assert list(batch_indices(sizes, budget, seed, epoch, bucket)) == expected


@pytest.fixture(scope="module")
def reversals() -> Examples:
    """Draw 120 reversals of up to seven symbols."""
    task = TASKS["reverse"](symbols=9, train_size=120, max_length=7)
    data = task.dataset(0)
    return tokenize_split(data["train"], task.tokenizer(data))


def test_the_stream_continues_over_epochs(reversals: Examples, tiny) -> None:
    trainer = tiny("trainer.bucket=true", "trainer.grad_accum_steps=3").trainer
    given = reversals.sizes, trainer.batch_tokens, 5
    order = [list(batch_indices(*given, epoch, True)) for epoch in (0, 1)]
    epoch = len(order[0])
    assert epoch > 9
    count = 2 * epoch // 3 + 3
    steps = list(itertools.islice(batch_stream(reversals, trainer, 5, 0), count))
    for batch, indices in zip(itertools.chain(*steps), itertools.chain(*order), strict=False):
        assert torch.equal(batch.source, collate(reversals, indices).source)
    for begin in (1, epoch // 3, count - 3):
        again = list(itertools.islice(batch_stream(reversals, trainer, 5, begin), 2))
        for ours, theirs in zip(steps[begin : begin + 2], again, strict=True):
            for a, b in zip(ours, theirs, strict=True):
                assert torch.equal(a.source, b.source) and torch.equal(a.target_out, b.target_out)


def test_a_sequence_that_does_not_fit_is_named(tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every split, before any step."""
    with pytest.raises(UserError, match="50 positions does not fit trainer.batch_tokens=40"):
        next(batch_indices([3, 50], 40, 0, 0, False))
    with pytest.raises(UserError, match="16 positions .* the 12 of .*pe.max_len=16"):
        begun(tiny("pe=learned", "pe.max_len=12", "trainer.pad_to_multiple_of=16"))
    config = tiny("pe=learned", "pe.max_len=5")
    data = load_data(config)
    exchanged = dataclasses.replace(data, validation=data.test, test=data.validation)
    for each in (data, exchanged):
        monkeypatch.setattr(setup, "load_data", Mock(return_value=each))
        with pytest.raises(UserError, match="7 positions .* the 5 of .*pe.max_len=7"):
            begun(config)


def test_collate_pads_on_the_right_and_shifts_the_target() -> None:
    """``target_in`` starts with BOS, ``target_out`` ends with EOS."""
    data = Dataset.from_dict({"source": ["1 2 3", "4"], "target": ["A B C", "D"], "length": [3, 1]})
    tokenizer = TASKS["letters"]().tokenizer({})
    examples = tokenize_split(data, tokenizer)
    batch = collate(examples, [0, 1])
    a, d = tokenizer.token_to_id("A"), tokenizer.token_to_id("D")
    assert batch.source.tolist()[1] == [tokenizer.token_to_id("4"), EOS, 0, 0]
    assert batch.target_in.tolist()[0][:2] == [BOS, a]
    assert batch.target_out.tolist()[1] == [d, EOS, 0, 0]
    assert torch.equal(batch.target_in[0, 1:], batch.target_out[0, :-1])
    assert batch.target_tokens == 4 + 2
    assert examples.sizes.tolist() == [4, 2]


def test_pairs_that_are_too_long_are_left_out() -> None:
    """``max_tokens`` counts BOS or EOS, and the pairs kept read their own ids."""
    sides = {"source": ["1 2 3", "4 5", "6", "7"], "target": ["A", "D E", "A B C", "A B C D"]}
    data = Dataset.from_dict({**sides, "length": [3, 2, 1, 1]})
    tokenizer = TASKS["letters"]().tokenizer({})
    kept: Examples = tokenize_split(data, tokenizer, max_tokens=3)
    assert kept.text["length"][:] == [2] and kept.text["target"][:] == ["D E"]
    assert kept.source[0].tolist() == [*tokenizer.encode("4 5").ids, EOS]
    assert collate(kept, [0]).target_out.tolist() == [[*tokenizer.encode("D E").ids, EOS]]
    assert kept.source.ids.dtype == kept.target.ids.dtype == np.uint8, "no more than needed"
    assert tokenize_split(data, tokenizer, max_tokens=4).text["length"][:] == [3, 2, 1]
    every = tokenize_split(data, tokenizer)
    assert every.text["length"][:] == [3, 2, 1, 1] and every.extremes() == (4, 5, 5 / 2)
    with pytest.raises(UserError, match="task.max_tokens=1; give shorter ones, or raise it where"):
        tokenize_split(data, tokenizer, max_tokens=1)


@pytest.mark.parametrize(
    "name",
    ["sinusoidal", "learned", "rotary_cross", "shaw_cross", "t5_cross", "cope", "merged_shaw"],
)
def test_padding_changes_nothing(name: str, reversals: Examples) -> None:
    """Rows and columns of padding change neither loss nor gradients."""
    plain, full = collate(reversals, range(5)), collate(reversals, range(5), 12).pad_rows(7)
    assert full.source.shape == full.target_in.shape == full.target_out.shape == (7, 12)
    assert full.target_tokens == plain.target_tokens and not plain.target_in.all()
    model, found = small_model(name), []
    for batch, mask in ((plain, None), (plain, causal_mask(plain.target_in.size(1))), (full, None)):
        logits = model(batch.source, batch.target_in, tgt_mask=mask).transpose(1, 2)  # (B,V,T)
        # In float64, unlike the package's loss.
        loss = F.cross_entropy(logits, batch.target_out, ignore_index=PAD, reduction="sum")
        gradients = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
        found.append([loss, *(each for each in gradients if each is not None)])
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], rtol=0, atol=1e-11)
