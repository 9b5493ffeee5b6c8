"""The sinusoid with nested dropout (Rippel et al. 2014)."""

import torch
from torch import Tensor

from wawa_transformer.positional.base import Positions
from wawa_transformer.positional.sinusoidal import PositionalEncoding


class NestedSinusoid(PositionalEncoding, kind="sinusoidal_nested"):
    """The sinusoid with nested dropout (Rippel et al. 2014): low dimensions matter most.

    In training each example keeps its first k dimensions of the sum, k uniform in ``1 … D``, and
    loses the others. This orders the embedding's dimensions by importance. Differs from the paper:
    it is about the codes of autoencoders and knows no positions, and its k is geometric. k is drawn
    from the stream of dropout's masks: under one seed a run and the sinusoid's share their data and
    starting values, and not their masks.
    """

    def embed(self, x: Tensor, positions: Positions) -> Tensor:
        x = super().embed(x, positions)
        if not self.training:
            return x
        kept = torch.randint(1, self.d_model + 1, (x.size(0), 1, 1), device=x.device)
        return x * (torch.arange(self.d_model, device=x.device) < kept)  # (B,1,D)
