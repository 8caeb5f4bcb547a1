# Every target makes its own environment in .venv; nothing else is needed than Python 3.11 and a network.
# ARGS are passed on: make test ARGS="-k cli", make bench ARGS=--quick.
# PYTHON chooses an interpreter, which gets an environment of its own: make test PYTHON=python3.13.

ARGS ?=
SECONDS ?= 60
ROUNDS ?= 200
FAILOVER ?= 300
SEEDS ?= 2000
PYTHON_FOLDERS = $(wildcard src tests bench scripts examples)
PYTHON ?=
VENV = .venv$(addprefix -,$(notdir $(PYTHON)))
export PYTHON VENV
RUN = $(VENV)/bin/python
OTHERS = python3.12 python3.13 python3.14
LINT = $(MAKE) lint

.PHONY: help demo test test-all test-profile test-others test-short ci-runs lint soak chaos spec bench clean demo-environment environment servers
.NOTPARALLEL:

help:
	@echo "make demo    five nodes, three workers, one lock, and things that go wrong"
	@echo "make test    ruff, mypy and every test; PYTHON=python3.13: with that interpreter"
	@echo "make test-all      the tests in their long forms, too, and a selection with every other Python that is here"
	@echo "make test-profile  which tests, files, folders and fixtures take how long; cuts the lanes of make test anew"
	@echo "make lint    ruff and mypy alone"
	@echo "make ci-runs       .ci/run in twelve fresh clones, six of them beside busy processes and frozen now and then"
	@echo "make soak    one lock, then every kind, among faults for SECONDS=60; ROUNDS=200 of each story of lost memory;"
	@echo "             SEEDS=2000 in the simulator, beyond the 250 of make test"
	@echo "make chaos   real servers among every fault we know for SECONDS=60; the history is judged"
	@echo "make spec    TLC checks the models of the protocol, and refutes their mutants (needs Java); ARGS=--large: more"
	@echo "make bench   measurements against floors and other libraries"
	@echo "make clean   removes environments and all caches"

demo: demo-environment
	@$(RUN) -m quorumlock demo $(ARGS)

test: environment servers
	$(RUN) -m scripts.lanes --beside "$(LINT)" $(ARGS)

test-all: environment servers
	QUORUMLOCK_LONG=1 $(RUN) -m scripts.lanes --beside "$(LINT)" $(ARGS)
	$(MAKE) test-others

test-profile: environment servers
	$(RUN) -m scripts.lanes --profile $(ARGS)

test-others: servers
	@for name in $(OTHERS); do \
		if python=$$(scripts/find-python.sh $$name); then $(MAKE) test-short PYTHON=$$python || exit 1; \
		else echo "$$name is not installed: not tested with it"; fi; \
	done

ci-runs: environment servers
	@$(RUN) -m scripts.ci_runs $(ARGS)

# Where interpreters differ: threads, tasks and generators, and how they are interrupted.
test-short: environment
	$(RUN) -m pytest -q tests/core tests/hazards
	$(RUN) -m pytest -q tests/contract -k "memory or valkey"

lint: environment
	$(RUN) -m ruff check $(PYTHON_FOLDERS)
	$(RUN) -m ruff format --check $(PYTHON_FOLDERS)
	$(RUN) -m mypy $(PYTHON_FOLDERS)

soak: environment servers
	$(RUN) -m scripts.soak --seconds $(SECONDS) $(ARGS)
	$(RUN) -m scripts.soak_family --seconds $(SECONDS) $(ARGS)
	$(RUN) -m scripts.stories --rounds $(ROUNDS)
	$(RUN) -m quorumlock.lab fuzz --start 250 --seeds $(SEEDS) --jobs 2
	QUORUMLOCK_FAILOVER_SECONDS=$(FAILOVER) $(RUN) -m pytest -s --timeout 0 -k failover tests/engines
	QUORUMLOCK_LONG=1 $(RUN) -m pytest -q tests/contract

# ARGS=--peers keeps the same sets under other libraries' locks in the same run.
chaos: environment servers
	$(RUN) -m scripts.chaos --seconds $(SECONDS) $(ARGS)

spec: environment
	@$(RUN) scripts/spec.py $(ARGS)

bench: environment servers
	$(RUN) -m bench pair $(ARGS)
	$(RUN) -m bench faults $(ARGS)
	$(RUN) -m bench keep $(ARGS)
	$(RUN) -m bench handover $(ARGS)
	$(RUN) -m bench idle $(ARGS)
	$(RUN) -m bench engines $(ARGS)

clean:
	rm -rf .venv .venv-* .bench-envs .mypy_cache .ruff_cache .pytest_cache .hypothesis dist build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

demo-environment:
	@scripts/environment.sh demo

environment:
	@scripts/environment.sh dev

servers:
	@scripts/servers.sh
