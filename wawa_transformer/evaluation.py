"""What a trained model can do: likelihood, and exact match by length."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from wawa_transformer import processes
from wawa_transformer.batching import Examples, collate, plan
from wawa_transformer.config import UserError
from wawa_transformer.positional import SequenceTooLong
from wawa_transformer.tasks import Task
from wawa_transformer.transformer import EOS, PAD, Transformer

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
def score(model: Transformer, examples: Examples) -> Scores:
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
    order = plan(examples.sizes, budget, seed=0, epoch=0, bucket=True)
    for indices in order[processes.rank() :: processes.world()]:
        batch = collate(examples, indices).to(device)
        # Not model(…), which a compiler may have taken: these batches have shapes of their own.
        logits = model.forward(batch.source, batch.target_in).float()  # (B,T,V)
        real = batch.target_out != PAD  # (B,T)
        nll = F.cross_entropy(logits.transpose(1, 2), batch.target_out, reduction="none")  # (B,T)
        correct = (logits.argmax(dim=-1) == batch.target_out) & real
        out["nll"][indices] = (nll * real).sum(dim=1).cpu().numpy()
        out["tokens"][indices] = real.sum(dim=1).cpu().numpy()
        out["correct"][indices] = correct.sum(dim=1).cpu().numpy()
        logits[..., EOS] = -torch.inf
        unended = (logits.argmax(dim=-1) == batch.target_out) & real  # never right at EOS
        out["oracle"][indices] = unended.sum(dim=1).cpu().numpy()
    model.train(was_training)
    return {key: processes.total(torch.from_numpy(column)).numpy() for key, column in out.items()}


def summarise(scores: Scores, chosen: np.ndarray | slice = slice(None)) -> dict[str, Any]:
    """Every metric of the ``chosen`` examples, and their number."""
    part = {key: column[chosen] for key, column in scores.items()}
    values = {metric.name: float(metric.of(part)) for metric in METRICS}
    return {"examples": len(part["tokens"]), **values}


def by_length(scores: Scores, lengths: list[int]) -> list[dict[str, Any]]:
    """:func:`summarise` for each length there is, shortest first."""
    column = np.asarray(lengths)
    return [{"length": int(n), **summarise(scores, column == n)} for n in np.unique(column)]


def test_results(task: Task, model: Transformer, test: Examples) -> dict[str, Any]:
    """The test split as a whole (the trained lengths, if there are such) and by length."""
    scores = score(model, test)
    rows = by_length(scores, test.length)
    for row in rows:
        row["ceiling"] = task.ceiling(row["length"])
    low, high = task.trained_lengths or (min(test.length), max(test.length))
    lengths = np.asarray(test.length)
    trained = (lengths >= low) & (lengths <= high)
    return {"test": summarise(scores, trained), "by_length": rows}


def check_lengths(model: Transformer, *sizes: np.ndarray) -> None:
    """Every encoding must reach the end of the longest sequence, in every split."""
    try:
        model.check_length(int(max(each.max() for each in sizes)))
    except SequenceTooLong as error:
        raise UserError(f"{error}.") from None
