"""The loop: it learns, resumes bit for bit, weighs tokens rightly, and stops in time."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from conftest import SCRIPTS, TINY, configure, run_script
from torch.utils.tensorboard import SummaryWriter  # noqa: F401  (imported before the clock starts)
from wawa_transformer.train.results import flops

from wawa_transformer.common.schema import UserError
from wawa_transformer.common.special_ids import BOS, EOS
from wawa_transformer.data import load
from wawa_transformer.data.batching import collate
from wawa_transformer.data.load import load_data, tokenize_split
from wawa_transformer.data.text import build_task
from wawa_transformer.decode.greedy import greedy
from wawa_transformer.model.layers import FeedForward
from wawa_transformer.model.loss import cross_entropy
from wawa_transformer.model.transformer import Transformer
from wawa_transformer.run import device as run_device
from wawa_transformer.run.device import peak_matmul_flops
from wawa_transformer.run.run_dir import Run
from wawa_transformer.train import checkpoint, evaluation, loop
from wawa_transformer.train.loop import batch_stream
from wawa_transformer.train.optim import schedule
from wawa_transformer.train.setup import prepare
from wawa_transformer.train.trainer import train


def weights(directory: Path) -> dict[str, torch.Tensor]:
    return checkpoint.load(directory / "checkpoints" / "last.pt")["model"]


def test_a_killed_run_ends_with_the_same_weights(tiny, tmp_path: Path) -> None:
    """``kill -9`` in mid-training, the same command again: weights, metrics and result agree."""
    overrides = ["trainer.steps=300", "model.dropout=0.1", "trainer.eval_every=20"]
    whole = tiny(*overrides, f"output_dir={tmp_path}/whole")
    expected = train(whole)

    arguments = [*TINY, *overrides, f"output_dir={tmp_path}/killed"]
    directory = Run.of(configure(*arguments)).directory
    process = subprocess.Popen([sys.executable, str(SCRIPTS / "train.py"), *arguments])
    last = directory / "checkpoints" / "last.pt"
    while not last.exists() and process.poll() is None:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not (directory / "result.json").exists(), "killed too late to show anything"
    assert checkpoint.load(last)["step"] < 300

    again = run_script("train.py", *arguments)
    assert again.returncode == 0, again.stderr
    for name, value in weights(Run.of(whole).directory).items():
        assert torch.equal(value, weights(directory)[name]), name

    def curve(path: Path) -> list[dict[str, float]]:
        lines = (path / "metrics.jsonl").read_text().splitlines()
        return [
            {k: v for k, v in json.loads(line).items() if k != "tokens_per_second"}
            for line in lines
        ]

    assert curve(directory) == curve(Run.of(whole).directory)
    result = json.loads((directory / "result.json").read_text())
    assert result["by_length"] == expected["by_length"]


def test_a_finished_run_is_found_not_trained_again(tiny) -> None:
    """The second call returns the first one's result and touches nothing."""
    config = tiny()
    first = train(config)
    path = Run.of(config).directory / "result.json"
    stamp = path.stat().st_mtime_ns
    assert train(config) == first
    assert path.stat().st_mtime_ns == stamp


def test_a_sweep_trains_one_run_after_the_other(tmp_path: Path) -> None:
    """Each as it would be alone."""
    given = [*TINY, "study.name=swept"]
    done = run_script("train.py", "-m", *given, "pe=none,alibi", f"output_dir={tmp_path}")
    assert done.returncode == 0, done.stderr
    for pe in ("none", "alibi"):
        expected = train(configure(*given, f"pe={pe}", f"output_dir={tmp_path}/alone"))
        result = Run.of(configure(*given, f"pe={pe}", f"output_dir={tmp_path}")).result()
        assert result and result["by_length"] == expected["by_length"]


def test_data_order_depends_on_the_seed_alone(tiny) -> None:
    """Two encodings under one seed see the same batches; another seed sees others."""

    def batches(*overrides: str) -> list[torch.Tensor]:
        config = tiny(*overrides)
        task = build_task(config)
        data = task.dataset(config.seed)
        examples = tokenize_split(data["train"], task.tokenizer(data))
        steps = batch_stream(examples, config.trainer, config.seed, 0)
        return [next(steps)[0].source for _ in range(30)]

    ours = batches("pe=sinusoidal")
    assert all(torch.equal(a, b) for a, b in zip(ours, batches("pe=learned"), strict=True))
    assert not torch.equal(ours[0], batches("seed=1")[0])


