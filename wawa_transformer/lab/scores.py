"""Scores of runs, and what a study's tables say of its tasks, its learning and its tuning.

Every score is defined here once, as a function of the tables. A score over several lengths is the
mean over their examples, or over their tokens if the metric is one of tokens. At trained lengths it
rests on new sources, which training did not hold, if all runs of the task have counted them.
"""

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtri

from wawa_transformer.common.messages import UserError
from wawa_transformer.lab.statistics import (
    CONFIDENCE,
    SIGNIFICANT,
    Estimate,
    difference,
    estimate,
    reaches,
)
from wawa_transformer.lab.tables import OWN, RUN, Study, of_task
from wawa_transformer.train.evaluation import METRICS, check_metrics

NEAR = 1.5  # times the longest trained length: where the lengths just beyond it end
REACHED = 0.5  # the exact match at which a length counts as reached
LEARNED = 0.95  # with a lower exact match at trained lengths, longer ones are not interpreted
HARDER = 0.02  # nats per token: validation is harder than training by more, and twice as hard
POINT = ["lr", "warmup"]  # the keys of trainer that a study may tune
STILL = 0.05  # a run still improves if its last fifth brought this share of the total fall in NLL


def over_unseen(column: str, most: float = math.inf) -> Callable[[pd.DataFrame, int], pd.Series]:
    """Define a score as the mean of a column over unseen lengths, each of which counts once.

    ``most`` times the longest trained length is the longest that counts.
    """

    def mean(rows: pd.DataFrame, longest: int) -> pd.Series:
        chosen = rows[(rows["length"] > longest) & (rows["length"] <= most * longest)]
        return chosen.groupby(RUN)[column].mean()

    return mean


def reach(rows: pd.DataFrame, longest: int) -> pd.Series:
    """The longest length up to which every tested length is reached, else 0."""
    rows = rows.sort_values("length")
    runs = [rows[column] for column in RUN]
    reached = rows["exact_match"].map(lambda value: int(reaches(value, REACHED)))
    return (rows["length"] * reached.groupby(runs).cummin()).groupby(runs).max()


@dataclass(frozen=True)
class Score:
    """How a score is computed, shown and read.

    ``top`` is the largest possible value. Scores that are not ``shown`` have no column in a report.
    ``of`` computes a score of unseen lengths by run, from a generated task's rows of
    ``results.csv`` and its longest trained length.
    """

    name: str
    label: str
    digits: int = 3
    top: float | None = None
    higher_is_better: bool = True
    shown: bool = True
    of: Callable[[pd.DataFrame, int], pd.Series] | None = None

    @property
    def unseen(self) -> bool:
        """True if the score is about longer lengths than the trained ones."""
        return self.of is not None


OF_TEXT = ("bleu", "chrf")  # scores that are columns of bleu.csv
METRIC_SCORES = (
    Score(m.name, m.heading, m.digits, m.top, m.higher_is_better, m.shown) for m in METRICS
)
TABLE_SCORES = (
    Score("all_sources", "exact match, all sources", top=1),
    Score("beyond", "exact match, unseen lengths", top=1, of=over_unseen("exact_match")),
    Score(
        "just_beyond",
        "exact match, first unseen lengths",
        top=1,
        shown=False,
        of=over_unseen("exact_match", NEAR),
    ),
    Score(
        "oracle",
        "exact match, unseen lengths, length given",
        top=1,
        of=over_unseen("oracle_exact_match"),
    ),
    Score("reach", "reach", digits=1, of=reach),
    Score("bleu", "BLEU", digits=2, top=100),
    Score("chrf", "chrF", digits=2, top=100),
)
check_metrics(METRICS, {*OWN, *(score.name for score in TABLE_SCORES)})


def check_scores(table_scores: Sequence[Score]) -> None:
    """Refuse a score that no table could show: one that is named twice, or that nothing computes.

    Raises:
        UserError: the score, and what to do.
    """
    names = [score.name for score in table_scores]
    for score in table_scores:
        if names.count(score.name) > 1:
            raise UserError(f"TABLE_SCORES names {score.name} twice; give one another name.")
        if score.of is None and score.name not in ("all_sources", *OF_TEXT):
            raise UserError(
                f"TABLE_SCORES: {score.name} has no of, the function that computes it from a "
                f"task's rows and its longest trained length; give it one."
            )


