# Everything a contributor runs. `make help` lists the targets; `make test` is what CI runs.
.DEFAULT_GOAL := help
.SUFFIXES:
SHELL := /bin/bash

VENV := .venv
BIN := $(VENV)/bin
RELEASE := .venv-release
STAMP := $(VENV)/.setup-done
PYTHON ?= $(shell for name in python3 python3.14 python3.13 python3.12 python3.11; do \
	"$$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$name" && break; done)
UV ?= uv

# Hundreds of worker processes start in the tests: without byte code each of them compiles Holdfast anew.
unexport PYTHONDONTWRITEBYTECODE

# Pure tests need nothing but Python; the others start a real Temporal and a real Kubernetes (holdfast dev).
SERVERS := e2e or temporal or real_node
# PyTorch is 3 GB: `make test-torch` alone has it.
ELSEWHERE := $(SERVERS) or torch
# Kueue, helm and the suites take 13 minutes to build: `make test-peers` alone has them.
# The last release is installed: `make test-release` alone has it.
PEERS := kueue or release
PURE ?= -n auto --maxprocesses 8 --dist worksteal --timeout 120
# One test at a time to whichever process is free, the longest first (tests/plugins/tiers.py).
E2E ?= -n 5 --dist load --maxschedchunk 1 --timeout 900 --show-capture=no
# `make test` runs the day's tier of the tests with servers; with ARGS, exactly what ARGS says.
TIER ?= $(if $(ARGS),,--tier)
# All end-to-end tests share one stack, which is gone again afterwards. HOLDFAST_TEST_STACK=dev uses one that stays.
STACK := $(or $(HOLDFAST_TEST_STACK),test)
# A real kubelet needs root. Tests make hundreds of Temporal namespaces: without a system worker for each.
# They read what Temporal stores, and encrypt where they show that (row X6).
STACK_CONFIG := --plaintext --dynamic-config worker.perNamespaceWorkerCount=0
REAL_NODE := $(if $(filter 0,$(shell id -u)),--real-node)
STACK_UP := --name $(STACK) $(REAL_NODE) $(STACK_CONFIG)
REPLAY ?= --timeout 120
BENCH ?=

.PHONY: help setup demo demo-elastic demo-progress test test-all times lint audit format test-pure test-e2e test-row test-chaos test-crash test-peers test-release test-jobsets regressions test-uncached test-torch replay rows manifests mutants bench bench-smoke coverage docs release lock hooks compose-secrets clean test-ledger

help: ## list the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## make .venv with the locked dependencies and Holdfast itself

$(STAMP): requirements/dev.lock pyproject.toml
	@if [ -z "$(PYTHON)" ]; then \
		echo "no Python 3.11 or newer found: install one, or name it: make setup PYTHON=/path/to/python3" >&2; exit 1; fi
	@echo "==> $(VENV): $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV) || { \
		echo "python3 -m venv failed: on Debian and Ubuntu, apt install python3-venv" >&2; exit 1; }
	@echo "==> $(VENV): dependencies, by requirements/dev.lock; about a minute"
	@$(BIN)/python -m pip install --disable-pip-version-check --quiet --require-hashes -r requirements/dev.lock
	@echo "==> $(VENV): holdfast, editable"
	@$(BIN)/python -m pip install --disable-pip-version-check --no-build-isolation --no-deps --quiet --editable .
	@touch $@

demo: setup ## a real Temporal and Kubernetes, a workload, a failure, and its healing
	@$(BIN)/holdfast demo

demo-elastic: setup ## elastic training in real containers: members killed, added, preempted; the same result. As root
	@$(BIN)/holdfast demo --elastic

demo-progress: setup ## a training in a real container hangs: noticed, its stacks kept, gone on from its save; the costs. As root
	@$(BIN)/holdfast demo --progress

test: setup ## lint, pure tests, the day's tier of the end-to-end tests, a smoke of the bench, the rows (docs/testing.md)
	@$(if $(ARGS),,rm -rf reports/rows)
	@.ci/steps $(if $(ARGS),test-pure test-e2e,lint test-pure test-e2e bench-smoke rows)