def test_the_stream_continues_where_it_stopped(tiny) -> None:
    """Started at step n, the stream gives what a stream from 0 gives after n steps."""
    config = tiny("trainer.grad_accum_steps=2")
    task = build_task(config)
    data = task.dataset(0)
    examples = tokenize_split(data["train"], task.tokenizer(data))
    whole = batch_stream(examples, config.trainer, 0, 0)
    for _ in range(25):  # past the end of the first epoch
        next(whole)
    late = batch_stream(examples, config.trainer, 0, 25)
    for _ in range(5):
        for a, b in zip(next(whole), next(late), strict=True):
            assert torch.equal(a.source, b.source)


def test_accumulated_batches_weigh_every_token_alike() -> None:
    """Two unequal batches in one step give the gradient of their tokens' common mean."""
    model = Transformer(12, 12, 16, 1, 2, 32, dropout=0.0, seed=0).double()
    src, tgt = torch.randint(4, 12, (6, 5)), torch.randint(4, 12, (6, 4))
    tgt[3:, 2:] = 0
    target_in, target_out = tgt, tgt.roll(-1, 1)
    tokens = int((target_out != 0).sum())
    for part in (slice(0, 2), slice(2, 6)):
        (cross_entropy(model(src[part], target_in[part]), target_out[part]) / tokens).backward()
    accumulated = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    logits = model(src, target_in)
    real = target_out != 0
    log_probability = logits.float().log_softmax(-1)[real]
    (-log_probability.gather(1, target_out[real][:, None]).mean()).backward()
    for ours, expected in zip(accumulated, (p.grad for p in model.parameters()), strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-7)


def test_label_smoothing_is_a_mixture_with_the_uniform_distribution() -> None:
    """Held against the definition in float64."""
    logits, target = torch.randn(2, 3, 7), torch.tensor([[1, 2, 0], [3, 4, 5]])
    log_probability = logits.double().log_softmax(-1)
    real = target != 0
    nll = -log_probability.gather(2, target[..., None])[..., 0][real].sum()
    uniform = -log_probability.mean(-1)[real].sum()
    ours = cross_entropy(logits, target, label_smoothing=0.1).double()
    torch.testing.assert_close(ours, 0.9 * nll + 0.1 * uniform, rtol=1e-5, atol=1e-5)


def test_runs_that_differ_in_their_encoding_share_their_data(tiny) -> None:
    """Where a seed decides it, and nothing else; the numbers are those of data made anew."""
    data = load_data(tiny())
    assert load_data(tiny("pe=alibi", "trainer.lr=1e-4")) is data
    shared = train(tiny("pe=alibi", "run_dir=${output_dir}/shared"))
    assert load_data(tiny("pe=none")) is data
    for other in ("seed=1", "task.max_length=5", "task=sort"):
        data, another = load_data(tiny()), load_data(tiny(other))
        assert another.train.text[:] != data.train.text[:] and len(load.LAST) == 1
    alone = train(tiny("pe=alibi", "run_dir=${output_dir}/alone"))
    assert alone["by_length"] == shared["by_length"]


def test_a_text_is_read_again(tmp_path: Path) -> None:
    """It may be another one by the time of the next run."""
    found = []
    for word in ("one", "two"):
        for name in ("a.en", "a.de"):
            (tmp_path / name).write_text(f"{word} more\n" * 50)
        given = ["task=text", f"task.data_dir={tmp_path}", "task.source=a.en", "task.target=a.de"]
        config = configure(*given, "task.validation_size=5", "task.test_size=5")
        found.append(load_data(config).test.text["source"][0])
    assert found == ["one more", "two more"]


