"""What every room uses: special ids and places here; limits, seeds, settings and files beside."""

from pathlib import Path

PAD, BOS, EOS, UNK = 0, 1, 2, 3  # of every vocabulary: padding, begin and end, unknown

PACKAGE = Path(__file__).resolve().parents[1]
# A checkout has configs/ and scripts/ beside the package, a wheel inside it.
CONFIG_DIR = (PACKAGE if (PACKAGE / "configs").is_dir() else PACKAGE.parent) / "configs"
