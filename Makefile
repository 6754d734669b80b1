# Everything a newcomer needs: `make up` and `make test`. Both set up first; a second run of either is offline.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
BENCH_VENV := .venv-bench
UV := $(BIN)/uv
DEPENDENCIES := $(VENV)/.turnlog-dependencies
STAMP := $(VENV)/.turnlog-setup
BENCH_STAMP := $(BENCH_VENV)/.turnlog-setup
PYTHON ?= $(firstword $(foreach p,python3 python3.14 python3.13 python3.12 python3.11,$(if $(shell $(p) -c 'import sys; print("yes" if sys.version_info >= (3, 11) else "")' 2>/dev/null),$(p))))
# Extra words for the command: make up ARGS="--port 9000", make test ARGS="-k replay -n 2".
ARGS ?=
DIGEST := $(BIN)/python -c 'import hashlib, sys; print(hashlib.sha256(open(sys.argv[1], "rb").read()).hexdigest())'
# Only the lock files say what is installed; a find-links, constraint or index set for somebody else must not.
LOCK_ENV := env -u PIP_CONSTRAINT -u UV_CONSTRAINT -u UV_OVERRIDE -u VIRTUAL_ENV

.PHONY: help setup up test test-system test-system-here screenshots soak bench bench-full lint types contracts squawk lock clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## virtual environment with locked dependencies and the project itself

$(BIN)/python:
	@if [ -z "$(PYTHON)" ]; then echo "turnlog needs Python 3.11 or newer: install one, or say which: make PYTHON=/path/to/python3" >&2; exit 2; fi
	@if ! $(PYTHON) -c 'import venv, ensurepip' 2>/dev/null; then echo "$(PYTHON) has no venv module: install it (Debian, Ubuntu: apt-get install python3-venv)" >&2; exit 2; fi
	@echo "setting up $(VENV) (once; takes some minutes on a slow network)"
	@$(PYTHON) -m venv $(VENV)

$(UV): requirements/bootstrap.lock | $(BIN)/python
	@$(LOCK_ENV) $(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check --require-hashes -r requirements/bootstrap.lock
	@touch $@

# A newer lock with the same content (another branch and back) needs no network.
$(DEPENDENCIES): requirements/dev.lock | $(UV)
	@digest=$$($(DIGEST) requirements/dev.lock); \
	if [ "$$digest" != "$$(cat $@ 2>/dev/null)" ]; then \
		$(LOCK_ENV) $(UV) pip sync --quiet --python $(BIN)/python --require-hashes requirements/dev.lock; \
	fi; \
	echo "$$digest" > $@

$(STAMP): pyproject.toml $(DEPENDENCIES)
	@$(LOCK_ENV) $(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --offline -e .
	@touch $@

up: setup ## start everything on this machine (ARGS="--help" shows more)
	@$(BIN)/turnlog up $(ARGS)

test: setup ## the whole test suite (PostgreSQL and nats-server come from wheels)
	@$(BIN)/pytest -n 2 --dist loadfile -m "not system and not soak and not alone" $(ARGS)
	@$(BIN)/pytest -m "alone and not system and not soak" $(ARGS)

test-system: setup ## tests on what wheels cannot bring: PostgreSQL 15, nginx, Chromium, Node (as root installs them by apt)
	@bash tests/system/install.sh
	@$(MAKE) --no-print-directory test-system-here

# Whatever of them can run on this machine; the rest is skipped, and pytest prints why. They mostly wait, hence three at once.
PG15 := /usr/lib/postgresql/15/bin/postgres
test-system-here: setup
	@if [ -x $(PG15) ]; then version=15 which="system or every_postgres"; else version=18 which=system; fi; \
	$(BIN)/pytest -n 3 --dist loadfile --pg $$version -m "($$which) and not soak and not alone" $(ARGS); \
	$(BIN)/pytest --pg $$version -m "($$which) and alone and not soak" $(ARGS)

screenshots: setup ## take the README's pictures of the page anew
	@bash tests/system/install.sh
	@$(BIN)/python -m tests.system.screenshots

soak: setup ## the counted, long forms of the tests, one by one; what each has counted is printed at the end (hours)
	@$(BIN)/pytest -m soak -v -rP --durations=0 --durations-min=1 --timeout 3600 $(ARGS)

$(BENCH_STAMP): requirements/bench.lock pyproject.toml | $(STAMP)
	@test -x $(BENCH_VENV)/bin/python || $(BIN)/python -m venv --without-pip $(BENCH_VENV)
	@$(LOCK_ENV) $(UV) pip sync --quiet --python $(BENCH_VENV)/bin/python --require-hashes requirements/bench.lock
	@$(LOCK_ENV) $(UV) pip install --quiet --python $(BENCH_VENV)/bin/python --no-deps --no-build-isolation --offline -e .
	@touch $@

bench: $(BENCH_STAMP) ## ratios against others on this machine, under five minutes
	@$(BENCH_VENV)/bin/python -m benchmarks $(ARGS)

bench-full: $(BENCH_STAMP) ## the same with more rounds and larger sizes
	@$(BENCH_VENV)/bin/python -m benchmarks --full $(ARGS)

lint: setup ## ruff: rules and format
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: setup ## mypy --strict
	@$(BIN)/mypy

contracts: setup ## who may import whom
	@$(BIN)/lint-imports

squawk: setup ## migrations that would lock or break a running installation
	@$(BIN)/squawk infra/postgres/sql/migrations/*/*.sql

# The locks name versions and hashes only: no index, no path. --universal, so that one file serves every platform.
COMPILE := $(LOCK_ENV) $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--no-emit-find-links --no-header --no-annotate --no-config
lock: $(UV) ## recompile the lock files (UPGRADE=--upgrade takes newer versions)
	@$(COMPILE) $(UPGRADE) requirements/bootstrap.in -o requirements/bootstrap.lock
	@$(COMPILE) $(UPGRADE) -c requirements/bootstrap.lock --extra dev pyproject.toml -o requirements/dev.lock
	@$(COMPILE) $(UPGRADE) -c requirements/dev.lock pyproject.toml -o requirements/runtime.lock
	@$(COMPILE) $(UPGRADE) -c requirements/dev.lock requirements/system.in -o requirements/system.lock
	@$(COMPILE) $(UPGRADE) -c requirements/dev.lock --extra dev --extra bench pyproject.toml -o requirements/bench.lock

clean: ## remove environments and caches (not the data in .turnlog)
	@rm -rf $(VENV) $(BENCH_VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache *.egg-info build
	@find . -name __pycache__ -type d -not -path './.turnlog/*' -prune -exec rm -rf {} +
