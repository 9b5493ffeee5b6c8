"""The trainer of the page, held against torch: gradients, steps, starting values and data."""

import itertools
import json
import re
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from chromium import Browser
from support import begun, configure

from wawa_transformer.common import CONFIG_DIR
from wawa_transformer.data import load
from wawa_transformer.data.batching import batch_indices
from wawa_transformer.data.load import load_data
from wawa_transformer.lesson import playground
from wawa_transformer.model.transformer import Transformer
from wawa_transformer.train.loop import batch_stream, train_step

TRAINER = [(playground.TEMPLATES / f"{name}.js").read_text("utf-8") for name in playground.WORKER]
# Every encoding that the page trains, as arguments of Transformer.
ENCODINGS: dict[str, dict[str, Any]] = {
    "sinusoidal": {"pe": "sinusoidal"},
    "learned": {"pe": "learned", "pe_settings": {"max_len": 64}},
    "none": {"pe": "none"},
    "rotary": {"pe": "rotary"},
    "shaw": {"pe": "shaw", "pe_settings": {"max_distance": 8}},
    "shaw_cross": {"pe": "shaw", "pe_settings": {"max_distance": 8}, "cross": "same"},
}


@pytest.fixture(scope="module")
def compute(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """Run the trainer in a page: ``compute(script, data)``, what the script returns."""
    path = tmp_path_factory.mktemp("page") / "trainer.html"
    tags = "".join(f"<script>{each}</script>" for each in TRAINER)
    path.write_text(f"<!DOCTYPE html><meta charset=utf-8><body>{tags}", encoding="utf-8")
    browser.open(path.as_uri())
    return lambda script, data: browser.read(f"(data => {{ {script} }})({json.dumps(data)})")


GRADIENTS = """
  return Object.entries(data.weights).map(([encoding, weights]) => {
    const model = new Transformer({ ...data.sizes, encoding }), { parameters } = model;
    for (const [name, rows, columns] of parameters.shapes) {
      parameters.part(name, 0, rows * columns).value.set(weights[name]);
    }
    const { loss, gradient } = crossEntropy(model.forward(collate(data.examples)), data.targets);
    model.backward(gradient);
    const gradients = parameters.shapes.map(([name, rows, columns]) =>
      [name, Array.from(parameters.part(name, 0, rows * columns).grad)]);
    return { loss, gradients: Object.fromEntries(gradients) };
  });
"""


def test_every_gradient_of_every_encoding_is_that_of_torch(compute: Callable[..., Any]) -> None:
    """Two layers, sequences of lengths 1 to 20, and weights that leave nothing at zero."""
    random = np.random.default_rng(0)
    rows = [
        [[*random.integers(4, 14, size=n).tolist(), 2] for n in (source, target)]
        for source, target in ((1, 1), (20, 3), (2, 17), (9, 9), (5, 6))
    ]
    source, target = (
        torch.nn.utils.rnn.pad_sequence([torch.tensor(row[side]) for row in rows], True)
        for side in (0, 1)
    )
    target_in = torch.nn.functional.pad(target, (1, -1), value=1)
    models = {
        name: Transformer(14, 14, 16, 2, 2, 24, 0.0, seed=1, **arguments)
        for name, arguments in ENCODINGS.items()
    }
    expected = []
    for model in models.values():
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.4)
        loss, _ = model(source, target_in, targets=target)
        (loss / (target != 0).sum()).backward()
        expected.append((loss.item() / int((target != 0).sum()), model))
    data = {
        "sizes": {"width": 16, "heads": 2, "inner": 24, "layers": 2, "words": 14},
        "examples": rows,
        "targets": [id for _, target in rows for id in target],
        "weights": {
            name: {key: value.flatten().tolist() for key, value in model.state_dict().items()}
            for name, model in models.items()
        },
    }
    for found, (loss, model) in zip(compute(GRADIENTS, data), expected, strict=True):
        assert found["loss"] == pytest.approx(loss, abs=1e-5)
        assert set(found["gradients"]) == {name for name, _ in model.named_parameters()}
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None and parameter.grad.abs().max() > 1e-4, name
            gradient = torch.Tensor(found["gradients"][name]).view_as(parameter)
            assert (gradient - parameter.grad).abs().max() < 1e-5, (model.src_position, name)


STEPS = """
  const training = new Training({ ...STUDIES.page, ...data });
  return Array.from({ length: 20 }, () => training.advance());
"""


