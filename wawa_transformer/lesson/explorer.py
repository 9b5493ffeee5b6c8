"""The interactive page on positional encodings, ``explore.html``."""

import math
from pathlib import Path

import torch
from torch import Tensor

from wawa_transformer.lab.pages import write_page
from wawa_transformer.lab.styles import BLUE, GREEN, ORANGE, VERMILION
from wawa_transformer.lesson.pictures import COLOURS
from wawa_transformer.positional.alibi import ALiBi
from wawa_transformer.positional.base import EncodingContext, consecutive
from wawa_transformer.positional.rotary import Rotary
from wawa_transformer.positional.sinusoid_designs import frequencies
from wawa_transformer.positional.sinusoidal import PositionalEncoding
from wawa_transformer.positional.t5 import T5Buckets


def write_explorer(path: Path) -> None:
    """Write ``explore.html``, an interactive page in one file without network."""
    colours = [BLUE, ORANGE, GREEN, VERMILION]
    templates = Path(__file__).parent / "templates"
    write_page(path, templates, spacings=list(COLOURS), colours=colours)


def edited() -> list[str]:
    """Name what ``explore.html`` computes in another way than the code here.

    The page's JavaScript has the published formulas; its numbers here are of distances up to 100.
    """
    at, equal = consecutive(101), torch.ones(1, 1, 101, 4)
    turned = Rotary(EncodingContext(4, 1)).turn(equal, at)[0, 0]
    heads = torch.zeros(1, 8, 101, 8)
    far, near = math.cos(100), math.cos(1)
    pairs: dict[str, tuple[Tensor, list[float]]] = {
        "sinusoidal": (
            PositionalEncoding(4, max_len=101).pe[0, 100], [math.sin(100), far, math.sin(1), near]
        ),
        "rotary": ((turned[100] @ turned[0])[None], [2 * (far + near)]),
        "alibi": (ALiBi(EncodingContext(64, 8)).bias(heads, heads, at, at)[0, 0, 100, :1], [-50]),
        "t5": (T5Buckets(EncodingContext(64, 8)).bucket(torch.tensor([-3, -12, -100])), [3, 9, 15]),
    }  # fmt: skip
    spaced = {"geometric": [1, 0.01], "linear": [1, 0.01], "exponential": [1, math.exp(-1)]}
    for name, values in (spaced | {"textbook": [0.1, 0.001]}).items():
        pairs[f"{name} spacing"] = frequencies(4, spacing=name)[1], values
    return [
        name
        for name, (own, page) in pairs.items()
        if not torch.allclose(own.double(), torch.tensor(page, dtype=torch.float64), atol=1e-4)
    ]
