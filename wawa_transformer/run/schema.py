"""Every key of the configuration: type, default, limits and help."""

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from omegaconf import MISSING

from wawa_transformer.common.limits import choice, setting
from wawa_transformer.model.config import MODEL, PLACEMENT, POSITIONS, TransformerConfig, part

if TYPE_CHECKING:

    class ModelConfig(TransformerConfig): ...

    class PeConfig(TransformerConfig): ...

else:
    ModelConfig = part("ModelConfig", MODEL, __name__)
    # Beside the settings of an encoding.
    PeConfig = part("PeConfig", PLACEMENT + POSITIONS, __name__)

DEVICES = "auto, cpu, cuda, cuda:1, mps; auto takes a GPU if there is one"
DEVICE = r"auto|cpu|cuda(:\d{1,3})?|mps"


@dataclass
class TrainerConfig:
    """The settings of training."""

    steps: int = setting(500, "optimiser steps", least=1, most=10**9)
    batch_tokens: int = setting(
        352, "padded positions on each side of a batch", least=1, most=10**8
    )
    bucket: bool = setting(False, "group similar lengths in a batch, for less padding")
    grad_accum_steps: int = setting(1, "batches per optimiser step", least=1, most=1024)
    lr: float = setting(2e-3, "the highest learning rate", above=0, below=math.inf)
    warmup: int = setting(100, "steps until the highest learning rate", least=0, most=10**9)
    schedule: str = choice(
        "linear", "cosine", "inverse_sqrt", "constant", help="the learning rate after the warmup"
    )
    weight_decay: float = setting(0.01, "weight decay of AdamW", least=0, below=math.inf)
    init_from: str | None = setting(
        None, "a run whose weights training starts from, where names and shapes match"
    )
    grad_clip: float = setting(1.0, "the largest norm of the gradient over all parameters", above=0)
    label_smoothing: float = setting(
        0.0, "share of the target's probability spread over all words", least=0, below=1
    )
    device: str = setting("auto", DEVICES, DEVICE)
    bf16: bool = setting(False, "products in bfloat16, weights in float32")
    tf32: bool = setting(False, "on a GPU, faster fp32 products with ten bits of each factor")
    compile: bool = setting(False, "compile the model with torch.compile")
    compile_mode: str = choice(
        "default", "reduce-overhead", help="reduce-overhead records CUDA graphs, for tiny models"
    )
    pad_to_multiple_of: int = setting(
        1, "lengths become multiples of it, so that few shapes are compiled", least=1, most=10**6
    )
    deterministic: bool = setting(False, "bit-identical results on a GPU, slower")
    threads: int = setting(1, "processor threads for one run", least=1, most=256)
    check: bool = setting(True, "try an encoding's promises in a tiny model before step 1")
    log_every: int = setting(10, "steps between logged losses", least=1, most=10**9)
    eval_every: int = setting(
        100, "steps between validations, each with a checkpoint", least=1, most=10**9
    )
    patience: int | None = setting(
        None, "end after this many validations without improvement", least=1, most=10**9
    )
    keep_checkpoints: int = setting(
        0, "keep the weights of this many last validations, for averaging", least=0, most=1000
    )


@dataclass
class TuneConfig:
    """The learning rates to try for each encoding, on separate seeds."""

    lr: list[float] = setting([], "learning rates to try for each encoding before the study")
    warmup: list[int] = setting([], "warmups to try with them")
    seeds: list[int] = setting([], "seeds of these runs, which the study does not have")


@dataclass
class RuleConfig:
    """The rule for a study's verdict, written before the runs (``lab/rules.py``)."""

    claim: str = setting("", "the claim in one sentence")
    each: list[str] = setting([], "what is judged separately: task, pair, encoding")
    against: str | None = setting(None, "the encoding that every other one is compared with")
    measures: dict[str, float] = field(
        default_factory=dict,
        metadata={"help": "measures and the smallest difference that matters"},
    )
    supported: list[dict[str, Any]] = setting([], "conditions that must all hold")
    refuted: list[dict[str, Any]] = setting([], "conditions of which one suffices")


@dataclass
class StudyConfig:
    """The grid of runs for ``scripts/compare.py``."""

    name: str = setting("default", "the study's folder in output_dir")
    question: str = setting("", "the question that the report answers")
    pe: list[str] = setting([], "encodings to train")
    task: list[str] = setting([], "tasks to train")
    seeds: list[int] = setting([], "seeds to train")
    pairs: list[list[str]] = setting([], "pairs of encodings to compare, first minus second")
    tune: TuneConfig = field(default_factory=TuneConfig)
    rule: RuleConfig | None = setting(None, "the rule for the verdict; null: no verdict")
    expected_minutes: float | None = setting(None, "minutes on two cores", above=0)
    against: str | None = setting(None, "a committed study whose rows stand beside this one's")


