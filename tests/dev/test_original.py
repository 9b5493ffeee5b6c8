"""The page for who comes from the original file, against such a file written down here."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
import torch
from conftest import SCRIPTS
from torch import Tensor, nn

from wawa_transformer import PositionalEncoding

PAGE = (SCRIPTS.parent / "docs" / "from_the_original.md").read_text(encoding="utf-8")
CODE = re.findall(r"^```python\n(.*?)^```$", PAGE, flags=re.M | re.S)
D, WORDS, HEADS, FF = 16, 30, 4, 32


class Position(nn.Module):
    """The notes' table, seq-first and in float32."""

    def __init__(self, d_model: int, max_len: int) -> None:
        super().__init__()
        position = torch.arange(max_len).unsqueeze(1)
        div_term = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
        pe = torch.zeros(max_len, 1, d_model)
        pe[:, 0, 0::2], pe[:, 0, 1::2] = (position * div_term).sin(), (position * div_term).cos()
        self.register_buffer("pe", pe)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.pe[: x.size(0)]


class Attention(nn.Module):
    """Head by head; where the mask is 0 the score is −1e9."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(D, D) for _ in range(4))

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        heads = []
        for columns in torch.arange(D).chunk(HEADS):
            q, k, v = (
                layer(given)[..., columns]
                for layer, given in ((self.q, x), (self.k, memory), (self.v, memory))
            )
            scores = q @ k.transpose(1, 2) / math.sqrt(D // HEADS)
            heads.append(scores.masked_fill(mask[:, 0] == 0, -1e9).softmax(-1) @ v)
        return self.out(torch.cat(heads, -1))


class Layer(nn.Module):
    """Post-norm; with ``memory`` a decoder's."""

    def __init__(self, decoder: bool) -> None:
        super().__init__()
        self.attention = Attention()
        if decoder:
            self.cross = Attention()
        self.inner, self.outer = nn.Linear(D, FF), nn.Linear(FF, D)
        self.norms = nn.ModuleList(nn.LayerNorm(D) for _ in range(2 + decoder))

    def forward(self, x: Tensor, mask: Tensor, memory: Any = None, over: Any = None) -> Tensor:
        x = self.norms[0](x + self.attention(x, x, mask))
        if memory is not None:
            x = self.norms[1](x + self.cross(x, memory, over))
        return self.norms[-1](x + self.outer(self.inner(x).relu()))


class Original(nn.Module):
    """No scaling of embeddings, seq-first positions, an output with a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.src_embedding, self.tgt_embedding = nn.Embedding(WORDS, D), nn.Embedding(WORDS, D)
        self.position = Position(D, 50)
        self.encoder = nn.ModuleList(Layer(decoder=False) for _ in range(2))
        self.decoder = nn.ModuleList(Layer(decoder=True) for _ in range(2))
        self.output = nn.Linear(D, WORDS)

    def forward(self, src: Tensor, tgt: Tensor, src_mask: Tensor, tgt_mask: Tensor) -> Tensor:
        memory = self.position(self.src_embedding(src).transpose(0, 1)).transpose(0, 1)
        for layer in self.encoder:
            memory = layer(memory, src_mask)
        x = self.position(self.tgt_embedding(tgt).transpose(0, 1)).transpose(0, 1)
        for layer in self.decoder:
            x = layer(x, tgt_mask, memory, src_mask)
        return self.output(x)


def run(block: str, **names: Any) -> dict[str, Any]:
    """One block of the page, with what it takes for granted."""
    exec(compile(block, "from_the_original.md", "exec"), names)
    return names


def test_the_encoding_of_the_page() -> None:
    """Seq-first in and out, and the table in the shape it has there."""
    got = run(CODE[0])
    there = Position(8, 10)
    torch.testing.assert_close(got["y"], there(got["x"]), rtol=0, atol=1e-6)
    torch.testing.assert_close(got["table"], there.pe, rtol=0, atol=1e-6)


def test_the_model_of_the_page_gives_the_originals_logits() -> None:
    """The same weights, the same float masks: a word hidden in the source, order in the target."""
    torch.manual_seed(0)
    original = Original()
    with torch.no_grad():
        for norm in (m for m in original.modules() if isinstance(m, nn.LayerNorm)):
            norm.weight.normal_(), norm.bias.normal_()
    src, tgt = torch.randint(1, WORDS, (3, 7)), torch.randint(1, WORDS, (3, 5))
    src[1, 4:] = 0
    src_mask = (src != 0).float()[:, None, None, :]
    src_mask[0, ..., 2] = 0  # not padding: a mask that is left out could not know it
    tgt_mask = torch.ones(5, 5).tril()[None, None]
    model = run(CODE[1], original=original)["model"].eval()
    given = dict(src=src, tgt=tgt, src_mask=src_mask, tgt_mask=tgt_mask)
    logits = run(CODE[2], model=model, **given)["logits"]
    torch.testing.assert_close(logits, original(**given), rtol=0, atol=1e-5)


def test_the_table_is_in_no_state_and_a_longer_input_is_no_error() -> None:
    """What the page says of loading a state with the key ``pe``, and of growing."""
    ours, there = PositionalEncoding(8, 10, 0.0), Position(8, 10)
    with pytest.raises(RuntimeError, match='Unexpected key.*"pe"'):
        ours.load_state_dict(there.state_dict())
    assert ours(torch.zeros(1, 20, 8)).shape == (1, 20, 8)
    with pytest.raises(RuntimeError):
        there(torch.zeros(20, 1, 8))
