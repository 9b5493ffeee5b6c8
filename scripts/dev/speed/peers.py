"""The same model in other libraries, for the benchmark and its tests.

Marian and CTranslate2 can take our weights. The libraries are not dependencies of the project:
``pip install -e '.[peers,export]'`` installs them.
"""

import functools
import math
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from wawa_transformer.common import BOS, EOS, PAD
from wawa_transformer.model.attention import MultiHeadAttention
from wawa_transformer.model.masks import causal_mask
from wawa_transformer.model.transformer import Transformer
from wawa_transformer.run.export import to_ctranslate2


# Cached, so that each missing package is reported once.
@functools.cache
def absent(package: str) -> bool:
    """True if a package is not installed; prints a note."""
    if missing := find_spec(package) is None:
        print(f"skipped: {package} is not installed; pip install -e '.[peers,export]' brings it.")
    return missing


class TorchPeer(nn.Module):
    """``torch.nn.Transformer`` between our embeddings and our output."""

    def __init__(self, vocab: int, d_model: int, layers: int, heads: int, d_ff: int) -> None:
        super().__init__()
        self.ours = Transformer(vocab, vocab, d_model, 1, heads, d_ff, dropout=0.1, seed=0)
        self.stack = nn.Transformer(
            d_model, heads, layers, layers, d_ff, dropout=0.1, batch_first=True, norm_first=True
        )
        del self.ours.encoder_layers, self.ours.decoder_layers

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        scale = math.sqrt(self.ours.d_model)
        hidden = self.stack(
            self.ours.src_position(self.ours.src_embedding(src) * scale),
            self.ours.tgt_position(self.ours.tgt_embedding(tgt) * scale),
            tgt_mask=~causal_mask(tgt.size(1), device=tgt.device),
            tgt_is_causal=True,
            src_key_padding_mask=src == PAD,
            tgt_key_padding_mask=tgt == PAD,
            memory_key_padding_mask=src == PAD,
        )
        return self.ours.output(hidden)


class MarianPeer(nn.Module):
    """Hugging Face's ``MarianMTModel``, from ``(src, tgt)`` to logits."""

    def __init__(self, vocab: int, d_model: int, layers: int, heads: int, d_ff: int) -> None:
        super().__init__()
        self.theirs = marian(like_marian(vocab, d_model, layers, heads, d_ff))

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        return self.theirs(
            input_ids=src, attention_mask=src != PAD, decoder_input_ids=tgt, use_cache=False
        ).logits


def like_marian(vocab: int, d_model: int, layers: int, heads: int, d_ff: int) -> Transformer:
    """Build our model with Marian's choices.

    Marian is post-norm, and its table has all sines before all cosines.
    """
    return Transformer(
        vocab, vocab, d_model, layers, heads, d_ff,
        norm="post", pe="sinusoid_design", pe_settings={"layout": "concatenated"}, seed=0,
    )  # fmt: skip


def marian(ours: Any) -> Any:
    """Build a ``MarianMTModel`` with the weights of ``ours``.

    ``ours`` is a Transformer from :func:`like_marian`.
    """
    from transformers import MarianConfig, MarianMTModel

    layer, vocab = ours.encoder_layers[0], ours.output.out_features
    shape = {
        "layers": ours.num_layers,
        "attention_heads": ours.num_heads,
        "ffn_dim": layer.feed_forward.inner.out_features,
    }
    theirs = MarianMTModel(
        MarianConfig(
            vocab_size=vocab,
            d_model=ours.d_model,
            activation_function="relu",
            dropout=layer.residuals[0].dropout.p,
            attention_dropout=0.0,
            activation_dropout=0.0,
            scale_embedding=True,
            share_encoder_decoder_embeddings=False,
            tie_word_embeddings=False,
            pad_token_id=PAD,
            bos_token_id=BOS,
            eos_token_id=EOS,
            decoder_start_token_id=BOS,
            forced_eos_token_id=None,
            **{f"encoder_{name}": value for name, value in shape.items()},
            **{f"decoder_{name}": value for name, value in shape.items()},
        )
    )
    stacks = theirs.model
    pairs: list[tuple[nn.Module, nn.Module]] = []
    pairs += [(stacks.encoder.embed_tokens, ours.src_embedding)]
    pairs += [(stacks.decoder.embed_tokens, ours.tgt_embedding), (theirs.lm_head, ours.output)]
    for side in ("encoder", "decoder"):
        every = zip(getattr(stacks, side).layers, getattr(ours, f"{side}_layers"), strict=True)
        for to, of in every:
            copy_attention(to.self_attn, of.self_attention)
            norms = [to.self_attn_layer_norm, to.final_layer_norm]
            if side == "decoder":
                copy_attention(to.encoder_attn, of.cross_attention)
                norms.insert(1, to.encoder_attn_layer_norm)
            pairs += zip(norms, (each.norm for each in of.residuals), strict=True)
            pairs += [(to.fc1, of.feed_forward.inner), (to.fc2, of.feed_forward.outer)]
    for to, of in pairs:
        to.load_state_dict(of.state_dict())
    return theirs.train(ours.training)


def copy_attention(to: Any, of: MultiHeadAttention) -> None:
    """Copy attention weights, which are stacked in our model."""
    weights, biases = of.in_proj.weight.chunk(3), of.in_proj.bias.chunk(3)
    for name, weight, bias in zip("qkv", weights, biases, strict=True):
        getattr(to, f"{name}_proj").load_state_dict({"weight": weight, "bias": bias})
    to.out_proj.load_state_dict(of.out_proj.state_dict())


def with_marian(ours: Transformer, source: Tensor, length: int, size: int) -> Callable[[], Tensor]:
    """Make a function that calls Hugging Face's ``generate``.

    ``size`` is the size of the beam.
    """
    theirs = marian(ours).to(source.device)
    asked = {"max_new_tokens": length, "min_new_tokens": length, "do_sample": False}
    asked["num_beams"] = size

    def work() -> Tensor:
        return theirs.generate(input_ids=source, attention_mask=source != 0, **asked)[:, 1:]

    return work


def with_ctranslate2(
    ours: Transformer, source: Tensor, length: int, size: int, folder: Path
) -> Callable[[], Tensor]:
    """Make a function that translates with CTranslate2 in fp32, with as many threads as torch.

    ``size`` is the size of the beam. The words of its vocabulary are ids as text.
    """
    import ctranslate2

    to_ctranslate2(ours, [str(i) for i in range(ours.output.out_features)], folder)
    threads = torch.get_num_threads()
    theirs = ctranslate2.Translator(str(folder), compute_type="float32", intra_threads=threads)
    sentences = [[str(i) for i in row] for row in source[:, :-1].tolist()]  # it adds EOS

    def work() -> Tensor:
        translated = theirs.translate_batch(sentences, beam_size=size, max_decoding_length=length)
        return torch.tensor([[int(word) for word in each.hypotheses[0]] for each in translated])

    return work
