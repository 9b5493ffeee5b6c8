"""Other designs of the sinusoidal table: published variants, mistakes and controls."""

import math

import torch
from torch import Tensor

from wawa_transformer.common.limits import check_base, check_choice
from wawa_transformer.positional.sinusoidal import PositionalEncoding

SPACINGS = ("geometric", "linear", "exponential", "textbook", "fairseq", "divided")
ORDERS = ("falling", "rising", "permuted")
LAYOUTS = ("interleaved", "concatenated")
BANDS = ("all", "fast", "slow")


class SinusoidDesign(PositionalEncoding, kind="sinusoid_design"):
    """The sinusoid with another choice of frequencies or another order of dimensions.

    Args:
        d_model, max_len, dropout: as in :class:`PositionalEncoding`.
        base, spacing, order: see :func:`frequencies`.
        layout: ``interleaved`` is the paper's (sines in even dimensions); ``concatenated`` puts all
            sines before all cosines, as the paper's own code did (tensor2tensor).
        band: ``fast`` keeps the lower half of the dimensions, ``slow`` the upper; the other half is
            zero.
    """

    def __init__(
        self,
        d_model: int,
        max_len: int = 5000,
        dropout: float = 0.1,
        base: float = 10000.0,
        spacing: str = "geometric",
        order: str = "falling",
        layout: str = "interleaved",
        band: str = "all",
    ) -> None:
        check_base(base)
        check_choice("pe.spacing", spacing, SPACINGS)
        check_choice("pe.order", order, ORDERS)
        check_choice("pe.layout", layout, LAYOUTS)
        check_choice("pe.band", band, BANDS)
        self.spectrum = (base, spacing, order)
        self.layout, self.band = layout, band
        super().__init__(d_model, max_len, dropout)

    def make_table(self, length: int) -> Tensor:
        sine, cosine = frequencies(self.d_model, *self.spectrum)
        position = torch.arange(length, dtype=torch.float64)[:, None]  # (N,1)
        sines = (position * sine.to(position.device)).sin()  # (N, ceil(D/2))
        cosines = (position * cosine.to(position.device)).cos()  # (N, floor(D/2))
        table = torch.cat((sines, cosines), dim=1)
        if self.layout == "interleaved":
            table[:, 0::2], table[:, 1::2] = sines, cosines
        if self.band == "fast":
            table[:, self.d_model // 2 :] = 0
        elif self.band == "slow":
            table[:, : self.d_model // 2] = 0
        return table.float().unsqueeze(0)


def frequencies(
    d_model: int,
    base: float = 10000.0,
    spacing: str = "geometric",
    order: str = "falling",
) -> tuple[Tensor, Tensor]:
    """The angular frequencies of the sines ``(ceil(D/2),)`` and cosines ``(floor(D/2),)``.

    ``spacing``: ``geometric`` is the paper's ``base^(-2i/D)``; ``linear`` has equal steps between
    the same two ends; ``exponential`` is ``exp(-i)``, whatever the width; ``textbook`` gives the
    cosine of dimension 2i+1 the frequency ``base^(-(2i+1)/D)``, so that no sine has a partner;
    ``fairseq`` ends on ``1/base`` itself, one step lower than the paper's (its
    ``sinusoidal_positional_embedding.py``, with ``layout=concatenated``); ``divided`` is the
    mistake of harvardnlp/annotated-transformer#131, position over frequency: ``base^(+2i/D)``.
    ``order``: ``falling`` as in the paper, ``rising`` the other way round, or ``permuted``.
    """
    # On the CPU in any case: a table on the meta device has no last value to read.
    pair = torch.arange((d_model + 1) // 2, dtype=torch.float64, device="cpu")  # i
    step = -math.log(base) / d_model
    sine = torch.exp(2 * pair * step)
    if spacing == "linear":
        sine = torch.linspace(1.0, float(sine[-1]), len(pair), dtype=torch.float64, device="cpu")
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
        random = torch.Generator().manual_seed(0)
        shuffled = torch.randperm(len(pair), generator=random, device="cpu")
        sine, cosine = sine[shuffled], cosine[shuffled]
    # An odd width has one cosine fewer.
    return sine, cosine[: d_model // 2]
