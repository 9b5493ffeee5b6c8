"""A learning rate for each encoding: chosen on other seeds, by validation alone, and told."""

import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from conftest import TINY, run_script

from wawa_transformer.common.schema import UserError
from wawa_transformer.lab.rates import in_words, order, rates_summary
from wawa_transformer.lab.results import check_comparable
from wawa_transformer.lab.tuning import Point, best_points
from wawa_transformer.run.run_dir import Run

UNDRAWN = str(Path(__file__).with_name("undrawn.py"))
GRID = ["study.tune.lr=[0.001,0.01]", "study.tune.seeds=[7,8]"]


def rows(*values: tuple[str, float, int, float], exact: float = 0.0) -> list[dict[str, Any]]:
    """Rows of ``tuning.csv`` from encoding, rate, seed and NLL."""
    return [
        {"task": "copy", "pe": pe, "lr": lr, "warmup": 5, "seed": seed, "nll": nll}
        | {"exact_match": exact - nll}
        for pe, lr, seed, nll in values
    ]


def test_a_study_is_tuned_on_other_seeds_and_trained_with_what_they_chose(tmp_path: Path) -> None:
    """The grid's winner by an own look at the files; its seeds in no number; done once."""
    study = [*TINY, *GRID, f"output_dir={tmp_path}", "study.task=[letters]", "study.seeds=[0,1]"]
    study += ["study.pe=[sinusoidal,learned]"]
    first = run_script(UNDRAWN, "compare.py", *study)
    assert first.returncode == 0, first.stderr
    folder = tmp_path / "default"
    tried = pd.read_csv(folder / "tuning.csv")
    assert len(tried) == 2 * 2 * 2 and set(tried.seed) == {7, 8}
    table = pd.read_csv(folder / "results.csv")
    assert set(table.seed) == {0, 1}
    for pe in ("sinusoidal", "learned"):
        means = tried[tried.pe == pe].groupby("lr").nll.mean()
        for run in folder.glob(f"letters/{pe}/seed*"):
            trained_with = yaml.safe_load((run / "config.yaml").read_text())["trainer"]
            assert trained_with["lr"] == means.idxmin()
    for trial in tmp_path.glob("default-lr*/letters/*/seed*"):
        run = Run.at(trial)
        rate = yaml.safe_load(run.config_file.read_text())["trainer"]["lr"]
        kept = run.result()
        here = tried[(tried.pe == run.pe) & (tried.seed == run.seed) & (tried.lr == rate)]
        assert kept and here.nll.item() == pytest.approx(kept["validation"]["nll"], rel=1e-12)
    for page in ("report.md", "report.html"):
        assert "Learning rates" in (folder / page).read_text(encoding="utf-8")
    again = run_script(UNDRAWN, "compare.py", *study)
    assert again.returncode == 0 and again.stdout.count(" 0 to train") == 3


def test_the_lowest_mean_that_every_seed_finished_is_chosen() -> None:
    """Not the lowest single run, and no point at which a run ended in numbers that are none."""
    values = [("none", 0.1, 7, 0.0), ("none", 0.1, 8, 9.0), ("none", 0.2, 7, 3.0)]
    values += [("none", 0.2, 8, 3.0), ("none", 0.4, 7, 1.0), ("none", 0.4, 8, math.nan)]
    assert best_points(rows(*values)) == {("copy", "none"): Point(0.2, 5)}
    with pytest.raises(UserError, match="trained to its end by none on copy with every seed"):
        best_points(rows(("none", 0.1, 7, math.nan), ("none", 0.2, 7, math.nan)))


def test_whether_an_order_depends_on_the_rate() -> None:
    """By the paired interval at each point: both ways round, one, or none."""
    a = [("a", 0.1, 7, 1.0), ("a", 0.1, 8, 1.1), ("a", 0.2, 7, 3.0), ("a", 0.2, 8, 3.11)]
    b = [("b", 0.1, 7, 2.0), ("b", 0.1, 8, 2.11), ("b", 0.2, 7, 2.0), ("b", 0.2, 8, 2.1)]
    (task,) = rates_summary(rows(*a, *b), [("a", "b")])
    [said] = task["orders"]
    assert said == in_words("a", "b", [1, -1])
    assert "a is better than b at 1 of 2 points, and worse at 1." in said
    assert task["chosen"] == {"a": Point(0.1, 5), "b": Point(0.2, 5)}
    assert task["at_edge"] == ["a", "b"]  # of two rates each is one
    noisy = rows(("a", 0.1, 7, 1.0), ("a", 0.1, 8, 4.0), ("b", 0.1, 7, 2.0), ("b", 0.1, 8, 2.0))
    assert order("a", "b", noisy, "nll", -1) == 0
    assert in_words("a", "b", [0, -1]).startswith("b is better than a at 1 of 2 points")
    inner = rows(("a", 0.1, 7, 3.0), ("a", 0.2, 7, 1.0), ("a", 0.4, 7, 2.0))
    assert rates_summary(inner, [])[0]["at_edge"] == []


def test_runs_may_differ_in_what_is_compared_and_tuned_and_in_nothing_else() -> None:
    """An encoding's own rate on a task, the same for its seeds; one clip for all."""

    def result(pe: str, seed: int, task: str = "copy", longest: int = 9, **trainer: float) -> Any:
        configuration = {"trainer": {"lr": 0.1} | trainer, "task": {"max_length": longest}}
        run = Run(task, pe, seed, Path(f"{pe}{seed}"))
        return {"task": task, "pe": pe, "seed": seed, "run": run, "configuration": configuration}

    own = result("b", 0, lr=0.2)
    check_comparable([result("a", 0), result("a", 1), own, result("a", 0, "sort", 20)], ["lr"])
    for other in (result("b", 0, clip=2.0), result("a", 1, lr=0.2), result("b", 0, longest=11)):
        with pytest.raises(UserError, match="the runs differ in t"):
            check_comparable([result("a", 0), other], ["lr"])
    with pytest.raises(UserError, match=r"differ in trainer.lr, 0.1 in .*a0 and 0.2 in .*b0"):
        check_comparable([result("a", 0), own])
