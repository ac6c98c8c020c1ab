# Every target does its own set-up (dev/setup) and leaves a ready environment in .venv.
.PHONY: build test test-cpp test-python sanitize demo docs lint format clean

build:
	dev/build

test: test-cpp test-python

test-cpp: build
	ctest --test-dir build/release -j 2 --output-on-failure

test-python: build
	.venv/bin/python -m pytest

sanitize:
	dev/setup
	dev/sanitize

demo: build
	.venv/bin/python examples/train_decoder.py

docs: build
	build/release/reference_pages docs

lint:
	dev/setup
	dev/check

format:
	dev/setup
	dev/check --fix

clean:
	rm -rf build .venv
