"""ALiBi (Press et al. 2022): a penalty that grows with the distance."""

import torch
from torch import Tensor

from wawa_transformer.positional.base import EncodingContext, Positions
from wawa_transformer.positional.relative import RelativeEncoding


class ALiBi(RelativeEncoding, kind="alibi"):
    """Attention with linear biases (Press et al. 2022, section 3): ``-slope · |distance|``.

    The paper has decoders alone, and its code adds the same bias but for a constant in each row. In
    the decoder the mask leaves only the past. The encoder's bias is symmetric: a token sees how
    far another one is and not on which side. With ``directed`` the slopes of keys to the right of
    a query are in reverse order, so that head 1 looks to the right and the last head to the left.
    Cross-attention is always directed.
    """

    content_independent = True

    def __init__(self, context: EncodingContext, directed: bool = False) -> None:
        super().__init__(context)
        left = torch.tensor(alibi_slopes(context.num_heads), device="cpu")
        both = directed or context.role == "cross"
        # No buffer, which bfloat16() would round and to_empty() lose. To the left, to the right:
        self.slopes = torch.stack((left, left.flip(0) if both else left))  # (2,H)

    def bias(self, q: Tensor, k: Tensor, query: Positions, key: Positions) -> Tensor:
        distance = self.all_distances(query, key)  # (R,)
        slopes = self.slopes.to(distance.device, non_blocking=True)
        left, right = slopes[..., None]  # (H,1) each
        values = -torch.where(distance > 0, right, left) * distance.abs()  # (H,R)
        return self.expand_to_pairs(values[None, :, None], query, key).to(q.dtype)  # (b,H,Q,K)


def alibi_slopes(num_heads: int) -> list[float]:
    """``2^(-8h/H)`` for h = 1 … H, H a power of two.

    For another H, the paper's appendix takes the slopes of the power of two below it, then every
    other slope of the power of two above it.
    """
    power = 2 ** (num_heads.bit_length() - 1)  # the power of two at or below H
    slopes = [2 ** (-8 * h / power) for h in range(1, power + 1)]
    if power < num_heads:
        slopes += alibi_slopes(2 * power)[0::2][: num_heads - power]
    return slopes
