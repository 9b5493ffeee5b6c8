"""KERPLE: a trained kernel of the distance."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from wawa_transformer.common.limits import check_word
from wawa_transformer.positional.base import Place, Positions
from wawa_transformer.positional.relative import RelativeEncoding

LEAST = 0.01  # the smallest starting value of KERPLE's parameters, as in its published code


class Kerple(RelativeEncoding, kind="kerple"):
    """A kernel of the distance (Chi et al. 2022, section 4): two trained numbers for each head.

    ``log``: ``-a · log(1 + b |distance|)``; ``power``: ``-a · |distance|^b``, b less than 2. Both
    are positive by construction (``a = exp(α)``, ``b = exp(β)`` or ``2 sigmoid(β)``), where the
    published code clips them. The kernel is even: where keys lie on both sides, either side has
    numbers of its own.
    """

    of_positions = True

    def __init__(self, place: Place, form: str = "log") -> None:
        super().__init__(place)
        check_word("form", form, ("log", "power"))
        self.form = form
        sides = 1 if place.causal else 2  # to the left, to the right
        self.alpha = nn.Parameter(torch.empty(sides, place.num_heads))
        self.beta = nn.Parameter(torch.empty(sides, place.num_heads))
        self.initialise(lambda name: torch.default_generator)

    def bias(self, q: Tensor, k: Tensor, query: Positions, key: Positions) -> Tensor:
        every = self.every(query, key)  # (R,)
        sides = [
            self.kernel(every.abs(), alpha, beta)
            for alpha, beta in zip(self.alpha[..., None], self.beta[..., None], strict=True)
        ]  # (H,R) each
        values = torch.where(every > 0, sides[-1], sides[0]).to(q.dtype)
        return self.to_pairs(values[None, :, None], query, key)  # (b,H,Q,K)

    def kernel(self, far: Tensor, alpha: Tensor, beta: Tensor) -> Tensor:
        """The bias at distances ``far``, which broadcasts with ``alpha`` and ``beta (H,1)``."""
        if self.form == "log":
            return -alpha.exp() * torch.log1p(beta.exp() * far)
        return -alpha.exp() * far.to(beta.dtype).pow(2 * beta.sigmoid())

    def initialise(self, draw: Callable[[str], torch.Generator]) -> None:
        """As published: the factor of the logarithm is uniform below 2, all others below 1."""
        for name, parameter in (("alpha", self.alpha), ("beta", self.beta)):
            nn.init.uniform_(parameter, generator=draw(name))
        with torch.no_grad():
            self.alpha.clamp_(min=LEAST).mul_(2 if self.form == "log" else 1).log_()
            self.beta.clamp_(min=LEAST)
            if self.form == "log":
                self.beta.log_()
            else:  # b = 2 sigmoid(beta) is uniform below 2
                self.beta.clamp_(max=1 - LEAST).logit_()
