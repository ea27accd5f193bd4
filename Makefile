# Every target sets up what it needs in .venv, with the versions of constraints.txt: `make demo` Fallow
# alone, the others the extra `dev` as well.
.DEFAULT_GOAL := help
.PHONY: help setup setup-locked lock demo test test-long adapters soak mutants coverage check lint size format bench results house sbom audit release docs clean

PYTHON ?= python3
PIP_FLAGS ?= -qq --no-compile
VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed
DEV_STAMP := $(VENV)/.installed-dev
PIP_INSTALL := $(PY) -m pip install --disable-pip-version-check --no-input $(PIP_FLAGS) \
	-c constraints.txt

PYPROJECTS := pyproject.toml packages/fallow/pyproject.toml
BESIDE := $(sort $(wildcard integrations/*)) studies/fallow-papers
PIP_LOCKED := --disable-pip-version-check --no-input $(PIP_FLAGS) --no-deps
EGG_INFO := src/*.egg-info packages/*/*.egg-info integrations/*/src/*.egg-info studies/*/src/*.egg-info
TOOLS := .venv-tools
COVERED ?= core
LONG ?= all
TOOLS_STAMP := $(TOOLS)/.installed
ADAPTERS := .venv-adapters
ADAPTERS_STAMP := $(ADAPTERS)/.installed
LABEL_STUDIO := .venv-label-studio

test test-long adapters soak mutants coverage check bench results: export OMP_NUM_THREADS := 1

help:  ## list the targets
	@awk -F ':.*  ## ' '/^[a-z-]+:.*  ## / {printf "make %-13s%s\n", $$1, $$2}' $(MAKEFILE_LIST)

PYTEST = env -u PYTHONDONTWRITEBYTECODE $(PY) -m pytest

# Tests with real processes wait a good deal: one process more than there are cores.  They start
# hundreds of processes, so what Python compiles is kept, whatever the shell says.
PROCESSES = --processes $$($(PY) -c 'import os; print((os.cpu_count() or 1) + 1)')

setup: $(DEV_STAMP)  ## the virtual environment for development; the other targets do it by themselves

# Nothing is resolved: the lock files name every package.  PyTorch may be another build than theirs,
# such as one without CUDA; it is then taken by its version alone, which is said.
setup-locked:  ## the same from files whose hashes are known; TORCH=any: but for PyTorch
	$(PYTHON) -m venv --clear $(VENV)
	$(PY) -m pip install $(PIP_LOCKED) --require-hashes -r requirements.lock
ifeq ($(TORCH),any)
	@echo "PyTorch is taken by its version; the hash of its file is not checked."
	$(PIP_INSTALL) torch
else
	$(PY) -m pip install $(PIP_LOCKED) --require-hashes -r requirements-torch.lock
endif
	$(PY) -m pip install $(PIP_LOCKED) --no-build-isolation -e . -e packages/fallow $(BESIDE:%=-e %)
	@touch $(STAMP) $(DEV_STAMP)

lock: $(DEV_STAMP)  ## write the lock files anew from pyproject.toml and constraints.txt
	$(PY) scripts/lock.py

demo: $(STAMP)  ## a federated active learning run on bundled digits, with a report page; installs Fallow alone
	@$(VENV)/bin/fallow demo

test: $(DEV_STAMP)  ## tests and docstring examples of the core
	$(PYTEST) $(PROCESSES) -m 'not soak and not long' tests src/fallow

test-long: $(DEV_STAMP)  ## long tests, integrations, studies; LONG=COMMIT runs a third of the long ones
	$(PYTEST) $(PROCESSES) --long "$(LONG)" tests integrations studies/fallow-papers

adapters: $(ADAPTERS_STAMP)  ## integrations and baselines, with the real packages and Label Studio
	$(ADAPTERS)/bin/python -m pytest -q tests/integrations tests/reference/test_regression_baselines.py \
		src/fallow/integrations integrations

soak: export FALLOW_SOAK := 1
soak: $(DEV_STAMP)  ## a study killed at 40 moments, then the long form of the tests of real sites
	$(PY) -m pytest -s tests/deployment/test_kill_study.py -m soak
	$(PY) -m pytest tests/engine tests/sites tests/test_bench.py -m soak
	$(PY) -m pytest tests/experiment/test_resume.py tests/experiment/test_personal_resume.py \
		tests/privacy/test_runs.py tests/reference/test_dpfl_golden.py tests/test_tutorials.py
	$(PY) -m pytest tests/deployment tests/transport/test_capture.py integrations/fallow-flower integrations/fallow-nvflare -m 'soak or processes or not soak' \
		--ignore tests/deployment/test_kill_study.py

mutants: $(DEV_STAMP)  ## plant faults one at a time: does a test fail? MUTANTS='--sample 10' tries ten
	$(PY) scripts/mutants.py $(MUTANTS)

coverage: $(DEV_STAMP)  ## what tests/core reaches of src/fallow/core, with a floor; COVERED names another package
	$(PY) -m coverage run -m pytest -q tests/$(COVERED)
	$(PY) -m coverage report --include 'src/fallow/$(COVERED)/*'

check: lint  ## format, lint, types, layers and house rules, docstring examples
	$(PY) -m pytest -q tests/test_layers.py tests/test_house.py src/fallow

lint: $(DEV_STAMP)  ## format, lint and types alone
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy
	$(PY) scripts/words.py

size: $(DEV_STAMP)  ## lines per package and of a site, beside a commit: SINCE=COMMIT, by default the last tag
	@$(PY) scripts/size.py $(SINCE)

format: $(DEV_STAMP)  ## put the files into shape
	$(PY) scripts/index.py
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

# Longer measurements have commands of their own: bench.transports, bench.features, bench.scale.
bench: $(DEV_STAMP)  ## speed beside the reference in 15 minutes; writes bench/results.json
	$(PY) -m bench --minutes 12
	$(PY) -m bench.query_seconds

results: $(DEV_STAMP)  ## the published results that take an hour, run again; RESULTS='--list' shows all
	$(PY) scripts/results.py $(RESULTS)

# An older folder *.egg-info beside the source would be listed as a second installation.
sbom: $(DEV_STAMP) $(TOOLS_STAMP)  ## what the environment consists of (CycloneDX) and its licenses, in build/
	mkdir -p build
	rm -rf $(EGG_INFO)
	version=$$($(PY) -c "from importlib.metadata import version; print(version('fallow-core'))") && \
	sed "s/^dynamic = .*/version = \"$$version\"/" pyproject.toml > build/sbom.toml  # cyclonedx reads no dynamic version
	$(TOOLS)/bin/cyclonedx-py environment --pyproject build/sbom.toml --output-reproducible \
	--of JSON --output-file build/sbom.json $(PY)
	$(PY) scripts/licenses.py > build/licenses.txt
	@echo "Wrote build/sbom.json and build/licenses.txt"

audit: $(TOOLS_STAMP)  ## bandit's look at the source, beside ruff's S rules in make check
	$(TOOLS)/bin/bandit -q -c pyproject.toml -r src

release: $(DEV_STAMP) $(TOOLS_STAMP)  ## build packages, try them as a stranger would, stop before sending
	$(PY) scripts/release.py $(RELEASE)

docs: export OMP_NUM_THREADS := 1
docs: $(DEV_STAMP)  ## the site of documents, build/docs/index.html; tutorials are run; warnings are errors
	$(PY) -m sphinx -W -q -b html docs build/docs
	@echo "Wrote build/docs/index.html"

house: $(DEV_STAMP)  ## draw the packages, docs/packages.svg
	$(PY) scripts/draw_house.py

clean:  ## remove the environment and every cache; results in runs/ stay
	rm -rf $(VENV) $(TOOLS) $(ADAPTERS) $(LABEL_STUDIO) .coverage build dist $(EGG_INFO) .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find src tests bench examples integrations studies -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# What to install, as pip names it.  A stamp is written last, so an interrupted installation goes on
# the next time.  setuptools comes first and builds without isolation: a build environment would not
# be pinned.
define INSTALL
@command -v $(PYTHON) >/dev/null || { echo "Fallow needs Python 3.11, 3.12 or 3.13, and \
'$(PYTHON)' was not found: name one, for example PYTHON=python3.12." >&2; exit 1; }
@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; (3, 11) <= v < (3, 14) or sys.exit( \
"Fallow needs Python 3.11, 3.12 or 3.13, and $(PYTHON) is %d.%d: " % v + \
"name another, for example PYTHON=python3.12.")'
@echo "Installing $(2) into $(VENV): once, $(3)."
@$(PY) -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
@begin=$$(date +%s); stopped=; trap 'stopped=yes' INT TERM; \
{ $(PIP_INSTALL) setuptools && $(PIP_INSTALL) --no-build-isolation -e '$(1)' -e packages/fallow; }; code=$$?; \
if [ -n "$$stopped" ] || [ $$code -gt 128 ]; then \
echo "The installation was stopped before its end; the same command goes on with it." >&2; exit 1; fi; \
if [ $$code -ne 0 ]; then \
echo "The installation failed; 'make setup PIP_FLAGS=' shows all that pip does." >&2; exit 1; fi; \
echo "Installed in $$(($$(date +%s) - begin)) s."
endef

$(STAMP): $(PYPROJECTS) constraints.txt
	$(call INSTALL,.,Fallow and its pinned dependencies,about a minute)
	@touch $@

$(DEV_STAMP): $(PYPROJECTS) $(BESIDE:%=%/pyproject.toml) constraints.txt
	$(call INSTALL,.[dev],Fallow with its tools for development,about one to five minutes)
	@$(PIP_INSTALL) --no-build-isolation --no-deps $(BESIDE:%=-e %)
	@touch $(STAMP) $@

# Tools that look at the environment and are no part of it.
$(TOOLS_STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv --clear $(TOOLS)
	$(TOOLS)/bin/python -m pip install --disable-pip-version-check --no-input $(PIP_FLAGS) \
	-c constraints.txt bandit cyclonedx-bom twine
	@touch $@

# Packages that trackers and the like bring, which nobody needs who does not use them.  Of bmdal_reg
# only the algorithms are compared, which need one of its eleven requirements.
$(ADAPTERS_STAMP): $(PYPROJECTS) constraints.txt
	$(PYTHON) -m venv --clear $(ADAPTERS)
	$(ADAPTERS)/bin/python -m pip install --disable-pip-version-check --no-input $(PIP_FLAGS) \
	-c constraints.txt setuptools
	$(ADAPTERS)/bin/python -m pip install --disable-pip-version-check --no-input $(PIP_FLAGS) \
	-c constraints.txt --no-build-isolation \
	-e '.[dev]' -e packages/fallow -e 'integrations/fallow-encoders[onnx]' \
	-e integrations/fallow-flower -e integrations/fallow-labeling-tools -e integrations/fallow-nvflare \
	-e 'integrations/fallow-trackers[huggingface,mlflow,tensorboard,wandb]' dill
	$(ADAPTERS)/bin/python -m pip install --disable-pip-version-check --no-input $(PIP_FLAGS) \
	--no-build-isolation --no-deps bmdal_reg==3.0.2
	$(PYTHON) -m venv --clear $(LABEL_STUDIO)  # its requirements exclude those of Fallow
	$(LABEL_STUDIO)/bin/python -m pip install --disable-pip-version-check --no-input $(PIP_FLAGS) \
	label-studio==1.23.2
	ln -sf $(CURDIR)/$(LABEL_STUDIO)/bin/label-studio $(ADAPTERS)/bin/label-studio
	@touch $@
