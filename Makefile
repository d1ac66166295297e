# Two commands are all a newcomer needs: `make demo` and `make test`.
# Every target sets up .venv by itself; the stamp makes that instant when nothing changed.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.ready

.PHONY: demo test test-real lint bench clean

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@

demo: $(STAMP)
	$(BIN)/bridgemil demo demo

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	$(BIN)/pytest -q -n 2

test-real: $(STAMP)
	$(BIN)/pytest -q tests/real -o addopts="--strict-markers --import-mode=importlib -ra"

bench: $(STAMP)
	$(BIN)/python benchmarks/backbones_speed.py
	$(BIN)/python benchmarks/fold_speed.py
	$(BIN)/python benchmarks/prepare_speed.py
	$(BIN)/python benchmarks/synthetic_acceptance.py
	$(BIN)/python benchmarks/engine_speed.py
	$(BIN)/python benchmarks/engine_regimes.py

clean:
	rm -rf .venv demo build dist .mypy_cache .ruff_cache .pytest_cache
