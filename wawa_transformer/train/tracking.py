"""What a run leaves behind: ``metrics.jsonl`` (the truth) and TensorBoard (the view of it)."""

from __future__ import annotations

import json
import math
import sys
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.nn.functional as F
from omegaconf import DictConfig
from tokenizers import Tokenizer
from torch import Tensor
from torch.utils.tensorboard import SummaryWriter

from wawa_transformer.common.files import CONFIG_DIR, write_lines
from wawa_transformer.common.special_ids import BOS
from wawa_transformer.data.batching import collate
from wawa_transformer.data.load import Examples
from wawa_transformer.decode.translation import SAMPLES, translate
from wawa_transformer.model.layers import DecoderLayer, EncoderLayer
from wawa_transformer.model.transformer import Transformer
from wawa_transformer.positional.base import Encoding, consecutive
from wawa_transformer.run.run_dir import Run
from wawa_transformer.train.evaluation import SHOWN

if TYPE_CHECKING:  # without pictures and a progress bar a run does not import these
    from matplotlib.figure import Figure
    from rich.console import Console


class Tracker:
    """Writes one run's numbers, pictures and texts; a context manager.

    Args:
        run: whose directory they go to.
        history: the lines up to the step that the run continues from. They replace what stands
            there, so that an interrupted run leaves the same record as an uninterrupted one, and
            a damaged record is made whole.
        step: that step.
    """

    def __init__(self, run: Run, history: list[dict[str, Any]], step: int) -> None:
        self.history = history
        write_lines(run.metrics_file, [json.dumps(row) for row in history])
        self.file = run.metrics_file.open("a", encoding="utf-8")
        self.writer = SummaryWriter(run.directory, purge_step=step + 1 if step else None)

    def __enter__(self) -> Tracker:
        return self

    def __exit__(self, *exception: object) -> None:
        self.file.close()
        self.writer.close()

    def scalars(self, step: int, split: str, **values: float) -> None:
        """Log ``values`` of ``split`` (train, validation) at ``step``."""
        row = {"step": step, "split": split, **values}
        self.history.append(row)
        self.file.write(json.dumps(row) + "\n")
        self.file.flush()
        for name, value in values.items():
            self.writer.add_scalar(f"{name}/{split}", value, step)

    def text(self, step: int, name: str, rows: list[dict[str, str]]) -> None:
        """A table of ``rows``, shown by TensorBoard as Markdown."""
        head = list(rows[0])
        lines = [head, ["---"] * len(head), *(list(row.values()) for row in rows)]
        table = "\n".join(
            "| " + " | ".join(c.replace("|", "\\|") for c in line) + " |" for line in lines
        )
        self.writer.add_text(name, table, step)

    def table_image(self, step: int, encoding: Encoding, length: int, d_model: int) -> None:
        """What the encoding adds to an embedding, position by dimension."""
        device = next(iter(encoding.parameters()), torch.zeros(())).device
        with torch.no_grad():
            at = consecutive(length, device=device)
            added = encoding.embed(torch.zeros(1, length, d_model, device=device), at)[0]  # (S,D)
        figure = picture(7, 3.5)
        axes = figure.add_subplot()
        image = axes.imshow(added.cpu(), aspect="auto", cmap="RdBu_r", vmin=-2, vmax=2)
        axes.set(xlabel="dimension", ylabel="position", title="added to the embedding")
        figure.colorbar(image)
        self.writer.add_figure("view/encoding", figure, step)

    def attention_images(
        self, step: int, maps: dict[str, Tensor], labels: dict[str, tuple[list[str], list[str]]]
    ) -> None:
        """One picture per attention: heads ``(H,Q,K)``, labelled (queries, keys).

        TensorBoard sorts by name: pictures, one for each run, come after the curves.
        """
        for name, weights in maps.items():
            self.writer.add_figure(
                f"view/attention_{name}", attention_picture(weights, *labels[name]), step
            )

    def hparams(self, settings: dict[str, Any], metrics: dict[str, float]) -> None:
        """The row of this run in TensorBoard's HPARAMS table; the same columns for every run."""
        # TensorBoard filters by words that it was told of beforehand: those of configs/.
        words = {
            column: sorted({path.stem for path in (CONFIG_DIR / group).rglob("*.yaml")})
            for column, group in (("Encoding", "pe"), ("Task", "task"))
        }
        self.writer.add_hparams(settings, metrics, hparam_domain_discrete=words, run_name=".")


class NullTracker:
    """In place of tracker and bar in a process that is not the main one, or shows none."""

    def __enter__(self) -> NullTracker:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def scalars(self, step: int, split: str, **values: float) -> None:
        """Another process writes them."""

    def update(self, step: int, loss: float, speed: float) -> None:
        """Another process shows it, or none does."""


