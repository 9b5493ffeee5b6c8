"""Helpers that the tests share."""

import copy
import dataclasses
import functools
import multiprocessing
import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Collection
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from torch import Tensor, nn
from tqdm import tqdm

import wawa_transformer
from wawa_transformer import Transformer
from wawa_transformer.common import CONFIG_DIR
from wawa_transformer.common.messages import UserError
from wawa_transformer.positional import build_encoding
from wawa_transformer.positional.base import ENCODINGS, EncodingContext
from wawa_transformer.positional.position_ids import PositionIds
from wawa_transformer.run.cli import exit_on_error
from wawa_transformer.run.compose import compose
from wawa_transformer.run.overrides import CHECKS, parse
from wawa_transformer.run.run_dir import Run
from wawa_transformer.run.signals import Stopped
from wawa_transformer.train import checkpoint, loop
from wawa_transformer.train.setup import TrainState, build_state
from wawa_transformer.train.trainer import train

SCRIPTS = CONFIG_DIR.parent / "scripts"
# A study without pictures, whose workers are forks.
UNDRAWN = str(SCRIPTS.parent / "tests" / "lab" / "undrawn.py")
# The keys of a run that takes about a second: small data, few steps, short tests.
TINY = [
    "model.d_model=16", "model.num_heads=2", "model.d_ff=32", "task.train_size=300",
    "task.validation_size=20", "task.test_per_length=5", "task.max_length=4",
    "task.test_max_length=6", "trainer.steps=20", "trainer.warmup=5", "trainer.eval_every=10",
    "trainer.log_every=5", "trainer.batch_tokens=64", "trainer.device=cpu",
    "trainer.check=false", "pictures=false", "progress=false",
]  # fmt: skip

torch.set_num_threads(1)
# Tests fork and kill processes. A progress bar's lock must not stay held by a monitor thread or a
# killed process.
tqdm.monitor_interval = 0
tqdm.set_lock(threading.RLock())

RESET = 5  # the id after which the ``_reset`` entries of MODELS restart counting
RELATIVE = sorted(kind for kind, cls in ENCODINGS.items() if cls.relative)
ACROSS = sorted([*RELATIVE, "fire"])  # in cross-attention
# Left out: a class that inherits all three methods reads position ids as its parent does.
ABSOLUTE = sorted(
    kind
    for kind, cls in ENCODINGS.items()
    if cls.uses_positions and not cls.relative and vars(cls).keys() & {"embed", "rotate", "bias"}
)
POSITION_IDS = {
    "end": {"origin": "end"},
    "both": {"origin": "both"},
    "shifted": {"max_shift": 9, "origin": "end"},
    "random": {"random_positions": 40},
    "reset": {"reset_token": RESET},
    "end_reset": {"reset_token": RESET, "origin": "end"},
    "both_reset": {"reset_token": RESET, "origin": "both"},
    "abacus": {"reset_token": RESET, "origin": "abacus", "max_shift": 9},
}
# Arguments of Transformer: every encoding in each of its places, with position ids that differ by
# row and head, and with random position ids. The sinusoid has every kind of position ids.
MODELS: dict[str, dict[str, Any]] = {
    **{kind: {"pe": kind} for kind in sorted(ENCODINGS)},
    **{f"{kind}_cross": {"pe": kind, "cross": "same"} for kind in ACROSS},
    "sinusoidal_t5": {"pe": "sinusoidal", "cross": "t5"},
    "none_shaw": {"pe": "none", "cross": "shaw"},
    "none_causal": {"pe": "none", "encoder_mask": "causal"},
    "alibi_window": {"pe": "alibi", "encoder_mask": "anti_causal", "encoder_window": 1},
    **{
        f"{kind}_{name}": {"pe": kind, **ids}
        for kind in ABSOLUTE
        for name, ids in POSITION_IDS.items()
        if kind == "sinusoidal" or name in ("both_reset", "random")
    },
    **{
        f"{kind}_cross_both": {
            "pe": kind, "cross": "same", "origin": "both"
        }
        for kind in ACROSS
    },
    **{
        f"{kind}_random": {"pe": kind, **POSITION_IDS["random"]}
        for kind in RELATIVE
    },
    "shaw_cross_end": {"pe": "shaw", "cross": "same", "origin": "end"},
    "rotary_reset": {"pe": "rotary", **POSITION_IDS["reset"]},
    "rotary_cross_continued": {
        "pe": "rotary", "cross": "same", "origin": "continued"
    },
    "rotary_cross_divided": {"pe": "rotary", "cross": "same", "divided": 2000.0},
    "rotary_larope": {"pe": "rotary", "cross": "same", "cross_divided": 10.0},
    "pope_divided_both": {
        "pe": "pope", "cross": "same", "divided": 30.0, "origin": "both"
    },
    "merged_rotary_query": {
        "pe": "rotary", "cross": "rotary_query", "merged_attention": True
    },
    "merged_shaw": {"pe": "shaw", "cross": "same", "merged_attention": True},
    "merged_sinusoidal": {"pe": "sinusoidal", "merged_attention": True},
}  # fmt: skip
# Those whose positions are counted from the start, once for each place of each encoding.
PLAIN = [
    name
    for name, given in MODELS.items()
    if not given.keys() & {field.name for field in dataclasses.fields(PositionIds)}
]

