"""What of a test stands in the training split, and what whoever learned that by heart can do."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from wawa_transformer.data.load import Examples, tokenize_split
from wawa_transformer.data.tasks import TASKS, Task
from wawa_transformer.train import evaluation
from wawa_transformer.train.evaluation import METRICS

SMALL = dict(train_size=400, validation_size=1, test_per_length=40, test_max_length=6, max_length=4)
Lists = tuple[tuple[str, ...], ...]


class Lookup(nn.Module):
    """Knows the target of every source it was shown, and says nothing (padding) to any other."""

    encoder_mask = "full"

    def __init__(self, shown: Examples, words: int) -> None:
        super().__init__()
        self.nothing, self.words = nn.Parameter(torch.zeros(1)), words
        pairs = zip(shown.source, shown.target, strict=True)
        self.answers = {tuple(source.tolist()): target[1:] for source, target in pairs}

    def forward(self, source: Tensor, target_in: Tensor) -> Tensor:
        logits = torch.zeros(*target_in.shape, self.words)  # (B,T,V)
        for row, ids in zip(logits, source.tolist(), strict=True):
            if (answer := self.answers.get(tuple(i for i in ids if i))) is not None:
                row[torch.arange(len(answer)), answer] = 1.0
        return logits

    def most_probable(self, logits: Tensor) -> Tensor:
        return logits.argmax(-1)


def splits(task: Task) -> tuple[Examples, Examples, int]:
    """The training split and the test of a task, and the size of its vocabulary."""
    data = task.dataset(0)
    tokenizer = task.tokenizer(data)
    known, test = (tokenize_split(data[name], tokenizer) for name in ("train", "test"))
    return known, test, tokenizer.get_vocab_size()


@pytest.mark.parametrize("kind", ["letters", "sort", "nth", "addition"])
def test_whoever_learned_the_training_split_by_heart_knows_nothing_new(kind: str) -> None:
    """All that is right was seen, all that was seen is right; the counts are those of two loops."""
    task = TASKS[kind](**SMALL)
    known, test, words = splits(task)
    result = evaluation.evaluate_by_length(task, Lookup(known, words), test, known.text)  # type: ignore[arg-type]
    sources = [(row["source"], row["length"]) for row in test.text]
    trained_on = [row["source"] for row in known.text]
    for row in result["by_length"]:
        here = [source for source, length in sources if length == row["length"]]
        new = sum(all(source != other for other in trained_on) for source in here)
        assert row["new"]["examples"] == new and row["examples"] == len(here) == 40
        assert row["exact_match"] == (40 - new) / 40
        assert row["new"]["exact_match"] == (0 if new else None)
    if kind != "addition":  # which has 100 sources of length 1
        assert result["by_length"][0]["new"]["exact_match"] is None, "all of them were trained on"
    whole = result["test"]
    assert whole["new"]["examples"] == sum(r["new"]["examples"] for r in result["by_length"][:4])
    assert whole["new"]["exact_match"] == 0 < whole["exact_match"]
    assert {metric.name for metric in METRICS} < whole["new"].keys()


def test_a_source_may_have_been_trained_on_at_another_length() -> None:
    """Sums of one width: 0 3 + 0 4 is one of two digits, and one of one digit with zeros before."""
    task = TASKS["addition"](**SMALL | {"test_per_length": 400}, width=7)
    known, test, words = splits(task)
    at_length = defaultdict(set)
    for row in known.text:
        at_length[row["source"]].add(row["length"])
    assert any(at_length[row["source"]] == {1} and row["length"] == 2 for row in test.text)
    result = evaluation.evaluate_by_length(task, Lookup(known, words), test, known.text)  # type: ignore[arg-type]
    assert all(row["new"]["exact_match"] in (0, None) for row in result["by_length"])


def test_without_a_training_split_nothing_is_said_of_it() -> None:
    """Not a column of zeros."""
    task = TASKS["copy"](**SMALL)
    known, test, words = splits(task)
    result = evaluation.evaluate_by_length(task, Lookup(known, words), test)  # type: ignore[arg-type]
    assert "new" not in result["test"] and not any("new" in row for row in result["by_length"])


def all_answers(multisets: Iterable[Sequence[Lists]]) -> Iterable[tuple[Lists, ...]]:
    """Every function from multisets to one of their orders, as the orders that it gives."""
    return itertools.product(*multisets)


def by_multiset(sources: Iterable[Lists]) -> list[list[Lists]]:
    """The sources that whoever sees no positions cannot tell apart."""
    groups = defaultdict(list)
    for lists in sources:
        groups[tuple(tuple(sorted(one)) for one in lists)].append(lists)
    return list(groups.values())


@settings(max_examples=60)
@given(st.sampled_from([(2, 3), (2, 4), (3, 2)]), st.data())
def test_the_ceiling_on_new_sources_is_the_best_of_all_answers(
    shape: tuple[int, int], data: Any
) -> None:
    """Every blind model is tried on every source that was not trained on."""
    symbols, length = shape
    numbers = [str(n) for n in range(1, symbols + 1)]
    every: list[Lists] = [(each,) for each in itertools.product(numbers, repeat=length)]
    trained = data.draw(st.lists(st.sampled_from(every)))
    new = set(every) - set(trained)
    best = max(len(new.intersection(answer)) for answer in all_answers(by_multiset(every)))
    texts = [" ".join(lists[0]) for lists in trained]
    for kind in ("letters", "copy", "reverse", "cumsum"):
        ceiling = TASKS[kind](symbols=symbols).ceiling(length, texts)
        assert ceiling == (pytest.approx(best / len(new)) if new else None)
    assert TASKS["sort"](symbols=symbols).ceiling(length, texts) == 1.0
