"""Time and memory of a step as the length, the batch or the width grows."""

from __future__ import annotations

import contextlib
import ctypes
import json
import multiprocessing
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from rich.progress import track

from speed.model import ours, training_step
from speed.timing import ratio, turns_of
from wawa_transformer.common.files import write_atomically
from wawa_transformer.positional.base import ENCODINGS
from wawa_transformer.run.device import peak_memory
from wawa_transformer.train.tracking import picture

GROWN = ("sinusoidal", "rotary", "alibi", "t5", "shaw", "transformer_xl", "kerple", "fire", "cope")
LENGTHS = (64, 128, 256, 512, 1024, 2048, 4096)
BATCHES = (1, 4, 16, 64, 256)
WIDTHS = (64, 128, 256, 512, 1024)


@dataclass
class Kept:
    """The rows of a part that takes long, written as they come.

    A file of another machine, other threads or another torch is begun anew.
    """

    path: Path | None = None
    about: dict[str, Any] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.path and self.path.exists():
            found = json.loads(self.path.read_text(encoding="utf-8"))
            self.rows = found["rows"] if found["about"] == self.about else []

    def has(self, what: str, size: int, measure: str) -> bool:
        """Whether this size has been measured."""
        there = (row for row in self.rows if (row["grows"], row["size"]) == (what, size))
        return any(measure in row for row in there)

    def add(self, what: str, size: int, found: dict[str, dict[str, float]]) -> None:
        """Keep what was ``found`` of another size, for each encoding."""
        rows = {(row["grows"], row["size"], row["encoding"]): row for row in self.rows}
        for encoding, measured in found.items():
            names: dict[str, Any] = {"grows": what, "size": size, "encoding": encoding}
            rows.setdefault((what, size, encoding), names).update(measured)
        self.rows = list(rows.values())
        self.write()

    def write(self) -> None:
        """Write the rows to the file, if there is one."""
        if self.path:
            write_atomically(self.path, json.dumps({"about": self.about, "rows": self.rows}))


def measure(device: torch.device, kept: Kept | None = None) -> list[dict[str, Any]]:
    """A training step of 2 + 2 layers as one thing grows: the length, the batch, the width.

    The length for each encoding, by turns, with and without a part in cross-attention; memory
    first. Sizes that were ``kept`` are not measured again.
    """
    kept = kept or Kept()

    places = {pe: {"pe": pe} for pe in GROWN}
    across = (pe for pe in GROWN if ENCODINGS[pe].relative)
    places |= {f"{pe}_cross": {"pe": pe, "cross": "same"} for pe in across}
    lengths = {
        length: {name: {"length": length, **pe} for name, pe in places.items()}
        for length in LENGTHS
    }
    batches = {batch: {"sinusoidal": {"batch": batch, "length": 32}} for batch in BATCHES}
    widths = {w: {"sinusoidal": {"batch": 16, "length": 32, "width": w}} for w in WIDTHS}
    grown: dict[str, dict[int, Any]] = {"length": lengths, "batch": batches, "width": widths}
    every = [(what, size, sides) for what, sizes in grown.items() for size, sides in sizes.items()]

    def lacking(measure: str) -> list[tuple[str, int, Any]]:
        return [each for each in every if not kept.has(*each[:2], measure)]

    def steps(sides: dict[str, Any]) -> dict[str, Callable[[], None]]:
        return {name: small_step(device, **sizes) for name, sizes in sides.items()}

    for what, size, sides in track(lacking("megabytes"), "memory"):
        found = {
            name: {"megabytes": round(memory_of(step, device), 1)}
            for name, step in steps(sides).items()
        }
        kept.add(what, size, found)
    for what, size, sides in lacking("milliseconds"):
        taken = turns_of(steps(sides), f"{what} {size}", max(3, min(20, 4096 // size)))
        found = {
            name: {
                "milliseconds": round(1000 * statistics.median(seconds), 3),
                "over_sinusoidal": round(ratio(seconds, taken["sinusoidal"]), 3),
            }
            for name, seconds in taken.items()
        }
        kept.add(what, size, found)
    return kept.rows


def small_step(
    device: torch.device, length: int, batch: int = 1, width: int = 128, **pe: Any
) -> Callable[[], None]:
    """A training step of 2 + 2 layers."""
    ids = torch.randint(4, 32, (batch, length), device=device)
    return training_step(ours(device, 32, width, 2, 4, 4 * width, **pe), ids)


def memory_of(work: Callable[[], object], device: torch.device) -> float:
    """The most memory that ``work`` takes beside what there is, in MB.

    On a CPU in a process of its own, which begins as a copy of this one. What this one's allocator
    has kept for later would be taken first, and seen by nobody: it is given back before. A step of
    a smaller model comes first, since libraries begin with buffers of their own.
    """
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        work()
        return (torch.cuda.max_memory_allocated(device) - before) / 1e6
    here, there = multiprocessing.Pipe(duplex=False)
    with contextlib.suppress(AttributeError, OSError):  # an allocator that is not glibc's
        ctypes.CDLL(None).malloc_trim(0)

    def child() -> None:
        small_step(device, length=2, width=16)()
        before = peak_memory(device)
        work()
        there.send(peak_memory(device) - before)

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    found = here.recv()
    process.join()
    return found


def draw(rows: pd.DataFrame, path: Path) -> None:
    """Time and memory of a step over what grows, a line for each encoding."""
    figure = picture(13, 7)
    axes = figure.subplots(2, 3, sharex="col")
    captions = {
        "length": "length, batch 1, width 128",
        "batch": "batch, length 32, width 128",
        "width": "width, batch 16, length 32",
    }
    for column, (what, caption) in enumerate(captions.items()):
        axes[1, column].set_xlabel(caption)
        for line, unit in enumerate(("milliseconds", "megabytes")):
            panel = axes[line, column]
            for name, part in rows[rows["grows"] == what].groupby("encoding", sort=False):
                plain = str(name).removesuffix("_cross")
                style = {"color": f"C{GROWN.index(plain)}", "ls": "-" if name == plain else ":"}
                panel.plot(part["size"], part[unit], marker=".", label=name, **style)
            panel.set_xscale("log", base=2)
            panel.set_yscale("log")
            panel.set_title(f"{unit} of a step", fontsize=9)
            panel.grid(alpha=0.3)
    lines = axes[0, 0].get_legend_handles_labels()
    figure.legend(*lines, loc="outside lower center", fontsize=8, ncol=9)
    figure.savefig(path, dpi=110)
