"""Time the sinusoid's table: exp of a logarithm against a power."""

import math
import statistics
from collections.abc import Callable
from functools import partial

import torch

from speed.timing import ratio, turns_of


def measurements(device: torch.device) -> dict[str, Callable[[], dict[str, float]]]:
    """List :func:`table`, the only measurement, which is made on a CPU."""
    return {"table": table}


def table() -> dict[str, float]:
    """Time two formulas of the sinusoid's table, 5,000 × 512 in float32."""
    even = torch.arange(0, 512, 2).float()
    position = torch.arange(5000).float().unsqueeze(1)
    formulas = {
        "exp": lambda: torch.exp(even * (-math.log(10000.0) / 512)),
        "pow": lambda: 10000.0 ** (even / -512),
    }

    def many(way: str) -> None:
        for _ in range(200):
            formulas[way]()

    def whole(way: str) -> None:
        angle = position * formulas[way]()
        out = torch.empty(5000, 512)
        out[:, 0::2], out[:, 1::2] = angle.sin(), angle.cos()

    short = turns_of({way: partial(many, way) for way in formulas}, "frequencies")
    long = turns_of({way: partial(whole, way) for way in formulas}, "tables")
    return {
        "frequencies_exp_over_pow": ratio(short["exp"], short["pow"]),
        "frequencies_share_percent": 100 / 200 * ratio(short["exp"], long["exp"]),
        "table_exp_over_pow": ratio(long["exp"], long["pow"]),
        "table_milliseconds": 1000 * statistics.median(long["exp"]),
    }
