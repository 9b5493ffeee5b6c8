"""Evaluate a model: negative log-likelihood, and exact match by length."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from datasets import Dataset
from torch import Tensor

from wawa_transformer.common import EOS, PAD
from wawa_transformer.common.messages import UserError
from wawa_transformer.data.batching import batch_indices, collate
from wawa_transformer.data.load import Examples
from wawa_transformer.data.tasks import Task
from wawa_transformer.data.words import split_words
from wawa_transformer.decode.greedy import most_probable
from wawa_transformer.model.modes import evaluating
from wawa_transformer.model.transformer import Transformer
from wawa_transformer.run import distributed

COUNTS = ("nll", "tokens", "correct", "oracle")
BATCH_TOKENS = 4096  # large, since no gradients take memory

Scores = dict[str, np.ndarray]  # for each of COUNTS one number per example: (N,)
# Two answers, a wrong one and a right one, by which a metric is tried before any training.
PLANTED = dict(zip(COUNTS, np.array([[9.0, 0.1], [3, 4], [1, 4], [1, 3]]), strict=True))


@dataclass(frozen=True)
class Metric:
    """A number computed from the scores of a set of examples.

    With a ``top`` its values are between 0 and that. Plots, logs and reports show metrics that are
    ``shown``; other metrics appear only in tables. ``per`` is what a mean over lengths counts:
    examples or tokens. The metric of several lengths must be this mean of theirs.
    """

    name: str
    label: str
    of: Callable[[Scores], float]
    top: float | None = None
    unit: str = ""
    digits: int = 3
    shown: bool = True
    per: str = "examples"
    higher_is_better: bool = True

    @property
    def axis(self) -> str:
        """The label of an axis."""
        return f"{self.label} ({self.unit})" if self.unit else self.label

    @property
    def heading(self) -> str:
        """The head of a column."""
        return f"{self.label}, {self.unit}" if self.unit else self.label


METRICS = (
    Metric("exact_match", "exact match", lambda s: (s["correct"] == s["tokens"]).mean(), top=1),
    Metric(
        "token_accuracy",
        "token accuracy, teacher-forced",
        lambda s: s["correct"].sum() / s["tokens"].sum(),
        top=1,
        per="tokens",
    ),
    Metric(
        "nll",
        "NLL",
        lambda s: s["nll"].sum() / s["tokens"].sum(),
        unit="nats per token",
        digits=4,
        per="tokens",
        higher_is_better=False,
    ),
    Metric(
        "oracle_exact_match",
        "exact match, length given",
        lambda s: (s["oracle"] == s["tokens"] - 1).mean(),
        top=1,
        shown=False,
    ),
)


def shown_metrics() -> list[Metric]:
    """List the metrics of plots, logs and reports, also those of an imported module."""
    return [metric for metric in METRICS if metric.shown]


# A run's other numbers, and what tells runs apart.
TAKEN = {
    "task", "pe", "seed", "length", "step", "split", "examples", "tokens", "new", "ceiling",
    "trained", "loss", "lr", "grad_norm", "tokens_per_second", "mfu", "self",
}  # fmt: skip


def check_metrics(metrics: Iterable[Metric], taken: Iterable[str] = ()) -> None:
    """Refuse a metric that a table cannot hold beside its other columns, or cannot average.

    ``taken`` are names beside those of a run.

    Raises:
        UserError: the name is no word, is taken or ends with ``_new``, or ``per`` counts nothing.
    """
    names = {*TAKEN, *taken}
    for metric in metrics:
        if not str(metric.name).isidentifier():
            raise UserError(
                f"METRICS names {metric.name!r}; columns and pictures are called by a metric's "
                f"name, so give it letters, digits and _ only."
            )
        if metric.name in names or metric.name.endswith("_new"):
            raise UserError(
                f"METRICS names {metric.name}, which another metric, a score or a column of a "
                f"table is called (those of new sources end with _new); give the metric another "
                f"name."
            )
        if metric.per not in ("examples", "tokens"):
            raise UserError(
                f"METRICS: {metric.name} has per={metric.per!r}; give examples or tokens."
            )
        if not isinstance(metric.digits, int) or metric.digits < 0:
            raise UserError(
                f"METRICS: {metric.name} has digits={metric.digits}; give a whole number of at "
                f"least 0."
            )
        compute(metric, PLANTED)
        names.add(metric.name)


def compute(metric: Metric, part: Scores) -> float:
    """Compute a metric, and refuse what is no number, or beyond its ``top``."""
    # Copies: a metric that divides in place must not change what is computed after it.
    value = metric.of({key: column.copy() for key, column in part.items()})
    given = np.asarray(value)
    if given.ndim or given.dtype.kind not in "biuf":
        raise UserError(f"METRICS: {metric.name} returns {value!r}; it must return one number.")
    if metric.top and (given < 0 or given > metric.top):
        raise UserError(
            f"METRICS: {metric.name} returns {value:g}, and with top={metric.top:g} its values are "
            f"from 0 to that; leave top out, or mend the metric."
        )
    return float(value)


check_metrics(METRICS)


def evaluate(model: Transformer, examples: Examples) -> Scores:
    """Teacher-forced ``nll`` (nats), ``tokens`` and ``correct`` tokens of each example, ``(N,)``.

    Greedy decoding reproduces a target exactly when every teacher-forced argmax is right, since
    up to the first mistake both see the same prefix: exact match needs no decoding. ``oracle``
    counts right tokens where the length is given and EOS cannot be chosen (Newman et al. 2020):
    it tells a wrong end from a wrong symbol.
    """
    device = next(model.parameters()).device
    out = {key: np.zeros(len(examples.source)) for key in COUNTS}
    budget = max(BATCH_TOKENS, examples.sizes.max())
    order = list(batch_indices(examples.sizes, budget, seed=0, epoch=0, bucket=True))
    with evaluating(model):
        for indices in order[distributed.rank() :: distributed.world_size()]:
            batch = collate(examples, indices).to(device)
            # Not compiled: these batches have shapes of their own.
            logits = model.forward(batch.source, batch.target_in)
            assert isinstance(logits, Tensor)
            logits = logits.float()  # (B,T,V)
            real = batch.target_out != PAD  # (B,T)
            by_class = logits.transpose(1, 2)  # (B,V,T)
            nll = F.cross_entropy(by_class, batch.target_out, reduction="none")  # (B,T)
            correct = (most_probable(logits) == batch.target_out) & real
            out["nll"][indices] = (nll * real).sum(dim=1).cpu().numpy()
            out["tokens"][indices] = real.sum(dim=1).cpu().numpy()
            out["correct"][indices] = correct.sum(dim=1).cpu().numpy()
            logits[..., EOS] = -torch.inf
            unended = (most_probable(logits) == batch.target_out) & real  # never right at EOS
            out["oracle"][indices] = unended.sum(dim=1).cpu().numpy()
    return {
        key: distributed.all_reduce_sum(torch.from_numpy(column)).numpy()
        for key, column in out.items()
    }


def summarise(scores: Scores, chosen: np.ndarray | slice = slice(None)) -> dict[str, Any]:
    """Compute every metric of the ``chosen`` examples; None without examples."""
    part = {key: column[chosen] for key, column in scores.items()}
    count = len(part["tokens"])
    check_metrics(METRICS)
    values = {metric.name: compute(metric, part) if count else None for metric in METRICS}
    return {"examples": count, "tokens": int(part["tokens"].sum()), **values}


def evaluate_by_length(
    task: Task, model: Transformer, test: Examples, train: Dataset | None = None
) -> dict[str, Any]:
    """Evaluate the test split, as a whole and by length.

    If the task has trained lengths, the whole is only those. With ``train``, every row also has
    ``new``: the metrics of the examples whose source is not in ``train``, which memorising cannot
    answer.
    """
    scores, lengths = evaluate(model, test), np.asarray(test.text["length"][:])
    low, high = task.trained_lengths or (lengths.min(), lengths.max())
    trained = (lengths >= low) & (lengths <= high)
    whole, rows = summarise(scores, trained), []

    def ceiling(length: int, trained: Iterable[str] = ()) -> float | None:
        # The ceiling does not hold for a causal mask or a window, which reveals the order.
        return task.ceiling(length, trained) if model.config.encoder_sees_all else None

    for n in np.unique(lengths).tolist():
        row = {"length": n, **summarise(scores, lengths == n)}
        rows.append(row | {"ceiling": ceiling(n)})
    if train is not None:
        # Sources that differ in their spaces alone may have the same ids.
        sources = [" ".join(split_words(source)) for source in test.text["source"]]
        asked = set(sources)
        seen: set[str] = set()
        # Only of generated tasks: a text has no ceiling, and may be larger than memory.
        known: dict[int, list[str]] = {}
        for part in train.select_columns(["source", "length"]).iter(1000):
            seen |= asked.intersection(" ".join(split_words(each)) for each in part["source"])
            if task.trained_lengths:
                for source, n in zip(part["source"], part["length"], strict=True):
                    known.setdefault(n, []).append(source)
        new = np.array([source not in seen for source in sources])
        whole["new"] = summarise(scores, trained & new)
        for row in rows:
            n = row["length"]
            row["new"] = summarise(scores, (lengths == n) & new)
            row["new"]["ceiling"] = ceiling(n, known.get(n, []))
    return {"test": whole, "by_length": rows}
