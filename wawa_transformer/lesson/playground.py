"""The playground: one page that runs trained models in the browser.

The page holds the weights, and computes in JavaScript what :class:`Transformer` computes. A reader
without an installation can ask small models and look inside. The page needs no network.
"""

import base64
import itertools
import json
import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import pandas as pd
import torch
from matplotlib.colors import to_hex

from wawa_transformer.common import CONFIG_DIR, EOS
from wawa_transformer.common.messages import UserError
from wawa_transformer.data.tasks import SequenceTask, build_task
from wawa_transformer.lab.pages import write_page
from wawa_transformer.lab.reading import read_study
from wawa_transformer.lab.scores import score_study
from wawa_transformer.lab.statistics import estimate
from wawa_transformer.lab.styles import encoding_styles
from wawa_transformer.positional.position_ids import PositionIds
from wawa_transformer.run.config import encoding_settings
from wawa_transformer.run.run_dir import Run
from wawa_transformer.train.load import load_model

TASKS = ("letters", "copy", "reverse", "sort")  # tasks whose right answers the page computes
KINDS = ("sinusoidal", "learned", "none", "rotary", "t5")  # encodings that the page computes
POSITIONS = 41  # of the longest answer that the page asks for, plus BOS
LEARNERS = ("sinusoidal", "learned", "none", "rotary", "shaw", "shaw_cross")  # that the page trains
STUDIES = ("page", "default")  # whose settings the page trains
BENCHMARKS = CONFIG_DIR.parent / "benchmarks"
TEMPLATES = Path(__file__).parent / "templates"
WORKER = ("random", "tasks", "trainer", "worker")  # the scripts of the page's worker, in this order
MOST = 200_000  # the largest number of parameters of a model in the page


def runs_in(folder: Path) -> list[Run]:
    """Find the finished runs in a study's folder.

    Raises:
        UserError: no run is finished, or two runs have the same task and encoding.
    """
    configs = sorted(folder.glob("*/*/seed*/config.yaml"))
    runs = [run for run in map(Run.at, (path.parent for path in configs)) if run.result()]
    if not runs:
        raise UserError(
            f"folder={folder} holds no finished run; name the folder of a study, such as "
            f"results/default."
        )
    names = [(run.task, run.pe) for run in runs]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UserError(
            f"folder={folder} holds several runs of {twice[1]} on {twice[0]}, and the page shows "
            f"one; train with one seed: 'study.seeds=[0]'."
        )
    return runs


def portable(run: Run) -> dict[str, Any]:
    """Convert a run to what the page reads: settings, words and weights.

    ``data`` holds the weights as float32, little-endian, in base64, one after another in the order
    of ``shapes``, whose entries are (name, rows, columns).

    Raises:
        UserError: the page does not implement the run's task or model.
    """
    model, tokenizer, config = load_model(run)
    task, kind = build_task(config), config.pe.kind
    count = sum(each.numel() for each in model.parameters())
    odd = [f"pe.{key}" for key in ("where", "layers") if config.pe.get(key) is not None]
    for key, usual in (
        ("norm", "pre"), ("activation", "relu"), ("embedding_scale", "token_up"),
        ("share_layers", False), ("encoder_mask", "full"), ("encoder_window", 0),
        ("merged_attention", False),
    ):  # fmt: skip
        odd += [f"model.{key}"] if config.model[key] != usual else []
    for what, unknown in (
        (f"task={config.task.kind}", task.kind not in TASKS),
        (f"pe={kind}", kind not in KINDS),
        ("pe.cross", model.cross_position is not None),
        ("position ids of its own", model.position_ids != PositionIds()),
        (f"{model.max_positions} positions", (model.max_positions or POSITIONS) < POSITIONS),
        (f"{count:,} parameters", count > MOST),
    ):
        odd += [what] if unknown else []
    if odd:
        raise UserError(
            f"{run.directory} was trained with {', '.join(odd)}, for which the page has no code or "
            f"no room; it shows {', '.join(TASKS)} with {', '.join(KINDS)}, {POSITIONS} positions "
            f"or more and at most {MOST:,} parameters."
        )
    assert isinstance(task, SequenceTask)
    tensors = {name: tensor.detach() for name, tensor in model.state_dict().items()}
    # The page never uses later rows of a learned table.
    if kind == "learned":
        for side in ("src", "tgt"):
            name = f"{side}_position.table"
            tensors[name] = tensors[name][:POSITIONS]
    rows = {name: tensor.reshape(-1, tensor.shape[-1]) for name, tensor in tensors.items()}
    # As long as the longest answer, since an edit may begin at a long distance.
    words = tokenizer.get_vocab_size()
    ids = torch.tensor([[*(EOS + 1 + i % (words - EOS - 1) for i in range(POSITIONS - 1)), EOS]])
    symbols = [*range(2, task.symbols + 1, 2), *range(1, task.symbols + 1, 2)]
    with torch.no_grad():
        logits = cast(torch.Tensor, model(ids, ids))[0, -1]
    weights = b"".join(tensor.numpy().astype("<f4").tobytes() for tensor in rows.values())
    return {
        "task": task.kind,
        "pe": run.pe,
        "kind": kind,
        "settings": encoding_settings(config),
        "d_model": model.d_model,
        "heads": model.num_heads,
        "layers": model.num_layers,
        "trained": task.trained_lengths,
        "sources": [str(n) for n in range(1, task.symbols + 1)],
        "words": [tokenizer.id_to_token(id) for id in range(words)],
        "shapes": [(name, *tensor.shape) for name, tensor in rows.items()],
        "data": base64.b64encode(weights).decode("ascii"),
        # With these the page compares its own.
        "asked": (ids[0].tolist(), logits.tolist()),
        "right": ([*map(str, symbols)], task.target(symbols)),
    }


