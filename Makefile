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
PYTEST_ARGS ?=
FUZZ_ARGS ?=
TORTURE_ARGS ?=
MUTATIONS_ARGS ?=
MODEL_ARGS ?=
PACKS ?= 200
SEED ?= 1
SEEDS ?= 1000
LIES ?= 5000
MINUTES ?= 60
HOURS ?= 2
BUDGET ?= 5m
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
test: test-machine ## fetch real servers and a browser, then run the tests: each part, and a story of each feature
	@$(PYTEST) -m "not whole" $(PYTEST_ARGS)

.PHONY: test-all
test-all: test-machine ## every test but the nightly ones: also second flavors, combinations, crash matrices and samples of the campaigns
	@$(PYTEST) $(PYTEST_ARGS)

.PHONY: test-rest
test-rest: test-machine ## what `make test-all` runs and `make test` does not
	@$(PYTEST) -m whole $(PYTEST_ARGS)

.PHONY: nightly
nightly: test-machine ## whole environments: the wheel, Airflow, both ends of the dependencies, every release of the servers, a cluster with S3 and PostgreSQL: PYTEST_ARGS=tests/cluster (Go, PostgreSQL; 8 GB of memory)
	@$(BIN)/python -m tests.servers.install releases
	@$(BIN)/python -m tests.cluster.install
	@REAL_STORE=1 $(BIN)/python -m pytest -m nightly $(PYTEST_ARGS)

.PHONY: test-machine
test-machine: setup
	@$(BIN)/python -m tests.servers.install mysql mariadb
	@$(BIN)/python -m cdc_pipeline.sink.spark.jars --with s3
	@$(BIN)/python -m tests.browser.install

.PHONY: screenshots
screenshots: setup ## take the documentation's pictures of Dagster again, into docs/pictures
	@$(BIN)/python -m cdc_pipeline.sink.spark.jars
	@$(BIN)/python -m tests.browser.install
	@PICTURES=$(CURDIR)/docs/pictures $(BIN)/python -m pytest tests/browser/test_walk.py $(PYTEST_ARGS)

.PHONY: torture
torture: setup ## every type and event at its edges, on both real servers
	@$(BIN)/python -m tests.servers.install
	@TORTURE_SWEEP=1 $(PYTEST) -m torture $(PYTEST_ARGS)

.PHONY: torture-sink
torture-sink: setup ## random workloads with random DDL into lakes, every cut compared: PACKS=200 SEED=1
	@$(BIN)/python -m tests.servers.install
	@$(BIN)/python -m tests.campaigns.sink --packs $(PACKS) --seed $(SEED) $(TORTURE_ARGS)

.PHONY: torture-values
torture-values: setup ## MODIFY of every pair of types at its edges, on both real servers, against what is decided: SEED=1
	@$(BIN)/python -m tests.servers.install
	@$(BIN)/python -m tests.campaigns.values --seed $(SEED) $(TORTURE_ARGS)

.PHONY: torture-disk
torture-disk: setup ## each call of a run fails once (full disk, broken disk, kill), the power goes at each fault point: TORTURE_ARGS="--spark --seed 2"
	@command -v cc gcc >/dev/null || { echo "a C compiler is needed: run  apt-get install gcc libc6-dev  and try again" >&2; exit 2; }
	@$(BIN)/python -m tests.campaigns.disk --seed $(SEED) $(TORTURE_ARGS)

.PHONY: mutations
mutations: setup ## take something out of each rule that keeps the data right, and see a test fail: MUTATIONS_ARGS="--no-spark", or "--spark", or "--rule K17"
	@$(BIN)/python -m tests.servers.install
	@$(BIN)/python -m tests.mutations $(MUTATIONS_ARGS)

.PHONY: torture-load
torture-load: setup ## loads under constant writes and DDL, killed at random: TORTURE_ARGS="--rounds 10 --seed 1 --rows 4000"
	@$(BIN)/python -m tests.servers.install
	@$(BIN)/python -m tests.campaigns.load $(TORTURE_ARGS)

.PHONY: torture-secrets
torture-secrets: setup ## passwords, salts, masked values and literals through every command and failure, then searched for: SEED=1
	@$(BIN)/python -m tests.servers.install
	@$(BIN)/python -m tests.campaigns.secrets --seed $(SEED) $(TORTURE_ARGS)

.PHONY: torture-network
torture-network: setup ## connections to both servers that break, stall or trickle at each byte: SEED=1, TORTURE_ARGS="--cases 200"
	@$(BIN)/python -m tests.servers.install
	@$(BIN)/python -m tests.campaigns.network --seed $(SEED) $(TORTURE_ARGS)