check_scores(TABLE_SCORES)
SCORES = {score.name: score for score in (*METRIC_SCORES, *TABLE_SCORES)}


@dataclass(frozen=True)
class Scores:
    """A study, and every score of its runs: ``frame`` has the index (task, pe, seed)."""

    study: Study
    frame: pd.DataFrame

    @functools.cached_property
    def known(self) -> dict[Any, pd.Series]:
        """The seeds of each task, encoding and score that any seed has."""
        return {
            (*key, score): values
            for key, rows in self.frame.groupby(level=["task", "pe"])
            for score, values in rows.droplevel(["task", "pe"]).items()
            if values.notna().any()
        }

    @functools.cached_property
    def means(self) -> dict[Any, Estimate]:
        """The mean of each score that :attr:`known` has."""
        return {key: estimate(values) for key, values in self.known.items()}

    def seeds(self, task: str, pe: str, score: str) -> pd.Series:
        """Select a score of every seed of one encoding; empty if no seed has one."""
        values = self.known.get((task, pe, score))
        return pd.Series(dtype=float) if values is None else values

    def mean(self, task: str, pe: str, score: str) -> Estimate:
        """Estimate the mean of a score over the seeds of one encoding."""
        return self.means.get((task, pe, score)) or estimate([])

    def interpretable(self, score: str, task: str, *encodings: str) -> bool:
        """True unless the score is of unseen lengths and an encoding has not learned the task."""
        return not SCORES[score].unseen or all(
            reaches(self.mean(task, pe, "exact_match").mean, LEARNED) for pe in encodings
        )


def score_study(study: Study) -> Scores:
    """Compute every score of every run.

    A text counts its whole test. A score is NaN where the run's tables do not have it.
    """
    parts = []
    for task in study.tasks:
        rows, trained = of_task(study.results, task), trained_lengths(study, task)
        chosen = (trained_rows(study, task) if trained else rows).set_index(RUN)
        ending = "_new" if rests_on_new(study, task) else ""
        part = over_lengths(chosen, ending)
        if ending:
            part["all_sources"] = over_lengths(chosen)["exact_match"]
        longer = unseen_lengths(study, task)
        for score in SCORES.values():
            if trained and longer and score.of:
                part[score.name] = by_run(score, score.of(rows.copy(), trained[1]), part.index)
        parts.append(part)
    frame = pd.concat(parts) if parts else pd.DataFrame(index=pd.MultiIndex.from_arrays([[]] * 3))
    frame.index.names = RUN
    of_text = study.bleu.set_index(RUN)
    for name in OF_TEXT:
        frame[name] = of_text[name].astype(float)
    return Scores(study, frame.reindex(columns=list(SCORES)).astype(float).sort_index())


def by_run(score: Score, values: Any, runs: pd.Index) -> pd.Series:
    """Take what a score computed, and refuse what is no number for each of the ``runs``.

    One number would be that of every run, and numbers by anything else would be nobody's.
    """
    numbers = isinstance(values, pd.Series) and pd.api.types.is_numeric_dtype(values)
    if not numbers or values.index.names != RUN or not values.index.isin(runs).all():
        raise UserError(
            f"TABLE_SCORES: {score.name} computes {type(values).__name__}, and not a number for "
            f'each run; return a Series by {", ".join(RUN)}, as rows.groupby(RUN)["nll"].mean() is.'
        )
    return values


@functools.cache
def trained_rows(study: Study, task: str) -> pd.DataFrame:
    """Select a task's rows at trained lengths; a text has none."""
    rows = of_task(study.results, task)
    return rows[rows["trained"].eq(True)]


@functools.cache
def rests_on_new(study: Study, task: str) -> bool:
    """True if the task's scores at trained lengths count only new sources.

    New sources are test sources that were not in training, so no model can have memorised their
    answers. Every run of the task must have counted some.
    """
    counted = trained_rows(study, task).groupby(RUN)["examples_new"].sum()
    return len(counted) > 0 and bool(counted.gt(0).all())


