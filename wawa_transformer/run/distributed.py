"""Data-parallel training: ``torchrun`` starts processes that share every batch.

Only the main process writes files. A single process is the main one; every function here then
returns its argument.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from wawa_transformer.common.messages import UserError
from wawa_transformer.run.device import choose_device

TIMEOUT = timedelta(hours=2)  # while the main process translates the test alone

# Ended groups stay alive: a group's end waits for its threads while holding Python's lock, and a
# thread that still frees a tensor waits for that lock.
ENDED: list[dist.ProcessGroup | None] = []

T = TypeVar("T")


def is_distributed() -> bool:
    """True if ``torchrun`` has started this process."""
    return dist.is_torchelastic_launched()


@contextlib.contextmanager
def process_group(device_name: str) -> Iterator[None]:
    """Join the processes that ``torchrun`` started, if any.

    Raises:
        UserError: another process has ended.
    """
    if not is_distributed():
        yield
        return
    device = choose_device(device_name)
    store, *_ = next(dist.rendezvous("env://"))
    # On several machines each one counts its own restarts.
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
        if any(name in str(error).lower() for name in ("gloo", "nccl")):  # they have no class
            raise UserError(
                "another process of this run has ended, and has said why unless it was killed; the "
                "same command continues from the last checkpoint."
            ) from None
        raise
    finally:
        ENDED.append(dist.group.WORLD)
        dist.destroy_process_group()


def rank() -> int:
    """The number of this process; the main process has 0."""
    return int(os.environ["RANK"]) if is_distributed() else 0


def world_size() -> int:
    """The number of processes."""
    return int(os.environ["WORLD_SIZE"]) if is_distributed() else 1


def is_main() -> bool:
    """True in the main process, which writes all files."""
    return rank() == 0


def wrap_ddp(model: nn.Module, device: torch.device) -> nn.Module:
    """Wrap the model so that gradients are averaged over all processes."""
    if world_size() == 1:
        return model
    parallel = DistributedDataParallel(model, [device] if device.type == "cuda" else None)
    # Every process computes the same buffers. Set here, since torch 2.13 warns about the argument's
    # name and torch 2.11 does not know the new name.
    parallel.broadcast_buffers = False
    return parallel


@contextlib.contextmanager
def main_first() -> Iterator[None]:
    """Run the body in the main process first, then in the others."""
    if not is_main():
        barrier()
    yield
    if is_main():
        barrier()


def broadcast_object(ask: Callable[[], T]) -> T:
    """Call ``ask()`` in the main process, and return its result in all."""
    answer = [ask() if is_main() else None]
    if world_size() > 1:
        dist.broadcast_object_list(answer)
    return answer[0]  # type: ignore[return-value]


def barrier() -> None:
    """Wait for all processes.

    Needed before a process ends: a thread of gloo may still hold tensors, and would wait forever.
    """
    if world_size() > 1:
        dist.barrier()


def all_reduce_sum(values: Tensor) -> Tensor:
    """Sum ``values`` over all processes; every process has the same shape."""
    if world_size() > 1:
        values = values.clone()
        dist.all_reduce(values)
    return values


def gather(values: Tensor) -> Tensor:
    """Stack the ``values`` of all processes: ``(world, …)``."""
    if world_size() == 1:
        return values[None]
    rows = [torch.empty_like(values) for _ in range(world_size())]
    dist.all_gather(rows, values)
    return torch.stack(rows)


def any_rank(true: bool) -> bool:
    """True if the argument is true in any process; waits for all processes."""
    return true if world_size() == 1 else bool(all_reduce_sum(torch.tensor(int(true))).item())
