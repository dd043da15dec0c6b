# Each target sets up what it needs; nothing has to be installed by hand but Python 3.11 or later.
PYTHON ?= python3
BIN := .venv/bin
DEMO := runs/demo
# For tests alone, and large: `make run` does without. The extra `memory` takes any torch from 2.9 on.
TORCH := 'torch==2.13.0' 'transformers>=4.50' 'accelerate>=1.1' 'lightning>=2.5'
# pip compiles packages on one processor, for as long as it takes to install them; we do on all, and without their tests.
PIP := $(BIN)/python -m pip install --quiet --no-compile
COMPILE := $(BIN)/python -m compileall -q -j 0 -x '/tests?/' .venv/lib src >/dev/null 2>&1 || true  # some files are no Python
# Files of tests in processes of their own, one more than there are processors: some tests wait for processes they start.
WORKERS := $(shell $(PYTHON) -c 'import os; print(min(4, (os.cpu_count() or 1) + 1))')
SIDE_BY_SIDE := --numprocesses $(WORKERS) --dist loadfile
# The examples of every docstring of the package. Two processes: each imports the whole package, PyTorch included.
DOCTESTS := $(BIN)/python -m pytest --quiet --doctest-modules --numprocesses 2 --dist loadfile src/stretto tools
# A ratings file to train on instead of a generated one: make run FILE=ratings.dat
FILE ?= $(DEMO)/ratings.dat

.PHONY: run test test-full check format changelog reference docs bench wheel clean help

help:  ## what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | expand -t 14

# What running needs and nothing more: no Ray, no tools.
.venv/.core: pyproject.toml
	@echo 'Installing Stretto and what it needs into .venv. This takes a minute.'
	$(PYTHON) -m venv .venv
	$(PIP) --editable .
	@touch $@

.venv/.installed: .venv/.core
	$(PIP) --editable '.[dev,parquet,cluster]'
	@$(COMPILE)
	@touch $@

.venv/.testable: .venv/.installed
	$(PIP) $(TORCH)
	@$(COMPILE)
	@touch $@

.venv/.documented: .venv/.testable
	$(PIP) --editable '.[docs]'
	@$(COMPILE)
	@touch $@

.venv/.benched: .venv/.installed
	$(PIP) --editable '.[bench]'
	$(PIP) --no-deps 'adelie>=1.1'  # it asks for NumPy below 2 and runs with what is installed
	@touch $@

$(DEMO)/ratings.dat: | .venv/.core
	$(BIN)/stretto generate $@ --ratings 1000000 --rows 6000 --cols 4000

run: .venv/.core $(FILE)  ## install, then from a ratings file to recommendations, with a run record (FILE=… for your own)
	rm -rf $(DEMO)/run
	$(BIN)/stretto train mf $(FILE) --rank 32 --epochs 15 --out $(DEMO)/run
	$(BIN)/stretto recommend $(DEMO)/run --some 1
	@echo 'Try next:'
	@echo '  $(BIN)/stretto dashboard $(DEMO)/run        the page of this run, served until Ctrl-C'
	@echo '  $(BIN)/stretto report $(DEMO)/run -o report.html'
	@echo '  $(BIN)/stretto recommend $(DEMO)/run --some 3'
	@echo '  $(BIN)/stretto tour                         every front end in a minute'

test: .venv/.testable  ## install, compile kernels on all cores, then run the tests (under ten minutes)
	$(BIN)/stretto warmup
	$(DOCTESTS)
	$(BIN)/python -m pytest -m "not slow" $(SIDE_BY_SIDE)
	@cat .pytest_cache/not-run

test-full: .venv/.documented  ## every test, the slow ones too; a missing tool is a failure
	$(BIN)/stretto warmup --fast
	$(DOCTESTS)
	STRETTO_TEST_FULL=1 $(BIN)/python -m pytest $(SIDE_BY_SIDE)

wheel: .venv/.installed  ## compile kernels for x86-64-v3 and -v4, and build a wheel that ships them, for this Python
	$(BIN)/python -m stretto.warmup.ship
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .
	rm -rf src/stretto/kernels/compiled
	@ls -l dist/*.whl

check: .venv/.installed  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: .venv/.installed  ## put the source in order
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

changelog: .venv/.installed  ## show what the next release adds to CHANGELOG.md; writes nothing
	$(BIN)/towncrier build --draft

reference: .venv/.testable  ## write docs/reference from the docstrings of public names
	$(BIN)/python -m tools.reference

docs: .venv/.documented  ## build and check the documentation site in build/site (DOCS_GALLERY=0: without running its examples)
	$(BIN)/python -m tools.site

bench: .venv/.benched  ## measure against peers; tables go to bench/results
	$(BIN)/python -m bench

clean:  ## remove the environment, caches and runs
	rm -rf .venv build dist src/stretto/kernels/compiled .mypy_cache .ruff_cache .pytest_cache .hypothesis runs
