# Every target makes .venv and installs what it needs. `make demo` and `make test` are all a newcomer needs.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test test-slow lint bench docs clean

# torch goes first and alone: constraints.txt pins the build that was tested.
.venv/.dev: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(PIP) torch
	$(PIP) -e ".[dev]"
	touch $@

.venv/.zoo: .venv/.dev
	$(PIP) -e ".[zoo,track,oracles]"
	touch $@

.venv/.docs: .venv/.dev
	$(PIP) -e ".[docs]"
	touch $@

demo: .venv/.dev
	$(BIN)/nfm demo

lint: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# A process a core, a thread a process: torch's own threads would only get in each other's way.
test: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto

test-slow: .venv/.zoo
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "slow or browser"

bench: .venv/.zoo
	$(BIN)/python -m benchmarks

docs: .venv/.docs
	$(BIN)/mkdocs build --strict

clean:
	rm -rf .venv build dist site runs .pytest_cache .mypy_cache .ruff_cache