@torch.no_grad()
def attention_maps(model: Transformer, source: Tensor, target_in: Tensor) -> dict[str, Tensor]:
    """The last layers' attention ``(H,Q,K)`` for one pair ``source (1,S)``, ``target_in (1,T)``."""
    encoder = cast(EncoderLayer, model.encoder_layers[-1])
    decoder = cast(DecoderLayer, model.decoder_layers[-1])
    watched = {
        "encoder": encoder.self_attention,
        "decoder": decoder.self_attention,
        "cross": decoder.cross_attention,
    }
    was_training = model.training
    model.eval()
    for attention in watched.values():
        attention.keep_weights = True
    model(source, target_in)
    maps = {}
    for name, attention in watched.items():
        assert attention.weights is not None
        maps[name] = attention.weights[0]
        attention.keep_weights, attention.weights = False, None
    model.train(was_training)
    return maps


def cross_attention(model: Transformer, source: Tensor, ids: list[int]) -> Tensor:
    """Where each of the target's ``ids`` looked in ``source (S,)``, in the last layer: (H,T,S)."""
    device = next(model.parameters()).device
    before = torch.tensor([[BOS, *ids[:-1]]], device=device)  # (1,T)
    return attention_maps(model, source[None].to(device), before)["cross"]


def picture(width: float, height: float) -> Figure:
    """An empty one, in inches."""
    from matplotlib.figure import Figure  # half a second, for which no mistake shall wait

    return Figure(figsize=(width, height), layout="constrained")


def attention_picture(weights: Tensor, queries: list[str], keys: list[str]) -> Figure:
    """Heads ``(H,Q,K)`` side by side, in one panel: a panel each takes three times as long."""
    heads, across = len(weights), len(keys) + 1
    apart = F.pad(weights.float().cpu(), (0, 1), value=math.nan)  # (H,Q,K+1)
    figure = picture(max(3, 0.2 * across) * heads, max(3.2, 0.2 * len(queries)))
    panel = figure.add_subplot(frame_on=False, xlabel="attends to")
    panel.imshow(apart.transpose(0, 1).flatten(1), vmin=0, vmax=1, aspect="auto")  # (Q,·)
    places = [h * across + k for h in range(heads) for k in range(len(keys))]
    panel.set_xticks(places, keys * heads, rotation=90, fontsize=7)
    panel.set_yticks(range(len(queries)), queries, fontsize=7)
    for h in range(heads):
        panel.text((h + 0.5) * across - 1, -0.7, f"head {h + 1}", ha="center", fontsize=9)
    return figure


def show(
    tracker: Tracker,
    config: DictConfig,
    model: Transformer,
    tokenizer: Tokenizer,
    examples: Examples,
    result: dict[str, Any],
) -> None:
    """What TensorBoard shows beside the curves: encoding, attention, sample outputs, hparams."""
    step = result["steps"]
    first = examples.first(SAMPLES)
    hypotheses = translate(model, tokenizer, first)
    samples = zip(first.text["source"], first.text["target"], hypotheses, strict=True)
    rows = [{"source": s, "target": t, "output": h} for s, t, h in samples]
    tracker.text(step, "samples", rows)
    if config.pictures:
        tracker.table_image(step, model.src_position, examples.sizes.max(), config.model.d_model)
    if config.pictures and config.trainer.attention_maps:
        device = next(model.parameters()).device
        batch = collate(first, [int(first.sizes.argmax())]).to(device)
        source = [tokenizer.id_to_token(i) or "" for i in batch.source[0].tolist()]
        target = [tokenizer.id_to_token(i) or "" for i in batch.target_in[0].tolist()]
        labels = {
            "encoder": (source, source),
            "decoder": (target, target),
            "cross": (target, source),
        }
        maps = attention_maps(model, batch.source, batch.target_in)
        tracker.attention_images(step, maps, labels)
    # TensorBoard sorts the columns and hides all but the first: capitals come first.
    settings = {"Encoding": config.pe.name, "Seed": config.seed, "Task": config.task.name}
    settings |= config.model
    tracker.hparams(
        settings | {"lr": config.trainer.lr, "steps": config.trainer.steps},
        {f"test/{metric.name}": result["test"][metric.name] for metric in SHOWN}
        | {"cost/mfu": result["mfu"]},
    )


def screen() -> Console:
    """Where a bar moves only if it can: a notebook forces colours on what is no terminal."""
    from rich.console import Console

    return Console(force_terminal=sys.stdout.isatty())


class ProgressBar:
    """A bar with the loss, the speed and the time left; a context manager."""

    def __init__(self, config: DictConfig, step: int) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self.progress = Progress(
            TextColumn(f"{config.task.name} · {config.pe.name} · seed {config.seed}"),
            BarColumn(),
            TextColumn("{task.completed}/{task.total}"),
            TextColumn("{task.fields[so_far]} ·"),
            TimeRemainingColumn(),
            console=screen(),
        )
        self.bar = self.progress.add_task(
            "", total=config.trainer.steps, completed=step, so_far="beginning"
        )

    def __enter__(self) -> ProgressBar:
        self.progress.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.progress.stop()

    def update(self, step: int, loss: float, speed: float) -> None:
        """So far: ``step`` is done at this loss, ``speed`` in target tokens per second."""
        so_far = f"loss {loss:.3f} · {speed:,.0f} tokens/s"
        self.progress.update(self.bar, completed=step, so_far=so_far)
