# Every target sets up what it needs: .venv, filled once from constraints.txt.
.DEFAULT_GOAL := help
.PHONY: help setup demo test soak mutants check format bench clean

PYTHON ?= python3
PIP_FLAGS ?= -qq
VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed
PIP_INSTALL := $(PY) -m pip install --disable-pip-version-check --no-input $(PIP_FLAGS) \
	-c constraints.txt

test soak mutants check bench: export OMP_NUM_THREADS := 1

help:  ## list the targets
	@awk -F ':.*  ## ' '/^[a-z]+:.*  ## / {printf "make %-8s%s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP)  ## the virtual environment; the other targets do it by themselves

demo: $(STAMP)  ## a federated active learning run on bundled digits, with a report page
	@$(VENV)/bin/fallow demo

test: $(STAMP)  ## tests, docstring examples and the code blocks of the documents
	$(PY) -m pytest -n auto

soak: export FALLOW_SOAK := 1
soak: $(STAMP)  ## a study killed at 40 moments, then the long form of the tests of real sites
	$(PY) -m pytest -s tests/flower/test_kill_study.py -m soak
	$(PY) -m pytest tests/federation tests/flower -m 'soak or processes or not soak' \
		--ignore tests/flower/test_kill_study.py

mutants: $(STAMP)  ## plant faults one at a time: does a test fail? MUTANTS='--sample 10' tries ten
	$(PY) scripts/mutants.py $(MUTANTS)

check: $(STAMP)  ## format, lint, types, layers and house rules, docstring examples
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy --strict src
	$(PY) -m pytest -q tests/test_layers.py tests/test_house.py src/fallow

format: $(STAMP)  ## put the files into shape
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

bench: $(STAMP)  ## speed beside the reference; writes bench/results.json
	$(PY) -m bench
	$(PY) -m bench.query_seconds
	$(PY) -m bench.regression_run
	$(PY) -m bench.flower_exchange

clean:  ## remove the environment and every cache; results in runs/ stay
	rm -rf $(VENV) build dist src/*.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find src tests bench examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# The stamp is written last, so an interrupted installation goes on the next time.
# setuptools comes first and builds without isolation: a build environment would not be pinned.
$(STAMP): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "Fallow needs Python 3.11, 3.12 or 3.13, and \
	'$(PYTHON)' was not found: name one, for example PYTHON=python3.12." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; (3, 11) <= v < (3, 14) or sys.exit( \
	"Fallow needs Python 3.11, 3.12 or 3.13, and $(PYTHON) is %d.%d: " % v + \
	"name another, for example PYTHON=python3.12.")'
	@echo "Installing Fallow and its pinned dependencies into $(VENV): once, about one to five minutes."
	@$(PY) -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@begin=$$(date +%s); { $(PIP_INSTALL) setuptools \
	&& $(PIP_INSTALL) --no-build-isolation -e '.[dev]'; } \
	|| { echo "The installation failed; 'make setup PIP_FLAGS=' shows all that pip does." >&2; \
	exit 1; }; echo "Installed in $$(($$(date +%s) - begin)) s."
	@touch $@
