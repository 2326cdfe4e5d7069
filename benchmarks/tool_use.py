"""Draws docs/figures/tool_use.svg from runs of `tiny_arithmetic_tool_use_cpu` with and without its environment.

    ansatz train tiny_arithmetic_tool_use_cpu --seed 0 --out runs/tool_use --name tool_0
    ansatz train tiny_arithmetic_tool_use_cpu --seed 0 --out runs/tool_use --name none_0 --environment null
    python benchmarks/tool_use.py runs/tool_use docs/figures/tool_use.svg

The runs are called tool_SEED and none_SEED.
"""

from __future__ import annotations

import sys
from pathlib import Path

from demo import scores
from reward_hacking import curve

from ansatz.track.svg import Chart, Series, figure


def main() -> None:
    folder, out = Path(sys.argv[1]), Path(sys.argv[2])
    with_tool, without = (sorted(folder.glob(f"{name}_*")) for name in ("tool", "none"))
    chart = Chart(
        title="GRPO learns to call the calculator",
        series=[
            Series(name="rollouts that call", points=curve(with_tool, "rollout/observed_frac")),
            Series(name="pass@1", points=scores(with_tool, "pass@1"), dots=True),
            Series(name="pass@1 without the tool", points=scores(without, "pass@1"), dots=True, dashed=True),
        ],
        is_fraction=True,
    )
    out.write_text(figure(chart), encoding="utf-8")


if __name__ == "__main__":
    main()
