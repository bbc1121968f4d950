# The front doors. Each sets up what it needs; only Python 3.11 or newer, git and make are assumed.
SHELL := /bin/bash
PYTHON ?= $(shell bash scripts/find-python.sh)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
UNIT_SECONDS ?= 180
SEEDS ?= 200
FIRST ?= 1

.PHONY: install page system up test-tools test check bench soak sim build attacks kill story clean

PAGE := hub/lodger_hub/page/index.html
WEB := $(shell find hub/web -name node_modules -prune -o -type f -print)

install: system $(STAMP) $(PAGE)

page: $(PAGE)

# The packages only have to be there: new ones make no other page.
$(PAGE): $(WEB) scripts/build-page.sh scripts/page-node.sh scripts/node.lock | $(STAMP)
	@echo "Building the page"
	@bash scripts/build-page.sh && touch $@ \
	  || echo "The page was not built; everything else works without it, and the hub says so. Try again: make page"

system:
	@bash scripts/system-packages.sh

$(STAMP): requirements.lock pyproject.toml
	@test -n "$(PYTHON)" \
	  || { echo "Lodger needs Python 3.11 or newer, and none was found. Say PYTHON=/path/to/python3.12 make install"; exit 1; }
	@echo "Preparing $(VENV): packages (one to two minutes the first time)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --require-hashes --requirement requirements.lock 2> >(grep -v "is ignored" >&2)
	@$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable . 2> >(grep -v "is ignored" >&2)
	@echo "Preparing $(VENV): byte code"
	@$(BIN)/python -m compileall -q -j 0 $(VENV)/lib protocol sandbox tools daemon hub cli > /dev/null || true
	@$(BIN)/python scripts/check_startup_files.py
	@touch $(STAMP)

up: install
	@$(BIN)/lodger up

test-tools: install
	@bash scripts/system-packages.sh test

test: test-tools
	@$(BIN)/python scripts/run_tests.py

check: install
	@$(BIN)/ruff format --check --quiet . && $(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python scripts/check_tree.py

attacks: install
	@$(BIN)/pytest -q tests/attacks

bench: install
	@PYTHONPATH=tests $(BIN)/python -m benchmarks.run $(ARGS)

sim: install
	@PYTHONPATH=tests $(BIN)/python -m simulation.run --seeds $(SEEDS) --first $(FIRST) $(ARGS)

soak: test-tools
	@$(BIN)/python scripts/run_tests.py --soak

build: install
	@$(BIN)/python -m build --no-isolation --outdir dist . && ls -l dist

clean:
	rm -rf $(VENV) dist
