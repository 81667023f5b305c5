# One command each; every one makes .venv first where that is needed. `make` alone lists them.

# Any Python 3.11 or newer will do; `make PYTHON=/path/to/python3.13 demo` picks one.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.14 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
# `make test TORCH=2.11.0` tests with another release of torch, in an environment of its own (several GB).
LOCKED := $(shell sed -n 's/^torch==//p' requirements.lock)
TORCH ?= $(LOCKED)
VENV := .venv$(if $(filter-out $(LOCKED),$(TORCH)),-$(TORCH))
BIN := $(VENV)/bin
READY := $(VENV)/.ready
MODELS := $(VENV)-models# what only the sweep of models needs, over VENV
N ?= 2000
JOBS ?= 2
FRONT := $(shell find extensions -type f -not -path '*/node_modules/*' -not -path '*/test/*' -not -path '*/labextension/*' 2>/dev/null)

.DEFAULT_GOAL := help
.PHONY: help demo lab test test-all check fuzz fuzz-logs sweep-ops sweep-models sweep-distributed sweep-python matrix gpu parity bench goldens images notebooks docs corpus terms schema wheel lock clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 18

$(READY): requirements.lock pyproject.toml hatch_build.py $(FRONT)
	@test -n "$(PYTHON)" || { echo "aotviz needs Python 3.11 or newer on PATH, or: make PYTHON=/path/to/python"; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(if $(filter-out $(LOCKED),$(TORCH)),$(BIN)/python -m pip install --quiet --disable-pip-version-check torch==$(TORCH))
	@sed -E '$(if $(filter-out $(LOCKED),$(TORCH)),/^(torch|triton|setuptools)==/d)' requirements.lock > $(VENV)/lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r $(VENV)/lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

demo: $(READY) ## a GPT-2 training step through the pipeline; writes demo.aotviz and demo.html
	$(BIN)/python -m aotviz demo $(ARGS)

lab: $(READY) ## JupyterLab on the tour
	$(BIN)/jupyter lab $(if $(filter 0,$(shell id -u)),--allow-root) --ServerApp.root_dir="$(CURDIR)" notebooks/01_tour.ipynb $(ARGS)

test: $(READY) ## the quick tests; with ARGS=FILE, also those of it that take long
	$(if $(findstring tests/,$(ARGS)),,AOTVIZ_TESTS_SHARE=none )$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup --no-loadscope-reorder -m "not slow" $(ARGS)

test-all: $(READY) ## all tests, as CI runs them
	$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup --no-loadscope-reorder $(ARGS)

check: $(READY) ## lint, format, types, walls, and that our text is ours
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m tests.share_of_any
	$(BIN)/lint-imports
	@if [ -f ../shared/tools/originality.py ]; then $(BIN)/python ../shared/tools/originality.py; fi
	$(BIN)/python hatch_build.py npm run format:check
	$(BIN)/python hatch_build.py npm run check

fuzz: $(READY) ## N random aliasing and mutation programs against eager and torch (make fuzz N=2000)
	$(BIN)/python -m tests.oracle.fuzz --n $(N) $(ARGS)

fuzz-logs: $(READY) ## N real logs of torch, broken at random, through the reader (make fuzz-logs N=10000)
	$(BIN)/python -m tests.torch_trace.fuzz --n $(N) $(ARGS)

sweep-ops: $(READY) ## every float32 sample of torch's operator database; go on with it by running it again
	$(BIN)/python -m tests.oracle.sweep_ops --out sweep-ops.jsonl $(ARGS)

$(MODELS)/.ready: tests/sweeps/models.lock $(READY)
	$(BIN)/python -m venv $(MODELS)
	$(BIN)/python -c "import sysconfig; print(sysconfig.get_path('purelib'))" > $$($(MODELS)/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/main.pth
	$(MODELS)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r tests/sweeps/models.lock
	@touch $@

sweep-models: $(MODELS)/.ready ## models of many packages, three training steps, beside eager and torch; writes docs/parity.md
	$(MODELS)/bin/python -m tests.sweeps.models $(ARGS)

sweep-python: $(READY) ## what programs read from Python, changed between two calls, beside eager and torch; writes docs/parity.md
	$(BIN)/python -m tests.sweeps.python $(ARGS)

matrix: $(READY) ## tests and random programs on each release of torch and each Python; writes docs/releases.md
	$(BIN)/python -m tests.matrix $(ARGS)

gpu: ## on a machine with a GPU: its tests, the models, step times; writes benchmarks/results/gpu.json
	$(PYTHON) -m tests.gpu $(ARGS)

parity: $(READY) ## torch's test databases, ours against torch's own and eager; writes docs/parity.md
	$(BIN)/python -m tests.parity $(ARGS)

sweep-distributed: $(READY) ## DDP, FSDP2, tensor, sequence and pipeline parallel on 2 and 4 ranks; its part of docs/parity.md
	$(BIN)/python -m tests.parity --section distributed $(ARGS)

bench: $(READY) ## overhead per call, compile time by stage, cost of recording, as ratios to torch's own
	$(BIN)/python -m benchmarks $(ARGS)

goldens: $(READY) ## write the golden files anew; look at the diff before committing
	AOTVIZ_UPDATE_GOLDENS=1 $(BIN)/python -m pytest -q -k "golden or the_stages_are_those"

images: $(READY) ## docs/images/: views of GPT-2, of an aliasing puzzle and of a backward, and logs; look at each before committing
	$(BIN)/python -m tests.ui.images
	$(BIN)/python -m tests.ui.log_images
	$(BIN)/python -m tests.ui.overview_images
	$(BIN)/python -m tests.ui.memory_images

notebooks: $(READY) ## run the notebooks that have stored outputs, and store them; others by ARGS=notebooks/FILE.ipynb
	$(BIN)/python -m tests.stored_notebooks $(ARGS)

docs: $(READY) ## the site: pages, notebooks, recordings to open, in build/site; a broken link is an error
	$(BIN)/python -m sphinx -b html -W --keep-going -q -d build/doctrees -c docs/site . build/site $(ARGS)

corpus: $(READY) ## the logs of torch that tests read, from programs run anew
	$(BIN)/python -m tests.corpus.make $(ARGS)

terms: $(READY) ## the glossary, the page of the stages and the front end's words, from aotviz/explain/terms.toml
	$(BIN)/python docs/write_terms.py

cures: $(READY) ## docs/cures.md: runs each fault without and with its cure
	$(BIN)/python docs/write_cures.py

schema: $(READY) ## TypeScript types of the wire format, from Python
	$(BIN)/python extensions/core/generate_types.py

wheel: $(READY) ## dist/aotviz-*.whl with the front end inside
	$(BIN)/python -m build --outdir dist

lock: ## requirements.lock anew from pyproject.toml
	rm -rf .venv-lock
	$(PYTHON) -m venv .venv-lock
	.venv-lock/bin/python -m pip install --quiet torch==$(TORCH) setuptools
	.venv-lock/bin/python -m pip install --quiet --editable '.[dev]'
	{ sed -n '/^#/p' requirements.lock; \
	  .venv-lock/bin/python -m pip freeze --all --exclude-editable | grep -v -i -E '^(pip|wheel)==' \
	  | sed -E 's/^torch( @ .*|==.*)/torch==$(TORCH)/' | LC_ALL=C sort -f; } > .venv-lock/lock
	mv .venv-lock/lock requirements.lock
	rm -rf .venv-lock

clean: ## what was built, but not .venv
	rm -rf dist build aotviz/widgets/static extensions/jupyterlab/labextension demo.aotviz demo.html
