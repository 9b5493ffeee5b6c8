"""Where the package and its configuration files lie."""

from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
# A checkout has configs/ and scripts/ beside the package, a wheel inside it.
CONFIG_DIR = (PACKAGE if (PACKAGE / "configs").is_dir() else PACKAGE.parent) / "configs"
