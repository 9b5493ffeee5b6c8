"""The model and training of scripts/minimal.py are the package's."""

from __future__ import annotations

import ast
import itertools
import random
import re
import runpy
import sys
from collections.abc import Iterator

import minimal
import pytest
import torch
from conftest import SCRIPTS
from torch import Tensor, nn

from wawa_transformer import Transformer
from wawa_transformer.decode.greedy import greedy
from wawa_transformer.model.loss import loss_and_nll
from wawa_transformer.model.masks import causal_mask
from wawa_transformer.run.config import TrainerConfig
from wawa_transformer.train.optim import adamw, schedule

FILE = SCRIPTS / "minimal.py"
every_encoding = pytest.mark.parametrize("pe", sorted(minimal.ENCODINGS))


@pytest.fixture
def double() -> Iterator[None]:
    """In float64, so that rounding hides no difference."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


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
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


@every_encoding
def test_logits_and_gradients(double: None, pe: str) -> None:
    """Two layers, an odd width and padding on both sides. Dropout is at the same places."""
    shape = (15, 2, 3, 20, 0.0)  # d_model, num_layers, num_heads, d_ff, dropout
    model = minimal.Transformer(pe, *shape)
    for parameter in model.parameters():  # no bias is 0 and no norm is 1
        nn.init.normal_(parameter, std=0.5)
    package = counterpart(model, pe, *shape)
    source, target = minimal.make_batch(random.Random(0), [4, 1, 7], test=False)
    target_in, causal = target[:, :-1], causal_mask(target.size(1) - 1)
    direction = torch.randn(*target_in.shape, minimal.VOCAB_SIZE)

    outcomes, dropped = [], []
    for each, inputs in (
        (model, (source, target_in)),
        (package, (source, target_in, None, causal)),
    ):
        seen: list[Tensor] = []
        for module in each.modules():
            if isinstance(module, nn.Dropout):
                module.register_forward_pre_hook(lambda _, args, seen=seen: seen.append(args[0]))
        logits = each(*inputs)
        (logits * direction).sum().backward()
        outcomes.append((logits, named(gradients(each))))
        dropped.append(seen)
    torch.testing.assert_close(*outcomes)
    torch.testing.assert_close(*dropped)


def test_dropout_is_what_was_asked_for() -> None:
    model = minimal.Transformer("none", dropout=0.25)
    every = [module.p for module in model.modules() if isinstance(module, nn.Dropout)]
    assert every and set(every) == {0.25}


@every_encoding
def test_starting_values(pe: str) -> None:
    """Drawn as widely as the package's, and alike with every encoding under one seed."""
    torch.manual_seed(0)
    model = minimal.Transformer(pe)
    package = Transformer(13, 13, 64, 1, 4, 256, 0.0, pe=pe, seed=0)
    spread = {name: p.std().item() for name, p in package.named_parameters()}
    mean = {name: p.mean().item() for name, p in package.named_parameters()}
    for name, parameter in model.named_parameters():
        assert parameter.std().item() == pytest.approx(spread[in_package(name)], rel=0.1), name
        assert parameter.mean().item() == pytest.approx(mean[in_package(name)], abs=0.1), name
    torch.manual_seed(0)
    for name, parameter in minimal.Transformer("none").named_parameters():
        assert torch.equal(model.get_parameter(name), parameter), name


def run_main(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str
) -> dict[int, tuple[float, float]]:
    """Exact match and ceiling by length, from the table that the script prints."""
    monkeypatch.setattr(sys, "argv", ["minimal.py", *arguments])
    minimal.main()
    rows = re.findall(r"^ *(\d+) +([\d.]+) +([\d.]+)$", capsys.readouterr().out, re.MULTILINE)
    return {int(length): (float(match), float(most)) for length, match, most in rows}


@every_encoding
def test_training_steps(
    double: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], pe: str
) -> None:
    """The steps of a run are the package's: loss, clipped gradients and updated weights."""
    trainer = TrainerConfig(steps=3)
    step_of_minimal = minimal.train_step
    package = reference = None
    norms: list[float] = []

    def both_steps(
        model: nn.Module, optimizer, source: Tensor, target: Tensor, lr: float
    ) -> Tensor:
        nonlocal package, reference
        if package is None:
            model.output.weight.data *= 5  # or the first gradients would not be clipped
            package = counterpart(model, pe, 64, 1, 4, 256, 0.0)
            reference = adamw(package.parameters(), trainer)
        clipped: dict[str, Tensor] = {}
        hook = optimizer.register_step_pre_hook(lambda *_: clipped.update(gradients(model)))
        loss = step_of_minimal(model, optimizer, source, target, lr)
        hook.remove()

        target_in, target_out = target[:, :-1], target[:, 1:]
        for group in reference.param_groups:
            group["lr"] = trainer.lr * schedule(len(norms), trainer)
        states = package(source, target_in, None, causal_mask(target_in.size(1)), logits=False)
        with monkeypatch.context() as patch:
            # The package takes the loss in float32, which would hide a difference.
            patch.setattr(Tensor, "float", Tensor.double)
            total, _ = loss_and_nll(states, package.output.weight, target_out)
        expected = total / (target_out != minimal.PAD).sum()
        expected.backward()
        norms.append(nn.utils.clip_grad_norm_(package.parameters(), trainer.grad_clip).item())
        torch.testing.assert_close(loss, expected.detach())
        torch.testing.assert_close(named(clipped), named(gradients(package)))
        reference.step()
        reference.zero_grad()
        torch.testing.assert_close(named(model.state_dict()), named(package.state_dict()))
        return loss

    monkeypatch.setattr(minimal, "train_step", both_steps)
    monkeypatch.setattr(minimal, "LONGEST_TESTED", 1)
    run_main(monkeypatch, capsys, "--pe", pe, "--steps", str(trainer.steps))
    assert len(norms) == trainer.steps and max(norms) > trainer.grad_clip
    assert {p.grad for p in package.parameters()} == {None}


