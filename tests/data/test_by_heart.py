"""A model that knows every answer by heart scores 1.000 and 100, or the lost step is named."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import configure
from torch import Tensor

from wawa_transformer import Transformer
from wawa_transformer.common.files import CONFIG_DIR
from wawa_transformer.common.special_ids import EOS, PAD
from wawa_transformer.data.load import Data, Examples, load_data
from wawa_transformer.decode.strategies import Greedy
from wawa_transformer.decode.translation import best_hypotheses, output_limits
from wawa_transformer.run.run_dir import Run
from wawa_transformer.train.evaluation import evaluate_by_length
from wawa_transformer.train.trainer import notes, write_translations

TASKS = sorted(path.stem for path in (CONFIG_DIR / "task").glob("*.yaml"))


class ByHeart(Transformer):
    """Answers each test source with its target, and has the interface of a model."""

    def __init__(self, data: Data) -> None:
        size = data.tokenizer.get_vocab_size()
        super().__init__(size, size, 2, 1, 1, 1, pe="none")
        self.size, self.trained_sizes = size, data.train.extremes()
        pairs = [(data.test.source[i], data.test.target[i]) for i in range(len(data.test.text))]
        self.number = {tuple(source.tolist()): i for i, (source, _) in enumerate(pairs)}
        self.answers = data.test.target.padded(range(len(pairs)), first=1)  # (N,T)
        self.steps = 0

    def of(self, src: Tensor) -> Tensor:
        """The answers to ``src (B,S)``: ``(B,T)``."""
        rows = ([i for i in row if i != PAD] for row in src.tolist())
        return self.answers[[self.number[tuple(row)] for row in rows]]

    def logits(self, ids: Tensor) -> Tensor:
        return torch.nn.functional.one_hot(ids, self.size).float()

    def forward(self, src: Tensor, tgt: Tensor, *_: Any, **__: Any) -> Tensor:
        return self.logits(self.of(src)[:, : tgt.size(1)])

    def encode(self, src: Tensor, *_: Any, **__: Any) -> Tensor:
        self.steps = 0
        return self.of(src)[..., None].float()  # (B,T,1)

    def decode(self, tgt: Tensor, memory: Tensor, *_: Any, **__: Any) -> Tensor:
        self.steps += 1
        return self.logits(memory[:, self.steps - 1 : self.steps, 0].long())


def result_of(data: Data, folder: Path) -> dict[str, Any]:
    """What the end of a run would say of the model that knows every answer."""
    model = ByHeart(data).eval()
    found = best_hypotheses(model, data.tokenizer, data.test)
    assert [each.ids for each in found] == [
        data.test.target[i].tolist()[1:] for i in range(len(found))
    ]
    assert all(each.ids[-1] == EOS for each in found)
    result = evaluate_by_length(data.task, model, data.test)
    return result | {"translation": write_translations(Run("", "", 0, folder), data, found)}


@pytest.mark.parametrize("task", [task for task in TASKS if task != "multi30k"])
def test_every_test_of_every_task_can_be_answered(task: str, tmp_path: Path) -> None:
    """No limit cuts an answer; SCAN's longest commands are twice as long as any in training.

    Of a large test, 200 answers are decoded.
    """
    sizes = () if task in ("scan", "text") else ("task.train_size=500", "task.test_per_length=10")
    data = load_data(configure(f"task={task}", *sizes))
    limits = output_limits(ByHeart(data), data.test.source.sizes, Greedy())
    assert (limits >= data.test.target.sizes - 1).all() and (task != "scan" or len(limits) == 4420)
    rows = np.linspace(0, len(limits) - 1, num=min(200, len(limits)), dtype=int)
    sides = data.test.source.chosen(rows), data.test.target.chosen(rows)
    few = dataclasses.replace(data, test=Examples(*sides, data.test.text.select(rows)))
    result = result_of(few, tmp_path)
    scores, translation = result["test"], result["translation"]
    assert scores["exact_match"] == 1 and {row["exact_match"] for row in result["by_length"]} == {1}
    assert translation["reached_limit"] == translation["altered"] == 0
    if translation["answer"] == "bleu":
        assert translation["bleu"] == pytest.approx(100) == translation["chrf"]
        assert notes(result) == []
