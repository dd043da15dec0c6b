# Each target sets up what it needs; nothing has to be installed by hand but Python 3.11 or later.
PYTHON ?= python3
BIN := .venv/bin
DEMO := runs/demo
# For tests alone, and large: `make run` does without. The extra `memory` takes any torch from 2.9 on.
TORCH := 'torch==2.13.0' 'transformers>=4.50'
# pip compiles packages on one processor, for as long as it takes to install them; we do on all, and without their tests.
PIP := $(BIN)/python -m pip install --quiet --no-compile
COMPILE := $(BIN)/python -m compileall -q -j 0 -x '/tests?/' .venv/lib src >/dev/null 2>&1 || true  # some files are no Python
# Files of tests in processes of their own, a few at a time: most of the time goes into compiling.
SIDE_BY_SIDE := --numprocesses auto --maxprocesses 4 --dist loadfile
# A ratings file to train on instead of a generated one: make run FILE=ratings.dat
FILE ?= $(DEMO)/ratings.dat

.PHONY: run test test-full check format bench clean help

help:  ## what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | expand -t 14

.venv/.installed: pyproject.toml
	$(PYTHON) -m venv .venv
	$(PIP) --upgrade pip
	$(PIP) --editable '.[dev,parquet,cluster]'
	@$(COMPILE)
	@touch $@

.venv/.testable: .venv/.installed
	$(PIP) $(TORCH)
	@$(COMPILE)
	@touch $@

.venv/.benched: .venv/.installed
	$(PIP) --editable '.[bench]'
	@touch $@

$(DEMO)/ratings.dat: | .venv/.installed
	$(BIN)/stretto generate $@ --ratings 1000000 --rows 6000 --cols 4000

run: .venv/.installed $(FILE)  ## install, then from a ratings file to recommendations, with a run record (FILE=… for your own)
	rm -rf $(DEMO)/run
	$(BIN)/stretto train mf $(FILE) --rank 32 --epochs 15 --out $(DEMO)/run
	$(BIN)/stretto recommend $(DEMO)/run --some 1

test: .venv/.testable  ## install, then run the tests (under ten minutes)
	$(BIN)/python -m pytest -m "not slow" $(SIDE_BY_SIDE)

test-full: .venv/.testable  ## every test, the slow ones too; a missing tool is a failure
	STRETTO_TEST_FULL=1 $(BIN)/python -m pytest $(SIDE_BY_SIDE)

check: .venv/.installed  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: .venv/.installed  ## put the source in order
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: .venv/.benched  ## measure against peers; tables go to bench/results
	$(BIN)/python -m bench

clean:  ## remove the environment, caches and runs
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis runs
