# `make demo` and `make test` are each enough on a fresh machine with Python 3.11 and make.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

BASE ?= $(shell tail -n 1 deploy/lock/base.txt)

.PHONY: demo test test-all rest others lint types imports unit simulated core processes integration faults fuzz security test-containers soak audit lock image protos rooms manifests format clean

PYTEST := $(BIN)/python -m pytest
# Tests that start daemons wait more than they compute: more workers than cores, and tests that share
# daemons in one of them.
DAEMONS := -n 4 --dist loadscope --no-loadscope-reorder
PROCESSES := tests/faults tests/security tests/integration

demo: $(INSTALLED)
	$(BIN)/laser-vfl demo

# What a person waits for: see "Tests" in CONTRIBUTING.md.
test: lint types imports unit simulated fuzz core

# Everything. No test of `make test` and no simulated schedule runs a second time, but for the recorded
# cases of the fuzzers.
test-all: test rest

rest: others test-containers

# All of it but the containers.
others: $(INSTALLED)
	LASER_VFL_SCHEDULES=200-2000 $(PYTEST) -n 2 tests/membership
	LASER_VFL_FUZZ_S=$${LASER_VFL_FUZZ_S:-600} LASER_VFL_FUZZ_SEED=$${LASER_VFL_FUZZ_SEED:-1} $(PYTEST) -n 2 tests/fuzz
	$(PYTEST) $(DAEMONS) -m "not core" $(PROCESSES)

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(INSTALLED)
	$(BIN)/mypy

imports: $(INSTALLED)
	$(BIN)/lint-imports

unit: $(INSTALLED)
	$(PYTEST) -n 2 tests/unit

# 200 schedules of faults; LASER_VFL_SCHEDULES=FIRST-LAST has others.
simulated: $(INSTALLED)
	$(PYTEST) -n 2 tests/membership

# A few seconds of made-up messages and files; LASER_VFL_FUZZ_S and LASER_VFL_FUZZ_SEED have others.
fuzz: $(INSTALLED)
	$(PYTEST) -n 2 tests/fuzz

core: $(INSTALLED)
	$(PYTEST) $(DAEMONS) -m core $(PROCESSES)

processes: $(INSTALLED)
	$(PYTEST) $(DAEMONS) $(PROCESSES)

integration: $(INSTALLED)
	$(PYTEST) $(DAEMONS) tests/integration

faults: $(INSTALLED)
	$(PYTEST) $(DAEMONS) tests/faults

# All attacks, with their long forms, and the table of them in docs/security.md.
security: $(INSTALLED)
	rm -f .security-results.json
	$(PYTEST) tests/security
	$(BIN)/python -m tests.support.attacks.write_table

# Real containers, where a Docker engine can be had; the tests say why where it cannot.
test-containers: $(INSTALLED)
	$(PYTEST) -rs -p no:xdist tests/containers

# Ten minutes of random faults; `make faults` has 10 seconds of them.
soak: $(INSTALLED)
	LASER_VFL_SOAK_S=600 LASER_VFL_SOAK_SEED=$${LASER_VFL_SOAK_SEED:-$$(date +%s)} $(PYTEST) -s tests/faults/test_soak.py

# Known holes in what is installed, where the database can be reached, secrets in the repository, and
# the lock files; with IMAGE=laser-vfl also what is in that image.
audit: $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,audit]'
	$(BIN)/python scripts/audit.py $(if $(IMAGE),--image $(IMAGE)) $(if $(UNPINNED),--allow-unpinned-base)

# deploy/lock anew; TORCH_INDEX names where pip finds torch for the CPU, if not among its own.
lock: $(INSTALLED)
	$(BIN)/python scripts/lock.py $(if $(TORCH_INDEX),--torch-index $(TORCH_INDEX))

# The image, from the base image of deploy/lock; BASE names another one.
image:
	docker build -f deploy/Dockerfile -t laser-vfl --build-arg BASE=$(BASE) \
	  --build-arg TORCH_INDEX=$(TORCH_INDEX) --build-arg REVISION=$$(git rev-parse HEAD) .

protos: $(INSTALLED)
	$(BIN)/python scripts/generate_protos.py

# docs/rooms.svg, from the imports of the code.
rooms: $(INSTALLED)
	$(BIN)/python scripts/draw_rooms.py

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