def test_twenty_steps_give_the_losses_of_train_step(
    compute: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page's seed 3 has the package's data, batches and start, and trains as train_step."""
    monkeypatch.setattr(load, "LAST", deque(maxlen=1))  # all encodings share the data
    setting = {"task": "reverse", "seed": 3, "encodings": list(ENCODINGS)}
    losses = zip(*compute(STEPS, setting), strict=True)
    for name, found in zip(ENCODINGS, losses, strict=True):
        config = configure(
            "study=page", "task=reverse", f"pe={name}", "seed=3", f"output_dir={tmp_path}"
        )
        state = begun(config)
        batches = batch_stream(state.data.train, state.trainer, config.seed, 0)
        expected = [train_step(state, next(batches))[0].item() for _ in range(20)]
        assert found == pytest.approx(expected, abs=1e-4), name


START = """
  const training = new Training({ ...STUDIES.page, ...data });
  const { train, validation, test } = training.data;
  return {
    splits: { train: train.slice(-50), validation: validation.slice(-50), test: test.slice(-50) },
    words: training.words,
    batches: Array.from({ length: 600 }, () => training.batches.next().value).slice(-2),
    weights: training.models.map(({ parameters: each }) => Object.fromEntries(each.shapes.map(
      ([name, rows, columns]) => [name, Array.from(each.part(name, 0, rows * columns).value)]))),
  };
"""


def test_data_batches_and_starting_values_are_those_of_the_package(
    compute: Callable[..., Any],
) -> None:
    """Compared are the last ones, which no generator reaches if an earlier draw is another."""
    seed, chosen = 123456, {"task": "letters", "longest": 12, "encodings": list(ENCODINGS)}
    found = compute(START, chosen | {"seed": seed})
    given = ["task=letters", f"seed={seed}", "task.max_length=12", "study=page"]
    data = load_data(configure(*given))
    words = [data.tokenizer.id_to_token(id) for id in range(data.tokenizer.get_vocab_size())]
    assert found["words"] == words
    for split in ("train", "validation", "test"):
        examples = getattr(data, split)
        last = range(len(examples.source) - 50, len(examples.source))
        pairs = [[side[i].tolist() for side in (examples.source, examples.target)] for i in last]
        assert found["splits"][split] == [[source, target[1:]] for source, target in pairs], split
    epochs = (batch_indices(data.train.sizes, 352, seed, epoch, False) for epoch in range(9))
    batches = itertools.chain.from_iterable(epochs)
    assert found["batches"] == list(itertools.islice(batches, 598, 600))
    for (name, arguments), weights in zip(ENCODINGS.items(), found["weights"], strict=True):
        model = Transformer(len(words), len(words), 32, 1, 2, 128, seed=seed, **arguments)
        state = model.state_dict()
        assert set(weights) == set(state)
        for key, value in state.items():
            torch.testing.assert_close(torch.Tensor(weights[key]).view_as(value), value, msg=name)


@pytest.mark.parametrize("page", ["trainer.md", "trainer.zh-CN.md"])
def test_the_chapter_quotes_the_file(page: str) -> None:
    """Every line of JavaScript in the chapter stands in trainer.js, and so does its length."""
    text = (CONFIG_DIR.parent / "docs" / page).read_text(encoding="utf-8")
    lines = (playground.TEMPLATES / "trainer.js").read_text(encoding="utf-8").splitlines()
    quoted = "".join(re.findall(r"^```js\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    assert quoted and {line.strip() for line in quoted.splitlines()} <= {
        line.strip() for line in lines
    }
    assert f" {len(lines)} " in text and len(lines) <= 600


def test_the_trainers_test_never_chooses_padding_or_bos(compute: Callable[..., Any]) -> None:
    """As the package's: an answer is right if its logits are the largest from EOS on."""
    script = """
      const forward = ({ targetOut }) => Float32Array.from(
        targetOut.flatMap(id => [9, 8, ...[2, 3, 4].map(word => Number(word === id))]));
      return evaluate({ forward }, [[[4, 2], [4, 3, 2]], [[2], [2]]]).right;
    """
    assert compute(script, {}) == [True, True]


def test_the_pages_default_setting_is_the_study(compute: Callable[..., Any]) -> None:
    """Sizes, rates and steps of the page's two settings are those of the package's studies."""
    for name, setting in compute("return STUDIES;", {}).items():
        config = configure(f"study={name}")
        model, trainer, task = config.model, config.trainer, config.task
        expected = {
            "width": model.d_model, "heads": model.num_heads, "inner": model.d_ff,
            "layers": model.num_layers, "rate": trainer.lr, "steps": trainer.steps,
            "warmup": trainer.warmup, "budget": trainer.batch_tokens, "every": trainer.eval_every,
            "longest": task.max_length,
        }  # fmt: skip
        assert setting == expected, name
        assert (model.dropout, model.norm, model.tie_embeddings) == (0, "pre", False)
        assert (trainer.weight_decay, trainer.grad_clip, trainer.schedule) == (0.01, 1, "linear")
