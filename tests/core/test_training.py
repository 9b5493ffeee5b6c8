"""Tests of training: formulas of a step, the clock, errors, and the evaluation."""

import itertools
import math
import random
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import Mock

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from support import begun, configure
from tokenizers import Tokenizer, models
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from tqdm import tqdm

from wawa_transformer import Transformer
from wawa_transformer.common import BOS, EOS, PAD, UNK
from wawa_transformer.common.messages import UserError
from wawa_transformer.data.batching import Batch, batch_indices, collate
from wawa_transformer.data.load import Examples, check_vocabulary, load_data, to_ids
from wawa_transformer.data.tasks import Copy
from wawa_transformer.decode.greedy import greedy
from wawa_transformer.decode.strategies import Greedy
from wawa_transformer.decode.translation import hypotheses
from wawa_transformer.model.layers import FeedForward
from wawa_transformer.run.run_dir import Run
from wawa_transformer.run.signals import GracefulStop, Stopped
from wawa_transformer.train import checkpoint, evaluation, loop, setup, trainer
from wawa_transformer.train.load import load_model
from wawa_transformer.train.loop import batch_stream, train_loop, train_step
from wawa_transformer.train.optim import schedule
from wawa_transformer.train.trainer import check_decoding, flops_per_step, peak_flops, train


def smoothed_loss(model: Transformer, batch: Batch, smoothing: float) -> Tensor:
    """Compute the loss with torch's label smoothing, summed over real tokens, in nats."""
    logits = model(batch.source, batch.target_in).transpose(1, 2)  # (B,V,T)
    how: Any = dict(ignore_index=PAD, reduction="sum", label_smoothing=smoothing)
    return F.cross_entropy(logits, batch.target_out, **how)


def test_a_few_steps_of_the_loop_are_the_formulas(tiny) -> None:
    """Each training step equals the formulas of the papers.

    The formulas are token-weighted accumulation, clipping by the norm (Pascanu et al. 2013), AdamW
    with the Transformer paper's β (Loshchilov and Hutter 2019) and smoothing (Szegedy et al. 2016).
    A run consists of these steps and no others.
    """
    lr, decay, clip, smoothing, steps = 1e-3, 0.1, 3.0, 0.1, 6
    config = tiny(
        f"trainer.lr={lr}", f"trainer.weight_decay={decay}", f"trainer.grad_clip={clip}",
        f"trainer.steps={steps}", "trainer.grad_accum_steps=2", "trainer.batch_tokens=8",
        "trainer.warmup=0", "trainer.schedule=constant", "trainer.eval_every=6",
        f"trainer.label_smoothing={smoothing}",
    )  # fmt: skip
    state = begun(config)
    state.model.train()

    examples, size = state.data.train, state.data.tokenizer.get_vocab_size()
    model = Transformer(size, size, 16, 1, 2, 32, dropout=0.0, seed=config.seed)
    order = list(batch_indices(examples.sizes, 8, config.seed, 0, False))
    weights = dict(model.named_parameters())
    first = {name: torch.zeros_like(p) for name, p in weights.items()}
    second = {name: torch.zeros_like(p) for name, p in weights.items()}
    norms, unequal = [], False
    for step in range(1, steps + 1):
        batches = [collate(examples, indices) for indices in order[2 * step - 2 : 2 * step]]
        unequal |= len({batch.target_tokens for batch in batches}) > 1
        tokens = sum(batch.target_tokens for batch in batches)
        losses = [smoothed_loss(model, batch, smoothing) for batch in batches]
        loss = torch.stack(losses).sum() / tokens
        of_loss = torch.autograd.grad(loss, list(weights.values()))
        gradients = dict(zip(weights, of_loss, strict=True))
        norms.append(math.sqrt(sum(float(g.square().sum()) for g in gradients.values())))
        with torch.no_grad():
            nll = torch.stack([smoothed_loss(model, batch, 0.0) for batch in batches]).sum()
            for name, p in weights.items():
                g = gradients[name] * min(1.0, clip / norms[-1])
                first[name] = 0.9 * first[name] + 0.1 * g
                second[name] = 0.98 * second[name] + 0.02 * g.square()
                mean, square = first[name] / (1 - 0.9**step), second[name] / (1 - 0.98**step)
                p -= lr * (decay * p + mean / (square.sqrt() + 1e-8))
        found = torch.stack(train_step(state, batches))
        expected = [loss.item(), nll.item() / tokens, norms[-1]]
        torch.testing.assert_close(found, torch.tensor(expected), rtol=1e-4, atol=0)
    assert unequal and min(norms) < clip < max(norms), "some steps must be clipped and some not"
    for name, value in state.model.named_parameters():
        # A key's bias changes no score, so its gradient is rounding noise.
        if not name.endswith("in_proj.bias"):
            torch.testing.assert_close(value, weights[name], rtol=0, atol=lr / 50, msg=name)

    train(config)
    trained = checkpoint.load(Run.from_config(config).checkpoint("last"))
    assert trained["step"] == state.step and trained["target_tokens"] == state.target_tokens
    for name, value in state.model.state_dict().items():
        assert torch.equal(value, trained["model"][name]), name
    [*_, logged] = (row for row in trained["metrics"] if "lr" in row)
    assert [logged[key] for key in ("loss", "nll", "grad_norm")] == pytest.approx(expected, 1e-4)


