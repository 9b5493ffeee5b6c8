"""A learning rate for each encoding: chosen on other seeds, by validation alone, and told."""

from pathlib import Path

import pandas as pd
import pytest
import yaml
from planted import results_of, study_of
from support import TINY, UNDRAWN, configure, run_script

from wawa_transformer.common.messages import UserError
from wawa_transformer.lab import cells, tuning
from wawa_transformer.run.run_dir import Run

GRID = ["study.tune.lr=[0.001,0.01]", "study.tune.seeds=[7]"]


def test_a_study_is_tuned_on_other_seeds_and_trained_with_what_they_chose(tmp_path: Path) -> None:
    """The grid's winner by an own look at the files; its seeds in no number; done once."""
    study = [*TINY, *GRID, f"output_dir={tmp_path}", "study.task=[letters]", "study.seeds=[0]"]
    study += ["study.pe=[sinusoidal,learned]"]
    first = run_script(UNDRAWN, "compare.py", *study)
    assert first.returncode == 0, first.stderr
    folder = tmp_path / "default"
    tried = pd.read_csv(folder / "tuning.csv")
    assert len(tried) == 2 * 2 and set(tried.seed) == {7}
    table = pd.read_csv(folder / "results.csv")
    assert set(table.seed) == {0}
    for pe in ("sinusoidal", "learned"):
        nll = tried[tried.pe == pe].set_index("lr").nll
        for run in folder.glob(f"letters/{pe}/seed*"):
            trained_with = yaml.safe_load((run / "config.yaml").read_text())["trainer"]
            assert trained_with["lr"] == nll.idxmin()
    for trial in tmp_path.glob("default-lr*/letters/*/seed*"):
        run = Run.at(trial)
        rate = yaml.safe_load(run.config_file.read_text())["trainer"]["lr"]
        kept = run.result()
        here = tried[(tried.pe == run.pe) & (tried.seed == run.seed) & (tried.lr == rate)]
        assert kept and here.nll.item() == pytest.approx(kept["validation"]["nll"], rel=1e-12)
    for page in ("report.md", "report.html"):
        text = (folder / page).read_text(encoding="utf-8")
        assert "Learning rates" in text and "Chosen at the edge of the grid" in text
    again = run_script(UNDRAWN, "compare.py", *study)
    assert again.returncode == 0 and again.stdout.count(" 0 to train") == 3


def test_a_grid_that_leaves_no_choice_or_is_chosen_elsewhere_is_refused() -> None:
    """Seeds shared with the study, a tuned key on the command line, and a cluster's launcher."""
    lrs = [0.001, 0.01]
    for rates, seeds, override, launcher, said in (
        ([0.01, 0.01], [7], "seed=0", "basic", "study.tune.lr names a value twice"),
        (lrs[:1], [7], "seed=0", "basic", "study.tune has one point"),
        ([], [7], "seed=0", "basic", "study.tune has one point"),
        (lrs, [], "seed=0", "basic", "study.tune.seeds is empty"),
        ([0.0, 0.1], [7], "seed=0", "basic", "study.tune.lr=0.0 must be greater than 0"),
        ([0.1, float("inf")], [7], "seed=0", "basic", "study.tune.lr=inf must be .* less than inf"),
        (lrs, [7, 1], "seed=0", "basic", "study.tune.seeds and study.seeds share 1:"),
        (lrs, [7], "trainer.lr=0.1", "basic", "trainer.lr=0.1 is what study.tune.lr chooses"),
        (lrs, [7], "++trainer.lr=1", "basic", "trainer.lr=1 is what study.tune.lr chooses"),
        (lrs, [7], "seed=0", "submitit_local", "submitit_local trains a grid with one learning"),
    ):
        config = configure()
        config.study.tune.lr, config.study.tune.seeds = rates, seeds
        with pytest.raises(UserError, match=said):
            tuning.grid_points(config, [override], launcher)
    config = configure()
    assert tuning.grid_points(config, [], "basic") == []
    config.study.tune.warmup = [5, 9]
    with pytest.raises(UserError, match="trainer.warmup=5 is what study.tune.warmup chooses"):
        tuning.grid_points(config, ["trainer.warmup=5"], "basic")
    with pytest.raises(UserError, match="study.tune.seeds is empty"):
        tuning.grid_points(config, [], "basic")
    config.study.tune.seeds, lr = [7], config.trainer.lr
    assert tuning.grid_points(config, [], "basic") == [(lr, 5), (lr, 9)]
    config.study.tune.lr, config.study.tune.warmup = lrs, []
    assert tuning.grid_points(config, [], "basic") == [(lr, config.trainer.warmup) for lr in lrs]


