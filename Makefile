# Needs Python 3.11 or newer and nothing else; `make` alone says what there is.
# What it fetches goes into .venv/ and .wakeful/ of this folder.

.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# Every tool below keeps a cache in the home folder; a machine may have none.
ifeq ($(strip $(HOME)),)
export HOME := $(CURDIR)/.wakeful/home
endif

BIN := .venv/bin
PYTEST := $(BIN)/pytest
SEED ?= 1

##@ Run it

demo: .venv/.ready ## run the main job on servers of its own and judge the result
	@$(BIN)/wakeful demo

up: .venv/.ready ## start servers, workers and scheduler to stay, and print the settings
	@$(BIN)/wakeful up

doctor: .venv/.ready ## say what is reachable, and what to do about what is not
	@$(BIN)/wakeful doctor

migrate: .venv/.ready ## bring the database of the settings to the head revision
	@$(BIN)/wakeful db upgrade

##@ Check it

test: .venv/.ready ## all tests but those marked slow, on a real PostgreSQL and Valkey
	$(PYTEST) -n 3 --dist loadfile -m "not slow"

lint: .venv/.ready ## style, formatting and the import contract
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports

types: .venv/.ready ## mypy, strict
	$(BIN)/mypy

check: lint types test ## what a change must pass before it is proposed

wheel-test: .venv/.ready ## build the wheel and run the tests against it with the sources absent
	UV="$$(tools/bootstrap --print-uv)" tools/wheel-test

replay: .venv/.ready ## replay every recorded conversation, without and with faults
	$(PYTEST) tests/replay

chaos: .venv/.ready ## half an hour of faults from one seed (SEED=...), with its coverage
	$(BIN)/wakeful chaos --minutes 25 --seed $(SEED)
	$(BIN)/wakeful chaos --minutes 5 --seed $(SEED) --storm-only --lease 30

chaos-full: .venv/.ready ## every crash point, 500 pairs, 300 programs and two storms, however long; the slow tests
	$(BIN)/wakeful chaos --full --seed $(SEED)
	$(BIN)/wakeful chaos --full --seed $(SEED) --storm-only --lease 30
	$(PYTEST) -m slow --ignore=tests/replay

mutants: .venv/.ready ## sabotage one line of a defence at a time, and see the test that guards it turn red
	$(BIN)/python tools/mutants

bench: .venv/.ready ## measure, print a table and write benchmarks/results.json
	$(BIN)/python benchmarks

##@ Housekeeping

clean: ## remove the environment and everything that was built
	rm -rf .venv .wakeful dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .coverage

help: ## this list
	@awk 'BEGIN { FS = ":.*## " } /^##@/ { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

.venv/.ready: pyproject.toml tools/bootstrap
	@tools/bootstrap
	@touch $@

.PHONY: demo up doctor migrate test lint types check wheel-test replay chaos chaos-full mutants bench clean help
