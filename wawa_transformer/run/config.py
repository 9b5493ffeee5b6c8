"""The configuration: its schema, its rules, and the model it describes."""

from __future__ import annotations

import dataclasses
import os
import re
from dataclasses import dataclass, field
from typing import Any

import torch
from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from tokenizers import Tokenizer

from wawa_transformer.common.limits import MAX_WIDTH
from wawa_transformer.common.schema import (
    UserError,
    check,
    check_present,
    choice,
    choose,
    first_line,
    setting,
    typed,
)
from wawa_transformer.model.transformer import (
    ACTIVATIONS,
    EMBEDDING_SCALES,
    MAX_LAYERS,
    NORMS,
    Transformer,
)
from wawa_transformer.positional import build_cross_encoding, build_encoding
from wawa_transformer.positional.base import ENCODINGS, ROLES, EncodingContext
from wawa_transformer.positional.position_ids import PositionIds

# Names become folders; ".." and "/" would lead out of output_dir.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,99}")
DEVICE = re.compile(r"auto|cpu|cuda(:\d{1,3})?|mps")


@dataclass
class ModelConfig:
    """The shape of the Transformer, in the paper's symbols."""

    d_model: int = setting(64, least=1, most=MAX_WIDTH)
    num_layers: int = setting(1, least=1, most=MAX_LAYERS)
    num_heads: int = setting(4, least=1, most=MAX_WIDTH)
    d_ff: int = setting(256, least=1, most=MAX_WIDTH)
    dropout: float = setting(0.0, least=0, below=1)
    norm: str = choice(*NORMS)
    activation: str = choice(*ACTIVATIONS)
    tie_embeddings: bool = False
    embedding_scale: str = choice(*EMBEDDING_SCALES)  # Csordás et al. 2021, section 3
    share_layers: bool = False  # Dehghani et al. 2019


@dataclass
class TrainerConfig:
    """Everything the loop needs to know."""

    steps: int = setting(500, least=1, most=10**9)
    batch_tokens: int = setting(352, least=1, most=10**8)  # padded positions of one side of a batch
    bucket: bool = False  # batches of similar lengths: less padding, less mixing
    grad_accum_steps: int = setting(1, least=1, most=1024)  # batches to one optimiser step
    lr: float = setting(2e-3, above=0)
    warmup: int = setting(100, least=0, most=10**9)
    schedule: str = choice("linear", "cosine", "inverse_sqrt", "constant")
    weight_decay: float = setting(0.01, least=0)
    grad_clip: float = setting(1.0, above=0)
    label_smoothing: float = setting(0.0, least=0, below=1)
    device: str = "auto"  # auto, cpu, cuda, cuda:1, mps
    fast: bool = True  # on a CPU without compile: modules that compute the same sooner
    bf16: bool = False
    compile: bool = False
    pad_to_multiple_of: int = setting(
        1, least=1, most=10**6
    )  # a multiple for lengths: few shapes to compile
    deterministic: bool = False  # on a GPU: the same bits again, slower
    threads: int = setting(1, least=1, most=256)
    log_every: int = setting(10, least=1, most=10**9)
    eval_every: int = setting(100, least=1, most=10**9)  # validation and checkpoint
    patience: int | None = setting(None, least=1, most=10**9)  # validations without a better one
    keep_checkpoints: int = setting(
        0, least=0, most=1000
    )  # weights of the last validations, to be averaged
    attention_maps: bool = True


@dataclass
class TuneConfig:
    """What is tried for each encoding of a study, before it and on seeds of its own."""

    lr: list[float] = field(default_factory=list)
    warmup: list[int] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)


@dataclass
class RuleConfig:
    """How the outcome of a study is judged, written down before its runs: ``lab/rules.py``."""

    claim: str = ""
    each: list[str] = field(default_factory=list)  # what is judged by itself: task, pair, encoding
    against: str | None = None  # the encoding that every other one is compared with
    measures: dict[str, float] = field(default_factory=dict)  # with the smallest relevant size
    supported: list[dict[str, Any]] = field(default_factory=list)  # where all conditions are met
    refuted: list[dict[str, Any]] = field(default_factory=list)  # where one is


