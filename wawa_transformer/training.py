"""Training: the loop, from top to bottom."""

from __future__ import annotations

import itertools
import json
import math
import platform
import resource
import sys
import time
from collections.abc import Iterator
from datetime import date
from typing import Any

import torch
import torch.nn.functional as F
from omegaconf import DictConfig
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from tokenizers import Tokenizer
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from wawa_transformer import checkpoint, evaluation
from wawa_transformer.batching import Batch, Examples, collate, encode, plan
from wawa_transformer.config import (
    UserError,
    choose,
    identity,
    run_directory,
    seed_for,
    typed,
)
from wawa_transformer.tasks import TASKS, Task
from wawa_transformer.text import TextTask
from wawa_transformer.tracking import Tracker, show
from wawa_transformer.transformer import PAD, Transformer


def train(config: DictConfig) -> dict[str, Any]:
    """Train the run of ``config`` to its end and return its ``result.json``.

    A finished run is returned as it is; an interrupted one continues from its last checkpoint,
    on the same trajectory bit for bit.
    """
    trainer, directory = config.trainer, checkpoint.open_run(config)
    if (directory / "result.json").exists():
        if config.progress:
            print(f"already finished: {directory}")
        return json.loads((directory / "result.json").read_text(encoding="utf-8"))
    last, best = directory / "checkpoints" / "last.pt", directory / "checkpoints" / "best.pt"
    saved = checkpoint.load(last) if last.exists() else None

    torch.set_num_threads(trainer.threads)
    device = choose_device(trainer.device)
    task = build_task(config)
    data = task.dataset(config.seed)
    tokenizer = Tokenizer.from_str(saved["tokenizer"]) if saved else task.tokenizer(data)
    tokenizer.encode_special_tokens = True  # not part of the tokenizer's JSON
    max_tokens = task.max_tokens if isinstance(task, TextTask) else None
    examples = encode(data["train"], tokenizer, max_tokens)
    validation, test = encode(data["validation"], tokenizer), encode(data["test"], tokenizer)

    model = Transformer.from_config(config, tokenizer.get_vocab_size()).to(device)
    check_positions(model, examples, validation, test)
    warn_of_untrained_distances(config, model, examples)
    # After the model is built: an encoding's own parameters must not shift the dropout masks.
    torch.manual_seed(seed_for(config.seed, "dropout"))
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=trainer.lr, betas=(0.9, 0.98),
        weight_decay=trainer.weight_decay, fused=True,
    )  # fmt: skip
    if trainer.compile:
        model.compile()  # in place: the names in a checkpoint stay as they are

    step, seconds, target_tokens, best_nll = 0, 0.0, 0, math.inf
    if saved:
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        torch.set_rng_state(saved["rng"])
        if device.type == "cuda":
            torch.cuda.set_rng_state(saved["cuda_rng"], device)
        step, seconds, target_tokens = saved["step"], saved["seconds"], saved["target_tokens"]
        best_nll = saved["best_nll"]

    model.train()
    with Tracker(directory, step) as tracker, progress_bar(config, step) as progress:
        started, tokens_before = time.perf_counter(), target_tokens
        for batches in stream(examples, trainer, config.seed, step):
            if step == trainer.steps:
                break
            # The loss is a mean over the tokens of the whole step, however it is cut up.
            tokens = sum(batch.target_tokens for batch in batches)
            for group in optimizer.param_groups:
                group["lr"] = trainer.lr * schedule(step, trainer)
            loss = torch.zeros((), device=device)
            for batch in (batch.to(device) for batch in batches):
                with torch.autocast(device.type, torch.bfloat16, enabled=trainer.bf16):
                    logits = model(batch.source, batch.target_in)  # (B,T,V)
                part = cross_entropy(logits, batch.target_out, trainer.label_smoothing) / tokens
                part.backward()
                loss += part.detach()
            gradient_norm = torch.nn.utils.clip_grad_norm_(model.parameters(), trainer.clip)
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            target_tokens += tokens

            evaluating = step % trainer.eval_every == 0 or step == trainer.steps
            if step % trainer.log_every == 0 or evaluating:
                check_finite(config, step, loss=loss.item(), gradient_norm=gradient_norm.item())
                elapsed = time.perf_counter() - started
                speed = (target_tokens - tokens_before) / elapsed
                with torch.no_grad():  # of the step's last batch, without smoothing
                    nll = cross_entropy(logits.detach(), batch.target_out) / batch.target_tokens
                tracker.scalars(
                    step, "train", loss=loss.item(), nll=nll.item(),
                    lr=optimizer.param_groups[0]["lr"], grad_norm=gradient_norm.item(),
                    tokens_per_second=speed,
                )  # fmt: skip
                progress(step, loss.item(), speed)
            if evaluating:
                seconds += time.perf_counter() - started  # validation is not training time
                scores = evaluation.summarise(evaluation.score(model, validation))
                del scores["examples"]
                check_finite(config, step, validation_nll=scores["nll"])
                tracker.scalars(step, "validation", **scores)
                improved = scores["nll"] < best_nll
                best_nll = min(best_nll, scores["nll"])
                state = {
                    "step": step, "seconds": seconds, "target_tokens": target_tokens,
                    "best_nll": best_nll,
                    "model": model.state_dict(), "optimizer": optimizer.state_dict(),
                    "rng": torch.get_rng_state(),
                    "cuda_rng": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
                    "tokenizer": tokenizer.to_str(), "config": identity(config),
                }  # fmt: skip
                if improved:
                    checkpoint.save(best, state)
                checkpoint.save(last, state)
                started, tokens_before = time.perf_counter(), target_tokens

        result = describe(config, task, model, device, batches, seconds, target_tokens)
        result["validation"] = evaluation.summarise(evaluation.score(model, validation))
        result |= evaluation.test_results(task, model, test)
        result["translation"] = None
        if isinstance(task, TextTask):
            hypotheses = evaluation.translate(model, tokenizer, test)
            result["translation"] = evaluation.write_translations(
                directory, data["test"], hypotheses
            )
        show(tracker, config, model, tokenizer, data["validation"], validation, result)
    checkpoint.write_atomically(directory / "result.json", json.dumps(result, indent=1))
    (directory / "error.log").unlink(missing_ok=True)
    return result


