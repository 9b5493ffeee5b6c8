"""What of a test stands in the training split, and what whoever learned that by heart can do."""

import functools
import itertools
from collections import defaultdict
from typing import Any

import pytest
import torch
from datasets import Dataset, DatasetDict
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from wawa_transformer.data.load import Examples, tokenize_split
from wawa_transformer.data.tasks import TASKS, Task
from wawa_transformer.data.text import TextTask
from wawa_transformer.model.config import TransformerConfig
from wawa_transformer.train import evaluation
from wawa_transformer.train.evaluation import METRICS

# Training has more rows than are read at once.
SMALL = dict(
    train_size=1100, validation_size=1, test_per_length=40, test_max_length=6, max_length=4
)


class Lookup(nn.Module):
    """Knows the target of every source it was shown, and says nothing (padding) to any other."""

    config = TransformerConfig(9, 9)

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


def splits(task: Task) -> tuple[Examples, Examples, int]:
    """The training split and the test of a task, and the size of its vocabulary."""
    data = task.dataset(0)
    tokenizer = task.tokenizer(data)
    known, test = (tokenize_split(data[name], tokenizer) for name in ("train", "test"))
    return known, test, tokenizer.get_vocab_size()


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        *((kind, {}) for kind in ("letters", "sort", "nth", "addition")),
        # Of one width: 0 3 + 0 4 is a sum of two digits, and of one digit with zeros before.
        ("addition", {"test_per_length": 400, "width": 7}),
    ],
)
def test_whoever_learned_the_training_split_by_heart_knows_nothing_new(
    kind: str, changes: dict[str, int]
) -> None:
    """All that is right was seen, all that was seen is right; the counts are those of two loops.

    A source may have been trained on at another length. Without a training split nothing is said
    of it, rather than a column of zeros.
    """
    task: Any = TASKS[kind](**SMALL | changes)
    known, test, words = splits(task)
    lookup: Any = Lookup(known, words)
    result = evaluation.evaluate_by_length(task, lookup, test, known.text)
    trained_on = defaultdict(set)
    for row in known.text:
        trained_on[row["source"]].add(row["length"])
    seen_elsewhere = 0
    for row in result["by_length"]:
        n, count = row["length"], task.test_per_length
        here = [source["source"] for source in test.text if source["length"] == n]
        new = sum(source not in trained_on for source in here)
        seen_elsewhere += sum(
            source in trained_on and n not in trained_on[source] for source in here
        )
        assert row["new"]["examples"] == new and row["examples"] == len(here) == count
        assert row["exact_match"] == (count - new) / count
        assert row["new"]["exact_match"] == (0 if new else None)
        here_trained = [source for source, lengths in trained_on.items() if n in lengths]
        assert row["new"]["ceiling"] == task.ceiling(n, here_trained)
    assert bool(seen_elsewhere) == bool(changes)
    if kind != "addition":  # which has 100 sources of length 1
        assert result["by_length"][0]["new"]["exact_match"] is None, "all of them were trained on"
    whole = result["test"]
    assert whole["new"]["examples"] == sum(r["new"]["examples"] for r in result["by_length"][:4])
    assert whole["new"]["exact_match"] == 0 < whole["exact_match"]
    assert {metric.name for metric in METRICS} < whole["new"].keys()
    without = evaluation.evaluate_by_length(task, lookup, test)
    assert not any("new" in row for row in (without["test"], *without["by_length"]))


@pytest.mark.parametrize("words", [True, False])
def test_a_trained_source_with_other_spaces_is_not_new(words: bool) -> None:
    """Its ids are those of the training split."""
    texts = ["a b", " a b"][:: 1 if words else -1]  # the trained one first
    rows = [{"source": source, "target": "x", "length": 5} for source in (*texts, "c")]
    known, test = Dataset.from_list(rows[:1]), Dataset.from_list(rows[1:])
    task = TextTask(words=words, vocab_size=270)
    tokenizer = task.tokenizer(DatasetDict(train=Dataset.from_list(rows)))
    if words:  # of both sides, and in an order that is the same in every process
        assert [tokenizer.token_to_id(word) for word in "abcx"] == [4, 5, 6, 7]
    lookup: Any = Lookup(tokenize_split(known, tokenizer), tokenizer.get_vocab_size())
    made = evaluation.evaluate_by_length(task, lookup, tokenize_split(test, tokenizer), known)
    assert made["test"]["exact_match"] == 0.5
    assert made["test"]["new"]["exact_match"] == 0 and made["test"]["new"]["examples"] == 1


@functools.cache
def task_of(kind: str, symbols: int) -> Any:
    """Keep a task, since each one takes long to see if orders share an answer."""
    return TASKS[kind](symbols=symbols)


@settings(max_examples=60)
@given(st.sampled_from([(2, 3), (2, 4), (3, 2)]), st.data())
def test_the_ceiling_on_new_sources_is_the_best_of_all_answers(
    shape: tuple[int, int], data: Any
) -> None:
    """Every blind model is tried on every source that was not trained on."""
    symbols, length = shape
    numbers = [str(n) for n in range(1, symbols + 1)]
    every = list(itertools.product(numbers, repeat=length))
    trained = data.draw(st.lists(st.sampled_from(every)))
    new = set(every) - set(trained)
    alike = defaultdict(list)  # sources that whoever sees no positions cannot tell apart
    for source in every:
        alike[tuple(sorted(source))].append(source)
    # Each answer gives every multiset one of its orders.
    best = max(len(new.intersection(answer)) for answer in itertools.product(*alike.values()))
    texts = [" ".join(source) for source in trained]
    for kind in ("letters", "copy", "reverse", "cumsum"):
        ceiling = task_of(kind, symbols).ceiling(length, texts)
        assert ceiling == (pytest.approx(best / len(new)) if new else None)
    assert task_of("sort", symbols).ceiling(length, texts) == 1.0
