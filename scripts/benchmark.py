"""Time the project against its peers:  python scripts/benchmark.py [parts=[model,decoding]]

The sides run by turns in one process: the same work, on the same machine, in the same minute. A
ratio is of medians for the part table, and the median of every turn's for the others. On one core
table and decoding take a minute or two, model and text seven each, growth half an hour; the last
keeps what it has, and the same command goes on.
"""

import contextlib
import copy
import ctypes
import functools
import json
import math
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import peers
import torch
from datasets import Dataset
from omegaconf import DictConfig
from rich.progress import track
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from wawa_transformer.batching import Batch, Examples, Sequences, collate, plan
from wawa_transformer.commandline import register, script
from wawa_transformer.config import CONFIG_DIR, MachineConfig, UserError, check, check_device
from wawa_transformer.corpus import begins
from wawa_transformer.decoding import greedy
from wawa_transformer.dropout import Dropout
from wawa_transformer.loss import cross_entropy, loss_and_nll
from wawa_transformer.machine import peak_memory, processor, take_device
from wawa_transformer.positional import ENCODINGS
from wawa_transformer.runs import make_directory, write_atomically
from wawa_transformer.search import Beam
from wawa_transformer.tracking import picture
from wawa_transformer.transformer import BOS, EOS, Transformer

ROUNDS = 60


def turns_of(
    sides: Mapping[str, Callable[[], object]], title: str, turns: int = ROUNDS
) -> dict[str, list[float]]:
    """The seconds of each side in each of ``turns``, after one turn to warm up."""
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for turn in track(range(turns + 1), title):
        for name, work in sides.items():
            started = time.perf_counter()
            work()
            if turn:
                taken[name].append(time.perf_counter() - started)
    return taken


def medians(sides: Mapping[str, Callable[[], object]], title: str) -> dict[str, float]:
    """The median seconds of each side."""
    return {name: statistics.median(taken) for name, taken in turns_of(sides, title).items()}


def ratio(above: list[float], below: list[float]) -> float:
    """The median over turns of one side's seconds over the other's in the same turn."""
    return statistics.median(a / b for a, b in zip(above, below, strict=True))


def table() -> dict[str, float]:
    """The sinusoid's table (5,000 × 512, float32): exp of a logarithm against a power."""
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


def training_step(built: nn.Module, ids: Tensor, **how: bool) -> Callable[[], None]:
    """One step of AdamW on copying ``ids (B,S)``."""
    return training_steps(built, [Batch(ids, ids, ids)], **how)


def training_steps(
    built: nn.Module, batches: Sequence[Batch], fast: bool = False, bf16: bool = False
) -> Callable[[], None]:
    """A step of AdamW on each of ``batches``; ``fast``: with the loss of scripts/train.py."""
    device = batches[0].source.device.type
    optimizer = torch.optim.AdamW(built.parameters(), fused=True)

    def steps() -> None:
        for batch in batches:
            with torch.autocast(device, torch.bfloat16, enabled=bf16):
                if fast:
                    states = built(batch.source, batch.target_in, logits=False)
                    weight: Tensor = built.output.weight  # type: ignore[assignment, union-attr]
                    loss, _ = loss_and_nll(states, weight, batch.target_out)
                else:
                    loss = cross_entropy(built(batch.source, batch.target_in), batch.target_out)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        if device == "cuda":
            torch.cuda.synchronize()

    return steps


def plain(ours: Transformer) -> Transformer:
    """A copy of the model with dropout as torch has it."""
    copied = copy.deepcopy(ours)
    for module in copied.modules():
        if isinstance(module, Dropout):
            module.__class__ = nn.Dropout  # type: ignore[assignment]
    return copied