test-all: ## as `make test`, with every end-to-end test
	@$(MAKE) --no-print-directory test TIER=

times: setup ## where the time of the last run went, by part, test and file; ARGS=--write keeps it for docs and tiers
	@$(BIN)/python -m tests.times $(ARGS)

lint: setup ## ruff, import layers, strict types, kube-score
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo
	$(BIN)/basedpyright
	$(BIN)/python -m tests.project.kube_score

# Lint must not fail because a network is away, so that it does not ask for advisories.
AUDIT := .venv-audit
audit: setup ## published advisories on the locked dependencies, as far as PyPI answers
	@[ -x $(AUDIT)/bin/pip-audit ] || { echo "==> $(AUDIT): dependencies, by requirements/audit.lock"; $(PYTHON) -m venv $(AUDIT) && \
		$(AUDIT)/bin/python -m pip install --disable-pip-version-check --quiet --require-hashes -r requirements/audit.lock; }
	@$(BIN)/python -m tests.advisories $(AUDIT)/bin/pip-audit requirements/runtime.lock

format: setup ## let ruff put the sources in order
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test-pure: setup ## the tests that need no server
	$(BIN)/pytest -m "not ($(ELSEWHERE))" $(PURE) $(ARGS)$(if $(ARGS), || [ $$? -eq 5 ])

test-e2e: setup ## the tests on a real Temporal and Kubernetes; then the law of resets over their whole audit log
	@$(BIN)/python -m tests.e2e.ground.fetched
	env -u KUBECONFIG -u TEMPORAL_ADDRESS $(BIN)/holdfast dev up $(STACK_UP)
	@status=0; HOLDFAST_TEST_STACK=$(STACK) $(BIN)/python -m tests.e2e.witness.sampler --stack $(STACK) $(if $(ARGS),--some) -- \
			$(BIN)/pytest -m "($(SERVERS)) and not ($(PEERS))" $(E2E) $(TIER) $(ARGS) || status=$$?; \
		[ -z "$(ARGS)" ] || [ $$status -ne 5 ] || status=0; \
		$(BIN)/python -m tests.e2e.witness.law --stack $(STACK) $(if $(ARGS),--some) || status=1; \
		[ -n "$(HOLDFAST_TEST_STACK)" ] || $(BIN)/holdfast dev down --purge --name $(STACK); exit $$status

test-row: setup ## the end-to-end tests of one contract row: make test-row ROW=L4
	@[ -n "$(ROW)" ] || { echo "which row? make test-row ROW=L4" >&2; exit 1; }
	@$(MAKE) --no-print-directory test-e2e ARGS="--row $(ROW) -s $(ARGS)"

test-crash: setup ## the worker dies at every failpoint of every scenario, one a run, and at pairs of them
	env -u KUBECONFIG -u TEMPORAL_ADDRESS $(BIN)/holdfast dev up --name crash $(REAL_NODE) $(STACK_CONFIG)
	@rm -rf reports/crash; status=0; \
		TEST_CRASH=every HOLDFAST_TEST_STACK=crash $(BIN)/pytest tests/e2e/crash/test_failpoints.py tests/e2e/entities/test_elastic_crashes.py $(E2E) $(ARGS) || status=$$?; \
		$(BIN)/python -m tests.e2e.witness.law --stack crash || status=1; \
		$(BIN)/python -m tests.e2e.crash.failpoints || status=1; \
		$(BIN)/holdfast dev down --purge --name crash; exit $$status

test-chaos: setup ## ten minutes in which a random process of the whole stack dies every few seconds; SEED=17 repeats one
	env -u KUBECONFIG -u TEMPORAL_ADDRESS $(BIN)/python -m tests.e2e.crash.chaos $(if $(SEED),--seed $(SEED)) $(ARGS)

test-peers: setup ## under the published Kueue; AppWrapper's and JobSet's own suites; the chart (built once, 13 minutes). As root
	env -u KUBECONFIG -u TEMPORAL_ADDRESS $(BIN)/holdfast dev up --name peers $(REAL_NODE) $(STACK_CONFIG)
	@status=0; HOLDFAST_TEST_STACK=peers $(BIN)/pytest -m kueue --timeout 900 --show-capture=no $(ARGS) || status=$$?; \
		$(BIN)/holdfast dev down --purge --name peers; exit $$status