def cross_entropy(logits: Tensor, target: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """Summed over the real tokens, in nats: ``logits (B,T,V)`` against ``target (B,T)``.

    Smoothing mixes the target with a uniform distribution (Szegedy et al. 2016, section 7).
    """
    return F.cross_entropy(
        logits.float().flatten(0, 1), target.flatten(),  # (B,T,V) -> (B*T,V)
        ignore_index=PAD, reduction="sum", label_smoothing=label_smoothing,
    )  # fmt: skip


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


def build_task(config: DictConfig) -> Task:
    """The task of a configuration, its settings checked."""
    cls = choose(TASKS, config.task.kind, "task.kind")
    return cls(**typed(cls, config.task, "task"))


def choose_device(name: str) -> torch.device:
    """``auto`` takes a CUDA device, then Apple's, then the CPU."""
    if name == "auto":
        found = (torch.cuda.is_available(), torch.backends.mps.is_available())
        name = "cuda" if found[0] else "mps" if found[1] else "cpu"
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(
            f"trainer.device={name} cannot be used here ({reason}); set trainer.device=cpu or auto."
        ) from None
    return device


def check_finite(config: DictConfig, step: int, **values: float) -> None:
    """Stop before anything that is not a number reaches a checkpoint."""
    for name, value in values.items():
        if not math.isfinite(value):
            raise UserError(
                f"the {name.replace('_', ' ')} is {value} at step {step}; the last good checkpoint "
                f"is kept in {run_directory(config) / 'checkpoints'}; lower "
                f"trainer.lr={config.trainer.lr} or trainer.clip={config.trainer.clip}."
            )


def check_positions(model: Transformer, *splits: Examples) -> None:
    """A table of positions must reach the end of the longest sequence, in every split."""
    longest = max(size for examples in splits for size in examples.sizes)
    if model.max_positions is not None and model.max_positions < longest:
        stride = model.src_position.stride
        times = f" times pe.stride={stride}" if stride > 1 else ""
        raise UserError(
            f"pe.max_len={model.max_positions * stride} is shorter than the longest sequence of "
            f"the data, {longest} positions{times}; set pe.max_len={longest * stride} or more."
        )


def warn_of_untrained_distances(config: DictConfig, model: Transformer, train: Examples) -> None:
    """Say so when an encoding holds parameters for distances that training never shows it."""
    window, farthest = model.src_position.window, max(train.sizes) - 1
    if window is not None and config.pe[window] > farthest:
        print(
            f"warning: pe.{window}={config.pe[window]} reaches past the farthest distance in the "
            f"training data, {farthest}: what lies beyond keeps its random start and is used at "
            f"longer test lengths; set pe.{window}={farthest} or less.",
            file=sys.stderr,
        )


def progress_bar(config: DictConfig, step: int) -> Any:
    """A context manager giving ``update(step, loss, tokens per second)``."""
    progress = Progress(
        TextColumn(f"{config.task.name} · {config.pe.name} · seed {config.seed}"),
        BarColumn(), TextColumn("{task.completed}/{task.total}"),
        TextColumn("loss {task.fields[loss]:.3f} · {task.fields[speed]:,.0f} tokens/s ·"),
        TimeRemainingColumn(), disable=not config.progress,
    )  # fmt: skip
    bar = progress.add_task("", total=config.trainer.steps, completed=step, loss=math.nan, speed=0)

    class Bar:
        def __enter__(self) -> Any:
            progress.start()
            return lambda step, loss, speed: progress.update(
                bar, completed=step, loss=loss, speed=speed
            )

        def __exit__(self, *exception: object) -> None:
            progress.stop()

    return Bar()


def describe(
    config: DictConfig, task: Task, model: Transformer, device: torch.device,
    batches: list[Batch], seconds: float, target_tokens: int,
) -> dict[str, Any]:  # fmt: skip
    """Who the run is and what it cost: FLOPs of one step, target tokens per second, MB."""
    counter = FlopCounterMode(display=False)
    with torch.compiler.set_stance("force_eager"), counter:  # compiled kernels count as nothing
        for batch in (batch.to(device) for batch in batches):
            cross_entropy(model(batch.source, batch.target_in), batch.target_out).backward()
    model.zero_grad()
    on_cuda = device.type == "cuda"
    # ru_maxrss is in kilobytes on Linux and in bytes on macOS.
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (
        1e6 if sys.platform == "darwin" else 1e3
    )
    trained = task.trained_lengths
    return {
        "task": config.task.name,
        "pe": config.pe.name,
        "seed": config.seed,
        "steps": config.trainer.steps,
        "train_min_length": trained[0] if trained else None,
        "train_max_length": trained[1] if trained else None,
        "settings": {
            "pe": {k: v for k, v in config.pe.items() if k not in ("kind", "name")},
        },
        "parameters": sum(p.numel() for p in model.parameters()),
        "flops_per_step": counter.get_total_flops(),
        "tokens_per_second": target_tokens / seconds,
        "seconds": seconds,
        "peak_memory_mb": torch.cuda.max_memory_allocated(device) / 1e6 if on_cuda else resident,
        "device": torch.cuda.get_device_name(device) if on_cuda else device.type,
        "threads": config.trainer.threads,
        "versions": {"python": platform.python_version(), "torch": str(torch.__version__)},
        "finished": date.today().isoformat(),
    }
