"""Time the project against its peers:  python scripts/dev/benchmark.py [parts=[model,decoding]]

All sides do the same work in one process, in turns, so that a busy machine slows all sides alike.
A ratio is the median of the turns' ratios. On one core table and decoding take one or two minutes
each, model takes up to seven minutes, and cost up to ten. The same command
continues a part that was stopped.
"""

import json
from dataclasses import dataclass, field
from datetime import date
from importlib import import_module
from pathlib import Path
from typing import Any

from wawa_transformer.run.script import script

import torch
from omegaconf import DictConfig

from wawa_transformer.common.files import make_directory, write_atomically
from wawa_transformer.common.limits import setting
from wawa_transformer.common.messages import UserError
from wawa_transformer.common.schema import check
from wawa_transformer.run.device import take_device
from wawa_transformer.run.overrides import register
from wawa_transformer.run.provenance import processor
from wawa_transformer.run.schema import MachineConfig

# Each part is a module of speed/. Peers and compilers take seconds to import, so a part is imported
# only when it is measured.
PARTS = ("table", "model", "decoding", "cost")


@dataclass
class BenchmarkConfig:
    """The keys of scripts/dev/benchmark.py."""

    parts: list[str] = setting(list(PARTS), f"any of {', '.join(PARTS)}")
    output_dir: str = setting("results/benchmark", "where the results go, a folder for each part")
    trainer: MachineConfig = field(default_factory=MachineConfig)


def check_config(config: DictConfig) -> None:
    """Check ``parts`` and the machine."""
    check(BenchmarkConfig, config)
    unknown = [part for part in config.parts if part not in PARTS]
    if unknown or not config.parts:
        what = f"parts={unknown[0]} does not exist" if unknown else "parts is empty"
        raise UserError(f"{what}; choose any of {', '.join(PARTS)}.")


register("benchmark", BenchmarkConfig, check_config)


def measure(
    part: str, folder: Path, device: torch.device, about: dict[str, Any]
) -> dict[str, float]:
    """Measure one part and return its numbers.

    Each measurement is saved at once, so that the same command continues a stopped part. If a
    measurement runs out of memory, the result says so, and the other measurements are still made.
    """
    unfinished = folder / "unfinished.json"
    done: dict[str, dict[str, float]] = {}
    if unfinished.exists():
        before = json.loads(unfinished.read_text(encoding="utf-8"))
        # Numbers from another machine, thread count or torch version are measured again.
        done = before["done"] if before["about"] == about else {}
    measurements = import_module(f"speed.{part}").measurements(device)
    for name in [name for name in measurements if name not in done]:
        try:
            done[name] = measurements[name]()
        except torch.OutOfMemoryError:
            done[name] = {f"{name}_out_of_memory": 1.0}
        write_atomically(unfinished, json.dumps({"about": about, "done": done}))
    unfinished.unlink()
    return {name: value for numbers in done.values() for name, value in numbers.items()}


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
        numbers = measure(part, folder, device, machine)
        about = {
            "command": f"python scripts/dev/benchmark.py parts=[{part}]",
            "date": date.today().isoformat(),
            **machine,
            **{name: round(value, 4) for name, value in numbers.items()},
        }
        written = json.dumps(about, indent=1)
        (folder / "results.json").write_text(written + "\n", encoding="utf-8")
        print(written)


if __name__ == "__main__":
    main()
