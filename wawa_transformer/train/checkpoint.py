"""Checkpoints: atomic writes, averages, and checks against the run; ``run/saved.py`` reads."""

import contextlib
import io
import pickle
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import tokenizers
import torch
from omegaconf import DictConfig
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.serialization import get_unsafe_globals_in_checkpoint

from wawa_transformer.common.files import cannot_read, write_atomically
from wawa_transformer.common.messages import UserError, first_line
from wawa_transformer.data.words import read_tokenizer
from wawa_transformer.run.failure import is_out_of_memory
from wawa_transformer.run.run_dir import Run, differing_key, identity
from wawa_transformer.run.saved import CONTENTS as CONTENTS
from wawa_transformer.run.saved import COUNTERS as COUNTERS
from wawa_transformer.run.saved import WEIGHTS as WEIGHTS
from wawa_transformer.run.saved import Damaged as Damaged
from wawa_transformer.run.saved import Missing as Missing
from wawa_transformer.run.saved import load as load


def save(path: Path, state: dict[str, Any]) -> None:
    """Write ``state`` as :func:`write` does."""
    write(path, packed(state))


def packed(state: dict[str, Any]) -> memoryview:
    """Pack ``state`` as in a file.

    Raises:
        UserError: an object in it, of whatever an edit keeps, could not be read again.
    """
    content, why = pack(state)
    if why:
        key = next(key for key, value in state.items() if pack({key: value})[1])
        raise UserError(
            f"a checkpoint would hold {why} in its {key}, and it is read with tensors, numbers and "
            f"text alone, and lists and dictionaries of these; keep these there."
        )
    return content.getbuffer()  # no second copy of a large model


def pack(state: dict[str, Any]) -> tuple[io.BytesIO, str]:
    """Pack ``state``; also name an object that could not be packed, or not be read again."""
    # Through memory: writing directly, torch reports a full disk without a reason.
    content = io.BytesIO()
    try:
        torch.save(state, content)
    except (pickle.PicklingError, AttributeError, TypeError) as error:  # as of a lambda
        return content, first_line(error)
    content.seek(0)
    return content, " and ".join(sorted(get_unsafe_globals_in_checkpoint(content)))


def write(path: Path, content: memoryview) -> None:
    """Write a packed state atomically; then the last checkpoint becomes the previous one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    written = path.with_stem("next")
    write_atomically(written, content)
    if path.stem == "last" and path.exists():
        duplicate(path, path.with_stem("previous"))
    written.replace(path)


def duplicate(path: Path, to: Path) -> None:
    """Let ``to`` be the same file as ``path``, which stays where it is all the time."""
    spare = to.with_stem("spare")
    spare.unlink(missing_ok=True)
    try:
        spare.hardlink_to(path)
    except OSError:  # a file system without links
        shutil.copyfile(path, spare)
    spare.replace(to)


def keep(run: Run, state: dict[str, Any], count: int) -> None:
    """Keep the weights of a checkpoint, and delete all but the newest ``count``."""
    path = run.checkpoint(f"step{state['step']:010}")
    kept = (*WEIGHTS, "transformer", "model_class", "config", "tokenizer", "trained_sizes")
    save(path, {key: state[key] for key in kept})
    for path in run.kept()[:-count]:
        path.unlink()


def average(run: Run, config: dict[str, Any], last: dict[str, Any]) -> dict[str, Tensor]:
    """Average the kept weights in float64 (Vaswani et al. 2017, section 6.1).

    Raises:
        UserError: they are not those of the last validations of the checkpoint ``last``.
    """
    # A run that was killed may have kept the weights of a step after its checkpoint.
    kept = {int(path.stem.removeprefix("step")): path for path in run.kept()}
    steps = [step for step in kept if step <= last["step"]]
    if not steps:
        raise UserError(
            f"checkpoint=average: {run.directory} keeps no weights to average; choose "
            f"checkpoint=last, or train it in another output_dir with trainer.keep_checkpoints=10."
        )
    every = [row["step"] for row in last["metrics"] if row["split"] == "validation"]
    if steps != (validated := every[-len(steps) :]):
        raise UserError(
            f"checkpoint=average: {run.directory} keeps weights of steps {steps}, and its last "
            f"validations were at {validated}: it went on without trainer.keep_checkpoints; choose "
            f"checkpoint=last."
        )
    total: dict[str, Tensor] = {}
    weights: dict[str, Tensor] = {}
    for step in steps:  # one at a time: memory may not hold ten large models
        weights = load_own(kept[step], config, WEIGHTS)["model"]
        for name, value in weights.items():
            # A buffer of integers or booleans, such as a counter, has no mean.
            summed = value.is_floating_point()
            total[name] = value.double() + total.get(name, 0) if summed else value
    return {
        name: (value / len(steps)).to(weights[name]) if value.is_floating_point() else value
        for name, value in total.items()
    }


def load_own(path: Path, config: Any, contents: tuple[str, ...] = CONTENTS) -> dict[str, Any]:
    """Read a checkpoint of the run with the configuration ``config``, of any machine.

    Raises:
        UserError: it is another run's, or as in :func:`load`.
    """
    state = load(path, contents)
    saved = state.get("config", config)  # weights kept by an older version have none
    saved = identity(saved) if isinstance(saved, Mapping | DictConfig) else saved
    if key := differing_key(saved, identity(config)):
        raise UserError(
            f"{path} is a checkpoint of another run than its folder's config.yaml: {key[0]} is "
            f"{key[1]} there and {key[2]} here; put the run's own checkpoint back, or set "
            f"output_dir to another folder to train."
        )
    return state


def is_finite(model: nn.Module) -> bool:
    """True if no parameter is infinite or NaN; buffers may hold any value."""
    return all(bool(weights.isfinite().all()) for weights in model.parameters())


def load_weights(model: nn.Module, weights: dict[str, Tensor]) -> None:
    """Load ``weights`` into ``model``.

    Raises:
        RuntimeError, ValueError: they are those of another model, or not finite.
    """
    for name, own in model.state_dict().items():
        # PyTorch would convert them, and round.
        if name in weights and weights[name].dtype != own.dtype:
            raise ValueError(f"{name} is {weights[name].dtype}, not {own.dtype}")
    model.load_state_dict(weights)
    if not is_finite(model):
        raise ValueError("a weight is not finite")


@contextlib.contextmanager
def fitting(path: Path, state: dict[str, Any]) -> Iterator[None]:
    """Explain that a checkpoint with right checksums does not fit the model of this code."""
    try:
        yield
    except UserError:
        raise
    except (RuntimeError, ValueError, KeyError, TypeError, AttributeError) as error:
        if is_out_of_memory(error):
            raise cannot_read(path, error) from None
        below = str(error).partition("\n\t")[2].partition("\n")[0]  # where torch names the weights
        said = below[:200].rstrip(". ") or first_line(error)
        raise UserError(
            f"{path} does not fit the model that this code builds ({said}): code "
            f"{state.get('code', 'unknown')} wrote it; bring that code back, or set output_dir to "
            f"another folder to train with this one."
        ) from None


def load_tokenizer(path: Path, state: dict[str, Any]) -> Tokenizer:
    """Build the tokenizer saved in a checkpoint."""
    try:
        return read_tokenizer(state["tokenizer"])
    except Exception as error:  # the library raises plain exceptions
        raise UserError(
            f"the tokenizer in {path} cannot be read by tokenizers {tokenizers.__version__} "
            f"({first_line(error)}); install the version that wrote it, which the run's "
            f"result.json names."
        ) from None