def test_the_operations_of_a_step_are_those_of_its_products(tiny) -> None:
    """Counted by torch, and by hand: forward once, backward twice, each product 2 m n k."""
    config = tiny("trainer.grad_accum_steps=2", "trainer.steps=5")
    run = Run.of(config)
    run.directory.mkdir(parents=True)
    training = prepare(config, run)
    batches = next(batch_stream(training.data.train, config.trainer, 0, 0))
    width, inner, words = 16, 32, training.data.tokenizer.get_vocab_size()
    expected = 0
    for batch in batches:
        rows, source, target = *batch.source.shape, batch.target_in.size(1)
        encoder = rows * source * (4 * width**2 + 2 * width * inner)
        decoder = rows * target * (6 * width**2 + 2 * width * inner + width * words)
        memory = rows * source * 2 * width**2  # keys and values of cross-attention
        scores = rows * width * 2 * (source**2 + target**2 + source * target)
        expected += 3 * 2 * (encoder + decoder + memory + scores)
    assert flops(training, batches) == expected


def test_utilisation_is_operations_over_time_over_what_the_machine_can(tiny, monkeypatch) -> None:
    """With a machine of a billion a second; and the real one's rate is that of a real product."""
    monkeypatch.setattr(loop, "matrix_rate", lambda device, bf16: 1e9)
    result = train(tiny())
    expected = result["flops_per_step"] * result["steps"] / result["seconds"] / 1e9
    assert result["utilisation"] == pytest.approx(expected)
    a = torch.ones(256, 256)
    started = time.perf_counter()
    for _ in range(20):
        a @ a
    slower = 20 * 2 * 256**3 / (time.perf_counter() - started)
    assert slower / 20 < peak_matmul_flops(torch.device("cpu")) < 20 * slower


@pytest.mark.parametrize("name", ["linear", "cosine", "inverse_sqrt", "constant"])
def test_schedules_rise_to_the_peak_and_never_above(name: str) -> None:
    """Warmup is linear, the peak is 1 at its end, and no later step exceeds it."""
    trainer = configure(f"trainer.schedule={name}", "trainer.steps=50", "trainer.warmup=10").trainer
    rates = [schedule(step, trainer) for step in range(50)]
    assert rates[:10] == pytest.approx([(i + 1) / 10 for i in range(10)])
    assert max(rates) <= 1.0
    assert all(a >= b for a, b in zip(rates[9:], rates[10:], strict=False))
    if name in ("linear", "cosine"):
        assert 0 < rates[-1] < 0.05


