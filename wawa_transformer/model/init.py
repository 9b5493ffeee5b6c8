"""Starting values of a model's parameters."""

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from wawa_transformer.common.limits import check_number
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


# What ``tensor.data`` and ``tensor.data = other`` call.
DATA = Tensor.data.__get__, Tensor.data.__set__  # type: ignore[attr-defined]


class CountsData(TorchFunctionMode):
    """Count a change through ``data``, which torch does not, as a version of the parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[tuple[Tensor, Tensor]] = []  # parameters, and their values before

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if function in DATA:
            self.taken.append((args[0], args[0].detach().clone()))
        return function(*args, **(kwargs or {}))

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        with torch.no_grad():
            for parameter, before in self.taken:
                if parameter.is_meta or not torch.equal(parameter, before):
                    parameter.copy_(parameter.clone())


def initialise(model: nn.Module, seed: int, embedding_std: float | None = None) -> None:
    """Draw every starting value from (seed, parameter name).

    Two models start with the same values in every parameter they share. Embeddings are N(0, 1/D)
    without ``embedding_std``: times sqrt(D) they have unit variance, as large as the encoding;
    N(0, 1) would drown it.
    Matrices are Xavier-uniform (Glorot and Bengio 2010), biases zero. What a fork's ``__init__``
    sets with ``nn.init``, under ``no_grad`` or through ``data``, stays as it is.
    """
    check_number("seed", seed, -(2**63), 2**63 - 1)

    def generator_for(module: str, name: str) -> torch.Generator:
        return torch.Generator().manual_seed(seed_for(seed, f"{module}.{name}"))

    embeddings = [each.weight for each in model.modules() if isinstance(each, nn.Embedding)]
    with draws_from(seed):
        linear, plain, padded = fresh()
        for name, module in model.named_modules():
            random = generator_for(name, "weight")
            torch.default_generator.manual_seed(random.initial_seed())  # for an edit without it
            match module:
                case nn.Embedding():
                    if not is_set(module.weight, plain if module.padding_idx is None else padded):
                        std = embedding_std or module.embedding_dim**-0.5
                        nn.init.normal_(module.weight, std=std, generator=random)
                # An output layer that is tied to an embedding keeps the embedding's values.
                case nn.Linear() if not any(module.weight is weight for weight in embeddings):
                    if not is_set(module.weight, linear):
                        nn.init.xavier_uniform_(module.weight, generator=random)
                    if module.bias is not None and not is_set(module.bias, linear):
                        nn.init.zeros_(module.bias)
    with draws_from(seed):  # for an encoding that draws without its generator
        for name, module in model.named_modules():  # last: it may hold an embedding of its own
            if isinstance(module, Encoding):
                module.reset_parameters(partial(generator_for, name))


def fresh() -> tuple[Tensor, Tensor, Tensor]:
    """Parameters as torch leaves them: of Linear, Embedding, and Embedding with padding."""
    plain, padded = (nn.Embedding(1, 1, index).weight for index in (None, 0))
    return nn.Linear(1, 1).weight, plain, padded


def is_set(value: Tensor, untouched: Tensor) -> bool:
    """True if a parameter was written more or less often than an ``untouched`` one."""
    return value._version != untouched._version
