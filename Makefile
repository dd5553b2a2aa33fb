# `make run` trains GLASU on Cora, `make test` runs the fast tests. Both set up .venv first; tests need more packages in it.
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
READY_DEV := $(VENV)/.ready-dev
OLDEST := .venv-oldest
PIP_ARGS ?=
PIP := -m pip install -q --disable-pip-version-check --progress-bar off $(PIP_ARGS)
# worksteal: a worker keeps the tests of a module, and so its fixtures, together; who is done first takes from the other.
PYTEST := -m pytest -q -n 2 --dist worksteal -m
FAST := "not slow and not realdata and not gpu"

# Real data beside the checkout is used unless you name another folder. Without any, data sets are downloaded or made up (twins).
ifeq ($(origin VFLBENCH_DATA),undefined)
ifneq ($(wildcard ../shared/data/.),)
export VFLBENCH_DATA := $(abspath ../shared/data)
endif
endif

# Test workers and the commands that they start would each compile all modules anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run test quick test-all lint docs setup setup-dev test-oldest clean

run: setup
	@$(BIN)/vflbench algorithm=glasu dataset=cora

test: export OMP_NUM_THREADS := 1
test: setup-dev
	@if [ -d "$$VFLBENCH_DATA" ]; then echo "== fast tests, those on real data too"; $(BIN)/python $(PYTEST) "not slow and not gpu"; \
	else echo "== fast tests; no real data: set VFLBENCH_DATA to test on it"; $(BIN)/python $(PYTEST) $(FAST); fi

# What breaks most often, in a minute.
quick: export OMP_NUM_THREADS := 1
quick: setup-dev
	@$(BIN)/python $(PYTEST) $(FAST) tests/contracts/test_contracts.py tests/contracts/test_exposes.py \
	tests/test_registry.py tests/federation tests/models tests/results tests/docs

test-all: export OMP_NUM_THREADS := 1
test-all: test
	@echo "== slow tests, three side by side: many wait for other processes"
	@$(BIN)/python $(PYTEST) "slow and not gpu" -n 3

# The site, in docs/_build/index.html.
docs: setup-dev
	@$(BIN)/python scripts/results.py --check
	@$(BIN)/python -m sphinx -q -W --keep-going -b html docs docs/_build

lint: setup-dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo --no-cache

setup: $(READY)

setup-dev: $(READY_DEV)

# $(call venv,FOLDER): a virtual environment, unless it is there.
define venv
	@if [ ! -x $(1)/bin/python ]; then \
	  for python in $(PYTHON) python3.11 python3.12 python3.13 python3; do \
	    if $$python -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null; then \
	      echo "Making $(1) with $$($$python --version)"; $$python -m venv $(1) && break; fi; done; fi
	@[ -x $(1)/bin/python ] || { echo "No Python 3.11, 3.12 or 3.13 with venv found; name one with make PYTHON=/path/to/python3"; exit 1; }
endef

$(READY): requirements.lock pyproject.toml
	$(call venv,$(VENV))
	@echo "Installing what runs need: 1.6 GB, or 5.4 GB where your package index has torch with CUDA only. docs/how-to/install.md says how to choose"
	@$(BIN)/python $(PIP) -r requirements.lock -e .
	@touch $@

$(READY_DEV): requirements-dev.lock $(READY)
	@echo "Installing what tests need besides: 0.7 GB"
	@$(BIN)/python $(PIP) -r requirements-dev.lock
	@touch $@

# The oldest versions that pyproject.toml allows, in an environment of their own.
test-oldest: export OMP_NUM_THREADS := 1
test-oldest: $(OLDEST)/.ready
	@$(OLDEST)/bin/python $(PYTEST) $(FAST)

$(OLDEST)/.ready: requirements-oldest.lock pyproject.toml
	$(call venv,$(OLDEST))
	@echo "Installing the oldest versions: 7.7 GB, as their torch is one with CUDA"
	@$(OLDEST)/bin/python $(PIP) -r requirements-oldest.lock -e .
	@touch $@

clean:
	rm -rf $(VENV) $(OLDEST) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
