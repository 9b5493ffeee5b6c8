"""What the committed results in ``benchmarks/`` say: the numbers behind the documentation."""

from __future__ import annotations

import functools
import math
import re
import shlex
from pathlib import Path
from typing import Any

import pandas as pd
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from wawa_transformer.common.files import CONFIG_DIR
from wawa_transformer.lab import results
from wawa_transformer.lab.conditions import LEARNED_IN_RANGE, Measured, judge
from wawa_transformer.lab.intervals import (
    Estimate,
    estimate,
    paired_difference,
    sampling_interval,
)
from wawa_transformer.lab.rates import rates_summary
from wawa_transformer.lab.rules import Outcome, Rule

BENCHMARKS = CONFIG_DIR.parent / "benchmarks"
BySeed = dict[int, float]  # seed -> value
# What is cached here the pages ask for hundreds of times, in two languages.


@functools.cache
def table_of(path: Path) -> pd.DataFrame:
    """A committed table."""
    return pd.read_csv(path)


@functools.cache
def rows(study: str, task: str, pe: str, file: str = "results.csv") -> pd.DataFrame:
    """The lines of a study's table for one task and encoding; at least one."""
    table = table_of(BENCHMARKS / study / file)
    chosen = table[(table["task"] == task) & (table["pe"] == pe)]
    if chosen.empty:
        raise ValueError(f"{Path(study) / file} holds nothing on {task} with {pe}")
    return chosen


@functools.cache
def sources(study: str) -> str:
    """``_new``, the ending of the columns that a report rests on: new sources, where all of a
    study's runs counted them, or the empty one.
    """
    table = table_of(BENCHMARKS / study / "results.csv")
    if "examples_new" not in table or not table["trained"].notna().all():
        return ""
    seen = table[table["trained"].eq(True)]
    counts = seen.groupby(["task", "pe", "seed"])["examples_new"].sum()
    return "_new" if counts.gt(0).all() else ""


@functools.cache
def exact_match(
    study: str,
    task: str,
    pe: str,
    unseen: bool = False,
    column: str = "exact_match",
    of: str | None = None,
) -> BySeed:
    """For each seed the mean exact match over the trained lengths, or the longer ones.

    At the trained lengths of :func:`sources`, unless ``of`` says otherwise.
    """
    table = rows(study, task, pe)
    longest = table.loc[table["trained"].eq(True), "length"].max()
    part = table[table["length"] > longest] if unseen else table[table["trained"].eq(True)]
    of = "" if unseen else sources(study) if of is None else of
    # Lengths that were tested with more examples count for more, as in the test split itself.
    examples = part[f"examples{of}"]
    weighted = (part[f"{column}{of}"].fillna(0) * examples).groupby(part["seed"]).sum()
    return by_seed(weighted / examples.groupby(part["seed"]).sum())


@functools.cache
def blind(study: str, task: str, of: str | None = None) -> tuple[float, float] | None:
    """The most without positions and its standard error on one split, as the report has it.

    ``of`` is :func:`sources`, unless told; each seed has a split of its own.
    """
    of = sources(study) if of is None else of
    table = table_of(BENCHMARKS / study / "results.csv")
    table = table[(table["task"] == task) & table["trained"].eq(True)]
    table = table[table["pe"] == table["pe"].iloc[0]]
    found = []
    for _, split in table.groupby("seed"):
        pairs = zip(split[f"ceiling{of}"], split[f"examples{of}"], strict=True)
        known = [{"ceiling": None if math.isnan(c) else c, "examples": m} for c, m in pairs]
        found.append(results.ceiling_of(known))
    return results.over_splits(found)


def ceiling(study: str, task: str, of: str | None = None) -> Estimate:
    """What a model without positions can reach, with its sampling interval on the test splits."""
    found = blind(study, task, of)
    assert found is not None
    table = table_of(BENCHMARKS / study / "results.csv")
    splits = table.loc[table["task"] == task, "seed"].nunique()
    chance = sampling_interval(found[1], splits)
    return Estimate(found[0], found[0] - chance, found[0] + chance, splits)


def rates(study: str) -> list[dict[str, Any]]:
    """What tuning found, task by task, as the report has it."""
    table = table_of(BENCHMARKS / study / "tuning.csv")
    encodings = list(dict.fromkeys(table["pe"]))
    return rates_summary(
        table.to_dict("records"),  # type: ignore[arg-type]
        results.compared_pairs(encodings),
    )


def learned(study: str, task: str, pe: str) -> bool:
    """Whether the trained lengths are learned, so that longer ones may be read."""
    return mean(exact_match(study, task, pe)).mean >= LEARNED_IN_RANGE


def encodings(study: str, task: str) -> list[str]:
    """The encodings that a study trained on a task."""
    table = table_of(BENCHMARKS / study / "results.csv")
    return list(table.loc[table["task"] == task, "pe"].unique())


def best_two(values: dict[str, BySeed]) -> tuple[str, str, Estimate]:
    """The best encoding, the next, and its lead, corrected as one of all pairs."""
    ranked = sorted(values, key=lambda pe: -mean(values[pe]).mean)
    first, second = ranked[:2]
    return first, second, difference(values[first], values[second], math.comb(len(ranked), 2))


