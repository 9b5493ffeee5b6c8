"""Check a configuration, and build its model."""

import contextlib
import dataclasses
import inspect
import json
import re
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from tokenizers import Tokenizer

from wawa_transformer.common import UNK
from wawa_transformer.common.messages import UserError, first_line
from wawa_transformer.common.schema import check, choose, typed
from wawa_transformer.data.tasks import build_task, task_settings
from wawa_transformer.model.config import TransformerConfig
from wawa_transformer.model.init import draws_from
from wawa_transformer.model.transformer import Transformer, positions_of
from wawa_transformer.positional.base import ENCODINGS, EncodingContext
from wawa_transformer.run.device import total_memory
from wawa_transformer.run.schema import Config, PeConfig

# Names become folders, and ".." or "/" would lead out of output_dir.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,99}")
# Beside its tasks, a study's folder holds files and folders of its own.
OF_STUDY = re.compile(r"means|figures|lock|.*\.(csv|yaml|md|html|log|tmp)")


def check_values(config: DictConfig) -> None:
    """Refuse missing values and broken references."""
    try:
        OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    except (OmegaConfBaseException, RecursionError) as error:  # the latter: ${seed} as the seed
        key = getattr(error, "full_key", None) or "an interpolation"
        raise UserError(f"{key}: {first_line(error)}.") from None


def check_schema(config: DictConfig) -> None:
    """Check the schema's limits, and the names of ``pe`` and ``task``."""
    check_values(config)
    check(Config, config)
    for key in ("study.name", "task.name", "pe.name"):
        name = OmegaConf.select(config, key)
        if not (isinstance(name, str) and NAME.fullmatch(name)):
            raise UserError(
                f"{key}={name} must be a plain name of up to 100 letters, digits and any of "
                f"_ . - + ; where something is written is output_dir or run_dir."
            )
    if OF_STUDY.fullmatch(config.task.name):
        raise UserError(
            f"task.name={config.task.name} is the name of a file or folder that a study writes; "
            f"give another name."
        )


def check_settings(config: DictConfig) -> None:
    """Check the relations between fields, and the encoding's settings."""
    if config.pe.name == "none" != config.pe.get("kind"):
        raise UserError(
            f"pe.name=none is how a report knows the model without an encoding, and this one is "
            f"pe.kind={config.pe.get('kind')}; give another name."
        )
    trainer = config.trainer
    if trainer.compile_mode != "default" and not (
        trainer.compile and trainer.grad_accum_steps == 1
    ):
        # A CUDA graph overwrites the previous batch's gradients (pytorch#169545).
        raise UserError(
            f"trainer.compile_mode={trainer.compile_mode} needs trainer.compile=true and "
            f"trainer.grad_accum_steps=1; set these, or trainer.compile_mode=default."
        )
    shape = transformer_config(config)
    if shape.origin == "abacus" and not build_task(config).words:
        raise UserError(
            f"pe.origin=abacus counts the digits of numbers, and task={config.task.name} is text "
            f"in pieces, each of which it would count as a digit; choose another pe.origin, or "
            f"task.words=true for a text of digits with spaces between them."
        )
    check_memory(config, shape, trainer.device)
    numbers = [each for each in (shape.pe_settings or {}).values() if isinstance(each, int)]
    # The meta device takes no memory, but importing it takes a second (torch's compiler).
    with torch.device("meta" if max(numbers, default=0) > 10_000 else "cpu"):
        positions_of(shape)


def check_memory(
    config: DictConfig, shape: TransformerConfig, device: str, bytes_each: int = 16
) -> None:
    """Refuse a model that is larger than the machine before it is built.

    Training takes 16 bytes for a parameter, and loading 4.
    """
    # A layer pair has three attentions of four matrices and two feed-forwards of two matrices.
    parameters = shape.num_layers * (12 * shape.d_model**2 + 4 * shape.d_model * shape.d_ff)
    # Two embeddings and the output layer, or one matrix for all three.
    vocab_size = config.task.get("vocab_size")
    of_text = f"task.vocab_size={vocab_size}, " if isinstance(vocab_size, int) else ""
    if of_text:
        parameters += vocab_size * shape.d_model * (1 if shape.tie_embeddings else 3)
    needed, there = bytes_each * parameters, total_memory(device)
    if needed > there:
        raise UserError(
            f"{of_text}model.num_layers={shape.num_layers}, model.d_model={shape.d_model} and "
            f"model.d_ff={shape.d_ff} make {parameters:,} parameters, which need "
            f"{needed / 1e9:,.0f} GB to {'train' if bytes_each > 4 else 'load'}; there are "
            f"{there / 1e9:,.0f}: lower one."
        )


