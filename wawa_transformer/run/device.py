"""The device of a run: choosing it, its errors, its speed and its memory."""

from __future__ import annotations

import contextlib
import math
import os
import re
import resource
import sys
import time
from collections.abc import Iterator

import torch
from omegaconf import DictConfig
from torch import nn

from wawa_transformer.common.schema import UserError, first_line

NO_MEMORY = re.compile("out of memory|DefaultCPUAllocator")
NO_COMPILER = re.compile("No working C[+][+] compiler|find C compiler|working triton")


def choose_device(name: str) -> torch.device:
    """``auto`` takes a CUDA device, then Apple's, then the CPU.

    Of several processes that ``torchrun`` starts, each takes a CUDA device of its own.
    """
    if name == "auto":
        found = (torch.cuda.is_available(), torch.backends.mps.is_available())
        name = "cuda" if found[0] else "mps" if found[1] else "cpu"
    if name == "cuda" and "LOCAL_RANK" in os.environ:
        name = f"cuda:{os.environ['LOCAL_RANK']}"
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(
            f"trainer.device={name} cannot be used here ({reason}); set trainer.device=cpu or auto."
        ) from None
    return device


def take_device(trainer: DictConfig) -> torch.device:
    """The device of ``trainer.device``, with ``trainer.threads`` threads."""
    torch.set_num_threads(trainer.threads)
    return choose_device(trainer.device)


@contextlib.contextmanager
def translate_device_errors(config: DictConfig, device: torch.device) -> Iterator[None]:
    """Turn what a device cannot do for this configuration into one sentence."""
    trainer = config.trainer
    try:
        yield
    except RuntimeError as error:
        # A device has a class for it, a CPU has none.
        if isinstance(error, torch.OutOfMemoryError) or NO_MEMORY.search(str(error)):
            raise UserError(
                f"the memory of {device} ran out at trainer.batch_tokens={trainer.batch_tokens}; "
                f"lower trainer.batch_tokens, and raise trainer.grad_accum_steps to keep steps of "
                f"as many tokens."
            ) from None
        if trainer.compile and NO_COMPILER.search(str(error)):
            raise UserError(
                f"trainer.compile=true finds no compiler here ({first_line(error)}); install g++, "
                f"and for a GPU Triton, or give trainer.compile=false."
            ) from None
        if trainer.deterministic and "deterministic" in str(error):
            raise UserError(
                f"pe={config.pe.kind} needs an operation that {device} computes in no fixed order; "
                f"set trainer.deterministic=false."
            ) from None
        raise


def peak_matmul_flops(layer: nn.Linear) -> float:
    """Floating-point operations a second of ``layer`` on a square matrix, the best of five."""
    x = torch.randn_like(layer.weight)
    best = math.inf
    for _ in range(5):
        started = time.perf_counter()
        layer(x)[0, 0].item()  # waits for a GPU
        best = min(best, time.perf_counter() - started)
    return 2 * x.size(0) * x.numel() / best


def peak_memory(device: torch.device) -> float:
    """The most memory used so far, in MB: the device's own if it has any."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 1e6
    # ru_maxrss is in kilobytes on Linux and in bytes on macOS.
    unit = 1e6 if sys.platform == "darwin" else 1e3
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