# Without those that act in cross-attention, too, under another name.
PLACED = [name for name in PLAIN if f"{name}_cross" not in MODELS]


# Of different sizes, so that none can stand for another: a head has 6 dimensions.
V, D, HEADS, FF, LAYERS = 13, 24, 4, 20, 2


def small_model(name: str = "sinusoidal", **changes: Any) -> Transformer:
    """Build an entry of MODELS in float64, in evaluation mode.

    The model has no dropout.
    """
    shape = {"d_model": D, "num_layers": LAYERS, "num_heads": HEADS, "d_ff": FF}
    arguments: Any = {**shape, "dropout": 0.0, "seed": 3, **MODELS[name], **changes}
    return Transformer(V, V, **arguments).double().eval()


def padded_ids(batch: int, length: int, seed: int) -> Tensor:
    """Draw ids ``(B,S)`` whose rows end on 0, 1, 2, … padding.

    No row is empty if ``length`` is at least ``batch``.
    """
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(1, V, (batch, length), generator=generator)
    for row in range(batch):
        ids[row, length - row :] = 0
    return ids


def make(kind: str, role: str = "encoder", **settings: Any) -> Any:
    """Build a single encoding of width 12 and 3 heads.

    The encoding is in float64 and in evaluation mode.
    """
    context = EncodingContext(12, 3, dropout=0.0, role=role)
    return build_encoding(kind, context, settings).double().eval()


def perturbed(encoding: nn.Module, seed: int = 0) -> Any:
    """Move every parameter of a model or an encoding, since some start at zero."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in encoding.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) / 3)
    return encoding


def heads(length: int, seed: int = 0) -> Tensor:
    """Draw queries or keys ``(2,3,S,4)`` for an encoding of :func:`make`."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, 3, length, 4, dtype=torch.float64, generator=generator)


@functools.cache
def composed(overrides: tuple[str, ...], script: str) -> DictConfig:
    """Compose a configuration once: Hydra takes as long as ten steps of training."""
    return compose(overrides, script)


# A plain value of one key. Hydra sets these after all choices, so that a configuration of the same
# choices serves many of them.
SETTING = re.compile(
    r"(seed|pictures|progress|quiet|study\.name|(model|trainer|task|pe|decode)\.\w+)=[-\w./]+"
    r"|study\.(pe|task|seeds|pairs)=\[.+\]"
)


# Keys that hold a path, which is set as it is written.
FOLDERS = ("output_dir", "run_dir", "run", "directory")


def configure(*overrides: str, script: str = "config") -> DictConfig:
    """Compose the configuration of ``scripts/train.py``, or of another script."""
    given = {each.partition("=")[0].lstrip("+"): each for each in overrides}  # the last counts
    folders = {key: given.pop(key) for key in FOLDERS if key in given}
    settings = [each for each in given.values() if SETTING.fullmatch(each)]
    choices = tuple(each for each in given.values() if each not in settings)
    try:
        config = copy.deepcopy(composed(choices, script))
        for each in map(parse, settings):
            OmegaConf.update(config, each.key_or_group, each.value())
    except (OmegaConfBaseException, OverflowError):
        config = copy.deepcopy(composed(tuple(given.values()), script))  # Hydra's own refusal
    for key, each in folders.items():
        config[key] = each.partition("=")[2]
    return config


def checked(*overrides: str) -> DictConfig:
    """Compose a configuration as a script does, with the digests of what it reads."""
    config = configure(*overrides)
    CHECKS["config"](config)
    return config


def begun(config: DictConfig) -> TrainState:
    """Build the state of a run at step 0, without a folder."""
    return build_state(config, Run.from_config(config), None)


def answer(*overrides: str, script: str = "config") -> str:
    """Get the sentence with which a script refuses a command line; empty if it does not."""
    try:
        CHECKS[script](copy.deepcopy(composed(overrides, script)))
    except UserError as error:
        return str(error)
    return ""


def call_script(main: Any, *arguments: str) -> None:
    """Do what a script of a trained run does, without Hydra's own beginning, which takes 0.3 s."""
    with exit_on_error():
        config = configure(*arguments, script=main.__module__)
        CHECKS[main.__module__](config)
        main.__wrapped__(config)


def trained(folder: Path, *overrides: str) -> Run:
    """Train a run in ``folder``."""
    config = configure(*overrides, f"output_dir={folder}")
    train(config)
    return Run.from_config(config)


def train_until_saved(config: DictConfig) -> None:
    """Train until the first checkpoint, as if a signal came then."""
    save = loop.save_state

    def save_and_stop(*arguments: Any, **words: Any) -> None:
        save(*arguments, **words)
        raise Stopped("in a test")

    with pytest.MonkeyPatch.context() as patched, pytest.raises(Stopped):
        patched.setattr(loop, "save_state", save_and_stop)
        train(config)


