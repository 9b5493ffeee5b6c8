"""Scores of translations, against values from outside."""

import random

import numpy as np
import pytest
from sacrebleu.metrics import BLEU
from scipy.stats import permutation_test

from wawa_transformer.decode import significance
from wawa_transformer.decode.significance import paired_randomisation


def systems(sentences: int, seed: int) -> tuple[list[str], list[str], list[str]]:
    """Two systems that make mistakes of their own, and the references."""
    draw = random.Random(seed)
    texts = [draw.choices("abcdefgh", k=draw.randint(5, 12)) for _ in range(sentences)]
    ours, theirs = (
        [" ".join(word if draw.random() < 0.7 else "x" for word in line) for line in texts]
        for _ in range(2)
    )
    return ours, theirs, [" ".join(line) for line in texts]


@pytest.mark.parametrize("k", [0, 1, 2, 3, 5, 8, 13])
def test_the_paired_test_is_exact_where_few_sentences_differ(k: int) -> None:
    """One system is right everywhere: only no exchange and all exchanges are as far apart."""
    right = [f"the small number {i} is written here in words" for i in range(100)]
    wrong = [line.replace("written", "printed") if i < k else line for i, line in enumerate(right)]
    for ours, theirs in ((right, wrong), (wrong, right)):
        assert paired_randomisation(ours, theirs, right, BLEU()) == 2 / 2 ** max(k, 1)


@pytest.mark.parametrize("seed", range(3))
def test_the_paired_test_is_that_of_scipy(seed: int) -> None:
    """SciPy exchanges the texts themselves, and sacreBLEU scores each exchange."""
    ours, theirs, references = systems(8, seed)
    texts = np.array([ours, theirs])

    def difference(first: np.ndarray, second: np.ndarray) -> float:
        rows = range(len(references))
        a, b = (texts[which.astype(int), rows].tolist() for which in (first, second))
        return abs(
            BLEU().corpus_score(a, [references]).score - BLEU().corpus_score(b, [references]).score
        )

    expected = permutation_test(
        (np.zeros(8), np.ones(8)), difference, permutation_type="samples",
        vectorized=False, alternative="greater", n_resamples=2**8,
    ).pvalue  # fmt: skip
    assert paired_randomisation(ours, theirs, references, BLEU()) == pytest.approx(expected)


def test_the_paired_test_of_many_sentences_draws_exchanges(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Near the exact p; equal scores of unequal texts are no difference; p is never 0."""
    ours, theirs, references = systems(8, 2)
    exact = paired_randomisation(ours, theirs, references, BLEU())
    monkeypatch.setattr(significance, "TRIALS", 200)
    assert paired_randomisation(ours, theirs, references, BLEU()) == pytest.approx(exact, abs=0.1)
    both = [*ours, *theirs], [*theirs, *ours]
    assert paired_randomisation(*both, references * 2, BLEU()) == 1
    assert paired_randomisation(references * 5, ours * 5, references * 5, BLEU()) == 1 / 201
