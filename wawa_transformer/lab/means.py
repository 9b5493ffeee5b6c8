"""Each encoding's mean over seeds, for TensorBoard."""

import shutil
from pathlib import Path
from typing import Any, cast

from torch.utils.tensorboard import SummaryWriter

from wawa_transformer.lab.reading import read_table
from wawa_transformer.lab.statistics import estimate
from wawa_transformer.train.evaluation import shown_metrics
from wawa_transformer.train.tracking import add_scalar


def write_means(folder: Path) -> None:
    """Log each encoding's mean over seeds in ``means/<encoding>``, from ``curves.csv``.

    Each metric has a group, and each task a chart ``<metric>/validation/<task>`` with one line per
    encoding. The tab CUSTOM SCALARS adds the 95% interval, cut at the bounds of the metric.
    """
    curves, _ = read_table(folder / "curves.csv", "curves")
    shutil.rmtree(folder / "means", ignore_errors=True)
    # TensorBoard assigns colours in the order of writing. In CUSTOM SCALARS its first two colours
    # are close to those of these two encodings in a report.
    first = ["learned", "sinusoidal"]
    for pe, of_encoding in sorted(curves.groupby("pe"), key=lambda each: each[0] not in first):
        charts: dict[str, dict[str, Any]] = {}
        name = "no_encoding" if pe == "none" else str(pe)
        with SummaryWriter(folder / "means" / name) as writer:
            for task, rows in of_encoding.groupby("task"):
                for metric in shown_metrics():
                    tags = [f"{metric.name}/validation/{task}"]
                    # The ends of a band have another prefix, so their charts are not on top.
                    tags += [f"z_interval/{task}/{metric.name}_{end}" for end in ("low", "high")]
                    charts.setdefault(str(task), {})[metric.name] = ["Margin", tags]
                    for step, values in rows.groupby("step")[metric.name]:
                        point = estimate(values)
                        ends = point.within(metric.top)
                        for tag, value in zip(tags, (point.mean, *ends), strict=True):
                            add_scalar(writer, tag, value, cast(int, step))
            writer.add_custom_scalars(charts)
