"""Mistakes that the other tests would not notice: each test here was seen to fail with one made."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from wawa_transformer import Transformer
from wawa_transformer.model.layers import ResidualConnection
from wawa_transformer.positional.sinusoidal import PositionalEncoding
from wawa_transformer.train.trainer import train


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_dropout_acts_on_what_a_sublayer_gives(norm: str) -> None:
    """``x + dropout(f(norm(x)))`` and ``norm(x + dropout(f(x)))``, the same draw on both sides."""
    residual, sublayer = ResidualConnection(8, 0.5, norm).train(), nn.Linear(8, 8)
    x = torch.arange(48.0).view(2, 3, 8).sin()

    def drop(y: Tensor) -> Tensor:
        torch.manual_seed(0)
        return nn.Dropout(0.5).train()(y)

    layer_norm = nn.LayerNorm(8)
    expected = (
        x + drop(sublayer(layer_norm(x))) if norm == "pre" else layer_norm(x + drop(sublayer(x)))
    )
    torch.manual_seed(0)
    torch.testing.assert_close(residual(x, sublayer), expected)


def test_position_down_divides_the_encoding_not_the_token(tiny) -> None:
    """Embedding + PE / sqrt(D) (Csordás et al. 2021), and a run's configuration reaches it."""
    ids = torch.tensor([[4, 5, 6]])
    for scale, token, position in (("token_up", 4.0, 1.0), ("position_down", 1.0, 0.25)):
        model = Transformer(9, 9, 16, 1, 2, 32, embedding_scale=scale, seed=0).eval()
        at = model.batch_positions(ids).source
        embedded = model.embed(ids, model.src_embedding, model.src_position, at)
        expected = model.src_embedding(ids) * token + PositionalEncoding(16).pe[:, :3] * position
        torch.testing.assert_close(embedded, expected)
    results = [
        train(tiny(f"model.embedding_scale={scale}", "trainer.steps=2"))["test"]["nll"]
        for scale in ("token_up", "position_down")
    ]
    assert abs(results[0] - results[1]) > 1e-4
