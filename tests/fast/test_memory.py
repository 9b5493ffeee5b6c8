"""What the C library is asked for."""

from __future__ import annotations

import multiprocessing
import resource
import sys
from typing import Any

import pytest
import torch

from wawa_transformer.fast.accelerate import keep_memory


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_memory_that_was_given_back_is_not_taken_anew() -> None:
    """In a process of its own: a second round asks the system for little."""

    def rounds(pipe: Any) -> None:
        keep_memory()
        for _ in range(2):
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            every = [torch.ones(2**20) for _ in range(32)]  # 4 MiB each: a thousand pages
            del every
            pipe.send(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)

    here, there = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=rounds, args=(there,))
    process.start()
    faults = [here.recv() for _ in range(2)]
    process.join()
    assert faults[1] < 16_000 < faults[0]
