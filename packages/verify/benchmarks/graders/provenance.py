"""Where figures come from: the commit and the kind of processor."""

from __future__ import annotations

import subprocess
from pathlib import Path


def provenance() -> dict[str, str]:
    """The commit and the kind of processor."""
    here = Path(__file__).parent
    git = subprocess.run(["git", "describe", "--always"], cwd=here, capture_output=True, text=True, check=False)
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
    bfloat16 = any(line.startswith("flags") and "avx512_bf16" in line for line in lines)
    return {"commit": git.stdout.strip(), "processor": model + (" with AVX512-BF16" if bfloat16 else "")}
