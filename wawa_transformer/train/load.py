"""A trained run, ready to be used."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import torch
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from tokenizers import Tokenizer
from torch import nn

from wawa_transformer.common.schema import UserError, first_line
from wawa_transformer.data.text import build_task
from wawa_transformer.model.transformer import Transformer
from wawa_transformer.run.config import Config, build_model, check_model
from wawa_transformer.run.device import take_device
from wawa_transformer.run.run_dir import Run
from wawa_transformer.train.checkpoint import Damaged, average, load, load_tokenizer


def load_model(
    run: Run, which: str = "last", device: torch.device | None = None, fast: bool = True
) -> tuple[Transformer, Tokenizer, DictConfig]:
    """A trained model in evaluation mode, its tokenizer and its configuration.

    ``which``: ``last``, ``best``, ``previous``, or the ``average`` of the weights kept. ``fast``:
    with the faster modules of a CPU.
    """
    path = run.checkpoint("last" if which == "average" else which)
    state = load(path)
    tokenizer = load_tokenizer(path, state)
    try:  # before anything is built: an altered configuration may ask for any amount of memory
        config = cast(DictConfig, OmegaConf.merge(OmegaConf.structured(Config), state["config"]))
        check_model(config)
        build_task(config)
    except (UserError, OmegaConfBaseException) as error:
        raise Damaged(f"{path} is damaged: its configuration says {first_line(error)}.") from None
    model = build_model(config, tokenizer)
    try:
        model.load_state_dict(average(run) if which == "average" else state["model"])
    except (RuntimeError, TypeError):  # the latter: shapes that cannot be added
        raise Damaged(f"{path} is damaged: its weights do not fit its configuration.") from None
    place_model(model, device or torch.device("cpu"), fast)
    return model.eval(), tokenizer, config


def open_trained(config: DictConfig) -> tuple[Run, Transformer, Tokenizer, DictConfig]:
    """The run that ``run=`` and ``checkpoint=`` on the command line name, and what it trained."""
    device = take_device(config.trainer)
    run = Run.at(Path(config.run))
    return run, *load_model(run, config.checkpoint, device, config.trainer.fast)


def place_model(model: nn.Module, device: torch.device, fast: bool) -> None:
    """Move a finished model to ``device``, and make it ``fast`` there; in place."""
    model.to(device)
    if fast:  # without these three lines, and without fast/, all works, only slower
        from wawa_transformer.fast import accelerate

        accelerate(model)
