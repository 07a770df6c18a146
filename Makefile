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

test:  ## the CPU test suite, on all cores; what failed runs again, to show the values in its assertions
	$(PYTHON) -m pytest -n auto --dist worksteal --assert=plain -m "not slow and not cuda and not emulated" \
		|| { $(PYTHON) -m pytest --last-failed --last-failed-no-failures none; exit 1; }

test-emulated:  ## kernels of a device on the emulator of CUDA, beyond one test of each kind
	$(PYTHON) -m pytest -n auto --dist worksteal -m "emulated and not slow"

test-slow:  ## the longer checks too: 64^3 meshes, many Hypothesis examples
	ENSEMBLE_TEST_EVERY_WIDTH=1 $(PYTHON) -m pytest -m "not cuda"

LOWEST ?= /tmp/ensemble-lowest
LOWEST_TESTS = README.md docs/howto/fuse.md docs/howto/own-solvers.md docs/howto/statistics-and-files.md \
	tests/test_command.py tests/test_loops.py tests/test_public_api.py tests/scalar/test_statistics.py tests/scalar/test_sample_set.py \
	tests/scalar/test_ensemble.py tests/scalar/test_protocols.py tests/scalar/test_fuse.py tests/krylov/test_cg.py \
	tests/linalg/test_scipy_operator.py tests/ode/test_statistics.py tests/apps/kalman/test_moments.py \
	tests/apps/gbees/test_gbees.py

test-lowest:  ## the declared lower bounds: PYTHON installs them at LOWEST, and a part of the suite runs there
	$(PYTHON) -m venv --clear $(LOWEST)
	$(PYTHON) tests/lowest_versions.py > $(LOWEST)/requirements.txt
	$(LOWEST)/bin/python -m pip install -r $(LOWEST)/requirements.txt pytest hypothesis array-api-strict array-api-extra mpmath
	PYTHONPATH=$(CURDIR) $(LOWEST)/bin/python tests/lowest_versions.py --installed
	PYTHONPATH=$(CURDIR) NUMBA_CACHE_DIR=$(LOWEST)/kernels $(LOWEST)/bin/python -m pytest -p no:cacheprovider \
		-W ignore::DeprecationWarning -m "not slow and not cuda" $(LOWEST_TESTS)

NEWEST ?= /tmp/ensemble-newest
NEWEST_TESTS = tests/test_loops.py tests/test_plain_code.py tests/test_byte_code.py tests/test_fork.py \
	tests/scalar/test_fuse.py tests/scalar/test_statistics.py tests/krylov/test_cg.py tests/ode/test_statistics.py \
	tests/apps/kalman/test_moments.py tests/apps/gbees/test_gbees.py

test-newest:  ## the newest Numba, llvmlite, NumPy, SciPy: PYTHON installs them at NEWEST; each private name is hidden there
	$(PYTHON) -m venv --clear $(NEWEST)
	$(NEWEST)/bin/python -m pip install --upgrade --upgrade-strategy eager '.[plots]' \
		pytest hypothesis array-api-strict array-api-extra mpmath
	$(NEWEST)/bin/python -m pip list | grep -E '^(numba|llvmlite|numpy|scipy) '
	PYTHONPATH=$(CURDIR) NUMBA_CACHE_DIR=$(NEWEST)/kernels $(NEWEST)/bin/python -m pytest -p no:cacheprovider \
		-m "not slow and not cuda" $(NEWEST_TESTS)
	PYTHONPATH=$(CURDIR) NUMBA_CACHE_DIR=$(NEWEST)/kernels $(NEWEST)/bin/python -m pytest -p no:cacheprovider \
		tests/test_numba_private.py

LIBRARIES ?= /tmp/ensemble-libraries
LIBRARIES_TESTS = tests/scalar ensemble/linalg/bridge \
	$(shell grep -rlE 'torch|jax' --include='test_*.py' --exclude-dir=scalar tests | sort)

test-libraries-here:  ## tests of arrays of PyTorch and JAX, with those that are installed for PYTHON
	$(PYTHON) -m pytest -n auto --dist worksteal --assert=plain -p no:cacheprovider \
		-m "not slow and not cuda and not emulated" -k "torch or jax" $(LIBRARIES_TESTS)

test-libraries:  ## the same, which PYTHON installs, for the CPU, at LIBRARIES
	$(PYTHON) -m venv --clear $(LIBRARIES)
	$(LIBRARIES)/bin/python -m pip install '.[test]'
	.ci/torch $(LIBRARIES)/bin/python
	$(LIBRARIES)/bin/python -m pip install torch jax
	$(MAKE) test-libraries-here PYTHON=$(LIBRARIES)/bin/python

RUNS ?= 20000
RECORD ?= benchmarks/results/rough-studies.json
KINDS ?= drivers or 8_jobs

