"""Preparation: all that a run needs, as its configuration begins it or a checkpoint left it."""

from __future__ import annotations

import functools
import math
import os
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from omegaconf import DictConfig
from torch import Tensor

from wawa_transformer.common.schema import UserError
from wawa_transformer.common.seeds import seed_for
from wawa_transformer.data.batching import Batch, Examples
from wawa_transformer.data.load import Data, load_data
from wawa_transformer.model.transformer import Transformer
from wawa_transformer.run import distributed
from wawa_transformer.run.config import TrainerConfig, build_model
from wawa_transformer.run.device import take_device
from wawa_transformer.run.run_dir import Run, identity
from wawa_transformer.train import checkpoint, evaluation
from wawa_transformer.train.optim import adamw


@dataclass
class TrainState:
    """All that a run needs to go on, and how far it is; seconds are those of training alone."""

    config: DictConfig
    run: Run
    data: Data
    device: torch.device
    model: Transformer
    optimizer: torch.optim.Optimizer
    history: list[dict[str, Any]] = field(default_factory=list)  # the lines of metrics.jsonl
    step: int = 0
    seconds: float = 0.0
    target_tokens: int = 0
    best_nll: float = math.inf
    best_step: int = 0

    @functools.cached_property
    def trainer(self) -> TrainerConfig:
        """``config.trainer`` as plain values: a step asks for a dozen, and this is faster."""
        return TrainerConfig(**self.config.trainer)


def start_run(config: DictConfig, run: Run) -> TrainState:
    """Claim the folder that is held, and prepare; where that fails, leave no empty one behind."""
    try:
        distributed.broadcast_object(lambda: run.claim(config))
        return prepare(config, run)
    except BaseException:
        if distributed.is_main():
            run.withdraw()
        raise


def prepare(config: DictConfig, run: Run) -> TrainState:
    """Data, model and optimiser, from the last intact checkpoint where there is one.

    Raises:
        UserError: the configuration cannot be met, or no checkpoint is intact.
    """
    with (
        distributed.main_first()
    ):  # which loads what must be loaded, and puts aside what is damaged
        return resume(config, run)


def resume(config: DictConfig, run: Run) -> TrainState:
    """:func:`build_state` from the last intact checkpoint, or from none."""
    kept = [path for which in ("last", "previous") if (path := run.checkpoint(which)).exists()]
    damage: checkpoint.Damaged | None = None
    for path in kept:
        try:
            training = build_state(config, run, path)
        except checkpoint.Damaged as error:
            damage = damage or error
            continue
        if damage:
            aside = kept[0].with_suffix(".damaged")
            print(
                f"warning: {kept[0]} is damaged, and now called {aside.name}; the run goes on from "
                f"{path}, step {training.step}.",
                file=sys.stderr,
            )
            # Or the next checkpoint would put it in the place of the intact one.
            shutil.rmtree(aside, ignore_errors=True)
            kept[0].replace(aside)
        return training
    if damage:
        raise damage
    return build_state(config, run, None)


def build_state(config: DictConfig, run: Run, path: Path | None) -> TrainState:
    """The run as its configuration says it begins, or as the checkpoint at ``path`` left it."""
    trainer = config.trainer
    saved = checkpoint.load(path) if path else None
    # One state for each process; checkpoints of older versions hold the one as it is.
    before = saved["rng"].size(0) if saved and saved["rng"].ndim == 2 else 1
    if saved and before != distributed.world_size():
        raise UserError(
            f"{run.directory} was begun by {before} processes, and this is one of "
            f"{distributed.world_size()}: its dropout masks would be others; go on with {before}, or give "
            f"another seed or output_dir."
        )
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # or cuBLAS cannot be deterministic
    torch.use_deterministic_algorithms(trainer.deterministic)
    device = take_device(trainer)
    data = load_data(config, checkpoint.load_tokenizer(path, saved) if path and saved else None)

    model = build_model(config, data.tokenizer).to(device)
    longest = padded_sizes(data.train, trainer), data.validation.sizes, data.test.sizes
    evaluation.check_lengths(model, *longest)
    warning = model.untrained_range_warning(int(data.train.sizes.max()) - 1)
    if warning and distributed.is_main():
        print(f"warning: {warning}", file=sys.stderr)
    # After the model is built: an encoding's own parameters must not shift the dropout masks.
    # Each process draws masks of its own for rows of its own.
    who = (distributed.rank(),) if distributed.rank() else ()
    torch.manual_seed(seed_for(config.seed, "dropout", *who))
    optimizer = adamw(model.parameters(), trainer)
    if trainer.compile:  # in place: the names in a checkpoint stay as they are
        model.compile(dynamic=None if trainer.pad_to == 1 else False)
    training = TrainState(config, run, data, device, model, optimizer)
    if saved:
        try:
            restore_state(training, saved)
        except Exception:  # whatever torch finds wrong with the pieces
            raise checkpoint.Damaged(
                f"{path} is damaged: it does not fit its run; delete it, or the run's folder "
                f"{run.directory}, and give the same command to train again."
            ) from None
    return training


