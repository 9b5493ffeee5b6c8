"""Several seeds at once: runs that differ in their seed alone, trained as one batched model.

A tiny model leaves a GPU idle: each of its operations ends before the next can be asked for. With
``trainer.seeds_at_once`` the seeds of one task and encoding share every operation: a step of all of
them is :mod:`wawa_transformer.lab.bundle`. What belongs to a run stays its own: folder, checkpoint,
test. So each is the one that :func:`training.train` makes, up to the order of floating-point sums,
and that is its reference in the tests.

On one core of a CPU it gains little, since there no operation waits for another.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence

from omegaconf import DictConfig

from wawa_transformer import checkpoint
from wawa_transformer.config import UserError
from wawa_transformer.lab.bundle import Bundle, Seed
from wawa_transformer.machine import explained
from wawa_transformer.positional import ENCODINGS
from wawa_transformer.preparation import assemble, begin, save_state
from wawa_transformer.runs import Run
from wawa_transformer.stopping import Stop, Stopped
from wawa_transformer.tracking import Tracker
from wawa_transformer.training import (
    check_finite,
    contained,
    finish,
    flops,
    score_validation,
    stream,
)


def check_at_once(config: DictConfig) -> None:
    """Refuse what several seeds cannot share."""
    trainer = config.trainer
    if trainer.seeds_at_once == 1:
        return
    asked = f"trainer.seeds_at_once={trainer.seeds_at_once}"
    if trainer.compile:
        raise UserError(
            f"{asked} and trainer.compile=true exclude each other: what is batched over seeds is "
            f"not compiled; set one of them to its default."
        )
    if trainer.bucket:
        raise UserError(
            f"{asked} pads the batches of all seeds to one shape, and with trainer.bucket=true "
            f"that is mostly padding; set trainer.bucket=false, or leave trainer.seeds_at_once out."
        )
    if ENCODINGS[config.pe.kind].draws:
        raise UserError(
            f"{asked} does not serve pe={config.pe.kind}, which draws at random in training; train "
            f"it without."
        )


def train_at_once(configs: Sequence[DictConfig], patience: float = 0.0) -> None:
    """Train the runs of ``configs``, which differ in their seed alone, each to its end.

    As with :func:`training.attempt` what stops a run is kept in its folder and does not stop the
    others; a finished one is left out. Interrupted runs continue together from one step, bit for
    bit; where they stand at several and cannot, those behind catch up first.

    Raises:
        Stopped: a signal came; the state of each is kept.
    """
    with contextlib.ExitStack() as stack:
        stop = stack.enter_context(Stop())
        seeds = []
        for config in configs:
            run = Run.of(config)
            with contained(run):
                stack.enter_context(run.hold(patience))
                if run.result() is None:
                    seeds.append(Seed(begin(config, run)))
        if not seeds:
            return
        lowest = min(seed.training.step for seed in seeds)
        seeds = [level(seed, lowest) for seed in seeds]
        for seed in seeds:
            training = seed.training
            tracker = Tracker(training.run, training.history, training.step)
            seed.tracker = stack.enter_context(tracker)
        config, device = seeds[0].training.config, seeds[0].training.device
        ended: list[Seed] = []
        with (
            contained(*(seed.training.run for seed in seeds)),
            explained(config, device, seeds[0].training.largest_batch),
            stop.deferred(),
        ):
            ended = loop(seeds, stop)
        for seed in ended:
            training = seed.training
            with contained(training.run), explained(config, device, training.largest_batch):
                unseen = stream(
                    training.data.train, training.trainer, training.config.seed, training.step
                )
                result = finish(training, seed.tracker, flops(training, next(unseen)))
                training.run.finish(result)


def level(seed: Seed, step: int) -> Seed:
    """``seed`` as it was a checkpoint ago, if that was at ``step``; else as it is.

    A process that is killed after it has kept one seed's step and not yet another's leaves one
    ahead.
    """
    training = seed.training
    if training.step == step:
        return seed
    before = training.run.checkpoint("previous")
    try:
        kept = before if before.exists() else None
        if (checkpoint.load(kept)["step"] if kept else 0) == step:
            return Seed(assemble(training.config, training.run, kept))
    except checkpoint.Damaged:
        pass
    return seed


def loop(seeds: list[Seed], stop: Stop) -> list[Seed]:
    """Train until every run is at its last step; those that nothing has stopped."""
    last = seeds[0].training.trainer.steps
    while steps := sorted({seed.training.step for seed in seeds} - {last}):
        behind = [seed for seed in seeds if seed.training.step == steps[0]]
        spared = climb(behind, steps[1] if len(steps) > 1 else last, stop)
        seeds = [seed for seed in seeds if seed not in behind or seed in spared]
    return seeds


def climb(seeds: list[Seed], until: int, stop: Stop) -> list[Seed]:
    """Train ``seeds``, which stand at one step, up to ``until``; those that nothing has stopped.

    Where something stops one of them the others are another bundle, and this one ends. A run's
    seconds are its share of the time that all of them took.
    """
    bundle, spared = Bundle(seeds), seeds
    trainer, trainings = bundle.trainer, [seed.training for seed in seeds]
    streams = [stream(t.data.train, trainer, t.config.seed, t.step) for t in trainings]
    step, started = trainings[0].step, time.perf_counter()
    tokens_before = [t.target_tokens for t in trainings]
    while step < until and len(spared) == len(seeds):
        losses = bundle.step([next(batches) for batches in streams])  # (3,K)
        step += 1
        evaluating = step % trainer.eval_every == 0 or step == trainer.steps
        logging = step % trainer.log_every == 0 or evaluating
        if logging or step == 1:
            numbers = losses.T.tolist()  # which waits for a GPU
            share = (time.perf_counter() - started) / len(seeds)
            spared = []
            for seed, before, (loss, nll, norm) in zip(seeds, tokens_before, numbers, strict=True):
                with contained(seed.training.run):
                    check_finite(seed.training, loss=loss, gradient_norm=norm)
                    if logging:
                        seed.tracker.scalars(
                            step,
                            "train",
                            loss=loss,
                            nll=nll,
                            lr=bundle.optimizer.param_groups[0]["lr"],
                            grad_norm=norm,
                            tokens_per_second=(seed.training.target_tokens - before) / share,
                        )
                    spared.append(seed)
        if evaluating or stop.asked or step == until or len(spared) < len(seeds):
            share = (time.perf_counter() - started) / len(seeds)
            bundle.hand_back()
            sound, spared = spared, []
            for seed in sound:
                with contained(seed.training.run):
                    seed.training.seconds += share
                    seed.hand_back_streams()
                    if evaluating:
                        score_validation(seed.training, seed.tracker)
                    elif stop.asked:
                        save_state(seed.training)
                    spared.append(seed)
            if stop.asked:
                raise Stopped(f"stopped by {stop.asked} at step {step} of {trainer.steps}")
            started, tokens_before = time.perf_counter(), [t.target_tokens for t in trainings]
    return spared
