"""Starting values of a model's parameters."""

import contextlib
from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor, nn

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


def initialise(model: nn.Module, seed: int, embedding_std: float | None = None) -> None:
    """Draw every starting value from (seed, parameter name).

    Two models start with the same values in every parameter they share. Embeddings are N(0, 1/D)
    without ``embedding_std``: times sqrt(D) they have unit variance, as large as the encoding;
    N(0, 1) would drown it.
    Matrices are Xavier-uniform (Glorot and Bengio 2010), biases zero. What a fork's ``__init__``
    sets with ``nn.init``, or under ``no_grad``, stays as it is.
    """
    check_number("seed", seed, -(2**63), 2**63 - 1)

    def generator_for(module: str, name: str) -> torch.Generator:
        return torch.Generator().manual_seed(seed_for(seed, f"{module}.{name}"))

    embeddings = [each.weight for each in model.modules() if isinstance(each, nn.Embedding)]
    for name, module in model.named_modules():
        match module:
            case nn.Embedding() if not is_set(module.weight, 1 + (module.padding_idx is not None)):
                std = embedding_std or module.embedding_dim**-0.5
                nn.init.normal_(module.weight, std=std, generator=generator_for(name, "weight"))
            # An output layer that is tied to an embedding keeps the embedding's values.
            case nn.Linear() if not any(module.weight is weight for weight in embeddings):
                if not is_set(module.weight):
                    nn.init.xavier_uniform_(module.weight, generator=generator_for(name, "weight"))
                if module.bias is not None and not is_set(module.bias):
                    nn.init.zeros_(module.bias)
    with draws_from(seed):  # for an encoding that draws without its generator
        for name, module in model.named_modules():  # last: it may hold an embedding of its own
            if isinstance(module, Encoding):
                module.reset_parameters(partial(generator_for, name))


def is_set(value: Tensor, writes: int = 1) -> bool:
    """True if a class has set a parameter after torch's own ``writes``."""
    return value._version != writes
