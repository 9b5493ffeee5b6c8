"""Worker processes, which train a study's runs in parallel."""

import gc
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from tqdm import tqdm

from wawa_transformer.data import load
from wawa_transformer.run.run_dir import Run
from wawa_transformer.train.trainer import train_and_record_failure

# Seconds to wait for a run's lock: a worker of a killed study holds the lock for one more step.
PATIENCE = 20.0
TRIES = 2  # of a run whose process dies
GRACE = 60.0  # seconds to finish a step and write a checkpoint
# Windows has no forkserver, so each worker imports everything itself.
METHOD = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
# Modules that the forkserver imports once for all workers: those of compare.py, of AdamW's first
# step and of pictures. They must not initialise CUDA, which does not survive a fork.
SHARED = ("wawa_transformer.lab.tuning", "torch._dynamo", "matplotlib.backends.backend_agg")


def default_workers(device: str, threads: int) -> int:
    """The number of runs side by side: cores divided by a run's threads, or 2 on a GPU."""
    if device != "cpu":
        return 2
    # The cores of this process, of which a scheduler may have given fewer than there are.
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, (cores or 1) // threads)


def prepare_workers() -> None:
    """Start the forkserver, with Ctrl-C blocked in it and in its workers."""
    if METHOD != "forkserver":
        return
    from multiprocessing import forkserver, resource_tracker

    multiprocessing.set_forkserver_preload(list(SHARED))
    resource_tracker.ensure_running()  # first, since starting the tracker unblocks Ctrl-C
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # the forkserver inherits the mask
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


class Worker:
    """A process that trains one run after another."""

    def __init__(self, log: Path) -> None:
        context: Any = multiprocessing.get_context(METHOD)
        self.channel, theirs = context.Pipe()
        self.process = context.Process(target=work, args=(theirs, self.channel, str(log)))
        self.process.start()
        theirs.close()
        self.job: DictConfig | None = None  # what the worker trains

    def done(self) -> bool:
        """True if the worker has ended its job and is alive."""
        try:
            return self.channel.poll() and self.channel.recv()
        except (EOFError, OSError):
            return False

    def death(self) -> str:
        """Describe how the process ended."""
        self.process.join()
        code = self.process.exitcode or 0
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"ended, status {code}"

    def lost(self, run: Run, tries: int) -> bool:
        """Report that the process died in a run; true if the run is to be tried again."""
        words, again = f"its process was {self.death()}", tries < TRIES
        tqdm.write(f"warning: {run}: {words}" + ("; it is tried once more" if again else ""))
        if not again and run.status != "finished":
            run.fail(f"{words}, {TRIES} times")
        return again


def work(channel: Connection, other_end: Connection, log: str) -> None:
    """Train jobs from ``channel`` until its other end closes; output goes to ``log``."""
    gc.freeze()  # what the forkserver imported stays
    other_end.close()  # this process's copy, which would keep the channel open
    with open(log, "ab", buffering=0) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    if METHOD != "spawn":
        os.setsid()  # Ctrl-C then reaches only the study, which stops its workers
    threading.Thread(target=follow_parent, daemon=True).start()
    load.LAST = deque(maxlen=1)  # consecutive runs often differ only in their encoding
    try:
        while True:
            train_and_record_failure(channel.recv(), PATIENCE)
            channel.send(True)
    except (EOFError, KeyboardInterrupt, BrokenPipeError):
        pass


def follow_parent() -> None:
    """Stop this worker when the study's process ends, even by SIGKILL."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os.kill(os.getpid(), signal.SIGTERM)


def train_all(jobs: list[DictConfig], workers: int, log: Path, tick: Callable) -> None:
    """Train the runs of ``jobs``, ``workers`` at a time.

    ``tick()`` is called about once a second or more often.
    If a process dies, the others go on, a warning is printed, and the run is tried once more.
    However this function ends, no worker survives. A worker that is training gets ``GRACE`` seconds
    to write a checkpoint.
    """
    prepare_workers()
    waiting, tries = list(jobs), dict.fromkeys(map(Run.from_config, jobs), 0)
    crew = [Worker(log) for _ in range(min(workers, len(jobs)))]
    try:
        while waiting or any(worker.job for worker in crew):
            for worker in crew:
                if not worker.job and waiting:
                    worker.job = waiting.pop(0)
                    worker.channel.send(worker.job)
            wait([worker.channel for worker in crew if worker.job], timeout=1.0)
            for place, worker in enumerate(crew):
                if not worker.job:
                    continue
                if worker.done():
                    worker.job = None
                elif not worker.process.is_alive():
                    run = Run.from_config(worker.job)
                    tries[run] += 1
                    if worker.lost(run, tries[run]):
                        waiting.append(worker.job)
                    worker.job = None
                    if waiting:
                        crew[place] = Worker(log)
            tick()
    finally:
        for worker in crew:
            if worker.job and worker.process.is_alive():
                worker.process.terminate()
            worker.channel.close()
        for worker in crew:
            worker.process.join(GRACE)
            if worker.process.is_alive():
                worker.process.kill()
