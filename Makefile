# Each target sets up what it needs by itself: Python 3.10 or later and a C++ compiler are enough.
VENV ?= .venv
PYTHON ?= python3
RUN = $(VENV)/bin/python
# a build of PyTorch for the CPU, unless one is asked for: make TORCH=torch==2.12.0 ...
TORCH ?= torch==2.13.0

# how long `make soak` draws random programs
SECONDS ?= 3600

.PHONY: demo docs dist matrix test test-all faults style check soak bench gpu-test gpu-bench clean

# holds how many seconds the installation took
$(VENV)/ready: pyproject.toml
	@mkdir -p $(VENV) && date +%s > $(VENV)/begun
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --upgrade pip
	$(RUN) -m pip install --quiet "$(TORCH)"
	$(RUN) -m pip install --quiet -e ".[dev]"
	@echo $$(( $$(date +%s) - $$(cat $(VENV)/begun) )) > $@

# what builds the site and the package
$(VENV)/docs: $(VENV)/ready
	$(RUN) -m pip install --quiet -e ".[docs]"
	@touch $@

docs: $(VENV)/docs
	NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --strict

dist: $(VENV)/ready
	rm -rf dist && $(RUN) -m build && $(RUN) -m twine check --strict dist/*

# The core of the tests on each PyTorch and each Python that there is: an environment each, in out/matrix.
TORCHES ?= 2.11.0 2.13.0 newest
PYTHONS ?= 3.10 3.11 3.12 3.13 3.14
matrix:
	bench/matrix.sh "$(TORCHES)" "$(PYTHONS)"

# Fifteen processes import refold: who asks Python to keep no bytecode has all compiled by each.
demo: $(VENV)/ready
	PYTHONDONTWRITEBYTECODE= $(RUN) bench/demo.py

# What every change must pass, and everything: tests/tiers.py says what the first leaves to the second.
test: TIER =
test-all: TIER = --all
# In three parts side by side: by themselves, each waits half of its time for workers and compilers.
# They take about as long as each other (docs/testing.md); what is after the judge's tests has a
# process of its own. Threads that wait for others must not spin on a core that another part needs.
AFTER = tests/backend tests/test_random_convolutions.py tests/kernels/test_cpu_product.py $(FOLLOWED)
# what is followed of modules that change: they take no captures that other files make
FOLLOWED = $(addprefix tests/test_, asked.py changed.py citizen.py forms.py held.py held_code.py \
	holders.py unchanged.py)
# tests of prices take the captures of samples that those of families make; strips are emulated
FIRST = $(addprefix tests/test_, cli.py families.py prices.py strips.py strip_channels.py convolutions.py)
BESIDE = $(filter-out $(FIRST) $(AFTER), $(wildcard tests/test_*.py))
# Small models, each captured once, find next to nothing in PyTorch's cache of what operators give,
# which takes a quarter of a capture; large ones of equal blocks do, and `make test-all` has it.
test: export TORCH_FAKE_TENSOR_DISPATCH_CACHE = 0
# Some fifty processes import refold: who asks Python to keep no bytecode has all compiled by each.
PYTEST = OMP_WAIT_POLICY=passive GOMP_SPINCOUNT=0 OMP_NUM_THREADS=$${OMP_NUM_THREADS:-2} \
	PYTHONDONTWRITEBYTECODE= \
	REFOLD_TEST_HEADERS=$(CURDIR)/out/headers \
	$(RUN) -m pytest --durations=30 --durations-min=5 $(TIER)
test-all: $(VENV)/docs
test test-all: style
	@rm -rf out/headers && mkdir -p out/headers
	@$(RUN) -m mypy > out/types.log 2>&1 & types=$$!; \
	$(PYTEST) $(BESIDE) > out/beside.log 2>&1 & beside=$$!; \
	{ $(PYTEST) tests/judge; failed=$$?; $(PYTEST) $(AFTER) && exit $$failed; } \
	> out/judge.log 2>&1 & judge=$$!; \
	$(PYTEST) $(addprefix --ignore=,tests/judge $(AFTER) $(BESIDE)); failed=$$?; \
	for part in $$types $$beside $$judge; do wait $$part || failed=1; done; \
	cat out/types.log out/beside.log out/judge.log; exit $$failed

# Twenty faults, one at a time, in a copy: does `make test` still find each?
faults: $(VENV)/ready
	$(RUN) tests/faults.py

style: $(VENV)/ready
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .

check: style
	$(RUN) -m mypy

soak: $(VENV)/ready
	OMP_NUM_THREADS=1 $(RUN) tests/soak.py --seconds $(SECONDS)

bench: $(VENV)/ready
	$(RUN) bench/systems.py
	$(RUN) bench/systems.py --only C0 C1 C2 C3 C4 C5 C6 --output bench/results/cpu_convolutions.csv
	$(RUN) bench/systems.py --only P0 P1 P2 P3 P4 P5 P6 P7 --output bench/results/cpu_sums.csv

# On a machine with an NVIDIA GPU, nvcc and a PyTorch that sees it: with PYTHON's own packages, because
# the environment above holds a PyTorch for the CPU.
gpu-test:
	PYTHONPATH=src $(PYTHON) -m pytest tests -m gpu -o addopts="" --all

gpu-bench:
	PYTHONPATH=src $(PYTHON) bench/cuda_systems.py
	PYTHONPATH=src $(PYTHON) bench/cuda_systems.py --dtype bfloat16 float16 --output bench/results/h200_dtypes.csv
	PYTHONPATH=src $(PYTHON) bench/cuda_systems.py --only C0 C1 C2 C3 C4 C5 C6 --output bench/results/h200_convolutions.csv
	PYTHONPATH=src $(PYTHON) bench/cuda_systems.py --only V0 V1 V2 V3 --output bench/results/h200_values.csv
	PYTHONPATH=src $(PYTHON) bench/cuda_systems.py --only P0 P1 P2 P3 P4 P5 P6 P7 --output bench/results/h200_sums.csv
	PYTHONPATH=src $(PYTHON) bench/cuda_matmul.py --write
	PYTHONPATH=src $(PYTHON) bench/cuda_rows.py --write
	PYTHONPATH=src $(PYTHON) bench/cuda_schedules.py --write
	PYTHONPATH=src $(PYTHON) bench/cuda_convolutions.py --write

clean:
	rm -rf $(VENV) out .pytest_cache .mypy_cache .ruff_cache
