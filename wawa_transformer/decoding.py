"""Greedy decoding with a key/value cache."""

from __future__ import annotations

import torch
from torch import Tensor

from wawa_transformer.transformer import BOS, EOS, PAD, Transformer, padding_mask


@torch.no_grad()
def greedy(model: Transformer, source: Tensor, max_length: int) -> Tensor:
    """The most probable next id, again and again, for every row of ``source (B,S)``.

    Returns ``(B, <= max_length)`` ids without BOS; what follows a row's EOS is padding. Each step
    feeds one position and reuses the cached keys and values of all earlier ones.
    """
    was_training = model.training
    model.eval()
    count, cross_mask, cache = model.count(source), padding_mask(source), model.new_cache()
    memory = model.encode(source, count=count)
    last = torch.full_like(source[:, :1], BOS)  # (B,1)
    finished = torch.zeros_like(last, dtype=torch.bool)
    steps = []
    for _ in range(max_length):
        logits = model.decode(last, memory, None, cross_mask, cache, count)  # (B,1,V)
        last = logits.argmax(dim=-1).masked_fill(finished, PAD)
        steps.append(last)
        finished |= last == EOS
        if finished.all():
            break
    model.train(was_training)
    return torch.cat(steps, dim=1)
