"""Several processes train the run that one would, and a run that loses one goes on."""

import faulthandler
import os
import re
import signal
import socket
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import DictConfig
from support import (
    TINY,
    Script,
    assert_same_bits,
    assert_same_but_for_rounding,
    configure,
    run_script,
    train_until_saved,
)
from torch.distributed.launcher.api import LaunchConfig, elastic_launch
from torch.nn.parallel import DistributedDataParallel

from wawa_transformer.common import PAD
from wawa_transformer.common.files import LOCK, lock_holder
from wawa_transformer.common.messages import UserError
from wawa_transformer.data.batching import Batch
from wawa_transformer.run import distributed
from wawa_transformer.run.run_dir import Run
from wawa_transformer.train import checkpoint, evaluation, loop, setup, trainer
from wawa_transformer.train.setup import TrainState, build_state
from wawa_transformer.train.trainer import train


class Torchrun(Script):
    """A script in two processes, which torchrun's agent starts again when one has died."""

    def work(self) -> None:
        here = {"rdzv_backend": "c10d", "rdzv_endpoint": "localhost:0", "run_id": "test"}
        launch = LaunchConfig(1, 1, 2, **here, max_restarts=1, start_method="fork")
        elastic_launch(launch, super().work)()


def test_two_processes_of_which_one_is_killed_train_the_run_of_one(tmp_path: Path) -> None:
    """Equal curves, weights and test up to rounding, from unequal shares of accumulated batches.

    torchrun starts both again after the kill; the curves hold every step once.
    """
    overrides = [
        *TINY, "trainer.steps=40", "trainer.grad_accum_steps=2", "trainer.eval_every=10",
        "trainer.batch_tokens=25", "trainer.label_smoothing=0.1",
    ]  # fmt: skip
    alone = configure(*overrides, f"output_dir={tmp_path}/alone")
    expected = train(alone)

    arguments = [*overrides, "study.name=two", f"output_dir={tmp_path}/two"]
    run = Run.from_config(configure(*arguments))
    agent = Torchrun("train.py", *arguments)
    while not run.checkpoint("last").exists() and agent.is_alive():
        time.sleep(0.01)
    main = re.match(r"process (\d+) ", lock_holder(run.directory / LOCK))
    assert main and not run.result_file.exists(), "too late to show anything"
    os.kill(int(main[1]), signal.SIGKILL)
    done = agent.end()
    # torch 2.14 logs how it noticed the kill.
    ours = "".join(line for line in done.stderr.splitlines(True) if "elastic" not in line)
    assert done.returncode == 0 and "Traceback" not in ours, done.stderr
    assert expected == Run.from_config(alone).result() and expected["processes"] == 1
    result = run.result()
    assert result and result["processes"] == 2
    assert result["flops_per_step"] == expected["flops_per_step"]
    assert_same_but_for_rounding(run, Run.from_config(alone))


def in_two_processes(work: Callable[[], object]) -> None:
    """``work()`` in two copies of this process that know each other as torchrun's do.

    A copy ends where its work ends: what Python does at its end may wait for a lock that a thread
    of this process held.
    """
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port, copies = free.getsockname()[1], []
    for rank in range(2):
        copies.append(os.fork())
        if copies[-1]:
            continue
        try:
            faulthandler.dump_traceback_later(100, exit=True)  # so that one that hangs says where
            os.environ |= {
                "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2",
                "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": str(port),
                "TORCHELASTIC_RUN_ID": "test", "TORCHELASTIC_RESTART_COUNT": "0",
            }  # fmt: skip
            work()
            os._exit(0)
        except BaseException:
            os.write(2, traceback.format_exc().encode())
            os._exit(1)
    assert [os.waitpid(copy, 0)[1] for copy in copies] == [0, 0]


def test_a_run_of_two_processes_that_was_stopped_ends_with_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Curves, weights and moments; in bf16 and with masks of dropout of each process's own."""
    monkeypatch.setattr(trainer, "peak_flops", lambda *_: 1e9)  # bf16 is slow where it is emulated

    def begun(name: str) -> DictConfig:
        given = ("trainer.steps=10", "trainer.eval_every=5", "model.dropout=0.1")
        given += ("trainer.bf16=true",)
        return configure(*TINY, *given, f"output_dir={tmp_path}/{name}")

    in_two_processes(lambda: train(begun("whole")))
    in_two_processes(lambda: train_until_saved(begun("stopped")))
    stopped, whole = (Run.from_config(begun(name)) for name in ("stopped", "whole"))
    assert checkpoint.load(stopped.checkpoint("last"))["step"] == 5
    in_two_processes(lambda: train(begun("stopped")))
    assert_same_bits(stopped, whole)


