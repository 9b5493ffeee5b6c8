"""Several processes train the run that one would, and a run that loses one goes on."""

from __future__ import annotations

import gc
import multiprocessing
import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import SCRIPTS, TINY, configure, flat
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import DictConfig

from wawa_transformer import checkpoint, evaluation, parallel, preparation, processes, training
from wawa_transformer.batching import Batch, encode
from wawa_transformer.commandline import script
from wawa_transformer.config import UserError, check_model
from wawa_transformer.preparation import prepare
from wawa_transformer.runs import LOCK, Run, holder
from wawa_transformer.stopping import Stopped
from wawa_transformer.text import build_task
from wawa_transformer.training import train
from wawa_transformer.transformer import PAD, Transformer


@pytest.mark.parametrize(("machines", "shard"), [(1, "false"), (2, "true")])
def test_two_processes_of_which_one_is_killed_train_the_run_of_one(
    machines: int, shard: str, tmp_path: Path
) -> None:
    """Equal curves, weights and test up to rounding, from unequal shares of accumulated batches.

    torchrun starts both again after the kill; the curves hold every step once. One for each of two
    machines, here played by one, starts its own process and hears of the other's.
    """
    overrides = [
        *TINY, "trainer.steps=160", "trainer.accumulate=2", "trainer.eval_every=10",
        "trainer.batch_tokens=25", "trainer.label_smoothing=0.1",
    ]  # fmt: skip
    alone = configure(*overrides, f"output_dir={tmp_path}/alone")
    expected = train(alone)

    arguments = [*overrides, f"trainer.shard={shard}", f"output_dir={tmp_path}/two"]
    run = Run.of(configure(*arguments))
    torchrun = [
        sys.executable, "-m", "torch.distributed.run", f"--nnodes={machines}", "--max-restarts=1",
        f"--nproc-per-node={2 // machines}", "--rdzv-backend=c10d", "--rdzv-id=test",
        f"--rdzv-endpoint=localhost:{free_port()}",
    ]  # fmt: skip
    fresh = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"} if machines > 1 else {}
    with (tmp_path / "log").open("w+") as log:
        started = [
            subprocess.Popen(
                [*torchrun, str(SCRIPTS / "train.py"), *arguments], stdout=log, stderr=log,
                env={**os.environ, **fresh, "OMP_NUM_THREADS": "1"},
            )
            for _ in range(machines)
        ]  # fmt: skip
        while not run.checkpoint("last").exists() and not any(each.poll() for each in started):
            time.sleep(0.01)
        main = re.match(r"process (\d+) ", holder(run.directory / LOCK))
        assert main and not run.result_file.exists(), "too late to show anything"
        os.kill(int(main[1]), signal.SIGKILL)
        statuses = {each.wait() for each in started}
        log.seek(0)
        said = log.read()
    assert statuses == {0}, said
    assert "Traceback" not in said
    assert expected == Run.of(alone).result() and expected["processes"] == 1
    assert_same_run(run, Run.of(alone))


def assert_same_run(two: Run, one: Run) -> None:
    """Of two processes and of one, up to the order in which they sum."""
    result, expected = two.result(), one.result()
    assert result and expected and result["processes"] == 2
    assert result["flops_per_step"] == expected["flops_per_step"]
    curves = [one.metrics(), two.metrics()]
    assert [row["step"] for row in curves[0]] == [row["step"] for row in curves[1]]
    for name in ("loss", "nll", "grad_norm", "exact_match"):
        first, second = ([row[name] for row in rows if name in row] for rows in curves)
        np.testing.assert_allclose(second, first, rtol=1e-4, err_msg=name)
    for first, second in zip(expected["by_length"], result["by_length"], strict=True):
        assert flat(second) == pytest.approx(flat(first), rel=1e-4)
    weights, moments = ([kept(run)[part] for run in (one, two)] for part in ("model", "optimizer"))
    assert list(weights[0]) == list(weights[1])
    for name, value in weights[0].items():
        if not name.endswith("in_proj.bias"):  # a key's bias changes no score: rounding noise
            torch.testing.assert_close(weights[1][name], value, rtol=0, atol=1e-5, msg=name)
    assert moments[0]["param_groups"] == moments[1]["param_groups"]
    for i, state in moments[0]["state"].items():
        torch.testing.assert_close(moments[1]["state"][i], state, rtol=1e-3, atol=1e-5)