class Products(TorchDispatchMode):
    """The shapes of every matrix product of a step; attention's are counted as its formulas."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: list[tuple[tuple[int, ...], tuple[int, ...]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.split("::")[1]
        if name in ("mm", "bmm"):
            self.shapes.append((tuple(args[0].shape), tuple(args[1].shape)))
        elif name in ("addmm", "addmm_", "baddbmm"):
            self.shapes.append((tuple(args[1].shape), tuple(args[2].shape)))
        elif name.startswith("_scaled_dot_product"):
            backward = "backward" in name
            query, key = (args[i].shape for i in ((1, 2) if backward else (0, 1)))
            batch, rows, keys, width = query[0] * query[1], query[2], key[2], query[3]
            scores = ((batch, rows, width), (batch, width, keys))
            values = ((batch, rows, keys), (batch, keys, width))
            # Two of each again: every product has a gradient on either side.
            self.shapes += [scores, values] * (2 if backward else 1)
        return func(*args, **(kwargs or {}))


def floor(step: Callable[[], None], device: torch.device) -> Callable[[], None]:
    """The matrix products of ``step`` and nothing else, one after the other."""
    with Products() as products:
        step()
    made: dict[tuple[int, ...], Tensor] = {}
    for pair in products.shapes:
        for shape in pair:
            made.setdefault(shape, torch.randn(shape, device=device))

    def multiply() -> None:
        for left, right in products.shapes:
            made[left] @ made[right]
        if device.type == "cuda":
            torch.cuda.synchronize()

    return multiply


# Vocabulary, d_model, layers, heads, d_ff, batch, length, turns.
SHAPES = {
    "T": (32, 64, 2, 4, 128, 128, 16, 60),
    "S": (8000, 256, 3, 4, 1024, 64, 32, 9),
    "B": (16000, 512, 6, 8, 2048, 16, 64, 5),
}
PEERS = {
    "torch": ("torch", peers.TorchPeer),
    "x_transformers": ("x_transformers", peers.XTransformersPeer),
    "marian": ("transformers", peers.MarianPeer),
}


@functools.cache  # so that it is said once
def absent(package: str) -> bool:
    """Whether a peer is not installed; says so."""
    if missing := not peers.installed(package):
        print(f"skipped: {package} is not installed; pip install -e '.[bench]' brings it.")
    return missing


def model(device: torch.device) -> dict[str, float]:
    """A training step of ours beside those of others: sizes, dropout, AdamW alike.

    ``bf16`` is ours under ``trainer.bf16``, ``plain`` ours without its own dropout and loss;
    ``floor`` its matrix products and no more, in fp32.
    """
    found: dict[str, float] = {}
    for name, (*sizes, batch, length, turns) in SHAPES.items():
        vocab = sizes[0]
        ids = torch.randint(4, vocab, (batch, length), device=device)
        ids[: batch // 2, length - 3 :] = 0
        ours = Transformer(vocab, *sizes, seed=0).to(device)
        sides = {
            "ours": training_step(ours, ids, fast=True),
            "bf16": training_step(copy.deepcopy(ours), ids, fast=True, bf16=True),
        }
        for side, (package, build) in PEERS.items():
            if not absent(package):
                sides[side] = training_step(build(*sizes).to(device), ids)
        sides["plain"] = training_step(plain(ours), ids)
        sides["floor"] = floor(training_step(ours, ids), device)
        found |= compared(turns_of(sides, f"shape {name}", turns), f"{name}_")
    return found


def compared(taken: dict[str, list[float]], prefix: str = "") -> dict[str, float]:
    """Each side's time over ours, and each side's milliseconds."""
    ratios = {
        f"{prefix}{side}_over_ours": ratio(seconds, taken["ours"])
        for side, seconds in taken.items()
        if side != "ours"
    }
    times = {
        f"{prefix}{side}_milliseconds": 1000 * statistics.median(seconds)
        for side, seconds in taken.items()
    }
    return ratios | times


def decoding(device: torch.device) -> dict[str, float]:
    """Decoding of 32 ids from 32, shape S: one sentence and 32 at a time greedily, and with a beam.

    All sides have the same weights and must give the same ids. ``plain`` decodes the whole prefix
    anew for each id.
    """
    vocab, *sizes = SHAPES["S"][:5]
    ours = peers.like_marian(vocab, *sizes).to(device).eval()
    length = 32
    found: dict[str, float] = {}
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        ours.output.weight[EOS] = 0  # never the most probable: none ends before the others
        for name, batch, size in (("batch1", 1, 1), ("batch32", 32, 1), ("beam4", 32, 4)):
            ids = torch.randint(4, vocab, (batch, length), device=device)
            sides: dict[str, Callable[[], Tensor]] = {
                "ours": partial(best, ours, ids, length, size)
            }
            if size == 1:
                sides["plain"] = partial(without_cache, ours, ids, length)
            if not absent("transformers"):
                sides["marian"] = peers.with_marian(ours, ids, length, size)
            if device.type == "cpu" and not absent("ctranslate2"):
                sides["ctranslate2"] = peers.with_ctranslate2(ours, ids, length, size, Path(folder))
            expected = sides["ours"]().cpu()
            for side, work in sides.items():
                if not torch.equal(work().cpu(), expected):
                    raise AssertionError(f"{side} decodes other ids than ours")
            taken = turns_of(sides, f"decoding, {name}", 25 if batch == 1 else 9)
            found |= compared(taken, f"{name}_")
    return found


def best(ours: Transformer, source: Tensor, length: int, size: int) -> Tensor:
    """The best ids, found with a beam of ``size``; of one, greedily."""
    if size == 1:
        return greedy(ours, source, length)
    return Beam(size=size)(ours, source, length)[0][:, 0]


def without_cache(ours: Transformer, source: Tensor, length: int) -> Tensor:
    """Greedy ids as the definition has them."""
    ids = torch.full_like(source[:, :1], BOS)
    for _ in range(length):
        ids = torch.cat((ids, ours(source, ids)[:, -1:].argmax(-1)), dim=1)
    return ids[:, 1:]


# Positions that Multi30k's training captions take, EOS included: benchmarks/README.md.
CAPTIONS = CONFIG_DIR.parent / "benchmarks" / "lengths" / "multi30k.csv"
# Vocabulary, d_model, layers, heads, d_ff, positions of a bucket, rows of a random batch, buckets,
# random batches, turns.
REAL = (6000, 256, 3, 4, 1024, 4096, 64, 8, 16, 5)


def text(device: torch.device) -> dict[str, float]:
    """Target tokens a second in training on sentences of real lengths, padding not counted.

    Ours in buckets of similar length, as ``trainer.bucket`` has them, and in random batches, in
    which ``torch.nn.Transformer`` has them, too. What the words are changes no time.
    """
    vocab, *sizes, positions, rows, buckets, batches, turns = REAL
    pairs = captions(vocab)
    planned = sorted(
        plan(pairs.sizes, positions, 0, 0, bucket=True), key=lambda i: pairs.sizes[i[0]]
    )
    every = [planned[(2 * i + 1) * len(planned) // (2 * buckets)] for i in range(buckets)]
    order = np.random.default_rng(0).permutation(len(pairs.sizes))
    drawn = order[: batches * rows].reshape(batches, rows)
    bucketed = [collate(pairs, indices).to(device) for indices in every]
    mixed = [collate(pairs, indices.tolist()).to(device) for indices in drawn]

    ours, again, half = (Transformer(vocab, vocab, *sizes, seed=0).to(device) for _ in range(3))
    theirs = peers.TorchPeer(vocab, *sizes).to(device)
    sides = {
        "ours": (training_steps(ours, bucketed, fast=True), bucketed),
        "ours_bf16": (training_steps(half, bucketed, fast=True, bf16=True), bucketed),
        "ours_mixed": (training_steps(again, mixed, fast=True), mixed),
        "torch_mixed": (training_steps(theirs, mixed), mixed),
    }
    taken = turns_of({name: steps for name, (steps, _) in sides.items()}, "text", turns)
    found = {}
    for name, (_, own) in sides.items():
        tokens = sum(batch.target_tokens for batch in own)
        there = sum(batch.target_out.numel() for batch in own)
        taken[name] = [seconds / tokens for seconds in taken[name]]  # for each token
        found[f"{name}_tokens_per_second"] = 1 / statistics.median(taken[name])
        found[f"{name}_real_percent"] = 100 * tokens / there
    for name in ("ours_bf16", "ours_mixed", "torch_mixed"):
        found[f"{name}_over_ours"] = ratio(taken[name], taken["ours"])  # seconds for each token
    return found


def captions(vocab: int) -> Examples:
    """As many pairs as the captions are, of the same lengths on both sides, of random words."""
    counts = pd.read_csv(CAPTIONS)
    random = np.random.default_rng(0)

    def words(sizes: np.ndarray) -> Sequences:
        return Sequences(random.integers(4, vocab, sizes.sum(), np.int32), sizes, begins(sizes))

    source, target = (
        np.repeat(counts[side].to_numpy(), counts["pairs"]) for side in ("source", "target")
    )
    return Examples(words(source), words(target + 1), Dataset.from_dict({}))


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
        if self.path:
            write_atomically(self.path, json.dumps({"about": self.about, "rows": self.rows}))


GROWN = ("sinusoidal", "rotary", "alibi", "t5", "shaw", "transformer_xl", "kerple", "fire", "cope")
LENGTHS = (64, 128, 256, 512, 1024, 2048, 4096)
BATCHES = (1, 4, 16, 64, 256)
WIDTHS = (64, 128, 256, 512, 1024)


def growth(device: torch.device, kept: Kept | None = None) -> list[dict[str, Any]]:
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
    built = Transformer(32, 32, width, 2, 4, 4 * width, seed=0, **pe).to(device)
    ids = torch.randint(4, 32, (batch, length), device=device)
    return training_step(built, ids, fast=True)


def draw_growth(rows: pd.DataFrame, path: Path) -> None:
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
    axes[0, 0].legend(fontsize=7, ncol=2)
    figure.savefig(path, dpi=110)


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


PARTS: dict[str, Callable[[torch.device, Kept], Any]] = {
    "table": lambda device, kept: table(),
    "model": lambda device, kept: model(device),
    "decoding": lambda device, kept: decoding(device),
    "text": lambda device, kept: text(device),
    "growth": growth,
}


@dataclass
class BenchmarkConfig:
    """scripts/benchmark.py."""

    parts: list[str] = field(default_factory=lambda: list(PARTS))
    output_dir: str = "results/benchmark"
    trainer: MachineConfig = field(default_factory=MachineConfig)


def rules(config: DictConfig) -> None:
    """The words of ``parts``, and the machine."""
    check(MachineConfig, config.trainer, "trainer.")
    check_device(config.trainer.device)
    unknown = [part for part in config.parts if part not in PARTS]
    if unknown or not config.parts:
        what = f"parts={unknown[0]} does not exist" if unknown else "parts is empty"
        raise UserError(f"{what}; choose any of {', '.join(PARTS)}.")


register("benchmark", BenchmarkConfig, rules)


@script("benchmark")
def main(config: DictConfig) -> None:
    device = take_device(config.trainer)
    on_gpu = device.type == "cuda"
    machine = {
        "device": torch.cuda.get_device_name(device) if on_gpu else processor(),
        "threads": config.trainer.threads,
        "torch": str(torch.__version__),
    }
    for part in config.parts:
        folder = Path(config.output_dir) / part
        make_directory(folder)
        unfinished = folder / "unfinished.json"
        found = PARTS[part](device, Kept(unfinished, machine))
        about = {
            "command": f"python scripts/benchmark.py parts=[{part}]",
            "date": date.today().isoformat(),
            **machine,
        }
        if isinstance(found, dict):
            about |= {name: round(value, 4) for name, value in found.items()}
        else:
            rows = pd.DataFrame(found)
            rows.to_csv(folder / "results.csv", index=False)
            draw_growth(rows, folder / "growth.png")
            print(rows.to_string(index=False))
        written = json.dumps(about, indent=1)
        (folder / "results.json").write_text(written + "\n", encoding="utf-8")
        unfinished.unlink(missing_ok=True)
        print(written)


if __name__ == "__main__":
    main()
