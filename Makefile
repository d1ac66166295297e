# Two commands are all a newcomer needs: `make demo` and `make test`.
# Every target sets up .venv by itself; the stamp makes that instant when nothing changed.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.ready
LONG := -o timeout=0 -o faulthandler_timeout=0  # tests that may take minutes each

.PHONY: demo test fuzz test-real browser lint bench docs clean

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

# The pages are tested in a real browser. Without one those tests are skipped, and say so.
browser:
	@command -v chromium >/dev/null 2>&1 && command -v chromedriver >/dev/null 2>&1 || \
	{ [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 && apt-get update -qq && \
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium chromium-driver; } >/dev/null 2>&1 || \
	echo "no chromium and chromedriver here: the tests of the pages will be skipped"

test: lint browser
	$(BIN)/pytest -q -n 2

# Mutated recordings, tables, settings and folders; the counts by kind and outcome stand at the end.
fuzz: $(STAMP)
	$(BIN)/pytest -q -n 2 tests/fuzz --cases 5000 $(LONG)

test-real: $(STAMP)
	$(BIN)/pytest -q tests/real -o addopts="--strict-markers --import-mode=importlib -ra" $(LONG)

bench: $(STAMP)
	$(BIN)/python benchmarks/backbones_speed.py
	$(BIN)/python benchmarks/fold_speed.py
	$(BIN)/python benchmarks/peers.py
	$(BIN)/python benchmarks/reading_speed.py
	$(BIN)/python benchmarks/prepare_speed.py
	$(BIN)/python benchmarks/synthetic_acceptance.py
	$(BIN)/python benchmarks/people_spread.py
	$(BIN)/python benchmarks/synthetic_sites.py
	$(BIN)/python benchmarks/covariate_slopes.py
	$(BIN)/python benchmarks/null_simulation.py
	$(BIN)/python benchmarks/clinical_coverage.py
	$(BIN)/python benchmarks/engine_speed.py
	$(BIN)/python benchmarks/evaluate_speed.py
	$(BIN)/python benchmarks/default_rule.py --quick
	$(BIN)/python benchmarks/engine_regimes.py
	$(BIN)/python benchmarks/large_cohort.py
	$(BIN)/python benchmarks/scaling.py
	$(BIN)/python benchmarks/house_size.py
	$(BIN)/python benchmarks/predict_speed.py
	$(BIN)/python benchmarks/predict_robustness.py
	$(BIN)/python benchmarks/novelty_rates.py
	$(BIN)/python benchmarks/conformal_coverage.py
	$(BIN)/python benchmarks/adaptation_bias.py
	$(BIN)/python benchmarks/first_use_check.py
	$(BIN)/python benchmarks/copy_limits.py

# The site with its executed gallery, in docs/_build; `make test` builds it without running the examples.
docs: $(STAMP)
	$(BIN)/sphinx-build -W --keep-going -q docs docs/_build

clean:
	rm -rf .venv demo build dist docs/_build docs/gallery docs/reference .mypy_cache .ruff_cache .pytest_cache
