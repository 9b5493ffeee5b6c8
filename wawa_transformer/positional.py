"""Positional encodings, side by side.

Position enters a Transformer through exactly three doors: it is added to the embeddings
(:meth:`~NoEncoding.embed`), it rotates queries and keys (:meth:`~NoEncoding.rotate`), or it adds a
bias to the attention scores (:meth:`~NoEncoding.bias`). An encoding is a class that opens the
doors it uses; the base class leaves all three shut and is the no-encoding ablation.

Shapes: B batch, S sequence, D ``d_model``, H heads, Dh head width, Q queries, K keys.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

ENCODINGS: dict[str, type[NoEncoding]] = {}
# What the model, not the configuration, tells an encoding that asks for it in its __init__.
CONTEXT = ("d_model", "num_heads", "dropout", "causal")


class SequenceTooLong(ValueError):
    """A sequence reaches past the last position an encoding holds."""


class NoEncoding(nn.Module):
    """No positions at all; the base class of every encoding.

    Dropout stays: switching the encoding off must switch nothing else off, or the ablation
    measures two things at once.
    """

    max_positions: int | None = None  # the longest sequence it can serve; None: any

    def __init_subclass__(cls, kind: str, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        ENCODINGS[kind] = cls

    def __init__(self, dropout: float = 0.1) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)

    def embed(self, x: Tensor, offset: int = 0) -> Tensor:
        """Door 1: ``x (B,S,D)`` with positions ``offset … offset+S-1`` worked in; ``(B,S,D)``."""
        return x

    def rotate(self, q: Tensor, k: Tensor, offset: int = 0) -> tuple[Tensor, Tensor]:
        """Door 2: queries and keys ``(B,H,S,Dh)``, both starting at position ``offset``."""
        return q, k

    def bias(self, q: Tensor, k_len: int, offset: int = 0) -> Tensor | None:
        """Door 3: a bias broadcastable to ``(B,H,Q,K)`` for queries starting at ``offset``."""
        return None

    def forward(self, x: Tensor, offset: int = 0) -> Tensor:
        """``dropout(embed(x))``: ``(B,S,D) -> (B,S,D)``."""
        return self.dropout(self.embed(x, offset))

    def initialise(self, draw: Callable[[str], torch.Generator]) -> None:
        """Give every parameter its starting value from ``draw(parameter_name)``."""


ENCODINGS["none"] = NoEncoding


class PositionalEncoding(NoEncoding, kind="sinusoidal"):
    r"""The fixed sinusoidal encoding of Vaswani et al. 2017, section 3.5.

    .. math::
        PE(pos, 2i) = \sin(pos / 10000^{2i/d_{model}}), \quad
        PE(pos, 2i+1) = \cos(pos / 10000^{2i/d_{model}})

    Args:
        d_model: width D of the embeddings; odd widths end on a sine.
        max_len: positions in the table to begin with; a longer input grows it, since a formula
            has no last position.
        dropout: probability of zeroing an element of the sum.
    """

    pe: Tensor

    def __init__(self, d_model: int, max_len: int = 5000, dropout: float = 0.1) -> None:
        super().__init__(dropout)
        if d_model < 1 or max_len < 1:
            raise ValueError(f"d_model={d_model} and max_len={max_len} must both be at least 1")
        self.d_model = d_model
        # Not persistent: a checkpoint must load whatever max_len it was made with.
        self.register_buffer("pe", sinusoid_table(max_len, d_model), persistent=False)

    def embed(self, x: Tensor, offset: int = 0) -> Tensor:
        """``x (B,S,D)`` plus rows ``offset … offset+S-1`` of the table, in ``x.dtype``."""
        if x.ndim != 3 or x.size(-1) != self.d_model:
            raise ValueError(f"expected (batch, seq, d_model={self.d_model}), got {tuple(x.shape)}")
        end = offset + x.size(1)
        if end > self.pe.size(1):
            length = max(end, 2 * self.pe.size(1))  # doubling: growing one by one stays cheap
            self.pe = sinusoid_table(length, self.d_model).to(self.pe.device)
        return x + self.pe[:, offset:end].to(x.dtype)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> PositionalEncoding:
        # model.bfloat16() would round the table for good; follow the device, keep float32.
        table = self.pe
        super()._apply(fn, recurse)
        self.pe = table.to(self.pe.device)
        return self


def sinusoid_table(length: int, d_model: int) -> Tensor:
    """The table ``(1, length, d_model)``: formed in float64, returned in float32.

    In float32 the product position × frequency loses its last digits as positions grow; in bf16
    the angle would be off by more than a radian beyond position 256.
    """
    position = torch.arange(length, dtype=torch.float64).unsqueeze(1)  # (length, 1)
    even = torch.arange(0, d_model, 2, dtype=torch.float64)  # (ceil(D/2),)
    angle = position * torch.exp(even * (-math.log(10000.0) / d_model))  # (length, ceil(D/2))
    table = torch.empty(length, d_model, dtype=torch.float64)
    table[:, 0::2] = angle.sin()
    table[:, 1::2] = angle.cos()[:, : d_model // 2]  # an odd width has one cosine fewer
    return table.float().unsqueeze(0)


class LearnedEncoding(NoEncoding, kind="learned"):
    """A trained vector for each position (Gehring et al. 2017, section 3.1).

    Args:
        d_model: width D of the embeddings.
        max_len: positions in the table; a longer input raises :class:`SequenceTooLong`.
        dropout: probability of zeroing an element of the sum.
        init_std: standard deviation of the starting values. It decides how fast the table is
            learned: 1.0 matches token embeddings after their scaling by sqrt(D).
    """

    def __init__(
        self, d_model: int, max_len: int = 256, dropout: float = 0.1, init_std: float = 1.0
    ) -> None:
        super().__init__(dropout)
        self.max_positions = max_len
        self.init_std = init_std
        self.table = nn.Parameter(torch.empty(max_len, d_model))
        self.initialise(lambda name: torch.default_generator)

    def embed(self, x: Tensor, offset: int = 0) -> Tensor:
        """``x (B,S,D)`` plus rows ``offset … offset+S-1`` of the table, in ``x.dtype``."""
        end = offset + x.size(1)
        if end > self.table.size(0):
            raise SequenceTooLong(
                f"a sequence of {end} positions does not fit the learned table of "
                f"pe.max_len={self.table.size(0)}; set pe.max_len={end} or more and train again"
            )
        return x + self.table[offset:end].to(x.dtype)

    def initialise(self, draw: Callable[[str], torch.Generator]) -> None:
        nn.init.normal_(self.table, std=self.init_std, generator=draw("table"))


def build(kind: str, settings: dict[str, Any] | None = None, **context: Any) -> NoEncoding:
    """An encoding by name: ``settings`` from its YAML file, ``context`` from the model.

    Context a class does not ask for in its ``__init__`` is left out, so that a new encoding
    changes no other line.
    """
    if kind not in ENCODINGS:
        raise ValueError(f"pe={kind} does not exist; choose one of {', '.join(ENCODINGS)}")
    cls = ENCODINGS[kind]
    asked = inspect.signature(cls).parameters
    return cls(**{name: context[name] for name in context if name in asked}, **(settings or {}))
