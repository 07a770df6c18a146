.DEFAULT_GOAL := help
PYTHON ?= python

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/ -/' | sort

lint:  ## style, types and repeated names
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy

format:  ## rewrite the sources in the project's style
	$(PYTHON) -m ruff check --fix .
	$(PYTHON) -m ruff format .

test:  ## the CPU test suite, on all cores
	$(PYTHON) -m pytest -n auto --dist worksteal -m "not slow and not cuda"

test-slow:  ## the longer checks too: 64^3 meshes, many Hypothesis examples
	$(PYTHON) -m pytest -m "not cuda"

test-gpu:  ## kernels on a CUDA device
	$(PYTHON) -m pytest -m cuda

BASE ?= numpy

conformance:  ## data-apis/array-api-tests on the lifted namespace: SUITE=folder of the suite, BASE=numpy, torch, ...
	$(PYTHON) tests/conformance/judge.py "$(SUITE)" --base $(BASE)

support:  ## try every function on every array library and write down what works
	$(PYTHON) tests/conformance/record_support.py

bench:  ## every benchmark table, peers in the same run
	$(PYTHON) -m benchmarks all

asv-check:  ## the asv suite imports and its parameters are sound
	$(PYTHON) -m asv check -E existing

clean-cache:  ## forget compiled kernels (after an edit of _kernels/_lanes.py, _lane_arithmetic.py or _plain_code.py)
	find ensemble -name '*.nb[ic]' -delete

.PHONY: help lint format test test-slow test-gpu conformance support bench asv-check clean-cache
