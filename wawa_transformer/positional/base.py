"""The contract of every positional encoding, their registry, and no encoding.

Position enters a Transformer in exactly three places. It is added to the embeddings
(:meth:`~Encoding.embed`), it rotates queries and keys (:meth:`~Encoding.rotate`), or it adds a bias
to the attention scores (:meth:`~Encoding.bias`). An encoding is a class that overrides what it
needs. The base class overrides nothing and is the ablation without positions.

Shapes: B batch, S sequence, D ``d_model``, H heads, Dh head width, Q queries, K keys.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from wawa_transformer.common.limits import MAX_WIDTH, check_limits, register
from wawa_transformer.common.messages import UserError

ENCODINGS: dict[str, type[Encoding]] = {}
ROLES = ("encoder", "decoder", "cross")
GeneratorFor = Callable[[str], torch.Generator]  # of a parameter, by its name


@dataclass(frozen=True, eq=False)
class Positions:
    """The positions of a batch's tokens.

    ``ids`` is int64 and broadcasts to (B,H,S). Usually it is ``0 … S-1`` for every row and head.
    Divided by a length it is float32, for encodings that are ``fractional``.
    Every whole id is less than ``end``, a plain number, so that no table's size waits for a GPU.
    ``consecutive``: the ids are ``start … end-1`` for every row and head.
    """

    ids: Tensor  # (1 or B, 1 or H, S)
    end: int
    start: int = 0
    consecutive: bool = False


def consecutive(length: int, start: int = 0, device: torch.device | None = None) -> Positions:
    """``start … start+length-1`` for every row and head."""
    end = start + length
    return Positions(torch.arange(start, end, device=device)[None, None], end, start, True)


@dataclass(frozen=True)
class EncodingContext:
    """What a model tells an encoding: its sizes and where the encoding is used.

    ``role`` is ``encoder``, ``decoder`` (which sees only the past), or ``cross``, between target
    queries and source keys. ``layer``, from 0 on, is None for an instance that serves all layers.

    Raises:
        ValueError: a size outside its limits, ``d_model`` not divisible by ``num_heads``.
    """

    d_model: int
    num_heads: int = 1
    dropout: float = 0.1
    role: str = "encoder"
    layer: int | None = None
    num_layers: int = 1

    def __post_init__(self) -> None:
        check_limits("d_model", self.d_model, True, least=1, most=MAX_WIDTH)
        check_limits("num_heads", self.num_heads, True, least=1, most=MAX_WIDTH)
        if self.d_model % self.num_heads:
            divisors = (str(h) for h in range(1, self.d_model + 1) if self.d_model % h == 0)
            raise UserError(
                f"model.d_model={self.d_model} is not divisible by model.num_heads="
                f"{self.num_heads}; choose model.num_heads from {', '.join(divisors)}."
            )
        check_limits("dropout", self.dropout, False, least=0, below=1)

    @property
    def causal(self) -> bool:
        """True if every key is at or before its query."""
        return self.role == "decoder"

    @property
    def head_width(self) -> int:
        """Dh, the width of a head's queries and keys before ``rotate``."""
        return self.d_model // self.num_heads