def kept(run: Run) -> dict[str, Any]:
    return checkpoint.load(run.checkpoint("last"))


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return free.getsockname()[1]


def in_two_processes(work: Callable[[], object]) -> None:
    """``work()`` in two copies of this process that know each other as torchrun's do."""
    port = free_port()

    def child(rank: int) -> None:
        os.environ |= {
            "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2",
            "MASTER_ADDR": "localhost", "MASTER_PORT": str(port), "TORCHELASTIC_RUN_ID": "test",
            "TORCHELASTIC_RESTART_COUNT": "0",
        }  # fmt: skip
        work()

    import torch.distributed.fsdp  # noqa: F401  (a second, which is the same for both)

    context = multiprocessing.get_context("fork")
    both = [context.Process(target=child, args=(rank,)) for rank in range(2)]
    for each in both:
        each.start()
    for each in both:
        each.join(timeout=120)
        each.kill()
    assert [each.exitcode for each in both] == [0, 0]


DIVIDED = [
    *TINY, "trainer.accumulate=2", "trainer.batch_tokens=25", "trainer.label_smoothing=0.1",
    "trainer.clip=0.5", "trainer.keep=2", "model.num_layers=2", "trainer.steps=10",
]  # fmt: skip


def test_a_divided_model_trains_the_run_of_one_process(tmp_path: Path) -> None:
    """Clipped and accumulated; and what it keeps is whole: anybody can load it."""
    shared = ("model.tie_embeddings=true", "model.share_layers=true", "pe=t5")
    one, two = (
        configure(*DIVIDED, *shared, f"output_dir={tmp_path}/{shard}", f"trainer.shard={shard}")
        for shard in ("false", "true")
    )
    train(one)
    in_two_processes(lambda: train(two))
    run = Run.of(two)
    assert_same_run(run, Run.of(one))
    assert len(run.kept()) == 2
    model, tokenizer, _ = checkpoint.load_model(run)
    task = build_task(two)
    test = encode(task.dataset(two.seed)["test"], tokenizer)
    again, result = evaluation.test_results(task, model, test), run.result()
    assert result
    expected = {name: value for name, value in result["test"].items() if name != "new"}
    assert again["test"] == pytest.approx(expected, rel=1e-5)


def test_a_divided_run_that_was_stopped_ends_with_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Curves, weights and moments; in bf16 and with masks of dropout of each process's own."""

    def divided(name: str) -> DictConfig:
        random = ("model.dropout=0.1", "trainer.bf16=true")
        return configure(*DIVIDED, *random, "trainer.shard=true", f"output_dir={tmp_path}/{name}")

    def stops() -> None:
        save = training.save_state

        def save_once(*arguments: Any, **words: Any) -> None:
            save(*arguments, **words)
            raise Stopped("in a test")

        training.save_state = save_once
        with pytest.raises(Stopped):
            train(divided("stopped"))

    in_two_processes(lambda: train(divided("whole")))
    in_two_processes(stops)
    stopped, whole = (Run.of(divided(name)) for name in ("stopped", "whole"))
    assert kept(stopped)["step"] == 5
    in_two_processes(lambda: train(divided("stopped")))
    for row, other in zip(stopped.metrics(), whole.metrics(), strict=True):
        row.pop("tokens_per_second", None), other.pop("tokens_per_second", None)
        assert row == other
    one, other = kept(stopped), kept(whole)
    for part in ("model", "optimizer", "rng"):
        assert checkpoint.fingerprint(one[part]) == checkpoint.fingerprint(other[part]), part


