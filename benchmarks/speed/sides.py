"""The sides of a benchmark: processes that take turns at working one round."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import torch

from ansatz.models.load import compute_dtype

HERE = Path(__file__).parent
CORES = len(os.sched_getaffinity(0))


@dataclass
class Side:
    """A peer with its settings. reports: those of its rounds, without the warm-up. checkout: where another version of
    Ansatz lies that it runs."""

    name: str
    python: str
    script: str
    settings: dict[str, Any]
    reports: list[dict[str, Any]] = field(default_factory=list)
    process: Any = None
    checkout: Path | None = None

    def start(self) -> None:
        environment = os.environ | {
            "OMP_NUM_THREADS": str(CORES),
            "HF_HUB_OFFLINE": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "VLLM_CPU_KVCACHE_SPACE": "2",
        }
        scripts = HERE
        if self.checkout:
            scripts, environment["PYTHONPATH"] = self.checkout / "benchmarks" / "speed", str(self.checkout)
        self.process = subprocess.Popen(
            [self.python, str(scripts / self.script), json.dumps(self.settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(Path(tempfile.gettempdir()) / f"speed-{self.script}.log").open("a"),
            text=True,
            env=environment,
        )
        self._read()

    def _read(self) -> dict[str, Any]:
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name} ended unexpectedly; see speed-{self.script}.log in the temporary folder")
        return json.loads(line)

    def round(self) -> dict[str, Any]:
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        return self._read()

    def ready(self) -> None:
        """Wait until the side has finished its work between two rounds."""
        self._read()

    def stop(self) -> None:
        if self.process and self.process.poll() is None:
            self.process.stdin.write("stop\n")
            self.process.stdin.flush()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()

    @property
    def seconds(self) -> float:
        return median(report["seconds"] for report in self.reports)

    @property
    def tokens_per_s(self) -> float:
        return median(report["tokens"] / report["seconds"] for report in self.reports)


def alternate(sides: Sequence[Side], *, rounds: int, warm: int = 1) -> list[float]:
    """Let the sides take turns, after `warm` uncounted rounds each. Returns the machine's matrix rates in between, in
    FLOP/s."""
    rates = list[float]()
    try:
        for side in sides:
            side.start()
            for _ in range(warm):
                side.round()
                side.ready()
        for _ in range(rounds):
            for side in sides:
                side.reports.append(side.round())
                side.ready()
            rates.append(matrix_rate())
    finally:
        for side in sides:
            side.stop()
    return rates


def native_dtype() -> str:
    """Return the faster type of this machine: bfloat16 if the processor multiplies it natively, else float32."""
    return str(compute_dtype("auto", torch.device("cpu"))).removeprefix("torch.")


def matrix_rate() -> float:
    """FLOP/s of matrix products on all cores, in a separate process, in the faster of bfloat16 and float32. The faster
    one is found with small products, because large ones take minutes where bfloat16 is emulated."""
    code = (
        "import os, time, torch; torch.set_num_threads(int(os.environ['OMP_NUM_THREADS']))\n"
        "def best(size, dtype):\n"
        "    a, b = torch.randn(2, size, size).to(dtype)\n"
        "    def product():\n"
        "        start = time.perf_counter(); a @ b; return time.perf_counter() - start\n"
        "    product(); return min(product() for _ in range(8))\n"
        "dtype = min((torch.bfloat16, torch.float32), key=lambda dtype: best(256, dtype))\n"
        "print(2 * 1024**3 / best(1024, dtype))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": str(CORES)}
    )
    return float(done.stdout)
