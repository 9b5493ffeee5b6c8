"""Checkpoints: atomic writes, and reads that check the file."""

import io
import zipfile
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

from wawa_transformer.common.files import write_atomically
from wawa_transformer.common.schema import UserError
from wawa_transformer.data.tasks import read_tokenizer
from wawa_transformer.run.run_dir import Run

# The keys of every checkpoint. A file without some of them is damaged, whatever its checksum.
COUNTERS = ("step", "seconds", "target_tokens", "best_nll", "best_step")
CONTENTS = (*COUNTERS, "metrics", "model", "optimizer", "rng", "tokenizer", "config")
WEIGHTS = ("step", "model")  # the keys of weights kept for averaging


class Damaged(UserError):
    """A checkpoint whose content is not what was saved."""


def save(path: Path, state: dict[str, Any]) -> None:
    """Write ``state`` atomically; then the last checkpoint becomes the previous one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Through memory: writing directly, torch reports a full disk without a reason.
    content = io.BytesIO()
    torch.save(state, content)
    written = path.with_stem("next")
    write_atomically(written, content.getbuffer())  # no second copy of a large model
    if path.stem == "last" and path.exists():
        path.replace(path.with_stem("previous"))
    written.replace(path)


def keep(run: Run, step: int, model: dict[str, Any], count: int) -> None:
    """Keep the weights of ``step``, and delete all but the newest ``count``."""
    save(run.checkpoint(f"step{step:010}"), {"step": step, "model": model})
    for path in run.kept()[:-count]:
        path.unlink()


def average(run: Run) -> dict[str, torch.Tensor]:
    """Average the kept weights in float64 (Vaswani et al. 2017, section 6.1)."""
    paths = run.kept()
    if not paths:
        raise UserError(
            f"checkpoint=average: {run.directory} keeps no weights to average; train with "
            f"trainer.keep_checkpoints=10, or choose checkpoint=last."
        )
    total: dict[str, torch.Tensor] = {}
    for path in paths:  # one at a time: memory may not hold ten large models
        for name, weights in load(path, WEIGHTS)["model"].items():
            total[name] = weights.double() + total.get(name, 0)
    return {name: weights / len(paths) for name, weights in total.items()}


def load(path: Path, contents: tuple[str, ...] = CONTENTS) -> dict[str, Any]:
    """Read a checkpoint onto the CPU.

    Raises:
        Damaged: it is cut short, altered, or does not hold ``contents``.
        UserError: there is none.
    """
    if not path.exists():
        other = ", or choose checkpoint=last" if path.stem != "last" else ""
        raise UserError(
            f"{path} does not exist; train the run first, or if it is finished, delete its folder "
            f"and train it again{other}."
        )
    try:
        intact = zipfile.ZipFile(path).testzip() is None  # the CRC-32 of each tensor
        state = torch.load(path, map_location="cpu", weights_only=True)
        intact = intact and state.keys() >= set(contents)
        intact = intact and is_finite(state["model"])
        # An interpolation such as ${oc.env:HOME} would be resolved. Saved ones never have any.
        intact = intact and "${" not in repr(state.get("config"))
    except Exception:  # damaged bytes raise any of a dozen errors, none of them helpful
        intact = False
    if not intact:
        raise Damaged(
            f"{path} is damaged; delete its run's folder {path.parent.parent}, and give the same "
            "command to train again."
        )
    return state


def is_finite(weights: dict[str, torch.Tensor]) -> bool:
    """True if no weight is infinite or NaN."""
    return all(w.is_floating_point() and bool(w.isfinite().all()) for w in weights.values())


def load_tokenizer(path: Path, state: dict[str, Any]) -> Tokenizer:
    """Build the tokenizer saved in a checkpoint."""
    try:
        return read_tokenizer(state["tokenizer"])
    except Exception:  # the library raises plain exceptions
        raise Damaged(f"{path} is damaged: its tokenizer cannot be read.") from None
