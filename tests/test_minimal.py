"""The model and training of scripts/minimal.py are the package's."""

import itertools
import random
import re
import runpy
import sys
from collections.abc import Callable, Iterator
from typing import Any

import minimal
import pytest
import torch
from support import SCRIPTS, configure
from torch import Tensor, nn

from wawa_transformer import Transformer
from wawa_transformer.data.batching import Batch
from wawa_transformer.decode.greedy import greedy
from wawa_transformer.model.masks import causal_mask
from wawa_transformer.train.loop import train_step
from wawa_transformer.train.optim import adamw, schedule
from wawa_transformer.train.setup import TrainState

FILE = SCRIPTS / "minimal.py"
every_encoding = pytest.mark.parametrize("pe", sorted(minimal.ENCODINGS))
Table = dict[int, tuple[float, float]]


@pytest.fixture
def double() -> Iterator[None]:
    """In float64, so that rounding hides no difference."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def run_main(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Table]:
    """``run_main(*arguments)``: exact match and ceiling by length, from the printed table."""

    def run(*arguments: str) -> Table:
        monkeypatch.setattr(sys, "argv", ["minimal.py", *arguments])
        minimal.main()
        rows = re.findall(r"^ *(\d+) +([\d.]+) +([\d.]+)$", capsys.readouterr().out, re.MULTILINE)
        return {int(length): (float(match), float(most)) for length, match, most in rows}

    return run


def in_package(name: str) -> str:
    """The package's name of a parameter of minimal.py, by the one renaming that is documented."""
    return re.sub(r"norms\.(\d)", r"residuals.\1.norm", name)


def counterpart(model: nn.Module, pe: str, *shape: float) -> Transformer:
    """The package's model with the same weights; a name that is missing on either side raises."""
    package = Transformer(minimal.VOCAB_SIZE, minimal.VOCAB_SIZE, *shape, pe=pe)
    package.load_state_dict({in_package(name): w for name, w in model.state_dict().items()})
    return package


