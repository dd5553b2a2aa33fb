# Two commands: `make run` trains GLASU on Cora, `make test` tests everything. Both set up .venv first.
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PIP_ARGS ?=
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q

# Real data beside the checkout is used unless you name another folder. Without any, data sets are downloaded or made up (twins).
ifeq ($(origin VFLBENCH_DATA),undefined)
ifneq ($(wildcard ../shared/data/.),)
export VFLBENCH_DATA := $(abspath ../shared/data)
endif
endif

.PHONY: run test lint setup clean

run: setup
	@$(BIN)/vflbench algorithm=glasu dataset=cora

test: setup
	@echo "== fast tests"
	@$(PYTEST) -n 2 -m "not slow and not realdata and not gpu"
	@if [ -d "$$VFLBENCH_DATA" ]; then echo "== tests on real data"; $(PYTEST) -n 2 -m "realdata and not slow and not gpu"; \
	else echo "== no real data: set VFLBENCH_DATA to test on it"; fi

lint: setup
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

setup: $(READY)

$(READY): requirements.lock pyproject.toml
	@if [ ! -x $(BIN)/python ]; then \
	  for python in $(PYTHON) python3.11 python3.12 python3.13 python3; do \
	    if $$python -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null; then \
	      echo "Making $(VENV) with $$($$python --version)"; $$python -m venv $(VENV) && break; fi; done; fi
	@[ -x $(BIN)/python ] || { echo "No Python 3.11, 3.12 or 3.13 with venv found; name one with make PYTHON=/path/to/python3"; exit 1; }
	@echo "Installing the packages of requirements.lock (the first time: a few minutes and 2 GB)"
	@$(BIN)/python -m pip install -q --disable-pip-version-check --progress-bar off $(PIP_ARGS) -r requirements.lock
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
