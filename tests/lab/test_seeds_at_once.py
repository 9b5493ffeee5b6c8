"""Seeds trained at once are the runs that they would be alone, and live and die one by one."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from conftest import MODELS, SCRIPTS, TINY, configure, flat
from omegaconf import DictConfig
from torch import Tensor
from torch.nn.utils import parameters_to_vector

from wawa_transformer import checkpoint, evaluation, linear
from wawa_transformer import training as training_module
from wawa_transformer.batching import Batch
from wawa_transformer.config import UserError, build_model
from wawa_transformer.lab import seeds_at_once
from wawa_transformer.lab.bundle import Bundle, Seed, drawn_by_seed
from wawa_transformer.lab.seeds_at_once import climb, train_at_once
from wawa_transformer.lab.study import bundles
from wawa_transformer.loss import loss_and_nll, plain_loss_and_nll
from wawa_transformer.positional import ENCODINGS, PositionalEncoding
from wawa_transformer.preparation import Training, adamw, prepare
from wawa_transformer.runs import Run
from wawa_transformer.seeds import seed_for
from wawa_transformer.stopping import Stop, Stopped
from wawa_transformer.tracking import Silence
from wawa_transformer.training import loop, train
from wawa_transformer.transformer import BOS, Transformer

SEEDS = range(3)


@pytest.fixture(autouse=True)
def in_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without what takes longer than the training and has tests of its own."""
    monkeypatch.setattr(training_module, "show", lambda *_: None)
    monkeypatch.setattr(training_module, "matrix_rate", lambda *_: 1e9)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> list[Training]:
    """Three seeds of a configuration, prepared: for their data."""
    found = []
    for seed in SEEDS:
        folder = tmp_path_factory.mktemp(f"seed{seed}")
        config = configure(*TINY, f"output_dir={folder}", f"seed={seed}")
        run = Run.of(config)
        run.directory.mkdir(parents=True)
        found.append(prepare(config, run))
    return found


composed = functools.cache(lambda *overrides: configure(*TINY, *overrides))


def begun(of: Training, *overrides: str) -> Training:
    """A run of other settings on the data of one, not yet begun; torch's generator is at its state.

    In float64: AdamW makes steps of full size from what rounding leaves of a gradient that
    vanishes, and no tolerance could tell them from a mistake.
    """
    config = composed("trainer.eval_every=20", *overrides).copy()
    config.seed = of.config.seed
    model = build_model(config, of.data.tokenizer)
    if not config.trainer.bf16:
        model.double()
    torch.manual_seed(seed_for(config.seed, "dropout"))
    optimizer = adamw(model.parameters(), config.trainer)
    return dataclasses.replace(of, config=config, model=model, optimizer=optimizer)


class Memory(Silence):
    """What is logged, but for speed."""

    def __init__(self) -> None:
        self.rows: list[dict[str, float]] = []

    def scalars(self, step: int, split: str, **values: float) -> None:
        values.pop("tokens_per_second", None)
        self.rows.append({"step": step} | values)


def both_ways(data: list[Training], *overrides: str) -> list[tuple[Training, Training]]:
    """Each run as the plain loop trains it, and as it becomes beside the others."""
    alone = []
    for of in data:
        training, tracker = begun(of, *overrides), Memory()
        loop(training, tracker, Silence(), Stop())
        alone.append((training, tracker.rows, torch.get_rng_state()))
    seeds = [Seed(begun(of, *overrides)) for of in data]
    for seed in seeds:
        seed.tracker = Memory()
    assert climb(seeds, seeds[0].training.config.trainer.steps, Stop()) == seeds
    found = []
    for seed, (training, rows, state) in zip(seeds, alone, strict=True):
        assert torch.equal(seed.generator.get_state(), state), "another number of draws"
        assert len(seed.tracker.rows) == len(rows) > 1
        for ours, expected in zip(seed.tracker.rows, rows, strict=True):
            exact = not training.config.trainer.bf16
            assert ours == pytest.approx(expected, rel=1e-5 if exact else 0.1)
        found.append((training, seed.training))
    return found


