"""Time the project against its peers:  python scripts/dev/benchmark.py [parts=[model,decoding]]

The sides run by turns in one process: the same work, on the same machine, in the same minute. A
ratio is of medians for the part table, and the median of every turn's for the others. On one core
table, decoding and study take a minute or two, model and text up to seven each, growth a quarter of
an hour; the last keeps what it has, and the same command goes on.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from omegaconf import DictConfig
from speed import decoding, growth, model, study, table, text

from wawa_transformer.common.files import make_directory
from wawa_transformer.common.schema import UserError, check
from wawa_transformer.run.cli import register, script
from wawa_transformer.run.config import MachineConfig, check_device
from wawa_transformer.run.device import take_device
from wawa_transformer.run.provenance import processor


def steps(device: torch.device) -> dict[str, float]:
    """A step beside others, and what a card alone can answer."""
    found = model.measure(device)
    if device.type == "cuda":
        from speed import card  # which imports a compiler

        found |= card.measure(device)
    return found


PARTS: dict[str, Callable[[torch.device, growth.Kept], Any]] = {
    "table": lambda device, kept: table.measure(),
    "model": lambda device, kept: steps(device),
    "decoding": lambda device, kept: decoding.measure(device),
    "text": lambda device, kept: text.measure(device),
    "study": lambda device, kept: study.measure(device),
    "growth": growth.measure,
}


@dataclass
class BenchmarkConfig:
    """scripts/dev/benchmark.py."""

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
        found = PARTS[part](device, growth.Kept(unfinished, machine))
        about = {
            "command": f"python scripts/dev/benchmark.py parts=[{part}]",
            "date": date.today().isoformat(),
            **machine,
        }
        if isinstance(found, dict):
            about |= {name: round(value, 4) for name, value in found.items()}
        else:
            rows = pd.DataFrame(found)
            rows.to_csv(folder / "results.csv", index=False)
            growth.draw(rows, folder / "growth.png")
            print(rows.to_string(index=False))
        written = json.dumps(about, indent=1)
        (folder / "results.json").write_text(written + "\n", encoding="utf-8")
        unfinished.unlink(missing_ok=True)
        print(written)


if __name__ == "__main__":
    main()
