"""Colours, markers and dashes: each encoding looks the same in all pictures and pages."""

import itertools
from collections.abc import Iterable
from typing import Any

from wawa_transformer.lab.tables import Study

# Every encoding has the same colour and marker in all pictures and pages. Colour-blind readers can
# distinguish the first eight colours: Okabe & Ito, "Color Universal Design" (2008).
BLUE, ORANGE, BLACK, VERMILION, GREEN, PINK, SKY, YELLOW = MAIN_COLOURS = (
    "#0072B2", "#E69F00", "#000000", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#A89400",
)  # fmt: skip
MORE_COLOURS = (
    "#8470D8", "#A0703C", "#44AA99", "#CC6677", "#AA4499", "#6B8E23", "#5F7F9F", "#C2A26B",
    "#C44E52", "#98BF64", "#B07AA1", "#8C8680",
)  # fmt: skip
MARKERS = "osX^Dv*Pd<hp>"
ENCODINGS = (
    "sinusoidal", "learned", "none", "rotary", "alibi", "t5", "shaw", "transformer_xl",
    "kerple", "fire", "cope", "randomized", "shifted", "coupled",
    "linear", "exponential", "textbook", "fairseq", "divided", "base100", "base1e6",
    "concatenated", "permuted", "rising", "fast_half", "slow_half",
)  # fmt: skip
VARIANT_DASHES = ("--", ":", "-.")
GREY = "#808080"  # visible on a white page and on a dark page
CEILING = "#D02090"


def encoding_styles(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Choose each encoding's colour, marker and dash, as keyword arguments of ``Axes.plot``.

    A variant such as ``t5_cross`` has the colour of its original, and its own dash and marker,
    which is hollow. Your own encodings come after the project's, in alphabetical order.
    """
    original = {name: next(filter(name.startswith, ENCODINGS), name) for name in names}
    order = [*ENCODINGS, *sorted({*original.values()}.difference(ENCODINGS))]
    variants = sorted(name for name, first in original.items() if name != first)
    styles = {}
    for name, first in original.items():
        place = order.index(first)
        more = MORE_COLOURS[place % len(MORE_COLOURS)]
        colour = MAIN_COLOURS[place] if place < len(MAIN_COLOURS) else more
        look: dict[str, Any] = {"color": colour, "linestyle": "-"}
        twins = [each for each in variants if original[each] == first]
        if name in twins:
            twin = twins.index(name)
            look |= {"linestyle": VARIANT_DASHES[twin % len(VARIANT_DASHES)], "fillstyle": "none"}
            place += 1 + twin
        styles[name] = look | {"marker": MARKERS[place % len(MARKERS)]}
    return styles


def styles_of(study: Study, others: Iterable[str] = ()) -> dict[str, dict[str, Any]]:
    """Choose the looks of a study's encodings, and of ``others`` and those without results."""
    tables = (study.curves, study.costs, study.answers, study.tuning, study.bleu)
    named = itertools.chain(others, study.config.get("encodings", {}), *(t["pe"] for t in tables))
    return encoding_styles(named) | encoding_styles(study.encodings)
