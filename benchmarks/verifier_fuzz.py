"""Random LaTeX against the verifier for a given time: no raise, no hang, no crashed worker.

python benchmarks/verifier_fuzz.py MINUTES [SEED]
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "packages" / "verify" / "tests"))
from latex import answers, check_verdict

CHUNK = 2_000


def main() -> None:
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    first_seed = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    deadline = time.monotonic() + 60 * minutes
    pairs, slowest, rounds = 0, 0.0, 0
    health = list(HealthCheck)
    while time.monotonic() < deadline:

        @seed(first_seed + rounds)
        @settings(
            max_examples=CHUNK, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=health
        )
        @given(answers(), answers())
        def run(gold: str, answer: str) -> None:
            nonlocal pairs, slowest
            slowest = max(slowest, check_verdict(gold, answer))
            pairs += 1

        run()
        rounds += 1
        left = max(0.0, deadline - time.monotonic())
        print(f"{pairs} pairs, slowest verdict {1e3 * slowest:.0f} ms, {left:.0f} s left", flush=True)


if __name__ == "__main__":
    main()
