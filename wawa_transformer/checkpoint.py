"""Checkpoints: written atomically, read verified."""

from __future__ import annotations

import hashlib
import os
import pickle
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from tokenizers import Tokenizer

from wawa_transformer.config import UserError, build_model
from wawa_transformer.runs import Run, choose_device
from wawa_transformer.transformer import Transformer


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
            whole = item.detach().cpu().contiguous()
            if item.ndim:
                digest.update(whole.view(torch.uint8).numpy().tobytes())
            else:
                digest.update(repr(whole.item()).encode())
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
    run: Run, which: str = "last", device: torch.device | None = None
) -> tuple[Transformer, Tokenizer, DictConfig]:
    """A trained model in evaluation mode, its tokenizer and its configuration."""
    state = load(run.checkpoint(which))
    config = OmegaConf.create(state["config"])
    tokenizer = load_tokenizer(state)
    model = build_model(config, tokenizer.get_vocab_size())
    model.load_state_dict(state["model"])
    return model.to(device).eval(), tokenizer, config


def load_tokenizer(state: dict[str, Any]) -> Tokenizer:
    """The tokenizer that a checkpoint holds."""
    tokenizer = Tokenizer.from_str(state["tokenizer"])
    tokenizer.encode_special_tokens = True  # not part of the tokenizer's JSON
    return tokenizer


def open_trained(config: DictConfig) -> tuple[Transformer, Tokenizer, DictConfig]:
    """What ``run=DIRECTORY`` and ``checkpoint=`` on the command line name, ready to be used."""
    if not config.run:
        raise UserError("run is not given; name a run's directory: run=results/….")
    device = choose_device(config.trainer.device)
    return load_model(Run.at(Path(config.run)), config.checkpoint, device)
