"""The package stands alone: it imports nothing of the trainer, and loads little before it is used."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROGRAM = """
import json, sys
import ansatz_verify
before = sorted(sys.modules)
verdict = ansatz_verify.verify("1/2", r"\\boxed{0.5}")
print(json.dumps([before, sorted(sys.modules), verdict.reason]))
"""


def test_the_import_loads_neither_tables_nor_algebra_and_a_verdict_loads_no_trainer():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    imported, used, reason = json.loads(done.stdout)
    assert reason == "equal"
    assert {"yaml", "sympy"} & {*imported} == set()
    heavy = {"ansatz", "torch", "transformers", "numpy", "pydantic", "sympy"}
    assert heavy & {name.partition(".")[0] for name in used} == set()


def test_it_needs_sympy_and_pyyaml_only():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert [requirement.partition(">")[0] for requirement in project["dependencies"]] == ["sympy", "pyyaml"]
