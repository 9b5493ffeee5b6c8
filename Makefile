# Each command sets up what it needs, once:  make compare   make check   make test
PYTHON ?= python3
# torch's build for the NVIDIA driver: CUDA 13 from driver 580 on, else CUDA 12. Without a card the
# CPU build will do, a tenth of the download. TORCH_INDEX= takes PyPI's.
DRIVER := $(shell nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | grep -oE '^[0-9]+' | head -n1)
BUILD := $(if $(DRIVER),$(shell [ $(DRIVER) -ge 580 ] && echo cu130 || echo cu126),cpu)
TORCH_INDEX ?= https://download.pytorch.org/whl/$(BUILD)
ARGS ?=
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# uv installs the same versions in a fifth of the time. Torch is pip's: only pip heeds this machine's pip.conf.
INSTALL := $(if $(shell command -v uv 2>/dev/null),uv pip install --python $(BIN)/python,$(PIP) install) --quiet -c constraints.txt
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal

.PHONY: help compare check test lint types gpu tensorboard clean distclean
help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*##/ { printf "%-14s%s\n", $$1, $$2 }' $(MAKEFILE_LIST)

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

gpu: $(if $(wildcard $(BIN)/pytest),,.venv/dev) ## all that a CUDA card can answer, into benchmarks/gpu/; goes on where it stopped
	$(BIN)/python scripts/dev/gpu.py $(ARGS)

LOGDIR ?= results/default/means
tensorboard: .venv/installed ## the mean curves of the default study; LOGDIR=results for every run
	@echo "open http://localhost:6006/?smoothing=0 (TensorBoard smooths curves unless told, and shows 0.97 for 1)"
	$(BIN)/tensorboard --logdir $(LOGDIR)

clean: ## remove caches, keep results and the environment
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis build *.egg-info

distclean: clean ## remove the environment as well, keep results
	rm -rf .venv

# What a run and its report need.
.venv/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || \
		{ echo "error: Python 3.11, 3.12 or 3.13 is needed; name one: make PYTHON=python3.12"; exit 1; }
	@[ "$$(uname -sm)" != "Darwin x86_64" ] || \
		{ echo "error: torch has had no build for Intel Macs since 2.3; take Linux, WSL or a Mac with Apple silicon"; exit 1; }
	@echo "installing into .venv, once: some minutes; $(if $(filter %/cpu,$(TORCH_INDEX)),1.5 to 1.7 GB on the disk with the CPU build of torch,several GB more with its CUDA build)"
	$(PYTHON) -m venv .venv
	$(PIP) install -c constraints.txt --retries 1 $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) torch
	$(INSTALL) -e '.[lab,serve]'
	@touch $@

# What tests, benchmarks and style need besides, when they are asked for.
.venv/test .venv/dev: .venv/%: .venv/installed
	$(INSTALL) -e '.[$*]'
	@touch $@
