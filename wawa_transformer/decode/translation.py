"""Translate text and score the translations."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from tokenizers import Tokenizer

from wawa_transformer.common import EOS, PAD, UNK
from wawa_transformer.common.messages import UserError, first_line, warn
from wawa_transformer.data.batching import batch_indices
from wawa_transformer.data.files import MAX_WORD, RETURNS, check_text, has_long_word, is_blank
from wawa_transformer.data.load import Examples, RaggedSequences, source_ids
from wawa_transformer.data.text import HANGUL, UNSPACED, normalise
from wawa_transformer.decode.strategies import DecodingStrategy
from wawa_transformer.model.transformer import Transformer

if TYPE_CHECKING:  # a run without translations does not import sacreBLEU
    from sacrebleu.metrics import BLEU
    from sacrebleu.metrics.base import Metric

LONGEST = 10**5  # bytes of a line
BATCH_TOKENS = 4096  # positions decoded together, over all prefixes
SAMPLES = 8  # translations shown in a result
RESAMPLES = 1000  # of sacreBLEU's bootstrap over sentences
LEAST_TOKENS = 4  # of a reference on average: BLEU counts matches of one to four tokens


@dataclass(frozen=True)
class Hypothesis:
    """A translation as one line of text, with its score."""

    text: str
    score: float
    ids: list[int]  # including EOS, if it has ended

    @property
    def cut(self) -> bool:
        """True if decoding reached its limit before EOS."""
        return EOS not in self.ids


def hypotheses(
    model: Transformer,
    tokenizer: Tokenizer,
    sources: RaggedSequences,
    method: DecodingStrategy,
    numbers: Sequence[int] | None = None,
) -> list[list[Hypothesis]]:
    """Decode each sentence with ``method``; its hypotheses are sorted, best first.

    ``numbers`` are those of the sentences in their text, by default from 0 on.
    """
    if not len(sources):
        return []
    model.check_length(int(sources.sizes.max()))
    device = next(model.parameters()).device
    out: list[list[Hypothesis]] = [[]] * len(sources)
    budget = max(BATCH_TOKENS // method.size, sources.sizes.max())
    for indices in batch_indices(sources.sizes, budget, seed=0, epoch=0, bucket=True):
        source = sources.padded(indices).to(device)
        limits = torch.from_numpy(output_limits(model, sources.sizes[indices], method)).to(device)
        named = indices if numbers is None else [numbers[i] for i in indices]
        chosen, scores = method(model, source, limits, named)  # (B,N,L), (B,N)
        for i, ids, marks in zip(indices, chosen.tolist(), scores.tolist(), strict=True):
            texts = tokenizer.decode_batch(ids, skip_special_tokens=True)
            out[i] = [
                Hypothesis(one_line(text), score, [id for id in each if id != PAD])
                for text, score, each in zip(texts, marks, ids, strict=True)
                if score > -math.inf  # a wide beam has more places than there are sequences
            ]
    return out


def answers(
    model: Transformer,
    tokenizer: Tokenizer,
    lines: Sequence[str],
    method: DecodingStrategy,
    first: int = 1,
) -> list[list[Hypothesis]]:
    """Decode each line as if alone; one that is blank, no text or too long has no hypothesis.

    Standard error names the lines, counted from ``first``, that are no text, too long, hold words
    outside the vocabulary or carriage returns, are longer than any source in training, or have an
    answer that was cut.
    """
    texts, asked = [normalise(line) for line in lines], {}
    by_line: list[list[Hypothesis]] = [[] for _ in texts]
    for i, text in enumerate(texts):
        try:
            if len(lines[i].encode("utf-8", "surrogatepass")) > LONGEST:
                raise UserError(f"more than {LONGEST:,} bytes; cut it into sentences")
            check_text(text)
            if has_long_word(text):
                raise UserError(f"a word has more than {MAX_WORD:,} bytes; cut it")
            ids = read(tokenizer, [text])[0].tolist()
            model.check_length(len(ids))
            if not is_blank(text):
                asked[i] = ids
        except ValueError as error:
            warn(f"warning: line {i + first}: left empty: {first_line(error)}")
    sources, trained = RaggedSequences.of(list(asked.values())), model.trained_sizes[0]
    numbers = [i + first - 1 for i in asked]
    decoded = hypotheses(model, tokenizer, sources, method, numbers)
    for i, every in zip(asked, decoded, strict=True):
        by_line[i], name = every, f"warning: line {i + first}:"
        if "\r" in texts[i]:
            warn(f"{name} carriage returns end no line; {RETURNS}")
        if strange := unknown(tokenizer, texts[i]):
            warn(f"{name} unknown: {' '.join(strange)}")
        if (size := len(asked[i])) > trained > 1:
            warn(f"{name} {size} tokens, and the longest source in training has {trained}")
        if every[0].cut:
            length = len(every[0].ids)
            key = "pe.max_len" if length == model.max_positions else "decode.max_length"
            warn(f"{name} cut after {length} tokens; {key} sets the limit")
    return by_line


def output_limits(model: Transformer, sizes: np.ndarray, method: DecodingStrategy) -> np.ndarray:
    """Choose the most ids to decode for sources of ``sizes (B,)``: ``(B,)``.

    ``decode.max_length``, or else ten and twice the longest target that training suggests: as many
    times longer than the source as any trained target, and no longer than the longest one. Longer
    sources than trained ones get longer targets in proportion. A sentence's limit does not depend
    on its batch.
    """
    source, target, ratio = model.trained_sizes
    suggested = np.minimum(ratio * sizes, target * np.maximum(1, sizes / source))
    limits = np.ceil(2 * suggested).astype(np.int64) + 10
    if method.max_length is not None:
        limits[:] = method.max_length
    return limits.clip(max=model.max_positions)


def losses(decoded: list[Hypothesis], examples: Examples) -> dict[str, int]:
    """Count the outputs that a step after the model may have spoilt.

    ``reached_limit``: decoding ended before EOS. ``altered``: every id is right and the text is
    not, as it happens to words outside the vocabulary.
    """
    texts = examples.text["target"][:]
    return {
        "reached_limit": sum(each.cut for each in decoded),
        "altered": sum(
            each.ids == examples.target[i].tolist()[1:] and each.text.split() != texts[i].split()
            for i, each in enumerate(decoded)
        ),
    }


def read(tokenizer: Tokenizer, lines: Sequence[str]) -> RaggedSequences:
    """Tokenise sentences for the encoder."""
    return RaggedSequences.of(source_ids(list(map(normalise, lines)), tokenizer))


def unknown(tokenizer: Tokenizer, line: str) -> list[str]:
    """List a line's words that are not in the vocabulary."""
    line = normalise(line)  # as read() does
    encoded = tokenizer.encode(line)
    pairs = zip(encoded.ids, encoded.offsets, strict=True)
    return [line[begin:end] for id, (begin, end) in pairs if id == UNK]


