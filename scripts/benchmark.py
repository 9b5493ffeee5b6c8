"""Time the project against its peers:  python scripts/benchmark.py

The sides run by turns in one process: the same work, on the same machine, in the same minute. A
ratio is of medians for benchmarks/table/, and the median of every turn's for benchmarks/model/.
"""

import copy
import json
import math
import statistics
import time
from collections.abc import Callable, Mapping
from datetime import date
from functools import partial
from typing import Any

import torch
from omegaconf import DictConfig
from rich.progress import track
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from wawa_transformer.commandline import script
from wawa_transformer.config import CONFIG_DIR
from wawa_transformer.dropout import Dropout
from wawa_transformer.loss import cross_entropy, loss_and_nll
from wawa_transformer.machine import choose_device, processor
from wawa_transformer.runs import make_directory
from wawa_transformer.transformer import Transformer, causal_mask

BENCHMARKS = CONFIG_DIR.parent / "benchmarks"
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


class Peer(nn.Module):
    """``torch.nn.Transformer`` between the same embeddings and the same output."""

    def __init__(self, vocab: int, d_model: int, layers: int, heads: int, d_ff: int) -> None:
        super().__init__()
        self.ours = Transformer(vocab, vocab, d_model, 1, heads, d_ff, dropout=0.1, seed=0)
        self.stack = nn.Transformer(
            d_model, heads, layers, layers, d_ff, dropout=0.1, batch_first=True, norm_first=True
        )
        del self.ours.encoder_layers, self.ours.decoder_layers

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        scale = math.sqrt(self.ours.d_model)
        hidden = self.stack(
            self.ours.src_position(self.ours.src_embedding(src) * scale),
            self.ours.tgt_position(self.ours.tgt_embedding(tgt) * scale),
            tgt_mask=~causal_mask(tgt.size(1), device=tgt.device),
            tgt_is_causal=True,
            src_key_padding_mask=src == 0,
            tgt_key_padding_mask=tgt == 0,
            memory_key_padding_mask=src == 0,
        )
        return self.ours.output(hidden)


def training_step(built: nn.Module, ids: Tensor, fast: bool = False) -> Callable[[], None]:
    """One step of AdamW on copying ``ids (B,S)``; ``fast``: with the loss of scripts/train.py."""
    optimizer = torch.optim.AdamW(built.parameters(), fused=True)

    def step() -> None:
        if fast:
            states = built(ids, ids, logits=False)
            loss, _ = loss_and_nll(states, built.output.weight, ids)  # type: ignore[arg-type, union-attr]
        else:
            loss = cross_entropy(built(ids, ids), ids)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if ids.is_cuda:
            torch.cuda.synchronize()

    return step


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


def model(device: torch.device) -> dict[str, float]:
    """A training step of ours beside one of ``torch.nn.Transformer``: sizes, dropout, AdamW alike.

    ``plain`` is ours without its own dropout and loss; ``floor`` its matrix products and no more.
    """
    found = {}
    for name, (vocab, d_model, layers, heads, d_ff, batch, length, turns) in SHAPES.items():
        ids = torch.randint(4, vocab, (batch, length), device=device)
        ids[: batch // 2, length - 3 :] = 0
        ours = Transformer(vocab, vocab, d_model, layers, heads, d_ff, seed=0).to(device)
        peer = Peer(vocab, d_model, layers, heads, d_ff).to(device)
        sides = {"ours": training_step(ours, ids, fast=True), "torch": training_step(peer, ids)}
        sides["plain"] = training_step(plain(ours), ids)
        sides["floor"] = floor(training_step(ours, ids), device)
        taken = turns_of(sides, f"shape {name}", turns)
        median = {side: statistics.median(seconds) for side, seconds in taken.items()}
        found[f"{name}_torch_over_ours"] = ratio(taken["torch"], taken["ours"])
        found[f"{name}_plain_over_ours"] = ratio(taken["plain"], taken["ours"])
        found[f"{name}_floor_over_ours"] = ratio(taken["floor"], taken["ours"])
        found |= {f"{name}_{side}_milliseconds": 1000 * s for side, s in median.items()}
    return found


@script()
def main(config: DictConfig) -> None:
    torch.set_num_threads(config.trainer.threads)
    device = choose_device(config.trainer.device)
    for name, found in (("table", table()), ("model", model(device))):
        on_gpu = device.type == "cuda"
        about = {
            "command": "python scripts/benchmark.py",
            "date": date.today().isoformat(),
            "device": torch.cuda.get_device_name(device) if on_gpu else processor(),
            "threads": config.trainer.threads,
            "torch": str(torch.__version__),
        }
        folder = BENCHMARKS / name
        make_directory(folder)
        text = json.dumps(about | {k: round(v, 4) for k, v in found.items()}, indent=1)
        (folder / "results.json").write_text(text + "\n", encoding="utf-8")
        print(text)


if __name__ == "__main__":
    main()
