"""A paired randomisation test of BLEU."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from wawa_transformer.common.seeds import seed_for

if TYPE_CHECKING:  # a run without translations does not import sacreBLEU
    from sacrebleu.metrics import BLEU

TRIALS = 10_000  # exchanges: all of them where there are no more, else as many drawn


def paired_randomisation(
    ours: Sequence[str], theirs: Sequence[str], references: Sequence[str], bleu: BLEU | None
) -> float:
    """Test whether two systems differ in corpus BLEU, or without one in exact match; return p.

    If the systems do not differ, each sentence's two translations could be exchanged. p is the
    share of exchanges whose difference is at least the observed one (Riezler and Maxwell 2005).
    Ties count, so equal translations have p = 1. Where ``k`` sentences differ, p is exact over all
    ``2^k`` exchanges, if these are at most ``TRIALS``. Else ``TRIALS`` exchanges are drawn, and the
    observed one is added to them (Phipson and Smyth 2010).

    The test generalises to other test sentences, not to other training seeds.
    """
    first, second = (ngram_counts(each, references, bleu) for each in (ours, theirs))  # (N,C)
    apart = first - second
    apart = apart[apart.any(axis=1)]  # (k,C): only these sentences can change anything
    sums = first.sum(axis=0), second.sum(axis=0)  # (C,)

    def difference(exchanged: np.ndarray) -> float:
        moved = exchanged @ apart  # (C,)
        return abs(corpus_bleu(sums[0] - moved, bleu) - corpus_bleu(sums[1] + moved, bleu))

    least = difference(np.zeros(len(apart), int)) - 1e-9  # ties differ in rounding
    exact = 2 ** len(apart) <= TRIALS
    random = np.random.default_rng(seed_for(0, "exchanges"))
    drawn = (random.integers(2, size=len(apart)) for _ in range(TRIALS))
    every = (np.array(each, int) for each in itertools.product((0, 1), repeat=len(apart)))
    trials = [difference(each) >= least for each in (every if exact else drawn)]
    return float(np.mean(trials if exact else [True, *trials]))


def ngram_counts(
    outputs: Sequence[str], references: Sequence[str], bleu: BLEU | None
) -> np.ndarray:
    """Count each sentence's matches, n-grams and two lengths: ``(N, 2 * orders + 2)``.

    Without BLEU, 1 marks a sentence that is right: ``(N, 1)``.
    """
    if bleu is None:
        pairs = zip(outputs, references, strict=True)
        return np.array([[int(a.split() == b.split())] for a, b in pairs])
    scores = [bleu.corpus_score([a], [[b]]) for a, b in zip(outputs, references, strict=True)]
    return np.array([[*s.counts, *s.totals, s.sys_len, s.ref_len] for s in scores])


def corpus_bleu(sums: np.ndarray, bleu: BLEU | None) -> float:
    """Compute BLEU from the sums of :func:`ngram_counts`; without it, how many are right."""
    if bleu is None:
        return float(sums[0])
    orders, (*counts, written, wanted) = bleu.max_ngram_order, sums.tolist()
    return bleu.compute_bleu(
        counts[:orders], counts[orders:], written, wanted, bleu.smooth_method,
        bleu.smooth_value, bleu.effective_order, orders,
    ).score  # fmt: skip
