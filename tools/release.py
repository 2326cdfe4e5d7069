"""Builds the release into dist/, and tries it as somebody does who has nothing else: `make release`.

The wheels and sdists of the verifier and of the trainer are built twice, each time from the committed files alone, and
must have the same bytes. The wheels are then installed into empty environments with the versions of constraints.txt,
the verifier's alone first, and used in an empty folder.
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
        try_wheels(sorted(dist.glob("*.whl")), folder)
    for file, digest in sorted(first.items()):
        print(f"{digest}  dist/{file}")


def build(folder: Path) -> dict[str, str]:
    """Build all archives from the files of the current commit. Return the SHA-256 of each by its name."""
    source, dist = folder / "source", folder / "dist"
    source.mkdir(parents=True)
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True).stdout
    subprocess.run(["tar", "--extract", "--directory", str(source)], input=archive, check=True)
    seconds = subprocess.run(
        ["git", "log", "-1", "--format=%ct"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()
    environment = {**os.environ, "SOURCE_DATE_EPOCH": seconds}
    for project in (source / "packages" / "verify", source):
        run([sys.executable, "-m", "build", "--outdir", str(dist), str(project)], cwd=folder, env=environment)
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in dist.iterdir()}


def try_wheels(wheels: Sequence[Path], folder: Path) -> None:
    """Try the verifier without the trainer, and then a new user's first steps, in empty folders."""
    (verifier,) = (str(wheel) for wheel in wheels if wheel.name.startswith("ansatz_verify"))
    python = install([verifier], folder / "verifier")
    program = "from ansatz_verify import verify; assert verify('1/2', r'\\boxed{\\frac{2}{4}}')"
    print("$ python -c", repr(program), flush=True)
    run([str(python), "-c", program], cwd=folder)
    python = install(list(map(str, wheels)), folder / "environment")
    empty = folder / "empty"
    empty.mkdir()
    for step in FIRST_STEPS:
        print("$ ansatz", *step, flush=True)
        run([str(python.with_name("ansatz")), *step], cwd=empty)


def install(wheels: Sequence[str], environment: Path) -> Path:
    """Return the Python of a new environment with the wheels in it."""
    venv.create(environment, with_pip=True)
    python = environment / "bin" / "python"
    command = [str(python), "-m", "pip", "install", "--quiet", "--constraint", str(ROOT / "constraints.txt"), *wheels]
    run(command, cwd=environment)
    return python


def run(command: Sequence[str], *, cwd: Path, env: dict[str, str] | None = None) -> None:
    """Run a command to its end. Raise SystemExit, with what it printed, if it fails."""
    done = subprocess.run(command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        sys.exit(f"{done.stdout}\n{' '.join(command)} ended with code {done.returncode}.")


if __name__ == "__main__":
    main()
