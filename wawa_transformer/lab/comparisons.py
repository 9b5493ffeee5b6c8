"""Comparisons of two encodings, with one correction for all that a study's verdicts rest on."""

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from wawa_transformer.lab import statistics
from wawa_transformer.lab.scores import SCORES, Scores
from wawa_transformer.lab.statistics import SIGNIFICANT, reaches
from wawa_transformer.lab.tables import Study, of_task

MANY = 4  # more encodings are compared with the sinusoid only
Pair = tuple[str, str]


@dataclass(frozen=True)
class PairTests:
    """What conditions read: a study's scores, and the comparisons of :func:`compare`."""

    scores: Scores
    comparisons: pd.DataFrame
    measures: Mapping[str, float]  # each with the smallest difference that matters

    def of_pair(self, test: str, task: str, pair: Pair) -> pd.DataFrame:
        """Select the comparisons of one pair, the pair's first encoding first."""
        rows = self.by_pair.get((test, task, frozenset(pair)), self.comparisons[:0])
        return turned(rows) if rows["a"].eq(pair[1]).any() else rows

    @functools.cached_property
    def by_pair(self) -> dict[Any, pd.DataFrame]:
        """The comparisons of each test, task and pair, in the order in which they were asked."""
        table = self.comparisons
        pairs = [frozenset(pair) for pair in zip(table["a"], table["b"], strict=True)]
        return dict(list(table.groupby([table["test"], table["task"], pairs], sort=False)))


def compared_pairs(encodings: Sequence[str], declared: Sequence[Sequence[str]]) -> list[Pair]:
    """List the pairs that a study compares, first minus second: those it declares, or a default.

    The default is all pairs. If there are more than four encodings and sinusoidal is among them,
    the default is each other encoding with sinusoidal.
    """
    if declared:
        return [(a, b) for a, b in declared]
    if len(encodings) > MANY and "sinusoidal" in encodings:
        return [(other, "sinusoidal") for other in encodings if other != "sinusoidal"]
    return list(itertools.combinations(encodings, 2))


def compare(
    made: Scores, asked: Sequence[tuple[str, str, Pair]], measures: Mapping[str, float]
) -> PairTests:
    """Make the tests that a study's verdicts rest on, and correct them together.

    ``asked`` names tests (differs, alike, sentences), each with a task and a pair. The comparisons
    have a row for each of these and, but for sentences, each measure: the difference (first minus
    second) with its 95% ``low`` and ``high`` without correction, the seeds ``n``, ``p``,
    ``corrected``, and ``word``, which follows from the corrected p. ``read`` is False where a
    measure is not interpreted, because an encoding has not learned the task.
    """
    rows: dict[Any, dict[str, Any]] = {}
    for test, task, pair in asked:
        for measure in ["bleu"] if test == "sentences" else measures:
            key = (test, task, frozenset(pair), measure)
            if key not in rows:
                size = measures.get(measure, 0.0)
                rows[key] = one_test(made, test, task, pair, measure, size)
    columns = ["test", "task", "a", "b", "measure", "mean", "low", "high", "n", "size", "p", "read"]
    table = pd.DataFrame(list(rows.values()), columns=columns)
    table["corrected"] = statistics.holm(table["p"].where(table["read"]).astype(float))
    table["word"] = [word_of(row) for row in table.to_dict("records")]
    return PairTests(made, table, measures)


def one_test(
    made: Scores, test: str, task: str, pair: Pair, measure: str, size: float
) -> dict[str, Any]:
    """Make one test of a pair, and return its row without the correction."""
    a, b = (made.seeds(task, pe, measure) for pe in pair)
    gap = statistics.difference(a, b)
    row: dict[str, Any] = {"test": test, "task": task, "a": pair[0], "b": pair[1]}
    row |= {"measure": measure, "size": size, **asdict(gap)}
    row["read"] = made.interpretable(measure, task, *pair)
    if test == "alike":
        row["p"] = statistics.equivalence(a, b, size)
    if test == "sentences":
        seeds = sentence_tests(made.study, task, pair)
        signs = set(np.sign(seeds["difference"]))
        # With every seed: the largest p decides (the intersection-union test, Berger 1982).
        largest = float(seeds["p"].max())  # NaN without tests
        if len(signs) > 1 or 0 < len(seeds) < gap.n:
            largest = 1.0
        row |= asdict(statistics.estimate(seeds["difference"])) | {"p": largest}
    return row


def sentence_tests(study: Study, task: str, pair: Pair) -> pd.DataFrame:
    """Select a pair's tests over test sentences, one for each seed: difference in BLEU, and p."""
    tests = of_task(study.tests, task)
    same, other = (tests[tests["a"].eq(a) & tests["b"].eq(b)] for a, b in (pair, pair[::-1]))
    both = [rows for rows in (same, turned(other)) if len(rows)]
    tests = pd.concat(both or [same])
    # Equal translations have no p: no swap changes anything.
    return tests.assign(p=tests["p"].astype(float).fillna(1.0)).sort_values("seed")


def turned(rows: pd.DataFrame) -> pd.DataFrame:
    """Turn comparisons round: second minus first."""
    rows = rows.rename(columns={"a": "b", "b": "a", "low": "high", "high": "low"})
    signed = rows.columns.intersection(["mean", "low", "high", "difference"])
    rows[signed] = -rows[signed].astype(float)
    if "word" in rows:
        rows["word"] = rows["word"].replace({"better": "worse", "worse": "better"})
    return rows


def word_of(row: Any) -> str:
    """The verdict of one test, a key of ``words.yaml``.

    ``better`` and ``worse`` are about the first encoding. The other words are ``alike``, ``small``
    (a difference that does not matter), ``no_difference`` (seen), ``unread`` (not interpreted),
    ``one_seed``, ``equal`` (every seed gave the same difference), ``missing`` (no seed has both)
    and ``not_finite`` (a value is no number).
    """
    if row["n"] < 1:
        return "missing"
    if not row["read"]:
        return "unread"
    if math.isnan(row["mean"]):
        return "not_finite"
    if row["n"] == 1:
        return "one_seed"
    if math.isnan(row["corrected"]):
        return "equal"
    if not row["corrected"] < SIGNIFICANT:
        return "no_difference"
    if row["test"] == "alike":
        return "alike"
    if not reaches(abs(row["mean"]), row["size"]):
        return "small"
    return "better" if (row["mean"] > 0) == SCORES[row["measure"]].higher_is_better else "worse"


def verdict(tested: PairTests, task: str, pair: Pair, test: str = "differs") -> str | None:
    """Judge a pair over all measures: better, worse, mixed or unclear; None if unknown.

    The first encoding is better if it is better in at least one measure and worse in none.
    """
    rows = tested.of_pair(test, task, pair)
    known = rows[rows["read"] & (rows["n"] > 1) & rows["mean"].notna()]
    if not len(known):
        return None
    words = {word for word in known["word"] if word in ("better", "worse")}
    return "mixed" if len(words) > 1 else words.pop() if words else "unclear"
