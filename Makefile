# Every target does its own set-up (dev/setup) and leaves a ready environment in .venv.
.PHONY: build test test-cpp test-python test-modes test-operators test-foreign sanitize demo wheel docs lint format clean

# A test that ends its process ends the run: another worker would only run it again.
WORKERS = -n 2 --dist loadfile --max-worker-restart 0

build:
	dev/build tests

test: test-cpp test-python

test-cpp: build
	ctest --test-dir build/release -j 2 --output-on-failure

test-python: build
	.venv/bin/python -m pytest $(WORKERS) --no-loadscope-reorder

test-modes: build
	.venv/bin/python -m pytest --full -o hang_timeout=0 tests/test_modes.py

test-operators: build
	.venv/bin/python -m pytest --full -o hang_timeout=0 tests/test_opinfo.py

test-foreign: build
	.venv/bin/python -m pytest $(WORKERS) --mode foreign $(wildcard $(addprefix \
	  tests/test_,$(addsuffix *.py,foreign values semantics_ operators_ training models modules optimizers pure_ \
	  control_flow compile eager openxla spmd offsets robustness_errors robustness_threads opinfo)))

sanitize:
	dev/setup
	dev/sanitize

demo:
	dev/build
	.venv/bin/python examples/train_decoder.py

wheel:
	dev/wheel $(PYTHONS)

docs:
	dev/build reference_pages
	build/release/reference_pages docs
	NO_MKDOCS_2_WARNING=1 .venv/bin/python -m mkdocs build --strict --quiet

lint:
	dev/setup lint
	dev/check

format:
	dev/setup lint
	dev/check --fix

clean:
	rm -rf build dist site .venv
