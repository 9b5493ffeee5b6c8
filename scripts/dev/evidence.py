"""The documentation's numbers, read from the committed results in ``benchmarks/``."""

import functools
import math
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from wawa_transformer.common.files import CONFIG_DIR
from wawa_transformer.lab import results
from wawa_transformer.lab.intervals import Estimate, estimate, paired_difference, sampling_interval
from wawa_transformer.lab.judging import LEARNED_IN_RANGE, Measured, judge
from wawa_transformer.lab.rates import rates_summary
from wawa_transformer.lab.rules import Outcome, Rule

BENCHMARKS = CONFIG_DIR.parent / "benchmarks"
BySeed = dict[int, float]  # seed -> value
# Functions are cached because the pages call them hundreds of times, in two languages.


@functools.cache
def table_of(path: Path) -> pd.DataFrame:
    """Read a committed table."""
    return pd.read_csv(path)


@functools.cache
def rows(study: str, task: str, pe: str, file: str = "results.csv") -> pd.DataFrame:
    """Select the rows of one task and encoding in a study's table.

    Raises:
        ValueError: the table has no such row.
    """
    table = table_of(BENCHMARKS / study / file)
    chosen = table[(table["task"] == task) & (table["pe"] == pe)]
    if chosen.empty:
        raise ValueError(f"{Path(study) / file} holds nothing on {task} with {pe}")
    return chosen


@functools.cache
def sources(study: str) -> str:
    """Get the ending of the columns that a report uses.

    The ending is ``_new``, for new sources, if all of a study's runs counted new sources. Otherwise
    the ending is empty.
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
    """Compute each seed's mean exact match over the trained lengths.

    The columns end on :func:`sources`, unless ``of`` names another ending. ``unseen`` takes the
    longer lengths, on all sources.
    """
    table = rows(study, task, pe)
    longest = table.loc[table["trained"].eq(True), "length"].max()
    part = table[table["length"] > longest] if unseen else table[table["trained"].eq(True)]
    of = "" if unseen else sources(study) if of is None else of
    # Lengths with more examples count for more, as in the test split.
    examples = part[f"examples{of}"]
    weighted = (part[f"{column}{of}"].fillna(0) * examples).groupby(part["seed"]).sum()
    return by_seed(weighted / examples.groupby(part["seed"]).sum())


@functools.cache
def blind(study: str, task: str, of: str | None = None) -> tuple[float, float] | None:
    """Compute the ceiling without positions and its standard error.

    Each seed has its own test split; the standard error is for one split, as in the report. None if
    there is no ceiling below 1. ``of`` is the ending of the columns, by default :func:`sources`.
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
    """Estimate the ceiling without positions.

    The interval is the sampling interval on the test splits.
    """
    found = blind(study, task, of)
    assert found is not None
    table = table_of(BENCHMARKS / study / "results.csv")
    splits = table.loc[table["task"] == task, "seed"].nunique()
    chance = sampling_interval(found[1], splits)
    return Estimate(found[0], found[0] - chance, found[0] + chance, splits)


def rates(study: str) -> list[dict[str, Any]]:
    """Summarise what tuning found, task by task, as in the report."""
    table = table_of(BENCHMARKS / study / "tuning.csv")
    encodings = list(dict.fromkeys(table["pe"]))
    return rates_summary(
        table.to_dict("records"),  # type: ignore[arg-type]
        results.compared_pairs(encodings),
    )


def learned(study: str, task: str, pe: str) -> bool:
    """True if the trained lengths are learned.

    Otherwise results at longer lengths say nothing.
    """
    return mean(exact_match(study, task, pe)).mean >= LEARNED_IN_RANGE


def encodings(study: str, task: str) -> list[str]:
    """List the encodings that a study trained on a task."""
    table = table_of(BENCHMARKS / study / "results.csv")
    return list(table.loc[table["task"] == task, "pe"].unique())


def nll(study: str, task: str, pe: str) -> BySeed:
    """Compute each seed's NLL in nats per token at the trained lengths.

    The token count assumes targets as long as their sources.
    """
    table = rows(study, task, pe)
    part = table[table["trained"].eq(True)]
    tokens = part["examples"] * (part["length"] + 1)  # plus EOS
    total = (part["nll"] * tokens).groupby(part["seed"]).sum()
    return by_seed(total / tokens.groupby(part["seed"]).sum())


@functools.cache
def reaches(study: str, task: str, pe: str) -> BySeed:
    """Compute each seed's reach.

    The reach is the longest length up to which exact match is at least one half, or 0.
    """
    table = rows(study, task, pe).pivot(index="length", columns="seed", values="exact_match")
    return by_seed(pd.Series({seed: results.reach(v) for seed, v in table.to_dict().items()}))


