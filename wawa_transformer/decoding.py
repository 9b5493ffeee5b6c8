"""Greedy decoding with a key/value cache."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from wawa_transformer.transformer import BOS, EOS, PAD, Transformer, padding_mask


@torch.no_grad()
def greedy(model: Transformer, source: Tensor, max_length: int) -> Tensor:
    """The most probable next id, again and again, for every row of ``source (B,S)``.

    Returns ``(B, <= max_length)`` ids without BOS; what follows a row's EOS is padding. Each step
    feeds one position and reuses the cached keys and values of all earlier ones; rows that have
    ended leave the batch.
    """
    was_training = model.training
    model.eval()
    count, cross_mask, cache = model.count(source), padding_mask(source), model.new_cache()
    memory = model.encode(source, count=count)
    words = model.output.weight.T.contiguous()  # (D,V): the order in which few rows read it faster
    out = torch.full_like(source[:, :1], PAD).repeat(1, max_length)  # (B,max_length)
    rows = torch.arange(len(source), device=source.device)  # those still in the batch, R of them
    last = torch.full_like(source[:, :1], BOS)  # (R,1)
    ended = torch.zeros_like(rows, dtype=torch.bool)
    for step in range(max_length):
        states = model.decode(last, memory, None, cross_mask, cache, count, logits=False)  # (R,1,D)
        last = (states @ words).argmax(dim=-1).masked_fill(ended[:, None], PAD)
        out[rows, step] = last[:, 0]
        ended |= last[:, 0] == EOS
        finished = int(ended.sum())  # the one number a step that a GPU is waited for
        if finished == len(ended):
            out = out[:, : step + 1]
            break
        if finished * 8 > len(ended):  # not for each one: what the cache holds is copied
            going = ~ended
            rows, ended, last = rows[going], ended[going], last[going]
            memory, cross_mask, count = memory[going], cross_mask[going], count.keep(going)
            for each in itertools.chain(*cache):
                each.keep(going)
    model.train(was_training)
    return out
