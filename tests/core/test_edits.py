"""Tests that what you read is what runs: an edit of the model's code changes the loss."""

import copy
import dataclasses
import inspect
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any

import pytest
import torch
from omegaconf import DictConfig
from support import TINY, begun, trained
from torch import Tensor

import wawa_transformer
from wawa_transformer import Transformer, load
from wawa_transformer.data.load import Data, load_data
from wawa_transformer.model.masks import causal_mask
from wawa_transformer.positional.base import ENCODINGS
from wawa_transformer.run import config as run_config
from wawa_transformer.run.provenance import code_digest
from wawa_transformer.train import setup
from wawa_transformer.train.loop import batch_stream, train_step

ROOMS = tuple(f"{wawa_transformer.__name__}.{room}." for room in ("model", "positional"))
COPY = ["task=copy", "task.symbols=20", "task.max_length=9", "task.test_max_length=9"]
# An encoding and a number of symbols: a vocabulary has 25 ids, or 1,205.
RUNS = [("sinusoidal", 1200), ("rotary", 20), ("shaw", 1200), ("alibi", 20)]


def functions() -> Iterator[tuple[Any, str, FunctionType]]:
    """List every function of the two rooms, with its owner (a module or class) and name."""
    for name, module in list(sys.modules.items()):
        if not name.startswith(ROOMS):
            continue
        classes = [each for each in vars(module).values() if inspect.isclass(each)]
        for owner in (module, *classes):
            for attribute, value in list(vars(owner).items()):
                if isinstance(value, FunctionType) and str(value.__module__).startswith(ROOMS):
                    yield owner, attribute, value


def called(work: Callable[[], object]) -> dict[CodeType, bool]:
    """Run ``work``; for the code of every function called: does it return a tensor?"""
    codes: dict[CodeType, bool] = {}

    def note(frame: Any, event: str, result: Any) -> None:
        if event == "return" and frame.f_globals.get("__name__", "").startswith(ROOMS):
            codes[frame.f_code] = codes.get(frame.f_code, False) or has_tensor(result)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return codes


def edited(result: Any) -> Any:
    """Multiply every tensor in a function's result by 0."""
    if isinstance(result, Tensor):
        return result & False if result.dtype == torch.bool else result * 0
    if isinstance(result, tuple | list):
        return type(result)(map(edited, result))
    if dataclasses.is_dataclass(result) and not isinstance(result, type):
        fields = {field.name: getattr(result, field.name) for field in dataclasses.fields(result)}
        return dataclasses.replace(
            result, **{name: edited(value) for name, value in fields.items()}
        )
    return result


def has_tensor(result: Any) -> bool:
    """True if a function's result holds a tensor."""
    if isinstance(result, tuple | list):
        return any(map(has_tensor, result))
    if dataclasses.is_dataclass(result) and not isinstance(result, type):
        return any(has_tensor(getattr(result, each.name)) for each in dataclasses.fields(result))
    return isinstance(result, Tensor)


def first_loss(config: DictConfig) -> float:
    """Build a run's state as ``train.py`` does, and return the loss of its first step."""
    state = begun(config)
    state.model.train()
    batches = next(batch_stream(state.data.train, state.trainer, 0, 0))
    return train_step(state, batches)[0].item()


@pytest.fixture
def data(monkeypatch: pytest.MonkeyPatch) -> Callable[[DictConfig], Data]:
    """Make every state of a test share the data, and the digest of the unedited code.

    Either takes longer than a step.
    """

    def share(config: DictConfig) -> Data:
        loaded, digest = load_data(config), code_digest(config)
        monkeypatch.setattr(setup, "load_data", lambda *_: loaded)
        monkeypatch.setattr(setup, "code_digest", lambda *_: digest)
        return loaded

    return share


