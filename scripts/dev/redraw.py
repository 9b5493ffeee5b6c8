"""Draw the pictures of committed results again:  python scripts/dev/redraw.py [STUDY …]

From results.csv and curves.csv of each folder in benchmarks/, all of them unless named, as a report
draws them; for when the look of pictures has changed. What needs the runs is left as it is.
"""

import argparse
import math
from pathlib import Path
from typing import Any

import pandas as pd
from evidence import BENCHMARKS

from wawa_transformer.lab.report import draw
from wawa_transformer.lab.results import Result


def results_of(study: Path) -> list[Result]:
    """What the pictures need of each run's result, from its lines in ``results.csv``."""
    table = pd.read_csv(study / "results.csv")
    results = []
    for (task, pe, seed), rows in table.groupby(["task", "pe", "seed"], sort=False):
        by_length: list[dict[str, Any]] = [
            {str(name): None if is_nan(value) else value for name, value in row.items()}
            for row in rows.to_dict("records")
        ]
        seen = [row for row in by_length if row["trained"]]
        test: dict[str, Any] = {"exact_match": mean(seen, "")}
        if all(row.get("examples_new") is not None for row in by_length):
            for row in by_length:
                names = ("examples", "exact_match", "ceiling")
                row["new"] = {name: row[f"{name}_new"] for name in names}
            test["new"] = {
                "examples": sum(row["examples_new"] for row in seen),
                "exact_match": mean(seen, "_new"),
            }
        lengths = [row["length"] for row in seen]
        results.append(
            {
                "task": task,
                "pe": pe,
                "seed": seed,
                "by_length": by_length,
                "test": test,
                "train_min_length": min(lengths, default=None),
                "train_max_length": max(lengths, default=None),
            }
        )
    return results


def is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def mean(rows: list[dict[str, Any]], of: str) -> float | None:
    """Exact match over lengths, each weighing what it was tested with."""
    total = sum(row[f"examples{of}"] for row in rows)
    right = sum(row[f"examples{of}"] * (row[f"exact_match{of}"] or 0) for row in rows)
    return right / total if total else None


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("study", nargs="*")
    named = parser.parse_args().study
    for study in sorted(path.parent for path in BENCHMARKS.glob("*/results.csv")):
        if not named or study.name in named:
            figures = study / "figures"
            before = set(figures.iterdir())
            draw(results_of(study), pd.read_csv(study / "curves.csv"), figures)
            for path in set(figures.iterdir()) - before:  # which its report does not show
                path.unlink()
            print(study.name)


if __name__ == "__main__":
    main()
