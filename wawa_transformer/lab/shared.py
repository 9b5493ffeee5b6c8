"""What a study's workers share: imported once, in the process that all of them are forked from."""

import gc
import importlib

# What compare.py imports, what AdamW's first step does, and pictures. None of it may touch CUDA,
# which does not survive a fork.
MODULES = ("wawa_transformer.lab.tuning", "torch._dynamo", "matplotlib.backends.backend_agg")

gc.disable()  # or all that was imported is gone through again and again while it grows
for name in MODULES:
    importlib.import_module(name)
gc.freeze()  # nor do the workers go through it
gc.enable()
