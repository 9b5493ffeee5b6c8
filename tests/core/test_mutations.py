"""Mistakes that the other tests would not notice: each test here was seen to fail with one made."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wawa_transformer import Transformer
from wawa_transformer.common.special_ids import EOS
from wawa_transformer.data.batching import Batch, batch_indices, collate
from wawa_transformer.data.load import Examples, tokenize_split
from wawa_transformer.data.text import build_task
from wawa_transformer.decode import translation
from wawa_transformer.model.layers import ResidualConnection
from wawa_transformer.positional.sinusoidal import sinusoid_table
from wawa_transformer.run.run_dir import Run
from wawa_transformer.train import checkpoint, evaluation
from wawa_transformer.train.trainer import train


def summed_loss(model: Transformer, batch: Batch) -> Tensor:
    """NLL in nats, summed over the tokens that are not padding."""
    logits = model(batch.source, batch.target_in)
    return F.nll_loss(
        logits.log_softmax(-1).flatten(0, 1), batch.target_out.flatten(), ignore_index=0,
        reduction="sum",
    )  # fmt: skip


def test_a_few_steps_of_the_loop_are_the_formulas(tiny) -> None:
    """Token-weighted accumulation, clipping by the norm, AdamW with the paper's β, step by step.

    Written out from the papers: Pascanu et al. 2013 (clipping), Loshchilov and Hutter 2019 (AdamW).
    """
    lr, decay, clip, steps = 1e-3, 0.1, 3.0, 6
    config = tiny(
        f"trainer.lr={lr}", f"trainer.weight_decay={decay}", f"trainer.grad_clip={clip}",
        f"trainer.steps={steps}", "trainer.grad_accum_steps=2", "trainer.batch_tokens=8",
        "trainer.warmup=0", "trainer.schedule=constant", "trainer.eval_every=6",
    )  # fmt: skip
    train(config)
    ours, tokenizer, _ = checkpoint.load_model(Run.of(config))

    data = build_task(config).dataset(config.seed)
    examples = tokenize_split(data["train"], tokenizer)
    size = tokenizer.get_vocab_size()
    model = Transformer(size, size, 16, 1, 2, 32, dropout=0.0, seed=config.seed)
    order = list(batch_indices(examples.sizes, 8, config.seed, 0, False))
    weights = dict(model.named_parameters())
    first = {name: torch.zeros_like(p) for name, p in weights.items()}
    second = {name: torch.zeros_like(p) for name, p in weights.items()}
    norms, unequal = [], False
    for step in range(1, steps + 1):
        batches = [collate(examples, indices) for indices in order[2 * step - 2 : 2 * step]]
        unequal |= len({batch.target_tokens for batch in batches}) > 1
        tokens = sum(batch.target_tokens for batch in batches)
        loss = torch.stack([summed_loss(model, batch) for batch in batches]).sum() / tokens
        gradients = dict(
            zip(weights, torch.autograd.grad(loss, list(weights.values())), strict=True)
        )
        norms.append(math.sqrt(sum(float(g.square().sum()) for g in gradients.values())))
        with torch.no_grad():
            for name, p in weights.items():
                g = gradients[name] * min(1.0, clip / norms[-1])
                first[name] = 0.9 * first[name] + 0.1 * g
                second[name] = 0.98 * second[name] + 0.02 * g.square()
                mean, square = first[name] / (1 - 0.9**step), second[name] / (1 - 0.98**step)
                p -= lr * (decay * p + mean / (square.sqrt() + 1e-8))
    assert unequal and min(norms) < clip < max(norms), "some steps must be clipped and some not"
    for name, value in ours.named_parameters():
        if not name.endswith("in_proj.bias"):  # a key's bias changes no score: pure rounding noise
            torch.testing.assert_close(value, weights[name], rtol=0, atol=lr / 50, msg=name)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_dropout_acts_on_what_a_sublayer_gives(norm: str) -> None:
    """``x + dropout(f(norm(x)))`` and ``norm(x + dropout(f(x)))``, the same draw on both sides."""
    residual, sublayer = ResidualConnection(8, 0.5, norm).train(), nn.Linear(8, 8)
    x = torch.arange(48.0).view(2, 3, 8).sin()

    def drop(y: Tensor) -> Tensor:
        torch.manual_seed(0)
        return Dropout(0.5).train()(y)

    layer_norm = nn.LayerNorm(8)
    expected = (
        x + drop(sublayer(layer_norm(x))) if norm == "pre" else layer_norm(x + drop(sublayer(x)))
    )
    torch.manual_seed(0)
    torch.testing.assert_close(residual(x, sublayer), expected)


def test_position_down_divides_the_encoding_not_the_token(tiny) -> None:
    """Embedding + PE / sqrt(D) (Csordás et al. 2021), and a run's configuration reaches it."""
    ids = torch.tensor([[4, 5, 6]])
    for scale, token, position in (("token_up", 4.0, 1.0), ("position_down", 1.0, 0.25)):
        model = Transformer(9, 9, 16, 1, 2, 32, embedding_scale=scale, seed=0).eval()
        at = model.count(ids).source
        embedded = model.embed(ids, model.src_embedding, model.src_position, at)
        expected = model.src_embedding(ids) * token + sinusoid_table(3, 16) * position
        torch.testing.assert_close(embedded, expected)
    results = [
        train(tiny(f"model.embedding_scale={scale}", "trainer.steps=2"))["test"]["nll"]
        for scale in ("token_up", "position_down")
    ]
    assert abs(results[0] - results[1]) > 1e-4


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
