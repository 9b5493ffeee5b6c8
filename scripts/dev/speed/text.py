"""Training on sentences of real lengths: tokens a second."""

from __future__ import annotations

import statistics

import numpy as np
import pandas as pd
import torch
from datasets import Dataset

from speed import peers
from speed.model import ours, training_steps
from speed.timing import ratio, turns_of
from wawa_transformer.common.files import CONFIG_DIR
from wawa_transformer.data.batching import batch_indices, collate
from wawa_transformer.data.load import Examples, RaggedSequences

# Positions that Multi30k's training captions take, EOS included: benchmarks/README.md.
CAPTIONS = CONFIG_DIR.parent / "benchmarks" / "lengths" / "multi30k.csv"
# Vocabulary, d_model, layers, heads, d_ff, positions of a bucket, rows of a random batch, buckets,
# random batches, turns.
REAL = (6000, 256, 3, 4, 1024, 4096, 64, 8, 16, 5)


def measure(device: torch.device) -> dict[str, float]:
    """Target tokens a second in training on sentences of real lengths, padding not counted.

    Ours in buckets of similar length, as ``trainer.bucket`` has them, and in random batches, in
    which ``torch.nn.Transformer`` has them, too. What the words are changes no time.
    """
    vocab, *sizes, positions, rows, buckets, batches, turns = REAL
    pairs = captions(vocab)
    planned = sorted(
        batch_indices(pairs.sizes, positions, 0, 0, bucket=True), key=lambda i: pairs.sizes[i[0]]
    )
    every = [planned[(2 * i + 1) * len(planned) // (2 * buckets)] for i in range(buckets)]
    order = np.random.default_rng(0).permutation(len(pairs.sizes))
    drawn = order[: batches * rows].reshape(batches, rows)
    bucketed = [collate(pairs, indices).to(device) for indices in every]
    mixed = [collate(pairs, indices.tolist()).to(device) for indices in drawn]

    first, second, half = (ours(device, vocab, *sizes) for _ in range(3))
    theirs = peers.TorchPeer(vocab, *sizes).to(device)
    sides = {
        "ours": (training_steps(first, bucketed), bucketed),
        "ours_bf16": (training_steps(half, bucketed, bf16=True), bucketed),
        "ours_mixed": (training_steps(second, mixed), mixed),
        "torch_mixed": (training_steps(theirs, mixed), mixed),
    }
    taken = turns_of({name: steps for name, (steps, _) in sides.items()}, "text", turns)
    found = {}
    for name, (_, own) in sides.items():
        tokens = sum(batch.target_tokens for batch in own)
        there = sum(batch.target_out.numel() for batch in own)
        taken[name] = [seconds / tokens for seconds in taken[name]]  # for each token
        found[f"{name}_tokens_per_second"] = 1 / statistics.median(taken[name])
        found[f"{name}_real_percent"] = 100 * tokens / there
    for name in ("ours_bf16", "ours_mixed", "torch_mixed"):
        found[f"{name}_over_ours"] = ratio(taken[name], taken["ours"])  # seconds for each token
    return found


def captions(vocab: int) -> Examples:
    """As many pairs as the captions are, of the same lengths on both sides, of random words."""
    counts = pd.read_csv(CAPTIONS)
    random = np.random.default_rng(0)

    def words(sizes: np.ndarray) -> RaggedSequences:
        ids = random.integers(4, vocab, sizes.sum(), np.int32)
        return RaggedSequences.of(part.tolist() for part in np.split(ids, sizes.cumsum()[:-1]))

    source, target = (
        np.repeat(counts[side].to_numpy(), counts["pairs"]) for side in ("source", "target")
    )
    return Examples(words(source), words(target + 1), Dataset.from_dict({}))
