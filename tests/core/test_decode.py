"""Tests of greedy decoding, beam search and sampling."""

import itertools

import numpy as np
import pytest
import torch
from support import MODELS, padded_ids
from torch import Tensor

from wawa_transformer import Transformer
from wawa_transformer.common import BOS, EOS, PAD
from wawa_transformer.common.messages import UserError
from wawa_transformer.data.load import RaggedSequences, load_data
from wawa_transformer.decode import translation
from wawa_transformer.decode.greedy import generate, greedy, most_probable
from wawa_transformer.decode.strategies import Beam, DecodingStrategy, Greedy, Sample

SRC = torch.tensor([[5, 4, 5, 4], [4, 5, 0, 0], [5, 5, 4, 0]])
V, LONGEST = 6, 4


def model_of(name: str = "sinusoidal", seed: int = 0, vocab: int = V) -> Transformer:
    """Build a small model in float64 to which padding and BOS look most probable."""
    model = Transformer(vocab, vocab, 8, 2, 2, 16, **MODELS[name], seed=seed).double().eval()
    with torch.no_grad():
        # A more probable EOS lets some rows end before others.
        model.output.weight[EOS] *= 2
        model.output.weight[:, 0] = 0
        model.output.weight[[PAD, BOS], 0] = 0.03
        model.decoder_norm.bias[0] = 100
    return model


def log_probability(model: Transformer, source: Tensor, ids: Tensor) -> Tensor:
    """Compute the log-probability of each row of ``ids (B,L)``: ``(B,)``, nats."""
    begin = torch.full_like(ids[:, :1], BOS)
    log_p = model(source, torch.cat((begin, ids[:, :-1]), dim=1)).log_softmax(dim=-1)  # (B,L,V)
    return (log_p.gather(-1, ids[..., None])[..., 0] * (ids != PAD)).sum(dim=1)


@pytest.mark.parametrize(
    ("name", "seed"),
    [("sinusoidal", 6), ("shaw_cross_both", 10), ("sinusoidal_end_reset", 6)],
)
def test_greedy_takes_the_most_probable_id_at_every_step(name: str, seed: int) -> None:
    """Greedy decoding equals a loop that decodes the whole prefix again."""
    model, source = model_of(name, seed, vocab=13), padded_ids(12, 12, 0)
    found = greedy(model, source, 9)
    lengths = set()
    for row, src in zip(found.tolist(), source, strict=True):
        prefix = [BOS]
        while len(prefix) <= 9 and prefix[-1] != EOS:
            logits = model(src[None], torch.tensor([prefix]))
            logits[..., [PAD, BOS]] = -torch.inf
            prefix.append(int(logits[0, -1].argmax()))
        assert row == prefix[1:] + [PAD] * (len(row) - len(prefix) + 1)
        lengths.add(len(prefix))
    assert len(lengths) > 1, "some rows must leave the batch before others"
    for method in (Beam(size=1), Greedy()):
        ids, scores = method(model, source, 9)
        assert torch.equal(ids[:, 0], found)
        length = (found != PAD).sum(dim=1) if isinstance(method, Beam) else 1
        torch.testing.assert_close(scores[:, 0] * length, log_probability(model, source, found))


def every_hypothesis() -> list[tuple[int, ...]]:
    """List all hypotheses: ended, or of the greatest length."""
    words = [word for word in range(V) if word not in (PAD, BOS)]
    rows = itertools.product(words, repeat=LONGEST)
    return sorted({row[: row.index(EOS) + 1] if EOS in row else row for row in rows})


