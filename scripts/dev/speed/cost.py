"""The cost of each encoding in a training step of the default size, and on one sequence."""

import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from speed.model import ours, training_step
from speed.timing import ratio, turns_of
from wawa_transformer.positional.placement import fits_cross

PES = (
    "sinusoidal", "learned", "none", "rotary", "alibi", "t5", "shaw", "transformer_xl", "kerple",
    "fire", "cope",
)  # fmt: skip
# As in speed.model: vocabulary, d_model, layers, heads, d_ff, batch, length, turns.
STEPS = {"default": (32, 64, 1, 4, 256, 32, 11, 500)} | {
    f"length_{length}": (32, 128, 2, 4, 512, 1, length, min(20, 4096 // length))
    for length in (64, 256, 1024)
}


def measurements(device: torch.device) -> dict[str, Callable[[], dict[str, float]]]:
    """List :func:`step` for each of :data:`STEPS`, by name."""
    return {name: partial(step, device, name) for name in STEPS}


def step(device: torch.device, name: str) -> dict[str, float]:
    """Time a step with each encoding, as a multiple of the sinusoid's time.

    Relative encodings are timed with and without a part in cross-attention.
    """
    *sizes, batch, length, turns = STEPS[name]
    places: dict[str, dict[str, Any]] = {pe: {"pe": pe} for pe in PES}
    places["learned"]["pe_settings"] = {"max_len": length}
    across = (pe for pe in PES if fits_cross(pe))
    places |= {f"{pe}_cross": {"pe": pe, "cross": "same"} for pe in across}
    ids = torch.randint(4, sizes[0], (batch, length), device=device)
    sides = {pe: training_step(ours(device, *sizes, **place), ids) for pe, place in places.items()}
    taken = turns_of(sides, name, turns)
    milliseconds = 1000 * statistics.median(sinusoidal := taken.pop("sinusoidal"))
    return {
        f"{name}_sinusoidal_milliseconds": milliseconds,
        **{f"{name}_{pe}_over_sinusoidal": ratio(taken[pe], sinusoidal) for pe in taken},
    }
