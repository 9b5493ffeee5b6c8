"""FIRE (Li et al. 2024): a trained function of the relative distance."""

import torch
from torch import Tensor, nn

from wawa_transformer.common.limits import MAX_POSITIONS, check_number
from wawa_transformer.positional.base import EncodingContext, GeneratorFor, Positions
from wawa_transformer.positional.relative import RelativeEncoding


class FIRE(RelativeEncoding, kind="fire"):
    """A trained function of distance over position (Li et al. 2024, section 3).

    ``f(ψ(i - j) / ψ(max(L, i)))`` with ``ψ(x) = log(cx + 1)`` and trained c and L, f a network of
    one hidden layer; i is the query's position, j the key's. The published code takes ``|i - j|``,
    which in an encoder loses the side of a key: here ψ keeps the sign. To the right of the query
    ``i - j`` may exceed i, so the denominator is ``max(L, i, j)``, which equals the paper's where
    j ≤ i. f has no constant at its end, since no softmax would notice one. One f serves all layers
    of a stack.
    """

    relative = False  # the denominator is a position
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
        check_number("pe.threshold", threshold, 1.0, MAX_POSITIONS)
        check_number("pe.scale", scale, 1e-6, 1e6)
        self.threshold, self.scale = threshold, scale
        self.c = nn.Parameter(torch.empty(()))
        self.share = nn.Parameter(torch.empty(()))  # L = |share · threshold|, so share learns
        self.inner = nn.Parameter(torch.empty(width))  # from one number
        self.inner_bias = nn.Parameter(torch.empty(width))
        self.outer = nn.Parameter(torch.empty(context.num_heads, width))
        self.reset_parameters(lambda name: torch.default_generator)

    def bias(self, q: Tensor, k: Tensor, query: Positions, key: Positions) -> Tensor:
        distance = -self.all_distances(query, key)  # i - j, (R,)
        signed = distance.sign() * self.psi(distance.abs())
        above = self.expand_to_pairs(signed[None, None, None], query, key)  # (b,h,Q,K)
        limit = self.psi((self.share * self.threshold).abs())
        i, j = (self.psi(positions.ids).maximum(limit) for positions in (query, key))
        below = torch.maximum(i[..., :, None], j[..., None, :])  # ψ grows: ψ of the largest
        return self.network(above / below).to(q.dtype)

    def psi(self, x: Tensor) -> Tensor:
        """``log(cx + 1)``, c positive."""
        return torch.log1p(self.c.abs() * x)

    def network(self, share: Tensor) -> Tensor:
        """f for each head, of ``share (b,h,Q,K)`` from -1 to 1: ``(b,H,Q,K)``."""
        hidden = (share[..., None] * self.inner + self.inner_bias).relu()  # (b,h,Q,K,W)
        return torch.einsum("bhqkw,hw->bhqk", hidden, self.outer)

    def reset_parameters(self, generator_for: GeneratorFor) -> None:
        nn.init.constant_(self.c, self.scale)
        nn.init.constant_(self.share, 1.0)
        edges = (("inner", 1.0), ("inner_bias", 1.0), ("outer", self.inner.numel() ** -0.5))
        for name, edge in edges:  # uniform within 1 / sqrt(inputs), as published
            nn.init.uniform_(getattr(self, name), -edge, edge, generator=generator_for(name))