@pytest.mark.parametrize("steps", [1, 99, 100, 101, 500])
def test_learning_rate(steps: int) -> None:
    trainer = TrainerConfig(steps=steps)
    for step in range(steps):
        expected = trainer.lr * schedule(step, trainer)
        assert minimal.learning_rate(step, steps) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("pe", ["sinusoidal", "learned", "none"])
def test_a_short_run_shows_what_positions_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], pe: str
) -> None:
    """Up to length 3 encodings learn new sources in 200 steps, and no encoding its ceiling."""
    monkeypatch.setattr(minimal, "LONGEST_TRAINED", 3)
    monkeypatch.setattr(minimal, "LONGEST_TESTED", 4)
    table = run_main(monkeypatch, capsys, "--pe", pe, "--steps", "200", "--seed", "1")
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
def test_sources(length: int) -> None:
    """A fifth of all sources is for the test, and none of it for training."""
    digits = range(minimal.FIRST_DIGIT, minimal.VOCAB_SIZE)
    every = {(*ids, minimal.EOS) for ids in itertools.product(digits, repeat=length)}
    assert sources(length, test=True) | sources(length, test=False) == every
    assert not sources(length, test=True) & sources(length, test=False)
    assert len(sources(length, test=True)) == len(every) // 5
    for *ids, _ in sources(length, test=True):
        assert sum(i - minimal.FIRST_DIGIT for i in ids) % 5 == 0


@pytest.mark.parametrize("length", [1, 2])
def test_ceiling(length: int) -> None:
    """Orderings of the same digits share an answer; so of the test sources as of all."""
    digits = itertools.product(range(10), repeat=length)
    for every in (list(digits), list(sources(length, test=True))):
        share = len({tuple(sorted(source)) for source in every}) / len(every)
        assert minimal.ceiling(length) == pytest.approx(share)


def test_what_a_run_draws(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Weights and sources follow the seed, and no source of the test is a trained one."""

    def drawn(*arguments: str) -> tuple[Tensor, list[list[int]], list[list[int]]]:
        trained, tested, weights = [], [], []

        def record(
            model: nn.Module, optimizer, source: Tensor, target: Tensor, lr: float
        ) -> Tensor:
            weights.append(model.output.weight)
            trained.extend([i for i in row if i != minimal.PAD] for row in source.tolist())
            return torch.zeros(())

        def record_test(model: nn.Module, source: Tensor, target: Tensor) -> float:
            tested.extend(source.tolist())
            return 0.0

        monkeypatch.setattr(minimal, "train_step", record)
        monkeypatch.setattr(minimal, "exact_match", record_test)
        run_main(monkeypatch, capsys, "--steps", "20", *arguments)
        return weights[0], trained, tested

    first, other = drawn("--seed", "1"), drawn("--seed", "2")
    same = drawn("--seed", "1", "--pe", "learned")
    assert torch.equal(first[0], same[0]) and first[1:] == same[1:]
    assert not torch.equal(first[0], other[0]) and first[1] != other[1] and first[2] != other[2]
    trained, tested = ({tuple(row) for row in rows} for rows in first[1:])
    assert {len(row) - 1 for row in trained} == set(range(1, minimal.LONGEST_TRAINED + 1))
    assert {len(row) - 1 for row in tested} == set(range(1, minimal.LONGEST_TESTED + 1))
    assert not trained & tested


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


MISTAKES = [
    ["--pe", "rope"], ["--steps", "0"], ["--steps", "many"], ["--seed", "-1"],
    ["--seed", str(2**63)], ["--device", "tpu"], ["--device", "meta"], ["--layers", "2"],
    ["reverse"],
]  # fmt: skip


@pytest.mark.parametrize("arguments", MISTAKES, ids=" ".join)
def test_a_mistake_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["minimal.py", *arguments])
    with pytest.raises(SystemExit) as ended:
        minimal.main()
    said = capsys.readouterr()
    assert ended.value.code and not said.out
    assert said.err.startswith("minimal.py: error: ") and said.err.count("\n") == 1
    assert arguments[0] in said.err


def test_the_file_is_small_and_needs_torch_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """At most 300 lines; importing it runs nothing."""
    text = FILE.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 300
    imported = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            imported.add(str(node.module).split(".")[0])
    assert "torch" in imported and imported - {"torch"} <= sys.stdlib_module_names
    before = torch.get_rng_state()
    runpy.run_path(str(FILE), run_name="minimal")
    assert torch.equal(torch.get_rng_state(), before)
    assert capsys.readouterr() == ("", "")