class Encoding(nn.Module):
    """The contract of every encoding. Methods you don't override leave position out.

    The arguments of ``__init__``, except the context, are the encoding's settings.
    ``configs/pe/NAME.yaml`` is checked against their names and types. ``__init__`` checks values
    before it makes a tensor, so that a construction under ``torch.device("meta")`` checks the
    settings and takes no memory.
    """

    kind = ""  # its name in the registry
    max_positions: int | None = None  # the number of positions it has; None: any number
    max_distance = 0  # the farthest distance with trained parameters of its own; 0: none
    uses_positions = True  # False if positions do not matter to it
    relative = False  # True if only differences of positions matter: rotation and bias alone
    headwise = True  # False if a head also uses the positions of other heads
    fractional = False  # True if positions need not be whole numbers
    content_independent = False  # True if the bias ignores q and k, so that all layers share it
    per_layer = False  # True if each layer has an instance of its own, which knows its layer
    added_before: Sequence[int] = (0,)  # the layers before which ``embed`` acts: the first

    def __init_subclass__(cls, kind: str | None = None, **kwargs: Any) -> None:
        """Register the class as ``kind``; without a kind it is an ordinary class."""
        super().__init_subclass__(**kwargs)
        if kind is not None:
            register(ENCODINGS, kind, cls)
            cls.kind = kind

    def __init__(self, context: EncodingContext) -> None:
        super().__init__()
        self.context = context
        self.acting_layers: Sequence[int] | None = None  # None: all
        # Every encoding has this dropout, so that the ablation switches nothing but positions off.
        self.dropout = nn.Dropout(context.dropout)

    def embed(self, x: Tensor, positions: Positions) -> Tensor:
        """Add positions to the embeddings ``x (B,S,D)``; ``(B,S,D)``."""
        return x

    def rotate(
        self, q: Tensor, k: Tensor, query: Positions, key: Positions
    ) -> tuple[Tensor, Tensor]:
        """Rotate queries ``(B,H,Q,Dh)`` and keys ``(B,H,K,Dh)`` by their positions.

        Both may get another width, equal for the two. Scores are divided by sqrt(Dh) whatever that
        width: for another scale, multiply the queries.
        """
        return q, k

    def bias(self, q: Tensor, k: Tensor, query: Positions, key: Positions) -> Tensor | None:
        """The bias added to ``q k^T / sqrt(Dh)``, broadcastable to ``(B,H,Q,K)``.

        ``q (B,H,Q,·)`` and ``k (B,H,K,·)`` are already rotated, and may be a part of a sequence.
        With ``content_independent`` only their shape and type may be used.
        """
        return None

    def of_layer(self, layer: int) -> Encoding | None:
        """The instance that acts in ``layer``; None where the encoding is left out."""
        return self if self.acting_layers is None or layer in self.acting_layers else None

    def forward(self, x: Tensor, positions: Positions | None = None) -> Tensor:
        """``dropout(embed(x))``: ``(B,S,D) -> (B,S,D)``, at positions ``0 … S-1`` by default."""
        return self.dropout(self.embed(x, positions or consecutive(x.size(1), device=x.device)))

    def reset_parameters(self, generator_for: GeneratorFor) -> None:
        """Draw every parameter's starting value from ``generator_for(parameter_name)``."""

    def check_length(self, longest: int) -> None:
        """Raise :class:`UserError` if ``longest`` positions cannot be served."""
        if self.max_positions is not None and longest > self.max_positions:
            raise UserError(
                f"a sequence of {longest} positions does not fit the {self.max_positions} of "
                f"pe.kind={self.kind}; give it {longest} or more, as by pe.max_len={longest} of a "
                f"learned table, and train again."
            )


class NoEncoding(Encoding, kind="none"):
    """No positions at all: the ablation that shows what they do."""

    uses_positions = False


NO_ENCODING = NoEncoding(EncodingContext(d_model=1))  # in an attention where no other one acts


class AbsoluteEncoding(Encoding):
    """An encoding that is added to the embeddings, also in other models than ours."""

    def __init__(self, d_model: int, dropout: float) -> None:
        super().__init__(EncodingContext(d_model, dropout=dropout))
        self.d_model = d_model

    def rows(self, table: Tensor, ids: Tensor) -> Tensor:
        """The row of ``table (R,D)`` for every token of ``ids (B,H,S)``: ``(B,S,D)``.

        If heads have positions of their own, pairs of dimensions take turns: the first pair has
        the first head's position, since what is added to an embedding has no heads.
        """
        if ids.size(1) == 1:
            return table[ids[:, 0]]
        column = torch.arange(self.d_model, device=ids.device)
        head = column // 2 % ids.size(1)
        return table[ids.transpose(1, 2)[..., head], column]  # (B,S,H) -> (B,S,D)
