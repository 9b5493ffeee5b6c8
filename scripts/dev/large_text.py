"""What a text of many pairs costs, in seconds and memory, before and in its first steps:

python scripts/dev/large_text.py FOLDER PAIRS [key=value …]

The pairs are Multi30k's training text (data/multi30k), again and again, with a number after each
sentence. They, the cache and the run stay in FOLDER. Give the command again, with another seed, for
a start from the cache.
"""

import gzip
import itertools
import resource
import sys
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
    """Two files of as many lines."""
    for side in ("en", "de"):
        path = folder / f"{pairs}.{side}"
        if path.exists():
            continue
        lines = gzip.decompress((TEXT / f"train.{side}.gz").read_bytes()).decode().splitlines()
        with path.open("w", encoding="utf-8") as file:
            for number, line in zip(range(pairs), itertools.cycle(lines), strict=False):
                file.write(f"{line} {number}\n")


def memory() -> tuple[float, float]:
    """MB of this process's own, and of the files it has mapped, that are in memory now."""
    lines = Path("/proc/self/status").read_text().splitlines()
    found = dict(line.split(":") for line in lines)
    own, mapped = (int(found[key].split()[0]) / 1e3 for key in ("RssAnon", "RssFile"))
    return own, mapped


class Stages:
    """Prints what each stage took: seconds, those of the processor, and the most of its memory."""

    def __init__(self) -> None:
        self.own = self.mapped = 0.0
        self.begun, self.worked = time.perf_counter(), time.process_time()
        threading.Thread(target=self.watch, daemon=True).start()

    def watch(self) -> None:
        """Look at the memory ten times a second."""
        while True:
            self.look()
            time.sleep(0.1)

    def look(self) -> None:
        """Keep the most there has been."""
        own, mapped = memory()
        self.own, self.mapped = max(self.own, own), max(self.mapped, mapped)

    def done(self, stage: str) -> None:
        """A line, and the next stage begins."""
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
        """``work``, and a line after it."""

        def both(*arguments: Any, **named: Any) -> Any:
            out = work(*arguments, **named)
            self.done(stage)
            return out

        return both


def main() -> None:
    folder, pairs, *overrides = sys.argv[1:]
    datasets.config.HF_DATASETS_CACHE = Path(folder) / "cache"
    Path(folder).mkdir(parents=True, exist_ok=True)
    make_text(Path(folder), int(pairs))
    with initialize_config_dir(str(CONFIG_DIR), version_base="1.3"):
        config = compose("config", [
            "task=text", f"task.data_dir={folder}", f"task.source={pairs}.en",
            f"task.target={pairs}.de", "task.vocab_size=6000", "trainer=text",
            "trainer.steps=20", "trainer.eval_every=20", "trainer.warmup=5", "trainer.device=cpu",
            "trainer.attention_maps=false", f"output_dir={folder}/results", "progress=false",
            *overrides,
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
    print(f"most in memory at once, mapped files with it: {peak:,.0f} MB")


if __name__ == "__main__":
    main()
