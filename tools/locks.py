"""Writes locks/: for each supported Python, every package with its version and the hashes of its files: `make locks`.

The versions are those of constraints.txt. Extras that are not locked are in `APART`, and
docs/compatibility.md says why. No file names an index: pip takes the one that it is set to, and
the hashes decide what is accepted.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "locks"
APART = ("openenv", "verifiers", "vllm")
"""Extras that are not locked: vllm needs other versions than constraints.txt has, the others 60 more packages each."""
PLATFORM = "x86_64-manylinux_2_28"


def python_versions() -> list[str]:
    """Return the versions of Python in the classifiers of pyproject.toml: ["3.11", ...]."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    versions = [entry.rpartition(":: ")[2] for entry in project["classifiers"] if ":: Python :: 3." in entry]
    return sorted(versions, key=lambda version: int(version.partition(".")[2]))


def locked_extras() -> list[str]:
    """Return the extras that resolve together, in the order of pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [extra for extra in project["optional-dependencies"] if extra not in APART]


def lock_path(version: str) -> Path:
    """Return the file for a version of Python such as "3.11"."""
    return FOLDER / f"python{version}.txt"


def write_lock(version: str) -> None:
    """Resolve all packages for a version of Python, and write its file. Raise SystemExit if that is not possible."""
    extras = [word for extra in locked_extras() for word in ("--extra", extra)]
    command = [sys.executable, "-m", "uv", "pip", "compile", "pyproject.toml", *extras]
    command += ["--constraint", "constraints.txt", "--python-version", version, "--python-platform", PLATFORM]
    command += [
        "--generate-hashes",
        "--no-header",
        "--no-annotate",
        "--quiet",
        "--output-file",
        str(lock_path(version)),
        "--no-emit-package",
        "ansatz-verify",
    ]
    lock_path(version).unlink(missing_ok=True)  # without this, uv would keep versions of the old file
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"The packages for Python {version} do not resolve together:\n{done.stderr}")


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for python in python_versions():
        write_lock(python)
        print(f"{lock_path(python).relative_to(ROOT)}: {lock_path(python).read_text().count('==')} packages")