def test_ranks_of_other_configurations_do_not_train_one_run(tmp_path: Path) -> None:
    """torchrun hands all processes one command, but a wrapper need not."""

    def work() -> None:
        config = configure(*TINY, f"output_dir={tmp_path}")
        config.model.dropout = 0.1 * int(os.environ["RANK"])
        said = "the processes of torchrun were given different configurations"
        with pytest.raises(UserError, match=said):
            train(config)

    in_two_processes(work)
    assert not list(tmp_path.rglob("checkpoints")) and not list(tmp_path.rglob("result.json"))


def test_ranks_that_read_other_data_do_not_train_one_run(tmp_path: Path) -> None:
    """Machines may hold another text under one name; the rank says so and the run ends."""
    configs = {}
    for rank, last in (("0", "z"), ("1", "Z")):
        folder = tmp_path / rank
        folder.mkdir()
        lines = [f"a {word}\tb {word}" for word in "abcdefghijklmnopqrstuvwxy" * 3 + last]
        (folder / "a.tsv").write_text("\n".join(lines) + "\n", "utf-8")
        configs[rank] = configure(
            "task=text", f"task.data_dir={folder}", "task.source=a.tsv", "task.words=true",
            *(each for each in TINY if not each.startswith("task.")), f"output_dir={tmp_path}/runs",
        )  # fmt: skip

    def work() -> None:
        rank, load_data = os.environ["RANK"], setup.load_data
        setup.load_data = lambda config: load_data(configs[rank])
        said = ("another process of this run", r"process 1 has data (\S+), the main process (?!\1)")
        with pytest.raises(UserError, match=said[int(rank)]):
            train(configs["0"])

    in_two_processes(work)
    assert not list(tmp_path.rglob("checkpoints")) and not list(tmp_path.rglob("result.json"))


@given(rows=st.integers(1, 9), world=st.integers(1, 5))
def test_the_rows_of_a_batch_are_dealt_out(rows: int, world: int) -> None:
    """Each to one process; who gets none has a row to run and nothing to learn from it."""
    ids = torch.arange(4, 4 + rows * 2).view(rows, 2)
    batch = Batch(ids, ids, ids)
    parts = [batch.shard(rank, world) for rank in range(world)]
    assert all(len(part.source) for part in parts)
    assert sum(part.target_tokens for part in parts) == batch.target_tokens
    taught = torch.cat([part.target_out[part.target_out[:, 0] != PAD] for part in parts])
    assert sorted(taught.tolist()) == ids.tolist()


