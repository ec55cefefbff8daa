# Target Policy Optimization: set-up, experiments, figures, checks. `make help` lists the targets.
SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
PRESET ?= quick
DEVICE ?= auto
STORE ?= runs
SEEDS ?=
OUT ?= out
PIP_ARGS ?=

BIN := .venv/bin
BASE := .venv/.installed-base
DEV := .venv/.installed-dev
PIP_INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt $(PIP_ARGS)
RUN = $(BIN)/python -m
SETTINGS = preset=$(PRESET) device=$(DEVICE) store=$(STORE) $(if $(SEEDS),seeds=$(SEEDS))

export PYTHONUNBUFFERED := 1

.PHONY: help install bandits reversal rlvr figures report gallery test test-slow test-vllm lint bench constraints clean

help: ## list the targets
	@echo "usage: make TARGET [PRESET=smoke|quick|paper] [SEEDS=n] [DEVICE=auto|cpu|cuda] [STORE=runs] [OUT=out]"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(BASE) ## set up .venv with everything the experiments need

bandits: $(BASE) ## run the bandit experiments, draw Fig. 2-4, compare with the paper
	@status=0; \
	for experiment in single_context multi_context mnist; do \
	  echo "$(BIN)/python -m bandits experiment=$$experiment $(SETTINGS)"; \
	  $(RUN) bandits experiment=$$experiment $(SETTINGS) || status=$$?; \
	  if [ $$status = 2 ] && [ $$experiment != mnist ]; then exit 2; fi; \
	done; \
	$(RUN) figures fig02 fig03 fig04 --store "$(STORE)" --out "$(OUT)" || status=1; \
	exit $$status

reversal: ## sequence track (not built yet)
	@echo "make $@: the sequence track is not built yet; there is 'make bandits'" >&2; exit 1

rlvr: ## language-model track (not built yet)
	@echo "make $@: the language-model track is not built yet; there is 'make bandits'" >&2; exit 1

figures: $(BASE) ## draw every figure from the run store, compute nothing
	@$(RUN) figures --store "$(STORE)" --out "$(OUT)"

report: ## one page on every claim (not built yet)
	@echo "make $@: the report is not built yet; there is 'make figures'" >&2; exit 1

gallery: ## gallery of results (not built yet)
	@echo "make $@: the gallery is not built yet; see docs/results/" >&2; exit 1

test: $(DEV) ## run the tests
	@OMP_NUM_THREADS=1 $(RUN) pytest -n 2 --dist loadfile -m "not slow"

test-slow: $(DEV) ## run the tests that take minutes
	@OMP_NUM_THREADS=1 $(RUN) pytest -m slow

test-vllm: ## tests with vLLM (not built yet)
	@echo "make $@: the language-model track is not built yet" >&2; exit 1

lint: $(DEV) ## ruff and mypy
	@$(RUN) ruff check .
	@$(RUN) ruff format --check .
	@$(RUN) mypy

bench: $(BASE) ## measure CPU time per step and seed; run it on a quiet machine
	@$(RUN) bandits.bench

constraints: $(DEV) ## write constraints.txt from what is installed
	@{ echo "# The versions that this repository was tested with. \`make install\` uses them; \`make constraints\` rewrites them."; \
	  $(RUN) pip freeze --exclude-editable | sed 's/^torch==\([^+]*\)+.*/torch==\1/'; } > constraints.txt.new
	@mv constraints.txt.new constraints.txt

clean: ## remove .venv, caches and drawn figures; keeps the run store and downloaded data
	@rm -rf .venv "$(OUT)" .pytest_cache .mypy_cache .ruff_cache .hypothesis build *.egg-info
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp is written last, so an interrupted installation is repeated and a complete one is not.
.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed; $(PYTHON) is $$($(PYTHON) --version 2>&1). Give another: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -m venv .venv || \
	  { rm -rf .venv; echo "$(PYTHON) cannot make virtual environments (Debian and Ubuntu: install python3-venv)" >&2; exit 1; }

$(BASE): .venv/bin/python pyproject.toml constraints.txt
	@echo "installing into .venv (torch and friends; a few minutes the first time)"
	@$(PIP_INSTALL) -e .
	@touch $@

$(DEV): $(BASE)
	@echo "installing the development tools into .venv"
	@$(PIP_INSTALL) -e ".[dev]"
	@touch $@
