"""Draw how far encodings copy as the model and the trained length grow, from committed studies:

python scripts/dev/size_picture.py
"""

import evidence
from evidence import BENCHMARKS
from matplotlib.figure import Figure

from wawa_transformer.lab.styles import encoding_styles

SIZES = {
    "size": "1 + 1,\nwidth 64",
    "size_middle": "2 + 2,\nwidth 96",
    "size_deep": "3 + 3,\nwidth 64",
    "size_wide": "1 + 1,\nwidth 192",
    "size_both": "3 + 3,\nwidth 192",
    "size_large": "6 + 6,\nwidth 256",
}
STEPS = {"size_short": "800 steps", "size": "1,500 steps", "size_long": "4,500 steps"}


def main() -> None:
    figure = Figure(figsize=(7.6, 7), layout="constrained")
    both = figure.subplots(2, 1, sharey=True)
    looks = encoding_styles(evidence.encodings("size", "copy"))
    for axes, studies in zip(both, (STEPS, SIZES), strict=True):
        axes.set_xticks(range(len(studies)), studies.values())
        axes.margins(x=0.1)
        for place, (pe, look) in enumerate(looks.items()):
            # Beside each other, so that seeds do not cover each other.
            tried = [name for name in studies if pe in evidence.encodings(name, "copy")]
            places = [[*studies].index(name) + (place - 2.5) / 30 for name in tried]
            for at, name in zip(places, tried, strict=True):
                values = evidence.seeds(name, "copy", pe, "beyond")
                axes.plot([at] * len(values), values, ls="", alpha=0.4, ms=4,
                          color=look["color"], marker=look["marker"])  # fmt: skip
            means = [evidence.mean(name, "copy", pe, "beyond").mean for name in tried]
            # Sizes have no order, so no line leads from one to the next.
            own = look | {"linestyle": ""} if studies is SIZES else look
            axes.plot(places, means, label=pe, **own)
    for axes in both:
        axes.set_ylabel("exact match, 11–40 symbols")
    both[0].set_xlabel("1 + 1 layers of width 64")
    both[1].set_xlabel("layers and width, after 1,500 steps")
    figure.legend(*both[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    path = BENCHMARKS / "size" / "figures" / "sizes.png"
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