def over_lengths(rows: pd.DataFrame, ending: str = "") -> pd.DataFrame:
    """Average every metric over the lengths of each run, weighted by its examples or tokens.

    The index of ``rows`` is (task, pe, seed).
    """
    values, weights = {}, {}
    for metric in METRICS:
        values[metric.name] = rows[f"{metric.name}{ending}"]
        # Older tables do not count tokens.
        counted = rows[f"{metric.per}{ending}"].fillna(rows[f"examples{ending}"])
        weights[metric.name] = counted.where(counted > 0)  # others have no value
    value, weight = pd.DataFrame(values, rows.index), pd.DataFrame(weights)
    total, of_all = (each.groupby(level=RUN).sum(min_count=1) for each in (value * weight, weight))
    # A value that is not finite makes the mean NaN, and is not left out.
    broken = (value.isna() & weight.notna()).groupby(level=RUN).any()
    return (total / of_all).where(~broken)


def first_score(study: Study, task: str) -> str:
    """The score that answers a task's question: BLEU for a translation, else exact match.

    Exact match answers for a text of words, and where references are too short for BLEU.
    """
    runs = of_task(study.bleu, task)
    by_words = runs["answer"].eq("exact_match").any()
    return "bleu" if len(runs) and not by_words else "exact_match"


@functools.cache
def trained_lengths(study: Study, task: str) -> tuple[int, int] | None:
    """The shortest and the longest trained length; None for a text."""
    lengths = trained_rows(study, task)["length"]
    return (int(lengths.min()), int(lengths.max())) if len(lengths) else None


@functools.cache
def unseen_lengths(study: Study, task: str) -> tuple[int, int] | None:
    """The shortest and the longest tested length beyond the trained ones, if any."""
    trained = trained_lengths(study, task)
    lengths = of_task(study.results, task)["length"]
    longer = lengths[lengths > trained[1]] if trained else lengths[:0]
    return (int(longer.min()), int(longer.max())) if len(longer) else None


@functools.cache
def ceiling(study: Study, task: str, sources: str = "new", pe: str = "") -> Estimate | None:
    """Estimate the most that a model without positions reaches at trained lengths.

    The ceiling is an expectation: the best such model answers one order of each multiset correctly,
    so each sequence of a length is right with probability ``ceiling``, and the number of right
    answers to m sequences is binomial. The interval is that of the mean over the seeds' test
    splits: those of the encoding ``pe``, or of the first that has a ceiling, since under a mask an
    encoder may see an order without positions. None if there is no ceiling below 1.
    """
    rows = trained_rows(study, task)
    unbounded = rows.loc[rows["ceiling"].isna() & rows["examples"].gt(0), "pe"]
    rows = rows[~rows["pe"].isin(unbounded) & (rows["pe"].eq(pe) | (pe == ""))]
    if rows.empty:
        return None
    rows = rows[rows["pe"] == rows["pe"].iloc[0]]
    ending = "_new" if sources == "new" and rests_on_new(study, task) else ""
    means, errors = [], []
    for _, split in rows.groupby("seed"):
        known = split[split[f"examples{ending}"] > 0]
        most, examples = known[f"ceiling{ending}"], known[f"examples{ending}"]
        if most.isna().any() or most.eq(1).all():
            return None
        means.append((most * examples).sum() / examples.sum())
        errors.append(math.sqrt((examples * most * (1 - most)).sum()) / examples.sum())
    error = math.sqrt(fmean(each**2 for each in errors) / len(errors))
    chance = float(ndtri((1 + CONFIDENCE) / 2)) * error
    return Estimate(fmean(means), fmean(means) - chance, fmean(means) + chance, len(means))


def seen_share(study: Study, task: str) -> float:
    """The share of the test's sources that training held; NaN if nobody counted them."""
    trained = trained_rows(study, task)
    rows = trained if len(trained) else of_task(study.results, task)
    if rows["examples_new"].isna().any():
        return math.nan
    return 1 - float(rows["examples_new"].sum() / rows["examples"].sum())


