"""Time the sinusoid's table: exp of a logarithm against a power."""

import math
from functools import partial

import torch
from torch import Tensor

from speed.timing import medians


def measure(device: torch.device) -> dict[str, float]:
    """Time the two formulas of the sinusoid's table.

    The table is 5,000 × 512 in float32, on a CPU. The formulas are exp of a logarithm and a power.
    """
    even = torch.arange(0, 512, 2).float()
    position = torch.arange(5000).float().unsqueeze(1)

    def frequencies(way: str) -> Tensor:
        if way == "exp":
            return torch.exp(even * (-math.log(10000.0) / 512))
        return 10000.0 ** (even / -512)

    def many(way: str) -> None:
        for _ in range(200):
            frequencies(way)

    def whole(way: str) -> None:
        angle = position * frequencies(way)
        out = torch.empty(5000, 512)
        out[:, 0::2], out[:, 1::2] = angle.sin(), angle.cos()

    short = medians({way: partial(many, way) for way in ("exp", "pow")}, "frequencies")
    long = medians({way: partial(whole, way) for way in ("exp", "pow")}, "tables")
    return {
        "frequencies_exp_over_pow": short["exp"] / short["pow"],
        "frequencies_share_percent": 100 * short["exp"] / 200 / long["exp"],
        "table_exp_over_pow": long["exp"] / long["pow"],
        "table_milliseconds": 1000 * long["exp"],
    }
