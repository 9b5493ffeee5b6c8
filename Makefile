# Each command sets up what it needs, once:  make compare   make check   make test
PYTHON ?= python3
# Without an NVIDIA card torch's CPU build will do, a tenth of the download; TORCH_INDEX= takes PyPI's.
TORCH_INDEX ?= $(if $(shell command -v nvidia-smi),,https://download.pytorch.org/whl/cpu)
ARGS ?=
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal

.PHONY: help compare check test lint types gpu tensorboard clean distclean
help: ## this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

compare: .venv/installed ## the default study and its report; ARGS="study=multi30k" for another
	$(BIN)/python scripts/compare.py $(ARGS)

check: .venv/test ## the tests of the baseline, in a minute: what a fork keeps
	$(PYTEST) tests/core $(ARGS)

test: .venv/dev ## every test
	$(PYTEST) $(ARGS)

lint: .venv/dev ## style
	$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: .venv/dev ## mypy
	$(BIN)/mypy

gpu: .venv/dev ## all that a CUDA card can answer, into benchmarks/gpu/; goes on where it stopped
	$(BIN)/python scripts/dev/gpu.py $(ARGS)

LOGDIR ?= results/default/means
tensorboard: .venv/installed ## the mean curves of the default study, at localhost:6006; LOGDIR=results for every run
	$(BIN)/tensorboard --logdir $(LOGDIR)

clean: ## remove caches, keep results and the environment
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis build *.egg-info

distclean: clean ## remove the environment as well, keep results
	rm -rf .venv

# What a run and its report need.
.venv/installed: pyproject.toml setup.py constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || \
		{ echo "error: Python 3.11, 3.12 or 3.13 is needed; name one: make PYTHON=python3.12"; exit 1; }
	@echo "installing into .venv, once: some minutes; $(if $(TORCH_INDEX),2 GB on the disk with the CPU build of torch,several GB more with its CUDA build)"
	$(PYTHON) -m venv .venv
	$(PIP) install -c constraints.txt --retries 1 $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) torch
	$(PIP) install --quiet -c constraints.txt -e .
	@touch $@

# What tests, benchmarks and style need besides, when they are asked for.
.venv/test .venv/dev: .venv/%: .venv/installed
	$(PIP) install --quiet -c constraints.txt -e '.[$*]'
	@touch $@