@dataclass
class StudyConfig:
    """The grid that ``scripts/compare.py`` spans over the rest of the configuration."""

    name: str = "default"
    question: str = ""
    pe: list[str] = field(default_factory=list)
    task: list[str] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)
    pairs: list[list[str]] = field(default_factory=list)  # which encodings are compared
    tune: TuneConfig = field(default_factory=TuneConfig)  # a rate for each encoding
    rule: RuleConfig | None = None
    minutes: float | None = None  # on two cores, as measured; said before a study starts


@dataclass
class Config:
    """The whole configuration. ``pe`` and ``task`` are typed by the class their ``kind`` names."""

    seed: int = setting(0, least=-(2**63), most=2**63 - 1)
    pe: dict[str, Any] = MISSING
    task: dict[str, Any] = MISSING
    model: ModelConfig = field(default_factory=ModelConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    study: StudyConfig = field(default_factory=StudyConfig)
    output_dir: str = "results"
    run_dir: str | None = None  # computed from the configuration unless given
    progress: bool = True
    pictures: bool = True  # in TensorBoard; a study draws those of its first seed
    workers: int = setting(2, least=1, most=256)  # scripts/compare.py: runs side by side


@dataclass
class MachineConfig:
    """What a trained run is used on."""

    device: str = "auto"
    threads: int = setting(1, least=1, most=256)
    fast: bool = True


@dataclass
class ExportConfig:
    """scripts/export.py: a run, which brings its own configuration along."""

    run: str | None = None  # its directory
    checkpoint: str = choice("last", "best", "previous", "average")
    format: str = choice("safetensors", "ctranslate2")
    directory: str | None = None  # the run's own unless given


@dataclass
class TrainedConfig:
    """A run that decodes."""

    run: str | None = None
    checkpoint: str = choice("last", "best", "previous", "average")
    decode: dict[str, Any] = MISSING  # typed by the class its kind names
    trainer: MachineConfig = field(default_factory=MachineConfig)


@dataclass
class OtherTest:
    """What of a run's task may be another one in its test; null: as it was."""

    data_dir: str | None = None
    test_source: str | None = None
    test_target: str | None = None
    test_max_length: int | None = None
    test_per_length: int | None = None


@dataclass
class EvaluateConfig(TrainedConfig):
    """scripts/evaluate.py."""

    verify: bool = False  # compare with the numbers that the run has kept
    against: str | None = None  # another run, in a paired test
    test_sets: list[str] = field(default_factory=list)  # by name, beside the run's text
    task: OtherTest = field(default_factory=OtherTest)


@dataclass
class TranslateConfig(TrainedConfig):
    """scripts/translate.py."""

    nbest: bool = False  # every hypothesis with its score
    attention: str | None = None  # a picture of the first line's


@dataclass
class ServeConfig(TrainedConfig):
    """scripts/serve.py."""

    beside: list[str] = field(default_factory=list)  # other runs
    host: str = "127.0.0.1"
    port: int = setting(8000, least=0, most=65535)


def check_model(config: DictConfig) -> None:
    """Every rule of the schema and between fields, and all that the encoding itself refuses."""
    try:
        OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    except (OmegaConfBaseException, RecursionError) as error:  # the latter: ${seed} as the seed
        key = getattr(error, "full_key", None) or "an interpolation"
        raise UserError(f"{key}: {first_line(error)}.") from None
    check(Config, config)
    check(ModelConfig, config.model, "model.")
    check(TrainerConfig, config.trainer, "trainer.")
    check(StudyConfig, config.study, "study.")
    for group in ("pe", "task"):
        if not isinstance(config[group].get("kind"), str):
            raise UserError(f"{group} is not chosen; choose one: {group}=….")
    for key in ("study.name", "task.name", "pe.name"):
        name = OmegaConf.select(config, key)
        if not (isinstance(name, str) and NAME.fullmatch(name)):
            raise UserError(
                f"{key}={name} must be a plain name of up to 100 letters, digits and any of "
                f"_ . - + ; where something is written is output_dir or run_dir."
            )
    check_present(OF_ALL, config.pe, "pe.")
    model, trainer = config.model, config.trainer
    check_device(trainer.device)
    if trainer.lr * trainer.weight_decay >= 1:
        raise UserError(
            f"trainer.weight_decay={trainer.weight_decay} times trainer.lr={trainer.lr} must be "
            f"less than 1: every step multiplies the weights by one minus that."
        )
    if model.d_model % model.num_heads:
        divisors = [h for h in range(1, model.d_model + 1) if model.d_model % h == 0]
        raise UserError(
            f"model.d_model={model.d_model} is not divisible by model.num_heads={model.num_heads}; "
            f"choose model.num_heads from {', '.join(map(str, divisors))}."
        )
    # Four matrices in each of three attentions, two in each of two feed-forwards, a layer pair.
    parameters = model.num_layers * (12 * model.d_model**2 + 4 * model.d_model * model.d_ff)
    needed, there = 16 * parameters, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > there:
        raise UserError(
            f"model.num_layers={model.num_layers}, model.d_model={model.d_model} and "
            f"model.d_ff={model.d_ff} make {parameters:,} parameters, which need "
            f"{needed / 1e9:,.0f} GB to train; this machine has {there / 1e9:,.0f}: lower one."
        )
    settings = encoding_settings(config)
    try:
        with torch.device("meta"):  # built of nothing: all its rules, none of its memory
            *stacks, cross = (
                EncodingContext(model.d_model, model.num_heads, model.dropout, role)
                for role in ROLES
            )
            encoder, _ = (build_encoding(config.pe.kind, place, settings) for place in stacks)
            between = build_cross_encoding(config.pe.cross, config.pe.kind, cross, settings)
            position_ids(config).check(encoder, between)
    except ValueError as error:
        raise UserError(f"{str(error).rstrip('.')}.") from None


def check_trained(schema: type, config: DictConfig) -> None:
    """The rules of the scripts that use a trained run."""
    check(schema, config)
    if "trainer" in config:
        check(MachineConfig, config.trainer, "trainer.")
        check_device(config.trainer.device)
    if not config.run:
        raise UserError("run is not given; name a run's directory: run=results/….")


def check_device(name: str) -> None:
    """Whether there can be such a device."""
    if not DEVICE.fullmatch(name):
        raise UserError(
            f"trainer.device={name} does not exist; choose auto, cpu, cuda, cuda:1 or mps."
        )


def build_model(config: DictConfig, tokenizer: Tokenizer) -> Transformer:
    """The model of a configuration, for one vocabulary shared by source and target."""
    vocab_size = tokenizer.get_vocab_size()
    try:
        return Transformer(
            vocab_size,
            vocab_size,
            **config.model,
            pe=config.pe.kind,
            pe_settings=encoding_settings(config),
            cross=config.pe.cross,
            position_ids=position_ids(config, tokenizer),
            seed=config.seed,
        )
    except ValueError as error:  # a shape that this encoding cannot serve
        raise UserError(f"{str(error).rstrip('.')}.") from None


# Keys of pe that are no settings of an encoding, with what they are where nothing is said.
OF_ALL = {"cross": "none", **{each.name: each.default for each in dataclasses.fields(PositionIds)}}


def given_settings(config: DictConfig) -> dict[str, Any]:
    """What the configuration says of its encoding, beside which one it is."""
    return {
        key: value
        for key, value in config.pe.items()
        if key not in ("kind", "name") and not (key in OF_ALL and value == OF_ALL[key])
    }


def encoding_settings(config: DictConfig) -> dict[str, Any]:
    """The settings of the encoding, checked against its class."""
    told = ("context", *(f.name for f in dataclasses.fields(EncodingContext)))  # by the model
    cls = choose(ENCODINGS, config.pe.kind, "pe.kind")
    own = {key: value for key, value in config.pe.items() if key not in ("kind", "name", *OF_ALL)}
    return typed(cls, own, "pe", exclude=told)


def position_ids(config: DictConfig, tokenizer: Tokenizer | None = None) -> PositionIds:
    """The position ids of a configuration; pe.reset_token, a word, becomes an id."""
    given = {key: value for key, value in config.pe.items() if key in OF_ALL and key != "cross"}
    word = given.pop("reset_token", None)
    reset_token = None
    if word is not None:
        reset_token = tokenizer.token_to_id(str(word)) if tokenizer else 0
        if reset_token is None:
            raise UserError(
                f"pe.reset_token={word} is no word of this task's vocabulary, so that counting "
                f"would never start again; choose one of its words, as + is of task=addition."
            )
    return PositionIds(**{**typed(PositionIds, given, "pe"), "reset_token": reset_token})