@pytest.mark.parametrize(
    ("name", "penalty"), [("sinusoidal", 0.0), ("shaw_cross_both", 0.6), ("sinusoidal_end", 1.0)]
)
def test_a_beam_that_holds_everything_finds_the_best_there_is(name: str, penalty: float) -> None:
    """A beam that holds every hypothesis ranks them as exhaustive scoring does."""
    model = model_of(name)
    ids, scores = Beam(size=700, length_penalty=penalty)(model, SRC, LONGEST)
    every = every_hypothesis()
    padded = torch.tensor([[*h, *[PAD] * (LONGEST - len(h))] for h in every])
    lengths = torch.tensor([len(h) for h in every])
    for row, source in enumerate(SRC):
        source = source[source != PAD][None].expand(len(every), -1)
        expected = log_probability(model, source, padded) / lengths**penalty
        expected, order = expected.sort(descending=True)
        torch.testing.assert_close(scores[row, :20], expected[:20])
        assert torch.equal(ids[row, :20], padded[order[:20]])


@pytest.mark.parametrize("name", ["rotary", "sinusoidal_end_reset"])
def test_each_row_is_searched_as_if_it_were_alone(name: str) -> None:
    """Other rows of the batch do not change a row's search.

    Rows leave the batch at different steps, and each has a limit of its own. A score is log p
    divided by length^penalty.
    """
    model, source = model_of(name, seed=4, vocab=13), padded_ids(12, 12, 0)
    beam, limits = Beam(size=3, length_penalty=0.5), torch.arange(12) % 4 * 3 + 1
    together, scores = beam(model, source, limits)
    for row in range(12):
        alone, score = beam(model, source[row : row + 1, : 12 - row], int(limits[row]))
        assert not together[row, :, limits[row] :].any()
        assert torch.equal(together[row, :, : alone.size(2)], alone[0])
        torch.testing.assert_close(scores[row], score[0])
    assert (scores.diff(dim=1) <= 0).all(), "best first"
    for n in range(3):
        expected = log_probability(model, source, together[:, n])
        lengths = (together[:, n] != PAD).sum(dim=1)
        torch.testing.assert_close(scores[:, n], expected / lengths**0.5)


@pytest.mark.parametrize(("temperature", "top"), [(1.0, None), (0.5, None), (1.0, 2)])
def test_sampling_draws_from_the_distribution(temperature: float, top: int | None) -> None:
    """The first ids of many rows follow the softmax."""
    model, many = model_of(seed=7), 2_000  # whose ids are all drawn
    source = SRC[:1].expand(many, -1)
    ids, scores = Sample(temperature=temperature, top=top)(model, source, 1)
    logits = model(SRC[:1], torch.tensor([[BOS]]))[0, 0]
    logits[[PAD, BOS]] = -torch.inf
    if top:
        logits = logits.masked_fill(logits < logits.topk(top).values[-1], -torch.inf)
    p = (logits / temperature).softmax(dim=-1)
    found = torch.bincount(ids.flatten(), minlength=V) / many
    assert ((found - p).abs() <= 5 * (p * (1 - p) / many).sqrt() + 1e-9).all(), (found, p)
    again, _ = Sample(temperature=temperature, top=top)(model, source, 1)
    other, _ = Sample(temperature=temperature, top=top, seed=1)(model, source, 1)
    assert torch.equal(again, ids) and not torch.equal(other, ids)
    torch.testing.assert_close(scores[:, 0], log_probability(model, source, ids[:, 0]))


def test_a_choice_that_forbids_ids_in_place_has_the_models_score() -> None:
    """The score is the model's log-probability, also where the choice rewrites its logits."""
    model = model_of(seed=7)

    def never_again(logits: Tensor, rows: Tensor) -> Tensor:
        logits[..., EOS] = -torch.inf
        return most_probable(logits)

    ids, scores = generate(model, SRC, LONGEST, never_again)
    torch.testing.assert_close(scores, log_probability(model, SRC, ids))


def test_no_temperature_overflows_into_an_end() -> None:
    """The coldest sample is greedy's; a temperature whose logits are infinite is refused."""
    model, source = model_of(seed=4), SRC[:1]
    coldest = Sample(temperature=1e-6, top=99)  # of six ids
    assert torch.equal(coldest(model, source, 9)[0], Greedy()(model, source, 9)[0])
    for temperature in (0.0, 1e-40, 1e40, torch.inf, torch.nan):
        with pytest.raises(UserError, match=r"decode.temperature=\S+ must be at least 1e-06 and"):
            Sample(temperature=temperature)


