"""A long grading run with hostile rows among ordinary ones: it must end, lose no worker for good, and keep memory flat.

    python benchmarks/verifier_soak.py CASES [ROWS] [HOSTILE_SHARE]      200,000 rows and 0.01 if not given

Prints rows, seconds, verdicts by reason, and the memory of this process (MB) along the way.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ansatz_verify import verify
from ansatz_verify.grade import ALGEBRA_TARGET
from ansatz_verify.pool import WorkerPool

sys.path.insert(0, str(Path(__file__).resolve().parent / "graders"))
from cases import HOSTILE


def memory_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


def main() -> None:
    folder = Path(sys.argv[1])
    rows = int(sys.argv[2]) if len(sys.argv) > 2 else 200_000
    share = float(sys.argv[3]) if len(sys.argv) > 3 else 0.01
    files = sorted((folder / "real").glob("*.jsonl"))
    ordinary = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    ordinary = [(case["gold"], case["prediction"]) for case in ordinary]
    draw = random.Random(0)
    pool = WorkerPool(ALGEBRA_TARGET, workers=2)
    reasons: Counter[str] = Counter()
    hostile = 0

    def grade(pair: tuple[str, str]) -> str:
        return verify(pair[0], pair[1], mode="anchored", pool=pool).reason

    begin = time.monotonic()
    with ThreadPoolExecutor(2) as threads:
        for start in range(0, rows, 2_000):
            batch: list[tuple[str, str]] = []
            for _ in range(min(2_000, rows - start)):
                gold, response = draw.choice(ordinary)
                if draw.random() < share:
                    hostile += 1
                    gold, response = draw.choice(["x^2+\\sin x", "2", gold]), f"\\boxed{{{draw.choice(HOSTILE)}}}"
                batch.append((gold, response))
            reasons.update(threads.map(grade, batch))
            if (start // 2_000) % 10 == 9:
                done = start + len(batch)
                print(
                    f"{done} rows, {time.monotonic() - begin:.0f} s, {memory_mb():.0f} MB, {pool.started} workers",
                    flush=True,
                )
    seconds = time.monotonic() - begin
    print(f"{rows} rows ({hostile} hostile) in {seconds:.0f} s, {rows / seconds:,.0f} a second")
    print(f"processes alive {pool.started}")
    print(dict(reasons))
    pool.close()


if __name__ == "__main__":
    main()
