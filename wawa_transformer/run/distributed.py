"""Several processes, one run: ``torchrun`` starts them, and each takes its rows of every batch.

One of them, the main process, writes all there is to write. A process that is alone is the main
one, and every function here then gives back what it was given.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from wawa_transformer.common.schema import UserError
from wawa_transformer.run.device import choose_device

TIMEOUT = timedelta(hours=2)  # for what the main process does alone, such as translating a test

T = TypeVar("T")


def is_distributed() -> bool:
    """Whether ``torchrun`` has started this process."""
    return dist.is_torchelastic_launched()


@contextlib.contextmanager
def process_group(device_name: str) -> Iterator[None]:
    """Know the processes that ``torchrun`` started beside this one, if it did.

    Raises:
        UserError: another process has ended.
    """
    if not is_distributed():
        yield
        return
    device = choose_device(device_name)
    store, *_ = next(dist.rendezvous("env://"))
    # Of several machines each counts restarts for itself.
    if os.environ["LOCAL_WORLD_SIZE"] == os.environ["WORLD_SIZE"]:
        store = dist.PrefixStore(os.environ["TORCHELASTIC_RESTART_COUNT"], store)
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
        store=store,
        rank=rank(),
        world_size=world_size(),
        timeout=TIMEOUT,
    )
    try:
        yield
        barrier()
    except RuntimeError as error:
        if any(name in str(error).lower() for name in ("gloo", "nccl")):  # no class of their own
            raise UserError(
                "another process of this run has ended, and has said why unless it was killed; the "
                "same command continues from the last checkpoint."
            ) from None
        raise
    finally:
        dist.destroy_process_group()


def rank() -> int:
    """The number of this process, from 0, the main one."""
    return int(os.environ["RANK"]) if is_distributed() else 0


def world_size() -> int:
    """How many there are."""
    return int(os.environ["WORLD_SIZE"]) if is_distributed() else 1


def is_main() -> bool:
    """Whether this is the one that writes."""
    return rank() == 0


def wrap_ddp(model: nn.Module, device: torch.device) -> nn.Module:
    """The model as each process calls it: its gradients become the mean over all processes."""
    if world_size() == 1:
        return model
    parallel = DistributedDataParallel(model, [device] if device.type == "cuda" else None)
    # Every process computes the same tables. Not an argument: torch 2.13 warns of its name, and
    # torch 2.11 does not know the new one.
    parallel.broadcast_buffers = False
    return parallel


@contextlib.contextmanager
def main_first() -> Iterator[None]:
    """Let the main process through, and then the others."""
    if not is_main():
        barrier()
    yield
    if is_main():
        barrier()


def broadcast_object(ask: Callable[[], T]) -> T:
    """What ``ask()`` gives the main process, for all."""
    found = [ask() if is_main() else None]
    if world_size() > 1:
        dist.broadcast_object_list(found)
    return found[0]  # type: ignore[return-value]


def barrier() -> None:
    """Wait until every process is here.

    Before a process ends, it must: a thread of gloo's may still hold tensors, and would wait for
    ever for a Python that has gone.
    """
    if world_size() > 1:
        dist.barrier()


def all_reduce_sum(values: Tensor) -> Tensor:
    """The sum of every process's ``values``, of one shape."""
    if world_size() > 1:
        values = values.clone()
        dist.all_reduce(values)
    return values


def gather(values: Tensor) -> Tensor:
    """Every process's ``values``, one row each: ``(world, …)``."""
    if world_size() == 1:
        return values[None]
    rows = [torch.empty_like(values) for _ in range(world_size())]
    dist.all_gather(rows, values)
    return torch.stack(rows)


def any_rank(true: bool) -> bool:
    """Whether it is true in any process; all go on from here together."""
    return true if world_size() == 1 else bool(all_reduce_sum(torch.tensor(int(true))).item())
