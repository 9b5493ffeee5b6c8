"""Where an encoding acts: in which attentions, and in which layers."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from wawa_transformer.common.limits import check_choice
from wawa_transformer.common.messages import UserError
from wawa_transformer.positional.base import (
    ENCODINGS,
    ROLES,
    AbsoluteEncoding,
    Encoding,
    EncodingContext,
    Positions,
)

ATTENTION_METHODS = ("rotate", "bias")  # the methods that act inside a layer
METHODS = ("embed", *ATTENTION_METHODS)


@dataclass(frozen=True)
class Placement:
    """Where an encoding acts.

    Args:
        cross: the encoding of cross-attention: ``none``, as in most papers; ``same``, one more of
            the model's encoding; or the name of another encoding that relates two sequences.
        where: the attentions in which the model's encoding acts, of ``encoder``, ``decoder`` and
            ``cross``. An encoding that is added to embeddings is added in encoder or decoder. By
            default encoder and decoder, and cross-attention with ``cross=same``.
        layers: the layers in which it acts, from 0 on, in all three attentions; by default all.
            An encoding that is added to embeddings is added before each of them; by default before
            the first. Dehghani et al. 2018 (section 2.1) add positions before all layers.
        tie_sides: encoder and decoder share one instance, and so its parameters.

    Raises:
        ValueError: a name that does not exist, or two settings that contradict each other.
    """

    cross: str
    where: list[str] | None
    layers: list[int] | None
    tie_sides: bool

    def __post_init__(self) -> None:
        if self.where is None:
            return
        check_some("pe.where", self.where, ROLES)
        if self.cross != "none" and ("cross" in self.where) != (self.cross == "same"):
            raise UserError(
                f"pe.cross={self.cross} and pe.where={listed(self.where)} contradict each other "
                f"about cross-attention; leave one of them out."
            )

    def acts(self, role: str) -> bool:
        """True if the model's encoding acts in this attention."""
        if self.where is not None:
            return role in self.where
        return role != "cross" or self.cross == "same"


def check_some(key: str, given: Any, choices: Iterable[Any], source: str = "") -> None:
    """Refuse what is no list of different ``choices``, and an empty list.

    ``source`` names the key that the choices follow from.
    """
    these = [*choices]
    listed_once = isinstance(given, Sequence) and all(
        given.count(each) == 1 and each in these for each in given
    )
    if not given or not listed_once:
        raise UserError(
            f"{key}={listed(given)} must be a list of some of {', '.join(map(str, these))}"
            f"{source}, each of them once; where no encoding is to act choose pe=none."
        )


def listed(given: Any) -> str:
    """Write a list as on the command line."""
    return f"[{','.join(map(str, given))}]" if isinstance(given, (list, tuple)) else str(given)


def build_encoding(
    kind: str, context: EncodingContext, settings: dict[str, Any] | None = None
) -> Encoding:
    """One encoding ``kind``; ``settings`` are those of its YAML file."""
    check_choice("pe", kind, ENCODINGS)
    cls: Any = ENCODINGS[kind]
    given: tuple[Any, ...] = (context,)
    named = settings or {}
    if issubclass(cls, AbsoluteEncoding):  # of any model: it takes the width and the dropout
        given, named = (context.d_model,), {"dropout": context.dropout, **named}
    try:
        inspect.signature(cls).bind(*given, **named)
    except TypeError as error:
        raise UserError(
            f"{cls.__name__}.__init__ cannot be called ({error}); give it a context, for added "
            f"encodings d_model and dropout, and the settings of configs/pe/{kind}.yaml."
        ) from None
    encoding: Encoding = cls(*given, **named)
    if not hasattr(encoding, "context"):
        raise UserError(
            f"{cls.__name__}.__init__ must call super().__init__(context) before all else."
        )
    encoding.context = context  # of an added encoding, which was given the width alone
    return encoding


def build_encodings(
    kind: str,
    context: EncodingContext,
    settings: dict[str, Any] | None,
    placement: Placement,
) -> tuple[Encoding, Encoding, Encoding | None]:
    """The encodings of encoder, decoder and cross-attention.

    ``context`` has the model's sizes. Where the encoding does not act there is no encoding, which
    in cross-attention is None.

    Raises:
        ValueError: a name that does not exist, a setting that the encoding refuses, a placement
            that the model does not have or that would have no effect.
    """
    check_choice("pe", kind, ENCODINGS)
    kinds = {role: kind if placement.acts(role) else "none" for role in ROLES}
    if placement.cross not in ("none", "same"):
        kinds["cross"] = placement.cross
    if kinds["cross"] != "none":
        check_cross(kinds["cross"], placement)
    check_effect(kind, kinds, context.num_layers, placement)
    built = []
    for role in ROLES:
        own = settings if placement.acts(role) else None
        built.append(build_layers(kinds[role], replace(context, role=role), own, placement.layers))
    encoder, decoder, cross = built
    if placement.tie_sides:
        if not any(True for _ in encoder.parameters()):
            raise UserError(
                f"pe.tie_sides=true shares an encoding's trained numbers between source and "
                f"target, and pe.kind={kind} has none; leave it out."
            )
        decoder = encoder
    return encoder, decoder, None if kinds["cross"] == "none" else cross


