"""Training: prepare, loop, finish."""

from __future__ import annotations

import itertools
import math
import shutil
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from datasets import DatasetDict
from omegaconf import DictConfig
from tokenizers import Tokenizer
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from wawa_transformer import checkpoint, evaluation
from wawa_transformer.batching import Batch, Examples, collate, encode, plan
from wawa_transformer.config import UserError, build_model, disk_error, given_settings
from wawa_transformer.machine import choose_device, peak_memory, provenance
from wawa_transformer.runs import Run, identity
from wawa_transformer.seeds import seed_for
from wawa_transformer.stopping import Stop, Stopped
from wawa_transformer.tasks import Task
from wawa_transformer.text import build_task
from wawa_transformer.tracking import ProgressBar, Tracker, show
from wawa_transformer.transformer import PAD, Transformer


@dataclass
class Training:
    """All that a run needs to go on, and how far it is; seconds are those of training alone."""

    config: DictConfig
    run: Run
    task: Task
    device: torch.device
    data: DatasetDict
    tokenizer: Tokenizer
    train: Examples
    validation: Examples
    test: Examples
    model: Transformer
    optimizer: torch.optim.Optimizer
    history: list[dict[str, Any]] = field(default_factory=list)  # the lines of metrics.jsonl
    step: int = 0
    seconds: float = 0.0
    target_tokens: int = 0
    best_nll: float = math.inf


def train(config: DictConfig, patience: float = 0.0) -> dict[str, Any]:
    """Train the run of ``config`` to its end and return its ``result.json``.

    A finished run is returned as it is; an interrupted one continues from its last checkpoint,
    on the same trajectory bit for bit. Waits ``patience`` seconds for another process to leave.

    Raises:
        Stopped: a signal came; the state is kept.
        UserError: the run cannot be what the configuration says.
    """
    run = Run.of(config)
    with Stop() as stop, run.hold(patience):
        if result := run.result():
            if config.progress:
                print(f"already finished: {run.directory}")
            return result
        if run.status == "damaged":
            print(
                f"warning: the result or the curves in {run.directory} are damaged; they are made "
                f"again from the last checkpoint.",
                file=sys.stderr,
            )
        try:
            run.claim(config)
            training = prepare(config, run)
        except BaseException:
            run.withdraw()
            raise
        tracker = Tracker(run, training.history, training.step)
        with tracker, ProgressBar(config, training.step) as progress:
            with stop.deferred():
                unseen = loop(training, tracker, progress, stop)
            result = finish(training, tracker, flops(training, unseen))
        run.finish(result)
    return result


def attempt(config: DictConfig, patience: float = 0.0) -> None:
    """Train a run of many: what stops it is kept in its folder and does not stop the others."""
    try:
        train(config, patience)
    except UserError as error:
        Run.of(config).fail(str(error))
    except OSError as error:
        Run.of(config).fail(disk_error(error))
    except Exception:
        Run.of(config).fail(traceback.format_exc())


def prepare(config: DictConfig, run: Run) -> Training:
    """Data, model and optimiser, from the last intact checkpoint where there is one."""
    kept = [path for which in ("last", "previous") if (path := run.checkpoint(which)).exists()]
    damage: checkpoint.Damaged | None = None
    for path in kept:
        try:
            training = assemble(config, run, path)
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
    return assemble(config, run, None)


def assemble(config: DictConfig, run: Run, path: Path | None) -> Training:
    """The run as its configuration says it begins, or as the checkpoint at ``path`` left it."""
    trainer = config.trainer
    saved = checkpoint.load(path) if path else None
    torch.set_num_threads(trainer.threads)
    device = choose_device(trainer.device)
    task = build_task(config)
    data = task.dataset(config.seed)
    tokenizer = checkpoint.load_tokenizer(path, saved) if path and saved else task.tokenizer(data)
    train = encode(data["train"], tokenizer, task.longest_pair)
    validation, test = encode(data["validation"], tokenizer), encode(data["test"], tokenizer)

    model = build_model(config, tokenizer).to(device)
    evaluation.check_lengths(model, train, validation, test)
    warning = model.untrained(max(train.sizes) - 1)
    if warning:
        print(f"warning: {warning}", file=sys.stderr)
    # After the model is built: an encoding's own parameters must not shift the dropout masks.
    torch.manual_seed(seed_for(config.seed, "dropout"))
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=trainer.lr,
        betas=(0.9, 0.98),
        weight_decay=trainer.weight_decay,
        fused=True,
    )
    if trainer.compile:
        model.compile()  # in place: the names in a checkpoint stay as they are
    training = Training(
        config, run, task, device, data, tokenizer, train, validation, test, model, optimizer
    )
    if saved:
        try:
            restore_state(training, saved)
        except Exception:  # whatever torch finds wrong with the pieces
            raise checkpoint.Damaged(
                f"{path} is damaged: it does not fit its run; delete it, or the run's folder "
                f"{run.directory}, and give the same command to train again."
            ) from None
    return training