@pytest.mark.parametrize(("pe", "symbols"), RUNS)
def test_an_edit_of_any_function_changes_the_loss(
    pe: str, symbols: int, tiny, data, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every function that the model calls in a training step decides the loss of a run.

    The functions are those that a model calls which nothing but its own class has built. Each in
    turn is edited before a run is built: whatever tensors it returns are multiplied by 0. A
    function that returns no tensor, such as a check, has nothing to multiply.
    """
    cross = "same" if ENCODINGS[pe].relative else "none"
    config = tiny(f"pe={pe}", *COPY, f"task.symbols={symbols}", f"pe.cross={cross}")
    shared = data(config)
    words = shared.tokenizer.get_vocab_size()
    assert (words > 1000) == (symbols > 1000)
    model = Transformer(words, words, 16, 1, 2, 32, pe=pe, cross=cross)
    [batch] = next(batch_stream(shared.train, setup.TrainerConfig(**config.trainer), 0, 0))
    mask = causal_mask(batch.target_in.size(1))
    codes = called(
        lambda: model(batch.source, batch.target_in, tgt_mask=mask, targets=batch.target_out)
    )
    # What stands inside a function is a part of it.
    tensors = {code for code, some in codes.items() if some and "<locals>" not in code.co_qualname}
    found = [each for each in functions() if each[2].__code__ in tensors]
    assert {function.__code__ for _, _, function in found} == tensors and len(tensors) > 15

    before, without_effect = first_loss(config), []
    assert first_loss(config) == before
    for function in {function for _, _, function in found}:

        def edit(*args: Any, function: Any = function, **kwargs: Any) -> Any:
            return edited(function(*args, **kwargs))

        with monkeypatch.context() as patch:
            for owner, name, each in found:
                if each is function:  # a function is edited under every name it was imported by
                    patch.setattr(owner, name, edit)
            if first_loss(config) == before:
                without_effect.append(function.__qualname__)
    assert not without_effect


def test_a_loaded_model_answers_with_the_weights_it_has(tmp_path) -> None:
    """Weights may be changed in any way after the model has been used."""
    config = *TINY, "pe=transformer_xl", *COPY, "trainer.steps=2"
    model = load(trained(tmp_path, *config).directory).model
    ids = torch.randint(4, 20, (3, 7))
    fresh = copy.deepcopy(model)
    with torch.no_grad():
        before = [model(ids, ids) for _ in range(3)][-1]
        for parameter in model.parameters():
            parameter.data.mul_(0.5)
    fresh.load_state_dict(model.state_dict())
    with torch.no_grad():
        assert torch.equal(model(ids, ids), fresh(ids, ids))
        assert not torch.allclose(before, model(ids, ids), atol=0.1)


class Halved(Transformer):
    def decode(self, *given: Any, **named: Any) -> Tensor:
        return super().decode(*given, **named) / 2


def test_a_model_of_ones_own_is_the_one_that_is_loaded(tmp_path, monkeypatch) -> None:
    """A module of import= has put it in the one place that builds a run's model."""
    monkeypatch.setattr(run_config, "Transformer", Halved)
    run = trained(tmp_path, *TINY, *COPY, "trainer.steps=2")
    assert type(load(run.directory).model) is Halved


def test_a_run_patches_nothing_of_torch(tmp_path) -> None:
    """Training, loading and translating leave every function and class of torch as it is."""

    def seen() -> dict[tuple[str, str], int]:
        found = {}
        for name, module in list(sys.modules.items()):
            if name.split(".")[0] != "torch":
                continue
            for attribute, value in list(vars(module).items()):
                if inspect.isclass(value) and value.__module__.split(".")[0] == "torch":
                    methods = {each: id(of) for each, of in vars(value).items() if callable(of)}
                    found |= {(value.__qualname__, each): at for each, at in methods.items()}
                if callable(value):
                    found[name, attribute] = id(value)
        return found

    before = seen()
    load(trained(tmp_path, *TINY, "trainer.steps=2").directory).translate(["1 2"])
    after = seen()
    assert not [name for name, value in before.items() if after[name] != value]
