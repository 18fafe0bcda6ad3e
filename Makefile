# Everything happens in .venv. A first call installs, a second one starts at once.
PYTHON ?= python3

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet --quiet
# Python compiles a module when it is first imported; to compile all 20,000 here would take most of a minute. It must then
# keep what it has compiled: where the environment forbids that, each process would compile torch again, for seconds.
INSTALL := $(PIP) install --no-compile
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX ?= $(CURDIR)/$(VENV)/bytecode
LIBAUC := $(VENV)/libauc
INPUTS := pyproject.toml constraints.txt

# One thread a worker: pytest workers with a thread pool each would fight for the cores. A worker that waits for a process
# leaves it its core; one more than cores would collect all tests, and import what they need, for half a minute.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest
WORKERS ?= 2
MINUTES ?= 30
KILLS ?= 200
SEED ?= 0

.DEFAULT_GOAL := help
ifndef TOGETHER
.NOTPARALLEL:
endif
.PHONY: help setup demo study size collect test test-long test-data test-wheel release-check test-exports test-clusters test-timm test-examples test-lowest lowest fuzz torture lint types docs doctest check libauc clean

help:  ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  \1\t\2/' | expand -t 14

# .busy marks an installation in progress. Found at the start, it means that the last one was interrupted: pip can
# then take a half-copied package for an installed one, so the environment is made again from nothing.
define begin_install
	@if [ -e $(VENV)/.busy ] || [ ! -x $(BIN)/python ]; then rm -rf $(VENV); fi
	@mkdir -p $(VENV) && rm -f $(VENV)/.run $(VENV)/.dev && touch $(VENV)/.busy
	@[ -x $(BIN)/python ] || $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Expected Python 3.11 or newer, got $$($(PYTHON) --version 2>&1); set PYTHON=..." >&2; exit 1; }
	@[ -x $(BIN)/python ] || $(PYTHON) -m venv $(VENV)
endef

# torch comes first, by its exact version, so that a CPU wheel on pip's search path is taken; with it what builds midam, and
# a pip that chooses the other packages in less than half of the time of the one that Python 3.11 brings.
define install_midam
	@echo "Installing midam$(1) into $(VENV) (once; a few minutes with a cold cache)"
	@$(INSTALL) -c constraints.txt "$$(grep '^torch==' constraints.txt)" pip hatchling editables
	@$(INSTALL) -c constraints.txt --no-build-isolation -e '.$(2)'
endef

$(VENV)/.run: $(INPUTS)
	$(begin_install)
	$(call install_midam)
	@rm $(VENV)/.busy && touch $@

# One call with the tools too, and not after one without them: each asks anew for what is there, for seconds.
$(VENV)/.dev: $(INPUTS)
	$(begin_install)
	$(call install_midam, and the development tools,[dev])
	@rm $(VENV)/.busy && touch $(VENV)/.run $@

setup: $(VENV)/.dev  ## install midam and the development tools into .venv

demo: $(VENV)/.run  ## train MIDAM on real handwritten digits, a fresh folder under runs/ each time
	@out=runs/demo; n=1; while [ -e "$$out" ]; do n=$$((n + 1)); out=runs/demo-$$n; done; \
	set -x; $(BIN)/midam fit digits --num-instances 4 --seed 0 --out "$$out"

study: $(VENV)/.run  ## run a study and write its page: make study NAME=table2 ARGS="--quick"
	$(BIN)/python -m studies $(NAME) $(ARGS)

test: $(VENV)/.dev libauc  ## run the tests
	$(PYTEST) -n $(WORKERS) --dist worksteal -m "not long"

test-long: $(VENV)/.dev libauc  ## run the long tests: clusters, processes, studies and benchmarks in small
	$(PYTEST) -n $(WORKERS) --dist worksteal -m long

test-data: $(VENV)/.dev libauc  ## run the tests on real data (needs MIDAM_DATA; a skipped test is a failure)
	@if [ -z "$$MIDAM_DATA" ]; then \
		echo "Expected MIDAM_DATA to name the folder with the real data, got nothing; set it, e.g." \
			"MIDAM_DATA=/path/to/data make test-data (see docs/studies.md)." >&2; exit 1; fi
	@if [ ! -d "$$MIDAM_DATA/tabular" ]; then \
		echo "Expected a folder 'tabular' in MIDAM_DATA, got none in $$MIDAM_DATA;" \
			"put musk1.npz and the others there (see docs/studies.md)." >&2; exit 1; fi
	$(PYTEST) -n $(WORKERS) --dist worksteal -m "data and not gpu" --require-data

fuzz: $(VENV)/.dev  ## damage inputs of every format: make fuzz MINUTES=30
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.fuzz inputs --minutes $(MINUTES) --seed $(SEED)

torture: $(VENV)/.dev  ## kill commands at random moments: make torture KILLS=200
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.fuzz kills --count $(KILLS) --seed $(SEED)

# What these need stands in environments of their own below .venv, made anew each time.
FRESH = rm -rf $(VENV)/$(1) && $(PYTHON) -m venv $(VENV)/$(1) && $(VENV)/$(1)/bin/python -m pip --disable-pip-version-check --quiet install

