# Every target does its own set-up; nothing but python3, make and a package index is needed.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# of the tests, one more than cores: many wait for processes, disks or a browser
WORKERS ?= $(shell $(PYTHON) -c "import os; print((os.cpu_count() or 1) + 1)")

# packages are installed without bytecode; the first import must be able to keep it for the next
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup check wheel test machines nodes bench docs quickstart clean

setup: $(VENV)/.dev
quickstart: $(VENV)/.use
	$(BIN)/rankbits quickstart

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.use: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --no-compile -c constraints.txt -e '.[images]'
	touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --no-compile -c constraints.txt -e '.[dev]'
	touch $@ $(VENV)/.use

$(VENV)/.bench: pyproject.toml constraints.txt | $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --no-compile -c constraints.txt -e '.[dev,bench]'
	touch $@

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# the package as others get it: built, installed with what it declares and nothing else, and used;
# what it declares is lent by the environment that has it, for a second torch takes a minute
wheel: $(VENV)/.dev
	rm -rf dist $(VENV)-wheel
	$(BIN)/python -m build --quiet
	$(BIN)/python -m venv --without-pip $(VENV)-wheel
	$(BIN)/pip --python $(VENV)-wheel/bin/python install --quiet --no-index --no-deps dist/*.whl
	$(BIN)/python .ci/borrow.py $(VENV)-wheel rankbits
	$(BIN)/pip --python $(VENV)-wheel/bin/python check
	cd dist && ../$(VENV)-wheel/bin/python ../.ci/smoke.py

# what the browser tests drive, where it can be had; where it cannot they say so and skip
$(VENV)/.browser: | $(VENV)/.dev
	command -v chromium >/dev/null || { apt-get update -qq && apt-get install -y -qq chromium; } \
	  >/dev/null 2>&1 || echo "no Chromium: the tests of the page will be skipped"
	npm install --silent --prefix build axe-core >/dev/null 2>&1 || echo "no axe-core: one test less"
	touch $@

test: $(VENV)/.dev
	$(MAKE) --jobs=3 --output-sync=target check wheel $(VENV)/.browser
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup --cov --cov-report=term:skip-covered

# what prints or pins learned figures, once more as if on other machines
machines: $(VENV)/.dev
	$(BIN)/python tests/machines.py $(MACHINES) $(BIN)/python -m pytest -q -m learned -n $(WORKERS) --dist loadgroup

# Ray on several nodes: four raylets, and one of them killed
nodes: $(VENV)/.dev
	RANKBITS_NODES=1 $(BIN)/python -m pytest -q tests/test_scale_nodes.py

bench: $(VENV)/.bench
	set -e; for script in benchmarks/speed_*.py; do $(BIN)/python $$script --save; done

docs: $(VENV)/.dev
	$(BIN)/python docs/build.py

clean:
	rm -rf $(VENV) $(VENV)-wheel build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .coverage*
