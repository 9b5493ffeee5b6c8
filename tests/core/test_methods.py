"""Published methods written from the tutorial alone pass the check.

A convolution and positions divided by the batch's length do not; test_check has both.
"""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from wawa_transformer.model.check import require_promises
from wawa_transformer.model.config import TransformerConfig
from wawa_transformer.positional.alibi import ALiBi
from wawa_transformer.positional.base import ENCODINGS, Encoding, EncodingContext, Positions
from wawa_transformer.positional.kerple import Kerple
from wawa_transformer.positional.relative import RelativeEncoding
from wawa_transformer.positional.rotary import Rotary

SIZES: dict[str, Any] = {
    "d_model": 32, "num_layers": 3, "num_heads": 4, "d_ff": 8, "dropout": 0.0,
}  # fmt: skip


pytestmark = pytest.mark.usefixtures("registry")


class LayerMix(Encoding):
    """Rotary in the lower layers, a trained kernel in the upper ones."""

    per_layer, relative = True, True

    def __init__(self, context: EncodingContext) -> None:
        super().__init__(context)
        assert context.layer is not None
        self.lower = context.layer * 2 < context.num_layers
        self.rotary, self.kernel = Rotary(context), Kerple(context)

    def rotate(
        self, q: Tensor, k: Tensor, query: Positions, key: Positions
    ) -> tuple[Tensor, Tensor]:
        return self.rotary.rotate(q, k, query, key) if self.lower else (q, k)

    def bias(self, q: Tensor, k: Tensor, query: Positions, key: Positions) -> Tensor | None:
        return None if self.lower else self.kernel.bias(q, k, query, key)


class Sandwich(RelativeEncoding):
    """A sum of cosines of the distance (Chi et al. 2023)."""

    content_independent = True

    def bias(self, q: Tensor, k: Tensor, query: Positions, key: Positions) -> Tensor:
        rate = 10000.0 ** (-torch.arange(8) / 8)
        far = self.distances(query, key)[..., None]  # (b,h,Q,K,1)
        return (far * rate).cos().sum(-1).to(q.dtype)


class DAPE(ALiBi):
    """A small network of the score and ALiBi's penalty (Zheng et al. 2024)."""

    content_independent = False

    def __init__(self, context: EncodingContext) -> None:
        super().__init__(context)
        heads = context.num_heads
        self.net = nn.Sequential(nn.Linear(2 * heads, 8), nn.GELU(), nn.Linear(8, heads))

    def bias(self, q: Tensor, k: Tensor, query: Positions, key: Positions) -> Tensor:
        far = super().bias(q, k, query, key)
        scores = q @ k.mT / self.context.head_width**0.5  # (B,H,Q,K)
        both = torch.cat((scores, far.expand_as(scores)), dim=1).movedim(1, -1)
        return far + self.net(both).movedim(-1, 1)


@pytest.mark.parametrize("cls", [LayerMix, Sandwich, DAPE])
@pytest.mark.parametrize("cross", ["none", "same"])
def test_a_published_method_passes(cls: type[Encoding], cross: str) -> None:
    """Written as the tutorial says, the method keeps every promise, in cross-attention too."""
    ENCODINGS["own"] = cls
    require_promises(TransformerConfig(9, 9, **SIZES, pe="own", cross=cross), 12)