# Arguments that the model passes to an encoding; they are not settings.
CONTEXT_ARGUMENTS = ("context", *(each.name for each in dataclasses.fields(EncodingContext)))
# The keys of pe that every encoding has, with their defaults.
PE_KEYS = {each.name: each.default for each in dataclasses.fields(PeConfig)}


def transformer_config(config: DictConfig, tokenizer: Tokenizer | None = None) -> TransformerConfig:
    """Get a run's :class:`TransformerConfig`; source and target share one vocabulary.

    Without a tokenizer the vocabulary has one word, which is enough to check the other keys.
    """
    words = tokenizer.get_vocab_size() if tokenizer else 1
    shared = shared_settings(config)
    return TransformerConfig(
        words,
        words,
        **config.model,
        pe=config.pe.kind,
        pe_settings=encoding_settings(config),
        **{**shared, "reset_token": reset_token(shared["reset_token"], tokenizer)},
        seed=config.seed,
    )


def convert_settings(config: DictConfig) -> None:
    """Give the values of ``pe`` and ``task`` the types of their classes: 100 and 100.0 are one."""
    settings = {
        "pe": shared_settings(config) | encoding_settings(config),
        "task": task_settings(config),
    }
    for group, values in settings.items():
        for key in [key for key in config[group] if key in values]:
            with contextlib.suppress(TypeError):  # a path or an Enum stays the text that was given
                json.dumps(values[key])
                config[group][key] = values[key]


def build_model(config: DictConfig, tokenizer: Tokenizer) -> Transformer:
    """Build the model of a run."""
    with draws_from(config.seed):  # for what a fork adds to the model
        return Transformer(transformer_config(config, tokenizer))


def reset_token(word: str | None, tokenizer: Tokenizer | None) -> int | None:
    """Find the id that the word ``pe.reset_token`` has in a text.

    Raises:
        UserError: it is not in the vocabulary, or has several ids.
    """
    if word is None or tokenizer is None:
        return None if word is None else 0
    ids: list[int | None] = [*tokenizer.encode(word).ids]
    if len(ids) != 1:  # in pieces; a full stop has one where it follows a word without a space
        ids = [tokenizer.token_to_id(word)]
    if ids[0] in (None, UNK):
        raise UserError(
            f"pe.reset_token={word} is no word of this task's vocabulary with one id, so that "
            f"counting would never start again; choose one of its words, as + is of task=addition."
        )
    return ids[0]


def shared_settings(config: DictConfig) -> dict[str, Any]:
    """Get the settings that every encoding has, in their types; the reset token is a word."""
    given = {key: value for key, value in config.pe.items() if key in PE_KEYS}
    word = given.pop("reset_token", None)
    word = None if word is None else str(word)
    return {**typed(PeConfig, given, "pe"), "reset_token": word}


def encoding_settings(config: DictConfig) -> dict[str, Any]:
    """Select the encoding's settings, and check them against its class."""
    cls = choose(ENCODINGS, config.pe.kind, "pe.kind")
    taken = ("kind", "name", *PE_KEYS)
    parameters = inspect.signature(cls).parameters
    if clash := [key for key in parameters if key in taken]:
        raise UserError(
            f"{cls.__name__}.__init__ has an argument {clash[0]}, and pe.{clash[0]} is a key of "
            f"every encoding; give the argument another name."
        )
    first = next(iter(parameters.values()), None)
    if first and first.name not in CONTEXT_ARGUMENTS and first.kind is first.POSITIONAL_OR_KEYWORD:
        raise UserError(
            f"{cls.__name__}.__init__ calls its first argument {first.name}; call it context, or "
            f"d_model in an AbsoluteEncoding, since other names are those of settings."
        )
    own = {key: value for key, value in config.pe.items() if key not in taken}
    settings = typed(cls, own, "pe", ENCODINGS, exclude=CONTEXT_ARGUMENTS, beside=PE_KEYS)
    for key, value in settings.items():
        if not survives_json(value):
            raise UserError(
                f"pe.{key}={value!r} of {cls.__name__} is nothing that a checkpoint or an export "
                f"holds: an encoding's setting is a number, a text, true or false, or a list or a "
                f"dictionary of these with texts as keys; for a choice, take a text and call "
                f"check_choice."
            )
    return settings


def survives_json(value: Any) -> bool:
    """True if a value is the same after JSON: no Enum, path, or number as a key."""
    try:
        return bool(json.loads(json.dumps(value)) == value)
    except TypeError:
        return False
