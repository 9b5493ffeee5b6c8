"""The cost of each encoding in a training step.

The steps are those of the default study, and steps on one long sequence.
"""

import itertools
import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from hydra import compose

from speed.model import ours, training_step, training_steps
from speed.timing import ratio, turns_of
from wawa_transformer.data import load
from wawa_transformer.positional.placement import fits_cross
from wawa_transformer.run.config import build_model
from wawa_transformer.train import loop

LONG = ("sinusoidal", "rotary", "alibi", "t5", "shaw", "transformer_xl", "kerple", "fire", "cope")
LENGTHS = (64, 256, 1024, 2048, 4096)
RUN = ["task=reverse", "pe=sinusoidal"]
STEPS, TURNS = 20, 25  # steps of each encoding in a turn, and turns


def measurements(device: torch.device) -> dict[str, Callable[[], dict[str, float]]]:
    """List :func:`study`, and :func:`long` for each length, by name."""
    lengths = {f"length_{length}": partial(long, device, length) for length in LENGTHS}
    return {"study": partial(study, device), **lengths}


def study(device: torch.device) -> dict[str, float]:
    """Time a step of the default study with each encoding.

    Times are multiples of the sinusoid's time.
    """
    configs = {pe: compose("config", [*RUN, f"pe={pe}"]) for pe in ("learned", "none", *LONG)}
    first = configs["sinusoidal"]
    data = load.load_data(first)
    stream = loop.batch_stream(data.train, first.trainer, first.seed, 0)
    batches = [batch.to(device) for [batch] in itertools.islice(stream, STEPS)]
    sides = {}
    for pe, config in configs.items():
        sides[pe] = training_steps(build_model(config, data.tokenizer).to(device), batches)
    return over_sinusoidal(turns_of(sides, "steps", TURNS))


def long(device: torch.device, length: int) -> dict[str, float]:
    """Time a step on one long sequence with each encoding.

    The model has width 128 and 2 + 2 layers. Relative encodings are timed with and without a part
    in cross-attention. Times are multiples of the sinusoid's time.
    """
    places: dict[str, dict[str, Any]] = {pe: {"pe": pe} for pe in LONG}
    across = (pe for pe in LONG if fits_cross(pe))
    places |= {f"{pe}_cross": {"pe": pe, "cross": "same"} for pe in across}
    ids = torch.randint(4, 32, (1, length), device=device)
    sides = {
        name: training_step(ours(device, 32, 128, 2, 4, 512, **place), ids)
        for name, place in places.items()
    }
    taken = turns_of(sides, f"length {length}", max(3, min(20, 4096 // length)))
    milliseconds = 1000 * statistics.median(taken["sinusoidal"])
    return {
        f"length_{length}_sinusoidal_milliseconds": milliseconds,
        **over_sinusoidal(taken, f"length_{length}_"),
    }


def over_sinusoidal(taken: dict[str, list[float]], prefix: str = "") -> dict[str, float]:
    """Divide the time of each encoding by the sinusoid's."""
    return {
        f"{prefix}{pe}_over_sinusoidal": ratio(seconds, taken["sinusoidal"])
        for pe, seconds in taken.items()
        if pe != "sinusoidal"
    }
