# Each command sets up what it needs, once:  make check   make test
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
# Some containers set it, and each of the tests' processes would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE
CORES := $(shell getconf _NPROCESSORS_ONLN)
PYTEST := $(BIN)/python -m pytest --maxprocesses 4 --dist worksteal

.PHONY: help check test lint types clean distclean
help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*##/ { printf "%-14s%s\n", $$1, $$2 }' $(MAKEFILE_LIST)

check: .venv/test ## the tests of the baseline, in a minute: what a fork keeps
	$(PYTEST) -n $(CORES) tests/core $(ARGS)

test: .venv/dev ## every test
	@# One process more than cores, since some tests wait for others.
	$(PYTEST) -n $$(expr 1 + $(CORES)) $(ARGS)

lint: .venv/dev ## style
	$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: .venv/dev ## mypy
	$(BIN)/mypy

clean: ## remove caches, keep results and the environment
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis build *.egg-info

distclean: clean ## remove the environment as well, keep results
	rm -rf .venv

# What a run needs; the laboratory needs more.
# A comma would end an argument of $(if).
COMMA := ,
EXTRAS := $(if $(wildcard */lab),[lab$(COMMA)serve])
.venv/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' || \
		{ echo "error: Python 3.11 to 3.14 is needed; name one: make PYTHON=python3.12"; exit 1; }
	@[ "$$(uname -sm)" != "Darwin x86_64" ] || \
		{ echo "error: torch has had no build for Intel Macs since 2.3; take Linux, WSL or a Mac with Apple silicon"; exit 1; }
	@echo "installing into .venv, once: some minutes; $(if $(filter %/cpu,$(TORCH_INDEX)),1.5 to 1.7 GB on the disk with the CPU build of torch,several GB more with its CUDA build)"
	$(PYTHON) -m venv .venv
	$(PIP) install -c constraints.txt --retries 1 $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) torch
	$(INSTALL) -e '.$(EXTRAS)'
	@touch $@

# What tests, benchmarks and style need besides, when they are asked for.
.venv/test .venv/dev: .venv/%: .venv/installed
	$(INSTALL) -e '.[$*]'
	@touch $@

# The targets of the laboratory and of this project's own tools.
-include $(dir $(firstword $(MAKEFILE_LIST)))scripts/dev/more.mk
