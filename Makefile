# `make demo` and `make test` are each enough on a fresh machine with Python 3.11 and make.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: demo test lint types imports unit simulated processes integration faults security test-containers soak audit protos manifests format clean

demo: $(INSTALLED)
	$(BIN)/laser-vfl demo

test: lint types imports unit simulated processes

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(INSTALLED)
	$(BIN)/mypy

imports: $(INSTALLED)
	$(BIN)/lint-imports

unit: $(INSTALLED)
	$(BIN)/python -m pytest -n 2 tests/unit

simulated: $(INSTALLED)
	$(BIN)/python -m pytest -n 2 tests/membership

# All that starts daemons, but for variants of faults and attacks.
processes: $(INSTALLED)
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not variant" tests/faults tests/integration tests/security

integration: $(INSTALLED)
	$(BIN)/python -m pytest -n 2 --dist loadfile tests/integration

faults: $(INSTALLED)
	$(BIN)/python -m pytest -n 2 tests/faults

# All attacks, with their long forms, and the table of them in docs/security.md.
security: $(INSTALLED)
	rm -f .security-results.json
	$(BIN)/python -m pytest tests/security
	$(BIN)/python tests/security/write_table.py

# Real containers, where a Docker engine can be had; the tests say why where it cannot.
test-containers: $(INSTALLED)
	$(BIN)/python -m pytest -rs -p no:xdist tests/containers

# Ten minutes of random faults; `make faults` has 10 seconds of them.
soak: $(INSTALLED)
	LASER_VFL_SOAK_S=600 LASER_VFL_SOAK_SEED=$${LASER_VFL_SOAK_SEED:-$$(date +%s)} $(BIN)/python -m pytest -s tests/faults/test_soak.py

# Known holes in what is installed, where the database can be reached, and secrets in the repository.
audit: $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,audit]'
	$(BIN)/python scripts/audit.py

protos: $(INSTALLED)
	$(BIN)/python scripts/generate_protos.py

# What tests look at of deploy/kubernetes; needs kubectl.
manifests: $(INSTALLED)
	$(BIN)/python scripts/render_kubernetes.py

format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV)

$(INSTALLED): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@