def restore_state(training: Training, saved: dict[str, Any]) -> None:
    """Go back to where :func:`save_state` was called; any exception: it was another run."""
    if saved["config"] != identity(training.config):
        raise ValueError("another configuration")
    if not 0 <= saved["step"] <= training.config.trainer.steps:
        raise ValueError("a step that this run does not have")
    training.model.load_state_dict(saved["model"])
    training.optimizer.load_state_dict(saved["optimizer"])
    for parameter, moments in training.optimizer.state.items():
        if {moments[name].shape for name in ("exp_avg", "exp_avg_sq")} != {parameter.shape}:
            raise ValueError("moments of another parameter")
    torch.set_rng_state(saved["rng"])
    if training.device.type == "cuda":
        torch.cuda.set_rng_state(saved["cuda_rng"], training.device)
    training.step, training.seconds = saved["step"], saved["seconds"]
    training.target_tokens, training.best_nll = saved["target_tokens"], saved["best_nll"]
    history = saved.get("metrics", training.run.metrics())
    training.history = [row for row in history if row["step"] <= training.step]


def save_state(training: Training, improved: bool = False) -> None:
    """Keep all that a continued run needs; the data needs nothing but the step."""
    cuda = training.device.type == "cuda"
    state = {
        "step": training.step,
        "seconds": training.seconds,
        "target_tokens": training.target_tokens,
        "best_nll": training.best_nll,
        "metrics": training.history,
        "model": training.model.state_dict(),
        "optimizer": training.optimizer.state_dict(),
        "rng": torch.get_rng_state(),
        "cuda_rng": torch.cuda.get_rng_state(training.device) if cuda else None,
        "tokenizer": training.tokenizer.to_str(),
        "config": identity(training.config),
    }
    if improved:
        checkpoint.save(training.run.checkpoint("best"), state)
    checkpoint.save(training.run.checkpoint("last"), state)


def loop(training: Training, tracker: Tracker, progress: ProgressBar, stop: Stop) -> list[Batch]:
    """Step by step until the last one; the batches of the step that would be next."""
    trainer, model, optimizer = training.config.trainer, training.model, training.optimizer
    model.train()
    started, tokens_before = time.perf_counter(), training.target_tokens
    for batches in stream(training.train, trainer, training.config.seed, training.step):
        if training.step == trainer.steps:
            return batches
        # The loss is a mean over the tokens of the whole step, however it is cut up.
        tokens = sum(batch.target_tokens for batch in batches)
        for group in optimizer.param_groups:
            group["lr"] = trainer.lr * schedule(training.step, trainer)
        loss = torch.zeros((), device=training.device)
        for batch in (batch.to(training.device) for batch in batches):
            with torch.autocast(training.device.type, torch.bfloat16, enabled=trainer.bf16):
                logits = model(batch.source, batch.target_in)  # (B,T,V)
            part = cross_entropy(logits, batch.target_out, trainer.label_smoothing) / tokens
            part.backward()
            loss += part.detach()
        gradient_norm = torch.nn.utils.clip_grad_norm_(model.parameters(), trainer.clip)
        optimizer.step()
        optimizer.zero_grad()
        training.step += 1
        training.target_tokens += tokens

        evaluating = training.step % trainer.eval_every == 0 or training.step == trainer.steps
        logging = training.step % trainer.log_every == 0 or evaluating
        if logging or training.step == 1:
            check_finite(training, loss=loss.item(), gradient_norm=gradient_norm.item())
        if logging:
            elapsed = time.perf_counter() - started
            speed = (training.target_tokens - tokens_before) / elapsed
            with torch.no_grad():  # of the step's last batch, without smoothing
                nll = cross_entropy(logits.detach(), batch.target_out) / batch.target_tokens
            tracker.scalars(
                training.step,
                "train",
                loss=loss.item(),
                nll=nll.item(),
                lr=optimizer.param_groups[0]["lr"],
                grad_norm=gradient_norm.item(),
                tokens_per_second=speed,
            )
            progress.update(training.step, loss.item(), speed)
        if evaluating:
            training.seconds += time.perf_counter() - started  # validation is not training time
            score_validation(training, tracker)
            started, tokens_before = time.perf_counter(), training.target_tokens
        if stop.asked:
            if not evaluating:
                training.seconds += time.perf_counter() - started
                save_state(training)
            raise Stopped(f"stopped by {stop.asked} at step {training.step} of {trainer.steps}")
    raise AssertionError("the stream of batches has no end")


