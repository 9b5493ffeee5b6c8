"""Export a trained model as safetensors or for CTranslate2."""

import contextlib
import dataclasses
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError
from safetensors.torch import save_model
from tokenizers import Tokenizer
from torch import Tensor

from wawa_transformer.common import BOS, EOS, UNK
from wawa_transformer.common.files import make_directory, write_atomically
from wawa_transformer.common.messages import UserError, first_line
from wawa_transformer.data.words import read_tokenizer
from wawa_transformer.model.layers import EncoderLayer, ResidualConnection
from wawa_transformer.model.modes import evaluating
from wawa_transformer.model.transformer import Transformer
from wawa_transformer.model.weights import name_of, read_model
from wawa_transformer.positional.base import AbsoluteEncoding, consecutive
from wawa_transformer.positional.placement import overridden
from wawa_transformer.positional.position_ids import PositionIds

POSITIONS = 1024  # in the exported table
TOLERANCE = 1e-3  # of log-probabilities, which another program rounds differently


def to_safetensors(model: Transformer, tokenizer: Tokenizer, directory: Path) -> None:
    """Write ``model.safetensors``, ``tokenizer.json``, and its configuration in ``config.json``."""
    more = {"trained_sizes": model.trained_sizes, "model_class": name_of(model)}
    arguments = {**dataclasses.asdict(model.config), **more}
    # In other programs, too, "[EOS]" in a text is text: none looks for special tokens there.
    words = json.loads(tokenizer.to_str()) | {"added_tokens": []}
    with written(directory, ("model.safetensors", "config.json", "tokenizer.json")) as unfinished:
        save_model(model, str(unfinished / "model.safetensors"))
        write_atomically(unfinished / "config.json", json.dumps(arguments, indent=1) + "\n")
        content = json.dumps(words, indent=2, ensure_ascii=False)
        write_atomically(unfinished / "tokenizer.json", content)
        # The library writes a file for its owner alone.
        mode = (unfinished / "config.json").stat().st_mode
        (unfinished / "model.safetensors").chmod(mode)


@contextlib.contextmanager
def written(directory: Path, names: tuple[str, ...]) -> Iterator[Path]:
    """Fill a folder with the files of an export, ``names``, or leave the folder as it was.

    Raises:
        UserError: the folder holds other files.
    """
    make_directory(directory, "directory", of_runs=False)
    if others := sorted({path.name for path in directory.iterdir()} - {*names}):
        raise UserError(
            f"directory={directory} holds {others[0]}, which is no part of this export; name an "
            f"empty folder."
        )
    with tempfile.TemporaryDirectory(dir=directory) as unfinished:
        try:
            yield Path(unfinished)
        except SafetensorError as error:
            raise UserError(
                f"directory={directory} cannot be written ({first_line(error)}); make room there, "
                f"or name another folder."
            ) from None
        for path in Path(unfinished).iterdir():
            path.replace(directory / path.name)


def from_safetensors(directory: str | Path) -> tuple[Transformer, Tokenizer]:
    """Load a model that :func:`to_safetensors` wrote, and its tokenizer."""
    tokenizer = read_tokenizer((Path(directory) / "tokenizer.json").read_text("utf-8"))
    return read_model(directory), tokenizer


