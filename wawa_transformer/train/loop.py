"""Training: the loop, and what comes before and after it."""

from __future__ import annotations

import contextlib
import itertools
import math
import time
import traceback
from collections.abc import Iterator
from typing import Any

import torch
from omegaconf import DictConfig

from wawa_transformer.common.schema import UserError, disk_error
from wawa_transformer.data.batching import Batch, Examples, batch_indices, collate
from wawa_transformer.model.loss import loss_and_nll
from wawa_transformer.model.masks import causal_mask
from wawa_transformer.run import distributed
from wawa_transformer.run.config import TrainerConfig, given_settings
from wawa_transformer.run.device import translate_device_errors
from wawa_transformer.run.run_dir import Run
from wawa_transformer.run.signals import GracefulStop, Stopped
from wawa_transformer.train import evaluation
from wawa_transformer.train.optim import schedule
from wawa_transformer.train.results import final_evaluation, flops
from wawa_transformer.train.setup import (
    TrainState,
    local_shard,
    padded_sizes,
    save_state,
    start_run,
)
from wawa_transformer.train.tracking import NullTracker, ProgressBar, Tracker


def train(config: DictConfig, patience: float = 0.0) -> dict[str, Any]:
    """Train the run of ``config`` to its end and return its ``result.json``.

    A finished run is returned as it is; an interrupted one continues from its last checkpoint,
    on the same trajectory bit for bit. Waits ``patience`` seconds for another process to leave.

    Raises:
        Stopped: a signal came; the state is kept.
        UserError: the run cannot be what the configuration says.
    """
    run = Run.of(config)
    with contextlib.ExitStack() as stack:
        stop = stack.enter_context(GracefulStop())
        stack.enter_context(distributed.process_group(config.trainer.device))
        main = distributed.is_main()
        if main:
            stack.enter_context(run.hold(patience))
        if result := distributed.broadcast_object(run.result):
            if config.progress and main:
                print(f"already finished: {run.directory}")
            return result
        training = start_run(config, run)
        tracker = Tracker(run, training.history, training.step) if main else NullTracker()
        progress = ProgressBar(config, training.step) if main else NullTracker()
        with tracker, progress, translate_device_errors(config, training.device):
            with stop.deferred():
                unseen = train_loop(training, tracker, progress, stop)
            result = final_evaluation(training, tracker, flops(training, unseen))
        return distributed.broadcast_object(lambda: run.finish(result))


def train_and_record_failure(config: DictConfig, patience: float = 0.0) -> None:
    """Train a run of many: what stops it is kept in its folder and does not stop others."""
    try:
        train(config, patience)
        return
    except UserError as error:
        reason = str(error)
    except OSError as error:
        reason = disk_error(error)
    except Exception:
        reason = traceback.format_exc()
    Run.of(config).fail(reason)