test-wheel: $(VENV)/.dev  ## build wheel and sdist, and use the package in an empty environment
	rm -rf dist && $(BIN)/python -m build --no-isolation --outdir dist .
	$(call FRESH,wheel) -c constraints.txt "$$(grep '^torch==' constraints.txt)" dist/*.whl
	sh tests/outside/wheel.sh "$(CURDIR)/$(VENV)/wheel/bin" "$$(ls $(CURDIR)/dist/*.whl)"

release-check: $(VENV)/.dev  ## build wheel and sdist, and use both in empty environments of each Python that is here
	rm -rf dist && $(BIN)/python -m build --no-isolation --outdir dist .
	$(BIN)/python -m tests.outside.release dist

test-exports: $(VENV)/.dev  ## score exports without midam, by torch and by onnxruntime
	$(call FRESH,torch) -c constraints.txt "$$(grep '^torch==' constraints.txt)" numpy
	$(call FRESH,onnx) -c constraints.txt onnxruntime numpy
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.outside.exports $(CURDIR)/$(VENV)/torch/bin/python $(CURDIR)/$(VENV)/onnx/bin/python

test-clusters: $(VENV)/.dev  ## run the tests that need clusters of Dask and Ray, which it installs
	$(call FRESH,clusters) -c constraints.txt "$$(grep '^torch==' constraints.txt)"
	$(VENV)/clusters/bin/python -m pip --disable-pip-version-check --quiet install -c constraints.txt '.[dask,ray]' pytest hypothesis
	OMP_NUM_THREADS=1 $(VENV)/clusters/bin/python -m pytest tests/integration/test_clusters.py tests/unit/test_compare_workers.py -v

# With the torch and torchvision of the registry, some GB: torchvision does not import next to a CPU build of torch.
test-timm: $(VENV)/.dev  ## run the example with timm, which it installs
	$(call FRESH,timm) . 'timm>=1.0' 'pillow>=10.1' pytest hypothesis
	HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(VENV)/timm/bin/python -m pytest tests/integration/test_examples.py -m timm

test-examples: $(VENV)/.dev  ## run the examples of one's own loop with Lightning, Accelerate and MONAI, which it installs
	$(call FRESH,examples) -c constraints.txt "$$(grep '^torch==' constraints.txt)" '.[medical]' pytest hypothesis lightning accelerate monai
	OMP_NUM_THREADS=1 $(VENV)/examples/bin/python -m pytest tests/integration/test_examples.py

# Warnings of old packages about each other are no failures here.
test-lowest: $(VENV)/.dev  ## run the unit tests with the lowest versions that pyproject.toml admits
	$(call FRESH,lowest) -c constraints-lowest.txt '.[parquet,excel,hdf5,zarr,images,pretrained,medical,wsi,track,export]' pytest hypothesis dcurves
	PYTHONPATH=src OMP_NUM_THREADS=1 $(VENV)/lowest/bin/python -m pytest tests/unit -q -m "not data and not slow" --ignore-glob="*/test_docs_*" -o filterwarnings=

lowest: $(VENV)/.dev  ## write constraints-lowest.txt anew, after a bound has changed
	@echo "# The lowest versions that pyproject.toml admits, written by \`make lowest\`; \`make test-lowest\` installs them." > $@.txt
	$(BIN)/uv pip compile --quiet --no-header --no-annotate --resolution lowest-direct --python-version 3.11 pyproject.toml \
		$(foreach extra,parquet excel hdf5 zarr images medical wsi track export,--extra $(extra)) \
		| grep -vE '^(nvidia-|triton)' >> $@.txt && mv $@.txt constraints-lowest.txt

size: $(VENV)/.dev  ## count lines, files, circles of imports, pages, words and long sentences, each against its limit
	$(BIN)/python -m tests.house

lint: $(VENV)/.dev  ## check style and format with ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev  ## check types with mypy
	$(BIN)/mypy

docs: $(VENV)/.dev  ## build the documentation strictly into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

doctest: $(VENV)/.dev  ## run the examples in the docstrings
	$(PYTEST) --doctest-modules src/midam studies -q

# Python compiles the tests when they are first collected: once here, not in each worker.
collect: $(VENV)/.dev
	@$(PYTEST) --collect-only -q > $(VENV)/collected.log || { cat $(VENV)/collected.log; exit 1; }

# The tests open the pages that docs builds. What takes longest begins first, so that no core is left with it at the end.
check: export MIDAM_SITE = $(CURDIR)/site
check: setup  ## lint, size, types, docs, doctest and test: what CI runs
	@$(MAKE) --no-print-directory TOGETHER=yes --jobs 2 --output-sync types docs collect doctest libauc size lint
	@$(MAKE) --no-print-directory test

# LibAUC serves one parity test and the benchmarks. It lies beside site-packages, without its dependencies.
libauc: $(VENV)/.dev  ## install LibAUC 2.0.1 beside the environment, for the comparison alone
	@[ -e $(LIBAUC)/.done ] || { rm -rf $(LIBAUC) \
		&& $(INSTALL) --no-deps --target $(LIBAUC) libauc==2.0.1 && touch $(LIBAUC)/.done; } \
		|| echo "LibAUC 2.0.1 could not be installed: the tests that compare with it will be skipped." >&2

clean:  ## remove the environment and everything that was built
	rm -rf $(VENV) site build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis src/*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