.PHONY: torture-objects
torture-objects: setup ## an object store that fails, lies and is late at each request, and writers stopped for longer than their lease: SEED=1, TORTURE_ARGS="--faults 1000 --places 200" or "--spark"
	@$(BIN)/python -m tests.cluster.install
	@$(BIN)/python -m cdc_pipeline.sink.spark.jars --with s3
	@$(BIN)/python -m tests.campaigns.objects --seed $(SEED) $(TORTURE_ARGS)

.PHONY: torture-history
torture-history: setup ## servers that are restored, renumbered, reset, damaged or replaced between two runs, against what must be decided: SEED=1, TORTURE_ARGS="--event reset"
	@command -v cc gcc >/dev/null || { echo "a C compiler is needed: run  apt-get install gcc libc6-dev  and try again" >&2; exit 2; }
	@$(BIN)/python -m tests.servers.install
	@$(BIN)/python -m tests.campaigns.server_history --seed $(SEED) $(TORTURE_ARGS)

.PHONY: torture-clocks
torture-clocks: setup ## the clocks of both servers and of the pipeline jump, each by itself: SEED=1, TORTURE_ARGS="--histories 40"
	@$(BIN)/python -m tests.servers.install
	@$(BIN)/python -m tests.campaigns.clocks --seed $(SEED) $(TORTURE_ARGS)

.PHONY: torture-upgrades
torture-upgrades: setup ## the newest recorded state in the hands of an earlier program: COMMIT=9168b91
	@$(BIN)/python -m tests.campaigns.upgrades --commit $(or $(COMMIT),9168b91) $(TORTURE_ARGS)

.PHONY: campaign
campaign: setup ## a campaign of tests/campaigns by its name: NAME=cut_anywhere SEED=1 BUDGET=500, 10m or all
	@test -n "$(NAME)" || { echo "say which: make campaign NAME=cut_anywhere" >&2; exit 2; }
	@$(BIN)/python -m tests.servers.install
	@$(BIN)/python -m tests.campaigns $(NAME) --seed $(SEED) --budget $(BUDGET) $(TORTURE_ARGS)

.PHONY: simulate
simulate: setup ## whole histories from one seed each, with crashes, faults and threads in any order: SEEDS=10000
	@$(BIN)/python -m tests.campaigns.simulate --seeds $(SEEDS) $(TORTURE_ARGS)

.PHONY: soak
soak: setup ## hours of work on both servers with kills, failovers, reloads and maintenance: equal at the end, nothing grows: HOURS=2 SEED=1
	@$(BIN)/python -m tests.servers.install
	@$(BIN)/python -m tests.campaigns.soak --hours $(HOURS) --seed $(SEED) $(TORTURE_ARGS)

.PHONY: torture-names
torture-names: setup ## names, keys, labels, defaults and values of every class of characters, in every mode and command: SEED=1
	@$(BIN)/python -m tests.servers.install
	@$(BIN)/python -m tests.campaigns.names --seed $(SEED) $(TORTURE_ARGS)

.PHONY: model
model: setup ## explore every order of steps and faults of the commit protocol (spec/commit.tla) with TLC: MODEL_ARGS="disk lease"
	@$(BIN)/python -m tests.model $(MODEL_ARGS)

.PHONY: readers
readers: setup ## lakes of each reader setting, read by DuckDB, Polars and delta-rs and compared with SELECT
	@$(BIN)/python -m tests.servers.install mysql
	@$(BIN)/python -m tests.campaigns.readers

.PHONY: docs
docs: setup ## write the generated pages of docs/ again, and build the site into site/
	@$(BIN)/python -m tools.pages
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

.PHONY: torture-server
torture-server: setup ## recorded conversations with servers, replayed with lies: LIES=5000, TORTURE_ARGS="--first 5000"
	@$(BIN)/python -m tests.campaigns.liar --count $(LIES) $(TORTURE_ARGS)

.PHONY: fuzz
fuzz: setup ## 20,000 damaged journals through the whole decode: an error or rows, nothing else
	@$(BIN)/python -m tests.campaigns.fuzz $(FUZZ_ARGS)

.PHONY: fuzz-bounds
fuzz-bounds: setup ## the same on fewer, and rows and packets of lying servers, with bounds checks compiled into the kernels
	@$(BIN)/python -m tests.campaigns.fuzz --bounds --count 4000 $(FUZZ_ARGS)
	@$(BIN)/python -m tests.campaigns.liar --bounds --count 1000

.PHONY: fuzz-guided
fuzz-guided: setup ## single parsers, guided by the code that inputs reach (atheris, in an environment of its own): MINUTES=60
	@$(BIN)/python -m tests.campaigns.guided --minutes $(MINUTES) $(FUZZ_ARGS)

.PHONY: lint
lint: setup ## ruff, mypy and the import fence
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

.PHONY: bench
bench: bench-backfill bench-backlog bench-cluster bench-commands bench-decode bench-first-run bench-history bench-idle bench-memory bench-sink bench-snapshot bench-store bench-sync bench-tables ## all benchmarks with their targets

