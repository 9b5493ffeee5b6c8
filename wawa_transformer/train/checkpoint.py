"""Checkpoints: atomic writes, and reads that check the file."""

import contextlib
import errno
import io
import pickle
import shutil
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import tokenizers
import torch
from omegaconf import DictConfig
from tokenizers import Tokenizer
from torch import Tensor, nn

from wawa_transformer.common.files import cannot_read, reading, write_atomically
from wawa_transformer.common.schema import UserError, first_line
from wawa_transformer.data.tasks import read_tokenizer
from wawa_transformer.run.failure import is_out_of_memory
from wawa_transformer.run.run_dir import Run, differing_key, identity

# The keys of every checkpoint. A file without some of them is damaged, whatever its checksum.
COUNTERS = ("step", "seconds", "target_tokens", "best_nll", "best_step")
CONTENTS = (*COUNTERS, "metrics", "model", "optimizer", "rng", "device_rng", "tokenizer", "config")
WEIGHTS = ("step", "model")  # the keys of weights kept for averaging


class Damaged(UserError):
    """A checkpoint whose checksum, format or keys prove that it is not what was saved."""


class Missing(UserError):
    """A checkpoint that does not exist."""


def save(path: Path, state: dict[str, Any]) -> None:
    """Write ``state`` atomically; then the last checkpoint becomes the previous one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Through memory: writing directly, torch reports a full disk without a reason.
    content = io.BytesIO()
    torch.save(state, content)
    written = path.with_stem("next")
    write_atomically(written, content.getbuffer())  # no second copy of a large model
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
    save(path, {key: state[key] for key in (*WEIGHTS, "transformer", "config")})
    for path in run.kept()[:-count]:
        path.unlink()


def average(run: Run, config: dict[str, Any]) -> dict[str, Tensor]:
    """Average the kept weights in float64 (Vaswani et al. 2017, section 6.1)."""
    paths = run.kept()
    if not paths:
        raise UserError(
            f"checkpoint=average: {run.directory} keeps no weights to average; train with "
            f"trainer.keep_checkpoints=10, or choose checkpoint=last."
        )
    total: dict[str, Tensor] = {}
    for path in paths:  # one at a time: memory may not hold ten large models
        for name, weights in load_own(run, path, config, WEIGHTS)["model"].items():
            # A buffer of integers or booleans, such as a counter, has no mean.
            summed = weights.is_floating_point()
            total[name] = weights.double() + total.get(name, 0) if summed else weights
    return {n: w / len(paths) if w.is_floating_point() else w for n, w in total.items()}


def load(path: Path, contents: tuple[str, ...] = CONTENTS) -> dict[str, Any]:
    """Read a checkpoint onto the CPU.

    Raises:
        Damaged: its checksum or format is wrong, or it does not hold ``contents``.
        Missing: there is none.
        UserError: it cannot be read now.
    """
    try:
        with reading(path), path.open("rb") as file:
            state, why = read_file(path, file)
    except FileNotFoundError:
        raise Missing(
            f"{path} does not exist; train the run first, or choose another checkpoint."
        ) from None
    if not why and (missing := [key for key in contents if key not in state]):
        why = f"it holds no {missing[0]}"
    if why:
        raise Damaged(
            f"{path} is damaged: {why}; choose another checkpoint, or train the run again with "
            f"output_dir set to another folder."
        )
    return state


def load_own(
    run: Run, path: Path, config: Any, contents: tuple[str, ...] = CONTENTS
) -> dict[str, Any]:
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


def read_file(path: Path, file: IO[bytes]) -> tuple[dict[str, Any], str]:
    """Read the zip archive that ``torch.save`` wrote; also say what damage is proven.

    Raises:
        OSError, MemoryError, UserError: it cannot be read now, which proves nothing.
    """
    altered = "its file is cut or altered"
    try:
        with zipfile.ZipFile(file) as archive:
            if archive.testzip() is not None:  # the CRC-32 of each tensor
                return {}, "its checksum is wrong"
    except MemoryError:
        raise
    except OSError as error:
        if error.errno != errno.EINVAL:  # an altered offset before the file's begin
            raise
        return {}, altered
    except Exception:  # altered headers raise any of a dozen errors
        return {}, altered
    file.seek(0)
    try:
        state = torch.load(file, map_location="cpu", weights_only=True)
    except (OSError, MemoryError):
        raise
    except (pickle.UnpicklingError, EOFError):
        return {}, "it is no checkpoint"
    except Exception as error:
        if "PytorchStreamReader" in str(error):  # the reader of the zip archive
            return {}, altered
        raise cannot_read(path, error) from None  # torch has no class for a lack of memory
    return (state, "") if isinstance(state, dict) else ({}, "it is no checkpoint")


def is_finite(model: nn.Module) -> bool:
    """True if no parameter is infinite or NaN; buffers may hold any value."""
    return all(bool(weights.isfinite().all()) for weights in model.parameters())


def load_weights(model: nn.Module, weights: dict[str, Tensor]) -> None:
    """Load ``weights`` into ``model``.

    Raises:
        RuntimeError, ValueError: they are those of another model, or not finite.
    """
    for name, own in model.state_dict().items():
        # PyTorch would convert them.
        if name in weights and weights[name].is_floating_point() != own.is_floating_point():
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
        raise UserError(
            f"{path} does not fit the model that this code builds ({first_line(error)}): code "
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
