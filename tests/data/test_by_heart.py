"""A model that knows every answer by heart scores 1.000 and 100, or the lost step is named."""

import dataclasses
import functools
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support import checked, configure
from torch import Tensor

from wawa_transformer import Transformer
from wawa_transformer.common import CONFIG_DIR, EOS, PAD
from wawa_transformer.data.load import Data, Examples, load_data
from wawa_transformer.decode.strategies import Greedy
from wawa_transformer.decode.translation import Hypothesis, hypotheses, losses, output_limits
from wawa_transformer.run.run_dir import Run
from wawa_transformer.train.evaluation import evaluate_by_length
from wawa_transformer.train.trainer import notes, write_translations

NFD = functools.partial(unicodedata.normalize, "NFD")
WORDS = [f"{a}{b}er" for a in ("Bl", "Fr", "Kr", "Sp", "St", "Tr") for b in "aeiouäöüyw"]
NOT_SHIPPED = {"multi30k", "multi30k_de_en", "debian_en_fr"}
TASKS = sorted({path.stem for path in (CONFIG_DIR / "task").glob("*.yaml")} - NOT_SHIPPED)


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


def best_of(data: Data, method: Greedy) -> list[Hypothesis]:
    """The answers of the model that knows every answer."""
    model = ByHeart(data).eval()
    return [best for best, *_ in hypotheses(model, data.tokenizer, data.test.source, method)]


def result_of(data: Data, folder: Path) -> dict[str, Any]:
    """What the end of a run would say of the model that knows every answer."""
    found = best_of(data, Greedy())
    assert [each.ids for each in found] == [
        data.test.target[i].tolist()[1:] for i in range(len(found))
    ]
    assert all(each.ids[-1] == EOS for each in found)
    result = evaluate_by_length(data.task, ByHeart(data).eval(), data.test)
    return result | {"translation": write_translations(Run("", "", 0, folder), data, found)}


@pytest.mark.parametrize("task", TASKS)
def test_every_test_of_every_task_can_be_answered(task: str, tmp_path: Path) -> None:
    """No limit cuts an answer; SCAN's longest commands are twice as long as any in training.

    Of a large test, 60 answers are decoded.
    """
    sizes = () if task in ("scan", "text") else ("task.train_size=100", "task.test_per_length=3")
    data = load_data(checked(f"task={task}", *sizes))
    limits = output_limits(ByHeart(data), data.test.source.sizes, Greedy())
    assert (limits >= data.test.target.sizes - 1).all() and (task != "scan" or len(limits) == 4420)
    rows = np.linspace(0, len(limits) - 1, num=min(60, len(limits)), dtype=int)
    sides = data.test.source.chosen(rows), data.test.target.chosen(rows)
    few = dataclasses.replace(data, test=Examples(*sides, data.test.text.select(rows)))
    result = result_of(few, tmp_path)
    scores, translation = result["test"], result["translation"]
    assert scores["exact_match"] == 1 and {row["exact_match"] for row in result["by_length"]} == {1}
    assert translation["reached_limit"] == translation["altered"] == 0
    if translation["answer"] == "bleu":
        assert translation["bleu"] == pytest.approx(100) == translation["chrf"]
        assert notes(result) == []


