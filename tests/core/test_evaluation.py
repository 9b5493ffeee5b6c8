"""Tests of exact match by teacher forcing, and of means over tokens."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from wawa_transformer.common.special_ids import BOS, EOS
from wawa_transformer.data.batching import collate
from wawa_transformer.data.load import tokenize_split
from wawa_transformer.data.text import build_task
from wawa_transformer.decode.greedy import greedy
from wawa_transformer.run.run_dir import Run
from wawa_transformer.train import evaluation
from wawa_transformer.train.load import load_model
from wawa_transformer.train.trainer import train


def test_exact_match_is_that_of_greedy_decoding(tiny) -> None:
    """Teacher-forced exact match equals that of greedy decoding, example by example.

    The oracle of the length equals greedy decoding without EOS, cut at that length.
    """
    config = tiny("trainer.steps=100", "trainer.eval_every=100", "trainer.lr=1e-2")
    train(config)
    model, tokenizer, _ = load_model(Run.of(config))
    examples = tokenize_split(build_task(config).dataset(config.seed)["test"], tokenizer)
    scores = evaluation.evaluate(model, examples)
    exact = scores["correct"] == scores["tokens"]
    right = scores["oracle"] == scores["tokens"] - 1
    assert (right >= exact).all()
    assert 0 < exact.mean() <= right.mean() < 1, "a model that is sometimes right shows more"
    for i, target in enumerate(examples.target):
        out = greedy(model, collate(examples, [i]).source, max_length=20)[0].tolist()
        out = out[: out.index(EOS) + 1] if EOS in out else out
        assert (out == target[1:].tolist()) == exact[i]
        prefix = [BOS]
        for _ in range(len(target) - 2):
            logits = model(examples.source[i][None], torch.tensor([prefix]))[0, -1]
            logits[EOS] = -torch.inf
            prefix.append(int(logits.argmax()))
        assert (prefix == target[:-1].tolist()) == right[i]


def test_a_causal_encoder_has_no_ceiling(tiny) -> None:
    """Only a full encoder mask has a ceiling.

    The theorem needs a permutation-equivariant encoder.
    """
    for mask in ("full", "causal"):
        config = tiny("task=reverse", "trainer.steps=1", f"model.encoder_mask={mask}")
        rows = train(config)["by_length"]
        known = [row["ceiling"] for row in rows] + [row["new"]["ceiling"] for row in rows]
        assert any(ceiling is not None for ceiling in known) == (mask == "full")


def test_nll_is_a_mean_over_tokens() -> None:
    """NLL and token accuracy are means over tokens, not over examples.

    One token at 1 nat and four tokens at 2 nats have the mean 9 / 5.
    """
    scores = {
        "nll": np.array([1.0, 8.0]), "tokens": np.array([1.0, 4.0]),
        "correct": np.array([0.0, 4.0]), "oracle": np.array([0.0, 3.0]),
    }  # fmt: skip
    found = evaluation.summarise(scores)
    assert found["nll"] == pytest.approx(1.8)
    assert found["token_accuracy"] == pytest.approx(0.8)
    assert found["exact_match"] == pytest.approx(0.5)
