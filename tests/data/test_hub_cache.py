"""Data sets of the hub without a network, from a cache that is laid out by hand, with the real package."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

pytest.importorskip("datasets", reason="the extra datasets is not installed")

COMMIT = "d" * 40
CARD = """---
configs:
- config_name: main
  data_files: [{split: test, path: main/test-*}]
- config_name: socratic
  data_files: [{split: test, path: socratic/test-*}]
---
"""
PROGRAM = """
import sys
from ansatz.errors import DataError
from ansatz.data.base import load_problems
from ansatz.evaluate.suites import load_suite
try:
    for name in sys.argv[1:]:
        loaded = load_suite(name)
        print(loaded.card.name, len(loaded.problems), loaded.problems[0].answer)
    settings = {"dataset": "openai/gsm8k", "config": "socratic", "revision": "d" * 40}
    print(load_problems("hub", split="test", settings=settings)[0].question)
except DataError as error:
    print("refused:", error)
"""


def cached(home: Path, name: str, files: dict[str, Any]) -> None:
    """A data set as `hf download --repo-type dataset` leaves it."""
    folder = home / "hub" / f"datasets--{name.replace('/', '--')}"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text(COMMIT)
    for path, content in files.items():
        file = folder / "snapshots" / COMMIT / path
        file.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str):
            file.write_text(content)
        else:
            pyarrow.parquet.write_table(pyarrow.Table.from_pylist(content), file)


def loaded(home: Path, *suites: str) -> list[str]:
    """What a fresh process prints: the hub reads its settings when it is imported."""
    offline = {"HF_HOME": str(home), "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    command = [sys.executable, "-c", PROGRAM, *suites]
    done = subprocess.run(command, env=os.environ | offline, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_suites_and_training_data_are_read_from_a_cache_of_the_hub(tmp_path: Path) -> None:
    gsm8k = [{"question": f"{n}+1?", "answer": f"It is {n + 1}.\n#### {n + 1}"} for n in range(1319)]
    socratic = [{"question": "Why?", "answer": "#### 7"}]
    parts = {"main/test-00000-of-00001.parquet": gsm8k, "socratic/test-00000-of-00001.parquet": socratic}
    cached(tmp_path, "openai/gsm8k", {"README.md": CARD, **parts})
    row = {"problem": "1?", "solution": "\\boxed{1}", "answer": "1", "subject": "Algebra", "level": 1}
    math = [{**row, "unique_id": f"test/{n}.json"} for n in range(500)]
    cached(tmp_path, "HuggingFaceH4/MATH-500", {"test.jsonl": "".join(json.dumps(row) + "\n" for row in math)})
    assert loaded(tmp_path, "gsm8k", "math500") == ["gsm8k 1319 1", "math500 500 1", "Why?"]


def test_a_data_set_that_no_cache_has_is_named_with_what_to_do(tmp_path: Path) -> None:
    (message,) = loaded(tmp_path, "gsm8k")
    assert message.startswith("refused: --suite gsm8k is read from the hub: data set 'openai/gsm8k', split 'test':")
    assert message.endswith("one JSON object per line, with problem and answer.")
