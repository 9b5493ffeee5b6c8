"""The page for who comes from the original file, against torch's own layers in its names."""

import math
import re
from types import SimpleNamespace
from typing import Any

import torch
from support import SCRIPTS
from torch import Tensor, nn

PAGE = (SCRIPTS.parent / "docs" / "from_the_original.md").read_text(encoding="utf-8")
CODE = re.findall(r"^```python\n(.*?)^```$", PAGE, flags=re.M | re.S)
D, WORDS, HEADS, FF = 16, 30, 4, 32


def notes_table(max_len: int, d_model: int) -> Tensor:
    """The notes' table, seq-first and in float32."""
    position = torch.arange(max_len).unsqueeze(1)
    div_term = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
    pe = torch.zeros(max_len, 1, d_model)
    pe[:, 0, 0::2], pe[:, 0, 1::2] = (position * div_term).sin(), (position * div_term).cos()
    return pe


def named(layer: Any) -> SimpleNamespace:
    """A layer of torch under the names of the page, with weights of its own."""

    def parts(attention: nn.MultiheadAttention) -> SimpleNamespace:
        three = zip(attention.in_proj_weight.chunk(3), attention.in_proj_bias.chunk(3), strict=True)
        q, k, v = (SimpleNamespace(weight=weight, bias=bias) for weight, bias in three)
        return SimpleNamespace(q=q, k=k, v=v, out=attention.out_proj)

    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.5)
    norms = [getattr(layer, f"norm{i}") for i in (1, 2, 3) if hasattr(layer, f"norm{i}")]
    names = SimpleNamespace(inner=layer.linear1, outer=layer.linear2, norms=norms)
    names.attention = parts(layer.self_attn)
    if hasattr(layer, "multihead_attn"):
        names.cross = parts(layer.multihead_attn)
    return names


def run(block: str, **names: Any) -> dict[str, Any]:
    """One block of the page, with what it takes for granted."""
    exec(compile(block, "from_the_original.md", "exec"), names)
    return names


def test_the_encoding_of_the_page() -> None:
    """Seq-first in and out, and the table in the shape it has there."""
    got = run(CODE[0])
    there = notes_table(10, 8)
    torch.testing.assert_close(got["y"], got["x"] + there[:5], rtol=0, atol=1e-6)
    torch.testing.assert_close(got["table"], there, rtol=0, atol=1e-6)


def test_the_model_of_the_page_gives_the_originals_logits() -> None:
    """Post-norm, embeddings as they are, seq-first positions, and an output with a bias.

    The same weights and float masks: a word hidden in the source, order in the target.
    """
    kinds = (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)
    encoder, decoder = ([kind(D, HEADS, FF, 0.0, batch_first=True) for _ in "12"] for kind in kinds)
    original = SimpleNamespace(
        src_embedding=nn.Embedding(WORDS, D), tgt_embedding=nn.Embedding(WORDS, D),
        encoder=[*map(named, encoder)], decoder=[*map(named, decoder)], output=nn.Linear(D, WORDS),
    )  # fmt: skip
    src, tgt = torch.randint(1, WORDS, (3, 7)), torch.randint(1, WORDS, (3, 5))
    src[1, 4:] = 0
    src_mask = (src != 0).float()[:, None, None, :]
    src_mask[0, ..., 2] = 0  # not padding: a mask that is left out could not know it
    tgt_mask = torch.ones(5, 5).tril()[None, None]
    model = run(CODE[1], original=original)["model"].eval()
    given = dict(src=src, tgt=tgt, src_mask=src_mask, tgt_mask=tgt_mask)
    logits = run(CODE[2], model=model, **given)["logits"]
    hidden, later = src_mask[:, 0, 0] == 0, tgt_mask[0, 0] == 0
    memory = original.src_embedding(src) + notes_table(7, D).transpose(0, 1)
    for layer in encoder:
        memory = layer(memory, src_key_padding_mask=hidden)
    x = original.tgt_embedding(tgt) + notes_table(5, D).transpose(0, 1)
    for layer in decoder:
        x = layer(x, memory, tgt_mask=later, memory_key_padding_mask=hidden)
    torch.testing.assert_close(logits, original.output(x), rtol=0, atol=1e-5)
