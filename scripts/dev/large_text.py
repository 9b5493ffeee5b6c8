"""Measure what a large text costs:  python scripts/dev/large_text.py FOLDER PAIRS [key=value …]

Prints seconds and memory of each stage up to the first steps. The pairs are Multi30k's training
text (data/multi30k), repeated, with a number after each sentence. The text, the cache and the run
stay in FOLDER. The same command with another seed starts from the cache.
"""

import argparse
import gzip
import itertools
import resource
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import datasets
from hydra import compose, initialize_config_dir

from wawa_transformer.common.files import CONFIG_DIR
from wawa_transformer.data import load
from wawa_transformer.data.text import TextTask
from wawa_transformer.run.cli import validate
from wawa_transformer.train import loop, trainer

TEXT = CONFIG_DIR.parent / "data" / "multi30k"


def make_text(folder: Path, pairs: int) -> None:
    """Write two files of ``pairs`` lines each."""
    for side in ("en", "de"):
        path = folder / f"{pairs}.{side}"
        if path.exists():
            continue
        lines = gzip.decompress((TEXT / f"train.{side}.gz").read_bytes()).decode().splitlines()
        with path.open("w", encoding="utf-8") as file:
            for number, line in zip(range(pairs), itertools.cycle(lines), strict=False):
                file.write(f"{line} {number}\n")


def memory() -> tuple[float, float]:
    """MB in memory now: the process's own, and those of files it has mapped."""
    lines = Path("/proc/self/status").read_text().splitlines()
    found = dict(line.split(":") for line in lines)
    own, mapped = (int(found[key].split()[0]) / 1e3 for key in ("RssAnon", "RssFile"))
    return own, mapped


class Stages:
    """Prints each stage's seconds, seconds of the processor, and peak memory."""

    def __init__(self) -> None:
        self.own = self.mapped = 0.0
        self.begun, self.worked = time.perf_counter(), time.process_time()
        threading.Thread(target=self.watch, daemon=True).start()

    def watch(self) -> None:
        """Update the peaks ten times a second."""
        while True:
            self.look()
            time.sleep(0.1)

    def look(self) -> None:
        """Update the peaks."""
        own, mapped = memory()
        self.own, self.mapped = max(self.own, own), max(self.mapped, mapped)

    def done(self, stage: str) -> None:
        """Print a line, and begin the next stage."""
        self.look()
        seconds, worked = time.perf_counter() - self.begun, time.process_time() - self.worked
        print(
            f"{stage:<14} {seconds:8.1f} s {worked:8.1f} s of the processor "
            f"{self.own:8.0f} MB own {self.mapped:8.0f} MB mapped",
            flush=True,
        )
        self.own = self.mapped = 0.0
        self.begun, self.worked = time.perf_counter(), time.process_time()

    def timed(self, stage: str, work: Callable[..., Any]) -> Callable[..., Any]:
        """``work``, which prints a line when it is done."""

        def both(*arguments: Any, **named: Any) -> Any:
            out = work(*arguments, **named)
            self.done(stage)
            return out

        return both


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("pairs", type=int)
    parser.add_argument("overrides", nargs="*", metavar="key=value")
    given = parser.parse_args()
    folder, pairs = given.folder, given.pairs
    datasets.config.HF_DATASETS_CACHE = folder / "cache"
    folder.mkdir(parents=True, exist_ok=True)
    make_text(folder, pairs)
    with initialize_config_dir(str(CONFIG_DIR), version_base="1.3"):
        config = compose("config", [
            "task=text", f"task.data_dir={folder}", f"task.source={pairs}.en",
            f"task.target={pairs}.de", "task.vocab_size=6000", "trainer=text",
            "trainer.steps=20", "trainer.eval_every=20", "trainer.warmup=5", "trainer.device=cpu",
            "trainer.attention_maps=false", f"output_dir={folder}/results", "progress=false",
            *given.overrides,
        ])  # fmt: skip
    validate(config)
    stages = Stages()
    stages.done("libraries")
    encode, batches = load.tokenize_split, loop.batch_stream

    def first_batch(*arguments: Any) -> Iterator[Any]:
        for number, batch in enumerate(batches(*arguments)):
            if number < 2:
                stages.done("first batch" if number == 0 else "first step")
            yield batch

    TextTask.dataset = stages.timed("text", TextTask.dataset)  # type: ignore[method-assign]
    TextTask.tokenizer = stages.timed("vocabulary", TextTask.tokenizer)  # type: ignore[method-assign]
    load.tokenize_split = stages.timed("ids", encode)
    loop.batch_stream = first_batch  # type: ignore[assignment]
    trainer.train(config)
    stages.done("the rest")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    print(f"peak memory, mapped files included: {peak:,.0f} MB")


if __name__ == "__main__":
    main()
