"""What docs/positions.md teaches of positions, on the package's own model."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from wawa_transformer import Transformer
from wawa_transformer.common.special_ids import EOS
from wawa_transformer.positional.base import Encoding, Positions

SIZES: dict[str, Any] = {
    "d_model": 64, "num_layers": 1, "num_heads": 4, "d_ff": 128, "dropout": 0.0, "seed": 0
}  # fmt: skip


class Integer(Encoding):
    """The position itself, added to every dimension."""

    def embed(self, x: torch.Tensor, positions: Positions) -> torch.Tensor:
        return x + positions.ids[:, 0, :, None]  # (1,S) -> (1,S,1)


@pytest.mark.parametrize(("norm", "invisible"), [("pre", True), ("post", False)])
def test_an_added_integer_is_invisible_to_pre_norm_and_loud_with_post_norm(
    norm: str, invisible: bool
) -> None:
    """On the logits of an untrained model: a layer norm removes what all dimensions share."""
    model = Transformer(20, 20, pe="none", norm=norm, **SIZES).eval()
    source = torch.randint(3, 20, (4, 10))
    with torch.no_grad():
        without = model(source, source)
        model.src_position = Integer(model.src_position.context)
        model.tgt_position = Integer(model.tgt_position.context)
        moved = (model(source, source) - without).abs().max().item()
    assert moved < 1e-4 if invisible else moved > 1


def test_an_end_symbol_tells_a_sequence_from_its_mirror() -> None:
    """With ALiBi, which is symmetric: alike without EOS, and different with it."""
    model = Transformer(20, 20, pe="alibi", **SIZES).eval()
    source = torch.tensor([[5, 6, 7, 8]])
    ended = torch.tensor([[5, 6, 7, 8, EOS], [8, 7, 6, 5, EOS]])
    with torch.no_grad():
        memory, mirror = model.encode(source), model.encode(source.flip(1))
        torch.testing.assert_close(memory, mirror.flip(1))
        memory, mirror = model.encode(ended)[:, :4]
        assert (memory - mirror.flip(0)).abs().max() > 0.01