def train_loop(
    training: TrainState,
    tracker: Tracker | NullTracker,
    progress: ProgressBar | NullTracker,
    stop: GracefulStop,
) -> list[Batch]:
    """Step by step until the last one; the batches of the step that would be next."""
    trainer, optimizer = training.trainer, training.optimizer
    model = distributed.wrap_ddp(training.model, training.device)
    output, world = training.model.output, distributed.world_size()
    parameters = list(model.parameters())  # to look for them takes as long as a third of clipping
    model.train()
    started, tokens_before = time.perf_counter(), training.target_tokens
    for batches in batch_stream(training.data.train, trainer, training.config.seed, training.step):
        if training.step == trainer.steps or is_exhausted(training):
            return batches
        # The loss is a mean over the tokens of the whole step, however it is cut up.
        tokens = sum(batch.target_tokens for batch in batches)
        for group in optimizer.param_groups:
            group["lr"] = trainer.lr * schedule(training.step, trainer)
        loss, nll = torch.zeros(2, device=training.device)
        for batch in (local_shard(batch).to(training.device) for batch in batches):
            with torch.autocast(training.device.type, torch.bfloat16, enabled=trainer.bf16):
                # It hides padding, too, which stands to the right of all that is real.
                mask = causal_mask(batch.target_in.size(1), device=training.device)
                states = model(batch.source, batch.target_in, None, mask, logits=False)  # (B,T,D)
                part, plain = loss_and_nll(
                    states, output.weight, batch.target_out, trainer.label_smoothing
                )
            # Between processes gradients are averaged, and here they shall be summed.
            (part * world / tokens).backward()
            loss += part.detach() / tokens
            nll += plain / tokens
        gradient_norm = torch.nn.utils.clip_grad_norm_(parameters, trainer.clip)
        optimizer.step()
        optimizer.zero_grad()
        training.step += 1
        training.target_tokens += tokens

        evaluating = training.step % trainer.eval_every == 0 or training.step == trainer.steps
        logging = training.step % trainer.log_every == 0 or evaluating
        if logging or training.step == 1:
            loss, nll = distributed.all_reduce_sum(torch.stack((loss, nll)))
            check_finite(training, loss=loss.item(), gradient_norm=gradient_norm.item())
        if logging:
            elapsed = time.perf_counter() - started
            speed = (training.target_tokens - tokens_before) / elapsed
            tracker.scalars(
                training.step,
                "train",
                loss=loss.item(),
                nll=nll.item(),  # without smoothing
                lr=optimizer.param_groups[0]["lr"],
                grad_norm=gradient_norm.item(),
                tokens_per_second=speed,
            )
            progress.update(training.step, loss.item(), speed)
        if evaluating:
            training.seconds += time.perf_counter() - started  # validation is not training time
            score_validation(training, tracker)
            started, tokens_before = time.perf_counter(), training.target_tokens
        if distributed.any_rank(bool(stop.asked)):
            if not evaluating:
                training.seconds += time.perf_counter() - started
                save_state(training)
            by = stop.asked or "another process"
            raise Stopped(f"stopped by {by} at step {training.step} of {trainer.steps}")
    raise AssertionError("the stream of batches has no end")


def is_exhausted(training: TrainState) -> bool:
    """Whether ``trainer.patience`` validations in a row were no better than one before them."""
    trainer = training.trainer
    waited = training.step - training.best_step
    return trainer.patience is not None and waited >= trainer.patience * trainer.eval_every


def score_validation(training: TrainState, tracker: Tracker | NullTracker) -> None:
    """Score the validation split, and keep a checkpoint."""
    scores = evaluation.summarise(evaluation.evaluate(training.model, training.data.validation))
    del scores["examples"]
    check_finite(training, validation_nll=scores["nll"])
    tracker.scalars(training.step, "validation", **scores)
    improved = scores["nll"] < training.best_nll
    if improved:
        training.best_nll, training.best_step = scores["nll"], training.step
    save_state(training, validated=True, improved=improved)


def batch_stream(
    examples: Examples, trainer: TrainerConfig, seed: int, step: int
) -> Iterator[list[Batch]]:
    """The batches of each optimiser step from ``step`` on, without end.

    The order is a function of (seed, epoch), so ``step`` alone says where to continue. With
    ``trainer.pad_to`` a batch has one of few shapes, each as full as the budget allows.
    """
    widths = padded_sizes(examples, trainer)
    every_batch = (
        indices
        for epoch in itertools.count()
        for indices in batch_indices(widths, trainer.batch_tokens, seed, epoch, trainer.bucket)
    )

    def batch(indices: list[int]) -> Batch:
        if trainer.pad_to == 1:
            return collate(examples, indices)
        width = int(widths[indices].max())
        return collate(examples, indices, width).filled(trainer.batch_tokens // width)

    order = itertools.islice(every_batch, step * trainer.accumulate, None)
    while True:
        yield [batch(next(order)) for _ in range(trainer.accumulate)]


def check_finite(training: TrainState, **values: float) -> None:
    """Stop before anything that is not a number reaches a checkpoint."""
    trainer, last = training.trainer, training.run.checkpoint("last")
    for name, value in values.items():
        if not math.isfinite(value):
            kept = f"the last good checkpoint is {last}" if last.exists() else "none was kept yet"
            if training.step == 1:
                remedy = "this was so before the first update: a starting value is too large"
                given = given_settings(training.config)
                remedy += f", see pe={training.config.pe.kind} with {given}" if given else ""
            else:
                remedy = (
                    f"lower what is too large of trainer.lr={trainer.lr}, "
                    f"trainer.weight_decay={trainer.weight_decay} and trainer.clip={trainer.clip}"
                )
            what = f"the {name.replace('_', ' ')} is {value} at step {training.step}"
            raise UserError(f"{what}; {kept}; {remedy}.")
