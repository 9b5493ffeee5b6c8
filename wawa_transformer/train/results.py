"""What a finished run reports."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from datetime import date
from typing import Any

import torch
from datasets import Dataset
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from wawa_transformer.common.files import write_lines
from wawa_transformer.data.batching import Batch
from wawa_transformer.decode.translation import (
    SAMPLES,
    one_line_each,
    translate,
    translation_scores,
)
from wawa_transformer.fast.linear import mkl_alone
from wawa_transformer.run import distributed
from wawa_transformer.run.config import given_settings
from wawa_transformer.run.device import peak_matmul_flops, peak_memory
from wawa_transformer.run.provenance import provenance
from wawa_transformer.run.run_dir import Run, identity
from wawa_transformer.train import evaluation
from wawa_transformer.train.setup import TrainState, local_shard
from wawa_transformer.train.tracking import NullTracker, Tracker, show


def write_translations(run: Run, test: Dataset, hypotheses: list[str]) -> dict[str, Any]:
    """Hypotheses and references as files, one sentence a line, and their scores."""
    references = one_line_each(test["target"][:])
    write_lines(run.translations_file, hypotheses)
    write_lines(run.references_file, references)
    triples = zip(test["source"][:], references, hypotheses, strict=True)
    samples = [
        {"source": source, "reference": reference, "hypothesis": hypothesis}
        for source, reference, hypothesis in itertools.islice(triples, SAMPLES)
    ]
    return {**translation_scores(hypotheses, references), "samples": samples}


def final_evaluation(
    training: TrainState, tracker: Tracker | NullTracker, flops_per_step: int
) -> dict[str, Any]:
    """The test, what the run cost, and the pictures of what it learned."""
    result, data = describe(training, flops_per_step), training.data
    validation = evaluation.evaluate(training.model, data.validation)
    result["validation"] = evaluation.summarise(validation)
    result |= evaluation.evaluate_by_length(data.task, training.model, data.test, data.train.text)
    if isinstance(tracker, NullTracker):
        return result  # the rest is the main process's
    result["translation"] = None
    if data.task.translates:
        hypotheses = translate(training.model, data.tokenizer, data.test)
        result["translation"] = write_translations(training.run, data.test.text, hypotheses)
    show(tracker, training.config, training.model, data.tokenizer, data.validation, result)
    return result


def describe(training: TrainState, flops_per_step: int) -> dict[str, Any]:
    """Who the run is and what it cost: FLOPs of one step, target tokens per second, MB.

    ``utilisation`` is the share of training's time that its operations would take in one large
    matrix product (Chowdhery et al. 2022, appendix B), on all devices.
    """
    config, device = training.config, training.device
    rate = distributed.world_size() * peak_matmul_flops(device, config.trainer.bf16)
    trained = training.data.task.trained_lengths
    return {
        "task": config.task.name,
        "pe": config.pe.name,
        "seed": config.seed,
        "steps": training.step,
        "train_min_length": trained[0] if trained else None,
        "train_max_length": trained[1] if trained else None,
        "settings": {"pe": given_settings(config)},
        "parameters": sum(p.numel() for p in training.model.parameters()),
        "flops_per_step": flops_per_step,
        "utilisation": flops_per_step * training.step / training.seconds / rate,
        "tokens_per_second": training.target_tokens / training.seconds,
        "seconds": training.seconds,
        "peak_memory_mb": peak_memory(device),
        "threads": config.trainer.threads,
        "processes": distributed.world_size(),
        **provenance(device),
        "configuration": identity(config),
        "finished": date.today().isoformat(),
    }


def flops(training: TrainState, batches: list[Batch]) -> int:
    """Floating-point operations of one step of all processes."""
    mine = (local_shard(batch).to(training.device) for batch in batches)
    # A compiled model would count as nothing.
    forward = training.model.forward
    count = operations(forward, ((batch.source, batch.target_in) for batch in mine))
    training.model.zero_grad()
    return int(distributed.all_reduce_sum(torch.tensor(count)).item())


def operations(forward: Callable[..., Tensor], inputs: Iterable[tuple[Tensor, Tensor]]) -> int:
    """Floating-point operations, forward and backward, as torch counts them."""
    counter = FlopCounterMode(display=False)
    # The CPU's fused attention would count as nothing, and so would oneDNN.
    with sdpa_kernel(SDPBackend.MATH), mkl_alone(), counter:
        for source, target in inputs:
            logits = forward(source, target)
            logits.sum().backward()  # as a loss would: its own operations are no products
    return counter.get_total_flops()
