"""PoPE (Gopalakrishnan et al. 2025): content sets magnitudes, positions set angles."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wawa_transformer.positional.base import Encoding, EncodingContext, GeneratorFor, Positions
from wawa_transformer.positional.rotary import Angles


class PoPE(Encoding, kind="pope"):
    """Polar coordinate position embedding (Gopalakrishnan et al. 2025, arXiv 2509.10534).

    Every dimension c of a query and a key is a magnitude, ``softplus`` of its value, with an angle
    of its own, ``position · base^(-c/Dh)``. The score is the sum over c of ``softplus(q_c)
    softplus(k_c) cos(angle of q - angle of k - δ_c)``, over sqrt(Dh). So queries and keys are twice
    as wide, and content changes no angle. δ is trained for each head, kept within -2π … 0, and
    starts at 0, as the authors have it for longer sequences. Differs from the paper: one δ serves
    all layers of a stack; the paper has decoders alone, so that cross-attention is ours.

    Args:
        base: as in the sinusoid.
    """

    relative = True
    fractional = True

    def __init__(self, context: EncodingContext, base: float = 10000.0) -> None:
        super().__init__(context)
        self.angles = Angles(2 * context.head_width, base)
        self.delta = nn.Parameter(torch.empty(context.num_heads, context.head_width))
        self.reset_parameters(lambda name: torch.default_generator)

    def rotate(
        self, q: Tensor, k: Tensor, query: Positions, key: Positions
    ) -> tuple[Tensor, Tensor]:
        delta = self.delta.float().clamp(-2 * math.pi, 0)[:, None]  # (H,1,Dh)
        return self.polar(q, query, torch.zeros_like(delta)), self.polar(k, key, delta)

    def polar(self, x: Tensor, positions: Positions, delta: Tensor) -> Tensor:
        """``x (B,H,S,Dh)`` at its angles plus ``delta (H,1,Dh)``, in pairs: ``(B,H,S,2Dh)``."""
        exact = torch.promote_types(x.dtype, torch.float32)
        sine, cosine = (wave.to(exact) for wave in self.angles.waves(positions))  # (b,h,S,Dh)
        turned = (
            cosine * delta.cos() - sine * delta.sin(),  # cos(angle + delta)
            sine * delta.cos() + cosine * delta.sin(),
        )
        size = F.softplus(x.to(exact))
        return torch.cat([size * wave for wave in turned], dim=-1).to(x.dtype)

    def reset_parameters(self, generator_for: GeneratorFor) -> None:
        nn.init.zeros_(self.delta)