rough:  ## studies of RUNS runs with crashes, hangs, kills, a full disk, a lost chunk; their record to RECORD
	ENSEMBLE_ROUGH_RUNS=$(RUNS) ENSEMBLE_ROUGH_RECORD=$(RECORD) $(PYTHON) -m pytest -p no:randomly -s -v -m slow \
		tests/uq/study/test_rough_studies.py -k "$(KINDS)"

test-gpu:  ## kernels on a CUDA device
	$(PYTHON) -m pytest -m cuda

BASE ?= numpy

conformance:  ## data-apis/array-api-tests on the lifted namespace: SUITE=folder of the suite, BASE=numpy, torch, ...
	$(PYTHON) tests/conformance/judge.py "$(SUITE)" --base $(BASE)

support:  ## try every function on every array library and write down what works
	$(PYTHON) tests/conformance/record_support.py

bench:  ## the CPU tables, peers in the same run (python -m benchmarks --help lists all)
	$(PYTHON) -m benchmarks all

asv-check:  ## the asv suite imports and its parameters are sound
	$(PYTHON) -m asv check -E existing

docs:  ## the site, in docs/_build/html: pip install '.[docs,test]'
	$(PYTHON) -m sphinx -q -E -W --keep-going -b html docs docs/_build/html

docs-links-inside:  ## links within the built site, and places on its pages; needs no network
	$(PYTHON) -m tools.site_links docs/_build/html

docs-links: docs-links-inside  ## the same, and whether links to other sites lead somewhere
	$(PYTHON) -m sphinx -q -b linkcheck docs docs/_build/links

BENCH ?= .

asv-pages:  ## the benchmarks of asv at this commit (BENCH=Fuse: some), and all results in docs/_build/html/asv
	$(PYTHON) -m asv machine --yes
	$(PYTHON) -m asv run -E existing --set-commit-hash $(shell git rev-parse HEAD) --bench '$(BENCH)'
	$(PYTHON) -m asv publish --html-dir docs/_build/html/asv

HISTORY ?= /tmp/ensemble-asv-history
COMMITS ?= 10
EVERY ?= 20

asv-history:  ## the benchmarks of asv at COMMITS commits, EVERY apart, in a clone at HISTORY; results in benchmarks/asv
	rm -rf $(HISTORY)
	git clone -q . $(HISTORY)
	git -C $(HISTORY) checkout -q --detach && git -C $(HISTORY) branch -q -f main
	sed 's|"results_dir": "[^"]*"|"results_dir": "$(CURDIR)/benchmarks/asv"|' asv.conf.json > $(HISTORY)/history.conf.json
	$(PYTHON) -m asv machine --yes
	for commit in $$(git log --first-parent --format=%H | awk 'NR % $(EVERY) == 1 % $(EVERY)' | head -n $(COMMITS)); do \
		(cd $(HISTORY) && git checkout -q $$commit && ASV_PYTHONPATH=$(HISTORY) \
			$(PYTHON) -m asv --config history.conf.json \
			run -E existing --set-commit-hash $$commit --bench '$(BENCH)') || echo "$$commit was not measured"; \
	done

docs-tour:  ## the built site in Chromium at two widths: pip install playwright axe-core-python
	$(PYTHON) -m tools.site_tour docs/_build/html

SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 1767225600)

dist:  ## wheel and sdist in dist/, the same bytes each time: pip install build
	rm -rf dist build
	SOURCE_DATE_EPOCH=$(SOURCE_DATE_EPOCH) $(PYTHON) -m build -o dist .
	$(PYTHON) .ci/repack.py dist/*.tar.gz $(SOURCE_DATE_EPOCH)

CONDA ?= /tmp/ensemble-conda

conda:  ## the conda package and its tests, from a channel of wheels at CONDA (Python 3.11): pip install py-rattler-build
	rm -rf $(CONDA)
	$(PYTHON) -m pip download -q -d $(CONDA)/wheels --only-binary=:all: . 'setuptools>=77' pip
	rm -f $(CONDA)/wheels/ensemble_arrays-*.whl
	$(PYTHON) -m tools.local_channel $(CONDA)/wheels $(CONDA)/channel
	git clone -q . $(CONDA)/source
	$(PYTHON) -c "import rattler_build as r; r.build_recipes(['$(CONDA)/source/recipe/recipe.yaml'], \
		channel=['file://$(CONDA)/channel'], output_dir='$(CONDA)/out')"
	ls $(CONDA)/out/noarch/*.conda

.PHONY: help lint format test test-emulated test-slow test-lowest test-newest test-libraries-here \
	test-libraries rough test-gpu conformance \
	support bench asv-check docs docs-links docs-links-inside docs-tour asv-pages asv-history dist conda
