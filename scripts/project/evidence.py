"""What the committed results in ``benchmarks/`` say: the numbers behind the documentation."""

from __future__ import annotations

import functools
from pathlib import Path

import pandas as pd

from wawa_transformer.config import CONFIG_DIR
from wawa_transformer.lab import analysis
from wawa_transformer.lab.intervals import Estimate, estimate, paired_difference

BENCHMARKS = CONFIG_DIR.parent / "benchmarks"
BySeed = dict[int, float]  # seed -> value


@functools.cache  # the pages ask for a few files hundreds of times
def table_of(path: Path) -> pd.DataFrame:
    """A committed table."""
    return pd.read_csv(path)


def rows(study: str, task: str, pe: str, file: str = "results.csv") -> pd.DataFrame:
    """The lines of a study's table for one task and encoding; at least one."""
    table = table_of(BENCHMARKS / study / file)
    chosen = table[(table["task"] == task) & (table["pe"] == pe)]
    if chosen.empty:
        raise ValueError(f"{Path(study) / file} holds nothing on {task} with {pe}")
    return chosen


def exact_match(
    study: str, task: str, pe: str, unseen: bool = False, column: str = "exact_match"
) -> BySeed:
    """For each seed the mean exact match over the trained lengths, or the longer ones."""
    table = rows(study, task, pe)
    longest = table.loc[table["trained"].eq(True), "length"].max()
    part = table[table["length"] > longest] if unseen else table[table["trained"].eq(True)]
    # Lengths that were tested with more examples count for more, as in the test split itself.
    weighted = (part[column] * part["examples"]).groupby(part["seed"]).sum()
    return by_seed(weighted / part.groupby("seed")["examples"].sum())


def ceiling(study: str, task: str, pe: str) -> Estimate:
    """What a model without positions can reach, with its sampling interval on the test splits."""
    table = rows(study, task, pe)
    splits = table["seed"].nunique()
    part = table[table["trained"].eq(True) & (table["seed"] == table["seed"].iloc[0])]
    found = analysis.ceiling_of(part.to_dict("records"))
    assert found is not None
    chance = analysis.sampling_interval(found[1], splits)
    return Estimate(found[0], found[0] - chance, found[0] + chance, splits)


def learned(study: str, task: str, pe: str) -> bool:
    """Whether the trained lengths are learned, so that longer ones may be read."""
    return mean(exact_match(study, task, pe)).mean >= analysis.LEARNED_IN_RANGE


def nll(study: str, task: str, pe: str) -> BySeed:
    """For each seed the NLL in nats per token at the trained lengths, for equal-length targets."""
    table = rows(study, task, pe)
    part = table[table["trained"].eq(True)]
    tokens = part["examples"] * (part["length"] + 1)  # and EOS
    total = (part["nll"] * tokens).groupby(part["seed"]).sum()
    return by_seed(total / tokens.groupby(part["seed"]).sum())


def reaches(study: str, task: str, pe: str) -> BySeed:
    """For each seed the longest length up to which exact match is at least one half, or 0."""
    table = rows(study, task, pe).pivot(index="length", columns="seed", values="exact_match")
    return by_seed(pd.Series({seed: analysis.reach(v) for seed, v in table.to_dict().items()}))


def judged(study: str, task: str, pairs: list[tuple[str, str]]) -> dict[str, str]:
    """For the first of each pair what the study's report says of it beside the second."""
    measures = [
        (what, {pe: read(study, task, pe) for pair in pairs for pe in pair}, True, "")
        for what, read in (("exact match", exact_match), ("reach", reaches))
    ]
    return {
        a: analysis.judge(
            (a, b),
            len(pairs),
            measures,
            [] if learned(study, task, a) and learned(study, task, b) else [measures[1][1]],
        )["verdict"]
        for a, b in pairs
    }


def steps_to(study: str, task: str, pe: str, level: float) -> BySeed:
    """For each seed the first validated step with an exact match of ``level``; inf: never."""
    table = rows(study, task, pe, "curves.csv")
    reached = table["step"].where(table["exact_match"] >= level, float("inf"))
    return by_seed(reached.groupby(table["seed"]).min())


def nll_by_length(study: str, task: str, pe: str, least: int) -> dict[int, BySeed]:
    """For each length with ``least`` test examples or more the NLL in nats per token, by seed."""
    table = rows(study, task, pe)
    lengths = sorted(table.loc[table["examples"] >= least, "length"].unique())
    by_length = table.set_index(["length", "seed"])["nll"]
    return {int(length): by_seed(by_length.loc[length]) for length in lengths}


def bleu(study: str, task: str, pe: str) -> BySeed:
    """For each seed the greedy BLEU on the test set."""
    table = rows(study, task, pe, "bleu.csv")
    return by_seed(table.set_index("seed")["bleu"])


def by_seed(values: pd.Series) -> BySeed:
    """A series indexed by seed as a plain dictionary."""
    return {int(seed): float(value) for seed, value in zip(values.index, values, strict=True)}


difference = paired_difference


def mean(values: BySeed) -> Estimate:
    """The mean over seeds with its interval."""
    return estimate(values.values())
