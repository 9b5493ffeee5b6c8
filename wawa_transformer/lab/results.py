"""Lengths, sources and ceilings, read from the results of runs."""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from statistics import fmean
from typing import Any

from wawa_transformer.common.schema import UserError

REACHED = 0.5  # the exact match at which a length counts as reached
Result = dict[str, Any]  # the contents of one result.json, with task, pe, seed and run
Pairs = Sequence[Sequence[str]]  # of encodings


def named(result: Result) -> dict[str, Any]:
    """Select the columns that identify a run: task, encoding and seed."""
    return {column: result[column] for column in ("task", "pe", "seed")}


def by_encoding(results: Sequence[Result]) -> dict[str, dict[int, Result]]:
    """Group results by encoding, then by seed."""
    by_pe: dict[str, dict[int, Result]] = {}
    for result in results:
        by_pe.setdefault(result["pe"], {})[result["seed"]] = result
    return by_pe


def distinct(values: Iterable[Any]) -> str:
    """List the different values, separated by semicolons."""
    return "; ".join(str(value) for value in dict.fromkeys(values))


def check_comparable(results: Sequence[Result], tuned: Sequence[str] = ()) -> None:
    """Refuse runs that differ in more than encoding, task and seed.

    All runs of one task must have the same task settings, all runs of one task and seed the same
    data as loaded, and all runs of one encoding the same encoding settings. The ``tuned`` keys of
    the trainer may differ between encodings and tasks.
    """
    sections: list[tuple[str, tuple[str, ...]]] = [("model", ()), ("trainer", ())]
    sections += [("task", ("task",)), ("pe", ("pe",)), ("trainer", ("task", "pe"))]
    loaded: dict[Any, Result] = {}
    for result in results:
        first = loaded.setdefault((result["task"], result["seed"]), result)
        if result.get("data") != first.get("data"):
            raise UserError(
                f"the runs of {result['task']} with seed {result['seed']} were trained on other "
                f"data, {first.get('data')} in {first['run'].directory} and {result.get('data')} "
                f"in {result['run'].directory}: no report compares them; give one of them another "
                f"study.name."
            )
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
    """List the pairs to compare: the declared pairs, or a default.

    The default is all pairs. If there are more than four encodings and sinusoidal is among them,
    the default is sinusoidal with each other encoding.
    """
    if declared:
        return [(a, b) for a, b in declared if {a, b} <= set(encodings)]
    if len(encodings) > 4 and "sinusoidal" in encodings:
        return [("sinusoidal", other) for other in encodings if other != "sinusoidal"]
    return list(combinations(encodings, 2))


def was_trained(length: int, result: Result) -> bool | None:
    """True if the length is in training's range; None for a text."""
    if result["train_max_length"] is None:
        return None
    return bool(result["train_min_length"] <= length <= result["train_max_length"])


def rests_on_new(results: Sequence[Result]) -> bool:
    """True if scores at trained lengths can be restricted to new sources.

    New sources are test sources that were not in training, so no model can have memorised their
    answers. Every run must have counted some. A text always counts its whole test, as BLEU does.
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
    """Select the rows of trained lengths, for new or all sources."""
    rows = [row for row in result["by_length"] if was_trained(row["length"], result)]
    return [row["new"] for row in rows] if new else rows


def at_trained(result: Result, new: bool) -> float:
    """Exact match at trained lengths, on new sources or on all."""
    test = result["test"]
    return float((test["new"] if new else test)["exact_match"])


def tested_in(name: str, result: Result) -> float:
    """Get a test score; NaN for a metric newer than the run."""
    return result["test"].get(name, math.nan)


def reached(result: Result) -> int:
    """Compute the reach of a run."""
    return reach({row["length"]: row["exact_match"] for row in result["by_length"]})


def reach(exact_match: Mapping[int, float]) -> int:
    """The longest length up to which every tested length is reached."""
    longest = 0
    for length in sorted(exact_match):
        if exact_match[length] < REACHED:
            break
        longest = length
    return longest


def mean_ceiling(results: Sequence[Result], new: bool) -> tuple[float, float] | None:
    """Average :func:`ceiling_of` over seeds, one test split each."""
    splits = {result["seed"]: ceiling_of(trained_rows(result, new)) for result in results}
    return over_splits(splits.values())


def over_splits(ceilings: Iterable[tuple[float, float] | None]) -> tuple[float, float] | None:
    """Average the ceilings of test splits.

    Returns the mean and the standard error on one split. None if a split has no ceiling.
    """
    found = list(ceilings)
    known = [ceiling for ceiling in found if ceiling]
    if len(known) < len(found):
        return None
    means, errors = zip(*known, strict=True)
    return fmean(means), math.sqrt(fmean(error**2 for error in errors))


def ceiling_of(rows: Iterable[Mapping[str, Any]]) -> tuple[float, float] | None:
    """Compute the ceiling without positions on one test split.

    Returns the mean and the standard error. None if there is no ceiling, or if the ceiling is 1.
    ``rows`` have ``ceiling`` and ``examples`` for each length; a length without examples does not
    count. The ceiling is an expectation: the best such model answers one order of each multiset
    correctly, so each sequence of a length is right with probability ``ceiling``, and the number of
    right answers to m sequences is binomial.
    """
    known = [(row["ceiling"], row["examples"]) for row in rows if row["examples"]]
    if not known or any(c is None for c, _ in known) or all(c == 1 for c, _ in known):
        return None
    total = sum(m for _, m in known)
    variance = sum(m * c * (1 - c) for c, m in known)
    return sum(m * c for c, m in known) / total, math.sqrt(variance) / total
