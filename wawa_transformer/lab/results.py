"""What runs' results say of lengths, sources and ceilings, each read in one way."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from statistics import fmean
from typing import Any

from wawa_transformer.common.schema import UserError

REACHED = 0.5  # exact match that counts as having reached a length
Result = dict[str, Any]  # the contents of one result.json, with its run
Pairs = Sequence[Sequence[str]]  # of encodings


def named(result: Result) -> dict[str, Any]:
    """The columns that name a run."""
    return {column: result[column] for column in ("task", "pe", "seed")}


def by_encoding(results: Sequence[Result]) -> dict[str, dict[int, Result]]:
    """The results of each encoding by their seeds."""
    by_pe: dict[str, dict[int, Result]] = {}
    for result in results:
        by_pe.setdefault(result["pe"], {})[result["seed"]] = result
    return by_pe


def distinct(values: Iterable[Any]) -> str:
    return "; ".join(str(value) for value in dict.fromkeys(values))


def check_comparable(results: Sequence[Result], tuned: Sequence[str] = ()) -> None:
    """Refuse runs that differ in anything but the encoding, the task and the seed.

    Of one task all runs must have the same settings, and so of one encoding. The keys of the
    trainer that are ``tuned`` may be each encoding's own on each task.
    """
    sections: list[tuple[str, tuple[str, ...]]] = [("model", ()), ("trainer", ())]
    sections += [("task", ("task",)), ("pe", ("pe",)), ("trainer", ("task", "pe"))]
    for section, of in sections:
        own = tuned if section == "trainer" and not of else ()
        seen: dict[Any, tuple[Result, Any]] = {}
        for result in results:
            given = result.get("configuration", {}).get(section, {})
            alike = tuple(result[name] for name in of)
            first, expected = seen.setdefault(alike, (result, given))
            for key in {*given, *expected}.difference(own):
                if given.get(key) != expected.get(key):
                    raise UserError(
                        f"the runs differ in {section}.{key}, {expected.get(key)} in "
                        f"{first['run'].directory} and {given.get(key)} in "
                        f"{result['run'].directory}: no report compares them; give one of them "
                        f"another study.name."
                    )


def compared_pairs(encodings: Sequence[str], declared: Pairs = ()) -> list[tuple[str, str]]:
    """The declared pairs; else all pairs of a few encodings; of many, sinusoidal and each other."""
    if declared:
        return [(a, b) for a, b in declared if {a, b} <= set(encodings)]
    if len(encodings) > 4 and "sinusoidal" in encodings:
        return [("sinusoidal", other) for other in encodings if other != "sinusoidal"]
    return list(combinations(encodings, 2))


def was_trained(length: int, result: Result) -> bool | None:
    """Whether training drew this length; None for a text, whose lengths nobody drew."""
    if result["train_max_length"] is None:
        return None
    return bool(result["train_min_length"] <= length <= result["train_max_length"])


def rests_on_new(results: Sequence[Result]) -> bool:
    """Whether every run was tested on sources of trained lengths that were not trained on.

    Then these decide, since the others can be learned by heart. Not so for a text, whose BLEU is
    that of the whole test, nor for runs of versions that did not count them.
    """
    return all(
        result["train_max_length"] is not None and result["test"].get("new", {}).get("examples")
        for result in results
    )


def each_rests_on_new(results: Sequence[Result]) -> dict[str, bool]:
    """:func:`rests_on_new` for each task."""
    return {
        task: rests_on_new([result for result in results if result["task"] == task])
        for task in dict.fromkeys(result["task"] for result in results)
    }


def trained_rows(result: Result, new: bool) -> list[dict[str, Any]]:
    """The rows of the trained lengths, of the ``new`` sources or of all."""
    rows = [row for row in result["by_length"] if was_trained(row["length"], result)]
    return [row["new"] for row in rows] if new else rows


def at_trained(result: Result, new: bool) -> float:
    """Exact match at trained lengths, of the ``new`` sources or of all."""
    test = result["test"]
    return float((test["new"] if new else test)["exact_match"])


def tested_in(name: str, result: Result) -> float:
    return result["test"].get(name, math.nan)  # a metric younger than the run


def reached(result: Result) -> int:
    return reach({row["length"]: row["exact_match"] for row in result["by_length"]})


def reach(exact_match: Mapping[int, float]) -> int:
    """The longest length up to which every tested length has exact match of at least one half."""
    longest = 0
    for length in sorted(exact_match):
        if exact_match[length] < REACHED:
            break
        longest = length
    return longest


def mean_ceiling(results: Sequence[Result], new: bool) -> tuple[float, float] | None:
    """:func:`ceiling_of` one test split, on average: each seed has a split of its own."""
    splits = {result["seed"]: ceiling_of(trained_rows(result, new)) for result in results}
    return over_splits(splits.values())


def over_splits(ceilings: Iterable[tuple[float, float] | None]) -> tuple[float, float] | None:
    """From :func:`ceiling_of` each split that of one, on average; None where one has none."""
    found = list(ceilings)
    known = [ceiling for ceiling in found if ceiling]
    if len(known) < len(found):
        return None
    means, errors = zip(*known, strict=True)
    return fmean(means), math.sqrt(fmean(error**2 for error in errors))


def ceiling_of(rows: Iterable[Mapping[str, Any]]) -> tuple[float, float] | None:
    """What any model without positions can reach on one test split: mean and standard error.

    ``rows`` hold ``ceiling`` and ``examples`` of each length; those without examples do not count.
    The ceiling is an expectation: being right about one order of each multiset, the model is right
    about each sequence of a length with that probability, and a split of m of them is binomial.
    None: no ceiling, or one of 1.
    """
    known = [(row["ceiling"], row["examples"]) for row in rows if row["examples"]]
    if not known or any(c is None for c, _ in known) or all(c == 1 for c, _ in known):
        return None
    total = sum(m for _, m in known)
    variance = sum(m * c * (1 - c) for c, m in known)
    return sum(m * c for c, m in known) / total, math.sqrt(variance) / total
