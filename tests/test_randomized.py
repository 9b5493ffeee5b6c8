"""Positions at random while training: what is drawn, what both sides share, what stays."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from wawa_transformer.positional import (
    Draw,
    Encoding,
    Place,
    SequenceTooLong,
    build,
    sinusoid_table,
)

D = 12


def pair(kind: str, **given: Any) -> tuple[Encoding, Encoding]:
    """The encoder's and the decoder's instance of one model, in training."""
    draw = Draw()
    source = build(kind, Place(D, dropout=0.0, role="encoder", draw=draw), given)
    target = build(kind, Place(D, dropout=0.0, role="decoder", draw=draw), given)
    return source.train(), target.train()


@pytest.mark.parametrize("kind", ["sinusoidal_shifted", "learned_shifted"])
def test_source_and_target_start_at_one_random_position(kind: str) -> None:
    """Uniform in 0 … max_shift, the same on both sides; evaluation starts at 0."""
    source, target = pair(kind, max_shift=3)
    x = torch.zeros(1, 5, D)
    source.eval(), target.eval()
    rows = {i: source(x, i) for i in range(4)}
    twin = {i: target(x, i) for i in range(4)}
    source.train(), target.train()
    seen = set()
    for _ in range(60):
        added = source(x)
        start = next(i for i in rows if torch.equal(rows[i], added))
        assert torch.equal(target(x), twin[start])
        seen.add(start)
    assert seen == {0, 1, 2, 3}
    source.eval()
    assert torch.equal(source(x), rows[0])


def test_random_positions_are_sorted_and_shared() -> None:
    """Strictly increasing, below max_len, and the shorter side's are among the longer side's."""
    source, target = pair("randomized", max_len=30, stride=2)
    table = sinusoid_table(30, D)[0]

    def positions(encoding: Encoding, length: int) -> list[int]:
        added = encoding(torch.zeros(1, length, D))[0]
        return [int((table - row).abs().sum(-1).argmin()) for row in added]

    drawn = set()
    for _ in range(60):  # that one of 30 is never among 8 drawn: 3 in 10 million
        longer, shorter = positions(source, 8), positions(target, 6)
        assert longer == sorted(set(longer)) and set(shorter) <= set(longer)
        drawn |= set(longer)
    assert len(drawn) == 30
    assert positions(source.eval(), 8) == list(range(0, 16, 2))
    assert torch.equal(source(torch.zeros(1, 2, D), 6), source(torch.zeros(1, 8, D))[:, 6:])
    with pytest.raises(SequenceTooLong, match=r"16 positions .* set pe.max_len=32 or more"):
        source(torch.zeros(1, 16, D))


def test_nested_dropout_keeps_the_first_dimensions() -> None:
    """Each example keeps a prefix of its dimensions, of every length; evaluation keeps all."""
    encoding, _ = pair("sinusoidal_nested")
    out = encoding(torch.full((400, 2, D), 9.0))  # 9 plus a sine is never 0
    kept = (out != 0).sum(-1)
    assert (kept == kept[:, :1]).all() and set(kept[:, 0].tolist()) == set(range(1, D + 1))
    assert ((out != 0).int().diff(dim=-1) <= 0).all()
    assert (encoding.eval()(torch.full((4, 2, D), 9.0)) != 0).all()


def test_an_impossible_stride_is_named() -> None:
    """The value, the limit, the key."""
    with pytest.raises(ValueError, match="pe.stride=0 must lie between 1 and pe.max_len=128"):
        build("randomized", Place(D), {"stride": 0})
