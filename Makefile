# The front door. `make help` lists every target. Works with GNU make 3.81, the one that macOS ships.
#
# Another Python (conda, for example) instead of .venv:   make PY=python sweep report

PLAN ?= quick
RUN  ?= $(basename $(notdir $(PLAN)))
ONLY ?=
JOBS ?= $(shell getconf _NPROCESSORS_ONLN)
PYTHON ?= python3
PY   ?= .venv/bin/python
# An environment of its own: its pins of common packages are not ours.
AIPERF := aiperf==0.13.0
# The environment is built here only where the default Python is used; with PY=... it is the user's own.
ENV  := $(if $(filter .venv/bin/python,$(PY)),.venv/.ready)

# Jupyter refuses to run as root, which is who one is in a container, unless it is told to.
AS_ROOT := $(if $(filter 0,$(shell id -u)),--ServerApp.allow_root=True)

.DEFAULT_GOAL := help
.PHONY: help env doctor sweep models import report test nbval bench lab lint lock fixture refresh clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-10s %s\n", $$1, $$2}'
	@echo
	@echo "  Options: PLAN=quick RUN=<the plan's name> ONLY=<part of a model or backend> DRY_RUN=1 RETRY=1 REQUESTS=5 INTERVAL_MS=50 JOBS=2 DOCTOR=0"

env: $(ENV)  ## the .venv with everything that requirements.txt pins

.venv/.ready: requirements.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 11) <= v < (3, 14) else "env: Python 3.11 to 3.13 is needed, %s is %d.%d; try make PYTHON=python3.12" % ((sys.executable,) + v))'
	@echo "env: making .venv with the packages of requirements.txt (a few minutes, once)"
	@$(PYTHON) -m venv .venv
	@.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-compile -r requirements.txt
	@# Compiled here on all cores: pip does it on one, and where Python may not write bytecode every start would do it anew.
	@# Some packages ship templates that are no Python, so that compileall's exit code says nothing.
	@.venv/bin/python -m compileall -q -j 0 .venv/lib >/dev/null 2>&1 || true
	@touch $@
	@echo "env: .venv is ready"

doctor: $(ENV)  ## check whether this machine is fit to measure a plan, a line for each check: PLAN, ONLY
	@$(PY) -m lib.doctor --plan "$(PLAN)" --only "$(ONLY)"

sweep: $(ENV)  ## measure the plan's cells that are not measured yet: PLAN, RUN, ONLY, DRY_RUN=1, RETRY=1, REQUESTS, INTERVAL_MS
	@$(PY) -m lib.sweep --plan "$(PLAN)" --run "$(RUN)" --only "$(ONLY)" $(if $(REQUESTS),--requests "$(REQUESTS)") $(if $(INTERVAL_MS),--interval-ms "$(INTERVAL_MS)") $(if $(DRY_RUN),--dry-run) $(if $(RETRY),--retry) $(if $(filter 0,$(DOCTOR)),--skip-doctor)

models: $(ENV)  ## fetch the models that the plan needs, checked and once: PLAN, ONLY
	@$(PY) -m lib.store --plan "$(PLAN)" --only "$(ONLY)"

aiperf-env: .venv-aiperf/.ready  ## the environment of the other load generator, aiperf (for plans with 'load: aiperf')

.venv-aiperf/.ready:
	@echo "aiperf-env: making .venv-aiperf with $(AIPERF) (a few minutes, once)"
	@$(PYTHON) -m venv .venv-aiperf
	@.venv-aiperf/bin/python -m pip install --quiet --disable-pip-version-check $(AIPERF)
	@touch $@
	@echo "aiperf-env: .venv-aiperf is ready"

import: $(ENV)  ## copy artifacts of the earlier scripts into a run: FROM=<folder>, RUN (imported if not given)
	@$(PY) -m lib.importer --from "$(FROM)" --run "$(if $(filter file,$(origin RUN)),imported,$(RUN))"

report: $(ENV)  ## build report/<run>/report.md and report.html; only stale notebooks run: RUN
	@$(PY) -m lib.report --run "$(RUN)" --jobs $(JOBS)

test: $(ENV)  ## every test, with real servers on tiny models, then nbval over the notebooks
	@$(PY) -m pytest -q -n $(JOBS) --dist loadgroup
	@$(MAKE) -s nbval

bench: $(ENV)  ## the project's own speed, as ratios within one run, to .cache/bench/bench.md
	@$(PY) -m bench

lab: $(ENV)  ## JupyterLab with the notebooks
	@$(PY) -m jupyterlab --ServerApp.ip=127.0.0.1 --ServerApp.root_dir=. $(AS_ROOT) notebooks

fixture: $(ENV)  ## measure runs/fixture again, then its notebooks, figures and report/example; commit them
	@rm -rf runs/fixture
	@$(PY) -m lib.sweep --plan fixture --run fixture
	@$(MAKE) -s refresh
	@echo "fixture: runs/fixture, its figures, notebooks and report/example are new; run 'make test' and commit them"

refresh: $(ENV)  ## run the notebooks in place on the fixture, as they are committed, and join report/example
	@$(PY) -m lib.refresh

nbval: $(ENV)  ## run the committed notebooks again and compare their checked cells
	@$(PY) -m pytest -q -p no:cacheprovider -n $(JOBS) --dist loadfile --nbval-lax --nbval-current-env notebooks

lint: $(ENV)  ## ruff over code and tests
	@$(PY) -m ruff check lib tests bench notebooks

lock: $(ENV)  ## resolve pyproject.toml's list into the pins of requirements.txt
	@$(PY) -m pip install --quiet uv
	@{ echo "# The one list of pins, for Linux and macOS, Python 3.11 to 3.13. Made by 'make lock' from pyproject.toml."; \
	   $(PY) -m uv pip compile --quiet --universal --python-version 3.11 --no-header --no-annotate pyproject.toml; } > requirements.new
	@mv requirements.new requirements.txt
	@echo "lock: requirements.txt is new; 'make env' installs it"

clean:  ## remove caches, executed notebooks and tables; never raw artifacts
	@rm -rf .cache/bench .pytest_cache .ruff_cache .hypothesis runs/*/tables report/*/notebooks report/*/report.key
	@find . -name __pycache__ -type d -not -path './.venv/*' -prune -exec rm -rf {} +
	@echo "clean: caches and derived tables are gone; runs, figures and reports stay"