def close(ours: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    """Every weight, up to rounding."""
    assert ours.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(ours[name], value, rtol=0, atol=1e-7, msg=name)


CASES = [
    *(f"pe={pe}" for pe in (
        "sinusoidal", "learned", "none", "t5", "rotary", "shaw", "transformer_xl",
    )),
    "model.dropout=0.1 model.num_layers=2 model.tie_embeddings=true",
    "pe=learned_shifted model.dropout=0.1 model.norm=post",
    "model.share_layers=true model.num_layers=2 trainer.accumulate=2 model.dropout=0.1",
    "trainer.label_smoothing=0.1 trainer.pad_to=4 model.dropout=0.1 trainer.weight_decay=0.3",
]  # fmt: skip


@pytest.fixture
def unkept(monkeypatch: pytest.MonkeyPatch) -> None:
    """No checkpoints."""
    monkeypatch.setattr(training_module, "save_state", lambda *_, **__: None)


@pytest.mark.parametrize("case", CASES)
def test_three_seeds_at_once_are_three_single_runs(
    case: str, data: list[Training], unkept: None
) -> None:
    """Weights, moments, validation and the draws from each random generator, after 20 steps.

    At a clip that cuts every step, on batches of unequal sizes; with dropout, too: each seed has
    the masks that it has alone.
    """
    for alone, ours in both_ways(data, "trainer.clip=0.3", *case.split()):
        close(ours.model.state_dict(), alone.model.state_dict())
        states = (t.optimizer.state_dict()["state"] for t in (ours, alone))
        for mine, expected in zip(*(state.values() for state in states), strict=True):
            assert mine["step"] == expected["step"] == 20
            close(mine, expected)
        assert ours.target_tokens == alone.target_tokens and ours.step == alone.step == 20
        assert ours.best_nll == pytest.approx(alone.best_nll, rel=1e-6)


def test_bf16_is_that_of_single_runs(data: list[Training], unkept: None) -> None:
    """To what bf16 can tell."""
    for alone, ours in both_ways(data, "trainer.bf16=true", "pe=t5", "model.dropout=0.1"):
        assert ours.best_nll == pytest.approx(alone.best_nll, rel=5e-3)


@pytest.mark.parametrize("pe", ["t5", "transformer_xl_cross", "cope", "rotary"])
def test_bf16_is_used_where_a_single_run_uses_it(pe: str, data: list[Training]) -> None:
    """The type of what each module gives, layer for layer."""

    def watch(model: torch.nn.Module) -> dict[str, torch.dtype]:
        seen: dict[str, torch.dtype] = {}
        for name, module in model.named_modules():
            module.register_forward_hook(lambda *a, name=name: seen.update({name: a[2].dtype}))
        return seen

    seeds = [Seed(begun(of, "trainer.bf16=true", f"pe={pe}", "model.dropout=0.1")) for of in data]
    bundle = Bundle(seeds)
    ours = watch(bundle.losses.model)
    bundle.step([[batch] for batch in unequal_batches()])
    model, batch = seeds[0].training.model, unequal_batches()[0]
    expected = watch(model)
    with torch.autocast("cpu", torch.bfloat16):
        model(batch.source, batch.target_in, logits=False)
    del expected[""]  # whose parts are called one by one
    assert ours == expected and {torch.float32, torch.bfloat16} == set(ours.values())


def unequal_batches() -> list[Batch]:
    """Three of other rows and other widths, with padding on the right, and a separator."""
    found = []
    for rows, source, target in ((5, 7, 4), (3, 4, 6), (4, 6, 6)):
        draw = torch.Generator().manual_seed(rows)
        ids = torch.randint(4, 18, (rows, source), generator=draw)
        answer = torch.randint(4, 18, (rows, target), generator=draw)
        ids[1:, source - 2 :] = answer[2:, target - 1 :] = 0
        found.append(Batch(ids, F.pad(answer[:, :-1], (1, 0), value=BOS), answer))
    return found


@pytest.mark.parametrize("name", [n for n in MODELS if not ENCODINGS[MODELS[n]["pe"]].draws])
def test_a_step_of_every_encoding_is_that_of_single_runs(
    name: str, data: list[Training], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loss, norm and clipped gradient in every place and way of counting, with dropout.

    Held against ``torch.nn.functional`` and ``clip_grad_norm_``, seed by seed. A single run scores
    three queries at a time here, as it does in long sequences; several at once score all.
    """
    monkeypatch.setattr("wawa_transformer.scoring.SCORES", 1)
    monkeypatch.setattr("wawa_transformer.scoring.FEWEST_ROWS", 3)
    monkeypatch.setattr("wawa_transformer.relative.MANY_PAIRS", 1)
    clip, batches, seeds, alone = 0.5, unequal_batches(), [], []
    for of, batch in zip(data, batches, strict=True):
        sizes = dict(d_model=16, num_layers=1, num_heads=2, d_ff=32, dropout=0.1)
        model = Transformer(30, 30, **sizes, seed=of.config.seed, **MODELS[name]).double()
        torch.manual_seed(of.config.seed)
        config = composed(f"trainer.clip={clip}")
        optimizer = adamw(model.parameters(), config.trainer)
        training = dataclasses.replace(of, config=config, model=model, optimizer=optimizer)
        seeds.append(Seed(training))
        loss = F.cross_entropy(
            model(batch.source, batch.target_in).transpose(1, 2), batch.target_out, ignore_index=0
        )
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        alone.append(
            (loss.detach(), norm, parameters_to_vector(p.grad for p in model.parameters()))
        )
    bundle = Bundle(seeds)
    kept: list[Tensor] = []
    bundle.optimizer.register_step_pre_hook(lambda *_: kept.append(bundle.weights.grad.clone()))  # type: ignore[union-attr]
    losses, _, norms = bundle.step([[batch] for batch in batches])
    for loss, norm, gradient, expected in zip(losses, norms, *kept, alone, strict=True):
        for ours, theirs in zip((loss, norm, gradient), expected, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-7, check_dtype=False)
    assert len({norm.item() for norm in norms}) == 3 and min(norms) > clip


def test_a_large_vocabulary_needs_no_way_of_its_own() -> None:
    """From a thousand words on the loss of a single run on a CPU is another function."""
    states, weight = torch.randn(2, 3, 8), torch.randn(1200, 8)
    target = torch.tensor([[5, 1100, 0], [7, 0, 0]])
    for ours, single in zip(
        plain_loss_and_nll(states, weight, target, 0.1),
        loss_and_nll(states, weight, target, 0.1),
        strict=True,
    ):
        torch.testing.assert_close(ours, single)


def test_what_an_encoding_draws_by_seed_is_each_seeds_own(
    data: list[Training], unkept: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table that is drawn and not trained, where the sinusoid's is the same for all."""

    class Random(PositionalEncoding):
        def initialise(self, draw: Callable[[str], torch.Generator]) -> None:
            self.pe = torch.randn(self.pe.shape, generator=draw("pe"))

    assert not drawn_by_seed([begun(of).model for of in data])
    monkeypatch.setitem(ENCODINGS, "sinusoidal", Random)
    for alone, ours in both_ways(data):
        close(ours.model.state_dict(), alone.model.state_dict())


# ------------------------------------------------------------------------------ runs on the disk


def three(folder: Path, *overrides: str) -> list[DictConfig]:
    """The configurations of three seeds that are trained at once."""
    given = [*TINY, "trainer.seeds_at_once=3", f"output_dir={folder}", *overrides]
    return [configure(*given, f"seed={seed}") for seed in SEEDS]


def same_bits(one: list[DictConfig], two: list[DictConfig]) -> None:
    """Checkpoints, curves and tests of finished runs, to the last bit."""
    for configs in zip(one, two, strict=True):
        runs = [Run.of(config) for config in configs]
        first, second = (checkpoint.load(run.checkpoint("last")) for run in runs)
        for key in ("step", "model", "optimizer", "rng", "target_tokens", "best_nll"):
            assert checkpoint.fingerprint(first[key]) == checkpoint.fingerprint(second[key]), key
        assert curves(runs[0]) == curves(runs[1])
        results = [run.result() for run in runs]
        assert results[0] and results[1], [run.failure() for run in runs]
        assert results[0]["by_length"] == results[1]["by_length"]


def curves(run: Run) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if k != "tokens_per_second"} for row in run.metrics()]


