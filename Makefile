# What there is to do: make help. Every target sets up what it needs first.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
MINUTES ?= 3
TESTS ?=
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# One more than a small machine has cores: tests of stacks and brokers wait for much of their time. tests/conftest.py says who runs what.
PYTEST := $(BIN)/python -m pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder --durations=20

# A run of tests starts some hundreds of Pythons: without byte code on disk each compiles all of Millrace, a third of its start.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-long test-compose lint simulate mutants bench bench-failover bench-peers chaos up down status etcd lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo "  PYTHON=python3.12 make setup         takes another Python (3.10 or newer) than python3"

setup: $(STAMP) ## install what is missing: the packages into .venv, Kafka and the demo's data into .millrace/cache
	@$(BIN)/python -m deploy.local.java
	@$(BIN)/python -m deploy.local.kafka fetch
	@$(BIN)/python -m deploy.local.spark_classes
	@$(BIN)/python -m deploy.local.flights

$(STAMP): requirements.lock requirements-build.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || { echo "Python 3.10 or newer is \
	needed and '$(PYTHON)' is $$($(PYTHON) -V 2>&1 || true): install one and say PYTHON=python3.12 make ..." >&2; exit 1; }
	@$(PYTHON) -m deploy.local.machine
	@$(PYTHON) -m deploy.local.java
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "'$(PYTHON)' cannot make virtual environments: install \
	its venv module (Debian, Ubuntu: apt install python3-venv)" >&2; exit 1; }
	@test -x $(BIN)/python || { echo "Making $(VENV) with $$($(PYTHON) -V)"; $(PYTHON) -m venv $(VENV); }
	@echo "Installing the packages into $(VENV) (the first time 500 MB and a few minutes)"
	@$(PIP) install --require-hashes -r requirements-build.lock
	@$(PIP) install --require-hashes --no-build-isolation -r requirements.lock
	@$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

demo: setup ## start the stack, run the flights pipeline on it, show the result, stop everything
	@$(BIN)/millrace demo

test: setup lint ## check the style and run the tests: units, contracts, seeds, each way of a job end to end; TESTS=tests/x.py runs those
	@$(PYTEST) $(or $(TESTS),-m "not long" --deselect tests/docs/test_tidy.py --deselect tests/docs/test_prose.py --deselect tests/docs/test_rule_tags.py)

test-long: setup ## run what takes minutes by nature: chaos, upgrades, restores, two clusters; and the containers
	@$(PYTEST) --numprocesses 2 -m long --ignore=tests/compose
	@$(MAKE) --no-print-directory test-compose

test-compose: setup ## run docker-compose.yml in a Docker engine, kill its containers, cut its network
	@$(BIN)/python -m pytest --durations=15 tests/compose

lint: setup ## check style, types, sizes, layers and the tags of rules only
	@$(BIN)/ruff check .
	@$(MAKE) --no-print-directory --jobs 2 lint-types lint-shape

lint-types:
	@$(BIN)/mypy

lint-shape:
	@$(BIN)/lint-imports --config tests/core/layers.ini --no-cache >/dev/null || $(BIN)/lint-imports --config tests/core/layers.ini --no-cache
	@$(BIN)/python -m pytest -q --no-header -p no:cacheprovider --noconftest tests/docs/test_tidy.py tests/docs/test_prose.py tests/docs/test_rule_tags.py

simulate: setup ## run clusters in memory under faults: make simulate SEEDS=0-99; SEEDS=17 tells what happened; REPEAT=1 twice each
	@$(BIN)/python -m tests.simulation $(or $(SEEDS),0-99) $(if $(REPEAT),--repeat)

mutants: setup ## break each rule of the design in turn and show that the simulator sees it; writes docs/mutants.md
	@$(BIN)/python -m tests.simulation.mutants

bench: setup ## measure, next to a peer each; also written to build/bench
	@$(BIN)/python -m tests.bench

bench-failover: setup ## measure what the death of a leader, a TaskManager, Kafka or etcd costs, and that a pause or busy cores cost nothing
	@$(BIN)/python -m tests.bench failover outages

bench-peers: setup ## run the same works on Millrace and its peers, by turns: make bench-peers PEERS="session submit" WORK=flights ROUNDS=3
	@$(BIN)/python -m tests.bench.peers $(if $(WORK),--work "$(WORK)") $(if $(PEERS),--peers "$(PEERS)") \
		$(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(ROWS),--rows $(ROWS)) $(if $(JOBS),--jobs $(JOBS))

chaos: setup ## kill at random what a stack is made of, under load and hostile requests, for MINUTES=3; nothing may be lost or doubled
	@$(BIN)/python -m tests.chaos --minutes $(MINUTES)

up: setup ## start Kafka, etcd and the services in the background
	@$(BIN)/millrace up --detach

down: setup ## stop them; jobs and data stay
	@$(BIN)/millrace down

status: setup ## what runs, and how it is
	@$(BIN)/millrace status

etcd: setup ## build a current etcd with Go, for the stack to use from then on
	@$(BIN)/python -m deploy.local.etcd build

lock: setup ## choose the newest versions of all packages anew and pin them with their hashes
	@$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.10 --generate-hashes --no-header \
		--no-emit-find-links --extra demo --extra web --extra traces --extra dev pyproject.toml --output-file requirements.lock
	@printf 'setuptools>=77\nsetuptools-scm>=8\n' | $(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.10 \
		--generate-hashes --no-header --no-emit-find-links --output-file requirements-build.lock -
	@for image in control task-manager; do $(BIN)/uv pip compile --quiet --universal --python-version 3.10 \
		--generate-hashes --no-header --no-emit-find-links --no-annotate --constraint requirements.lock \
		deploy/docker/$$image.in --output-file deploy/docker/$$image.lock; done

clean: ## remove all that setup, tests and benchmarks made; the stack's data in .millrace stays
	@rm -rf $(VENV) .millrace/cache build dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -prune -exec rm -rf {} + -o -name '*.egg-info' -prune -exec rm -rf {} +
