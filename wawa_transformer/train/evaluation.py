"""What a trained model can do: likelihood, and exact match by length."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from datasets import Dataset

from wawa_transformer.common.schema import UserError
from wawa_transformer.common.special_ids import EOS, PAD
from wawa_transformer.data.batching import batch_indices, collate
from wawa_transformer.data.load import Examples
from wawa_transformer.data.tasks import Task
from wawa_transformer.model.transformer import Transformer
from wawa_transformer.positional.base import SequenceTooLong
from wawa_transformer.run import distributed

COUNTS = ("nll", "tokens", "correct", "oracle")
BATCH_TOKENS = 4096  # no gradients are kept, so a large batch is cheap

Scores = dict[str, np.ndarray]  # each of COUNTS, one number an example: (N,)


@dataclass(frozen=True)
class Metric:
    """One number of a set of examples; whatever computes or shows it reads its entry here.

    It lies between 0 and ``top``. ``shown`` ones are drawn, logged and printed wherever a run is;
    the others enter tables only.
    """

    name: str
    label: str
    of: Callable[[Scores], float]
    top: float | None = None
    unit: str = ""
    digits: int = 3
    shown: bool = True

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
    ),
    Metric(
        "nll",
        "NLL",
        lambda s: s["nll"].sum() / s["tokens"].sum(),
        unit="nats per token",
        digits=4,
    ),
    Metric(
        "oracle_exact_match",
        "exact match, length given",
        lambda s: (s["oracle"] == s["tokens"] - 1).mean(),
        top=1,
        shown=False,
    ),
)
SHOWN = tuple(metric for metric in METRICS if metric.shown)


@torch.no_grad()
def evaluate(model: Transformer, examples: Examples) -> Scores:
    """Teacher-forced ``nll`` (nats), ``tokens`` and ``correct`` tokens of each example, ``(N,)``.

    Greedy decoding reproduces a target exactly when every teacher-forced argmax is right, since
    up to the first mistake both see the same prefix: exact match needs no decoding. ``oracle``
    counts right tokens where the length is given and EOS cannot be chosen (Newman et al. 2020):
    it tells a wrong end from a wrong symbol.
    """
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    out = {key: np.zeros(len(examples.source)) for key in COUNTS}
    budget = max(BATCH_TOKENS, examples.sizes.max())
    order = list(batch_indices(examples.sizes, budget, seed=0, epoch=0, bucket=True))
    for indices in order[distributed.rank() :: distributed.world_size()]:
        batch = collate(examples, indices).to(device)
        # Not compiled: these batches have shapes of their own.
        logits = model.forward(batch.source, batch.target_in).float()  # type: ignore[union-attr]  # (B,T,V)
        real = batch.target_out != PAD  # (B,T)
        nll = F.cross_entropy(logits.transpose(1, 2), batch.target_out, reduction="none")  # (B,T)
        correct = (model.most_probable(logits) == batch.target_out) & real
        out["nll"][indices] = (nll * real).sum(dim=1).cpu().numpy()
        out["tokens"][indices] = real.sum(dim=1).cpu().numpy()
        out["correct"][indices] = correct.sum(dim=1).cpu().numpy()
        logits[..., EOS] = -torch.inf
        unended = (model.most_probable(logits) == batch.target_out) & real  # never right at EOS
        out["oracle"][indices] = unended.sum(dim=1).cpu().numpy()
    model.train(was_training)
    return {
        key: distributed.all_reduce_sum(torch.from_numpy(column)).numpy()
        for key, column in out.items()
    }


def summarise(scores: Scores, chosen: np.ndarray | slice = slice(None)) -> dict[str, Any]:
    """Every metric of the ``chosen`` examples, and their number; of none every metric is None."""
    part = {key: column[chosen] for key, column in scores.items()}
    count = len(part["tokens"])
    values = {metric.name: float(metric.of(part)) if count else None for metric in METRICS}
    return {"examples": count, **values}


def evaluate_by_length(
    task: Task, model: Transformer, test: Examples, train: Dataset | None = None
) -> dict[str, Any]:
    """The test split as a whole (the trained lengths, if there are such) and by length.

    Given what was trained on, each also holds ``new``: the same of those examples alone whose
    source is not in ``train``, which no learning by heart can answer.
    """
    scores, lengths = evaluate(model, test), np.asarray(test.length)
    low, high = task.trained_lengths or (lengths.min(), lengths.max())
    trained = (lengths >= low) & (lengths <= high)
    whole, rows = summarise(scores, trained), []

    def ceiling(length: int, trained: Iterable[str] = ()) -> float | None:
        # A causal mask tells the order by itself: then no theorem bounds what a model reaches.
        return task.ceiling(length, trained) if model.encoder_mask == "full" else None

    for n in np.unique(lengths).tolist():
        row = {"length": n, **summarise(scores, lengths == n)}
        rows.append(row | {"ceiling": ceiling(n)})
    if train is not None:
        sources = test.text["source"][:]
        asked = set(sources)
        seen: set[str] = set()
        known: dict[int, list[str]] = {}  # of generated tasks: a text has no ceiling, and may be
        for part in train.select_columns(["source", "length"]).iter(1000):  # larger than memory
            seen |= asked.intersection(part["source"])
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


def check_lengths(model: Transformer, *sizes: np.ndarray) -> None:
    """Every encoding must reach the end of the longest sequence, in every split."""
    try:
        model.check_length(int(max(each.max() for each in sizes)))
    except SequenceTooLong as error:
        raise UserError(f"{error}.") from None
