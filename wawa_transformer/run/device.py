"""Choose a run's device, explain its errors, and measure speed and memory."""

import contextlib
import ctypes
import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator

import torch
from omegaconf import DictConfig

from wawa_transformer.common.messages import UserError, first_line, warn
from wawa_transformer.run.failure import is_out_of_memory

CUDA_13_DRIVER = 580  # the oldest driver for CUDA 13; CUDA 12 needs 525
# The last two: without Python.h, Triton prints only the compiler's command.
NO_COMPILER = re.compile(
    ".*(No working C[+][+] compiler|find C compiler|working triton|Python[.]h|"
    "cuda_utils[.]c|__triton_launcher[.]c).*"
)


def choose_device(name: str) -> torch.device:
    """Get the device of a name; ``auto`` is :func:`automatic_device`.

    Each process that ``torchrun`` starts gets its own CUDA device.
    """
    name = automatic_device() if name == "auto" else name
    if name == "cuda" and "LOCAL_RANK" in os.environ:
        name = f"cuda:{os.environ['LOCAL_RANK']}"
    try:
        device = torch.zeros(1, device=name).device
    except (RuntimeError, AssertionError) as error:
        reason = (name.startswith("cuda") and why_no_card()) or first_line(error).split(". ")[0]
        raise UserError(
            f"trainer.device={name} cannot be used here ({reason}); set trainer.device=cpu or auto."
        ) from None
    if device.type == "cuda":  # pinned memory and compiled kernels use the current device
        torch.cuda.set_device(device)
    return device


def automatic_device() -> str:
    """Choose CUDA, else Apple's GPU, else the CPU; warn about an unused card."""
    if torch.cuda.is_available():
        return "cuda"
    if torch.backends.mps.is_available():
        return "mps"
    if reason := why_no_card():
        warn(f"warning: training runs on the CPU: {reason}.")
    return "cpu"


def why_no_card() -> str:
    """Explain why torch cannot use this machine's NVIDIA card; empty without one."""
    ask = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        driver = subprocess.check_output(ask, text=True, timeout=30).split()[0]
        old = int(driver.split(".")[0]) < CUDA_13_DRIVER
        torch.zeros(1, device="cuda")
    except (OSError, subprocess.SubprocessError, IndexError, ValueError):
        return ""  # no nvidia-smi, or it finds no card
    except (RuntimeError, AssertionError) as error:
        if torch.version.cuda and "No CUDA GPUs" in str(error):
            shown = os.environ.get("CUDA_VISIBLE_DEVICES")
            return (
                f"nvidia-smi finds a card, and CUDA_VISIBLE_DEVICES={shown} hides it from torch; "
                f"to use it: unset CUDA_VISIBLE_DEVICES"
            )
        wheel = f"torch=={torch.__version__.split('+')[0]}"
        index = f"--index-url https://download.pytorch.org/whl/{'cu126' if old else 'cu130'}"
        return (
            f"nvidia-smi finds a card with driver {driver}, and torch {torch.__version__} says: "
            f"{first_line(error)}; to use it: pip install --force-reinstall {wheel} {index}"
        )
    return ""


def set_precision(trainer: DictConfig, device: torch.device) -> None:
    """Allow TF32 products if ``trainer.tf32``.

    Raises:
        UserError: a card that only emulates bfloat16, which crawls or fails to compile.
    """
    if trainer.bf16 and device.type == "cuda" and torch.cuda.get_device_capability(device) < (8, 0):
        raise UserError(
            f"trainer.bf16=true: {torch.cuda.get_device_name(device)} has no bfloat16, which came "
            f"with compute capability 8.0; set trainer.bf16=false."
        )
    torch.set_float32_matmul_precision("high" if trainer.tf32 else "highest")


def has_bf16() -> bool:
    """True if this processor multiplies bfloat16 numbers itself: x86 or ARM."""
    able = torch.cpu.get_capabilities()
    return any(able.get(name, False) for name in ("amx_bf16", "avx512_bf16", "bf16"))


def take_device(trainer: DictConfig) -> torch.device:
    """Get the device of ``trainer.device``, and set ``trainer.threads``."""
    torch.set_num_threads(trainer.threads)
    keep_freed_memory()
    return choose_device(trainer.device)


def keep_freed_memory() -> None:
    """Let the C library keep freed memory for the next tensor, with glibc's ``mallopt``.

    By default glibc returns large blocks to the system and takes them anew, one zeroed page at a
    time: 73,000 pages in a step of width 256 with 8,000 words, a tenth of the step's time. Other C
    libraries have no such call.
    """
    trim_threshold, mmap_threshold = -1, -3  # malloc.h
    with contextlib.suppress(AttributeError, OSError, TypeError):
        library = ctypes.CDLL(None)
        library.mallopt(mmap_threshold, 2**25)  # the largest value that glibc takes
        library.mallopt(trim_threshold, 2**31 - 1)


def require_defaults() -> None:
    """Refuse another default type or device of torch than a run is built with."""
    if (torch.get_default_dtype(), torch.get_default_device().type) != (torch.float32, "cpu"):
        raise UserError(
            f"torch's default is {torch.get_default_dtype()} on {torch.get_default_device()} here, "
            f"and a run is built in torch.float32 on the CPU; call "
            f"torch.set_default_dtype(torch.float32) and torch.set_default_device('cpu') before."
        )


@contextlib.contextmanager
def translate_device_errors(config: DictConfig, device: torch.device) -> Iterator[None]:
    """Turn errors of the device into one sentence."""
    trainer = config.trainer
    try:
        yield
    except RuntimeError as error:
        if is_out_of_memory(error):
            raise UserError(
                f"the memory of {device} ran out at trainer.batch_tokens={trainer.batch_tokens}; "
                f"lower trainer.batch_tokens, and raise trainer.grad_accum_steps to keep steps of "
                f"as many tokens."
            ) from None
        if trainer.compile and (match := NO_COMPILER.search(str(error))):
            raise UserError(
                f"trainer.compile=true finds no compiler here ({match[0]}); install g++ "
                f"and Python's headers (python3-dev), and for a GPU Triton, or give "
                f"trainer.compile=false."
            ) from None
        if trainer.deterministic and "deterministic" in str(error):
            raise UserError(
                f"pe={config.pe.kind} needs an operation that {device} computes in no fixed order; "
                f"set trainer.deterministic=false."
            ) from None
        raise


def total_memory(name: str) -> int:
    """The bytes of the largest card, or of this machine without a card."""
    if name in ("cpu", "mps") or not torch.cuda.is_available():
        if not hasattr(os, "sysconf"):  # Windows has none
            return sys.maxsize
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    cards = range(torch.cuda.device_count())
    return max(torch.cuda.get_device_properties(i).total_memory for i in cards)


def reset_peak_memory(device: torch.device) -> None:
    """Reset :func:`peak_memory` on a card, after an earlier run."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak_memory(device: torch.device) -> float:
    """The peak memory in MB: of the card if there is one; NaN on Windows."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 1e6
    try:
        import resource
    except ModuleNotFoundError:
        return math.nan
    # ru_maxrss is in kilobytes on Linux and in bytes on macOS.
    unit = 1e6 if sys.platform == "darwin" else 1e3
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
