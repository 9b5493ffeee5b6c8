"""The machine a run is on: its device, and all that a number must say of where it comes from."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import math
import os
import re
import resource
import sys
import time
from collections.abc import Iterator

import torch
from omegaconf import DictConfig

from wawa_transformer.common.schema import UserError, first_line
from wawa_transformer.fast.linear import linear

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
    """The device that ``trainer`` names, with as many threads and memory that is kept."""
    torch.set_num_threads(trainer.threads)
    keep_memory()
    return choose_device(trainer.device)


def keep_memory() -> None:
    """Let the C library keep for the next tensor what the last one took.

    glibc hands it back whenever much of it is free, and takes it anew a page at a time, zeroed: 40
    thousand pages in a step of a model of 70 million parameters. Another library goes on as it is.
    """
    trim_threshold, mmap_threshold = -1, -3  # malloc.h
    with contextlib.suppress(AttributeError, OSError, TypeError):
        library = ctypes.CDLL(None)
        library.mallopt(mmap_threshold, 2**25)  # as far as it goes by itself
        library.mallopt(trim_threshold, 2**31 - 1)


@contextlib.contextmanager
def translate_device_errors(config: DictConfig, device: torch.device) -> Iterator[None]:
    """What a device cannot do for this configuration, in one sentence."""
    trainer = config.trainer
    try:
        yield
    except RuntimeError as error:
        # A device has a class for it, a CPU has none.
        if isinstance(error, torch.OutOfMemoryError) or NO_MEMORY.search(str(error)):
            raise UserError(
                f"the memory of {device} ran out at trainer.batch_tokens={trainer.batch_tokens}; "
                f"lower trainer.batch_tokens, and raise trainer.accumulate to keep steps of as "
                f"many tokens."
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


@functools.cache  # by a worker once for all its runs
def peak_matmul_flops(device: torch.device, bf16: bool = False) -> float:
    """Floating-point operations a second in a large matrix product, the best of five of them."""
    size = 8192 if device.type == "cuda" else 1024
    a = torch.ones(size, size, device=device, dtype=torch.bfloat16 if bf16 else torch.float32)
    best = math.inf
    for _ in range(5):
        started = time.perf_counter()
        linear(a, a)[0, 0].item()  # which waits for a GPU
        best = min(best, time.perf_counter() - started)
    return 2 * size**3 / best


def peak_memory(device: torch.device) -> float:
    """The most memory taken so far, in MB: the device's where it has its own."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 1e6
    # ru_maxrss is in kilobytes on Linux and in bytes on macOS.
    unit = 1e6 if sys.platform == "darwin" else 1e3
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
