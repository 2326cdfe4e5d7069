"""Builds the release into dist/, and tries it as somebody does who has nothing else: `make release`.

The wheel and the sdist are built twice, each time from the committed files alone, and must have the same bytes. The
wheel is then installed into an empty environment with the versions of constraints.txt, and used in an empty folder.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
FIRST_STEPS = (
    ("--version",),
    ("recipes",),
    ("init", "my_project"),
    ("data", "check", "my_project/problems.jsonl"),
    ("explain", "my_project/recipe.yaml"),
    ("parity",),
    ("schema",),
    ("train", "my_project/recipe.yaml", "--model.toy", "true"),
    ("train", "my_project/recipe.yaml", "--model.toy", "true", "--name", "second", "--train.lr", "5e-4"),
    ("report", "runs/first_run_toy"),
    ("compare", "runs/first_run_toy", "runs/second"),
    ("rollouts", "runs/first_run_toy", "--where", "not correct"),
    ("export", "runs/first_run_toy", "model"),
    ("eval", "model", "--suite", "my_project/problems.jsonl", "--samples-per-prompt", "2"),
)
"""What a new user types first, in this order."""


def main() -> None:
    """Build and try the release. Raise SystemExit with a sentence if something is not as it should be."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        first, second = build(folder / "first"), build(folder / "second")
        if first != second:
            different = sorted(file for file in first if first[file] != second.get(file))
            sys.exit(f"Two builds of the same commit differ in {', '.join(different)}.")
        dist = ROOT / "dist"
        shutil.rmtree(dist, ignore_errors=True)
        shutil.copytree(folder / "first" / "dist", dist)
        run([sys.executable, "-m", "twine", "check", "--strict", *map(str, dist.iterdir())], cwd=ROOT)
        try_wheel(next(dist.glob("*.whl")), folder)
    for file, digest in sorted(first.items()):
        print(f"{digest}  dist/{file}")


def build(folder: Path) -> dict[str, str]:
    """Build both archives from the files of the current commit. Return the SHA-256 of each by its name."""
    source, dist = folder / "source", folder / "dist"
    source.mkdir(parents=True)
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True).stdout
    subprocess.run(["tar", "--extract", "--directory", str(source)], input=archive, check=True)
    seconds = subprocess.run(
        ["git", "log", "-1", "--format=%ct"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()
    environment = {**os.environ, "SOURCE_DATE_EPOCH": seconds}
    run([sys.executable, "-m", "build", "--outdir", str(dist), str(source)], cwd=folder, env=environment)
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in dist.iterdir()}


def try_wheel(wheel: Path, folder: Path) -> None:
    """Install the wheel into an empty environment, and take a new user's first steps in an empty folder."""
    environment, empty = folder / "environment", folder / "empty"
    venv.create(environment, with_pip=True)
    empty.mkdir()
    python = str(environment / "bin" / "python")
    run(
        [python, "-m", "pip", "install", "--quiet", "--constraint", str(ROOT / "constraints.txt"), str(wheel)],
        cwd=empty,
    )
    for step in FIRST_STEPS:
        print("$ ansatz", *step, flush=True)
        run([str(environment / "bin" / "ansatz"), *step], cwd=empty)


def run(command: Sequence[str], *, cwd: Path, env: dict[str, str] | None = None) -> None:
    """Run a command to its end. Raise SystemExit, with what it printed, if it fails."""
    done = subprocess.run(command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        sys.exit(f"{done.stdout}\n{' '.join(command)} ended with code {done.returncode}.")


if __name__ == "__main__":
    main()
