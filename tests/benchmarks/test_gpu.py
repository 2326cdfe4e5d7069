"""The GPU's benchmark with its own model at one layer, on whatever device there is."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "gpu.py"
SMALL = {"layers": 1, "prompts": 2, "samples": 2, "prompt-tokens": 16, "response-tokens": 16, "matrix": 256}


@pytest.mark.slow
def test_it_runs_with_its_own_defaults_but_for_the_size(tmp_path: Path) -> None:
    out = tmp_path / "gpu.json"
    options = [word for name, value in SMALL.items() for word in (f"--{name}", str(value))]
    subprocess.run(
        [sys.executable, str(SCRIPT), *options, "--tokens-per-microbatch", "256", "--out", str(out)], check=True
    )
    found = json.loads(out.read_text(encoding="utf-8"))
    assert found["model"] == "Qwen/Qwen2.5-1.5B"
    assert 0 < found["floor_s"] < found["decode_step_s"]
    assert 0 < found["matrix_rate_frac"] < 1.5
    assert 1.0 <= found["alignment"] < 1.05
