"""Draw how far encodings copy as the model and the trained length grow, from committed studies:

python scripts/dev/size_picture.py
"""

import evidence
from evidence import BENCHMARKS
from matplotlib.figure import Figure

from wawa_transformer.lab import statistics
from wawa_transformer.lab.figures import encoding_styles

SIZES = {
    "size": "1 + 1,\nwidth 64",
    "size_deep": "3 + 3,\nwidth 64",
    "size_wide": "1 + 1,\nwidth 192",
    "size_both": "3 + 3,\nwidth 192",
}
LENGTHS = {"size_long": 10, "trained_to_20": 20, "trained_to_40": 40}


def main() -> None:
    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    encodings = evidence.encodings("size", "copy")
    for place, (pe, look) in enumerate(encoding_styles(encodings).items()):
        shift = (place - 2.5) / 25  # so that intervals do not cover each other
        means = [statistics.estimate(evidence.seeds(name, "copy", pe, "beyond")) for name in SIZES]
        ends = [each.within(1.0) for each in means]
        bars = [
            (each.mean - low, high - each.mean)
            for each, (low, high) in zip(means, ends, strict=True)
        ]
        places = [at + shift for at in range(len(SIZES))]
        heights = [each.mean for each in means]
        left.errorbar(places, heights, list(zip(*bars, strict=True)), label=pe, capsize=2, **look)
        reach = [evidence.mean(name, "copy", pe, "reach").mean / n for name, n in LENGTHS.items()]
        right.plot(range(len(LENGTHS)), reach, **look)
    left.set_xticks(range(len(SIZES)), SIZES.values())
    left.set_xlabel("layers and width, trained on 1–10 symbols, 1,500 steps")
    left.set_ylabel("exact match, 11–40 symbols")
    right.set_xticks(range(len(LENGTHS)), [f"1–{n}" for n in LENGTHS.values()])
    right.set_xlabel("trained lengths; 1 + 1 layers, width 64, 4,500 steps")
    right.set_ylabel("reach, times the longest trained length")
    right.set_ylim(0.9, 4.1)
    figure.legend(loc="outside lower center", ncols=6, frameon=False)
    path = BENCHMARKS / "size" / "figures" / "sizes.png"
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
