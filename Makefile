# Two commands to know: `make demo` and `make test`. Each sets up all it needs in a virtual
# environment of its own; a machine with Python 3.11 or newer and make is enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= auto
SECONDS ?= 300
CASES ?= 100000
GALLERY ?= 1

.PHONY: demo examples test browser-test cluster-test card-test botorch-test mlflow-test integrations-test wheel-test fuzz \
	break-files break-runs break-stops audit check lint types arrows bounds bench docs docs-test clean

# A tour on a million rows that it makes: scores beside baselines, and a report; then the engine's times.
demo: $(VENV)/.ready
	$(BIN)/python examples/trains.py --rows 1000000 -o demo
	$(BIN)/python examples/million_rows.py

# All pages of the gallery, without a display; those whose data set is not there are named.
examples: $(VENV)/.ready
	$(BIN)/python tools/run_examples.py

test: $(VENV)/.ready
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

# Reports and other pages in Chromium, which comes from the system; skipped, with the reason, if there
# is none.
browser-test: $(VENV)/.ready-browser
	$(BIN)/python -m pytest -q tests/browser

# Dask clusters whose worker processes are killed and restarted; times of other work must not matter.
cluster-test: $(VENV)/.ready
	TRIEGP_TEST_CLUSTER=1 $(BIN)/python -m pytest -q tests/dask/test_lost_workers.py

# Everything that runs on a CUDA device, on that device; set PYTHON to one with the extra `cuda`.
card-test:
	TRIEGP_TEST_CARD=1 $(PYTHON) -m pytest -q tests/engines tests/mixture/test_batches_in_step.py tests/test_devices.py \
		tests/test_oracle_campaign.py

# BoTorch and torch are large: they have an environment of their own.
botorch-test: .venv-botorch/.ready
	.venv-botorch/bin/python -m pytest -q tests/botorch docs/botorch.md src/triegp/botorch

# MLflow brings many packages, and limits the versions of others: it has one, too.
mlflow-test: .venv-mlflow/.ready
	.venv-mlflow/bin/python -m pytest -q tests/mlflow docs/mlflow.md src/triegp/mlflow

# MAPIE, skpro, sktime, skore, Optuna and scikit-optimize: in an environment of their own, too.
integrations-test: .venv-integrations/.ready
	.venv-integrations/bin/python -m pytest -q tests/integrations docs/integrations.md src/triegp/skpro \
		src/triegp/optuna

# Known vulnerabilities of what the tests install; says which packages it could not look up.
audit: $(VENV)/.ready .venv-audit/.ready
	$(BIN)/python tools/audit.py .venv-audit/bin/python \
		$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')

# Random cases against dense algebra, so many of them, then property tests for so many seconds, both
# with new seeds; or one run of both with a seed that failed.
fuzz: $(VENV)/.ready
	$(BIN)/python tools/oracle_fuzz.py --cases $(CASES) $(if $(SEED),--seed $(SEED))
	$(BIN)/python tools/fuzz.py $(if $(SEED),--seed $(SEED),--seconds $(SECONDS))

# Damaged model files, saves that are killed and full disks, with new seeds or one that failed.
COUNT ?= 10000
KILLS ?= 1000
break-files: $(VENV)/.ready
	$(BIN)/python -m tools.break_files --count $(COUNT) $(if $(SEED),--seed $(SEED))
	$(BIN)/python -m tools.kill_saves --count $(KILLS) $(if $(SEED),--seed $(SEED))

# Threads, processes and forks that share models, with a new seed or one that failed; some seconds per case.
RUNS ?= 300
break-runs: $(VENV)/.ready
	$(BIN)/python -m tools.break_runs --count $(RUNS) $(if $(SEED),--seed $(SEED))

# Ctrl-C at random moments of every call, time budgets and commands that are ended, with a new seed
# or one that failed.
STOPS ?= 600
break-stops: $(VENV)/.ready
	$(BIN)/python -m tools.break_stops --count $(STOPS) $(if $(SEED),--seed $(SEED))

check: lint types arrows test bounds

lint: $(VENV)/.ready-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.ready-dev
	$(BIN)/mypy

arrows: $(VENV)/.ready-dev
	$(BIN)/lint-imports

# The lower bounds of pyproject.toml, installed as exact versions (they have wheels for Python 3.11
# and 3.12; set PYTHON to one of these).
bounds: .venv-bounds/.ready
	.venv-bounds/bin/python -m pytest -q -n $(WORKERS) --dist worksteal

# Wheel and sdist, each installed without extras into a fresh environment of every Python named here.
PYTHONS ?= $(PYTHON)
wheel-test:
	PYTHONS="$(PYTHONS)" sh tools/wheel_test.sh

# The site, into docs/_build/html; a warning is an error. GALLERY=0 shows the examples without running
# them. The second command looks for dead links in what the first has built; browser-test opens it.
docs: $(VENV)/.ready-docs
	rm -rf docs/api/generated
	GALLERY=$(GALLERY) $(BIN)/python -m sphinx -q -E -W --keep-going docs docs/_build/html

docs-test: $(VENV)/.ready-docs
	$(BIN)/python -m pytest -q tests/docs

bench: $(VENV)/.ready
	$(BIN)/python -m bench.likelihood

$(VENV)/.ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'
	touch $@

$(VENV)/.ready-dev: $(VENV)/.ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

.venv-botorch/.ready: pyproject.toml
	$(PYTHON) -m venv .venv-botorch
	.venv-botorch/bin/python -m pip install --quiet --disable-pip-version-check \
		--editable '.[botorch]' pytest hypothesis pandas
	touch $@

.venv-mlflow/.ready: pyproject.toml
	$(PYTHON) -m venv .venv-mlflow
	.venv-mlflow/bin/python -m pip install --quiet --disable-pip-version-check \
		--editable '.[mlflow,dask]' pytest hypothesis
	touch $@

.venv-integrations/.ready: pyproject.toml
	$(PYTHON) -m venv .venv-integrations
	.venv-integrations/bin/python -m pip install --quiet --disable-pip-version-check \
		--editable '.[integrations]'
	touch $@

.venv-audit/.ready:
	$(PYTHON) -m venv .venv-audit
	.venv-audit/bin/python -m pip install --quiet --disable-pip-version-check pip-audit
	touch $@

$(VENV)/.ready-docs: $(VENV)/.ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs,browser]'
	touch $@

$(VENV)/.ready-browser: $(VENV)/.ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test,browser]'
	touch $@

.venv-bounds/.ready: pyproject.toml tools/lower_bounds.py
	$(PYTHON) -m venv --clear .venv-bounds
	.venv-bounds/bin/python tools/lower_bounds.py pyproject.toml > .venv-bounds/constraints.txt
	.venv-bounds/bin/python -m pip install --quiet --disable-pip-version-check \
		--constraint .venv-bounds/constraints.txt --editable '.[test]'
	touch $@

clean:
	rm -rf $(VENV) .venv-bounds .venv-botorch .venv-mlflow .venv-integrations .venv-wheel .venv-audit build dist demo
	rm -rf .pytest_cache .mypy_cache .ruff_cache .numba-checked
	rm -rf docs/_build docs/auto_examples docs/api/generated