@dataclass
class Config:
    """The whole configuration. ``pe`` and ``task`` are typed by the class their ``kind`` names."""

    seed: int = setting(0, "decides all random numbers of a run", least=-(2**63), most=2**63 - 1)
    output_dir: str = setting("results", "the folder for runs and reports")
    run_dir: str | None = setting(
        None, "the folder of this run; by default computed from the configuration"
    )
    imports: list[str] = setting(
        [], "a module of yours that registers encodings or tasks, or a list; written import="
    )
    # Computed, so that other code of a user's modules makes another run.
    import_digest: str | None = None
    # Computed, so that a start from other weights makes another run.
    init_digest: str | None = None
    progress: bool = setting(True, "false hides the progress bar")
    quiet: bool = setting(False, "true prints nothing")
    pictures: bool = setting(True, "false draws no pictures into TensorBoard")
    pe: dict[str, Any] = MISSING
    task: dict[str, Any] = MISSING
    model: ModelConfig = field(default_factory=ModelConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    study: StudyConfig = field(default_factory=StudyConfig)
    workers: int | None = setting(
        None,
        "runs of a study at the same time; by default cores / trainer.threads, 2 on a GPU; "
        "0 trains nothing and reports what is there",
        least=0,
        most=256,
    )
    report: str | None = setting(None, "a study's folder, whose report is written again")


COMPARE = ("study", "workers", "report")  # the keys of scripts/compare.py


@dataclass
class MachineConfig:
    """The machine that uses a trained run."""

    device: str = setting("auto", DEVICES, DEVICE)
    threads: int = setting(1, "processor threads", least=1, most=256)


RUN = "the folder of a run, as results/default/reverse/learned/seed3-…"
CHECKPOINTS = ("last", "best", "previous", "average")
WHICH = "weights to use; average: the mean of those that trainer.keep_checkpoints kept"


@dataclass
class ExportConfig:
    """The settings of scripts/export.py."""

    run: str | None = setting(None, RUN)
    checkpoint: str = choice(*CHECKPOINTS, help=WHICH)
    format: str = choice("safetensors", "ctranslate2", help="for PyTorch, or for CTranslate2")
    directory: str | None = setting(None, "where it goes; by default a folder in the run's own")


@dataclass
class TrainedConfig:
    """The settings of every script that decodes with a trained run."""

    run: str | None = setting(None, RUN)
    checkpoint: str = choice(*CHECKPOINTS, help=WHICH)
    decode: dict[str, Any] = MISSING  # the keys depend on the class that its kind names
    trainer: MachineConfig = field(default_factory=MachineConfig)


@dataclass
class OtherTest:
    """Settings of the task that a test may replace; null keeps the run's."""

    data_dir: str | None = setting(None, "where the run's text is now, if it has moved")
    hub: str | None = setting(None, "a hub dataset, or a folder, to be tested on")
    test_source: str | None = setting(None, "a file to be tested on, in place of the run's own")
    test_target: str | None = setting(None, "its translations")
    source_column: str | None = setting(None, "the column of sources in that file or dataset")
    target_column: str | None = setting(None, "the column of their translations")
    test_max_length: int | None = setting(None, "another longest length of a generated test")
    test_per_length: int | None = setting(None, "another number of sources of each length")


@dataclass
class EvaluateConfig(TrainedConfig):
    """The settings of scripts/evaluate.py."""

    verify: bool = setting(False, "true compares every number with those the run has kept")
    against: str | None = setting(
        None, "another run, whose translations are compared by a paired test"
    )
    test_sets: list[str] = setting(
        [], "names beside the run's text, as test_2017_flickr for test_2017_flickr.de.gz"
    )
    task: OtherTest = field(default_factory=OtherTest)


@dataclass
class TranslateConfig(TrainedConfig):
    """The settings of scripts/translate.py."""

    nbest: bool = setting(False, "print every hypothesis: number of the line, score, text")
    attention: str | None = setting(
        None, "a file, as attention.png, for a picture of which words each word looked at"
    )


@dataclass
class ServeConfig(TrainedConfig):
    """The settings of scripts/serve.py."""

    against: list[str] = setting([], "folders of other runs that answer the same sentence")
    host: str = setting("127.0.0.1", "the address; 127.0.0.1 is this machine alone")
    port: int = setting(8000, "0 takes a free one", least=0, most=65535)
