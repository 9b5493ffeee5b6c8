"""Beam search against all sequences there are, sampling against its distribution."""

from __future__ import annotations

import itertools

import pytest
import torch
from conftest import MODELS

from wawa_transformer import Transformer
from wawa_transformer.common.special_ids import BOS, EOS, PAD
from wawa_transformer.decode.greedy import greedy
from wawa_transformer.decode.strategies import Beam, Greedy, Sample

SRC = torch.tensor([[5, 4, 5, 4], [4, 5, 0, 0], [5, 5, 4, 0]])
V, LONGEST = 6, 4


def model_of(name: str = "sinusoidal", seed: int = 0, vocab: int = V) -> Transformer:
    """Small, in float64; never chooses padding, which looks like what follows an end."""
    model = Transformer(vocab, vocab, 8, 2, 2, 16, **MODELS[name], seed=seed).double().eval()
    with torch.no_grad():
        model.output.weight[EOS] *= 2
        model.output.weight[:, 0] = 0
        model.output.weight[PAD, 0] = -1
        model.decoder_norm.bias[0] = 100
    return model


def log_probability(model: Transformer, source: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Of each row of ``ids (B,L)``, computed from the whole sequence: nats, ``(B,)``."""
    begin = torch.full_like(ids[:, :1], BOS)
    log_p = model(source, torch.cat((begin, ids[:, :-1]), dim=1)).log_softmax(dim=-1)  # (B,L,V)
    return (log_p.gather(-1, ids[..., None])[..., 0] * (ids != PAD)).sum(dim=1)


def every_hypothesis() -> list[tuple[int, ...]]:
    """All there are: ended, or as long as they may be."""
    words = [word for word in range(V) if word not in (PAD, EOS)]
    ended = [
        (*first, EOS)
        for length in range(LONGEST)
        for first in itertools.product(words, repeat=length)
    ]
    return ended + list(itertools.product(words, repeat=LONGEST))


@pytest.mark.parametrize("penalty", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("name", ["sinusoidal", "shaw_cross_both", "sinusoidal_end"])
def test_a_beam_that_holds_everything_finds_the_best_there_is(name: str, penalty: float) -> None:
    """The first hypotheses and their scores, against all sequences scored one by one."""
    model = model_of(name)
    ids, scores = Beam(size=700, length_penalty=penalty)(model, SRC, LONGEST)
    every = every_hypothesis()
    padded = torch.tensor([[*h, *[PAD] * (LONGEST - len(h))] for h in every])
    lengths = torch.tensor([len(h) for h in every])
    for row, source in enumerate(SRC):
        source = source[source != PAD][None].expand(len(every), -1)
        expected, order = (log_probability(model, source, padded) / lengths**penalty).sort(
            descending=True
        )
        torch.testing.assert_close(scores[row, :20], expected[:20])
        assert torch.equal(ids[row, :20], padded[order[:20]])


@pytest.mark.parametrize("name", ["sinusoidal", "t5_cross", "sinusoidal_end_restart"])
def test_a_beam_of_one_is_greedy(name: str) -> None:
    """In a batch whose rows end one after the other."""
    model = model_of(name, seed=6, vocab=11)
    source = torch.randint(4, 11, (40, 7), generator=torch.Generator().manual_seed(0))
    expected = greedy(model, source, 12)
    assert len(set((expected != PAD).sum(dim=1).tolist())) > 1
    ids, scores = Beam(size=1)(model, source, 12)
    assert torch.equal(ids[:, 0], expected)
    greedily, log_p = Greedy()(model, source, 12)
    assert torch.equal(greedily, ids)
    torch.testing.assert_close(scores * (expected != PAD).sum(dim=1, keepdim=True), log_p)


@pytest.mark.parametrize("name", ["shaw_cross", "shaw_cross_both", "sinusoidal_end_restart"])
def test_each_row_is_searched_as_if_it_were_alone(name: str) -> None:
    """Whoever else is in the batch, and whoever leaves it; positions may be a row's own."""
    model = model_of(name, seed=6, vocab=11)
    source = torch.randint(4, 11, (12, 7), generator=torch.Generator().manual_seed(0))
    source[6:, 4:] = PAD
    beam = Beam(size=3, length_penalty=0.5)
    together, scores = beam(model, source, 10)
    for row in range(12):
        alone, score = beam(model, source[row : row + 1, : 7 if row < 6 else 4], 10)
        assert torch.equal(together[row, :, : alone.size(2)], alone[0])
        torch.testing.assert_close(scores[row], score[0])
    assert (scores.diff(dim=1) <= 0).all(), "best first"
    model.train()
    beam(model, source, 2)
    assert model.training, "the mode is left as it was"


def test_scores_are_those_of_the_model() -> None:
    """log p of every hypothesis, computed from the whole sequence, over its length to the power."""
    model = model_of("rotary", seed=6, vocab=11)
    source = torch.randint(4, 11, (5, 6), generator=torch.Generator().manual_seed(0))
    ids, scores = Beam(size=4, length_penalty=0.7)(model, source, 8)
    for n in range(4):
        expected = log_probability(model, source, ids[:, n])
        torch.testing.assert_close(scores[:, n], expected / (ids[:, n] != PAD).sum(dim=1) ** 0.7)


@pytest.mark.parametrize(("temperature", "top"), [(1.0, None), (0.5, None), (1.0, 2)])
def test_sampling_draws_from_the_distribution(temperature: float, top: int | None) -> None:
    """First ids of many rows against the softmax, within five standard errors."""
    model, many = model_of(seed=4), 20_000
    source = SRC[:1].expand(many, -1)
    ids, scores = Sample(temperature=temperature, top=top)(model, source, 1)
    logits = model(SRC[:1], torch.tensor([[BOS]]))[0, 0]
    if top:
        logits = logits.masked_fill(logits < logits.topk(top).values[-1], -torch.inf)
    p = (logits / temperature).softmax(dim=-1)
    found = torch.bincount(ids.flatten(), minlength=V) / many
    assert ((found - p).abs() <= 5 * (p * (1 - p) / many).sqrt() + 1e-9).all(), (found, p)
    again, _ = Sample(temperature=temperature, top=top)(model, source, 1)
    other, _ = Sample(temperature=temperature, top=top, seed=1)(model, source, 1)
    assert torch.equal(again, ids) and not torch.equal(other, ids)
    torch.testing.assert_close(scores[:, 0], log_probability(model, source, ids[:, 0]))