def nll(study: str, task: str, pe: str) -> BySeed:
    """For each seed the NLL in nats per token at the trained lengths, for equal-length targets."""
    table = rows(study, task, pe)
    part = table[table["trained"].eq(True)]
    tokens = part["examples"] * (part["length"] + 1)  # and EOS
    total = (part["nll"] * tokens).groupby(part["seed"]).sum()
    return by_seed(total / tokens.groupby(part["seed"]).sum())


@functools.cache
def reaches(study: str, task: str, pe: str) -> BySeed:
    """For each seed the longest length up to which exact match is at least one half, or 0."""
    table = rows(study, task, pe).pivot(index="length", columns="seed", values="exact_match")
    return by_seed(pd.Series({seed: results.reach(v) for seed, v in table.to_dict().items()}))


@functools.cache
def measured(study: str, task: str) -> Measured:
    """What a task's runs have come to, as the report reads it, from the committed tables.

    All but the NLL of a whole test, which counts tokens that ``results.csv`` does not.
    """
    table = table_of(BENCHMARKS / study / "results.csv")
    table = table[table["task"] == task]
    encodings = list(table["pe"].unique())
    values = {"exact_match": {pe: exact_match(study, task, pe) for pe in encodings}}
    longest, known = None, None
    if table["trained"].eq(True).any():
        longest = int(table.loc[table["trained"].eq(True), "length"].max())
        values["reach"] = {pe: reaches(study, task, pe) for pe in encodings}
        far = table[table["length"] > longest].groupby(["pe", "seed"])["exact_match"].mean()
        values["beyond"] = {pe: by_seed(far[pe]) for pe in far.index.unique("pe")}
        known = blind(study, task)
    if (BENCHMARKS / study / "bleu.csv").exists():
        values["bleu"] = {pe: bleu(study, task, pe) for pe in encodings}
    return Measured(values, longest, known, sentence_tests(study))


@functools.cache
def sentence_tests(study: str) -> list[dict[str, Any]]:
    """The paired tests over test sentences, which stand in the report alone."""
    report = (BENCHMARKS / study / "report.md").read_text(encoding="utf-8")
    row = r"^\| (\d+) \| (\S+) − (\S+) \| ([+-][\d.]+) \| (.+) \|$"
    return [
        {"seed": int(seed), "a": a, "b": b, "difference": float(gap),
         "p": None if p.startswith("same") else float(p)}
        for seed, a, b, gap, p in re.findall(row, report, flags=re.M)
    ]  # fmt: skip


def bleu_by_length(study: str) -> dict[tuple[str, int], BySeed]:
    """What ``evaluate.py`` printed of the study's own test: of encoding and length the BLEU."""
    found: dict[tuple[str, int], BySeed] = {}
    for encoding, seed, block in printed(study, "test_2016_flickr.txt"):
        for length, score in re.findall(r"^│ (\d+) .*│ ([\d.]+) │$", block, flags=re.M):
            found.setdefault((encoding, int(length)), {})[seed] = float(score)
    return found


def more_tests(study: str) -> dict[tuple[str, str], list[tuple[float, float]]]:
    """What ``evaluate.py`` printed on further tests: of encoding and test, by seed, BLEU minus
    that of the run it was held against, and p.
    """
    rows = r"^(test_\w+)$.*?^BLEU ([+-][\d.]+) against [^\n]* p = ([\d.]+)"
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for encoding, _, block in printed(study, "more_tests.txt"):
        for test, gap, p in re.findall(rows, block, flags=re.M | re.S):
            found.setdefault((encoding, test), []).append((float(gap), float(p)))
    return found


def printed(study: str, name: str) -> list[tuple[str, int, str]]:
    """The parts of a file of what ``evaluate.py`` printed, each with its encoding and seed."""
    text = (BENCHMARKS / study / name).read_text(encoding="utf-8")
    command = r"^\$ python scripts/evaluate\.py run=\S+/(\w+)/seed(\d+)-"
    parts = re.split(command, text, flags=re.M)[1:]
    threes = zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    return [(encoding, int(seed), block) for encoding, seed, block in threes]


@functools.cache  # composing takes a second
def config_of(study: str) -> DictConfig:
    """The configuration of a committed study, from the command that made it."""
    report = (BENCHMARKS / study / "report.md").read_text(encoding="utf-8")
    command = shlex.split(report.split("## Run it again")[1].split("```")[1])
    with initialize_config_dir(str(CONFIG_DIR), version_base="1.3"):
        return compose("config", command[2:])


def rule_of(study: str) -> Rule | None:
    """The rule of a committed study; None: it has none."""
    config = config_of(study)
    if config.study.rule is None:
        return None
    names = table_of(BENCHMARKS / study / "results.csv")
    encodings, tasks = (list(names[column].unique()) for column in ("pe", "task"))
    return Rule.of(config.study, encodings, tasks, len(config.study.seeds))


def outcomes(study: str) -> list[Outcome]:
    """What the rule of a committed study says of its tables."""
    rule = rule_of(study)
    return rule.decide({task: measured(study, task) for task in rule.tasks}) if rule else []


def judged(study: str, task: str, pairs: list[tuple[str, str]]) -> dict[str, str]:
    """For the first of each pair what the study's report says of it beside the second."""
    measures = {"exact_match": 0.0, "reach": 0.0}
    found = measured(study, task)
    return {pair[0]: judge(pair, measures, found, len(pairs)).verdict for pair in pairs}


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
