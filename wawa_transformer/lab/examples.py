"""Example answers of each encoding to a few test sources."""

from collections.abc import Sequence
from typing import Any

from wawa_transformer.common.schema import UserError, warn
from wawa_transformer.data.text import build_task
from wawa_transformer.run.run_dir import Run
from wawa_transformer.train.load import load_model

PAST = 3  # one example is this many symbols longer than the longest trained length


def examples(runs: Sequence[Run]) -> dict[str, Any] | None:
    """Let the models of one generated task answer a few test sources.

    The models are those of the first seed for which every encoding has weights. The sources are the
    test's first of three lengths: half the longest trained length, the longest, and ``PAST`` more.
    Each example has a ``source``, a ``target``, a ``length`` and the ``answers`` by encoding. None
    if there is no such seed, or if the weights cannot be read (with a warning).
    """
    encodings = {run.pe for run in runs}
    kept = [run for run in runs if run.checkpoint("last").exists()]
    by_seed = {seed: [run for run in kept if run.seed == seed] for seed in {r.seed for r in runs}}
    whole = sorted(seed for seed, those in by_seed.items() if len(those) == len(encodings))
    if not whole:
        return None
    chosen = by_seed[whole[0]]
    try:
        loaded = {run.pe: load_model(run) for run in chosen}
        task = build_task(loaded[chosen[0].pe].config)
    except UserError as error:
        warn(f"warning: no examples of {chosen[0].task} in the report: {error}")
        return None
    assert task.trained_lengths
    longest = task.trained_lengths[1]
    test = task.test(whole[0])["test"]
    first = {length: row for row, length in reversed(list(enumerate(test["length"])))}
    rows = [first[n] for n in (longest // 2, longest, longest + PAST) if n in first]
    shown = test.select(rows).to_list()
    answers = {pe: run.translate([row["source"] for row in shown]) for pe, run in loaded.items()}
    each = [
        row | {"answers": {pe: found[i] for pe, found in answers.items()}}
        for i, row in enumerate(shown)
    ]
    return {"task": chosen[0].task, "seed": whole[0], "each": each}
