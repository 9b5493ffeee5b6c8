"""The configuration: its schema, its rules, and the model it describes."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from wawa_transformer.positional import ENCODINGS, Place
from wawa_transformer.transformer import ACTIVATIONS, EMBEDDING_SCALES, NORMS, Transformer

CONFIG_DIR = Path(__file__).resolve().parent.parent / "configs"


class UserError(ValueError):
    """A mistake of the user's, in one sentence: the value, the limit, the remedy, the key."""


def setting(default: Any, **limits: float) -> Any:
    """A field with limits, of ``least``, ``above``, ``below`` and ``most``."""
    return field(default=default, metadata={"limits": limits})


def word(*choices: str) -> Any:
    """A field that takes one of ``choices``; the first is the default."""
    return field(default=choices[0], metadata={"choices": choices})


@dataclass
class ModelConfig:
    """The shape of the Transformer, in the paper's symbols."""

    d_model: int = setting(64, least=1)
    num_layers: int = setting(1, least=1)
    num_heads: int = setting(4, least=1)
    d_ff: int = setting(256, least=1)
    dropout: float = setting(0.0, least=0, below=1)
    norm: str = word(*NORMS)
    activation: str = word(*ACTIVATIONS)
    tie_embeddings: bool = False
    embedding_scale: str = word(*EMBEDDING_SCALES)  # Csordás et al. 2021, section 3


@dataclass
class TrainerConfig:
    """Everything the loop needs to know."""

    steps: int = setting(500, least=1)
    batch_tokens: int = setting(352, least=1)  # padded positions of one side of a batch
    bucket: bool = False  # batches of similar lengths: less padding, less mixing
    accumulate: int = setting(1, least=1)  # batches to one optimiser step
    lr: float = setting(2e-3, above=0)
    warmup: int = setting(100, least=0)
    schedule: str = word("linear", "cosine", "inverse_sqrt", "constant")
    weight_decay: float = setting(0.01, least=0)
    clip: float = setting(1.0, above=0)
    label_smoothing: float = setting(0.0, least=0, below=1)
    device: str = "auto"  # auto, cpu, cuda, cuda:1, mps
    bf16: bool = False
    compile: bool = False
    threads: int = setting(1, least=1)
    log_every: int = setting(10, least=1)
    eval_every: int = setting(100, least=1)  # validation and checkpoint
    attention_maps: bool = True


@dataclass
class StudyConfig:
    """The grid that ``scripts/compare.py`` spans over the rest of the configuration."""

    name: str = "default"
    question: str = ""
    pe: list[str] = field(default_factory=list)
    task: list[str] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)
    minutes: float | None = None  # on two cores, as measured; said before a study starts