def named(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {in_package(name): tensor for name, tensor in sorted(tensors.items())}


def gradients(model: nn.Module) -> dict[str, Tensor]:
    return named({name: p.grad.clone() for name, p in model.named_parameters()})


@every_encoding
def test_logits_and_gradients(double: None, pe: str) -> None:
    """Two layers, an odd width and padding on both sides. Dropout is at the same places."""
    shape = (15, 2, 3, 20, 0.25)  # d_model, num_layers, num_heads, d_ff, dropout
    model = minimal.Transformer(pe, *shape)
    for parameter in model.parameters():  # no bias is 0 and no norm is 1
        nn.init.normal_(parameter, std=0.5)
    package = counterpart(model, pe, *shape)
    source, target = minimal.make_batch(random.Random(0), [4, 1, 7], test=False)
    target_in, causal = target[:, :-1], causal_mask(target.size(1) - 1)
    direction = torch.randn(*target_in.shape, minimal.VOCAB_SIZE)
    outcomes = []
    for each, masks in ((model, ()), (package, (None, causal))):
        dropped: list[Tensor] = []
        for module in each.modules():
            if isinstance(module, nn.Dropout):
                assert module.p == 0.25
                module.p = 0.0
                module.register_forward_pre_hook(lambda _, x, dropped=dropped: dropped.append(x[0]))
        logits = each(source, target_in, *masks)
        (logits * direction).sum().backward()
        outcomes.append((logits, gradients(each), dropped))
    torch.testing.assert_close(*outcomes)


@every_encoding
def test_starting_values(pe: str) -> None:
    """Drawn as widely as the package's, and alike with every encoding under one seed."""
    torch.manual_seed(0)
    model = minimal.Transformer(pe)
    package = Transformer(13, 13, 64, 1, 4, 256, 0.0, pe=pe, seed=0)
    torch.manual_seed(0)
    without = dict(minimal.Transformer("none").named_parameters())
    for name, parameter in model.named_parameters():
        expected = package.get_parameter(in_package(name))
        assert parameter.std().item() == pytest.approx(expected.std().item(), rel=0.1), name
        assert parameter.mean().item() == pytest.approx(expected.mean().item(), abs=0.1), name
        assert name not in without or torch.equal(parameter, without[name]), name


@every_encoding
def test_training_steps(
    double: None, run_main: Callable[..., Table], monkeypatch: pytest.MonkeyPatch, pe: str
) -> None:
    """The steps of a run are the package's: loss, clipped gradients and updated weights."""
    config = configure("trainer.steps=3", "trainer.device=cpu")
    step_of_minimal, norms = minimal.train_step, []
    state: Any = None

    def clipped(optimizer: torch.optim.Optimizer, model: nn.Module, step: Callable[[], Any]) -> Any:
        """What ``step`` returns, and the gradients that its update is made of."""
        found: dict[str, Tensor] = {}
        hook = optimizer.register_step_pre_hook(lambda *_: found.update(gradients(model)))
        returned = step()
        hook.remove()
        return returned, found

    def both(model: nn.Module, optimizer, source: Tensor, target: Tensor, lr: float) -> Tensor:
        nonlocal state
        if state is None:
            model.output.weight.data *= 5  # or the first gradients would not be clipped
            package = counterpart(model, pe, 64, 1, 4, 256, 0.0)
            state = TrainState(
                config, None, None, torch.device("cpu"), package,
                adamw(package.parameters(), config.trainer),
            )  # fmt: skip
        loss, found = clipped(
            optimizer, model, lambda: step_of_minimal(model, optimizer, source, target, lr)
        )
        batches = [Batch(source, target[:, :-1], target[:, 1:])]
        with monkeypatch.context() as patch:
            # The package takes the loss in float32, which would hide a difference.
            patch.setattr(Tensor, "float", Tensor.double)
            (expected, _, norm), reference = clipped(
                state.optimizer, state.model, lambda: train_step(state, batches)
            )
        norms.append(norm.item())
        torch.testing.assert_close((loss, found), (expected, reference))
        torch.testing.assert_close(named(model.state_dict()), named(state.model.state_dict()))
        return loss

    monkeypatch.setattr(minimal, "train_step", both)
    monkeypatch.setattr(minimal, "LONGEST_TESTED", 1)
    run_main("--pe", pe, "--steps", "3")
    assert len(norms) == 3 and max(norms) > config.trainer.grad_clip


@pytest.mark.parametrize("steps", [1, 101])
def test_learning_rate(steps: int) -> None:
    trainer = configure(f"trainer.steps={steps}").trainer
    for step in range(steps):
        expected = trainer.lr * schedule(step, trainer)
        assert minimal.learning_rate(step, steps) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("pe", ["none", "sinusoidal"])
def test_a_short_run_shows_what_positions_do(
    run_main: Callable[..., Table], monkeypatch: pytest.MonkeyPatch, pe: str
) -> None:
    """Up to length 3 it learns new sources in 140 steps, and without positions the ceiling."""
    monkeypatch.setattr(minimal, "LONGEST_TRAINED", 3)
    monkeypatch.setattr(minimal, "LONGEST_TESTED", 4)
    table = run_main("--pe", pe, "--steps", "140", "--seed", "1")
    assert list(table) == [1, 2, 3, 4]
    for length in (1, 2, 3):
        match, most = table[length]
        if pe != "none":
            assert match >= 0.95
        else:
            assert most - 0.15 < match < most + 0.04  # chance on 1,000 sources


def sources(length: int, test: bool) -> set[tuple[int, ...]]:
    """Every source of a length: drawn so often that none is missed, but once in 10^6 times."""
    drawn, _ = minimal.make_batch(random.Random(0), [length] * 25 * 10**length, test)
    return {tuple(row) for row in drawn.tolist()}


@pytest.mark.parametrize("length", [1, 2])
def test_sources_and_ceiling(length: int) -> None:
    """A fifth of all sources is for the test, and none of it for training.

    Orderings of the same digits share an answer; so of the test sources as of all.
    """
    digits = range(minimal.FIRST_DIGIT, minimal.VOCAB_SIZE)
    every = {(*ids, minimal.EOS) for ids in itertools.product(digits, repeat=length)}
    tested, trained = sources(length, test=True), sources(length, test=False)
    assert tested | trained == every and not tested & trained
    assert len(tested) == len(every) // 5
    for *ids, _ in tested:
        assert sum(i - minimal.FIRST_DIGIT for i in ids) % 5 == 0
    for some in (every, tested):
        share = len({tuple(sorted(source)) for source in some}) / len(some)
        assert minimal.ceiling(length) == pytest.approx(share)


def test_targets_are_reversed_and_padded() -> None:
    source, target = minimal.make_batch(random.Random(0), [1, 5, 3], test=False)
    assert source.shape == (3, 6) and target.shape == (3, 7)
    for ids, answer, length in zip(source.tolist(), target.tolist(), [1, 5, 3], strict=True):
        digits = ids[:length]
        assert ids == [*digits, minimal.EOS, *[minimal.PAD] * (5 - length)]
        assert answer == [minimal.BOS, *digits[::-1], minimal.EOS, *[minimal.PAD] * (5 - length)]


def test_exact_match_is_that_of_greedy_decoding() -> None:
    """Half trained, without positions: some answers are right and others are not."""
    torch.manual_seed(0)
    model, rng = minimal.Transformer("none"), random.Random(0)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(100):
        lengths = [rng.randint(1, 3) for _ in range(32)]
        minimal.train_step(model, optimizer, *minimal.make_batch(rng, lengths, False), lr=2e-3)
    source, target = minimal.make_batch(rng, [1, 2, 3] * 50, test=True)
    decoded = greedy(counterpart(model, "none", 64, 1, 4, 256, 0.0), source, target.size(1))
    answers = [[*row, minimal.EOS][: row.index(minimal.EOS) + 1] for row in target[:, 1:].tolist()]
    given = [row[: len(answer)] for row, answer in zip(decoded.tolist(), answers, strict=True)]
    share = sum(map(list.__eq__, given, answers)) / len(answers)
    assert 0.2 < share < 0.8
    assert minimal.exact_match(model, source, target) == pytest.approx(share)
    assert model.training


@pytest.mark.parametrize("arguments", ["--pe rope", "--steps 0", "--device meta", "reverse"])
def test_a_mistake_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["minimal.py", *arguments.split()])
    with pytest.raises(SystemExit) as ended:
        minimal.main()
    said = capsys.readouterr()
    assert ended.value.code and not said.out
    assert said.err.startswith("minimal.py: error: ") and said.err.count("\n") == 1
    assert arguments.split()[0] in said.err


def test_the_file_is_small_and_needs_torch_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """At most 300 lines; importing it runs nothing."""
    text = FILE.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 300
    imported = set(re.findall(r"^ *(?:import|from) (\w+|\.)", text, re.MULTILINE))
    assert "torch" in imported and imported - {"torch"} <= sys.stdlib_module_names
    before = torch.get_rng_state()
    runpy.run_path(str(FILE), run_name="minimal")
    assert torch.equal(torch.get_rng_state(), before)
    assert capsys.readouterr() == ("", "")