def test_each_process_holds_a_part(tmp_path: Path) -> None:
    """Of every parameter half of its rows, or one more, and of the moments as many."""
    odd = ("model.d_ff=33", "trainer.steps=1")
    config = configure(*DIVIDED, *odd, "trainer.shard=true", f"output_dir={tmp_path}")
    run = Run.of(config)
    in_two_processes(lambda: train(config))
    divide = parallel.divide

    def watched(model: Transformer, device: torch.device) -> None:
        before = [weakref.ref(parameter) for parameter in model.parameters()]
        divide(model, device)
        gc.collect()
        assert not any(reference() is not None for reference in before), "held as a whole"

    def look() -> None:
        parallel.divide = watched
        with processes.joined("cpu"):
            model = (training := prepare(config, run)).model
            saved = kept(run)
            for i, (name, parameter) in enumerate(model.named_parameters()):
                rows = saved["model"][name].chunk(2)[processes.rank()]
                assert torch.equal(parameter.to_local(), rows)
                moment = training.optimizer.state[parameter]["exp_avg"]
                rows = saved["optimizer"]["state"][i]["exp_avg"].chunk(2)[processes.rank()]
                assert torch.equal(moment.to_local(), rows)

    in_two_processes(look)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "between several processes, and this is one alone; start it with torchrun"),
        (["trainer.compile=true"], "that trainer.compile=true would take as one"),
        (["pe=fire"], "src_position.c is a single number"),
    ],
)
def test_what_cannot_be_divided_is_refused(
    given: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a sentence, before anything is kept."""
    config = configure(*TINY, "trainer.shard=true", *given, f"output_dir={tmp_path}")
    if "pe=fire" in given:
        monkeypatch.setattr(processes, "world", lambda: 2)
        monkeypatch.setattr(processes, "together", lambda: None)
        monkeypatch.setattr(processes, "share", lambda ask: ask())
    with pytest.raises(UserError, match=said):
        check_model(config)
        train(config)
    assert not list(tmp_path.rglob("config.yaml"))


@given(rows=st.integers(1, 9), world=st.integers(1, 5))
def test_the_rows_of_a_batch_are_dealt_out(rows: int, world: int) -> None:
    """Each to one process; who gets none has a row to run and nothing to learn from it."""
    ids = torch.arange(4, 4 + rows * 2).view(rows, 2)
    batch = Batch(ids, ids, ids)
    parts = [batch.part(rank, world) for rank in range(world)]
    assert all(len(part.source) for part in parts)
    assert sum(part.target_tokens for part in parts) == batch.target_tokens
    taught = torch.cat([part.target_out[part.target_out[:, 0] != PAD] for part in parts])
    assert sorted(taught.tolist()) == ids.tolist()


def test_each_example_is_scored_by_one_process(tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    """What three processes find adds up to what one finds, example by example."""
    config = tiny()
    run = Run.of(config)
    run.directory.mkdir(parents=True)
    training = prepare(config, run)
    monkeypatch.setattr(evaluation, "BATCH_TOKENS", 16)  # so that there are several batches
    whole = evaluation.score(training.model, training.data.test)
    parts = []
    for rank in range(3):
        monkeypatch.setattr(processes, "rank", lambda rank=rank: rank)
        monkeypatch.setattr(processes, "world", lambda: 3)
        monkeypatch.setattr(processes, "total", lambda values: values)
        parts.append(evaluation.score(training.model, training.data.test))
    for name, values in whole.items():
        np.testing.assert_array_equal(sum(part[name] for part in parts), values, err_msg=name)
        assert all(part[name].sum() < values.sum() or not values.sum() for part in parts)


def test_each_process_draws_masks_of_its_own_and_finds_them_again(
    tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the second of two has drawn is kept beside what the first has, and handed back."""
    config = tiny("trainer.steps=9", "model.dropout=0.1")
    run = Run.of(config)
    run.directory.mkdir(parents=True)
    prepare(config, run)
    first = torch.get_rng_state()
    monkeypatch.setattr(processes, "world", lambda: 2)
    monkeypatch.setattr(processes, "together", lambda: None)
    monkeypatch.setattr(processes, "rank", lambda: 1)
    training = prepare(config, run)
    second = torch.get_rng_state()
    assert not torch.equal(first, second)

    monkeypatch.setattr(processes, "rank", lambda: 0)
    monkeypatch.setattr(processes, "gather", lambda own: torch.stack((first, own)))
    preparation.save_state(training)
    for rank, state in enumerate((first, second)):
        torch.manual_seed(1234)
        monkeypatch.setattr(processes, "rank", lambda rank=rank: rank)
        prepare(config, run)
        assert torch.equal(torch.get_rng_state(), state)

    monkeypatch.setattr(processes, "world", lambda: 1)
    monkeypatch.setattr(processes, "rank", lambda: 0)
    with pytest.raises(UserError, match="was begun by 2 processes, and this is one of 1: .*seed"):
        prepare(config, run)
    state = checkpoint.load(run.checkpoint("last"))
    state["rng"] = state["rng"][0]  # as it was kept before there were several
    checkpoint.save(run.checkpoint("last"), state)
    prepare(config, run)
    assert torch.equal(torch.get_rng_state(), first)


@pytest.mark.parametrize(
    ("script", "arguments"),
    [("train.py", ["-m", "seed=1,2"]), ("evaluate.py", ["run=none"])],
)
def test_torchrun_is_for_one_run(
    script: str, arguments: list[str], call_script, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Eight sweeps side by side in one folder are not what anybody wants."""
    for name, value in (("TORCHELASTIC_RUN_ID", "1"), ("RANK", "0"), ("WORLD_SIZE", "1")):
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    status, said = call_script(script, *arguments)
    assert status == 1 and "torchrun starts several processes for one run of" in said
    assert "Traceback" not in said and not list(tmp_path.rglob("config.yaml"))


def test_restarts_that_could_meet_the_dead_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """On several machines, where torchrun keeps its store; on one the restarts are told apart."""
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    monkeypatch.setenv("TORCHELASTIC_MAX_RESTARTS", "3")
    with pytest.raises(UserError, match="set the environment's TORCH_DISABLE_SHARE_RDZV_TCP_STORE"):
        processes.check_restarts()
    for name, value in (
        ("TORCHELASTIC_USE_AGENT_STORE", "False"),
        ("TORCHELASTIC_MAX_RESTARTS", "0"),
        ("LOCAL_WORLD_SIZE", "4"),
    ):
        with monkeypatch.context() as other:
            other.setenv(name, value)
            processes.check_restarts()


def test_the_loss_of_another_process_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """And any other error keeps its own words."""
    names = ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT")
    for name, value in zip(names, "0210", strict=True):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(processes, "launched", lambda: True)
    monkeypatch.setattr(processes, "together", lambda: None)
    monkeypatch.setattr(processes.dist, "rendezvous", lambda _: iter([(None, 0, 2)]))
    monkeypatch.setattr(processes.dist, "init_process_group", lambda *_, **__: None)
    monkeypatch.setattr(processes.dist, "destroy_process_group", lambda: None)
    with (
        pytest.raises(UserError, match="another process of this run has ended"),
        processes.joined("cpu"),
    ):
        raise RuntimeError("[/gloo/transport/tcp/pair.cc:537] Connection closed by peer")
    with pytest.raises(RuntimeError, match="shapes"), processes.joined("cpu"):
        raise RuntimeError("shapes do not fit")


def test_a_process_that_is_done_waits_for_no_thread() -> None:
    """Nothing that it said or promised to do at its end is lost."""
    program = """
        import atexit, threading, time
        from wawa_transformer import processes
        threading.Thread(target=time.sleep, args=(10_000,)).start()
        atexit.register(print, "cleaned")
        print("said")
        processes.leave()
    """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=60
    )
    assert (ended.returncode, ended.stdout) == (0, "said\ncleaned\n"), ended.stderr


@pytest.mark.parametrize("launched", [True, False])
def test_only_what_torchrun_started_ends_so(
    launched: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[bool] = []
    monkeypatch.setattr(processes, "launched", lambda: launched)
    monkeypatch.setattr(processes, "leave", lambda: left.append(True))
    monkeypatch.setattr(sys, "argv", ["train.py"])
    script(several=True)(lambda config: None)()
    assert left == [True] * launched
