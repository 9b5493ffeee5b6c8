"""A run on disk: its directory, and checkpoints that are written atomically and read verified."""

from __future__ import annotations

import hashlib
import os
import pickle
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from tokenizers import Tokenizer

from wawa_transformer.config import UserError, identity, make_directory, run_directory
from wawa_transformer.transformer import Transformer


def open_run(config: DictConfig) -> Path:
    """The run's directory, made if need be.

    Raises:
        UserError: it holds another configuration, or cannot be written.
    """
    directory = run_directory(config)
    wanted = OmegaConf.to_yaml(OmegaConf.create(identity(config)), sort_keys=True)
    path = directory / "config.yaml"
    make_directory(directory)
    if not path.exists():
        write_atomically(path, wanted)
    elif path.read_text(encoding="utf-8") != wanted:
        raise UserError(
            f"{directory} holds another configuration (see its config.yaml); "
            "leave run_dir out, or name an empty folder."
        )
    return directory


def write_atomically(path: Path, text: str) -> None:
    """The old file or the new one, never half of it."""
    unfinished = path.with_suffix(path.suffix + ".tmp")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)


def save(path: Path, state: dict[str, Any]) -> None:
    """Write ``state`` with its fingerprint; a crash leaves the old file or the new, never half."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".tmp")
    with unfinished.open("wb") as file:
        torch.save({**state, "sha256": fingerprint(state)}, file)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)


def load(path: Path) -> dict[str, Any]:
    """Read a checkpoint onto the CPU.

    Raises:
        UserError: the file is missing, cut short, or not what was written.
    """
    if not path.exists():
        raise UserError(f"{path} does not exist; train the run first, or choose checkpoint=last.")
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        expected = state.pop("sha256")
        intact = fingerprint(state) == expected
    except (RuntimeError, pickle.UnpicklingError, EOFError, KeyError, AttributeError, ValueError):
        intact = False
    if not intact:
        raise UserError(
            f"{path} is damaged; delete it, or its run's folder {path.parent.parent}, "
            "and give the same command to train again."
        )
    return state


def fingerprint(value: Any) -> str:
    """SHA-256 over every key, number and tensor of nested plain containers."""
    digest = hashlib.sha256()

    def feed(item: Any) -> None:
        if isinstance(item, torch.Tensor):
            digest.update(f"{item.dtype}{tuple(item.shape)}".encode())
            digest.update(item.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes()
                          if item.ndim else repr(item.item()).encode())  # fmt: skip
        elif isinstance(item, dict):
            for key, inner in item.items():
                digest.update(repr(key).encode())
                feed(inner)
        elif isinstance(item, (list, tuple)):
            digest.update(f"{len(item)}[".encode())
            for inner in item:
                feed(inner)
        else:
            digest.update(repr(item).encode())

    feed(value)
    return digest.hexdigest()


def load_model(
    directory: Path, which: str = "last", device: str = "cpu"
) -> tuple[Transformer, Tokenizer, DictConfig]:
    """A trained model in evaluation mode, its tokenizer and its configuration, from a run."""
    state = load(directory / "checkpoints" / f"{which}.pt")
    config = OmegaConf.create(state["config"])
    tokenizer = Tokenizer.from_str(state["tokenizer"])
    tokenizer.encode_special_tokens = True  # not part of the tokenizer's JSON
    model = Transformer.from_config(config, tokenizer.get_vocab_size())
    model.load_state_dict(state["model"])
    return model.to(device).eval(), tokenizer, config
