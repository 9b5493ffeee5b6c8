"""One training step, and the training loop."""

import itertools
import time
from collections.abc import Iterator

import torch
from torch import Tensor
from tqdm import tqdm

from wawa_transformer.common.seeds import seed_others
from wawa_transformer.data.batching import Batch, batch_indices, collate
from wawa_transformer.data.load import Examples
from wawa_transformer.model.masks import causal_mask
from wawa_transformer.run import distributed
from wawa_transformer.run.schema import TrainerConfig
from wawa_transformer.run.signals import GracefulStop, Stopped
from wawa_transformer.train.evaluation import evaluate, summarise
from wawa_transformer.train.optim import schedule
from wawa_transformer.train.setup import TrainState, check_finite, padded_sizes, save_state
from wawa_transformer.train.tracking import Tracker


def train_step(state: TrainState, batches: list[Batch]) -> tuple[Tensor, Tensor, Tensor]:
    """Take one optimiser step; return loss, NLL and the gradient's norm.

    Loss and NLL are this process's share, in nats per target token of the whole step.
    """
    trainer, device, smoothing = state.trainer, state.device, state.trainer.label_smoothing
    for group, own in zip(state.optimizer.param_groups, state.settings, strict=True):
        group["lr"] = own["lr"] * schedule(state.step, trainer)
    # The loss is a mean over the target tokens of all batches, not a mean of means.
    tokens = sum(batch.target_tokens for batch in batches)
    loss_and_nll = torch.zeros(2, device=device)
    for i, batch in enumerate(batches):
        # DDP exchanges gradients once a step: this is what its no_sync() sets.
        state.parallel_model.require_backward_grad_sync = batch is batches[-1]
        source, target_in, targets = batch.shard(state.rank, state.world_size).to(device)
        # The causal mask suffices: target padding is always on the right.
        mask = causal_mask(target_in.size(1), device=device)
        # Random positions move no dropout mask, and are the same in every process and resumed run.
        drawn = state.model.position_ids.draw(state.config.seed, state.step, i)
        with torch.autocast(device.type, torch.bfloat16, enabled=trainer.bf16):
            loss, nll = state.parallel_model(
                source,
                target_in,
                None,
                mask,
                targets=targets,
                label_smoothing=smoothing,
                drawn=drawn,
            )
        # DDP averages gradients over processes, and the loss is their sum.
        (loss * state.world_size / tokens).backward()
        loss_and_nll += torch.stack((loss.detach(), nll)) / tokens
    gradient_norm = torch.nn.utils.clip_grad_norm_(state.parameters, trainer.grad_clip)
    state.optimizer.step()
    state.optimizer.zero_grad()
    state.step += 1
    state.target_tokens += tokens
    return loss_and_nll[0], loss_and_nll[1], gradient_norm


def train_loop(state: TrainState, tracker: Tracker, progress: tqdm, stop: GracefulStop) -> None:
    """Train from ``state.step`` to the last step, with validation, checkpoints and logs.

    Raises:
        Stopped: a signal came; the state is kept.
        UserError: the loss is not finite.
    """
    trainer = state.trainer
    state.model.train()
    batches = batch_stream(state.data.train, trainer, state.config.seed, state.step)
    started, tokens_before = time.perf_counter(), state.target_tokens
    while state.step < trainer.steps and not is_exhausted(state):
        seed_others(state.config.seed, state.step)  # so that a resumed run draws the same
        loss, nll, gradient_norm = train_step(state, next(batches))
        validating = state.step % trainer.eval_every == 0 or state.step == trainer.steps
        logging = state.step % trainer.log_every == 0 or validating
        if logging or state.step == 1:
            loss, nll = distributed.all_reduce_sum(torch.stack((loss, nll)))
            check_finite(state, loss=loss.item(), gradient_norm=gradient_norm.item())
        if logging:
            speed = (state.target_tokens - tokens_before) / (time.perf_counter() - started)
            tracker.scalars(
                state.step,
                "train",
                loss=loss.item(),
                nll=nll.item(),  # without smoothing
                lr=state.optimizer.param_groups[0]["lr"],
                grad_norm=gradient_norm.item(),
                tokens_per_second=speed,
            )
            progress.set_postfix_str(f"loss {loss.item():.3f} · {speed:,.0f} tokens/s")
            progress.update(state.step - progress.n)
        if validating:
            state.seconds += time.perf_counter() - started  # validation is not training time
            validate(state, tracker)
            started, tokens_before = time.perf_counter(), state.target_tokens
        if distributed.any_rank(bool(stop.asked)):
            if not validating:
                state.seconds += time.perf_counter() - started
                save_state(state)
            by = stop.asked or "another process"
            raise Stopped(f"stopped by {by} at step {state.step} of {trainer.steps}")


def batch_stream(
    examples: Examples, trainer: TrainerConfig, seed: int, step: int
) -> Iterator[list[Batch]]:
    """Yield the batches of each optimiser step from ``step`` on, without end.

    The order is a function of (seed, epoch), so ``step`` alone says where to resume. With
    ``trainer.pad_to_multiple_of`` a batch has one of few shapes, each as full as the budget allows.
    """
    widths = padded_sizes(examples, trainer)
    all_indices = (
        indices
        for epoch in itertools.count()
        for indices in batch_indices(widths, trainer.batch_tokens, seed, epoch, trainer.bucket)
    )

    def batch(indices: list[int]) -> Batch:
        if trainer.pad_to_multiple_of == 1:
            return collate(examples, indices)
        rows = trainer.batch_tokens // int(widths[indices].max())
        return collate(examples, indices, trainer.pad_to_multiple_of).pad_rows(rows)

    order = itertools.islice(all_indices, step * trainer.grad_accum_steps, None)
    while True:
        yield [batch(next(order)) for _ in range(trainer.grad_accum_steps)]


def is_exhausted(state: TrainState) -> bool:
    """True if ``trainer.patience`` validations have brought no improvement."""
    waited, patience = state.step - state.best_step, state.trainer.patience
    return patience is not None and waited >= patience * state.trainer.eval_every


def validate(state: TrainState, tracker: Tracker) -> None:
    """Score the validation split and 250 training examples, and write a checkpoint."""
    scores = summarise(evaluate(state.model, state.data.validation))
    del scores["examples"]
    check_finite(state, validation_nll=scores["nll"])
    tracker.scalars(state.step, "validation", **scores)
    seen = summarise(evaluate(state.model, state.data.train.first(250)))
    tracker.scalars(state.step, "train", exact_match=seen["exact_match"])
    improved = scores["nll"] < state.best_nll
    if improved:
        state.best_nll, state.best_step = scores["nll"], state.step
    save_state(state, validated=True, improved=improved)