def as_alone(config: DictConfig) -> None:
    """A finished run has the results of one that is trained by itself, up to rounding."""
    ours = Run.of(config).result()
    assert ours, Run.of(config).failure()
    alone = config.copy()
    alone.trainer.seeds_at_once, alone.output_dir = 1, f"{config.output_dir}/alone"
    expected = train(alone)
    for mine, row in zip(ours["by_length"], expected["by_length"], strict=True):
        assert flat(mine) == pytest.approx(flat(row), rel=1e-4)
    assert ours["flops_per_step"] == expected["flops_per_step"]
    sizes = [Run.of(each).checkpoint("last").stat().st_size for each in (config, alone)]
    assert sizes[0] < 1.2 * sizes[1], "it holds the others, too"
    rows = [curves(Run.of(each)) for each in (config, alone)]
    assert [row["step"] for row in rows[0]] == [row["step"] for row in rows[1]]
    for mine, row in zip(*rows, strict=True):
        assert mine.pop("split") == row.pop("split")
        assert mine == pytest.approx(row, rel=1e-3)


def at_step(step: int, do: Callable[[Bundle], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, after step number ``step`` of the first seed of a bundle."""
    real = Bundle.step

    def stepped(bundle: Bundle, *arguments: Any) -> Tensor:
        values = real(bundle, *arguments)
        if bundle.seeds[0].training.step == step:
            monkeypatch.setattr(Bundle, "step", real)
            do(bundle)
        return values

    monkeypatch.setattr(Bundle, "step", stepped)


def signalled(bundle: Bundle) -> None:
    os.kill(os.getpid(), signal.SIGTERM)


DRAWING = ("model.dropout=0.1", "pe=learned_shifted")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> list[DictConfig]:
    """Three runs that nothing has interrupted."""
    configs = three(tmp_path_factory.mktemp("whole"), *DRAWING)
    train_at_once(configs)
    return configs


@pytest.mark.parametrize("step", [7, 10])
def test_stopped_and_continued_they_end_with_the_same_bits(
    step: int, whole: list[DictConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a step of its own and at that of a validation, with dropout; all keep their state."""
    stopped = three(tmp_path, *DRAWING)
    at_step(step, signalled, monkeypatch)
    with pytest.raises(Stopped, match=f"stopped by SIGTERM at step {step} of 20"):
        train_at_once(stopped)
    for each in stopped:
        assert checkpoint.load(Run.of(each).checkpoint("last"))["step"] == step
        assert Run.of(each).status == "running"
    train_at_once(stopped)
    same_bits(whole, stopped)


def test_where_single_runs_take_another_layout_these_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On any processor, for any size: :mod:`wawa_transformer.linear`."""
    monkeypatch.setattr(linear, "mkl_is_slow", lambda: True)
    monkeypatch.setattr(linear, "LEAST", 1)
    configs = three(tmp_path, "trainer.steps=5")
    train_at_once(configs)
    as_alone(configs[0])


@pytest.mark.parametrize("validation", [1, 4])
def test_killed_between_two_checkpoints_they_end_with_the_same_bits(
    validation: int, whole: list[DictConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One seed has kept the step and the others have not: it goes back to theirs."""
    killed = three(tmp_path, *DRAWING)
    real, saved = training_module.save_state, []

    def save(training: Training, **how: bool) -> None:
        real(training, **how)
        saved.append(training.step)
        if saved == [5, 5, 5, 10, 10, 10, 15, 15, 15, 20][: 3 * validation - 2]:
            raise Stopped("as by a power cut")

    monkeypatch.setattr(training_module, "save_state", save)
    with pytest.raises(Stopped):
        train_at_once(killed)
    monkeypatch.setattr(training_module, "save_state", real)
    train_at_once(killed)
    same_bits(whole, killed)


def test_a_seed_that_fails_leaves_the_others_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is named with its last good checkpoint; again, it trains alone and touches no other."""
    configs = three(tmp_path)

    def spoil(bundle: Bundle) -> None:
        with torch.no_grad():
            bundle.weights[1] = torch.nan

    at_step(7, spoil, monkeypatch)
    train_at_once(configs)
    runs = [Run.of(config) for config in configs]
    assert [run.status for run in runs] == ["finished", "failed", "finished"]
    assert "is nan at step 10; the last good checkpoint is" in runs[1].failure()
    assert checkpoint.load(runs[1].checkpoint("last"))["step"] == 5
    stamps = [run.result_file.stat().st_mtime_ns for run in runs[::2]]
    as_alone(configs[0])
    train_at_once(configs)
    for config in configs[1:]:
        as_alone(config)
    assert [run.result_file.stat().st_mtime_ns for run in runs[::2]] == stamps


def test_a_seed_that_is_ahead_waits_for_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was stopped after twelve steps, and two more were asked for since."""
    configs = three(tmp_path, "model.dropout=0.1")
    at_step(12, signalled, monkeypatch)
    with pytest.raises(Stopped):
        train_at_once(configs[:1])
    seen = []
    real = Bundle.step

    def stepped(bundle: Bundle, *arguments: Any) -> Tensor:
        seen.append([seed.training.config.seed for seed in bundle.seeds])
        return real(bundle, *arguments)

    monkeypatch.setattr(Bundle, "step", stepped)
    train_at_once(configs)
    assert seen == [[1, 2]] * 12 + [[0, 1, 2]] * 8
    for config in configs:
        as_alone(config)


def test_the_seconds_of_a_run_are_its_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of twenty steps of three seconds each, of three runs each has twenty seconds."""
    configs, clock, real = three(tmp_path), itertools.count(0, 3), Bundle.step
    now = [next(clock)]

    def step(bundle: Bundle, *arguments: Any) -> Tensor:
        now[0] = next(clock)
        return real(bundle, *arguments)

    monkeypatch.setattr(Bundle, "step", step)
    monkeypatch.setattr(seeds_at_once, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    train_at_once(configs)
    for config in configs:
        run = Run.of(config)
        result = run.result()
        assert result and result["seeds_at_once"] == 3 and result["seconds"] == 20
        tokens = checkpoint.load(run.checkpoint("last"))["target_tokens"]
        assert result["tokens_per_second"] == tokens / 20
        logged = [row["tokens_per_second"] for row in run.metrics() if row["split"] == "train"]
        assert np.mean(logged) == pytest.approx(tokens / 20)


def test_one_that_is_held_by_another_process_is_left_out(tmp_path: Path) -> None:
    """And one that cannot begin; the others train."""
    configs = three(tmp_path, "pe=learned")
    configs[2].pe.max_len = 3
    with Run.of(configs[0]).hold():
        train_at_once(configs)
    failures = [Run.of(config).failure() for config in configs]
    assert "is in use by process" in failures[0] and not failures[1]
    assert "of 7 positions does not fit the learned table of pe.max_len=3" in failures[2]
    assert [Run.of(config).status for config in configs] == ["failed", "finished", "failed"]


# ------------------------------------------------------------------------------------- a study


def test_which_runs_share_a_bundle_does_not_depend_on_what_is_finished() -> None:
    """Or a continued study would compute other bits; a whole seed comes before the next."""
    jobs = {}
    for seed in range(5):
        for pe in ("none", "alibi"):
            config = composed(f"pe={pe}", "trainer.seeds_at_once=2").copy()
            config.seed = seed
            jobs[Run.of(config)] = config

    def found(missing: Collection[Run]) -> list[list[str]]:
        return [[f"{c.pe.name}{c.seed}" for c in bundle] for bundle in bundles(jobs, missing)]

    assert found(jobs) == [
        ["none0", "none1"], ["alibi0", "alibi1"], ["none2", "none3"], ["alibi2", "alibi3"],
        ["none4"], ["alibi4"],
    ]  # fmt: skip
    left = [run for run in jobs if run.pe != "none" or run.seed not in (0, 2, 4)]
    assert found(left) == [
        ["none1"], ["alibi0", "alibi1"], ["none3"], ["alibi2", "alibi3"], ["alibi4"],
    ]  # fmt: skip
    for config in jobs.values():
        config.trainer.seeds_at_once = 1
    assert found(jobs) == [[f"{run.pe}{run.seed}"] for run in jobs]


def test_a_study_of_bundles_has_the_numbers_of_one_of_single_runs(tmp_path: Path) -> None:
    """Where the process of a bundle dies as well: both runs are named, and tried once more."""
    plant = tmp_path / "sitecustomize.py"
    plant.write_text(
        "import os, pathlib, signal\n"
        "from wawa_transformer.lab.bundle import Bundle\n"
        "real, mark = Bundle.step, pathlib.Path(__file__).with_name('died')\n"
        "def step(bundle, batches):\n"
        "    if not mark.exists():\n"
        "        mark.touch()\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return real(bundle, batches)\n"
        "Bundle.step = step\n"
    )
    given = ["study.task=[letters]", "study.pe=[alibi]", "study.seeds=[0,1,2]", "workers=1"]
    command = [sys.executable, str(SCRIPTS / "compare.py"), *TINY, *given]
    done = subprocess.run(
        [*command, "trainer.seeds_at_once=2", f"output_dir={tmp_path}/o"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{SCRIPTS.parent}"},
    )
    assert done.returncode == 0, done.stderr
    assert "3 of 3 runs finished" in done.stdout
    assert (
        "letters alibi seed 0, letters alibi seed 1: its process was killed by SIGKILL; "
        "it is tried once more"
    ) in done.stdout
    study = tmp_path / "o" / "default"
    table = pd.read_csv(study / "results.csv").set_index(["pe", "seed", "length"])
    for seed in SEEDS:
        config = configure(*TINY, "pe=alibi", f"seed={seed}", f"output_dir={tmp_path}/alone")
        for row in train(config)["by_length"]:
            ours = table.loc[("alibi", seed, row["length"])]
            for metric in evaluation.METRICS:
                np.testing.assert_allclose(ours[metric.name], row[metric.name], rtol=1e-4)
    page = (study / "report.md").read_text(encoding="utf-8")
    assert "Up to 2 seeds were trained at once" in page


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["trainer.compile=true"], "trainer.compile=true exclude each other"),
        (["trainer.bucket=true"], "set trainer.bucket=false, or leave trainer.seeds_at_once out"),
        (["study.pe=[sinusoidal_nested]"], "does not serve pe=sinusoidal_nested, which draws"),
        (["hydra/launcher=basic"], "and hydra/launcher=basic sends each to another"),
    ],
)
def test_what_seeds_cannot_share_is_refused_before_training(
    arguments: list[str], sentence: str, tmp_path: Path, call_script
) -> None:
    """In one sentence; nothing is written."""
    given = [*TINY, "trainer.seeds_at_once=3", f"output_dir={tmp_path}/o", *arguments]
    status, said = call_script("compare.py", *given)
    assert status == 1 and sentence in said and "trainer.seeds_at_once=3" in said
    assert not (tmp_path / "o").exists()


def test_a_single_run_is_not_several(call_script, tmp_path: Path) -> None:
    """train.py refuses the key, and so does a sweep of its runs."""
    given = [*TINY, "trainer.seeds_at_once=2", f"output_dir={tmp_path}/o"]
    status, said = call_script("train.py", *given)
    assert status == 1 and "is for the seeds of a study, and this is one run" in said
    assert not (tmp_path / "o").exists()
    with pytest.raises(UserError, match="give it to scripts/compare.py"):
        train(configure(*given))


def test_a_draw_that_is_nobodys_own_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An encoding that draws in training and does not say so is not silently the same for all."""
    monkeypatch.setattr(ENCODINGS["sinusoidal_nested"], "draws", False)
    configs = three(tmp_path, "pe=sinusoidal_nested")
    train_at_once(configs)
    assert all("random" in Run.of(config).failure() for config in configs)


# --------------------------------------------------------------------------------- on a GPU

gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@gpu
@pytest.mark.parametrize("pe", ["sinusoidal", "t5", "transformer_xl_cross", "cope"])
def test_on_a_gpu_three_seeds_at_once_are_three_single_runs(pe: str, tmp_path: Path) -> None:
    """Without dropout, whose masks a single run leaves to the card."""
    configs = three(tmp_path, "trainer.device=cuda", f"pe={pe}")
    train_at_once(configs)
    for config in configs:
        as_alone(config)


@gpu
def test_on_a_gpu_they_continue_with_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state of each seed's masks is kept, too."""
    given = (*DRAWING, "trainer.device=cuda", "trainer.deterministic=true")
    one, two = three(tmp_path / "one", *given), three(tmp_path / "two", *given)
    train_at_once(one)
    at_step(7, signalled, monkeypatch)
    with pytest.raises(Stopped):
        train_at_once(two)
    train_at_once(two)
    same_bits(one, two)