@functools.cache
def measured(study: str, task: str) -> Measured:
    """Collect a task's measurements for a report from the committed tables.

    The NLL of a whole test is left out, because ``results.csv`` has no token counts.
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
    """Read the paired tests over sentences from a study's report.

    No table has these tests.
    """
    report = (BENCHMARKS / study / "report.md").read_text(encoding="utf-8")
    row = r"^\| (\d+) \| (\S+) − (\S+) \| ([+-][\d.]+) \| (.+) \|$"
    return [
        {"seed": int(seed), "a": a, "b": b, "difference": float(gap),
         "p": None if p.startswith("same") else float(p)}
        for seed, a, b, gap, p in re.findall(row, report, flags=re.M)
    ]  # fmt: skip


def bleu_by_length(study: str) -> dict[tuple[str, int], BySeed]:
    """Read BLEU by (encoding, length) and seed from ``evaluate.py``'s output.

    The output is that of the study's own test.
    """
    found: dict[tuple[str, int], BySeed] = {}
    for encoding, seed, block in printed(study, "test_2016_flickr.txt"):
        for length, score in re.findall(r"^│ (\d+) .*│ ([\d.]+) │$", block, flags=re.M):
            found.setdefault((encoding, int(length)), {})[seed] = float(score)
    return found


def more_tests(study: str) -> dict[tuple[str, str], list[tuple[float, float]]]:
    """Read BLEU differences on further tests from ``evaluate.py``'s output.

    Each (encoding, test) has one pair per seed: BLEU minus that of the compared run, and p.
    """
    rows = r"^(test_\w+)$.*?^BLEU ([+-][\d.]+) against [^\n]* p = ([\d.]+)"
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for encoding, _, block in printed(study, "more_tests.txt"):
        for test, gap, p in re.findall(rows, block, flags=re.M | re.S):
            found.setdefault((encoding, test), []).append((float(gap), float(p)))
    return found


def printed(study: str, name: str) -> list[tuple[str, int, str]]:
    """Split a file of ``evaluate.py``'s output by encoding and seed."""
    text = (BENCHMARKS / study / name).read_text(encoding="utf-8")
    command = r"^\$ python scripts/evaluate\.py run=\S+/(\w+)/seed(\d+)-"
    parts = re.split(command, text, flags=re.M)[1:]
    threes = zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    return [(encoding, int(seed), block) for encoding, seed, block in threes]


# Cached: composing takes a second.
@functools.cache
def config_of(study: str) -> DictConfig:
    """Compose the configuration of a committed study from its command."""
    report = (BENCHMARKS / study / "report.md").read_text(encoding="utf-8")
    command = shlex.split(report.split("## Run it again")[1].split("```")[1])
    with initialize_config_dir(str(CONFIG_DIR), version_base="1.3"):
        return compose("config", command[2:])


def rule_of(study: str) -> Rule | None:
    """Get the rule of a committed study, or None."""
    config = config_of(study)
    if config.study.rule is None:
        return None
    names = table_of(BENCHMARKS / study / "results.csv")
    encodings, tasks = (list(names[column].unique()) for column in ("pe", "task"))
    return Rule.of(config.study, encodings, tasks, len(config.study.seeds))


def outcomes(study: str) -> list[Outcome]:
    """Apply the rule of a committed study to its tables."""
    rule = rule_of(study)
    return rule.decide({task: measured(study, task) for task in rule.tasks}) if rule else []


def judged(study: str, task: str, pairs: list[tuple[str, str]]) -> dict[str, str]:
    """Get the report's verdict on each pair, by the first encoding."""
    measures = {"exact_match": 0.0, "reach": 0.0}
    found = measured(study, task)
    return {pair[0]: judge(pair, measures, found, len(pairs)).verdict for pair in pairs}


def steps_to(study: str, task: str, pe: str, level: float) -> BySeed:
    """Find each seed's first validated step with an exact match of ``level``.

    The step is inf if no validation reaches ``level``.
    """
    table = rows(study, task, pe, "curves.csv")
    reached = table["step"].where(table["exact_match"] >= level, float("inf"))
    return by_seed(reached.groupby(table["seed"]).min())


def nll_by_length(study: str, task: str, pe: str, least: int) -> dict[int, BySeed]:
    """Get NLL in nats per token by length and seed.

    Lengths with fewer than ``least`` test examples are left out.
    """
    table = rows(study, task, pe)
    lengths = sorted(table.loc[table["examples"] >= least, "length"].unique())
    by_length = table.set_index(["length", "seed"])["nll"]
    return {int(length): by_seed(by_length.loc[length]) for length in lengths}


def bleu(study: str, task: str, pe: str) -> BySeed:
    """Get each seed's greedy BLEU on the test set."""
    table = rows(study, task, pe, "bleu.csv")
    return by_seed(table.set_index("seed")["bleu"])


def by_seed(values: pd.Series) -> BySeed:
    """Convert a series indexed by seed to a dictionary."""
    return {int(seed): float(value) for seed, value in zip(values.index, values, strict=True)}


difference = paired_difference


def mean(values: Mapping[int, float]) -> Estimate:
    """Compute the mean over seeds with its interval."""
    return estimate(values.values())
