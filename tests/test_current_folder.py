"""Nothing is imported from the current folder, which may hold files of somebody else, such as a downloaded run."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import TypeGuard

import pytest
from toy_runs import toy_recipe

ROOT = Path(__file__).parents[1]
STARTS = {"spawn", "ProcessPoolExecutor", "Process", "Pool"}
COMMAND = "from ansatz.cli.main import main\n\nif __name__ == '__main__':\n    main()\n"


def test_a_grader_whose_answers_need_a_worker_runs_no_file_of_the_current_folder(tmp_path):
    rows = [{"answer": r"\sin(2x)", "response": r"\boxed{2\sin x\cos x}"}]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert names_imported_in(tmp_path, "score", "rows.jsonl") == []
    scored = json.loads((tmp_path / "rows.scored.jsonl").read_text())
    assert scored["verdict"]["stage"] == "algebra"  # a worker has answered


@pytest.mark.cluster
def test_workers_of_ray_run_no_file_of_the_current_folder(tmp_path):
    recipe = toy_recipe(tmp_path, {"train": {"steps": 1}, "evaluate": {"every": 0}, "cluster": {"workers": 1}})
    assert names_imported_in(tmp_path, "train", str(recipe)) == []


@pytest.mark.slow
def test_the_processes_of_check_and_of_a_sweep_run_no_file_of_the_current_folder(tmp_path):
    recipe = toy_recipe(tmp_path, {"sft": {"steps": 1}, "train": {"steps": 1}, "evaluate": {"every": 0}})
    assert names_imported_in(tmp_path, "check", str(recipe)) == []
    sweep = {"recipe": str(recipe), "grid": {"train.lr": [1e-4, 1e-3]}, "blocks": {"seeds": [0]}}
    (tmp_path / "sweep.yaml").write_text(json.dumps({**sweep, "outcome": {"name": "sampled_pass@1"}}))
    assert names_imported_in(tmp_path, "sweep", "sweep.yaml") == []


def names_imported_in(folder: Path, *arguments: str) -> list[str]:
    """Run the command where a file lies for every module of Python and of the installed packages, and return the names
    of those that were run."""
    log = folder.with_name("imported.txt")
    log.touch()
    for name in {*sys.stdlib_module_names, *packages_distributions(), "sitecustomize", "usercustomize"}:
        if name.isidentifier() and name != "__main__":
            (folder / f"{name}.py").write_text(f"open({str(log)!r}, 'a').write({name!r} + '\\n')\nraise ImportError\n")
    path = os.pathsep.join([str(ROOT), str(ROOT / "packages" / "verify")])
    script = folder.parent / "bin" / "ansatz"  # as the installed command, it looks for modules next to itself
    script.parent.mkdir(exist_ok=True)
    script.write_text(COMMAND)
    done = subprocess.run(
        [sys.executable, str(script), *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return log.read_text().split()


def test_every_command_that_starts_python_leaves_the_current_folder_out():
    places = [ROOT / "ansatz", ROOT / "packages" / "verify" / "ansatz_verify"]
    commands = dict[str, list[str]]()
    for file in sorted(file for place in places for file in place.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.List | ast.Tuple) and len(node.elts) > 2 and is_python(node.elts[0]):
                commands[f"{file.name}:{node.lineno}"] = [ast.unparse(part) for part in node.elts[1:]]
    assert len(commands) > 5
    assert [where for where, parts in commands.items() if parts[0] not in ("'-P'", "*flags")] == []


def test_every_place_that_starts_processes_of_multiprocessing_does_so_safely():
    unsafe, starts = [], 0
    for file in sorted((ROOT / "ansatz").rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        blocks = [node for node in ast.walk(tree) if isinstance(node, ast.With)]
        safe = {id(part) for block in blocks if "started_safely()" in ast.unparse(block) for part in ast.walk(block)}
        imported = {name.name for node in ast.walk(tree) if is_about_processes(node) for name in node.names}
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in imported & STARTS:
                starts += 1
                unsafe += [f"{file.name}:{node.lineno}"] * (id(node) not in safe)
    assert starts >= 2
    assert unsafe == []


def is_about_processes(node: ast.AST) -> TypeGuard[ast.ImportFrom]:
    modules = ("multiprocessing", "concurrent.futures", "torch.multiprocessing")
    return isinstance(node, ast.ImportFrom) and (node.module or "").startswith(modules)


def is_python(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and ast.unparse(node) == "sys.executable"
