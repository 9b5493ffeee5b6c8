"""Every key of the configuration, with its type, its limits and its default."""

from dataclasses import dataclass, field
from typing import Any

from omegaconf import MISSING

from wawa_transformer.common import limits
from wawa_transformer.common.schema import choice, setting


@dataclass
class ModelConfig:
    """The shape of the Transformer, in the paper's symbols."""

    d_model: int = setting(64, least=1, most=limits.MAX_WIDTH)
    num_layers: int = setting(1, least=1, most=limits.MAX_LAYERS)
    num_heads: int = setting(4, least=1, most=limits.MAX_WIDTH)
    d_ff: int = setting(256, least=1, most=limits.MAX_WIDTH)
    dropout: float = setting(0.0, least=0, below=1)
    norm: str = choice(*limits.NORMS)
    activation: str = choice(*limits.ACTIVATIONS)
    tie_embeddings: bool = False
    embedding_scale: str = choice(*limits.EMBEDDING_SCALES)  # Csordás et al. 2021, section 3
    share_layers: bool = False  # Dehghani et al. 2019
    encoder_mask: str = choice(*limits.ENCODER_MASKS)


@dataclass
class TrainerConfig:
    """The settings of training."""

    steps: int = setting(500, least=1, most=10**9)
    batch_tokens: int = setting(352, least=1, most=10**8)  # padded positions on each side
    bucket: bool = False  # batches of similar lengths, for less padding
    grad_accum_steps: int = setting(1, least=1, most=1024)  # batches to one optimiser step
    lr: float = setting(2e-3, above=0)
    warmup: int = setting(100, least=0, most=10**9)
    schedule: str = choice("linear", "cosine", "inverse_sqrt", "constant")
    weight_decay: float = setting(0.01, least=0)
    grad_clip: float = setting(1.0, above=0)
    label_smoothing: float = setting(0.0, least=0, below=1)
    device: str = "auto"  # auto, cpu, cuda, cuda:1, mps
    bf16: bool = False
    tf32: bool = False  # on a GPU: products in fp32 with ten bits of each factor
    compile: bool = False
    compile_mode: str = choice("default", "reduce-overhead")  # the latter: CUDA graphs
    # Lengths become multiples of this number, so that few shapes are compiled.
    pad_to_multiple_of: int = setting(1, least=1, most=10**6)
    deterministic: bool = False  # on a GPU: the same bits again, slower
    threads: int = setting(1, least=1, most=256)
    check: bool = True  # what the encoding promises, in a tiny model before the first step
    log_every: int = setting(10, least=1, most=10**9)
    eval_every: int = setting(100, least=1, most=10**9)  # validation and checkpoint
    patience: int | None = setting(None, least=1, most=10**9)  # validations without a better one
    # Weights of the last validations are kept for averaging.
    keep_checkpoints: int = setting(0, least=0, most=1000)


@dataclass
class TuneConfig:
    """The learning rates to try for each encoding, on separate seeds."""

    lr: list[float] = field(default_factory=list)
    warmup: list[int] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)


@dataclass
class RuleConfig:
    """The rule for a study's verdict, written before the runs (``lab/claims.py``)."""

    claim: str = ""
    each: list[str] = field(default_factory=list)  # judged separately: task, pair, encoding
    against: str | None = None  # compare every other encoding with this one
    # Each measure has the smallest difference that matters.
    measures: dict[str, float] = field(default_factory=dict)
    supported: list[dict[str, Any]] = field(default_factory=list)  # if all of these hold
    refuted: list[dict[str, Any]] = field(default_factory=list)  # if one of these holds


@dataclass
class StudyConfig:
    """The grid of runs for ``scripts/compare.py``."""

    name: str = "default"
    question: str = ""
    pe: list[str] = field(default_factory=list)
    task: list[str] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)
    pairs: list[list[str]] = field(default_factory=list)  # encodings to compare
    tune: TuneConfig = field(default_factory=TuneConfig)  # a learning rate for each encoding
    rule: RuleConfig | None = None
    minutes: float | None = setting(None, above=0)  # on two cores; printed at the start
    beside: str | None = None  # a study's folder in this project, whose rows the report shows too


@dataclass
class Config:
    """The whole configuration. ``pe`` and ``task`` are typed by the class their ``kind`` names."""

    seed: int = setting(0, least=-(2**63), most=2**63 - 1)
    pe: dict[str, Any] = MISSING
    task: dict[str, Any] = MISSING
    model: ModelConfig = field(default_factory=ModelConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    study: StudyConfig = field(default_factory=StudyConfig)
    imports: list[str] = field(default_factory=list)  # written import=: modules of a user's
    import_digest: str | None = None  # computed, so that other code of theirs makes another run
    output_dir: str = "results"
    run_dir: str | None = None  # computed from the configuration unless given
    progress: bool = True
    quiet: bool = False  # scripts/train.py says nothing
    pictures: bool = True  # in TensorBoard; a study draws those of its first seed
    # scripts/compare.py: runs side by side, cores / threads by default; 0: train nothing, report
    workers: int | None = setting(None, least=0, most=256)
    report: str | None = None  # scripts/compare.py: write this folder's report again, without runs


@dataclass
class MachineConfig:
    """The machine that uses a trained run."""

    device: str = "auto"
    threads: int = setting(1, least=1, most=256)


@dataclass
class ExportConfig:
    """The settings of scripts/export.py."""

    run: str | None = None  # the run's directory
    checkpoint: str = choice("last", "best", "previous", "average")
    format: str = choice("safetensors", "ctranslate2")
    directory: str | None = None  # by default the run's directory


@dataclass
class TrainedConfig:
    """The settings of every script that decodes with a trained run."""

    run: str | None = None
    checkpoint: str = choice("last", "best", "previous", "average")
    decode: dict[str, Any] = MISSING  # the keys depend on the class that its kind names
    trainer: MachineConfig = field(default_factory=MachineConfig)


@dataclass
class OtherTest:
    """Settings of the task that a test may replace; null keeps the run's."""

    data_dir: str | None = None
    hub: str | None = None
    test_source: str | None = None
    test_target: str | None = None
    test_max_length: int | None = None
    test_per_length: int | None = None


@dataclass
class EvaluateConfig(TrainedConfig):
    """The settings of scripts/evaluate.py."""

    verify: bool = False  # compare with the numbers in the run's result
    against: str | None = None  # another run, for a paired test
    test_sets: list[str] = field(default_factory=list)  # by name, beside the run's text
    task: OtherTest = field(default_factory=OtherTest)


@dataclass
class TranslateConfig(TrainedConfig):
    """The settings of scripts/translate.py."""

    nbest: bool = False  # every hypothesis with its score
    attention: str | None = None  # a file for a picture of the first line's attention


@dataclass
class ServeConfig(TrainedConfig):
    """The settings of scripts/serve.py."""

    beside: list[str] = field(default_factory=list)  # directories of other runs
    host: str = "127.0.0.1"
    port: int = setting(8000, least=0, most=65535)
