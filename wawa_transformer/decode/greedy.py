"""Step-by-step decoding with a key/value cache, greedily or by sampling."""

import itertools
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from wawa_transformer.common import BOS, EOS, PAD
from wawa_transformer.common.messages import UserError
from wawa_transformer.model.masks import padding_mask
from wawa_transformer.model.modes import evaluating
from wawa_transformer.model.transformer import Transformer


def greedy(model: Transformer, source: Tensor, max_length: int | Tensor) -> Tensor:
    """Decode every row of ``source (B,S)`` greedily.

    ``max_length`` is one limit for all rows, or ``(B,)``. Returns ``(B, <= max_length)`` ids
    without BOS, and padding after a row's EOS or limit.
    """
    return generate(model, source, max_length, scored=False)[0]


def most_probable(logits: Tensor) -> Tensor:
    """The id of the largest of ``logits (…,V)``, never padding or BOS: ``(…)``."""
    return logits[..., EOS:].argmax(dim=-1) + EOS  # PAD and BOS are the ids below EOS


def limits_of(source: Tensor, max_length: int | Tensor) -> tuple[Tensor, int]:
    """The limit of every row ``(B,)``, and the largest; 0 without rows."""
    limits = torch.as_tensor(max_length, device=source.device)
    if limits.is_floating_point() or limits.shape not in {(), (len(source),)}:
        raise UserError(
            f"max_length={max_length} must be a whole number, or one for each of the "
            f"{len(source)} sources."
        )
    if limits.numel() and int(limits.min()) < 1:
        raise UserError(f"max_length={int(limits.min())} must be at least 1.")
    limits = limits.expand(len(source))  # (B,)
    return limits, int(limits.max()) if len(source) else 0


def generate(
    model: Transformer,
    source: Tensor,
    max_length: int | Tensor,
    choose: Callable[[Tensor, Tensor], Tensor] | None = None,
    scored: bool = True,
) -> tuple[Tensor, Tensor]:
    """Decode one position at a time, with ``choose`` for the next ids.

    ``choose`` gets logits ``(R,1,V)`` and the rows ``(R,)`` they belong to, and returns ids
    ``(R,1)``; by default those of the largest logits. Each step reuses the cached keys and values
    of earlier positions. Rows that have ended leave the batch. Returns the ids, and if ``scored``,
    their log-probability ``(B,)`` in nats.
    """
    with evaluating(model):
        limits, longest = limits_of(source, max_length)
        positions = model.batch_positions(source)
        cross_mask, cache = padding_mask(source), model.new_cache()
        memory = model.encode(source, positions=positions)
        source = source.long()  # int32 is read as well, and outputs are int64
        out = source[:, :0]  # (B,0): one column more at every step
        rows = torch.arange(len(source), device=source.device)  # (R,): still in the batch
        last = source.new_full((len(source), 1), BOS)  # (R,1)
        ended = torch.zeros_like(rows, dtype=torch.bool)
        scores = torch.zeros_like(rows, dtype=memory.dtype)  # (B,)
        for step in range(longest):
            logits = model.decode(last, memory, None, cross_mask, cache, positions)  # (R,1,V)
            # A copy: a choice that forbids ids in place must not change the score.
            last = choose(logits.clone(), rows) if choose else most_probable(logits)  # (R,1)
            last = last.masked_fill(ended[:, None], PAD)
            if scored:
                log_p = logits.log_softmax(dim=-1).gather(-1, last[..., None])  # (R,1,1)
                scores[rows] += log_p[:, 0, 0].masked_fill(ended, 0)
            out = F.pad(out, (0, 1), value=PAD)
            out[rows, step] = last[:, 0]
            ended |= (last[:, 0] == EOS) | (step + 1 == limits[rows])
            finished = int(ended.sum())  # the only number per step that waits for a GPU
            if finished == len(ended):
                break
            if finished * 8 > len(ended):  # not for each row, since the cache is copied
                going = ~ended
                rows, ended, last = rows[going], ended[going], last[going]
                memory, cross_mask = memory[going], cross_mask[going]
                positions = positions.keep(going)
                for each in itertools.chain(*cache):
                    each.keep(going)
        return out, scores
