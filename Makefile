# Everything starts here: `make help`.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export DAGSTER_HOME ?= $(CURDIR)/dagster_home
export DAGSTER_DISABLE_TELEMETRY := yes
# Workers and the commands that tests start share what one of them has compiled.
unexport PYTHONDONTWRITEBYTECODE
LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
  --no-emit-index-url --no-emit-find-links --no-header --no-annotate
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
PYTEST_ARGS ?=
NAME ?=
SEED ?= 1
BUDGET ?=
ARGS ?=
TEST_WORKERS ?= 3

.PHONY: help
help: ## list all commands
	@grep -hE '^[a-z][a-z-]*:.*## ' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{printf "  make %-16s %s\n", $$1, $$2}'

.PHONY: demo
demo: setup ## set up, then run the main job on the recorded shop and verify every table
	@$(BIN)/cdc-pipeline demo

.PHONY: dev
dev: setup ## open Dagster's UI on this project, with the demo's assets
	@$(BIN)/dagster dev -w workspace.yaml

PYTEST := $(BIN)/python -m pytest -n $(TEST_WORKERS) --dist loadfile --no-loadscope-reorder

.PHONY: test
test: test-machine ## fetch real servers, then run the tests: each part, and a story of each feature
	@$(PYTEST) -m "not whole" $(PYTEST_ARGS)

.PHONY: test-all
test-all: test-machine ## every test but the nightly ones: also second flavors, combinations, crash matrices and samples of the campaigns
	@$(PYTEST) $(PYTEST_ARGS)

.PHONY: test-rest
test-rest: test-machine ## what `make test-all` runs and `make test` does not
	@$(PYTEST) -m whole $(PYTEST_ARGS)

.PHONY: nightly
nightly: test-machine ## new examples for the tests of properties, and whole environments: the wheel, Airflow, both ends of the dependencies, every release of the servers, a cluster with S3 and PostgreSQL: PYTEST_ARGS=tests/cluster (Go, PostgreSQL; 8 GB of memory)
	@$(BIN)/python -m tests.servers.install browser releases
	-@$(BIN)/python -m tests.servers.install s3
	@$(BIN)/python -m pytest -m nightly $(PYTEST_ARGS)
	@$(if $(PYTEST_ARGS),,$(BIN)/python -m pytest --hypothesis-profile=new_examples -m "hypothesis and not spark and not mysql and not mariadb")
	@$(if $(PYTEST_ARGS),,REAL_STORE=1 $(BIN)/python -m pytest tests/lake/storage)

.PHONY: test-machine
test-machine: setup
	@# each of the three waits for the network, or for one core: the decoder is compiled here, or each
	@# worker would
	@$(BIN)/python -m cdc_pipeline.cli binlog --format jsonl cdc_pipeline/demo/shop/journals >/dev/null & decoder=$$!; \
	  $(BIN)/python -m cdc_pipeline.sink.spark --with s3 & jars=$$!; \
	  $(BIN)/python -m tests.servers.install mysql mariadb; \
	  wait $$jars; wait $$decoder

.PHONY: campaign
campaign: setup ## a campaign: NAME=sink SEED=1 BUDGET=500, 10m or all, ARGS="key=value ..."; without NAME all are listed
	@$(BIN)/python -m tests.campaigns $(NAME) $(if $(NAME),--seed $(SEED) $(if $(BUDGET),--budget $(BUDGET)) $(ARGS))

.PHONY: docs
docs: setup ## write the generated pages of docs/ again, and build the site into site/
	@$(BIN)/python -m tools.pages
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

.PHONY: lint
lint: setup ## ruff, mypy and the import fence
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

.PHONY: bench
bench: setup ## a benchmark with its targets: NAME=sync ARGS="key=value ..."; without NAME all are listed
	@$(BIN)/python -m benchmarks $(NAME) $(ARGS)

record_conversations := tests.campaigns.liar.recording
record_cuts := tests.campaigns.cut_anywhere.record
record_demo := tools.record_demo
record_fuzz := tests.campaigns.fuzz.record
record_golden := tools.record_golden
record_pictures := pytest -m 'nightly or whole' tests/browser/test_walk.py tests/browser/test_what_follows.py
record_state := tests.golden.record_state

.PHONY: record
record: setup ## record from real servers what Git holds: NAME=conversations, cuts, demo, fuzz, golden, pictures or state
	@$(BIN)/python -m tests.servers.install
	@PICTURES=$(CURDIR)/docs/pictures $(BIN)/python -m $(or $(record_$(NAME)),$(error say which: make record NAME=demo))

.PHONY: lock
lock: setup ## resolve requirements.lock again from pyproject.toml, and the lock of uv, which installs it
	@$(LOCK) --all-extras --no-strip-extras pyproject.toml -o requirements.lock
	@echo uv | $(LOCK) - -o requirements-uv.lock

.PHONY: clean
clean: ## remove the demo's lake and Dagster's history; the caches stay
	rm -rf lake dagster_home/history dagster_home/storage dagster_home/logs dagster_home/schedules \
	  dagster_home/.logs_queue dagster_home/.nux dagster_home/.telemetry

.PHONY: setup
setup: $(VENV)/.complete ## .venv with the locked dependencies, Java and Delta's jars

$(VENV)/.complete: requirements-uv.lock requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed: name one with make PYTHON=python3.12 ..." >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "Python lacks venv: run  apt-get install python3-venv  and try again" >&2; exit 2; }
	@echo "setting up $(VENV) (once; a few minutes the first time)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@# uv takes a third of pip's time, but does not read pip's configuration
	@$(PIP) --require-hashes -r requirements-uv.lock && \
	  $(BIN)/uv pip install --quiet --no-cache --compile-bytecode --python $(BIN)/python --require-hashes -r requirements.lock || \
	  $(PIP) --require-hashes -r requirements.lock
	@$(PIP) --no-deps --no-build-isolation -e .
	@$(BIN)/python -m cdc_pipeline.sink.spark
	@touch $@