def test_a_loss_that_is_not_finite_stops_the_run(tiny) -> None:
    """The error names the step and what to lower; the last good checkpoint stays loadable."""
    config = tiny("trainer.steps=40", "trainer.lr=1e30", "trainer.warmup=30")
    config.trainer.warmup = 0
    with pytest.raises(UserError, match=r"step \d+; none was kept yet; .* trainer.lr=1e\+30, tra"):
        train(config)
    assert not (Run.of(config).directory / "result.json").exists()
    last = Run.of(config).checkpoint("last")
    if last.exists():
        assert all(v.isfinite().all() for v in checkpoint.load(last)["model"].values())


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB."),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"),
    ],
)
def test_memory_that_runs_out_is_answered_by_what_to_lower(
    error: RuntimeError, tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a card, and on a CPU, which has no class for it."""

    def full(*_: object) -> None:
        raise error

    monkeypatch.setattr(FeedForward, "forward", full)
    said = "memory of cpu ran out at trainer.batch_tokens=64; lower trainer.batch_tokens, and raise"
    with pytest.raises(UserError, match=said):
        train(tiny())


def test_a_compiler_that_is_missing_is_named(tiny) -> None:
    """As torch says it when it looks for one."""
    from torch._inductor import config as inductor

    with (
        inductor.patch({"cpp.cxx": (None, "/nowhere/g++")}),
        pytest.raises(UserError, match=r"finds no compiler here \(.*/nowhere/g\+\+.*install g"),
        run_device.translate_device_errors(tiny("trainer.compile=true"), torch.device("cpu")),
    ):
        torch.compile(lambda x: x + 1, dynamic=False)(torch.ones(3))


def test_what_has_no_fixed_order_is_refused_where_one_is_asked_for(
    tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The switch reaches torch, and what torch then refuses becomes the key; else it is a bug."""
    switched = []

    def unordered(*_: object) -> None:
        switched.append(torch.are_deterministic_algorithms_enabled())
        raise RuntimeError("cumsum_cuda_kernel does not have a deterministic implementation")

    monkeypatch.setattr(FeedForward, "forward", unordered)
    with pytest.raises(UserError, match="pe=sinusoidal needs .* set trainer.deterministic=false"):
        train(tiny("trainer.deterministic=true"))
    with pytest.raises(RuntimeError, match="cumsum_cuda_kernel"):
        train(tiny())
    assert switched == [True, False]


def test_exact_match_is_that_of_greedy_decoding(tiny) -> None:
    """Example by example, teacher-forced exactness equals greedy output equal to the target."""
    config = tiny("trainer.steps=150", "trainer.eval_every=150", "trainer.lr=1e-2")
    train(config)
    model, tokenizer, _ = checkpoint.load_model(Run.of(config))
    task = build_task(config)
    data = task.dataset(config.seed)
    examples = tokenize_split(data["validation"], tokenizer)
    scores = evaluation.evaluate(model, examples)
    exact = scores["correct"] == scores["tokens"]
    assert 0 < exact.mean() < 1, "a model that is sometimes right shows more"
    for i, target in enumerate(examples.target):
        out = greedy(model, collate(examples, [i]).source, max_length=20)[0].tolist()
        out = out[: out.index(EOS) + 1] if EOS in out else out
        assert (out == target[1:].tolist()) == exact[i]


def test_oracle_length_is_decoding_without_a_choice_of_the_end(tiny) -> None:
    """Greedy decoding that may not emit EOS, cut at the target's length, example by example."""
    config = tiny("trainer.steps=100", "trainer.eval_every=100", "trainer.lr=1e-2")
    train(config)
    model, tokenizer, _ = checkpoint.load_model(Run.of(config))
    examples = tokenize_split(build_task(config).dataset(config.seed)["test"], tokenizer)
    scores = evaluation.evaluate(model, examples)
    right = scores["oracle"] == scores["tokens"] - 1
    assert (right >= (scores["correct"] == scores["tokens"])).all()
    assert 0 < right.mean() < 1
    for i, target in enumerate(examples.target):
        prefix = [BOS]
        for _ in range(len(target) - 2):
            logits = model(examples.source[i][None], torch.tensor([prefix]))[0, -1]
            logits[EOS] = -torch.inf
            prefix.append(int(logits.argmax()))
        assert (prefix == target[:-1].tolist()) == right[i]


def test_distances_that_training_never_shows_are_named(tiny, capsys) -> None:
    """A relative window wider than the data is a warning with its consequence, not an error."""
    train(tiny("pe=shaw", "pe.max_distance=30", "trainer.steps=5"))
    assert re.search(
        r"warning: pe.max_distance=30 reaches past the farthest distance in the training data, 4: .* "
        r"set pe.max_distance=4 or less", capsys.readouterr().err,
    )  # fmt: skip
    train(tiny("pe=shaw", "pe.max_distance=4", "trainer.steps=5"))
    assert "warning" not in capsys.readouterr().err


@pytest.mark.parametrize("damage", ["cut", "flip", "another"])
def test_a_damaged_checkpoint_is_named_not_loaded(damage: str, tiny, tmp_path: Path) -> None:
    """Cut short, one bit flipped in a tensor, or one of something else."""
    config = tiny("trainer.steps=5")
    train(config)
    path = Run.of(config).checkpoint("last")
    weight = checkpoint.load(path)["model"]["output.weight"]
    content = bytearray(path.read_bytes())
    if damage == "cut":
        content = content[: len(content) // 2]
    elif damage == "flip":
        content[content.index(weight[0].numpy().tobytes())] ^= 1
    path.write_bytes(content)
    if damage == "another":  # whole, and its checksum right
        checkpoint.save(path, {"step": 3, "model": {"w": torch.arange(1000.0)}})
    with pytest.raises(UserError, match="is damaged; delete it"):
        checkpoint.load(path)


def test_dropout_is_the_same_whichever_encoding_is_chosen(tiny) -> None:
    """Paired runs draw the same masks: an encoding's own parameters do not shift the stream."""
    streams = []
    for pe in ("none", "learned"):
        config = tiny(f"pe={pe}", "model.dropout=0.1", "trainer.steps=5", "trainer.eval_every=5")
        train(config)
        state = checkpoint.load(Run.of(config).checkpoint("last"))
        streams.append(state["rng"])
    assert torch.equal(*streams)
