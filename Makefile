# `make demo` and `make test` are each enough on a fresh machine with Python 3.11 and make.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: demo test lint types imports unit integration protos format clean

demo: $(INSTALLED)
	$(BIN)/laser-vfl demo

test: lint types imports unit integration

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(INSTALLED)
	$(BIN)/mypy

imports: $(INSTALLED)
	$(BIN)/lint-imports

unit: $(INSTALLED)
	$(BIN)/python -m pytest tests/unit

integration: $(INSTALLED)
	$(BIN)/python -m pytest tests/integration

protos: $(INSTALLED)
	$(BIN)/python scripts/generate_protos.py

format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV)

$(INSTALLED): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@
