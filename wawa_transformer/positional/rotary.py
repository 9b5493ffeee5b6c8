"""Rotary position embedding (Su et al. 2021): positions rotate queries and keys."""

import torch
from torch import Tensor

from wawa_transformer.common.messages import UserError
from wawa_transformer.positional.base import Encoding, EncodingContext, Positions
from wawa_transformer.positional.sinusoid_designs import SinusoidDesign, frequencies


class Angles(SinusoidDesign):
    """Sine and cosine of position times frequency, ``base^(-2i/width)`` for pair i."""

    def __init__(self, width: int, base: float) -> None:
        super().__init__(width, max_len=512, dropout=0.0, base=base)
        self.rates = frequencies(width, base)[0].float()  # no buffer, which bfloat16() would round

    def waves(self, positions: Positions) -> tuple[Tensor, Tensor]:
        """Sine and cosine of every angle, ``(b,h,S,width/2)`` each, in float32."""
        ids = positions.ids
        if ids.is_floating_point():  # between two rows of the table
            angle = ids[..., None] * self.rates.to(ids.device, non_blocking=True)
            return angle.sin(), angle.cos()
        table = self.table(positions.end)[ids]  # (b,h,S,width)
        sine, cosine = table.unflatten(-1, (-1, 2)).unbind(-1)
        return sine, cosine


class Rotary(Encoding, kind="rotary"):
    """Rotary position embedding (Su et al. 2021, equation 34).

    Dimensions 2i and 2i+1 of every query and key are rotated by ``position · base^(-2i/Dh)``, so
    that the product of a query and a key depends on the distance alone. The paper has encoders and
    decoders alone, so that cross-attention is ours. Some models, such as Llama, turn dimensions i
    and i + Dh/2 together, which is the same but for the order of dimensions.

    Args:
        base: as in the sinusoid.

    Raises:
        ValueError: an odd head width has no pairs.
    """

    relative = True
    fractional = True

    def __init__(self, context: EncodingContext, base: float = 10000.0) -> None:
        super().__init__(context)
        if context.head_width % 2:
            raise UserError(
                f"pe=rotary turns pairs of dimensions, but model.d_model={context.d_model} over "
                f"model.num_heads={context.num_heads} gives heads of odd width "
                f"{context.head_width}; choose a model.num_heads that gives an even one."
            )
        self.angles = Angles(context.head_width, base)

    def rotate(
        self, q: Tensor, k: Tensor, query: Positions, key: Positions
    ) -> tuple[Tensor, Tensor]:
        return self.turn(q, query), self.turn(k, key)

    def turn(self, x: Tensor, positions: Positions) -> Tensor:
        """``x (B,H,S,Dh)`` rotated by its positions, in float32 or better."""
        exact = torch.promote_types(x.dtype, torch.float32)
        sine, cosine = (wave.to(exact) for wave in self.angles.waves(positions))
        pairs = x.to(exact).unflatten(-1, (-1, 2))  # (B,H,S,Dh) -> (B,H,S,Dh/2,2)
        return self.rotate_pairs(pairs, sine, cosine).flatten(-2).to(x.dtype)  # (B,H,S,Dh)

    def rotate_pairs(self, pairs: Tensor, sine: Tensor, cosine: Tensor) -> Tensor:
        """Each pair ``(B,H,S,Dh/2,2)`` rotated by its angle, ``(b,h,S,Dh/2)``."""
        even, odd = pairs.unbind(-1)
        return torch.stack((even * cosine - odd * sine, even * sine + odd * cosine), dim=-1)


class RotaryQuery(Rotary, kind="rotary_query"):
    """Rotary with unrotated keys: it tells nothing about the key's position (HunyuanDiT#66).

    Parler-TTS and HunyuanDiT have it in cross-attention.
    """

    relative = False

    def rotate(
        self, q: Tensor, k: Tensor, query: Positions, key: Positions
    ) -> tuple[Tensor, Tensor]:
        return self.turn(q, query), k


class RotaryKey(Rotary, kind="rotary_key"):
    """Rotary with unrotated queries: it tells the key's position, and not how far away it is."""

    relative = False

    def rotate(
        self, q: Tensor, k: Tensor, query: Positions, key: Positions
    ) -> tuple[Tensor, Tensor]:
        return q, self.turn(k, key)


class RotaryMix(Rotary, kind="rotary_mix"):
    """Rotary whose score is the mean over both counts of ``pe.origin=both``, in every head.

    After Ray Chowdhury & Caragea 2023, who interpolate keys and values of the source and of its
    mirror image, by a gate; here the share is one half, and values stay where they are.
    """

    headwise = False

    def rotate(
        self, q: Tensor, k: Tensor, query: Positions, key: Positions
    ) -> tuple[Tensor, Tensor]:
        counts = key.ids[:, :2].split(1, dim=1)  # from the start, from the end
        turned = [self.turn(k, Positions(ids, key.end)) for ids in counts]
        return self.turn(q, query), torch.stack(turned).mean(0)
