"""Log a run to ``metrics.jsonl``, the record, and to TensorBoard."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.nn.functional as F
from omegaconf import DictConfig
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tokenizers import Tokenizer
from torch import Tensor
from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams

from wawa_transformer.common import BOS
from wawa_transformer.common.files import write_lines
from wawa_transformer.common.messages import warn
from wawa_transformer.data.batching import collate
from wawa_transformer.data.load import Examples
from wawa_transformer.decode.translation import Hypothesis, one_line
from wawa_transformer.model.masks import padding_mask
from wawa_transformer.model.modes import evaluating
from wawa_transformer.model.transformer import Transformer
from wawa_transformer.run.run_dir import Run
from wawa_transformer.train.evaluation import METRICS, shown_metrics

MOST_DRAWN = 64  # tokens of an attention picture

if TYPE_CHECKING:  # without pictures a run does not import it
    from matplotlib.figure import Figure


# The first part of each tag, with the description of its chart in TensorBoard.
ABOUT = {
    "loss": "nats per target token, with label smoothing",
    "lr": "learning rate",
    "grad_norm": "norm of the gradient before clipping",
    "tokens_per_second": "target tokens per second",
    "mfu": "share of training time that the products would take at the device's peak speed",
    **{metric.name: metric.axis + ", 0 to 1" * (metric.top == 1) for metric in METRICS},
}


def add_scalar(writer: SummaryWriter, tag: str, value: float, step: int) -> None:
    """Write a number with its description; ``SummaryWriter.add_scalar`` cannot."""
    about = SummaryMetadata(
        summary_description=ABOUT.get(tag.split("/")[0], ""),
        # Without these two the server drops the description.
        plugin_data=SummaryMetadata.PluginData(plugin_name="scalars"),
        data_class="DATA_CLASS_SCALAR",
    )
    point = Summary.Value(tag=tag, simple_value=value, metadata=about)
    cast(Any, writer.file_writer).add_summary(Summary(value=[point]), step)


class Tracker:
    """Writes one run's numbers, pictures and texts; a context manager.

    Args:
        run: the run, which has the folder.
        history: the rows up to ``step``. They replace the rows in the file, so that an interrupted
            run leaves the same record as an uninterrupted one, and a damaged record is repaired.
        step: the step that the run continues from.
        main: False in other processes than the main one, which log nothing.
    """

    def __init__(self, run: Run, history: list[dict[str, Any]], step: int, main: bool) -> None:
        self.history, self.main = history, main
        if not main:
            return
        write_lines(run.metrics_file, [json.dumps(row) for row in history])
        self.file = run.metrics_file.open("a", encoding="utf-8")
        self.writer = SummaryWriter(run.directory, purge_step=step + 1)

    def __enter__(self) -> Tracker:
        return self

    def __exit__(self, *exception: object) -> None:
        if self.main:
            self.file.close()
            self.writer.close()

    def scalars(self, step: int, split: str, **values: float) -> None:
        """Log ``values`` of ``split`` (train, validation) at ``step``."""
        if not self.main:
            return
        row = {"step": step, "split": split, **values}
        self.history.append(row)
        self.file.write(json.dumps(row) + "\n")
        self.file.flush()
        for name, value in values.items():
            add_scalar(self.writer, f"{name}/{split}", value, step)


def attention_maps(model: Transformer, source: Tensor, target_in: Tensor) -> dict[str, Tensor]:
    """Get the last layers' attention ``(H,Q,K)`` on one pair, ``(1,S)`` and ``(1,T)``.

    The keys are ``encoder``, ``decoder`` and ``cross``. Several threads may ask at once.
    """
    maps: list[Tensor] = []
    with evaluating(model):
        at, mask = replace(model.batch_positions(source), maps=maps), padding_mask(source)
        memory = model.encode(source, positions=at)
        logits = model.decode(target_in, memory, cross_mask=mask, positions=at)
        usual = cast(Tensor, model.forward(source, target_in))
    if (logits - usual).abs().max() > 0.05 * usual.std():
        warn(
            "warning: the attention shown is not what the model computes: one branch of "
            "MultiHeadAttention.attend keeps the weights, and the other does not; make an edit in "
            "both."
        )
    # The encoder's layers come first; each decoder layer adds its own and cross-attention.
    last = {"encoder": maps[model.num_layers - 1], "decoder": maps[-2], "cross": maps[-1]}
    return {name: weights[0] for name, weights in last.items()}


def cross_attention(
    model: Transformer, tokenizer: Tokenizer, source: Tensor, ids: list[int]
) -> tuple[Tensor, list[str], list[str]]:
    """Get the last layer's cross-attention ``(H,T,S)`` from ``ids`` to ``source (S,)``.

    Also returns the T target and S source tokens as text.
    """
    device = next(model.parameters()).device
    before = torch.tensor([[BOS, *ids[:-1]]], device=device)  # (1,T)
    weights = attention_maps(model, source[None].to(device), before)["cross"]
    target, words = (
        [tokenizer.decode([i], skip_special_tokens=False) for i in each]
        for each in (ids, source.tolist())
    )
    return weights, target, words


def picture(width: float, height: float) -> Figure:
    """Make an empty figure; sizes are in inches."""
    from matplotlib.figure import Figure  # here, since importing it takes half a second

    return Figure(figsize=(width, height), layout="constrained")


def attention_picture(weights: Tensor, queries: list[str], keys: list[str]) -> Figure:
    """Draw the heads ``(H,Q,K)`` side by side, up to ``MOST_DRAWN`` queries and keys."""
    cut = max(len(queries), len(keys)) > MOST_DRAWN
    queries, keys = queries[:MOST_DRAWN], keys[:MOST_DRAWN]
    weights = weights[:, :MOST_DRAWN, :MOST_DRAWN]
    # In one panel: a panel for each head takes three times as long to draw.
    heads, across = len(weights), len(keys) + 1
    apart = F.pad(weights.float().cpu(), (0, 1), value=math.nan)  # (H,Q,K+1)
    figure = picture(max(3, 0.2 * across) * heads, max(3.2, 0.2 * len(queries)))
    label = f"attends to (the first {MOST_DRAWN} tokens)" if cut else "attends to"
    panel = figure.add_subplot(frame_on=False, xlabel=label)
    panel.imshow(
        apart.transpose(0, 1).flatten(1).numpy(), cmap="Blues", vmin=0, vmax=1, aspect="auto"
    )  # (Q,·)
    places = [h * across + k for h in range(heads) for k in range(len(keys))]
    words: dict[str, Any] = {"fontsize": 7, "parse_math": False}  # a token may be a $
    panel.set_xticks(places, keys * heads, rotation=90, **words)
    panel.set_yticks(range(len(queries)), queries, **words)
    for h in range(heads):
        panel.text((h + 0.5) * across - 1, -0.7, f"head {h + 1}", ha="center", fontsize=9)
    return figure


def show(
    tracker: Tracker,
    config: DictConfig,
    model: Transformer,
    tokenizer: Tokenizer,
    asked: Examples,
    answers: list[Hypothesis],
    result: dict[str, Any],
) -> None:
    """Log to TensorBoard attention, the ``answers`` to a few examples, and hyperparameters."""
    step, outputs = result["steps"], [best.text for best in answers]
    table = ["| source | target | output |", "| --- | --- | --- |"]
    for row in zip(asked.text["source"], asked.text["target"], outputs, strict=True):
        cells = (one_line(cell).replace("|", "\\|") for cell in row)
        table.append(f"| {' | '.join(cells)} |")
    tracker.writer.add_text("samples", "\n".join(table), step)
    if config.pictures:
        device = next(model.parameters()).device
        batch = collate(asked, [int(asked.sizes.argmax())]).to(device)
        source = [tokenizer.id_to_token(i) or "" for i in batch.source[0].tolist()]
        target = [tokenizer.id_to_token(i) or "" for i in batch.target_in[0].tolist()]
        labels = {
            "encoder": (source, source),
            "decoder": (target, target),
            "cross": (target, source),
        }
        maps = attention_maps(model, batch.source, batch.target_in)
        for name, weights in maps.items():
            figure = attention_picture(weights, *labels[name])
            tracker.writer.add_figure(f"view/attention_{name}", figure, step)
    for metric in shown_metrics():
        add_scalar(tracker.writer, f"{metric.name}/test", result["test"][metric.name], step)
    add_scalar(tracker.writer, "mfu/train", result["mfu"], step)
    # TensorBoard sorts the columns: capitals come first.
    settings = {"Encoding": config.pe.name, "Seed": config.seed, "Task": config.task.name}
    for group in ("model", "pe", "task", "trainer"):
        for key, value in config[group].items():
            if key not in ("name", "kind") and isinstance(value, (int, float, str)):
                settings[f"{group}.{key}"] = value
    # add_hparams would also write a list of columns, and TensorBoard would take the first run's for
    # all. Without it the table has every run's columns, those that differ first.
    _, *row = hparams(settings, {})
    for part in row:
        cast(Any, tracker.writer.file_writer).add_summary(part)