.PHONY: bench-backfill
bench-backfill: setup ## 8 archived journals replayed, in parallel beside one after the other (CHANGES= for fewer; 2 GB of disk)
	@CHANGES=$(or $(CHANGES),1000000) $(BIN)/python -m benchmarks.backfill

.PHONY: bench-cluster
bench-cluster: setup ## W1 and W2 on a Spark cluster of this machine: what executors take off the driver (4 GB of disk)
	@$(BIN)/python -m benchmarks.cluster

.PHONY: bench-backlog
bench-backlog: setup ## 10,000 unread journals: planning, and catching up with 20 GB (GIGABYTES= for fewer)
	@GIGABYTES=$(or $(GIGABYTES),20) $(BIN)/python -m benchmarks.backlog

.PHONY: bench-commands
bench-commands: setup ## CPU-seconds of commands that read files only, against importing Arrow
	@$(BIN)/python -m benchmarks.commands

.PHONY: bench-decode
bench-decode: setup ## the decoder beside its peers: CPU-seconds per million rows; live; memory
	@$(BIN)/python -m benchmarks.decode

.PHONY: bench-first-run
bench-first-run: setup ## what compiling the decoder costs the first run on a machine
	@$(BIN)/python -m benchmarks.first_run

.PHONY: bench-history
bench-history: setup ## the 10,000th run, commands and look-ups beside the 100th (RUNS= for fewer; 2 GB of disk)
	@RUNS=$(or $(RUNS),10000) $(BIN)/python -m benchmarks.history

.PHONY: bench-idle
bench-idle: setup ## CPU-seconds of a run that finds nothing new, against loading the definitions
	@$(BIN)/python -m benchmarks.idle

.PHONY: bench-large
bench-large: setup ## events of a gigabyte on real servers: lengths, hashes and memory (8 GB of memory, 10 GB of disk)
	@$(BIN)/python -m benchmarks.large_events

.PHONY: bench-memory
bench-memory: setup ## resident memory of a capture against its budget
	@$(BIN)/python -m benchmarks.memory

.PHONY: bench-sink
bench-sink: setup ## merging: CPU-seconds of the JVM beside a plain MERGE (4 GB of disk)
	@$(BIN)/python -m benchmarks.sink

.PHONY: bench-snapshot
bench-snapshot: setup ## 5 M rows of a table into Delta beside a row loop and spark.read.jdbc (ROWS= for fewer; 4 GB of disk)
	@ROWS=$(or $(ROWS),5000000) $(BIN)/python -m benchmarks.snapshot

.PHONY: bench-store
bench-store: setup ## event store and transactions, from a journal to acked batches
	@$(BIN)/python -m benchmarks.store

.PHONY: bench-tables
bench-tables: setup ## 1,000 tables on a live server: idle runs, 100 changed tables, cuts (TABLES= for fewer)
	@TABLES=$(or $(TABLES),1000) $(BIN)/python -m benchmarks.tables

.PHONY: bench-sync
bench-sync: setup ## a journal into Delta tables: CPU-seconds of process and JVM beside Debezium's embedded engine (4 GB of disk)
	@$(BIN)/python -m benchmarks.sync

.PHONY: record-demo
record-demo: setup ## record the shop's journals again from a real MySQL
	@$(BIN)/python -m tests.servers.install mysql
	@$(BIN)/python -m tools.record_demo

.PHONY: record-golden
record-golden: setup ## record the golden journals of tests/golden again from real servers
	@$(BIN)/python -m tests.servers.install
	@$(BIN)/python -m tools.record_golden

.PHONY: golden-state
golden-state: setup ## before a release: record what this version leaves, for the tests of later ones
	@$(BIN)/python -m tests.golden.record_state

.PHONY: lock
lock: setup ## resolve requirements.lock again from pyproject.toml (needs uv)
	@uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --all-extras --no-strip-extras \
	  --no-emit-index-url --no-emit-find-links --no-header --no-annotate pyproject.toml -o requirements.lock

.PHONY: clean
clean: ## remove the demo's lake and Dagster's history; the caches stay
	rm -rf lake dagster_home/history dagster_home/storage dagster_home/logs dagster_home/schedules \
	  dagster_home/.logs_queue dagster_home/.nux dagster_home/.telemetry

.PHONY: setup
setup: $(VENV)/.complete ## .venv with the locked dependencies, Java and Delta's jars

$(VENV)/.complete: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed: name one with make PYTHON=python3.12 ..." >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "Python lacks venv: run  apt-get install python3-venv  and try again" >&2; exit 2; }
	@echo "setting up $(VENV) (once; a few minutes the first time)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@$(BIN)/python -m cdc_pipeline.sink.spark.jars
	@touch $@
