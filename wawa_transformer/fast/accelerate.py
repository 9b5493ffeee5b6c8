"""Put the fast modules on a finished model, in place."""

import contextlib
import ctypes
import inspect

import torch
from torch import nn
from torch.optim import AdamW

from wawa_transformer.fast.attention import FastAttention
from wawa_transformer.fast.dropout import FastDropout
from wawa_transformer.fast.linear import FastLinear
from wawa_transformer.fast.loss import FastTransformer
from wawa_transformer.fast.positional import FastFIRE, FastRelative, FastRotary, FastShaw, FastXL
from wawa_transformer.model.attention import MultiHeadAttention
from wawa_transformer.model.transformer import Transformer
from wawa_transformer.positional.fire import FIRE
from wawa_transformer.positional.relative import RelativeEncoding
from wawa_transformer.positional.rotary import Rotary, RotaryKey, RotaryMix, RotaryQuery
from wawa_transformer.positional.shaw import ShawRelative
from wawa_transformer.positional.transformer_xl import TransformerXL

FAST: dict[type[nn.Module], type[nn.Module]] = {
    nn.Linear: FastLinear,
    nn.Dropout: FastDropout,
    MultiHeadAttention: FastAttention,
    Transformer: FastTransformer,
    Rotary: FastRotary,
    **{
        each: type(f"Fast{each.__name__}", (FastRotary, each), {})
        for each in (RotaryQuery, RotaryKey, RotaryMix)
    },
    ShawRelative: FastShaw,
    TransformerXL: FastXL,
    FIRE: FastFIRE,
}
REPLACED = ("distances", "all_distances", "distance_index", "expand_to_pairs")  # by FastRelative


def accelerate(model: nn.Module) -> None:
    """Replace the modules of a model on a CPU by faster ones, in place.

    Parameters, their names and settings stay. A model on another device stays as it is. Do not
    accelerate a model that will be compiled: a compiler fuses by itself.
    """
    if any(parameter.device.type != "cpu" for parameter in model.parameters()):
        return
    keep_memory()
    skip_compiler_import()
    for module in model.modules():
        module.__class__ = fast_class(type(module))


def fast_class(plain: type[nn.Module]) -> type[nn.Module]:
    """Look up the fast version of a class, or return the class."""
    if plain not in FAST and issubclass(plain, RelativeEncoding):
        own = (getattr(plain, name) is not getattr(RelativeEncoding, name) for name in REPLACED)
        if any(own):  # already fast, or it gives pairs their values in a way of its own
            return plain
        FAST[plain] = type(f"Fast{plain.__name__}", (FastRelative, plain), {})
    return FAST.get(plain, plain)


def skip_compiler_import() -> None:
    """Let AdamW work without importing torch's compiler, a second of every command.

    torch wraps these methods for the sake of optimizers that are compiled; none is here.
    """
    for name in ("step", "zero_grad", "add_param_group", "state_dict", "load_state_dict"):
        plain = inspect.unwrap(getattr(AdamW, name))
        setattr(AdamW, name, torch.no_grad()(plain) if name == "step" else plain)


def keep_memory() -> None:
    """Let the C library keep freed memory for the next tensor.

    glibc hands freed memory back whenever there is much of it, and takes it anew one zeroed page at
    a time: 40 thousand pages in a step of a model of 70 million parameters. Other C libraries have
    no such call.
    """
    trim_threshold, mmap_threshold = -1, -3  # malloc.h
    with contextlib.suppress(AttributeError, OSError, TypeError):
        library = ctypes.CDLL(None)
        library.mallopt(mmap_threshold, 2**25)  # the largest value glibc would choose by itself
        library.mallopt(trim_threshold, 2**31 - 1)
