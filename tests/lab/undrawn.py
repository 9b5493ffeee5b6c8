"""A script whose reports have no pictures, and whose workers are forks: both take seconds.

python tests/lab/undrawn.py SCRIPT ARGUMENT …
"""

import runpy
import sys
from pathlib import Path

from wawa_transformer.lab import figures, workers

figures.save = lambda *figure: "<svg></svg>"
workers.METHOD = "fork"
sys.argv = [str(Path(__file__).parents[2] / "scripts" / sys.argv[1]), *sys.argv[2:]]
runpy.run_path(sys.argv[0], run_name="__main__")