test-release: setup $(RELEASE)/bin/cyclonedx-py ## the last release installed, upgraded under 50 live workloads and rolled back; all parts of a release built
	@$(BIN)/python -m tests.e2e.upgrade.previous
	env -u KUBECONFIG -u TEMPORAL_ADDRESS $(BIN)/holdfast dev up --name release $(STACK_CONFIG)
	@status=0; HOLDFAST_TEST_STACK=release $(BIN)/pytest -m release --timeout 1200 --show-capture=no -s $(ARGS) || status=$$?; \
		$(BIN)/python -m tests.e2e.witness.law --stack release || status=1; \
		$(BIN)/holdfast dev down --purge --name release; exit $$status

test-jobsets: setup ## 320 random JobSets under the published controller and here (HOLDFAST_JOBSETS: how many)
	HOLDFAST_JOBSETS=$(or $(HOLDFAST_JOBSETS),320) $(MAKE) --no-print-directory test-e2e ARGS="tests/e2e/peers/test_jobset_sampled.py -n 1 -s $(ARGS)"

regressions: setup ## the tests of the defect rows on older code, where each must fail: make regressions BASE=2ef51cc
	@[ -n "$(BASE)" ] || { echo "on which code? make regressions BASE=2ef51cc" >&2; exit 1; }
	env -u KUBECONFIG -u TEMPORAL_ADDRESS $(BIN)/holdfast dev up $(STACK_UP)
	@status=0; HOLDFAST_TEST_STACK=$(STACK) $(BIN)/python -m tests.regressions --base $(BASE) $(ARGS) || status=1; \
		[ -n "$(HOLDFAST_TEST_STACK)" ] || $(BIN)/holdfast dev down --purge --name $(STACK); exit $$status

test-ledger: setup ## the ledger over a million random steps (HOLDFAST_LEDGER_STEPS: how many), half an hour
	HOLDFAST_LEDGER_STEPS=$(or $(HOLDFAST_LEDGER_STEPS),1000000) $(BIN)/pytest -n 0 -s --timeout 0 -k so_many_random_steps tests/policy/status/test_ledger_lives.py $(ARGS)

test-uncached: setup ## the end-to-end tests with no workflow cache: every task replays its whole history
	TEST_MAX_CACHED_WORKFLOWS=0 $(MAKE) --no-print-directory test-e2e ARGS="tests/workflows tests/e2e $(ARGS)"

# The newest, and one of those whose workers prefix the store they share (2.4, 2.5: pytorch#135712).
TORCH ?= torch torch==2.5.1
TORCHES := $(foreach one,$(TORCH),.venv-$(subst =,,$(one))/bin/python)

.venv-torch%/bin/python: pyproject.toml
	@$(PYTHON) -m venv .venv-torch$*
	@.venv-torch$*/bin/python -m pip install --disable-pip-version-check --quiet torch$(addprefix ==,$*) numpy
	@.venv-torch$*/bin/python -m pip install --disable-pip-version-check --quiet --no-deps --editable .
	@touch $@

.venv-torch/bin/python: pyproject.toml
	@$(PYTHON) -m venv .venv-torch
	@.venv-torch/bin/python -m pip install --disable-pip-version-check --quiet torch numpy
	@.venv-torch/bin/python -m pip install --disable-pip-version-check --quiet --no-deps --editable .
	@touch $@

test-torch: setup $(or $(TORCH_PYTHON),$(TORCHES)) ## torchrun's backend in PyTorch, the newest and 2.5 (3 GB each in .venv-torch*; TORCH="torch==2.4.1" or TORCH_PYTHON=/usr/bin/python3)
	@for python in $(abspath $(or $(TORCH_PYTHON),$(TORCHES))); do \
		echo "==> $$python"; \
		HOLDFAST_TORCH_PYTHON=$$python $(BIN)/pytest -m torch --timeout 900 tests/torchrun $(ARGS) || exit 1; done

