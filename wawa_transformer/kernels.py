"""Trained functions of a distance (KERPLE, FIRE), and a distance counted by content (CoPE).

Published for decoders, where every key lies to the left of its query. In an encoder and in
cross-attention keys lie on both sides, and each class says what it does there: a function of the
absolute distance would leave a sequence and its mirror image alike.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wawa_transformer.limits import MOST_POSITIONS, check_number, check_word
from wawa_transformer.positional import Encoding, Place, Positions
from wawa_transformer.relative import RelativeEncoding, pick

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


class FIRE(RelativeEncoding, kind="fire"):
    """A trained function of the distance as a share of the position (Li et al. 2024, section 3).

    ``f(ψ(i - j) / ψ(max(L, i)))`` with ``ψ(x) = log(cx + 1)`` and trained c and L, f a network of
    one hidden layer; i is the query's position, j the key's. The published code takes ``|i - j|``,
    which in an encoder loses which side a key lies on: here ψ keeps the sign. To the right of the
    query ``i - j`` may exceed i, so the denominator is ``max(L, i, j)``, which is the paper's where
    j ≤ i. f has no constant at its end, since no softmax would notice one, and serves all layers
    of a stack.
    """

    of_positions = True

    def __init__(
        self, place: Place, width: int = 32, threshold: float = 512.0, scale: float = 0.1
    ) -> None:
        super().__init__(place)
        check_number("pe.width", width, 1, MOST_POSITIONS)
        check_number("pe.threshold", threshold, 1, MOST_POSITIONS)
        check_number("pe.scale", scale, 1e-6, 1e6)
        self.threshold, self.scale = threshold, scale
        self.c = nn.Parameter(torch.empty(()))
        self.share = nn.Parameter(torch.empty(()))  # L = |share · threshold|, so share learns
        self.inner = nn.Parameter(torch.empty(width))  # from one number
        self.inner_bias = nn.Parameter(torch.empty(width))
        self.outer = nn.Parameter(torch.empty(place.num_heads, width))
        self.initialise(lambda name: torch.default_generator)

    def bias(self, q: Tensor, k: Tensor, query: Positions, key: Positions) -> Tensor:
        every = -self.every(query, key)  # i - j, (R,)
        signed = every.sign() * self.psi(every.abs())
        above = self.to_pairs(signed[None, None, None], query, key)  # (b,h,Q,K)
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
        return pick(slope[None, :, None], index) * share + pick(start[None, :, None], index)

    def initialise(self, draw: Callable[[str], torch.Generator]) -> None:
        nn.init.constant_(self.c, self.scale)
        nn.init.constant_(self.share, 1.0)
        edges = (("inner", 1.0), ("inner_bias", 1.0), ("outer", self.inner.numel() ** -0.5))
        for name, edge in edges:  # uniform within 1 / sqrt(what comes in), as published
            nn.init.uniform_(getattr(self, name), -edge, edge, generator=draw(name))


class CoPE(Encoding, kind="cope"):
    """Contextual position encoding (Golovneva et al. 2024, section 4): the query says what counts.

    Between a key and its query lie keys, and each counts as a position to the degree that the
    query attends to it: ``p = Σ sigmoid(q·k / sqrt(Dh))``, the key included. The score gains
    ``q · e[p]``, interpolated between trained vectors; beyond the last one p stays with it. The
    gates need scores as they are before any mask or bias, which no fused kernel gives, so they are
    computed twice. The paper has decoders alone; in the encoder keys to the right are counted from
    the query to the key and have vectors of their own. Cross-attention is not served: no key lies
    between a target's query and a source's key.
    """

    counted = False

    def __init__(self, place: Place, num_positions: int = 64) -> None:
        super().__init__(place)
        check_number("pe.num_positions", num_positions, 2, MOST_POSITIONS)
        sides = 1 if place.causal else 2  # to the left, to the right
        self.table = nn.Parameter(torch.empty(sides, num_positions, place.head_width))
        self.initialise(lambda name: torch.default_generator)

    def bias(self, q: Tensor, k: Tensor, query: Positions, key: Positions) -> Tensor:
        left = key.index[..., None, :] <= query.index[..., :, None]  # (b,h,Q,K)
        gates = (q * q.size(-1) ** -0.5 @ k.transpose(-2, -1)).float().sigmoid()  # (B,H,Q,K)
        passed = gates * left
        # From the query on, which is not counted, to each key, which is; to the left less than 0.
        beyond = gates.cumsum(-1) - passed.sum(-1, keepdim=True)
        count = torch.addcmul(passed, beyond, torch.where(left, -1.0, 1.0))
        rows = self.table.size(1)
        low = count.detach().floor().clamp(0, rows - 1)
        index = low.long()
        if not self.place.causal:
            index += ~left * rows  # where the vectors of its side begin
        steps = F.pad(self.table.diff(dim=1), (0, 0, 0, 1))  # to the next; the last has none
        tables = (each.flatten(0, 1).T.to(q.dtype) for each in (self.table, steps))  # (Dh,2R)
        below, step = (pick(q @ table, index) for table in tables)  # (B,H,Q,K)
        return torch.addcmul(below, step, (count - low).to(q.dtype))

    def initialise(self, draw: Callable[[str], torch.Generator]) -> None:
        nn.init.zeros_(self.table)
