"""What must not need torch does not bring it in, and a command line loads only what it needs: asked of a fresh
interpreter, which has nothing loaded yet."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FREE_OF_TORCH = ("types", "errors", "registry", "config", "rewards", "rewards.grader", "data", "data.base", "prompts")
FREE_OF_TORCH += ("prompts.render", "track", "track.tracker", "track.report", "evaluate.estimators", "rollout.base")
FREE_OF_TORCH += ("api", "adapters")

SCRIPT = """
import importlib, json, pkgutil, sys
found = {}
for name in sys.argv[1:]:
    importlib.import_module(f"ansatz.{name}")
    found[name] = sorted({"torch", "transformers"} & set(sys.modules))
import ansatz.data, ansatz.rewards, ansatz.track, ansatz.prompts, ansatz.config
for package in (ansatz.config, ansatz.data, ansatz.rewards, ansatz.track, ansatz.prompts):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)
        found[module.name] = sorted({"torch", "transformers"} & set(sys.modules))
print(json.dumps(found))
"""

COMMAND = """
import json, sys
from ansatz.cli.main import main
try:
    main()
finally:
    print(json.dumps(sorted(sys.modules)), file=open("loaded.json", "w"))
"""
HEAVY = {"torch", "transformers", "tokenizers", "sympy", "huggingface_hub"}
OF_THE_COMMAND_ALONE = {
    "cli",
    "cli.main",
    "cli.recipe",
    "cli.verbs",
    "errors",
    "files",
    "links",
    "process",
    "registry",
    "trust",
    "visible",
}
TYPING_ERRORS = {
    "trian tiny_arithmetic_grpo_cpu": "No such command 'trian'",
    "train nosuch": "no recipe file 'nosuch'",
    "train tiny_arithmetic_grpo_cpu --train.lrr 1": "train has no key 'lrr'",
    "train --resume nosuch": "not a run folder",
    "explain nosuch": "no recipe file 'nosuch'",
    "explain tiny_arithmetic_grpo_cpu --train.lrr 1": "train has no key 'lrr'",
    "check nosuch": "no recipe file 'nosuch'",
    "recipes nosuch": "no recipe file 'nosuch'",
    "export nosuch out": "not a run folder",
    "report nosuch": "not a run folder",
    "ask nosuch 1+1?": "'nosuch' is not a folder",
    "eval nosuch --suite nosuch": "'nosuch' is unknown",
    "eval nosuch --suite rows.jsonl": "'nosuch' is not a folder",
    "sample nosuch --data rows.jsonl": "'nosuch' is not a folder",
    "score nosuch": "'nosuch' does not exist",
    "data peak rows.jsonl": "No such command 'peak'",
    "data peek nosuch": "'nosuch' does not exist",
    "data peek rows.jsonl --shwo 3": "No such option: --shwo",
    "data difficulty rows.jsonl --out out.jsonl --model nosuch": "'nosuch' is not a folder",
}


def run(words: str, folder: Path, **variables: str) -> tuple[set[str], subprocess.CompletedProcess[str]]:
    """Run the command in a folder: the modules that it has loaded when it ends, and how it ended."""
    (folder / "rows.jsonl").write_text('{"question": "How much is 1 + 1 in words?", "answer": "2"}\n')
    command = [sys.executable, "-c", COMMAND, *words.split()]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200", **variables}
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment)
    return set(json.loads((folder / "loaded.json").read_text())), done


def of_ansatz(modules: set[str]) -> set[str]:
    return {name.removeprefix("ansatz.") for name in modules if name.startswith("ansatz.")}


@pytest.mark.parametrize("words", ["--version", "--help", "", "nosuch"])
def test_a_command_line_without_a_verb_loads_no_verb(words, tmp_path):
    modules, done = run(words, tmp_path)
    assert done.stdout + done.stderr
    assert of_ansatz(modules) <= OF_THE_COMMAND_ALONE
    assert modules & HEAVY == set()
    assert ("rich" in modules) == (words != "--version")


def test_the_completion_of_verbs_loads_no_verb(tmp_path):
    modules, done = run("", tmp_path, _ANSATZ_COMPLETE="complete_bash", COMP_WORDS="ansatz tr", COMP_CWORD="1")
    assert done.stdout.split() == ["track", "train"]
    assert of_ansatz(modules) <= OF_THE_COMMAND_ALONE
    assert modules & HEAVY == set()


@pytest.mark.parametrize(("words", "sentence"), TYPING_ERRORS.items())
def test_a_typing_error_is_found_before_anything_heavy_is_loaded(words, sentence, tmp_path):
    modules, done = run(words, tmp_path)
    assert (done.returncode, sentence in done.stderr) == (2, True), done.stderr
    assert modules & HEAVY == set()


@pytest.mark.parametrize("words", ["data peek rows.jsonl", "data check rows.jsonl", "recipes"])
def test_verbs_that_read_text_load_nothing_heavy(words, tmp_path):
    modules, done = run(words, tmp_path)
    assert done.returncode == 0, done.stderr
    assert modules & HEAVY == set()


def test_explain_loads_no_code_of_models_nor_of_sharded_weights(tmp_path):
    modules, done = run("explain tiny_arithmetic_grpo_cpu", tmp_path)
    assert done.returncode == 0, done.stderr
    slow = {"transformers.modeling_utils", "torch.distributed.checkpoint", "torch.distributed.tensor"}
    assert modules & slow == set()


def test_the_help_of_a_verb_loads_nothing_heavy():
    script = "import sys; from ansatz.cli import verbs; [verbs.load_verb(name) for name in verbs.verb_help()]; "
    done = subprocess.run([sys.executable, "-c", f"{script}print(*sys.modules)"], capture_output=True, text=True)
    modules = set(done.stdout.split())
    assert "ansatz.cli.train" in modules, done.stderr
    assert modules & HEAVY == set()


def test_rooms_without_tensors_bring_in_no_torch():
    done = subprocess.run([sys.executable, "-c", SCRIPT, *FREE_OF_TORCH], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found) > 40
    assert {name: modules for name, modules in found.items() if modules} == {}


def test_every_room_has_its_place_in_the_layers():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(contract for contract in contracts if contract["type"] == "layers")["layers"]
    placed = {name.strip().removeprefix("(").removesuffix(")") for layer in layers for name in layer.split("|")}
    rooms = {path.parent.name for path in (ROOT / "ansatz").glob("*/__init__.py")}
    rooms |= {path.stem for path in (ROOT / "ansatz").glob("*.py")} - {"__init__"}
    assert rooms <= {name.removeprefix("ansatz.") for name in placed}


def test_no_two_test_files_share_a_name():
    # pytest imports test files by their base name: of two with the same name it can only collect one
    names = sorted(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name in set(names) if names.count(name) > 1] == []
