"""The configuration: its schema, its cross-field rules, and errors a person can act on."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import hashlib
import inspect
import json
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hydra
from hydra.core.config_store import ConfigStore
from hydra.errors import (
    ConfigCompositionException,
    HydraException,
    MissingConfigException,
    OverrideParseException,
)
from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

CONFIG_DIR = Path(__file__).resolve().parent.parent / "configs"


class UserError(ValueError):
    """A mistake of the user's, in one sentence: the value, the limit, the remedy, the key."""


@dataclass
class ModelConfig:
    """The shape of the Transformer, in the paper's symbols."""

    d_model: int = 64
    num_layers: int = 1
    num_heads: int = 4
    d_ff: int = 256
    dropout: float = 0.0
    norm: str = "pre"  # pre | post
    activation: str = "relu"  # relu | gelu
    tie_embeddings: bool = False
    embedding_scale: str = "token_up"  # token_up | position_down (Csordás et al. 2021, section 3)


@dataclass
class TrainerConfig:
    """Everything the loop needs to know."""

    steps: int = 500
    batch_tokens: int = 352  # padded positions of one side of a batch
    bucket: bool = False  # batches of similar lengths: less padding, less mixing
    accumulate: int = 1  # batches to one optimiser step
    lr: float = 2e-3
    warmup: int = 100
    schedule: str = "linear"  # linear | cosine | inverse_sqrt | constant
    weight_decay: float = 0.01
    clip: float = 1.0
    label_smoothing: float = 0.0
    device: str = "auto"  # auto | cpu | cuda | cuda:1 | mps
    bf16: bool = False
    compile: bool = False
    threads: int = 1
    log_every: int = 10
    eval_every: int = 100  # validation and checkpoint
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
    workers: int = 2  # scripts/compare.py: runs side by side
    run: str | None = None  # scripts/evaluate.py and translate.py: a run's directory
    checkpoint: str = "last"  # scripts/evaluate.py and translate.py: last | best


@dataclass
class WalkthroughConfig:
    """scripts/walkthrough.py: the printed lesson."""

    lang: str = "zh"  # zh | en
    d_model: int = 8
    max_len: int = 10
    dropout: float = 0.1
    step: int | None = None  # 1 to 7; all of them unless given
    pause: bool = False  # wait for Enter between steps


@dataclass
class FiguresConfig:
    """scripts/figures.py: the pictures of the lesson."""

    lang: str = "both"  # en | zh | both
    output_dir: str = "results/figures"


# The schema of each configuration that is not of a run.
LESSONS = {"walkthrough": WalkthroughConfig, "figures": FiguresConfig}

# These keys say where and how a run is shown, not what is computed; they do not name a run.
NOT_IDENTITY = ("output_dir", "run_dir", "progress", "workers", "study", "run", "checkpoint")

ConfigStore.instance().store(name="schema", node=Config)
for _name, _schema in LESSONS.items():
    ConfigStore.instance().store(name=f"{_name}_schema", node=_schema)


