"""Time the project against its peers:  python scripts/benchmark.py

Every figure is a ratio of medians, the two sides run by turns in one process: the same work, on
the same machine, in the same minute. The result goes to benchmarks/table/ and benchmarks/model/.
"""

import json
import math
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from datetime import date
from functools import partial

import torch
import torch.nn.functional as F
from omegaconf import DictConfig
from rich.progress import track
from torch import Tensor, nn

from wawa_transformer.commandline import script
from wawa_transformer.config import CONFIG_DIR
from wawa_transformer.machine import choose_device
from wawa_transformer.runs import make_directory
from wawa_transformer.transformer import Transformer, causal_mask

BENCHMARKS = CONFIG_DIR.parent / "benchmarks"
ROUNDS = 60


def medians(sides: Mapping[str, Callable[[], object]], title: str) -> dict[str, float]:
    """The median seconds of each side over ``ROUNDS`` turns, after one turn to warm up."""
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for turn in track(range(ROUNDS + 1), title):
        for name, work in sides.items():
            started = time.perf_counter()
            work()
            if turn:
                taken[name].append(time.perf_counter() - started)
    return {name: statistics.median(seconds) for name, seconds in taken.items()}


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


def training_step(built: nn.Module, ids: Tensor) -> Callable[[], None]:
    """One step of AdamW on copying ``ids (B,S)``."""
    optimizer = torch.optim.AdamW(built.parameters(), fused=True)

    def step() -> None:
        logits = built(ids, ids)
        F.cross_entropy(logits.flatten(0, 1), ids.flatten(), ignore_index=0).backward()
        optimizer.step()
        optimizer.zero_grad()
        if ids.is_cuda:
            torch.cuda.synchronize()

    return step


def model(device: torch.device) -> dict[str, float]:
    """A training step of ours over one of ``torch.nn.Transformer``: same sizes, dropout, AdamW."""
    found = {}
    for name, (vocab, d_model, layers, heads, d_ff, batch, length) in {
        "tiny": (32, 64, 2, 4, 128, 128, 16),
        "small": (6000, 128, 3, 4, 512, 64, 24),
    }.items():
        ids = torch.randint(4, vocab, (batch, length), device=device)
        ids[: batch // 2, length - 3 :] = 0
        ours = Transformer(vocab, vocab, d_model, layers, heads, d_ff, seed=0).to(device)
        peer = Peer(vocab, d_model, layers, heads, d_ff).to(device)
        sides = {"ours": training_step(ours, ids), "torch": training_step(peer, ids)}
        seconds = medians(sides, f"{name} model")
        found[f"{name}_torch_over_ours"] = seconds["torch"] / seconds["ours"]
        found[f"{name}_milliseconds"] = 1000 * seconds["ours"]
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
            "device": torch.cuda.get_device_name(device) if on_gpu else platform.machine(),
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
