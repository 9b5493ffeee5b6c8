"""Translate text and score the translations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from tokenizers import Tokenizer

from wawa_transformer.common.special_ids import EOS, PAD, UNK
from wawa_transformer.data.batching import batch_indices
from wawa_transformer.data.load import Examples, RaggedSequences
from wawa_transformer.decode.strategies import DecodingStrategy, Greedy
from wawa_transformer.model.transformer import Transformer

if TYPE_CHECKING:  # a run without translations does not import sacreBLEU
    from sacrebleu.metrics import CHRF
    from sacrebleu.metrics.base import Metric

BATCH_TOKENS = 4096  # positions decoded together, over all prefixes
SAMPLES = 8  # translations shown in a result
RESAMPLES = 1000  # of sacreBLEU's bootstrap over sentences


@dataclass(frozen=True)
class Hypothesis:
    """A translation as one line of text, with its score."""

    text: str
    score: float
    ids: list[int]  # including EOS, if it has ended


def hypotheses(
    model: Transformer, tokenizer: Tokenizer, sources: RaggedSequences, method: DecodingStrategy
) -> list[list[Hypothesis]]:
    """Decode each sentence with ``method``; its hypotheses are sorted, best first."""
    if not len(sources):
        return []
    model.check_length(int(sources.sizes.max()))
    device = next(model.parameters()).device
    out: list[list[Hypothesis]] = [[]] * len(sources)
    budget = max(BATCH_TOKENS // method.width, sources.sizes.max())
    for indices in batch_indices(sources.sizes, budget, seed=0, epoch=0, bucket=True):
        source = sources.padded(indices).to(device)
        # Longer outputs only repeat themselves. Each sentence has its own limit, so that its
        # translation does not depend on its batch.
        limits = 2 * torch.from_numpy(sources.sizes[indices]).to(device) + 10  # (B,)
        limits = limits.clamp(max=model.max_positions or 10**9)
        found, scores = method(model, source, limits, indices)  # (B,N,L), (B,N)
        for i, ids, marks in zip(indices, found.tolist(), scores.tolist(), strict=True):
            texts = tokenizer.decode_batch(ids, skip_special_tokens=True)
            out[i] = [
                Hypothesis(" ".join(text.split()), score, [id for id in each if id != PAD])
                for text, score, each in zip(texts, marks, ids, strict=True)
            ]
    return out


def translate(
    model: Transformer,
    tokenizer: Tokenizer,
    examples: Examples,
    method: DecodingStrategy | None = None,
) -> list[str]:
    """Translate ``examples``, by default greedily."""
    found = hypotheses(model, tokenizer, examples.source, method or Greedy())
    return [best.text for best, *_ in found]


def read(tokenizer: Tokenizer, lines: Sequence[str]) -> RaggedSequences:
    """Tokenise sentences for the encoder."""
    encoded = tokenizer.encode_batch_fast(list(lines))
    return RaggedSequences.of([[*each.ids, EOS] for each in encoded])


def unknown(tokenizer: Tokenizer, line: str) -> list[str]:
    """List a line's words that are not in the vocabulary."""
    encoded = tokenizer.encode(line)
    pairs = zip(encoded.ids, encoded.offsets, strict=True)
    return [line[begin:end] for id, (begin, end) in pairs if id == UNK]


def chrf_metric() -> CHRF:
    """Make a chrF metric (Popović 2015) whose bootstrap works on weak translations."""
    from sacrebleu.metrics import CHRF

    class ChrF(CHRF):
        # Without any match sacreBLEU 2.6 returns a Python float, otherwise a numpy float, and fails
        # to average the two.
        def _compute_score_from_stats(self, stats: list[int]) -> Any:
            score = super()._compute_score_from_stats(stats)
            score.score = float(score.score)
            return score

    return ChrF()


def score(metric: Metric, hypotheses: list[str], references: list[str]) -> dict[str, Any]:
    """Score translations; the interval is sacreBLEU's 95% bootstrap over sentences."""
    result = metric.corpus_score(hypotheses, [references], n_bootstrap=RESAMPLES)
    # Mean ± half an interval knows no limit: no score is below 0, and TER alone passes 100.
    low, high = max(result._mean - result._ci, 0.0), result._mean + result._ci
    if result.name != "TER":
        high = min(high, 100.0)
    signature = str(metric.get_signature())
    return {"score": result.score, "low": low, "high": high, "signature": signature}


def translation_scores(hypotheses: list[str], references: list[str]) -> dict[str, Any]:
    """Compute BLEU (Papineni et al. 2002) and chrF for a run's result."""
    from sacrebleu.metrics import BLEU

    bleu, chrf = score(BLEU(), hypotheses, references), chrf_metric()
    return {
        "bleu": bleu["score"],
        "bleu_low": bleu["low"],
        "bleu_high": bleu["high"],
        "signature": bleu["signature"],
        "chrf": chrf.corpus_score(hypotheses, [references]).score,
        "chrf_signature": str(chrf.get_signature()),
    }


def all_scores(hypotheses: list[str], references: list[str]) -> list[dict[str, Any]]:
    """Every score with its 95% interval and signature; BLEU without regard to case, too.

    Published numbers on Multi30k are of lowercased text; TER (Snover et al. 2006) is the better
    the lower it is.
    """
    from sacrebleu.metrics import BLEU, TER

    metrics: dict[str, Metric] = {
        "BLEU": BLEU(),
        "BLEU, lowercased": BLEU(lowercase=True),
        "chrF": chrf_metric(),
        "TER": TER(),
    }
    return [
        {"name": name, **score(metric, hypotheses, references)} for name, metric in metrics.items()
    ]


def bleu_by_length(
    hypotheses: list[str], references: list[str], lengths: Sequence[int]
) -> dict[int, float]:
    """Compute BLEU for the sentences of each length."""
    from sacrebleu.metrics import BLEU

    column, scores = np.asarray(lengths), {}
    for length in np.unique(column):
        these = np.flatnonzero(column == length)
        part = [[lines[i] for i in these] for lines in (hypotheses, references)]
        scores[int(length)] = BLEU().corpus_score(part[0], [part[1]]).score
    return scores


def one_line_each(texts: Sequence[str]) -> list[str]:
    """Replace line breaks by spaces, so that a file has one text per line."""
    return [" ".join(text.split()) for text in texts]
