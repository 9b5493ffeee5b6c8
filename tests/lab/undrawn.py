"""A script whose reports have no pictures, and whose workers are forks: both take seconds.

python tests/lab/undrawn.py SCRIPT ARGUMENT …
"""

import multiprocessing
import runpy
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from wawa_transformer.lab import figures, workers


class Forked(workers.Worker):
    """A fork of the study, which has imported what a fork server would import."""

    def __init__(self, log: Path) -> None:
        context: Any = multiprocessing.get_context("fork")
        self.channel, theirs = context.Pipe()
        self.process = context.Process(target=self.work, args=(theirs, str(log)))
        self.process.start()
        theirs.close()
        self.job = None

    def work(self, theirs: Connection, log: str) -> None:
        self.channel.close()  # else the worker would not see that the study has closed it
        workers.work(theirs, log)


figures.save = lambda *figure: "<svg></svg>"
workers.Worker, workers.prepare_workers = Forked, lambda: None
sys.argv = [str(Path(__file__).parents[2] / "scripts" / sys.argv[1]), *sys.argv[2:]]
runpy.run_path(sys.argv[0], run_name="__main__")
