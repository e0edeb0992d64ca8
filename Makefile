# SPDX-License-Identifier: Apache-2.0
# The everyday commands. Each makes .venv with what it needs and builds the compiled modules.

# PYTHON=python3.12 chooses another; by default the newest of 3.11 to 3.14 that is installed.
PYTHON ?= $(firstword $(foreach v,python3 python3.14 python3.13 python3.12 python3.11,\
	$(shell command -v $(v) >/dev/null && $(v) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' && echo $(v))))
VENV := .venv
BIN := $(VENV)/bin
SOURCES := $(shell find src -name '*.pyx' -o -name '*.pxd' -o -name '*.hpp')
TESTS ?= tests
JOBS ?= 2
STUBTEST := --concise --ignore-missing-stub --ignore-disjoint-bases \
	--allowlist tests/stubs_allowlist.txt --ignore-unused-allowlist

.DELETE_ON_ERROR:
.PHONY: demo test check-all lint bench test-gpu pack clean

# Run the main example: handwritten digits, nearest neighbours, on a GPU or a virtual one.
demo: $(VENV)/.test-stamp
	$(BIN)/flambeau run examples/digits_knn.py

# Run the test suite on virtual GPUs.
test: $(VENV)/.test-stamp
	FLAMBEAU_TEST_DEVICE=virtual $(BIN)/python -m pytest -q -n $(JOBS) --dist loadfile $(TESTS)

# Run the test suite on virtual GPUs with all checks on; what they find fails the test.
check-all: $(VENV)/.test-stamp
	FLAMBEAU_TEST_DEVICE=virtual $(BIN)/python -m pytest -q -n $(JOBS) --dist loadfile --check all $(TESTS)

# Run the test suite on the machine's own GPUs.
test-gpu: $(VENV)/.test-stamp
	FLAMBEAU_TEST_DEVICE=real $(BIN)/python -m pytest -q $(TESTS)

lint: $(VENV)/.lint-stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m mypy.stubtest $(STUBTEST) $$($(BIN)/python tests/compiled_modules.py)

# Measure; columns of torch and CuPy stay blank where they are not installed.
bench: $(VENV)/.test-stamp
	$(BIN)/python -m benchmarks.virtual
	$(BIN)/python -m benchmarks.host_cost

# Compile the common kernels into the package, for a release.
pack: $(VENV)/.test-stamp
	$(BIN)/python -m flambeau.kernels

clean:
	rm -rf build dist src/*.egg-info $(VENV)
	find src tests -name __pycache__ -prune -exec rm -rf {} +
	find src -name '*.so' -delete

$(BIN)/python:
	$(if $(PYTHON),,$(error flambeau needs Python 3.11 to 3.14; give PYTHON=...))
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --upgrade pip

# An editable install builds the compiled modules; it is redone when their sources change.
$(VENV)/.test-stamp: $(BIN)/python pyproject.toml setup.py $(SOURCES)
	FLAMBEAU_BUILD_JOBS=$(JOBS) $(BIN)/python -m pip install -q -e '.[test]'
	@touch $@

# The tools alone: to install the package once more would build it once more.
$(VENV)/.lint-stamp: $(VENV)/.test-stamp pyproject.toml
	$(BIN)/python -m pip install -q --group lint
	@touch $@