def test_trials_train_at_every_point_and_the_study_at_the_best_of_each_task() -> None:
    """Each point in a folder of its own."""
    config, points = configure("study.tune.seeds=[7]"), [(0.1, 5), (0.1, 9)]
    given = [configure(f"task={task}", "pe=none", "pictures=true") for task in ("copy", "sort")]
    jobs = {Run.from_config(job): job for job in given}
    trials = tuning.list_trials(config, jobs, points)
    assert len({run.directory.parents[2] for trial in trials.values() for run in trial}) == 2
    for point, trial in trials.items():
        assert [(run.task, run.seed) for run in trial] == [("copy", 7), ("sort", 7)]
        for job in trial.values():
            assert (job.trainer.lr, job.trainer.warmup, job.pictures) == (*point, False)
    rows = tuning.validation_rows(trials)
    assert len(rows) == 4 and rows["nll"].isna().all(), "a run without a result is not the best"
    found = tuning.tuned(jobs, {("copy", "none"): points[0], ("sort", "none"): points[1]})
    assert [(run.task, job.trainer.warmup) for run, job in found.items()] == [
        ("copy", 5), ("sort", 9)
    ]  # fmt: skip


@pytest.mark.parametrize(("lrs", "warmups"), [((1, 2, 3), (10, 20)), ((1, 2), (10, 20, 30))])
def test_an_edge_of_either_axis_of_the_grid_is_named(
    lrs: tuple[int, ...], warmups: tuple[int, ...]
) -> None:
    """One axis has its second value chosen, which is in its middle and at the other's edge."""
    results = results_of({("copy", "a"): lambda n, s: 1.0})
    tried = [
        {"task": "copy", "pe": "a", "lr": lr, "warmup": warmup, "seed": 7, "exact_match": 1.0}
        | {"nll": abs(lr - 2) + abs(warmup - 20)}
        for lr in lrs
        for warmup in warmups
    ]
    [(_, said)] = cells.rate_tables(study_of(results, tuning=pd.DataFrame(tried)), [])
    assert [text.fill["names"] for text in said] == [["a"]]


def test_the_order_at_each_rate_is_by_exact_match_and_for_a_text_by_nll() -> None:
    """Planted: the first has the higher of both. The chosen rate is marked."""
    results = results_of({("copy", pe): lambda n, s: 1.0 for pe in "ab"}, seeds=range(2))
    tried = [
        {"task": "copy", "pe": pe, "lr": lr, "warmup": 5, "seed": seed}
        | {"exact_match": value + seed * value / 50, "nll": value + lr + seed * value / 50}
        for pe, value in (("a", 0.9), ("b", 0.5))
        for lr in (0.01, 0.02)
        for seed in range(3)
    ]
    for bleu, first, second in ((pd.DataFrame(), 2, 0), (results[["task", "pe", "seed"]], 0, 2)):
        study = study_of(results, tuning=pd.DataFrame(tried), bleu=bleu)
        [(table, [order, _])] = cells.rate_tables(study, [("a", "b")])
        assert {key: order.fill[key] for key in ("first", "second", "of")} == {
            "first": first, "second": second, "of": 2
        }  # fmt: skip
        marked = [[cell.strong for cell in row[2:]] for row in table.rows]
        assert marked == [[True, True], [False, False]]
        assert [cell.value for cell in table.rows[0][2:]] == pytest.approx([0.928, 0.52])