def padded_sizes(examples: Examples, trainer: TrainerConfig) -> np.ndarray:
    """Positions that each example takes once it is padded to a multiple of ``trainer.pad_to``."""
    return -(-examples.sizes // trainer.pad_to) * trainer.pad_to


def restore_state(training: TrainState, saved: dict[str, Any]) -> None:
    """Go back to where :func:`save_state` was called; any exception: it was another run."""
    if saved["config"] != identity(training.config):
        raise ValueError("another configuration")
    if not 0 <= saved["step"] <= training.trainer.steps:
        raise ValueError("a step that this run does not have")
    training.model.load_state_dict(saved["model"])
    training.optimizer.load_state_dict(saved["optimizer"])
    for parameter, moments in training.optimizer.state.items():
        if {moments[name].shape for name in ("exp_avg", "exp_avg_sq")} != {parameter.shape}:
            raise ValueError("moments of another parameter")

    def own(states: Tensor) -> Tensor:
        # A copy: torch does not mind where in its storage a state begins, and reads beside it.
        return states.view(distributed.world_size(), -1)[distributed.rank()].clone()

    torch.set_rng_state(own(saved["rng"]))
    if training.device.type == "cuda":
        torch.cuda.set_rng_state(own(saved["cuda_rng"]), training.device)
    training.step, training.seconds = saved["step"], saved["seconds"]
    training.target_tokens, training.best_nll = saved["target_tokens"], saved["best_nll"]
    training.best_step = saved["best_step"]
    history = saved.get("metrics", training.run.metrics())
    training.history = [row for row in history if row["step"] <= training.step]


def save_state(training: TrainState, validated: bool = False, improved: bool = False) -> None:
    """Keep all that a continued run needs; the data needs nothing but the step.

    After a validation also the weights, for averaging, and where it ``improved`` as the best.
    """
    on_cuda = training.device.type == "cuda"
    random = distributed.gather(torch.get_rng_state())  # (world, …), as every process's own
    cuda_random = None
    if on_cuda:
        cuda_random = distributed.gather(torch.cuda.get_rng_state(training.device))
    if not distributed.is_main():
        distributed.barrier()
        return
    weights = training.model.state_dict()
    state = {
        "step": training.step,
        "seconds": training.seconds,
        "target_tokens": training.target_tokens,
        "best_nll": training.best_nll,
        "best_step": training.best_step,
        "metrics": training.history,
        "model": weights,
        "optimizer": training.optimizer.state_dict(),
        "rng": random,
        "cuda_rng": cuda_random,
        "tokenizer": training.data.tokenizer.to_str(),
        "config": identity(training.config),
    }
    if validated and training.trainer.keep:
        checkpoint.keep(training.run, training.step, weights, training.trainer.keep)
    if improved:
        checkpoint.save(training.run.checkpoint("best"), state)
    checkpoint.save(training.run.checkpoint("last"), state)
    distributed.barrier()


def local_shard(batch: Batch) -> Batch:
    """The rows of a batch that are this process's."""
    return batch.part(distributed.rank(), distributed.world_size())