def models(page: Path) -> list[dict[str, Any]]:
    """Read the :func:`portable` runs from a page."""
    match = re.search(r'id="runs">(.*?)</script>', page.read_text(encoding="utf-8"))
    assert match is not None
    return json.loads(match[1])


def published(folder: Path) -> dict[str, Any]:
    """Read a study's tables as the page draws them: by task and encoding, means over the seeds.

    ``exact`` and ``nll`` have a row (step, mean, low, high) for each validation, ``byLength`` a row
    (length, mean, low, high); the ends are those of the 95% interval. ``trained`` is exact match on
    new sources of trained lengths: its mean, half its interval, and the value of each seed.
    """
    study = read_study(folder)
    made = score_study(study)
    tasks: dict[str, Any] = {}
    for task, pe in itertools.product(study.tasks, study.encodings):
        curves, results = (
            table[table["task"].eq(task) & table["pe"].eq(pe)]
            for table in (study.curves, study.results)
        )
        values = made.seeds(task, pe, "exact_match")
        mean = estimate(values)
        tasks.setdefault(task, {})[pe] = {
            "exact": means(curves, "step", "exact_match"),
            "nll": means(curves, "step", "nll"),
            "byLength": means(results, "length", "exact_match"),
            "trained": {
                "mean": mean.mean,
                "spread": None if math.isnan(mean.half_width) else mean.half_width,
                "values": dict(zip(values.index.tolist(), values.tolist(), strict=True)),
            },
        }
    return tasks


def means(rows: pd.DataFrame, by: str, score: str) -> list[list[float]]:
    """The mean of ``score`` over seeds and its 95% interval, for each value of ``by``."""
    points = []
    for x, group in rows.groupby(by):
        mean = estimate(group[score])
        ends = mean.within(1 if score == "exact_match" else None)
        points.append([int(cast(int, x)), *(round(value, 4) for value in (mean.mean, *ends))])
    return points


def write_playground(path: Path, runs: Iterable[dict[str, Any]]) -> None:
    """Write ``playground.html``, the page of :func:`portable` runs, as one file.

    The page also trains. It draws the intervals of the ``STUDIES`` under the reader's curve.
    """
    tasks, kinds = list(TASKS), list(KINDS)
    # An installed package has no tables of studies: its page has no intervals.
    tables = [BENCHMARKS / name / "results.csv" for name in STUDIES]
    folders = [table.parent for table in tables if table.exists()]
    runs = sorted(runs, key=lambda run: (tasks.index(run["task"]), kinds.index(run["kind"])))
    styles = encoding_styles({*(run["pe"] for run in runs), *LEARNERS})
    colours = {name: to_hex(style["color"]) for name, style in styles.items()}
    # Black is invisible on a dark page.
    colours = {name: "currentColor" if c == "#000000" else c for name, c in colours.items()}
    write_page(
        path,
        TEMPLATES,
        runs=runs,
        colours=colours,
        published={path.name: published(path) for path in folders},
        worker=[f"{script}.js" for script in WORKER],
        explorer=path.with_name("explore.html").exists(),
    )
