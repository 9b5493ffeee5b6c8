"""The model and decoding against Hugging Face's with the same weights."""

from typing import Any

import pytest
import torch
from speed import peers

from wawa_transformer import Transformer, check_model
from wawa_transformer.common import BOS, EOS, PAD
from wawa_transformer.decode.greedy import greedy
from wawa_transformer.decode.strategies import Beam

SOURCE = torch.randint(4, 50, (9, 7), generator=torch.Generator().manual_seed(0))
SOURCE[3:, 5:] = 0


def ending(model: Transformer) -> Transformer:
    """The same, so that some targets end before others."""
    with torch.no_grad():
        model.output.weight[EOS] *= 2
    return model.eval()


def test_marian() -> None:
    """Hugging Face's: logits, and what ``generate`` decodes."""
    ours = ending(peers.like_marian(50, 16, 2, 2, 32))
    theirs, real = peers.marian(ours), SOURCE != 0
    with torch.no_grad():
        expected = theirs(input_ids=SOURCE, attention_mask=real, decoder_input_ids=SOURCE).logits
        # Where the target is padding theirs sees other padding; nobody asks for those.
        torch.testing.assert_close(ours(SOURCE, SOURCE)[real], expected[real], rtol=0, atol=1e-5)
    asked = {"max_new_tokens": 12, "num_beams": 1, "do_sample": False}
    expected = theirs.generate(input_ids=SOURCE, attention_mask=real, **asked)
    assert torch.equal(greedy(ours, SOURCE, 12), expected[:, 1:])


@pytest.mark.parametrize("penalty", [0.0, 0.6, 1.0])
def test_marians_beam(penalty: float) -> None:
    """All hypotheses of each sentence in their order, and their scores."""
    ours = ending(peers.like_marian(50, 16, 2, 2, 32))
    theirs = peers.marian(ours)
    found = theirs.generate(
        input_ids=SOURCE, attention_mask=SOURCE != 0, max_new_tokens=12, do_sample=False,
        num_beams=4, num_return_sequences=4, length_penalty=penalty, early_stopping=False,
        return_dict_in_generate=True, output_scores=True, suppress_tokens=[PAD, BOS],
    )  # fmt: skip
    ids, scores = Beam(size=4, length_penalty=penalty)(ours, SOURCE, 12)
    expected = found.sequences[:, 1:].view(len(SOURCE), 4, -1)
    after = (expected == EOS).cumsum(dim=-1) > (expected == EOS)  # what follows an end
    assert torch.equal(ids, expected.masked_fill(after, 0)[..., : ids.size(2)])
    torch.testing.assert_close(scores.flatten(), found.sequences_scores, rtol=0, atol=1e-5)
    assert len(set((ids != 0).sum(dim=-1).flatten().tolist())) > 2


@pytest.mark.parametrize("name", ["marian", "t5"])
def test_hugging_faces_models_keep_their_promises(name: str) -> None:
    """Marian and T5 with random weights: logits and greedy decoding with a cache."""
    import transformers  # takes seconds

    torch.manual_seed(0)
    small: Any = dict(vocab_size=40, d_model=16, decoder_start_token_id=0, pad_token_id=0,
                      eos_token_id=2)  # fmt: skip
    model: Any
    if name == "marian":
        shape: Any = dict(encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
                          decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=32,
                          forced_eos_token_id=None, max_position_embeddings=64)  # fmt: skip
        model = transformers.MarianMTModel(transformers.MarianConfig(**small, **shape))
    else:
        shape = dict(d_kv=8, d_ff=32, num_layers=1, num_heads=2)
        model = transformers.T5ForConditionalGeneration(transformers.T5Config(**small, **shape))
    model.eval()

    def logits(source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        given = dict(input_ids=source, attention_mask=source != 0, decoder_input_ids=target)
        return model(**given).logits

    def generate(source: torch.Tensor, steps: int) -> tuple[torch.Tensor, torch.Tensor]:
        out = model.generate(
            input_ids=source, attention_mask=source != 0, max_new_tokens=steps, num_beams=1,
            do_sample=False, bad_words_ids=[[0]], output_logits=True, return_dict_in_generate=True,
        )  # fmt: skip
        return out.sequences[:, 1:], torch.stack(out.logits, dim=1)

    assert not check_model(logits, generate, vocab_size=40, pad=0, bos=0, eos=2).broken
