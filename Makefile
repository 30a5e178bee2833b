# `make` lists the targets. They need python3 >= 3.11, make and git; everything else is installed into .venv.

PYTHON ?= python3
VENV ?= .venv
ARGS ?=
# All steps are equal and no fit ends early, so that the counts do not depend on the rounding of a processor.
SMALL_SWEEP := --num-seeds 2 --teacher-ranks 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 --student-dims 16 \
    --gd-loss 1e-9 --epochs 20 --gnc-loss 1e-9 --max-guesses 64

BIN := $(VENV)/bin
RUNTIME := $(VENV)/.runtime-installed
DEV := $(VENV)/.dev-installed
DOCS := $(VENV)/.docs-installed
RUN := $(BIN)/python

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help compare ladder check test test-all lint bench clinic docs package gpu clean

help: ## list the targets
	@echo "usage: make TARGET [ARGS='...'] [PYTHON=python3]"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' Makefile

compare: $(RUNTIME) ## measure the bundled language model as found and fixed; writes reports/runs/latest/
	@$(RUN) -m profiler compare $(ARGS)

ladder: $(RUNTIME) ## measure every fix of the bundled language model: alone, on top of the others, and left out
	@$(RUN) -m profiler compare --ladder $(ARGS)

check: $(RUNTIME) ## compare the bundled trainers' counters with .ci/counters-*.json; ARGS='--update REASON' writes them
	@for variant in as-found fixed; do \
	    $(RUN) -m profiler check --baseline .ci/counters-$$variant.json --set steps=10 --set warmup=2 $(ARGS) -- \
	        $(RUN) -m reference_trainer.lm --variant $$variant --device host --preset tiny \
	        --corpus .ci/corpus.txt --warmup-seconds 0 --seconds 600 || exit; \
	done
	@for variant in 'as-found --gnc' 'fixed --gd' 'fixed --gnc'; do \
	    $(RUN) -m profiler check --count --baseline .ci/counters-sweep-$${variant% *}.json --set steps=6 --set warmup=2 $(ARGS) -- \
	        $(RUN) -m reference_trainer.ssm --variant $$variant --device cpu --engine inline $(SMALL_SWEEP) || exit; \
	done

test: $(DEV) browser ## run the quick tests in two processes (ARGS='-n 0': in one)
	@$(RUN) -m pytest -n 2 --dist worksteal $(ARGS)

test-all: $(DOCS) browser ## run the slow tests too, in one process because many of them measure
	@quick=0 slow=0; $(RUN) -m pytest -n 2 --dist worksteal $(ARGS) || quick=$$?; $(RUN) -m pytest -m 'slow and not gpu' $(ARGS) || slow=$$?; \
	case $$quick,$$slow in 0,0 | 0,5 | 5,0) ;; *) exit 1 ;; esac # 5: none of ARGS is one of these

lint: $(DEV) ## ruff (check and format) and mypy
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

bench: $(DEV) ## run the benchmarks of the project's own speed and overhead
	@$(RUN) -m pytest tests/benchmarks/bench_[!g]*.py -m '' -s $(ARGS)
	@$(RUN) tests/benchmarks/bench_worker.py

clinic: $(DEV) ## judge what is told of slow programs (PART=1/4 CASES='trap_trainer wild/matmul' CONDITIONS='quiet busy'); resumes
	@$(RUN) -m tests.clinic judge $(CASES) --part $(or $(PART),1/1) $(if $(CONDITIONS),--conditions $(CONDITIONS)) $(ARGS)

docs: $(DOCS) ## build the documentation site into docs/_build/html/
	@$(RUN) -m sphinx -q -W --keep-going -b html docs docs/_build/html $(ARGS)
	@echo docs/_build/html/index.html

package: $(DOCS) ## build the wheel and the source archive into dist/, and check them as twine does
	@rm -rf dist && $(RUN) -m build --no-isolation --outdir dist . >/dev/null && $(BIN)/twine check --strict dist/*

gpu: ## on a CUDA machine: GPU tests, compare at preset gpu, benchmarks; uses PYTHON as it is; writes OUT=reports/gpu
	@$(if $(OUT),OUT='$(OUT)' )scripts/gpu.sh $(PYTHON) $(ARGS)

clean: ## remove caches, builds and the environment, but not reports/runs/
	rm -rf $(VENV) build dist docs/_build *.egg-info .mypy_cache .ruff_cache .pytest_cache
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +

.PHONY: browser
browser:
	@scripts/install-browser.sh

$(RUNTIME): requirements.txt scripts/setup-venv.sh
	@scripts/setup-venv.sh $(PYTHON) $(VENV) requirements.txt
	@touch $@

$(DEV): requirements-dev.txt requirements.txt scripts/setup-venv.sh
	@scripts/setup-venv.sh $(PYTHON) $(VENV) requirements-dev.txt
	@touch $(RUNTIME) $@

$(DOCS): requirements-docs.txt requirements-dev.txt requirements.txt scripts/setup-venv.sh
	@scripts/setup-venv.sh $(PYTHON) $(VENV) requirements-docs.txt
	@touch $(RUNTIME) $(DEV) $@