def test_the_clock_counts_training_alone(tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tiny("trainer.steps=12", "trainer.eval_every=5", "trainer.log_every=2")
    Run.from_config(config).directory.mkdir(parents=True)
    state, now, tracker = begun(config), 0.0, Mock()

    def takes(seconds: float, work: Any) -> Any:
        def timed(*arguments: Any) -> Any:
            nonlocal now
            now += seconds
            return work(*arguments)

        return timed

    monkeypatch.setattr(loop, "time", SimpleNamespace(perf_counter=lambda: now))
    monkeypatch.setattr(loop, "train_step", takes(1, loop.train_step))
    monkeypatch.setattr(loop, "validate", takes(100, loop.validate))
    tokens = [0]
    for batches in itertools.islice(batch_stream(state.data.train, config.trainer, 0, 0), 12):
        tokens.append(tokens[-1] + sum(batch.target_tokens for batch in batches))
    train_loop(state, tracker, tqdm(disable=True), GracefulStop())
    assert now == 12 + 3 * 100 and state.seconds == 12
    begin = {2: 0, 4: 0, 5: 0, 6: 5, 8: 5, 10: 5, 12: 10}  # step -> step of the validation before
    logged = [(call.args[0], call.kwargs) for call in tracker.scalars.call_args_list]
    speeds = [(step, row["tokens_per_second"]) for step, row in logged if "lr" in row]
    assert speeds == [(n, (tokens[n] - tokens[i]) / (n - i)) for n, i in begin.items()]
    monkeypatch.setattr(loop.distributed, "any_rank", lambda asked: True)
    state.step = 0
    with pytest.raises(Stopped, match="by another process at step 1 of 12"):
        train_loop(state, tracker, tqdm(disable=True), GracefulStop())
    assert state.seconds == 12 + 1


@pytest.fixture
def state(tiny) -> setup.TrainState:
    """Build a run at step 0, with its folder."""
    config = tiny()
    Run.from_config(config).directory.mkdir(parents=True)
    return begun(config)


def saved(state: setup.TrainState) -> dict[str, Any]:
    """Write a run's checkpoint, and read it."""
    setup.save_state(state)
    return checkpoint.load(state.run.checkpoint("last"))


def one_step(state: setup.TrainState) -> tuple[Tensor, ...]:
    return train_step(state, next(batch_stream(state.data.train, state.trainer, 0, state.step)))


SCHEDULES: dict[str, Callable[[int], float]] = {  # of 0-based steps after the warmup
    "linear": lambda step: (50 - step) / 40,
    "cosine": lambda step: (1 + math.cos(math.pi * (step - 10) / 40)) / 2,
    "inverse_sqrt": lambda step: (10 / (step + 1)) ** 0.5,
    "constant": lambda step: 1.0,
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_rise_to_the_peak_and_follow_their_formulas(name: str) -> None:
    trainer = configure(f"trainer.schedule={name}", "trainer.steps=50", "trainer.warmup=10").trainer
    rates = [schedule(step, trainer) for step in range(50)]
    assert rates[:10] == pytest.approx([(i + 1) / 10 for i in range(10)])
    assert rates[10:] == pytest.approx([SCHEDULES[name](step) for step in range(10, 50)])
    trainer.warmup = 0
    rates = [schedule(step, trainer) for step in range(50)]
    assert rates[0] == max(rates) == 1


@pytest.mark.parametrize("edit", ["merged_attention", "share_layers", "gated", "head"])
def test_the_operations_of_a_step_are_those_of_its_products(
    edit: str, tiny, after_init: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The count equals torch's counter over forward and backward, also with a layer of a fork."""
    model = "pe=none" if edit in ("gated", "head") else f"model.{edit}=true"
    if edit == "gated":
        after_init(FeedForward, lambda self: setattr(self, "gate", nn.Linear(16, 32)))
        monkeypatch.setattr(
            FeedForward, "forward", lambda self, x: self.outer(self.gate(x) * self.inner(x))
        )
    if edit == "head":
        head = nn.Sequential(nn.Linear(16, 8), nn.GELU(), nn.Linear(8, 9))
        after_init(Transformer, lambda self: setattr(self, "output", head))
    config = tiny("trainer.grad_accum_steps=2", "trainer.steps=5", "model.num_layers=2", model)
    state = begun(config)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        for batch in next(batch_stream(state.data.train, config.trainer, 0, 0)):
            state.model(batch.source, batch.target_in).sum().backward()
    assert flops_per_step(state) == counter.get_total_flops()


def test_a_finished_run_is_found_with_its_costs_and_not_trained_again(tiny, monkeypatch) -> None:
    """MFU is operations over time over what the machine can."""
    monkeypatch.setattr(trainer, "peak_flops", lambda device, bf16: 1e9)
    config = tiny()
    result = train(config)
    expected = result["flops_per_step"] * result["steps"] / result["seconds"] / 1e9
    assert result["mfu"] == pytest.approx(expected)
    run = Run.from_config(config)
    last, path = checkpoint.load(run.checkpoint("last")), run.result_file
    assert result["parameters"] == sum(each.numel() for each in last["model"].values())
    assert result["tokens_per_second"] == last["target_tokens"] / last["seconds"]
    assert (result["train_min_length"], result["train_max_length"]) == (1, 4)
    [*_, validated] = (row for row in run.metrics() if row["split"] == "validation")
    assert result["validation"]["nll"] == pytest.approx(validated["nll"])
    stamp = path.stat().st_mtime_ns
    assert train(config) == result and path.stat().st_mtime_ns == stamp


def test_each_group_of_parameters_keeps_its_own_peak(tiny, monkeypatch) -> None:
    """As a fork's ``adamw`` gives it; also where a run goes on from a checkpoint."""

    def two_rates(parameters: Any, trainer: Any) -> torch.optim.Optimizer:
        first, *rest = parameters
        return torch.optim.AdamW([{"params": [first], "lr": 0.5}, {"params": rest}], lr=0.1)

    monkeypatch.setattr(setup, "adamw", two_rates)
    config = tiny("trainer.steps=2", "trainer.schedule=constant", "trainer.warmup=1")
    state, again = begun(config), begun(config)
    for _ in range(2):
        one_step(state)
    assert [group["lr"] for group in state.optimizer.param_groups] == [0.5, 0.1]
    again.optimizer.load_state_dict(state.optimizer.state_dict())
    one_step(again)
    assert [group["lr"] for group in again.optimizer.param_groups] == [0.5, 0.1]


def test_a_step_in_bf16_is_another_one(tiny) -> None:
    """Within rounding; else the key would have no effect, and give the run another folder."""
    losses = [one_step(begun(tiny(f"trainer.bf16={bf16}")))[0] for bf16 in ("true", "false")]
    assert 0 < abs(losses[0] - losses[1]) < 0.1


def test_what_an_edit_adds_to_the_state_is_resumed(
    state: setup.TrainState, capsys: pytest.CaptureFixture[str]
) -> None:
    """A mean of weights that a step begins, a number, an object of torch; others are named."""
    again = begun(state.config)
    for each in (state, again):
        each.norm, each.decay = nn.BatchNorm1d(2), 0.0
    state.mean, state.decay = {"weight": torch.ones(2)}, 0.5
    state.norm(torch.ones(3, 2))
    # Torch would write them and not read them.
    state.recent, state.counted = {np.float64(0.5): 1}, Counted(1, 2)
    setup.restore_state(again, saved(state))
    assert again.mean["weight"].tolist() == [1, 1] and again.decay == 0.5
    assert again.norm.num_batches_tracked == 1
    assert "recent of the training state begins anew" in capsys.readouterr().err


def test_an_object_that_a_step_makes_is_told_where_it_belongs(state: setup.TrainState) -> None:
    """As a mean of weights that is not there yet when a resumed run is built."""
    again = begun(state.config)
    state.mean = torch.optim.swa_utils.AveragedModel(state.model)
    kept = saved(state)
    with pytest.raises(UserError, match="mean of the training state is an object .*__post_init__"):
        setup.restore_state(again, kept)
    again.mean = torch.optim.swa_utils.AveragedModel(again.model)
    setup.restore_state(again, kept)


class Both(torch.optim.SGD):
    """An optimiser with others inside, without or with a state that holds them."""

    def __init__(self, parameters: Any, inside: Any) -> None:
        super().__init__(parameters)
        self.inside = inside


class Holding(Both):
    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"inside": self.inside.state_dict()}


def test_an_optimiser_inside_that_no_checkpoint_holds_is_named(
    tiny, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Alone or in a list; torch's own optimisers hold all of their state."""
    weight = nn.Parameter(torch.ones(2))
    adam = torch.optim.AdamW([weight])
    for each in (torch.optim.Muon([nn.Parameter(torch.ones(2, 2))]), Holding([weight], adam), adam):
        setup.mention_unheld(each)
    assert not capsys.readouterr().err
    for inside in (adam, [adam]):
        monkeypatch.setattr(setup, "adamw", lambda given, _, own=inside: Both(given, own))
        begun(tiny())
        assert "inside of the optimiser would begin anew" in capsys.readouterr().err


class Counted(NamedTuple):
    """What only a program that has this class can read."""

    steps: int
    tokens: int


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (Counted(1, 2), r"test_training\.Counted in its optimizer"),
        (Path("a"), r"pathlib\..*Path"),
        (np.float64(1), r"numpy\..* in its optimizer"),
        (lambda: 1, ".*lambda"),
    ],
)
def test_a_checkpoint_that_could_not_be_read_is_not_written(
    value: Any, said: str, state: setup.TrainState
) -> None:
    """The last good one stays, and the object is named, as of an optimiser of one's own."""
    setup.save_state(state)
    state.optimizer.param_groups[0]["mine"] = value
    with pytest.raises(UserError, match=f"a checkpoint would hold .*{said}"):
        setup.save_state(state)
    assert checkpoint.load(state.run.checkpoint("last"))["optimizer"]


def test_an_edit_of_the_optimiser_acts_on_a_resumed_run(
    state: setup.TrainState, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a step has set of the optimiser, and nobody has edited, is resumed."""

    def edited(parameters: Any, trainer: Any) -> torch.optim.Optimizer:
        return torch.optim.AdamW(parameters, 0.5, (0.8, 0.99), weight_decay=trainer.weight_decay)

    state.optimizer.param_groups[0]["weight_decay"] = 0.25
    for _ in range(2):  # edited once, and resumed twice
        kept = saved(state)
        monkeypatch.setattr(setup, "adamw", edited)
        state = begun(state.config)
        setup.restore_state(state, kept)
        [group] = state.optimizer.param_groups
        assert (group["betas"], group["weight_decay"]) == ((0.8, 0.99), 0.25)


def test_sparse_gradients_are_refused_before_a_step(tiny, after_init: Any) -> None:
    after_init(Transformer, lambda self: setattr(self.src_embedding, "sparse", True))
    with pytest.raises(UserError, match="src_embedding is an Embedding with sparse=True"):
        begun(tiny())


def test_what_an_edit_adds_to_the_model_starts_from_the_seed(tiny, after_init: Any) -> None:
    """Alike for all encodings, wherever torch's own generator is."""
    after_init(Transformer, lambda self: setattr(self, "gain", nn.Parameter(torch.rand(()))))
    keys = ("pe=rotary", "pe=learned", "seed=1")
    one, other, another = (begun(tiny(key)).model.gain.item() for key in keys)
    assert one == other != another


def test_what_no_step_of_the_optimiser_changes_is_named(
    tiny, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Left out of its groups, or frozen; a frozen tensor may be in a group."""
    begun(tiny())
    assert "stay as they start" not in capsys.readouterr().err
    right = setup.adamw

    def groups(parameters: Any, trainer: Any) -> torch.optim.Optimizer:
        frozen, *others = parameters
        frozen.requires_grad_(False)
        return right([{"params": [frozen]}, {"params": others[:-1]}], trainer)

    monkeypatch.setattr(setup, "adamw", groups)
    begun(tiny())
    names = "tgt_embedding.weight, output.weight"
    said = capsys.readouterr().err
    assert "warning: 2 of the model's tensors stay as they start" in said and names in said


def test_a_note_about_speed_moves_no_dropout_mask() -> None:
    """It comes after the masks' generator was seeded, on some processors."""
    torch.manual_seed(5)
    peak_flops.__wrapped__(torch.device("cpu"), False)
    drawn = torch.rand(1)
    torch.manual_seed(5)
    assert torch.equal(drawn, torch.rand(1))


def test_what_python_and_numpy_draw_follows_from_the_seed_and_the_step(tiny, monkeypatch) -> None:
    """As a fork's token dropout in collate, also where a run goes on from a checkpoint."""
    drawn: list[tuple[float, float]] = []

    def step(state: setup.TrainState, batches: list[Batch]) -> tuple[Tensor, Tensor, Tensor]:
        drawn.append((random.random(), np.random.rand()))
        state.step += 1
        return torch.zeros(()), torch.zeros(()), torch.zeros(())

    monkeypatch.setattr(loop, "train_step", step)
    monkeypatch.setattr(loop, "validate", Mock())
    state = begun(tiny("trainer.steps=3"))
    for start in (0, 2):
        state.step = start
        train_loop(state, Mock(), tqdm(disable=True), GracefulStop())
    assert len(set(drawn)) == 3 and drawn[3] == drawn[2]


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (None, "returns None; return a Tokenizer"),
        (str.split, "returns <method 'split'"),
        # As that of another model, whose words training would read as padding or an end.
        (
            Tokenizer(models.WordLevel({"1": 0, "2": 1}, "1")),
            r"has \['1', '2', None, None\] as ids",
        ),
    ],
)
def test_what_is_no_tokenizer_with_special_ids_is_refused_by_its_class(
    made: Any, said: str, tiny, monkeypatch
) -> None:
    monkeypatch.setattr(Copy, "tokenizer", lambda *_: made)
    with pytest.raises(UserError, match=rf"^Copy.tokenizer\(\) {said}"):
        load_data(tiny("task=copy"))


def test_a_generated_word_outside_the_vocabulary_is_refused(tiny, monkeypatch) -> None:
    """Else every answer is one unknown word, and right; of any split and on either side."""
    data = load_data(tiny("task=copy"))
    for split, side in itertools.product(("train", "validation", "test"), ("source", "target")):
        one = getattr(data, split)
        ids = getattr(one, side).ids.copy()
        ids[-2] = UNK
        other = replace(one, **{side: replace(getattr(one, side), ids=ids)})
        with pytest.raises(UserError, match="makes words that"):
            check_vocabulary(replace(data, **{split: other}))
    monkeypatch.setattr(Copy, "target", lambda self, symbols: [str(sum(symbols))])
    with pytest.raises(UserError, match=r"task=copy makes words that Copy.vocabulary\(\) does not"):
        load_data(tiny("task=copy"))


def test_a_loss_that_is_not_finite_stops_the_run(tiny, monkeypatch) -> None:
    """The error names the step and the settings to lower."""
    config = tiny("trainer.steps=40", "trainer.lr=1e30", "trainer.warmup=30")
    config.trainer.warmup = 0
    with pytest.raises(UserError, match=r"step \d+; none was kept yet; .* trainer.lr=1e\+30, tra"):
        train(config)
    assert not (Run.from_config(config).directory / "result.json").exists()
    scores = evaluation.PLANTED | {"nll": np.array([np.nan, 0.1])}
    monkeypatch.setattr(loop, "evaluate", lambda *_: scores)
    with pytest.raises(UserError, match="the validation nll is nan at step 0; none was kept yet"):
        loop.validate(begun(config), Mock())


def test_distances_that_training_never_shows_are_named(tiny, capsys) -> None:
    """A relative window wider than the data gives only a warning."""
    begun(tiny("pe=shaw", "pe.max_distance=30"))
    said = "warning: pe.max_distance=30 reaches past the farthest .* 4: .* set pe.max_distance=4"
    assert re.search(said, capsys.readouterr().err)
    begun(tiny("pe=shaw", "pe.max_distance=4"))
    assert "warning" not in capsys.readouterr().err


def test_exact_match_is_that_of_greedy_decoding(tiny) -> None:
    """Teacher-forced exact match equals that of greedy decoding, example by example."""
    config = tiny("trainer.steps=100", "trainer.eval_every=100", "trainer.lr=1e-2")
    train(config)
    model, tokenizer, _ = load_model(Run.from_config(config))
    with torch.no_grad():  # where A is right, padding and BOS would win, which no decoder gives
        model.output.weight[[PAD, BOS]] = 2 * model.output.weight[tokenizer.token_to_id("A")]
    examples = load_data(config).test
    scores = evaluation.evaluate(model, examples)
    exact = scores["correct"] == scores["tokens"]
    right = scores["oracle"] == scores["tokens"] - 1
    assert (right >= exact).all()
    assert 0 < exact.mean() <= right.mean() < 1, "a model that is sometimes right shows more"
    for i, target in enumerate(examples.target):
        out = greedy(model, collate(examples, [i]).source, max_length=20)[0].tolist()
        assert (out == target[1:].tolist()) == exact[i]
        prefix = [BOS]
        for _ in range(len(target) - 2):
            logits = model(examples.source[i][None], torch.tensor([prefix]))[0, -1]
            logits[[PAD, BOS, EOS]] = -torch.inf
            prefix.append(int(logits.argmax()))
        assert (prefix == target[:-1].tolist()) == right[i]


def test_a_causal_encoder_has_no_ceiling(tiny) -> None:
    config = tiny("task=reverse", "trainer.steps=1", "model.encoder_mask=causal")
    for row in train(config)["by_length"]:
        assert row["ceiling"] is None and row["new"]["ceiling"] is None


def test_the_ceiling_on_new_sources_counts_what_training_left(tiny) -> None:
    """Without positions a model knows one order of each multiset, which may be a new one."""
    config = tiny("task=reverse", "trainer.steps=1")
    trained_on = set(begun(config).data.train.text["source"])
    symbols = [str(n) for n in range(1, config.task.symbols + 1)]
    for row in train(config)["by_length"][:4]:
        every = itertools.product(symbols, repeat=row["length"])
        new = [source for source in every if " ".join(source) not in trained_on]
        multisets = {tuple(sorted(source)) for source in new}
        share = len(multisets) / len(new) if new else None
        assert row["new"]["ceiling"] == (pytest.approx(share) if new else None)
        if row["length"] == 3:  # some sources of this length were trained on, and some were not
            assert row["new"]["ceiling"] > row["ceiling"]


def test_nll_is_a_mean_over_tokens() -> None:
    scores = {
        "nll": np.array([1.0, 8.0]), "tokens": np.array([1.0, 4.0]),
        "correct": np.array([0.0, 4.0]), "oracle": np.array([0.0, 3.0]),
    }  # fmt: skip
    found = evaluation.summarise(scores)
    assert found["nll"] == pytest.approx(1.8)
    assert found["token_accuracy"] == pytest.approx(0.8)
    assert (found["exact_match"], found["oracle_exact_match"]) == (0.5, 1)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        # The metric's values would take the place of a column.
        *(
            ({"name": name}, f" names {name}, which another metric, a score or a column of a table")
            for name in ("length", "tokens", "nll", "nll_new", "split", "loss")
        ),
        *(
            ({"of": lambda s, value=value: value}, ": mine returns .* it must return one number")
            for value in (None, "0.5", np.ones(2), 1j, [1.0])
        ),
        ({"name": "a/b"}, " names 'a/b'; columns and pictures are called by a metric's name"),
        ({"per": "sentences"}, ": mine has per='sentences'; give examples or tok"),
        ({"digits": -1}, ": mine has digits=-1; give a whole number"),
        ({"digits": 1.5}, ": mine has digits=1.5; give a whole number"),
        ({"top": 1}, ": mine returns -4.55, and with top=1 its values are from 0 to that"),
    ],
)
def test_a_metric_that_a_table_cannot_hold_is_refused(
    given: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = {"name": "mine", "label": "mine", "of": lambda s: -s["nll"].mean()}
    own = evaluation.Metric(**{**usual, **given})
    monkeypatch.setattr(evaluation, "METRICS", (*evaluation.METRICS, own))
    with pytest.raises(UserError, match=f"METRICS{said}"):
        evaluation.summarise(evaluation.PLANTED)


def test_a_metric_cannot_change_what_others_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of an imported module, which divides in place; it is shown in plots and logs, too."""
    before = evaluation.summarise(evaluation.PLANTED)
    own = evaluation.Metric("mine", "mine", lambda s: s["nll"].__itruediv__(s["tokens"]).mean())
    monkeypatch.setattr(evaluation, "METRICS", (own, *evaluation.METRICS))
    after = evaluation.summarise(evaluation.PLANTED)
    assert {key: after[key] for key in before} == before
    assert own in evaluation.shown_metrics()


@pytest.mark.parametrize("edit", ["none", "a tag before sources", "another begin", "forward"])
def test_decoding_that_is_not_what_is_scored_is_said(
    edit: str, tiny, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An edit of batches or of ``forward`` that generated text does not have, before any step."""
    right = Transformer.forward

    def tagged(examples: Examples, indices: list[int]) -> Batch:
        batch = collate(examples, indices)
        return batch._replace(source=F.pad(batch.source, (1, 0), value=5))

    def begun_otherwise(*given: Any) -> dict[str, Any]:
        ids = to_ids(*given)
        return ids | {"target": [[4, *each[1:]] for each in ids["target"]]}

    if edit == "a tag before sources":
        monkeypatch.setattr(evaluation, "collate", tagged)
    elif edit == "another begin":
        monkeypatch.setattr("wawa_transformer.data.load.to_ids", begun_otherwise)
    elif edit == "forward":
        monkeypatch.setattr(Transformer, "forward", lambda *given: -right(*given))
    state = begun(tiny("task=letters"))
    asked = state.data.validation.first(8)
    every = hypotheses(state.model, state.data.tokenizer, asked.source, Greedy())
    check_decoding(state.model, asked, [best for best, *_ in every])
    assert ("exact match and NLL" in capsys.readouterr().err) == (edit != "none")
