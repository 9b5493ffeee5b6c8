"""Time decoding against other libraries that hold the same weights."""

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from speed import model, peers
from speed.timing import compared, turns_of
from wawa_transformer.common import BOS, EOS
from wawa_transformer.decode.greedy import greedy
from wawa_transformer.decode.strategies import Beam
from wawa_transformer.model.transformer import Transformer


def measurements(device: torch.device) -> dict[str, Callable[[], dict[str, float]]]:
    """List :func:`decoding`, the only measurement."""
    return {"decoding": partial(decoding, device)}


def decoding(device: torch.device) -> dict[str, float]:
    """Time the decoding of 32 ids from 32 ids, in shape S.

    The cases are greedy decoding of 1 and of 32 sentences, and a beam of 4 on 32 sentences. All
    sides have the same weights and must give the same ids. ``plain`` decodes the whole prefix again
    for each id.
    """
    vocab, *sizes = model.SHAPES["S"][:5]
    ours = peers.like_marian(vocab, *sizes).to(device).eval()
    length = 32
    numbers: dict[str, float] = {}
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        # Special ids are then never the most probable, so no row ends before the others.
        ours.output.weight[: EOS + 1] = 0
        for name, batch, size in (("batch1", 1, 1), ("batch32", 32, 1), ("beam4", 32, 4)):
            ids = torch.randint(4, vocab, (batch, length), device=device)
            ids[:, -1] = EOS
            sides: dict[str, Callable[[], Tensor]] = {
                "ours": partial(best, ours, ids, length, size)
            }
            if size == 1:
                sides["plain"] = partial(without_cache, ours, ids, length)
            if not peers.absent("transformers"):
                sides["marian"] = peers.with_marian(ours, ids, length, size)
            if device.type == "cpu" and not peers.absent("ctranslate2"):
                sides["ctranslate2"] = peers.with_ctranslate2(ours, ids, length, size, Path(folder))
            expected = sides["ours"]().cpu()
            for side, work in sides.items():
                if not torch.equal(work().cpu(), expected):
                    raise AssertionError(f"{side} decodes other ids than ours")
            taken = turns_of(sides, f"decoding, {name}", 25 if batch == 1 else 9)
            numbers |= compared(taken, f"{name}_")
    return numbers


def best(ours: Transformer, source: Tensor, length: int, size: int) -> Tensor:
    """Find the best ids with a beam of ``size``; 1 is greedy."""
    if size == 1:
        return greedy(ours, source, length)
    return Beam(size=size)(ours, source, length)[0][:, 0]


def without_cache(ours: Transformer, source: Tensor, length: int) -> Tensor:
    """Decode greedily by the definition, without a cache."""
    ids = torch.full_like(source[:, :1], BOS)
    for _ in range(length):
        ids = torch.cat((ids, ours(source, ids)[:, -1:].argmax(-1)), dim=1)
    return ids[:, 1:]
