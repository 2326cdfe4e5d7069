"""The table and the order of problems of `benchmarks/learning`, on made-up rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.learning.run import rows_in_order, steps_of_trl, table


def scores(pass_at_1: float) -> dict[str, Any]:
    strict = {"pass@1": pass_at_1, "pass@1_interval": [pass_at_1 - 0.1, pass_at_1 + 0.1], "maj@k": {"1": 0.1, "8": 0.3}}
    return {"scores": {"strict": strict}}


def test_a_row_has_the_seconds_and_the_rewards_of_the_steps_before_it() -> None:
    steps = {"TRL": [{"step": step, "reward": step / 10, "seconds": 100.0} for step in range(1, 9)]}
    rows = [
        {"side": "start", "step": 0, "sampled": scores(0.2), "greedy": scores(0.25)},
        {"side": "TRL", "step": 7, "sampled": scores(0.4), "greedy": scores(0.45)},
    ]
    first, second = table(steps, rows).splitlines()[2:]
    assert first == "| start | 0 | 0 |  | 20.0 [10.0, 30.0] | 25.0 | 30.0 |"
    assert second == "| TRL | 7 | 700 | 0.50 | 40.0 [30.0, 50.0] | 45.0 | 30.0 |"


def test_the_other_side_gets_the_problems_in_the_order_of_the_steps(tmp_path: Path) -> None:
    folder = tmp_path / "rl" / "samples"
    folder.mkdir(parents=True)
    for step in (2, 10, 1):
        row = {"group": 0, "prompt": f"{step}?", "answer": str(step), "mean": 0.5}
        (folder / f"step-{step:06d}.groups.jsonl").write_text(json.dumps(row) + "\n")
    assert [row["answer"] for row in rows_in_order(tmp_path)] == ["1", "2", "10"]
    assert steps_of_trl(tmp_path) == []
