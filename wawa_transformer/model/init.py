"""Starting values of a model's parameters."""

import contextlib
import inspect
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from wawa_transformer.common.messages import UserError
from wawa_transformer.common.seeds import seed_for
from wawa_transformer.positional.base import Encoding


@contextlib.contextmanager
def draws_from(seed: int) -> Iterator[None]:
    """Let torch's own generator follow from ``seed`` for a while, and leave it as it was."""
    before = torch.get_rng_state()
    torch.default_generator.manual_seed(seed_for(seed, "start"))
    try:
        yield
    finally:
        torch.set_rng_state(before)


# Where torch's layers draw a start that nobody has asked for.
OWN = {layer.reset_parameters.__code__ for layer in (nn.Linear, nn.Embedding)}


class TorchsDraws(TorchFunctionMode):
    """Remember what torch's layers draw: another value is one that a fork has set."""

    def __init__(self) -> None:
        super().__init__()
        self.contents: set[int] = set()

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        frame = inspect.currentframe() if isinstance(result, Tensor) else None
        while frame and frame.f_code not in OWN:
            frame = frame.f_back
        if frame:  # its result may be the row of padding
            self.contents.add(content(result if result._base is None else result._base))
        return result

    def has(self, value: Tensor | None) -> bool:
        """True if a parameter, or what it was copied from, is as torch's layer has drawn it."""
        return value is not None and content(value) in self.contents


def content(value: Tensor) -> int:
    """Hash the values of a tensor; those without values, as on the meta device, are alike."""
    if value.is_meta or type(value) not in (Tensor, nn.Parameter):
        return 0
    return hash(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())


@contextlib.contextmanager
def initialise(model: nn.Module, seed: int, embedding_std: float | None = None) -> Iterator[None]:
    """Draw every starting value from (seed, parameter name), once ``model`` is built inside.

    Two models start with the same values in every parameter they share. Embeddings are N(0, 1/D)
    without ``embedding_std``: times sqrt(D) they have unit variance, as large as the encoding;
    N(0, 1) would drown it.
    Matrices are Xavier-uniform (Glorot and Bengio 2010), biases zero. What a fork sets while it
    builds, so that it is not as torch has drawn it, stays as it is.
    """
    if (device := torch.get_default_device()).type not in ("cpu", "meta"):
        raise UserError(
            f"torch's default device is {device} here, and starting values are drawn on the CPU, "
            f"as the same on every machine; build the model outside, and call .to({device.type!r})."
        )
    with TorchsDraws() as drawn:
        yield

    def generator_for(module: str, name: str) -> torch.Generator:
        return torch.Generator().manual_seed(seed_for(seed, f"{module}.{name}"))

    embeddings = [each.weight for each in model.modules() if isinstance(each, nn.Embedding)]
    with draws_from(seed):
        for name, module in model.named_modules():
            random = generator_for(name, "weight")
            torch.default_generator.manual_seed(random.initial_seed())  # for an edit without it
            match module:
                case nn.Embedding() if drawn.has(module.weight):
                    std = embedding_std or module.embedding_dim**-0.5
                    nn.init.normal_(module.weight, std=std, generator=random)
                # An output layer that is tied to an embedding keeps the embedding's values.
                case nn.Linear() if not any(module.weight is weight for weight in embeddings):
                    if drawn.has(module.weight):
                        nn.init.xavier_uniform_(module.weight, generator=random)
                    if drawn.has(module.bias):
                        nn.init.zeros_(module.bias)
    with draws_from(seed):  # for an encoding that draws without its generator
        for name, module in model.named_modules():  # last: it may hold an embedding of its own
            if isinstance(module, Encoding):
                module.reset_parameters(partial(generator_for, name))