manifests: setup ## what of deploy/ is made: workers.yaml as the chart renders it (helm is built once, 1 minute), the kind Workload
	@$(BIN)/python -m tests.manifests
	@$(BIN)/python -m tests.e2e.chart.helm

replay: setup ## replay the recorded histories
	$(BIN)/pytest tests/replay $(REPLAY) $(ARGS)

rows: setup ## the contract rows: which are shown, at which level, by the tests last run
	@$(BIN)/python -m tests.rows $(ARGS)

mutants: setup ## mutation testing of holdfast/policy, an hour; ARGS="--every 20" tries a sample (docs/mutation.md)
	$(BIN)/python -m tests.mutants $(ARGS)

bench: setup ## Holdfast beside plain Kubernetes and the controllers it replaces; hours (docs/performance.md)
	env -u KUBECONFIG -u TEMPORAL_ADDRESS $(BIN)/python -m bench $(BENCH) all

bench-smoke: setup ## every measure of the bench at its smallest, all at once, all tables and plots; two minutes
	@rm -rf reports/bench-smoke
	env -u KUBECONFIG -u TEMPORAL_ADDRESS $(BIN)/python -m bench --stack bench-smoke --out reports/bench-smoke smoke

coverage: setup ## the pure tests' branch coverage, in reports/coverage
	@rm -rf reports/coverage && mkdir -p reports/coverage
	$(BIN)/coverage run -m pytest -m "not ($(ELSEWHERE))" --timeout 240 $(ARGS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

LOCK := $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-emit-find-links --no-annotate --no-header

lock: ## pin the dependencies again (needs uv); LOCK_ARGS=--upgrade for newer ones
	$(LOCK) $(LOCK_ARGS) pyproject.toml --all-extras -o requirements/runtime.lock
	$(LOCK) $(LOCK_ARGS) pyproject.toml --all-extras requirements/dev.in --group bench -o requirements/dev.lock
	$(LOCK) $(LOCK_ARGS) requirements/build.in -o requirements/build.lock
	$(LOCK) $(LOCK_ARGS) requirements/docs.in -o requirements/docs.lock
	$(LOCK) $(LOCK_ARGS) requirements/audit.in -o requirements/audit.lock
	$(LOCK) $(LOCK_ARGS) requirements/release.in -o requirements/release.lock

release: setup $(RELEASE)/bin/cyclonedx-py ## all parts of a release into dist/, from its tag: make release TAG=v0.2.0 (docs/how-to/release.md)
	@[ -n "$(TAG)" ] || { echo "which tag? make release TAG=v0.2.0" >&2; exit 1; }
	@$(BIN)/python -m tests.release.make --tag $(TAG) $(ARGS)

$(RELEASE)/bin/cyclonedx-py: requirements/release.lock
	@echo "==> $(RELEASE): dependencies, by $<"
	@$(PYTHON) -m venv $(RELEASE)
	@$(RELEASE)/bin/python -m pip install --disable-pip-version-check --quiet --require-hashes -r $<
	@touch $@

DOCS := .venv-docs
docs: ## the documentation as a site, its links and anchors checked: reports/site/index.html
	@[ -x $(DOCS)/bin/mkdocs ] || { echo "==> $(DOCS): dependencies, by requirements/docs.lock"; $(PYTHON) -m venv $(DOCS) && \
		$(DOCS)/bin/python -m pip install --disable-pip-version-check --quiet --require-hashes -r requirements/docs.lock; }
	@NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --strict 2>&1 | grep -v "^INFO"; exit $${PIPESTATUS[0]}
	@echo "reports/site/index.html"

hooks: setup ## run lint before each commit
	$(BIN)/pre-commit install

compose-secrets: .secrets/postgres_password ## the password that docker-compose.yml reads, made once

.secrets/postgres_password:
	@mkdir -p -m 700 .secrets
	@: "readable inside the containers, whose users differ; the folder keeps others out"
	@umask 022 && openssl rand -hex 24 > $@
	@echo "made $@"

clean: ## remove the environment, builds, caches and reports (stacks stay: holdfast dev down; so do .venv-docs, .venv-audit, .venv-torch*)
	rm -rf $(VENV) $(RELEASE) build dist reports *.egg-info .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