def build_layers(
    kind: str, context: EncodingContext, settings: dict[str, Any] | None, layers: list[int] | None
) -> Encoding:
    """An encoding that acts in ``layers``, or with ``per_layer`` one for each of them."""
    if ENCODINGS[kind].per_layer:
        encoding: Encoding = PerLayer(
            {
                layer: build_encoding(kind, replace(context, layer=layer), settings)
                for layer in (range(context.num_layers) if layers is None else sorted(layers))
            }
        )
    else:
        encoding = build_encoding(kind, context, settings)
    encoding.acting_layers = layers
    if layers is not None and not acts_inside(kind):
        encoding.added_before = tuple(layers)
    return encoding


class PerLayer(Encoding):
    """The instances of an encoding with ``per_layer``, by their layer; the first one embeds."""

    def __init__(self, instances: dict[int, Encoding]) -> None:
        every = list(instances.values())
        super().__init__(every[0].context)
        for layer, each in instances.items():
            self.add_module(f"layer{layer}", each)
        self.kind, self.headwise = every[0].kind, every[0].headwise
        self.uses_positions, self.relative = every[0].uses_positions, every[0].relative
        self.fractional = every[0].fractional
        self.max_distance = max(each.max_distance for each in every)
        limits = [each.max_positions for each in every if each.max_positions is not None]
        self.max_positions = min(limits, default=None)

    def embed(self, x: Tensor, positions: Positions) -> Tensor:
        return self.instances()[0].embed(x, positions)

    def of_layer(self, layer: int) -> Encoding | None:
        return getattr(self, f"layer{layer}", None)

    def check_length(self, longest: int) -> None:
        for each in self.instances():
            each.check_length(longest)

    def instances(self) -> list[Encoding]:
        """The instances, from the first layer on."""
        return [each for each in self.children() if isinstance(each, Encoding)]


def overridden(kind: str) -> set[str]:
    """The methods of the contract that an encoding overrides."""
    cls = ENCODINGS[kind]
    return {name for name in METHODS if getattr(cls, name) is not getattr(Encoding, name)}


def acts_inside(kind: str) -> bool:
    """True if an encoding acts inside a layer, in its attentions."""
    return bool(overridden(kind) & {*ATTENTION_METHODS})


def fits_cross(kind: str) -> bool:
    """True if an encoding can relate a target to a source by their positions."""
    return ENCODINGS[kind].uses_positions and acts_inside(kind)


def check_cross(kind: str, placement: Placement) -> None:
    """Refuse an encoding that cannot relate a target to a source."""
    able = [name for name in ENCODINGS if fits_cross(name)]
    if kind not in able:
        key = f"pe.cross={placement.cross}"
        if placement.where is not None:
            key = f"pe.where={listed(placement.where)}"
        what = "does not exist" if kind not in ENCODINGS else "is not for cross-attention"
        raise UserError(f"{key}: {kind} {what}; choose none or one of {', '.join(able)}.")


def check_effect(kind: str, kinds: dict[str, str], num_layers: int, placement: Placement) -> None:
    """Refuse a placement without effect."""
    where, layers = placement.where, placement.layers
    if where is not None and not overridden(kind):
        raise UserError(f"pe.where={listed(where)} has no effect on pe.kind={kind}; leave it out.")
    if placement.cross == "same" and not overridden(kind):
        raise UserError(f"pe.cross=same has no effect on pe.kind={kind}; leave it out.")
    if layers is not None:
        check_some("pe.layers", layers, range(num_layers), f" (model.num_layers={num_layers})")
        added_first = [*layers] == [0] or not overridden(kind)  # as without pe.layers
        if added_first and not any(acts_inside(each) for each in kinds.values()):
            raise UserError(
                f"pe.layers={listed(layers)} has no effect on pe.kind={kind}, which does nothing "
                f"inside a layer; leave it out."
            )
    if placement.tie_sides and kinds["encoder"] != kinds["decoder"]:
        raise UserError(
            f"pe.tie_sides=true shares one encoding between encoder and decoder, and "
            f"pe.where={listed(where or [])} leaves one of them out; set one of the two otherwise."
        )
