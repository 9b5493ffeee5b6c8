"""The sinusoid of Vaswani et al. 2017, section 3.5, as a formula, and other designs of it."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

SPACINGS = ("geometric", "linear", "exponential", "textbook", "fairseq", "divided")
ORDERS = ("falling", "rising", "permuted")
LAYOUTS = ("interleaved", "concatenated")
BANDS = ("all", "fast", "slow")


def sinusoid_table(length: int, d_model: int, **design: Any) -> Tensor:
    """The table ``(1, length, d_model)``: formed in float64, returned in float32.

    In float32 the product position × frequency loses its last digits as positions grow; in bf16
    the angle would be off by more than a radian beyond position 256.
    """
    position = torch.arange(length, dtype=torch.float64)
    return sinusoid(position, d_model, **design).float().unsqueeze(0)


def sinusoid(
    position: Tensor,
    d_model: int,
    *,
    layout: str = "interleaved",
    band: str = "all",
    **spectrum: Any,
) -> Tensor:
    """Sines and cosines of any ``position (N,)``, negative ones too: ``(N, d_model)``, float64.

    ``layout``: ``interleaved`` is the paper's (sines in even dimensions), ``concatenated`` puts
    all sines before all cosines, as the paper's own code did (tensor2tensor). ``band``: ``fast``
    leaves nothing but the lower half of the dimensions, ``slow`` the upper; the others are zero.
    """
    sine, cosine = frequencies(d_model, **spectrum)
    position = position.double().unsqueeze(1)  # (N,1)
    # Not waited for: Transformer-XL comes here in every step.
    sine, cosine = (each.to(position.device, non_blocking=True) for each in (sine, cosine))
    sines = (position * sine).sin()  # (N, ceil(D/2))
    cosines = (position * cosine).cos()  # (N, floor(D/2))
    table = torch.cat((sines, cosines), dim=1)
    if layout == "interleaved":
        table[:, 0::2], table[:, 1::2] = sines, cosines
    if band == "fast":
        table[:, d_model // 2 :] = 0
    elif band == "slow":
        table[:, : d_model // 2] = 0
    return table


def frequencies(
    d_model: int,
    base: float = 10000.0,
    spacing: str = "geometric",
    order: str = "falling",
    stretch: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """The angular frequencies of the sines ``(ceil(D/2),)`` and cosines ``(floor(D/2),)``.

    ``spacing``: ``geometric`` is the paper's ``base^(-2i/D)``; ``linear`` has equal steps between
    the same two ends; ``exponential`` is ``exp(-i)``, whatever the width; ``textbook`` gives the
    cosine of dimension 2i+1 the frequency ``base^(-(2i+1)/D)``, so that no sine has a partner;
    ``fairseq`` ends on ``1/base`` itself, one step lower than the paper's (its
    ``sinusoidal_positional_embedding.py``, with ``layout=concatenated``); ``divided`` is the
    mistake of harvardnlp/annotated-transformer#131, position over frequency: ``base^(+2i/D)``.
    ``order``: ``falling`` as in the paper, ``rising`` the other way round, or ``permuted``.
    ``stretch`` divides all frequencies, which is dividing all positions.
    """
    # On the processor wherever the table will be: a device without memory has no last value.
    pair = torch.arange((d_model + 1) // 2, dtype=torch.float64, device="cpu")  # i
    step = -math.log(base) / d_model
    sine = torch.exp(2 * pair * step)
    if spacing == "linear":
        sine = torch.linspace(1.0, float(sine[-1]), len(pair), dtype=torch.float64)
    elif spacing == "exponential":
        sine = torch.exp(-pair)
    elif spacing == "fairseq":
        sine = torch.exp(-math.log(base) * pair / max(1, len(pair) - 1))
    elif spacing == "divided":
        sine = 1 / sine
    cosine = torch.exp((2 * pair + 1) * step) if spacing == "textbook" else sine
    if order == "rising":
        sine, cosine = sine.flip(0), cosine.flip(0)
    elif order == "permuted":
        shuffled = torch.randperm(len(pair), generator=torch.Generator().manual_seed(0))
        sine, cosine = sine[shuffled], cosine[shuffled]
    # An odd width has one cosine fewer.
    return sine / stretch, cosine[: d_model // 2] / stretch
