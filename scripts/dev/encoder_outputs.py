"""Measure what encoders wrote:  python scripts/dev/encoder_outputs.py results/encoder_window

The script loads the runs of study=encoder_window (copy), or of one of the two studies on reverse,
from the folder of their results. outputs.csv beside the committed tables gets a row for each run:
``cosine``, how little the encoder's output of the ten symbols that the answer begins with moves
when there are ten more; ``repeats`` and ``no_repeats``, exact match at unseen lengths of sources in
which two symbols in a row occur again, and of the others; ``window1`` and so on, exact match at
unseen lengths if the encoder has this window in the test alone. Rows that the file holds are kept.
For study=encoder_window the script then draws figures/outputs.png from this file and the tables. A
run takes 5 seconds of one core.
"""

import sys
from pathlib import Path

import evidence
import numpy as np
import pandas as pd
import torch
from evidence import BENCHMARKS
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from torch import Tensor

from wawa_transformer.common import EOS
from wawa_transformer.data.load import load_data
from wawa_transformer.model.transformer import Transformer
from wawa_transformer.run.run_dir import Run
from wawa_transformer.train.evaluation import evaluate
from wawa_transformer.train.load import load_model

# The studies and their tasks.
TASKS = {
    "encoder_window": "copy",
    "encoder_window_reverse": "reverse",
    "encoder_window_reverse_t5": "reverse",
}
WINDOWS = (1, 2, 4)
# The masks of the study, by the ends of their encodings' names, and the encodings.
MASKS = {
    "": ("full mask", "black"), "_anti_causal": ("anti-causal", "#D55E00"),
    "_window4": ("window of 4", "#E69F00"), "_window2": ("window of 2", "#56B4E9"),
    "_window1": ("window of 1", "#0072B2"), "_causal": ("causal", "#009E73"),
}  # fmt: skip
PES = {"rotary": "o", "shaw": "s", "t5": "^"}


@torch.no_grad()
def cosine(model: Transformer, sources: Tensor, count: int, last: bool = False) -> float:
    """Compare the output of ``count`` symbols of ``sources (B,S)`` with and without the rest.

    These are the first symbols, or the ``last`` ones. The mean cosine over symbols and sources;
    both have an end symbol. 1 means that nothing moved.
    """
    end = torch.full((len(sources), 1), EOS)
    these = slice(-count, None) if last else slice(count)
    alone = model.encode(torch.cat((sources[:, these], end), dim=1))[:, :-1]
    longer = model.encode(torch.cat((sources, end), dim=1))[:, :-1][:, these]
    return torch.cosine_similarity(alone, longer, dim=-1).mean().item()


def repeats(source: str) -> bool:
    """True if two symbols in a row occur in this order again."""
    symbols = source.split()
    pairs = list(zip(symbols, symbols[1:], strict=False))
    return len(set(pairs)) < len(pairs)


def measure(folder: Path) -> dict[str, float]:
    """Measure one run."""
    model, tokenizer, config = load_model(Run.at(folder))
    test = load_data(config).test
    lengths, longest = np.asarray(test.text["length"][:]), config.task.max_length

    def right() -> np.ndarray:
        scores = evaluate(model, test)
        return scores["correct"] == scores["tokens"]

    # Every length counts once, whatever the share of its sources that repeat a pair.
    answers = pd.DataFrame({"length": lengths, "right": right()})
    answers["repeats"] = [repeats(source) for source in test.text["source"][:]]
    unseen = answers[answers["length"] > longest]
    by_repeats = unseen.groupby(["repeats", "length"])["right"].mean().unstack("repeats").dropna()
    shares = {"repeats": by_repeats[True].mean(), "no_repeats": by_repeats[False].mean()}
    rows = np.flatnonzero(lengths == 2 * longest).tolist()
    twice = torch.as_tensor(test.source.padded(rows))[:, :-1]  # (B,2*longest), without EOS
    shares["cosine"] = cosine(model, twice, longest, last=config.task.kind == "reverse")
    for window in WINDOWS:
        model.encoder_window = window
        shares[f"window{window}"] = right()[lengths > longest].mean()
    return shares


def draw() -> None:
    """Draw each run of copy: how little its encoder's output moves, and how much is right."""
    study = "encoder_window"
    figure = Figure(figsize=(7, 4), layout="constrained")
    outputs = evidence.evaluated(study, "outputs").set_index(["pe", "seed"])["cosine"]
    axes = figure.subplots()
    for mask, (_, colour) in MASKS.items():
        for pe, marker in PES.items():
            right = evidence.seeds(study, "copy", pe + mask, "beyond")
            axes.plot(outputs[pe + mask][right.index], right, marker, color=colour, ms=6)
    axes.set_xlabel("steadiness: cosine of the encoder's output with and without more symbols")
    axes.set_ylabel("exact match, 11–20 symbols")
    axes.set_ylim(0, 1)
    handles = [
        Line2D([], [], marker="o", ls="", color=c, label=label) for label, c in MASKS.values()
    ]
    handles += [
        Line2D([], [], marker=marker, ls="", color="grey", markerfacecolor="none", label=pe)
        for pe, marker in PES.items()
    ]
    axes.legend(handles=handles, loc="upper left", ncols=2, fontsize="small")
    path = BENCHMARKS / study / "figures" / "outputs.png"
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=110)


def main() -> None:
    folder, known = Path(sys.argv[1]), set()
    table = BENCHMARKS / folder.name / "outputs.csv"
    if table.exists():
        known = set(pd.read_csv(table)[["pe", "seed"]].itertuples(index=False, name=None))
    for path in sorted((folder / TASKS[folder.name]).glob("*/*/result.json")):
        run = Run.at(path.parent)
        if (run.pe, run.seed) not in known:
            row = pd.DataFrame([{"pe": run.pe, "seed": run.seed} | measure(path.parent)])
            row.to_csv(table, mode="a", header=not table.exists(), index=False, float_format="%.6f")
            print(run, flush=True)
    if folder.name == "encoder_window" and table.with_name("results.csv").exists():
        draw()


if __name__ == "__main__":
    main()