def bleu_tokenizer(texts: Iterable[str]) -> str:
    """Choose sacreBLEU's tokeniser for the script of ``texts``.

    A script counts from a tenth of all letters on: Chinese text may name many things in Latin.
    """
    text = "".join(texts)
    count = {name: len(re.findall(f"[{each}]", text)) for name, each in UNSPACED.items()}
    count["ko-mecab"] = len(re.findall(f"[{HANGUL}]", text))
    if count["ja-mecab"] * 10 > count["zh"]:  # Japanese writes both
        count["ja-mecab"] += count.pop("zh")
    name = max(count, key=lambda name: count[name])
    return name if count[name] * 10 > sum(map(str.isalpha, text)) else "13a"


def bleu_metric(
    references: Sequence[str], tokenize: str | None = None, lowercase: bool = False
) -> BLEU:
    """Make sacreBLEU's BLEU for ``references``; ``tokenize`` is one of its names.

    By default :func:`bleu_tokenizer` chooses. Where MeCab is not installed, Japanese is split into
    characters and Korean at spaces.

    Raises:
        UserError: ``tokenize`` cannot be used here.
    """
    from sacrebleu.metrics import BLEU

    chosen = tokenize or bleu_tokenizer(references)
    try:
        return BLEU(lowercase, tokenize=chosen)
    except Exception as error:  # a package, a dictionary or a model is missing
        if tokenize is not None:
            raise UserError(
                f"decode.bleu_tokenize={tokenize} cannot be used here ({first_line(error)}); "
                f"install what sacreBLEU asks for, or choose char."
            ) from None
    return BLEU(lowercase, tokenize={"ja-mecab": "char"}.get(chosen, "13a"))


