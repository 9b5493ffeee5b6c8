"""Read a checkpoint's file, and prove damage before it is said."""

import errno
import hashlib
import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from wawa_transformer.common.files import cannot_read, reading
from wawa_transformer.common.messages import UserError

# The keys of every checkpoint. A file without some of them is damaged, whatever its checksum.
COUNTERS = ("step", "seconds", "target_tokens", "best_nll", "best_step")
CONTENTS = (*COUNTERS, "metrics", "model", "optimizer", "rng", "device_rng", "tokenizer", "config")
WEIGHTS = ("step", "model")  # the keys of weights kept for averaging


class Damaged(UserError):
    """A checkpoint whose checksum, format or keys prove that it is not what was saved."""


class Missing(UserError):
    """A checkpoint that does not exist."""


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
            f"{path} does not exist; train the run first, copy the file from where it was trained, "
            f"or choose another checkpoint."
        ) from None
    if not why and (missing := [key for key in contents if key not in state]):
        why = f"it holds no {missing[0]}, unless an older version of this program wrote it"
    if why:
        raise Damaged(
            f"{path} is damaged: {why}; choose another checkpoint, or train the run again with "
            f"output_dir set to another folder."
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
    except pickle.UnpicklingError:  # its checksums are right
        raise UserError(
            f"{path} holds an object that is neither a tensor nor a plain value, as only a changed "
            f"program keeps; change what it keeps and train again: nothing was moved."
        ) from None
    except EOFError:
        return {}, "it is no checkpoint"
    except Exception as error:
        if "PytorchStreamReader" in str(error):  # the reader of the zip archive
            return {}, altered
        raise cannot_read(path, error) from None  # torch has no class for a lack of memory
    return (state, "") if isinstance(state, dict) else ({}, "it is no checkpoint")


def weights_digest(weights: Mapping[str, Tensor]) -> str:
    """Hash the names, shapes, types and values of weights to eight hexadecimal digits."""
    digest = hashlib.sha256()
    for name, value in sorted(weights.items()):
        digest.update(f"{name} {value.dtype} {[*value.shape]}".encode())
        digest.update(value.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:8]


def load_source(place: str) -> dict[str, Any]:
    """Read the checkpoint that ``trainer.init_from`` names: a run's last, or a file.

    Raises:
        Missing: there is no such run, or it has no checkpoint.
        UserError: its checkpoint cannot be used.
    """
    path = Path(place)
    file = path if path.suffix == ".pt" else path / "checkpoints" / "last.pt"
    if "\0" in place:
        raise UserError(f"trainer.init_from={place} cannot be a path; name a run's folder.")
    try:
        state = load(file, ())  # another program's file is not damaged
    except Missing:
        raise Missing(
            f"trainer.init_from={place} is no run with weights: there is no {file}; name a run's "
            f"folder or one of its checkpoints, and to go on with a run that began from it, "
            f"also give the init_digest of its config.yaml."
        ) from None
    weights = state.get("model")
    if not isinstance(weights, dict) or not all(isinstance(w, Tensor) for w in weights.values()):
        raise UserError(
            f"trainer.init_from={place} holds no weights of a model under model; name a run."
        )
    return state


def init_digest(config: Any) -> str | None:
    """Hash the weights that a run starts from; None for a run that starts anew.

    Where the weights are gone, a digest that the command gives stands for them: a run that has a
    checkpoint of its own goes on without them.

    Raises:
        UserError: there are no such weights, or they are others than the digest says.
    """
    place, given = config.trainer.init_from, config.init_digest
    if place is None:
        if given is not None:
            raise UserError(f"init_digest={given} has no effect without trainer.init_from.")
        return None
    try:
        digest = weights_digest(load_source(place)["model"])
    except Missing:
        if given is None:
            raise
        return str(given)
    if given not in (None, digest):
        raise UserError(
            f"trainer.init_from={place} has weights with digest {digest}, and init_digest={given}; "
            f"leave init_digest out to start from these weights."
        )
    return digest