def score_validation(training: Training, tracker: Tracker) -> None:
    """Score the validation split, and keep a checkpoint."""
    scores = evaluation.summarise(evaluation.score(training.model, training.validation))
    del scores["examples"]
    check_finite(training, validation_nll=scores["nll"])
    tracker.scalars(training.step, "validation", **scores)
    improved = scores["nll"] < training.best_nll
    training.best_nll = min(training.best_nll, scores["nll"])
    save_state(training, improved)


def finish(training: Training, tracker: Tracker, flops_per_step: int) -> dict[str, Any]:
    """The test, what the run cost, and the pictures of what it learned."""
    model, tokenizer, data = training.model, training.tokenizer, training.data
    result = describe(training, flops_per_step)
    result["validation"] = evaluation.summarise(evaluation.score(model, training.validation))
    result |= evaluation.test_results(training.task, model, training.test)
    result["translation"] = None
    if training.task.translates:
        hypotheses = evaluation.translate(model, tokenizer, training.test)
        result["translation"] = evaluation.write_translations(
            training.run, data["test"], hypotheses
        )
    held_out = data["validation"], training.validation
    show(tracker, training.config, model, tokenizer, *held_out, result)
    return result


def cross_entropy(logits: Tensor, target: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """Summed over the real tokens, in nats: ``logits (B,T,V)`` against ``target (B,T)``.

    Smoothing mixes the target with a uniform distribution (Szegedy et al. 2016, section 7).
    """
    return F.cross_entropy(
        logits.float().flatten(0, 1),  # (B,T,V) -> (B*T,V)
        target.flatten(),
        ignore_index=PAD,
        reduction="sum",
        label_smoothing=label_smoothing,
    )


def schedule(step: int, trainer: DictConfig) -> float:
    """The learning rate of 0-based ``step`` as a fraction of its peak, after a linear warmup.

    ``inverse_sqrt`` is equation 3 of Vaswani et al. 2017 scaled to a peak of 1; ``linear`` and
    ``cosine`` (Loshchilov and Hutter 2017) end at 0.
    """
    done = step + 1
    if done <= trainer.warmup:
        return done / trainer.warmup
    left = (trainer.steps - step) / max(1, trainer.steps - trainer.warmup)
    match trainer.schedule:
        case "linear":
            return left
        case "cosine":
            return 0.5 * (1 - math.cos(math.pi * left))
        case "inverse_sqrt":
            return math.sqrt(max(1, trainer.warmup) / done)
        case _:
            return 1.0


def stream(examples: Examples, trainer: DictConfig, seed: int, step: int) -> Iterator[list[Batch]]:
    """The batches of each optimiser step from ``step`` on, without end.

    The order is a function of (seed, epoch), so ``step`` alone says where to continue.
    """
    every_batch = (
        indices
        for epoch in itertools.count()
        for indices in plan(examples.sizes, trainer.batch_tokens, seed, epoch, trainer.bucket)
    )
    order = itertools.islice(every_batch, step * trainer.accumulate, None)
    while True:
        yield [collate(examples, next(order)) for _ in range(trainer.accumulate)]


def check_finite(training: Training, **values: float) -> None:
    """Stop before anything that is not a number reaches a checkpoint."""
    trainer, last = training.config.trainer, training.run.checkpoint("last")
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


def describe(training: Training, flops_per_step: int) -> dict[str, Any]:
    """Who the run is and what it cost: FLOPs of one step, target tokens per second, MB."""
    config, device = training.config, training.device
    trained = training.task.trained_lengths
    return {
        "task": config.task.name,
        "pe": config.pe.name,
        "seed": config.seed,
        "steps": config.trainer.steps,
        "train_min_length": trained[0] if trained else None,
        "train_max_length": trained[1] if trained else None,
        "settings": {"pe": given_settings(config)},
        "parameters": sum(p.numel() for p in training.model.parameters()),
        "flops_per_step": flops_per_step,
        "tokens_per_second": training.target_tokens / training.seconds,
        "seconds": training.seconds,
        "peak_memory_mb": peak_memory(device),
        "threads": config.trainer.threads,
        **provenance(device),
        "configuration": identity(config),
        "finished": date.today().isoformat(),
    }


def flops(training: Training, batches: list[Batch]) -> int:
    """Floating-point operations of one step, forward and backward, as torch counts them."""
    counter = FlopCounterMode(display=False)
    with torch.compiler.set_stance("force_eager"), counter:  # compiled kernels count as nothing
        for batch in (batch.to(training.device) for batch in batches):
            logits = training.model(batch.source, batch.target_in)
            cross_entropy(logits, batch.target_out).backward()
    training.model.zero_grad()
    return counter.get_total_flops()