def score(metric: Metric, hypotheses: list[str], references: list[str]) -> dict[str, Any]:
    """Score translations; the interval is sacreBLEU's 95% bootstrap over sentences.

    It is None where sacreBLEU 2.6 fails: some of the resamples have a chrF of 0, and others have
    more.
    """
    try:
        result = metric.corpus_score(hypotheses, [references], n_bootstrap=RESAMPLES)
    except TypeError:  # it cannot average a float and a numpy float
        metric.n_bootstrap = None  # in the signature
        result = metric.corpus_score(hypotheses, [references])
    # Mean ± half an interval knows no limit, and a perfect BLEU is rounded up: no score is below 0,
    # and TER alone passes 100.
    top = math.inf if result.name == "TER" else 100.0
    signature = str(metric.get_signature())
    # JSON is the public way to the interval. It has none around a mean of 0.
    said = json.loads(result.format(width=17, signature=signature, is_json=True))
    mean, half = said.get("confidence_mean", 0.0), said.get("confidence_var", 0.0)
    ends = [min(max(end, 0.0), top) for end in (mean - half, mean + half)]
    return {
        "score": min(float(result.score), top),
        "interval": ends if metric.n_bootstrap else None,
        "signature": signature,
    }


def translation_scores(
    hypotheses: list[str],
    references: list[str],
    words: bool = False,
    tokenize: str | None = None,
) -> dict[str, Any]:
    """Compute BLEU (Papineni et al. 2002) and chrF for a run's result.

    ``answer`` names the score that tells whether a model has learned: exact match for ``words`` and
    for references of fewer than four tokens on average, otherwise BLEU.
    """
    from sacrebleu.metrics import CHRF

    metric, chrf = bleu_metric(references, tokenize), CHRF()
    bleu = score(metric, hypotheses, references)
    low, high = bleu["interval"]
    tokens = metric.corpus_score(references, [references]).ref_len
    short = tokens < LEAST_TOKENS * len(references)  # nothing for BLEU to count
    return {
        "answer": "exact_match" if words or short else "bleu",
        "bleu": bleu["score"],
        "bleu_low": low,
        "bleu_high": high,
        "signature": bleu["signature"],
        "chrf": chrf.corpus_score(hypotheses, [references]).score,
        "chrf_signature": str(chrf.get_signature()),
    }


def all_scores(
    hypotheses: list[str], references: list[str], tokenize: str | None = None
) -> list[dict[str, Any]]:
    """Every score with its 95% interval and signature; BLEU without regard to case, too.

    Published numbers on Multi30k are of lowercased text; TER (Snover et al. 2006) is the better
    the lower it is.
    """
    from sacrebleu.metrics import CHRF, TER

    east_asian = bleu_tokenizer(references) in ("zh", "ja-mecab")  # TER splits no other script
    metrics: dict[str, Metric] = {
        "BLEU": bleu_metric(references, tokenize),
        "BLEU, lowercased": bleu_metric(references, tokenize, lowercase=True),
        "chrF": CHRF(),
        "TER": TER(normalized=east_asian, asian_support=east_asian),
    }
    return [
        {"name": name, **score(metric, hypotheses, references)} for name, metric in metrics.items()
    ]


def bleu_by_length(
    hypotheses: list[str],
    references: list[str],
    lengths: Sequence[int],
    tokenize: str | None = None,
) -> dict[int, float | None]:
    """Compute BLEU for the sentences of each length; None where no reference has four tokens."""
    bleu, column, scores = bleu_metric(references, tokenize), np.asarray(lengths), {}
    for length in np.unique(column):
        these = np.flatnonzero(column == length)
        part = [[lines[i] for i in these] for lines in (hypotheses, references)]
        counted = bleu.corpus_score(part[1], [part[1]]).totals[-1]
        score = bleu.corpus_score(part[0], [part[1]]).score if counted else None
        scores[int(length)] = score
    return scores


def one_line(text: str) -> str:
    """Replace line breaks by spaces; other rare spaces stay."""
    return " ".join(text.splitlines()).strip(" ")
