"""Exact match by teacher forcing, means over tokens, and where decoding stops."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from wawa_transformer import Transformer
from wawa_transformer.common.special_ids import BOS, EOS
from wawa_transformer.data.batching import collate
from wawa_transformer.data.load import Examples, tokenize_split
from wawa_transformer.data.text import build_task
from wawa_transformer.decode import translation
from wawa_transformer.decode.greedy import greedy
from wawa_transformer.run.run_dir import Run
from wawa_transformer.train import evaluation
from wawa_transformer.train.load import load_model
from wawa_transformer.train.trainer import train


def test_exact_match_is_that_of_greedy_decoding(tiny) -> None:
    """Example by example, teacher-forced exactness equals greedy output equal to the target."""
    config = tiny("trainer.steps=150", "trainer.eval_every=150", "trainer.lr=1e-2")
    train(config)
    model, tokenizer, _ = load_model(Run.of(config))
    task = build_task(config)
    data = task.dataset(config.seed)
    examples = tokenize_split(data["validation"], tokenizer)
    scores = evaluation.evaluate(model, examples)
    exact = scores["correct"] == scores["tokens"]
    assert 0 < exact.mean() < 1, "a model that is sometimes right shows more"
    for i, target in enumerate(examples.target):
        out = greedy(model, collate(examples, [i]).source, max_length=20)[0].tolist()
        out = out[: out.index(EOS) + 1] if EOS in out else out
        assert (out == target[1:].tolist()) == exact[i]


def test_oracle_length_is_decoding_without_a_choice_of_the_end(tiny) -> None:
    """Greedy decoding that may not emit EOS, cut at the target's length, example by example."""
    config = tiny("trainer.steps=100", "trainer.eval_every=100", "trainer.lr=1e-2")
    train(config)
    model, tokenizer, _ = load_model(Run.of(config))
    examples = tokenize_split(build_task(config).dataset(config.seed)["test"], tokenizer)
    scores = evaluation.evaluate(model, examples)
    right = scores["oracle"] == scores["tokens"] - 1
    assert (right >= (scores["correct"] == scores["tokens"])).all()
    assert 0 < right.mean() < 1
    for i, target in enumerate(examples.target):
        prefix = [BOS]
        for _ in range(len(target) - 2):
            logits = model(examples.source[i][None], torch.tensor([prefix]))[0, -1]
            logits[EOS] = -torch.inf
            prefix.append(int(logits.argmax()))
        assert (prefix == target[:-1].tolist()) == right[i]


def test_nll_is_a_mean_over_tokens() -> None:
    """One token at 1 nat and four at 2 nats: 9 / 5, not the mean of 1 and 2."""
    scores = {
        "nll": np.array([1.0, 8.0]), "tokens": np.array([1.0, 4.0]),
        "correct": np.array([0.0, 4.0]), "oracle": np.array([0.0, 3.0]),
    }  # fmt: skip
    found = evaluation.summarise(scores)
    assert found["nll"] == pytest.approx(1.8)
    assert found["token_accuracy"] == pytest.approx(0.8)
    assert found["exact_match"] == pytest.approx(0.5)


def test_a_translation_may_be_longer_than_its_source(tiny) -> None:
    """A model that never ends is stopped only well past the source's length."""
    task = build_task(tiny())
    data = task.dataset(0)
    tokenizer = task.tokenizer(data)
    size = tokenizer.get_vocab_size()
    model = Transformer(size, size, 16, 1, 2, 32, seed=0).eval()
    with torch.no_grad():  # the same symbol for ever
        model.decoder_norm.weight.zero_()
        model.decoder_norm.bias.fill_(1.0)
        model.output.weight.zero_()
        model.output.weight[EOS + 2] = 1.0
    examples: Examples = tokenize_split(data["validation"], tokenizer).first(3)
    for source, line in zip(
        examples.source, translation.translate(model, tokenizer, examples), strict=True
    ):
        assert len(line.split()) >= 2 * len(source)
