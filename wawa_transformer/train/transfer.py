"""Start a run from another run's weights, ``trainer.init_from``."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from types import MappingProxyType
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor

from wawa_transformer.common.messages import UserError, first_line
from wawa_transformer.data.words import read_tokenizer
from wawa_transformer.model.config import MODEL, TransformerConfig
from wawa_transformer.model.transformer import Transformer
from wawa_transformer.run.saved import load_source, weights_digest
from wawa_transformer.train.checkpoint import load_weights

# Tensors with a row for each word, and the rooms whose tensors depend on the encoding.
BY_WORD = ("src_embedding.weight", "tgt_embedding.weight", "output.weight")
POSITIONS = ("src_position.", "tgt_position.", "cross_position.")
SHOWN = 3  # names in a line


def start_from(
    place: str, digest: str | None, model: Transformer, tokenizer: Tokenizer
) -> dict[str, Any]:
    """Copy the weights of the run ``place`` into ``model`` where names and shapes match.

    If the vocabularies differ, a word that both have keeps its row. What the encoding trains may
    have another shape, and starts anew. Returns the number of names ``matched``; the names that are
    ``new``, with ``shapes`` where the source has others; the names ``left`` out of the source; the
    ``settings`` in which the models differ; and how many ``words`` both have, of how many here.

    Raises:
        UserError: there are no such weights, they changed since the command began, a layer has
            another shape, or nothing matches.
    """
    source = load_source(place)
    if (now := weights_digest(source["model"])) != digest:
        raise UserError(
            f"trainer.init_from={place} had weights with digest {digest} when this command began, "
            f"and has {now} now; wait until that run has finished, and give the command again."
        )
    given, own = source["model"], model.state_dict()
    rows = shared_rows(source, tokenizer)
    chosen: dict[str, Tensor] = {}
    shapes: dict[str, str] = {}
    own_kinds = kinds_of(asdict(model.config))
    kinds = kinds_of(source["transformer"]) if "transformer" in source else own_kinds
    # Equal shapes may mean other things in another encoding: distances are no positions.
    pairs = zip(POSITIONS, kinds, own_kinds, strict=True)
    foreign = tuple(room for room, there, here in pairs if there != here)
    for name in (name for name in own if name in given):
        if name.startswith(foreign) and given[name].shape == own[name].shape:
            continue
        value = given[name]
        if rows is not None and name in BY_WORD and value.shape[1:] == own[name].shape[1:]:
            chosen[name] = own[name].clone()
            chosen[name][rows[0]] = value[rows[1]].to(own[name])
        elif value.shape == own[name].shape:  # a float of another precision is rounded
            chosen[name] = value.to(own[name]) if value.is_floating_point() else value
        else:
            shapes[name] = f"{size(value)} there, {size(own[name])} here"
    # What an encoding trains may have another shape.
    wrong = {name: sizes for name, sizes in shapes.items() if not name.startswith(POSITIONS)}
    if wrong:
        raise UserError(
            f"trainer.init_from={place} has other shapes: {listed(wrong, wrong)}; give "
            f"model.d_model, model.d_ff and task.vocab_size the values of that run."
        )
    new = [name for name in own if name not in chosen]
    if not chosen:
        raise UserError(
            f"trainer.init_from={place} has nothing that this model has: {listed(new, shapes)} are "
            f"not in it; name a run of this program's Transformer."
        )
    refuse_shared(place, chosen, own)
    try:
        load_weights(model, {**own, **chosen})
    except (ValueError, RuntimeError) as error:
        raise UserError(
            f"trainer.init_from={place} has weights that cannot be used ({first_line(error)}); "
            f"name another run."
        ) from None
    return {
        "matched": len(chosen),
        "new": new,
        "shapes": shapes,
        "left": [name for name in given if name not in chosen],
        "settings": other_settings(source.get("transformer", {}), model.config),
        "words": None if rows is None else [len(rows[0]), tokenizer.get_vocab_size()],
    }


def kinds_of(shape: dict[str, Any]) -> tuple[str, str, str]:
    """The kinds of encoding in encoder, decoder and cross-attention."""
    pe, cross = shape["pe"], shape.get("cross", "none")
    same = cross == "same" or "cross" in (shape.get("where") or ())
    return pe, pe, pe if same else cross


def other_settings(source: dict[str, Any], own: TransformerConfig) -> list[str]:
    """List the model's settings in which two models differ, dropout aside."""
    return [
        f"{key} {source[key]} there, {getattr(own, key)} here"
        for key in MODEL
        if key != "dropout" and key in source and source[key] != getattr(own, key)
    ]


def shared_rows(source: dict[str, Any], tokenizer: Tokenizer) -> tuple[Tensor, Tensor] | None:
    """Find the ids of the words that both vocabularies have, here and in the source.

    None if the vocabularies are equal, or the source's is not known.
    """
    if "tokenizer" not in source:
        return None
    before, now = read_tokenizer(source["tokenizer"]).get_vocab(), tokenizer.get_vocab()
    if before == now:
        return None
    both = sorted(now.keys() & before.keys())
    return torch.tensor([now[word] for word in both]), torch.tensor([before[word] for word in both])


def size(weights: Tensor) -> str:
    """Write a shape as 64x256."""
    return "x".join(map(str, weights.shape)) or "1"


def refuse_shared(place: str, chosen: dict[str, Tensor], own: dict[str, Tensor]) -> None:
    """Refuse two different tensors for one that the model shares under two names."""
    first: dict[int, str] = {}
    for name, value in chosen.items():
        other = first.setdefault(own[name].data_ptr(), name)
        if other != name and not torch.equal(value, chosen[other]):
            raise UserError(
                f"trainer.init_from={place} has different weights {other} and {name}, and here "
                f"they are one; set model.tie_embeddings and pe.tie_sides as in that run."
            )


def listed(names: Iterable[str], shapes: Mapping[str, str] = MappingProxyType({})) -> str:
    """List the first names, each with its ``shapes`` if it has two, and count the others."""
    said = [f"{name} ({shapes[name]})" if name in shapes else name for name in names]
    more = f" and {len(said) - SHOWN} more" if len(said) > SHOWN else ""
    return f"{', '.join(said[:SHOWN])}{more}"


def transfer_line(place: str, init: dict[str, Any]) -> str:
    """Say in one line what came from another run and what did not."""
    said = [f"{init['matched']} of {init['matched'] + len(init['new'])} tensors start from {place}"]
    if init["words"]:
        said.append(f"{init['words'][0]} of {init['words'][1]} words are in its vocabulary")
    if init["settings"]:
        said.append(f"the model differs in {', '.join(init['settings'])}")
    for key, words in (("new", "start anew"), ("left", "left out")):
        if init[key]:
            said.append(f"{words}: {listed(init[key], init['shapes'])}")
    return "; ".join(said)
