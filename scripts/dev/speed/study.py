"""One run of the default study: what it takes its time for, and its step with every encoding."""

from __future__ import annotations

import contextlib
import itertools
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from unittest import mock

import torch
from hydra import compose
from omegaconf import DictConfig

from speed.growth import GROWN
from speed.model import training_steps
from speed.timing import ratio, turns_of
from wawa_transformer.data import load
from wawa_transformer.run.config import build_model
from wawa_transformer.train import loop, setup, trainer
from wawa_transformer.train.load import place_model

RUN = ["task=reverse", "pe=sinusoidal"]
TURNS = 5
STEPS, STEP_TURNS = 20, 25  # of each encoding in a turn
# What a run calls, by what it does there; what is called from inside another counts there alone.
STAGES = (
    ("data", setup, "load_data"),
    ("steps", trainer, "train_loop"),
    ("validation", loop, "validate"),
    ("saving", loop, "save_state"),
    ("test", trainer, "final_evaluation"),
    ("pictures", trainer, "show"),
)
REST = "rest"


class Clock:
    """The seconds of each stage."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys([*(stage for stage, *_ in STAGES), REST], 0.0)
        self.stage, self.since = REST, time.perf_counter()

    def turn_to(self, stage: str) -> str:
        """From now on it is ``stage``; which it was."""
        before, now = self.stage, time.perf_counter()
        self.seconds[before] += now - self.since
        self.stage, self.since = stage, now
        return before

    def timed(self, stage: str, work: Callable[..., Any]) -> Callable[..., Any]:
        """``work``, whose time is that of ``stage``."""

        def both(*arguments: Any, **named: Any) -> Any:
            before = self.turn_to(stage)
            try:
                return work(*arguments, **named)
            finally:
                self.turn_to(before)

        return both


@contextlib.contextmanager
def stages() -> Iterator[dict[str, float]]:
    """The seconds of each stage of the run that is trained meanwhile."""
    clock = Clock()
    with contextlib.ExitStack() as stack:
        for stage, module, name in STAGES:
            work = clock.timed(stage, getattr(module, name))
            stack.enter_context(mock.patch.object(module, name, work))
        yield clock.seconds
        clock.turn_to(REST)


def measure(device: torch.device) -> dict[str, float]:
    """:func:`whole_runs` and :func:`steps`; inside Hydra."""
    return whole_runs(device) | steps(device)


def steps(device: torch.device) -> dict[str, float]:
    """A step of the run with each encoding, as a multiple of the sinusoid's."""
    configs = {pe: compose("config", [*RUN, f"pe={pe}"]) for pe in ("learned", "none", *GROWN)}
    first = configs["sinusoidal"]
    data = load.load_data(first)
    stream = loop.batch_stream(data.train, first.trainer, first.seed, 0)
    batches = [batch.to(device) for [batch] in itertools.islice(stream, STEPS)]
    sides = {}
    for pe, config in configs.items():
        model = build_model(config, data.tokenizer)
        place_model(model, device, fast=True)
        sides[pe] = training_steps(model, batches)
    taken = turns_of(sides, "steps", STEP_TURNS)
    return {
        f"{pe}_over_sinusoidal": ratio(seconds, taken["sinusoidal"])
        for pe, seconds in taken.items()
        if pe != "sinusoidal"
    }


def whole_runs(device: torch.device) -> dict[str, float]:
    """Seconds of the run that is the ``first`` on its data, and of a ``later`` one.

    The first makes the data, and draws what it learned; the later one goes on with the data and, as
    all but one seed of a study, draws nothing. The process has had others before.
    """
    parts: dict[str, list[dict[str, float]]] = {"first": [], "later": []}

    def run(side: str, configs: Iterator[DictConfig]) -> None:
        with stages() as seconds:
            trainer.train(next(configs))
        parts[side].append(seconds)

    with tempfile.TemporaryDirectory() as folder:
        given = [*RUN, f"trainer.device={device}", "progress=false"]
        sides = {}
        for side in parts:
            own = [*given, f"output_dir={folder}/{side}", f"pictures={side == 'first'}"]
            # Before the clock starts.
            configs = [compose("config", [*own, f"seed={turn}"]) for turn in range(TURNS + 1)]
            sides[side] = partial(run, side, iter(configs))
        taken = turns_of(sides, "study", TURNS)
    found = {"later_over_first": ratio(taken["later"], taken["first"])}
    for side, seconds in taken.items():
        found[f"{side}_seconds"] = statistics.median(seconds)
        for stage in parts[side][0]:
            every = [each[stage] for each in parts[side][1:]]  # the first turn was to warm up
            found[f"{side}_{stage}_seconds"] = statistics.median(every)
    return found
