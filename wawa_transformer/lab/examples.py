"""Example answers of each encoding to a few test sources."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wawa_transformer.common.schema import UserError
from wawa_transformer.data.text import build_task
from wawa_transformer.decode.strategies import Greedy
from wawa_transformer.decode.translation import hypotheses, read
from wawa_transformer.run.run_dir import Run
from wawa_transformer.train.load import load_model

PAST = 3  # one example is this many symbols longer than the longest trained length


@dataclass(frozen=True)
class Example:
    """One test source, with the answer of each encoding."""

    source: str
    target: str
    length: int
    answers: Mapping[str, str]


@dataclass(frozen=True)
class Examples:
    """The examples of one task under one seed."""

    task: str
    seed: int
    each: Sequence[Example]


def examples(runs: Sequence[Run]) -> Examples | None:
    """Let the models of one task answer a few test sources.

    The models are those of the first seed for which every encoding has weights. The sources are the
    test's first of three lengths: half the longest trained length, the longest, and ``PAST`` more.
    None if there is no such seed, if the weights cannot be read (with a warning), or for a text.
    """
    encodings = list(dict.fromkeys(run.pe for run in runs))
    kept = [run for run in runs if run.checkpoint("last").exists()]
    by_seed = {seed: [run for run in kept if run.seed == seed] for seed in {r.seed for r in runs}}
    whole = sorted(seed for seed, those in by_seed.items() if len(those) == len(encodings))
    if not whole:
        return None
    chosen = by_seed[whole[0]]
    try:
        loaded = {run.pe: load_model(run) for run in chosen}
        config = next(iter(loaded.values()))[2]
        task = build_task(config)
    except UserError as error:
        print(f"warning: no examples of {chosen[0].task} in the report: {error}", file=sys.stderr)
        return None
    if task.trained_lengths is None:
        return None
    longest = task.trained_lengths[1]
    test = task.test(config.seed)["test"]
    first = {length: row for row, length in reversed(list(enumerate(test["length"])))}
    rows = [first[n] for n in (longest // 2, longest, longest + PAST) if n in first]
    shown = test.select(rows)
    tokenizer = next(iter(loaded.values()))[1]  # the same for every run of a task and seed
    sources = read(tokenizer, shown["source"])
    answers = {
        pe: [best.text for best, *_ in hypotheses(model, tokenizer, sources, Greedy())]
        for pe, (model, *_) in loaded.items()
    }
    each = [
        Example(source, target, length, {pe: answers[pe][i] for pe in encodings})
        for i, (source, target, length) in enumerate(
            zip(shown["source"], shown["target"], shown["length"], strict=True)
        )
    ]
    return Examples(chosen[0].task, whole[0], each)