HAN = "的一是不了人我在有他这中大来上国"
OTHERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "long answers": (lambda i: (f"k{i}", f"{WORDS[i]} " * 60), {}),
    "long answers of words": (lambda i: (f"k{i % 9}", f"w{i % 9} " * 40), {"words": True}),
    "two words": (lambda i: (f"{i % 9} 4 7", f"{i % 9} {i % 3}"), {"words": True}),
    "one word": (lambda i: (f"number {i}", WORDS[i]), {}),
    "decomposed": (lambda i: (NFD(f"schön {i}"), NFD(f"Ein Mädchen läuft über die {i}")), {}),
    "no-break spaces": (lambda i: (f"a {i}", f"«\xa0{WORDS[i]}\xa0» mit {i}\u202f% und mehr"), {}),
    "no-break words": (lambda i: (f"a {i % 9}", f"{i % 9}\xa0km bis zum Ende"), {"words": True}),
    "special tokens": (lambda i: (f"[UNK] {i}", f"[EOS] a [PAD] [BOS] {i} [UNK]"), {}),
    "special words": (
        lambda i: (f"[UNK] {i % 9}", f"[EOS] a [PAD] {i % 9} x[BOS]"), {"words": True},
    ),
    "words spelled as ours": (
        lambda i: (f"[UNK] {i % 9}", "[UNK] [\u2060UNK] [\u2060\u2060EOS] 1"), {"words": True},
    ),
    "Chinese": (lambda i: (f"thing {i}", HAN[i % 9 : i % 9 + 6] + str(i)), {}),
    "Thai": (lambda i: (f"cat {i}", "แมวนั่งบนเสื่อ" * (1 + i % 3) + str(i)), {}),
    "spaces": (lambda i: (f" a  {i} ", f"  two  spaces \u3000 and {i}  "), {}),
    "other scripts": (
        lambda i: (f"👩‍👧 {i}", f"القط הַחָתוּל बिल्ली क़ {NFD('고양이')} 👨🏽‍🚀 q\u0307\u0323 {i}"), {},
    ),
    "other marks": (
        lambda i: (f"ﬁ {i}", f"&lt;b&gt; </s> ##ing \x1b[31m \x0b a\u00adb ＡＢ ² $x_{i}$ | Å"), {},
    ),
    "tokens of one letter": (lambda i: (f"a {i}", " ".join(f"{i:06}")), {}),
}  # fmt: skip


def data_of(folder: Path, pair: Any, **settings: Any) -> Data:
    """Load the pairs ``pair(0) … pair(59)``."""
    lines = "".join("\t".join(pair(i)) + "\n" for i in range(60))
    (folder / "pairs.tsv").write_text(lines, "utf-8")
    given = {"data_dir": folder, "source": "pairs.tsv", "test_size": 12, **settings}
    return load_data(configure("task=text", *(f"task.{key}={given[key]}" for key in given)))


@pytest.mark.parametrize("name", OTHERS)
def test_whatever_the_text_right_ids_score_perfectly(name: str, tmp_path: Path) -> None:
    """The score that answers is perfect, and so are BLEU where it counts and chrF."""
    pair, settings = OTHERS[name]
    result = result_of(data_of(tmp_path, pair, **settings), tmp_path)
    translation = result["translation"]
    assert result["test"]["exact_match"] == 1 and translation["chrf"] == pytest.approx(100)
    assert translation["reached_limit"] == translation["altered"] == 0
    assert (translation["answer"] == "bleu") == (name not in ("one word",) and not settings)
    if name not in ("one word", "two words"):
        assert translation["bleu"] == pytest.approx(100)
    texts = [
        (tmp_path / f"{each}.txt").read_text("utf-8") for each in ("translations", "references")
    ]
    assert texts[0] == texts[1] or name == "spaces"


def test_a_step_that_loses_right_ids_is_named(tmp_path: Path) -> None:
    """Words that training did not hold, a limit that was set, and pairs that were left out."""
    data = data_of(tmp_path, lambda i: (f"a {i % 9}", f"b c d e{i}"), words=True)
    result = result_of(data, tmp_path)
    assert result["test"]["exact_match"] == 1 and result["translation"]["bleu"] < 99
    assert result["translation"]["altered"] == 12
    assert any(said.startswith("12 of 12 outputs have every id right") for said in notes(result))
    found = best_of(data, Greedy(max_length=3))
    assert losses(found, data.test) == {"reached_limit": 12, "altered": 0}
    result["translation"] |= {"reached_limit": 12}
    of = "(decode.max_length sets it, up to pe.max_len of a learned table)"
    assert f"12 of 12 outputs reached the limit {of}" in notes(result)
