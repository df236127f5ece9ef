# `make demo` and `make test` install what is missing first; whatever is there already is left alone.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo setup dev test check lint type unit fmt bench lock clean packages packages-test mountable

export PYTHONUTF8 := 1
unexport PYTHONPATH PYTHONHOME PYTHONWARNINGS
BIN := .venv/bin
IN_VENV := PATH="$(CURDIR)/$(BIN):$$PATH"

help: ## this list
	@echo "usage: make TARGET"
	@sed -nE 's/^([a-z]+):[^#]*## (.*)/  \1|\2/p' Makefile | while IFS='|' read -r name words; do \
		printf '  %-7s %s\n' "$$name" "$$words"; done

demo: packages mountable setup ## mount, run an agent on this repository (or FOLDER=...), watch it, unmount
	@$(IN_VENV) bash docs/demo.sh $${FOLDER:+"$$FOLDER"}

setup: packages ## the set-up alone: .venv with the command .venv/bin/rnix
	@bash .ci/make-venv.sh run

dev: packages-test ## the set-up and the tools of checks and tests
	@bash .ci/make-venv.sh test
	@bash .ci/llama-server.sh
	@bash .ci/mcp-servers.sh

test: packages-test mountable dev check ## set up, then check

check: lint type unit ## lint, types and tests

lint: dev ## ruff
	@echo "rnixfs: ruff check"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet .

type: dev ## mypy, strict
	@echo "rnixfs: mypy --strict"
	@$(BIN)/mypy

unit: dev mountable ## the tests; ARGS=... goes to pytest
	@echo "rnixfs: pytest"
	@$(IN_VENV) python .ci/unit.py $(ARGS)

fmt: dev ## put the code into the house form
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

bench: packages mountable setup ## speed of the mount beside a C server, procfs and tmpfs
	@$(IN_VENV) bash bench/run.sh

lock: packages ## write the lock files anew, with the newest versions that pyproject.toml allows
	@bash .ci/lock.sh

clean: ## remove what the set-up and the tests made
	@echo "rnixfs: removing .venv and caches"
	@rm -rf .venv .pytest_cache .hypothesis .mypy_cache .ruff_cache build *.egg-info
	@find . -name __pycache__ -prune -exec rm -rf {} +

packages:
	@bash .ci/install-packages.sh run

packages-test:
	@bash .ci/install-packages.sh test

mountable:
	@bash .ci/check-fuse.sh