@functools.cache
def learning(study: Study) -> pd.DataFrame:
    """Compute for each run the ``area`` under its learning curve, and if it is ``improving``.

    The area is the mean of validation exact match over training (token accuracy for a text), by the
    trapezoidal rule. The index is (task, pe, seed).
    """
    rows = []
    texts = {task for task in study.curves["task"].unique() if not trained_lengths(study, task)}
    for run, curve in study.curves.groupby(RUN, sort=False):
        curve = curve.sort_values("step")
        text = run[0] in texts
        steps = curve["step"].to_numpy()
        values = curve["token_accuracy" if text else "exact_match"].to_numpy()
        area = np.trapezoid(values, steps) / np.ptp(steps) if np.ptp(steps) else values[-1]
        improving = still_improving(steps, curve["nll"].to_numpy())
        rows.append((*run, float(area), improving))
    return pd.DataFrame(rows, columns=[*RUN, "area", "improving"]).set_index(RUN)


def still_improving(steps: np.ndarray, nll: np.ndarray) -> bool:
    """True if a run was still improving at the end; ``steps`` and ``nll`` are (n,).

    The last validation NLL must be the lowest. It must be below the lowest of the first four fifths
    of training by at least ``STILL`` times the total fall. A fall at a constant rate gives 0.2.
    """
    early, fall = steps <= 0.8 * steps[-1], nll[0] - nll[-1]
    if not early.any() or not fall > 0 or nll[-1] > nll.min():
        return False
    return bool(nll[early].min() - nll[-1] >= STILL * fall)


def harder_validation(study: Study, task: str) -> dict[str, tuple[float, float]]:
    """Find the encodings whose validation is harder than their training at equal lengths.

    For each, the mean NLL of validation and of training over runs and the last fifth of training,
    of which the first is at least twice the second, and larger by more than ``HARDER``. A text has
    other lengths and sentences, so it has none.
    """
    harder = dict[str, tuple[float, float]]()
    if trained_lengths(study, task) is None:
        return harder
    curves = of_task(study.curves, task).dropna(subset=["train_nll", "nll"])
    late = curves[curves["step"] > 0.8 * curves.groupby(RUN)["step"].transform("max")]
    for pe, rows in late.groupby("pe", sort=False):
        validation, training = float(rows["nll"].mean()), float(rows["train_nll"].mean())
        if validation - training > HARDER and validation >= 2 * training:
            harder[str(pe)] = validation, training
    return harder


Point = tuple[float, int]  # of the tuning grid: a learning rate and a warmup


def best_points(tried: pd.DataFrame) -> dict[tuple[str, str], Point]:
    """Choose the best point for each task and encoding from ``tuning.csv``.

    The best point has the lowest mean NLL over seeds. A point with an unfinished seed is left out.

    Raises:
        UserError: there is no such point.
    """
    best = {}
    means: Any = tried.groupby(["task", "pe", *POINT], sort=False)["nll"].agg(fmean)
    for (task, pe), of_points in means.groupby(["task", "pe"], sort=False):
        finished = of_points[np.isfinite(of_points)]
        if finished.empty:
            raise UserError(
                f"no point of study.tune was trained to its end by {pe} on {task} with every seed; "
                f"see the runs named above, and train them (without workers=0), or change "
                f"study.tune.lr or study.tune.warmup."
            )
        *_, lr, warmup = finished.idxmin()
        best[task, pe] = float(lr), int(warmup)
    return best


def orders_of(
    tried: pd.DataFrame, pairs: Sequence[tuple[str, str]], metric: str
) -> Iterator[tuple[str, str, dict[str, int]]]:
    """Count the points at which each encoding of a pair is better, of one task's rows.

    An encoding is better if the paired 95% interval over the tuning's seeds excludes zero. Yields
    the pair, and how often the ``first`` and the ``second`` are better ``of`` how many points.
    """
    points = tried.set_index("seed").groupby(POINT, sort=False)
    for a, b in pairs:
        signs = []
        for _, rows in points:
            of_a, of_b = (rows.loc[rows["pe"] == pe, metric] for pe in (a, b))
            gap = difference(of_a, of_b)
            sign = 1 if SCORES[metric].higher_is_better else -1
            signs.append(sign * math.copysign(1, gap.mean) if gap.p < SIGNIFICANT else 0)
        yield a, b, {"first": signs.count(1), "second": signs.count(-1), "of": len(signs)}
