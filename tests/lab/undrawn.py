"""A script whose reports have no pictures, which take most of their time.

python tests/lab/undrawn.py SCRIPT ARGUMENT …
"""

import runpy
import sys
from pathlib import Path

from wawa_transformer.lab import figures

figures.save = lambda *figure: "<svg></svg>"
sys.argv = [str(Path(__file__).parents[2] / "scripts" / sys.argv[1]), *sys.argv[2:]]
runpy.run_path(sys.argv[0], run_name="__main__")