def to_ctranslate2(model: Transformer, words: list[str], directory: Path) -> None:
    """Write a CTranslate2 model in fp32; ``words`` is the vocabulary by id.

    CTranslate2 itself adds EOS to sources, which the exported tokenizer does not.

    Raises:
        UserError: CTranslate2 does not support the model.
    """
    from ctranslate2.specs import TransformerSpec
    from ctranslate2.specs.common_spec import Activation

    def copy(to: Any, of: Any, rows: slice = slice(None)) -> None:
        to.weight = of.weight.detach()[rows].numpy()
        if getattr(of, "bias", None) is not None:
            to.bias = of.bias.detach()[rows].numpy()

    def copy_norm(to: Any, of: Any) -> None:
        if not isinstance(of, torch.nn.LayerNorm):
            raise UserError(
                f"format=ctranslate2 has layer norms alone, and this model has "
                f"{type(of).__name__}; choose format=safetensors."
            )
        to.gamma, to.beta = of.weight.detach().numpy(), of.bias.detach().numpy()

    first = cast(EncoderLayer, model.encoder_layers[0])
    pre = cast(ResidualConnection, first.residuals[0]).pre
    gelu = isinstance(first.feed_forward.activation, torch.nn.GELU)
    spec = TransformerSpec.from_config(
        (model.num_layers, model.num_layers),
        model.num_heads,
        pre_norm=pre,
        activation=Activation.GELU if gelu else Activation.RELU,
    )
    for side, embedding, layers, norm in (
        (spec.encoder, model.src_embedding, model.encoder_layers, model.encoder_norm),
        (spec.decoder, model.tgt_embedding, model.decoder_layers, model.decoder_norm),
    ):
        decodes = side is spec.decoder
        copy(side.embeddings if decodes else side.embeddings[0], embedding)
        side.scale_embeddings = True
        side.position_encodings.encodings = table_of(model, decodes).numpy()
        if pre:
            copy_norm(side.layer_norm, norm)
        for i, to in enumerate(side.layer):
            of: Any = layers[i % len(layers)]
            copy(to.self_attention.linear[0], of.self_attention.in_proj)
            copy(to.self_attention.linear[1], of.self_attention.out_proj)
            norms = [to.self_attention.layer_norm, to.ffn.layer_norm]
            if decodes:
                queries, both = slice(model.d_model), slice(model.d_model, None)
                copy(to.attention.linear[0], of.cross_attention.in_proj, queries)
                copy(to.attention.linear[1], of.cross_attention.in_proj, both)
                copy(to.attention.linear[2], of.cross_attention.out_proj)
                norms.insert(1, to.attention.layer_norm)
            copy(to.ffn.linear_0, of.feed_forward.inner)
            copy(to.ffn.linear_1, of.feed_forward.outer)
            for to_norm, residual in zip(norms, of.residuals, strict=True):
                copy_norm(to_norm, residual.norm)
    copy(spec.decoder.projection, model.output)
    spec.register_source_vocabulary(words)
    spec.register_target_vocabulary(words)
    special = {"bos_token": BOS, "eos_token": EOS, "decoder_start_token": BOS, "unk_token": UNK}
    for name, id in special.items():
        setattr(spec.config, name, words[id])
    spec.config.add_source_bos, spec.config.add_source_eos = False, True
    spec.validate()
    spec.optimize(quantization=None)
    vocabularies = (f"{name}_vocabulary.json" for name in ("shared", "source", "target"))
    with written(directory, ("model.bin", "config.json", *vocabularies)) as unfinished:
        spec.save(str(unfinished))
        check_export(model, words, str(unfinished))


def check_export(model: Transformer, words: list[str], directory: str) -> None:
    """Compare an export for CTranslate2 with the model, on drawn sentences.

    Raises:
        UserError: a layer of the model was changed to what CTranslate2 does not compute.
    """
    from ctranslate2 import Translator

    length = min(8, (model.max_positions or 8) - 1)
    random = torch.Generator().manual_seed(0)
    source, target = torch.randint(len(words), (2, 8, length), generator=random)  # (B,S), (B,T)
    source, target = source.clamp(min=UNK), target.clamp(min=UNK)
    texts = [[[words[i] for i in row] for row in ids.tolist()] for ids in (source, target)]
    end = torch.full((8, 1), EOS)
    source, after = torch.cat((source, end), 1), torch.cat((target, end), 1)
    before = torch.cat((torch.full((8, 1), BOS), target), 1)
    with evaluating(model):
        logits = cast(Tensor, model(source, before))
    own = logits.log_softmax(dim=-1).gather(-1, after[..., None])[..., 0]  # (B,T+1)
    scored = Translator(directory, compute_type="float32").score_batch(*texts)
    difference = (torch.tensor([each.log_probs for each in scored]) - own).abs().max()
    if not difference <= TOLERANCE:
        raise UserError(
            f"format=ctranslate2 gives log-probabilities that are {difference:.2g} away from this "
            f"model's, whose layers compute something else; choose format=safetensors."
        )


def table_of(model: Transformer, target: bool = False) -> Tensor:
    """The table that the encoding adds, ``(N,D)``.

    Raises:
        UserError: the encoding does more than add a row of a table.
    """
    encoding = model.tgt_position if target else model.src_position
    adds = isinstance(encoding, AbsoluteEncoding) and overridden(model.config.pe) == {"embed"}
    adds |= encoding.kind == "none"
    if (
        not adds
        or encoding.added_before != (0,)
        or model.cross_position is not None
        or model.position_ids != PositionIds()
    ):
        raise UserError(
            f"format=ctranslate2 has a table of positions and no more, and this model's pe is "
            f"{encoding.kind} with distances, layers or position ids of its own; choose "
            f"format=safetensors."
        )
    own = model.config
    if own.embedding_scale != "token_up" or own.merged_attention or not own.encoder_sees_all:
        raise UserError(
            "format=ctranslate2 scales embeddings up, lets a source token see all others and has "
            "an attention of its own for the source; with another model.embedding_scale or "
            "model.encoder_mask, model.encoder_window or model.merged_attention=true choose "
            "format=safetensors."
        )
    length = min(POSITIONS, model.max_positions or POSITIONS)
    at, random = consecutive(length), torch.Generator().manual_seed(0)
    x = 9 * torch.randn(1, length, model.d_model, generator=random)
    with torch.no_grad():
        table = encoding.embed(0 * x, at)
        if not torch.allclose(encoding.embed(x, at), x + table, atol=1e-5):
            raise UserError(
                f"format=ctranslate2 adds a table of positions, and pe.kind={encoding.kind} does "
                f"not add; choose format=safetensors."
            )
    return table[0]