def curves(run: Run) -> list[dict[str, Any]]:
    """Read all that a run logged, but for its speed."""
    return [{k: v for k, v in row.items() if k != "tokens_per_second"} for row in run.metrics()]


def assert_same_bits(run: Run, expected: Run) -> None:
    """Compare curves, weights, moments and random states of two runs, to the last bit."""
    assert curves(run) == curves(expected)
    ends = [checkpoint.load(each.checkpoint("last")) for each in (run, expected)]
    for part in ("model", "optimizer", "rng"):
        torch.testing.assert_close(ends[0][part], ends[1][part], rtol=0, atol=0)


def assert_same_but_for_rounding(run: Run, expected: Run) -> None:
    """Compare curves, results and last checkpoints of two runs that sum in another order."""
    for rows_of in (curves, lambda each: each.result()["by_length"]):
        tables = (pd.json_normalize(rows_of(each)) for each in (run, expected))
        pd.testing.assert_frame_equal(*tables, rtol=1e-4)
    end, other = (checkpoint.load(each.checkpoint("last")) for each in (run, expected))
    assert end["optimizer"]["param_groups"] == other["optimizer"]["param_groups"]
    for name, value in other["model"].items():
        if not name.endswith("in_proj.bias"):  # a key's bias changes no score: rounding noise
            torch.testing.assert_close(end["model"][name], value, rtol=0, atol=1e-5, msg=name)
    for i, moments in other["optimizer"]["state"].items():
        found = end["optimizer"]["state"][i]
        torch.testing.assert_close(found, moments, rtol=1e-3, atol=1e-5)


def copy_code(folder: Path, *names: str, leave: Collection[str] = ()) -> None:
    """Copy folders of this project, without ``leave`` and texts that are not shipped.

    With what Python has compiled: to compile the package again would take a second.
    """
    ignore = shutil.ignore_patterns("multi30k", "debian", *leave)
    for name in names:
        shutil.copytree(SCRIPTS.parent / name, folder / name, ignore=ignore)


def forget(*packages: str) -> None:
    """Let this process import packages anew."""
    for name in [each for each in sys.modules if each.split(".")[0] in packages]:
        del sys.modules[name]


# The begin of a script in which our own modules find no ``{absent}``.
WITHOUT = """
import sys
from support import forget
forget("wawa_transformer", *{absent!r}.split())
sys.modules.update(dict.fromkeys({absent!r}.split()))
"""


class Script(multiprocessing.get_context("fork").Process):  # type: ignore[name-defined, misc]
    """A script in a fork of this process, which has imported its libraries already.

    A Python that begins takes six seconds to import them. A script of another copy of the package
    imports that copy.
    """

    def __init__(
        self, name: str, *given: str, stdin: str = "", folder: Path | str = ".", **environment: str
    ) -> None:
        super().__init__()
        self.script, self.arguments = SCRIPTS / name, given
        self.folder, self.environment = folder, environment
        # Written at their ends, so that they can be read meanwhile.
        self.streams = [tempfile.TemporaryFile("a+") for _ in range(3)]  # noqa: SIM115
        self.streams[0].write(stdin)
        self.streams[0].seek(0)
        self.start()

    def run(self) -> None:
        """Do in the new process what a Python that begins would do."""
        for number, name in enumerate(("stdin", "stdout", "stderr")):
            os.dup2(self.streams[number].fileno(), number)
            setattr(sys, name, os.fdopen(number, "w" if number else "r", 1, closefd=False))
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.environ.update(self.environment)
        os.chdir(self.folder)
        sys.argv = [str(self.script), *self.arguments]
        paths = self.environment.get("PYTHONPATH", "").split(os.pathsep)
        sys.path[:0] = [str(self.script.parent), *filter(None, paths)]
        found, own = PathFinder.find_spec("wawa_transformer"), wawa_transformer.__file__
        if found and found.origin and not Path(found.origin).samefile(own):
            forget("wawa_transformer")
        self.work()

    def work(self) -> None:
        try:
            runpy.run_path(str(self.script), run_name="__main__")
        except Exception:  # as a Python of its own ends
            sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
            sys.exit(1)

    def end(self, seconds: float = 240) -> subprocess.CompletedProcess[str]:
        """Wait until the script ends, and get its status and what it wrote."""
        self.join(seconds)
        if self.exitcode is None:
            self.kill()
            self.join()
        return subprocess.CompletedProcess(self.arguments, self.exitcode, *map(self.read, (1, 2)))

    def read(self, stream: int) -> str:
        """Read what the script has written so far to standard output (1) or error (2)."""
        self.streams[stream].seek(0)
        return self.streams[stream].read()


def run_script(name: str, *arguments: str, **how: Any) -> subprocess.CompletedProcess[str]:
    """Run a script to its end, as :class:`Script`."""
    return Script(name, *arguments, **how).end()
