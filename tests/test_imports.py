"""What must not need torch does not bring it in: asked of a fresh interpreter, which has nothing loaded yet."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

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