def seed_for(seed: int, *names: object) -> int:
    """A 63-bit seed that depends on ``seed`` and ``names`` alone, on every machine."""
    digest = hashlib.sha256("/".join(map(str, (seed, *names))).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def typed(cls: type, given: Any, group: str, exclude: Iterable[str] = ()) -> dict[str, Any]:
    """Check ``given`` against what ``cls`` takes and return it converted.

    The settings of a class are its dataclass fields or the keyword arguments of its ``__init__``,
    so that adding a class adds its schema; ``exclude`` names arguments that are no settings.
    ``group`` names the configuration group in errors.
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


def validate(config: DictConfig) -> None:
    """Every rule between fields, once, before anything is built or written."""
    model, trainer = config.model, config.trainer
    for section, keys in (
        ("model", ("d_model", "num_layers", "num_heads", "d_ff")),
        ("trainer", ("steps", "batch_tokens", "accumulate", "threads", "log_every", "eval_every")),
    ):
        for key in keys:
            if config[section][key] < 1:
                raise UserError(f"{section}.{key}={config[section][key]} must be at least 1.")
    if model.d_model % model.num_heads:
        divisors = [h for h in range(1, model.d_model + 1) if model.d_model % h == 0]
        raise UserError(
            f"model.d_model={model.d_model} is not divisible by model.num_heads={model.num_heads}; "
            f"choose model.num_heads from {', '.join(map(str, divisors))}."
        )
    for key, value in (
        ("model.dropout", model.dropout),
        ("trainer.label_smoothing", trainer.label_smoothing),
    ):
        if not 0 <= value < 1:
            raise UserError(f"{key}={value} must be at least 0 and less than 1.")
    for key in ("lr", "clip"):
        if not trainer[key] > 0:
            raise UserError(f"trainer.{key}={trainer[key]} must be greater than 0.")
    for key in ("warmup", "weight_decay"):
        if trainer[key] < 0:
            raise UserError(f"trainer.{key}={trainer[key]} must not be negative.")
    for key, choices in (
        ("model.norm", ("pre", "post")),
        ("model.activation", ("relu", "gelu")),
        ("model.embedding_scale", ("token_up", "position_down")),
        ("trainer.schedule", ("linear", "cosine", "inverse_sqrt", "constant")),
        ("checkpoint", ("last", "best")),
    ):
        value = OmegaConf.select(config, key)
        if value not in choices:
            raise UserError(f"{key}={value} does not exist; choose one of {', '.join(choices)}.")
    if config.workers < 1:
        raise UserError(f"workers={config.workers} must be at least 1.")


def identity(config: DictConfig) -> dict[str, Any]:
    """The part of the configuration that decides what a run computes."""
    everything = OmegaConf.to_container(config, resolve=True)
    return {key: value for key, value in everything.items() if key not in NOT_IDENTITY}  # type: ignore[union-attr, index, misc]


def run_directory(config: DictConfig) -> Path:
    """Where this configuration's run lives: never named by the clock, so it can be found again."""
    if config.run_dir:
        return Path(config.run_dir)
    text = json.dumps(identity(config), sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    study = Path(config.output_dir) / config.study.name
    return study / config.task.name / config.pe.name / f"seed{config.seed}-{digest}"


def make_directory(directory: Path) -> None:
    """Make ``directory`` and its parents, and be sure that it can be written."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        reason = "" if os.access(directory, os.W_OK) else "permission denied"
    except OSError as error:
        reason = error.strerror or str(error)
    if reason:
        raise UserError(
            f"{directory} cannot be written ({reason}); set output_dir to a folder of yours."
        )


def script(
    config_name: str, check: Callable[[DictConfig], None] = validate
) -> Callable[[Callable[[DictConfig], None]], Callable[[], None]]:
    """Decorate a script's ``main(config)``: Hydra parses, mistakes become one sentence.

    Exit status 1 and no traceback for a :class:`UserError` or a faulty command line; any other
    exception is a bug of ours and keeps its traceback.
    """

    def decorate(task: Callable[[DictConfig], None]) -> Callable[[], None]:
        @functools.wraps(task)
        def checked(config: DictConfig) -> None:
            try:
                check(config)
                task(config)
            except UserError as error:
                sys.exit(f"error: {error}")
            except KeyboardInterrupt:
                sys.exit("interrupted; the same command continues")

        def main() -> None:
            os.environ["HYDRA_FULL_ERROR"] = "1"  # hand the exception to us instead of printing it
            run = hydra.main(
                config_path=str(CONFIG_DIR), config_name=config_name, version_base="1.3"
            )
            try:
                run(checked)()
            except (HydraException, OmegaConfBaseException) as error:
                sys.exit(f"error: {explain(error, config_name)}")
            except BrokenPipeError:  # whoever read our output, `head` for one, has seen enough
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                sys.exit(1)

        return main

    return decorate


def explain(error: Exception, config_name: str = "config") -> str:
    """One sentence for an exception of Hydra's or OmegaConf's."""
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        group, _, name = error.missing_cfg_file.rpartition("/")
        choices = sorted(path.stem for path in (CONFIG_DIR / group).glob("*.yaml"))
        listed = ", ".join(choices)
        return f"{group}={name} does not exist{nearest(name, choices)}; choose one of {listed}."
    cause = error.__cause__ or error
    key = getattr(cause, "full_key", None)
    unknown_group = "No match in the defaults list" in str(error)
    if unknown_group or isinstance(cause, (ConfigKeyError, ConfigAttributeError)):
        key = key or str(error).split("'")[1]
        known = known_keys(config_name)
        if key in known:  # a field of the class that the chosen file leaves at its default
            return f"the key {key} is not in the chosen configuration; to add it, write +{key}=…"
        return f"the key {key} does not exist{nearest(key, known)}."
    if isinstance(error, OverrideParseException):
        return f"{first_line(error)}; write key=value and quote special characters."
    if isinstance(error, ConfigCompositionException) and isinstance(cause, OmegaConfBaseException):
        return f"{key}: {first_line(cause)}."
    return first_line(error)


def known_keys(config_name: str) -> list[str]:
    """Every key of the schema and every group, for "did you mean"."""
    if config_name in LESSONS:
        return [f.name for f in dataclasses.fields(LESSONS[config_name])]

    def keys(node: Any, prefix: str) -> Iterable[str]:
        for key in node:
            yield prefix + key
            if not OmegaConf.is_missing(node, key) and OmegaConf.is_dict(node[key]):
                yield from keys(node[key], f"{prefix}{key}.")

    groups = {path.parent.name: path for path in CONFIG_DIR.glob("*/*.yaml")}
    found = set(keys(OmegaConf.structured(Config), "")) | set(groups)
    for path in CONFIG_DIR.glob("[pt][ea]*/*.yaml"):  # pe and task have no schema of their own here
        found |= set(keys(OmegaConf.load(path), f"{path.parent.name}."))
    return sorted(found)


def nearest(name: str, choices: Iterable[str]) -> str:
    """``" (did you mean …?)"`` or nothing."""
    close = difflib.get_close_matches(name, list(choices), n=1)
    return f" (did you mean {close[0]}?)" if close else ""


def first_line(error: Exception) -> str:
    """The first line of an exception's message, without its full stop."""
    return str(error).strip().splitlines()[0].rstrip(".")
