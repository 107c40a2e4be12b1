# Needs Python 3.11 or later and make; everything else is installed into .venv.
#
#   make compare             train the seed network on one device and mirrored; say what pays (ARGS="--epochs 2" ...)
#   make test                all tests (ARGS="tests/unit -x" for some)
#   make check               style, types, floors and the house tests
#   make format              lay the code out as `make check` wants it
#   make reference           write docs/reference again from the docstrings
#   make .venv               only install: leaves .venv/bin/dure

PYTHON ?= python3
ARGS ?=

VENV := .venv
STAMP := $(VENV)/.installed

.PHONY: compare test check format reference clean $(VENV)
.DEFAULT_GOAL := test

compare: $(STAMP)
	$(VENV)/bin/dure compare $(ARGS)

# Two workers, a whole file to each, so that what a file compiles is compiled once.
test: $(STAMP)
	$(VENV)/bin/pytest -n 2 --dist loadfile $(ARGS)

check: $(STAMP)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports
	$(VENV)/bin/pytest tests/house

format: $(STAMP)
	$(VENV)/bin/ruff check --fix-only --quiet .
	$(VENV)/bin/ruff format .

reference: $(STAMP)
	$(VENV)/bin/python scripts/reference.py

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache

$(VENV): $(STAMP)

# Written last, so that an installation that was cut short is done again. An environment that still runs is brought up
# to date in place; pip takes out what the constraints replace.
$(STAMP): pyproject.toml constraints.txt
	@command -v "$(PYTHON)" >/dev/null 2>&1 || { \
	    echo "Dure needs Python 3.11 or later, and there is no \`$(PYTHON)\`." \
	         "Install it, or say where it is: make PYTHON=/path/to/python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "Dure needs Python 3.11 or later, and \`$(PYTHON)\` is $$("$(PYTHON)" --version 2>&1)." \
	         "Install a later one, or say where it is: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(VENV)/bin/python -c 'import pip' 2>/dev/null || "$(PYTHON)" -m venv --clear $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@