@pytest.mark.parametrize("method", [Greedy(), Beam(size=3), Sample()])
def test_a_sentence_is_translated_as_if_it_were_alone(method: DecodingStrategy, tiny) -> None:
    """Longer sentences beside a sentence change neither ids, scores nor the limit.

    The model never ends by itself. A sample also depends on the sentence's place in the text, so
    each sentence is tried at place 0.
    """
    tokenizer = load_data(tiny()).tokenizer
    size = tokenizer.get_vocab_size()
    model = Transformer(size, size, 16, 1, 2, 32, seed=0).eval()
    with torch.no_grad():
        model.output.weight[[PAD, EOS]] = -100.0
        model.decoder_norm.weight.zero_().add_(1e-3)
        model.decoder_norm.bias.fill_(1.0)
    sentences = [[4] * 6 + [EOS], [5, 4, 5, EOS], [5, EOS]]
    for i, sentence in enumerate(sentences):
        order = [sentence, *sentences[:i], *sentences[i + 1 :]]
        together = translation.hypotheses(model, tokenizer, RaggedSequences.of(order), method)[0]
        alone = translation.hypotheses(model, tokenizer, RaggedSequences.of([sentence]), method)[0]
        assert [each.ids for each in together] == [each.ids for each in alone]
        assert {len(each.ids) for each in alone} == {2 * len(sentence) + 10}
        for first, second in zip(together, alone, strict=True):
            assert first.score == pytest.approx(second.score, abs=1e-3)


def test_a_search_of_ones_own_is_held_to_its_contract() -> None:
    """Other shapes and types, unknown ids, more after the end or padding, BOS, no hypothesis."""
    model = model_of()
    ids, scores = Beam(size=3)(model, SRC, LONGEST)
    for wrong in (
        (ids[:, 0], scores[:, 0]),
        (ids[:, 0], scores),
        (ids[:, :2], scores),
        (ids[:2], scores[:2]),
        (ids.flip(1), scores.flip(1)),
        (ids, scores - torch.inf),
        (ids, scores * torch.nan),
        (ids.float(), scores),
        (ids + 10**6, scores),
        (torch.full_like(ids, EOS), scores),
        (torch.cat((torch.full_like(ids[..., :1], PAD), ids), dim=2), scores),
        (torch.cat((torch.full_like(ids[..., :1], BOS), ids), dim=2), scores),
        (ids.tolist(), scores.tolist()),
        (ids, scores, scores),
        ids,
    ):

        class Mine(DecodingStrategy):
            def search(self, *given, wrong=wrong):
                return wrong

        with pytest.raises(UserError, match=r"Mine.search\(\) returns (torch.*of shape|list)"):
            Mine()(model, SRC, LONGEST)


def test_the_limit_of_an_output_follows_from_the_lengths_in_training() -> None:
    """Ten and twice the target that they suggest, within the table of positions."""
    model = Transformer(V, V, 8, 1, 2, 8, pe="learned", pe_settings={"max_len": 95})
    # The longest source and target, and by how much a target is longer than its source at most.
    model.trained_sizes = (10, 20, 4.0)
    sizes = np.array([2, 10, 20, 40])
    assert translation.output_limits(model, sizes, Greedy()).tolist() == [26, 50, 90, 95]
    assert translation.output_limits(model, sizes, Greedy(max_length=7)).tolist() == [7] * 4


def test_a_limit_that_no_output_reaches_takes_no_memory() -> None:
    """A limit of 10^16 ids takes as much as the outputs, which end."""
    model = model_of()
    with torch.no_grad():
        model.output.weight[EOS, 0] = 1  # the most probable id at every step
    for method in (Greedy(), Beam(size=2), Sample()):
        expected = method(model, SRC, LONGEST)
        for ids, few in zip(method(model, SRC, 10**16), expected, strict=True):
            assert torch.equal(ids, few)