def test_each_example_is_scored_by_one_process(tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    """What three processes find adds up to what one finds, example by example."""
    config = tiny()
    run = Run.from_config(config)
    run.directory.mkdir(parents=True)
    state = build_state(config, run, None)
    monkeypatch.setattr(evaluation, "BATCH_TOKENS", 16)  # so that there are several batches
    whole = evaluation.evaluate(state.model, state.data.test)
    parts = []
    for rank in range(3):
        monkeypatch.setattr(distributed, "rank", lambda rank=rank: rank)
        monkeypatch.setattr(distributed, "world_size", lambda: 3)
        monkeypatch.setattr(distributed, "all_reduce_sum", lambda values: values)
        parts.append(evaluation.evaluate(state.model, state.data.test))
    for name, values in whole.items():
        np.testing.assert_array_equal(sum(part[name] for part in parts), values, err_msg=name)
        assert all(part[name].sum() < values.sum() or not values.sum() for part in parts)


def test_each_process_draws_masks_of_its_own(tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a run of two is continued by two: another number would draw others."""
    config = tiny("trainer.steps=9", "model.dropout=0.1")
    run = Run.from_config(config)
    run.directory.mkdir(parents=True)

    def of_process(rank: int, world_size: int) -> TrainState:
        monkeypatch.setattr(distributed, "rank", lambda: rank)
        monkeypatch.setattr(distributed, "world_size", lambda: world_size)
        return setup.restore(config, run)

    of_process(1, 2)
    second = torch.get_rng_state()
    state = of_process(0, 2)
    assert not torch.equal(torch.get_rng_state(), second)
    monkeypatch.setattr(distributed, "barrier", lambda: None)
    monkeypatch.setattr(distributed, "gather", lambda own: torch.stack((own, second)))
    setup.save_state(state)
    with pytest.raises(UserError, match="was begun by 2 processes, and this is one of 1: .*seed"):
        of_process(0, 1)


@pytest.mark.parametrize("other", [0, 1])
def test_what_one_process_says_all_hear(other: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal that reaches one process stops all; what was given to a sum stays as it was."""
    monkeypatch.setattr(distributed, "world_size", lambda: 2)
    monkeypatch.setattr(dist, "all_reduce", lambda values: values.add_(other))
    assert distributed.any_rank(True) and distributed.any_rank(False) == bool(other)
    given = torch.tensor([3])
    assert distributed.all_reduce_sum(given).item() == 3 + other and given.item() == 3


def test_gradients_are_exchanged_once_a_step(tiny) -> None:
    """Of three batches; a group of one process counts what it is given to exchange."""
    config = tiny("trainer.grad_accum_steps=3")
    state = setup.start_run(config, Run.from_config(config))
    batches = next(loop.batch_stream(state.data.train, state.trainer, 0, 0))
    exchanged: list[int] = []

    # A hook of annotated arguments would have to have them as objects.
    def count(_, bucket):
        exchanged.append(bucket.index())
        done = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        parallel = DistributedDataParallel(state.model)
        parallel.register_comm_hook(None, count)
        state.parallel_model = parallel
        loop.train_step(state, batches)
    finally:
        dist.destroy_process_group()
    assert exchanged == [0]


@pytest.mark.parametrize(
    ("script", "arguments"),
    [("train.py", ["-m", "seed=1,2"]), ("evaluate.py", ["run=none"])],
)
def test_torchrun_is_for_one_run(
    script: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Eight sweeps side by side in one folder are not what anybody wants."""
    for name, value in (("TORCHELASTIC_RUN_ID", "1"), ("RANK", "0"), ("WORLD_SIZE", "1")):
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    done = run_script(script, *arguments)
    assert done.returncode == 1
    assert "torchrun starts several processes for one run of" in done.stderr
    assert "Traceback" not in done.stderr and not list(tmp_path.rglob("config.yaml"))


def test_the_loss_of_another_process_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """And any other error keeps its own words. A group is ended, at best by all together."""
    names = ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT")
    for name, value in zip(names, "1210", strict=True):
        monkeypatch.setenv(name, value)
    assert (distributed.rank(), distributed.world_size()) == (0, 1), "as of a cluster's own"
    did: list[str] = []
    monkeypatch.setattr(distributed, "is_distributed", lambda: True)
    monkeypatch.setattr(distributed, "barrier", lambda: did.append("wait"))
    monkeypatch.setattr(distributed.dist, "rendezvous", lambda _: iter([(None, 0, 2)]))
    monkeypatch.setattr(distributed.dist, "init_process_group", lambda *_, **__: None)
    monkeypatch.setattr(distributed.dist, "destroy_process_group", lambda: did.append("end"))
    for said in ("[/gloo/tcp/pair.cc:537] Connection closed by peer", "NCCL communicator aborted"):
        with (
            pytest.raises(UserError, match="another process of this run has ended"),
            distributed.process_group("cpu"),
        ):
            raise RuntimeError(said)
    with pytest.raises(RuntimeError, match="shapes"), distributed.process_group("cpu"):
        raise RuntimeError("shapes do not fit")
    with distributed.process_group("cpu"):
        did.append("work")
    assert did == ["end", "end", "end", "work", "wait", "end"]


@pytest.mark.parametrize(("rank", "order"), [(0, ["work", "wait"]), (1, ["wait", "work"])])
def test_the_main_process_goes_first(
    rank: int, order: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    did: list[str] = []
    monkeypatch.setattr(distributed, "rank", lambda: rank)
    monkeypatch.setattr(distributed, "barrier", lambda: did.append("wait"))
    with distributed.main_first():
        did.append("work")
    assert did == order
