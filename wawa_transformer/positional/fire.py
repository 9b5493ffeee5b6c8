"""FIRE: a trained function of the distance as a share of the position."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from wawa_transformer.common.limits import MAX_POSITIONS, check_number
from wawa_transformer.positional.base import EncodingContext, Positions
from wawa_transformer.positional.relative import RelativeEncoding, gather_bias


class FIRE(RelativeEncoding, kind="fire"):
    """A trained function of the distance as a share of the position (Li et al. 2024, section 3).

    ``f(ψ(i - j) / ψ(max(L, i)))`` with ``ψ(x) = log(cx + 1)`` and trained c and L, f a network of
    one hidden layer; i is the query's position, j the key's. The published code takes ``|i - j|``,
    which in an encoder loses which side a key lies on: here ψ keeps the sign. To the right of the
    query ``i - j`` may exceed i, so the denominator is ``max(L, i, j)``, which is the paper's where
    j ≤ i. f has no constant at its end, since no softmax would notice one, and serves all layers
    of a stack.
    """

    content_independent = True

    def __init__(
        self,
        context: EncodingContext,
        width: int = 32,
        threshold: float = 512.0,
        scale: float = 0.1,
    ) -> None:
        super().__init__(context)
        check_number("pe.width", width, 1, MAX_POSITIONS)
        check_number("pe.threshold", threshold, 1, MAX_POSITIONS)
        check_number("pe.scale", scale, 1e-6, 1e6)
        self.threshold, self.scale = threshold, scale
        self.c = nn.Parameter(torch.empty(()))
        self.share = nn.Parameter(torch.empty(()))  # L = |share · threshold|, so share learns
        self.inner = nn.Parameter(torch.empty(width))  # from one number
        self.inner_bias = nn.Parameter(torch.empty(width))
        self.outer = nn.Parameter(torch.empty(context.num_heads, width))
        self.reset_parameters(lambda name: torch.default_generator)

    def bias(self, q: Tensor, k: Tensor, query: Positions, key: Positions) -> Tensor:
        every = -self.all_distances(query, key)  # i - j, (R,)
        signed = every.sign() * self.psi(every.abs())
        above = self.expand_to_pairs(signed[None, None, None], query, key)  # (b,h,Q,K)
        limit = self.psi((self.share * self.threshold).abs())
        i, j = (self.psi(at.index).maximum(limit) for at in (query, key))
        below = torch.maximum(i[..., :, None], j[..., None, :])  # ψ of the largest: it grows
        return self.network(above / below).to(q.dtype)

    def psi(self, x: Tensor) -> Tensor:
        """``log(cx + 1)``, c positive."""
        return torch.log1p(self.c.abs() * x)

    def network(self, share: Tensor) -> Tensor:
        """f for each head, of ``share (b,h,Q,K)`` from -1 to 1: ``(b,H,Q,K)``.

        Of one number a network of one hidden layer is straight between the kinks of its units. So
        a pair looks up one line, and not all units are computed for it. A kink that no share
        reaches, or a unit without one, is put at 2.
        """
        kinks = (-self.inner_bias / self.inner).detach().nan_to_num(2).clamp(-2, 2).sort().values
        between = torch.cat((kinks[:1] - 1, (kinks[1:] + kinks[:-1]) / 2, kinks[-1:] + 1))
        on = between[:, None] * self.inner + self.inner_bias > 0  # (width+1,width): on each line
        index = torch.bucketize(share.detach(), kinks)
        slope, start = (
            (self.outer[:, None] * (on * weight)).sum(-1)  # no product: it stays out of bf16
            for weight in (self.inner, self.inner_bias)
        )  # (H,width+1) each
        return gather_bias(slope[None, :, None], index) * share + gather_bias(
            start[None, :, None], index
        )

    def reset_parameters(self, generator_for: Callable[[str], torch.Generator]) -> None:
        nn.init.constant_(self.c, self.scale)
        nn.init.constant_(self.share, 1.0)
        edges = (("inner", 1.0), ("inner_bias", 1.0), ("outer", self.inner.numel() ** -0.5))
        for name, edge in edges:  # uniform within 1 / sqrt(what comes in), as published
            nn.init.uniform_(getattr(self, name), -edge, edge, generator=generator_for(name))