@dataclass
class Config:
    """The whole configuration. ``pe`` and ``task`` are typed by the class their ``kind`` names."""

    seed: int = 0
    pe: dict[str, Any] = MISSING
    task: dict[str, Any] = MISSING
    model: ModelConfig = field(default_factory=ModelConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    study: StudyConfig = field(default_factory=StudyConfig)
    output_dir: str = "results"
    run_dir: str | None = None  # computed from the configuration unless given
    progress: bool = True
    workers: int = setting(2, least=1)  # scripts/compare.py: runs side by side
    run: str | None = None  # scripts/evaluate.py and translate.py: a run's directory
    checkpoint: str = word("last", "best")  # scripts/evaluate.py and translate.py


def validate(config: DictConfig) -> None:
    """Every rule of the schema and between fields, once, before anything is built or written."""
    check(Config, config)
    check(ModelConfig, config.model, "model.")
    check(TrainerConfig, config.trainer, "trainer.")
    model = config.model
    if model.d_model % model.num_heads:
        divisors = [h for h in range(1, model.d_model + 1) if model.d_model % h == 0]
        raise UserError(
            f"model.d_model={model.d_model} is not divisible by model.num_heads={model.num_heads}; "
            f"choose model.num_heads from {', '.join(map(str, divisors))}."
        )


def check(schema: type, values: Any, prefix: str = "") -> None:
    """Hold ``values``, a mapping or an object, against the limits and words of ``schema``."""
    for each in dataclasses.fields(schema):
        value = values[each.name] if isinstance(values, Mapping) else getattr(values, each.name)
        choices, limits = each.metadata.get("choices"), each.metadata.get("limits", {})
        if value is None:  # OmegaConf lets it pass only where the schema does
            continue
        if choices and value not in choices:
            raise UserError(
                f"{prefix}{each.name}={value} does not exist; choose one of {', '.join(choices)}."
            )
        if not all(LIMITS[name][1](value, limit) for name, limit in limits.items()):
            words = " and ".join(f"{LIMITS[name][0]} {limit}" for name, limit in limits.items())
            raise UserError(f"{prefix}{each.name}={value} must be {words}.")


# How each limit is said and tested; NaN passes none of them.
LIMITS = {
    "least": ("at least", lambda value, limit: value >= limit),
    "above": ("greater than", lambda value, limit: value > limit),
    "below": ("less than", lambda value, limit: value < limit),
    "most": ("at most", lambda value, limit: value <= limit),
}


def typed(cls: type, given: Any, group: str, exclude: Iterable[str] = ()) -> dict[str, Any]:
    """Check ``given`` against what ``cls`` takes and return it converted.

    The settings of a class are its dataclass fields or the arguments of its ``__init__``, so that
    adding a class adds its schema; ``exclude`` names arguments that are no settings. ``group``
    names the configuration group in errors.
    """
    if dataclasses.is_dataclass(cls):
        schema: Any = cls
    else:
        parameters = inspect.signature(cls, eval_str=True).parameters.values()
        own = [p for p in parameters if p.name not in exclude]
        schema = dataclasses.make_dataclass(
            cls.__name__, [(p.name, p.annotation, p.default) for p in own]
        )
    names = [f.name for f in dataclasses.fields(schema)]
    for key in given:
        if key not in names:
            raise UserError(f"{group}.{key} does not exist{nearest(key, names)}.")
    try:
        return OmegaConf.to_container(OmegaConf.merge(OmegaConf.structured(schema), given))  # type: ignore[return-value]
    except OmegaConfBaseException as error:
        raise UserError(f"{group}.{error.full_key}: {first_line(error)}.") from None


def choose(registry: dict[str, Any], kind: str, key: str) -> Any:
    """Look ``kind`` up; an unknown one names the choices."""
    if kind not in registry:
        raise UserError(
            f"{key}={kind} does not exist; choose one of {', '.join(sorted(registry))}."
        )
    return registry[kind]


def build_model(config: DictConfig, vocab_size: int) -> Transformer:
    """The model of a configuration, for one vocabulary shared by source and target."""
    try:
        return Transformer(
            vocab_size,
            vocab_size,
            **config.model,
            pe=config.pe.kind,
            pe_settings=encoding_settings(config),
            seed=config.seed,
        )
    except ValueError as error:  # a shape that this encoding cannot serve
        raise UserError(f"{str(error).rstrip('.')}.") from None


def encoding_settings(config: DictConfig) -> dict[str, Any]:
    """The settings of the encoding, checked against its class."""
    given = {key: value for key, value in config.pe.items() if key not in ("kind", "name")}
    told = ("place", *(f.name for f in dataclasses.fields(Place)))  # by the model
    return typed(choose(ENCODINGS, config.pe.kind, "pe.kind"), given, "pe", exclude=told)


def nearest(name: str, choices: Iterable[str]) -> str:
    """``" (did you mean …?)"`` or nothing."""
    close = difflib.get_close_matches(name, list(choices), n=1)
    return f" (did you mean {close[0]}?)" if close else ""


def first_line(error: Exception) -> str:
    """The first line of an exception's message, without its full stop."""
    return str(error).strip().splitlines()[0].rstrip(".")
