"""Transformer-XL's relative encoding (Dai et al. 2019, section 3.3)."""

import torch
from torch import Tensor, nn

from wawa_transformer.common.limits import check_base
from wawa_transformer.positional.base import EncodingContext, GeneratorFor, Positions
from wawa_transformer.positional.relative import RelativeEncoding
from wawa_transformer.positional.sinusoidal import sinusoid


class TransformerXL(RelativeEncoding, kind="transformer_xl"):
    """Sinusoids of the distance in the score (Dai et al. 2019, section 3.3).

    The score is ``(q+u) · k + (q+v) · W R(distance)``, over sqrt(Dh): R is the sinusoid of query
    minus key position, W a trained matrix, u and v a trained vector for each head. ``rotate`` adds
    u to the queries, and the bias is the rest. Differs from the paper: W serves all layers of a
    stack, where the paper has one for each layer; distances may have either sign, since an encoder
    sees both sides; no earlier segment is remembered.
    """

    def __init__(self, context: EncodingContext, base: float = 10000.0) -> None:
        super().__init__(context)
        check_base(base)
        self.base = base
        self.project = nn.Linear(context.d_model, context.d_model, bias=False)
        self.u = nn.Parameter(torch.empty(context.num_heads, context.head_width))
        self.v = nn.Parameter(torch.empty(context.num_heads, context.head_width))
        self.reset_parameters(lambda name: torch.default_generator)

    def rotate(
        self, q: Tensor, k: Tensor, query: Positions, key: Positions
    ) -> tuple[Tensor, Tensor]:
        return q + self.u[:, None].to(q.dtype), k

    def bias(self, q: Tensor, k: Tensor, query: Positions, key: Positions) -> Tensor:
        table = self.sinusoids(query, key)
        keys = self.project(table.to(self.v))  # (R,D)
        keys = keys.unflatten(-1, (self.context.num_heads, -1))  # (R,D) -> (R,H,Dh)
        q = q + (self.v - self.u)[:, None].to(q.dtype)  # rotate added u
        scores = torch.einsum("bhqd,rhd->bhqr", q * q.size(-1) ** -0.5, keys.to(q.dtype))
        return self.expand_to_pairs(scores, query, key)  # (B,H,Q,K)

    def sinusoids(self, query: Positions, key: Positions) -> Tensor:
        """Sinusoids of every distance, query minus key, ``(R,D)``."""
        distances = self.all_distances(query, key)
        if distances.device.type == "mps":  # which has no float64
            distances = distances.cpu()
        return sinusoid(-distances, self.context.d_model, self.base)

    def reset_parameters(self, generator_for: GeneratorFor) -> None:
        for name, parameter in (("u", self.u), ("v", self.v)):
            nn.init.normal_(parameter, std=0.02, generator=generator_for(name))
