"""Seconds of a step on two trainer ranks of one thread each, and in one process of two threads, by phase.

    python benchmarks/ranks.py --model SFT --out ranks.json --page docs/benchmarks.md

Runs of `tiny_arithmetic_grpo_cpu` take turns (A B C A B C), so that other load on the machine affects all of them; each
starts from the same SFT model, and its first two steps are not counted. In both kinds of run, the command itself
samples and grades with two threads. The third kind is one process of one thread with half of the prompts, which is the
work of one rank without another to share weights and gradients with: what the ranks need above that is the price of
sharding.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

RECIPE = "tiny_arithmetic_grpo_cpu"
HERE = Path(__file__).parents[1]
ONE, RANKS, HALF = "one process, 2 threads", "2 ranks, 1 thread each", "half of it, 1 thread"
ARMS = {
    ONE: ["--threads", "2"],
    RANKS: ["--threads", "2", "--cluster.trainers", "2"],
    HALF: ["--threads", "1"],
}
PHASES = {
    "sampling": "time/rollout_s",
    "grading": "time/grade_s",
    "building the batch": "batch",
    "update": "update",
    "weights to the sampler": "publish",
}
"""What a step consists of, and the metric or the timer that measures it."""
START, END = "<!-- written by benchmarks/ranks.py -->", "<!-- end of benchmarks/ranks.py -->"
FIRST_COUNTED = 2
_NOTICEABLE_S = 0.002


def command(times: str, *arguments: str) -> None:
    """`ansatz` with these arguments, with timers. times: a file that gets {timer: [seconds, ...]}."""
    from ansatz.cli.main import main
    from ansatz.loop.rollout_queue import RolloutQueue
    from ansatz.train.distributed import DistributedTrainer
    from ansatz.train.local import LocalTrainer

    seconds: dict[str, list[float]] = {"batch": [], "update": [], "publish": []}
    for kind in (LocalTrainer, DistributedTrainer):
        for name in ("batch", "update"):
            setattr(kind, name, _timed(getattr(kind, name), seconds[name]))
    RolloutQueue.publish = _timed(RolloutQueue.publish, seconds["publish"])
    sys.argv = ["ansatz", *arguments]
    try:
        main()
    finally:
        Path(times).write_text(json.dumps(seconds), encoding="utf-8")


def _timed(call: Callable[..., Any], seconds: list[float]) -> Callable[..., Any]:
    @functools.wraps(call)
    def timed(*arguments: Any, **options: Any) -> Any:
        start = time.perf_counter()
        result = call(*arguments, **options)
        seconds.append(time.perf_counter() - start)
        return result

    return timed


def phases_of_run(folder: Path, name: str, model: str, *settings: str) -> dict[str, float]:
    """Run the recipe from this model. The median seconds of each phase of its steps."""
    times = folder / f"{name}.json"
    arguments = ["train", RECIPE, "--out", str(folder), "--name", name, "--data.sft", "null", "--model.path", model]
    arguments += ["--data.template", "tiny", "--train.decay_steps", "0", "--save.every", "1000"]
    arguments += ["--evaluate.every", "0", "--evaluate.problems", "2", *settings]
    limits = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
    environment = {key: value for key, value in os.environ.items() if key not in limits}
    subprocess.run(
        [sys.executable, __file__, "--timed", str(times), *arguments],
        cwd=HERE,
        env={**environment, "PYTHONPATH": str(HERE), "OMP_WAIT_POLICY": "passive"},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    rows = [json.loads(line) for line in (folder / name / "rl" / "metrics.jsonl").read_text().splitlines()]
    timers = json.loads(times.read_text(encoding="utf-8"))
    measured = {
        phase: [row[source] for row in rows] if source.startswith("time/") else timers[source][: len(rows)]
        for phase, source in PHASES.items()
    }
    return {phase: statistics.median(values[FIRST_COUNTED:]) for phase, values in measured.items()}


def measure(model: str, *, steps: int, repeats: int, prompts: int) -> Iterator[dict[str, Any]]:
    """The results after each repeat."""
    rounds: dict[str, list[dict[str, float]]] = {arm: [] for arm in ARMS}
    with tempfile.TemporaryDirectory() as folder:
        for repeat in range(repeats):
            for place, (arm, settings) in enumerate(ARMS.items()):
                of_arm = prompts // 2 if arm == HALF else prompts
                size = ["--train.steps", str(steps), "--rollout.prompts_per_step", str(of_arm)]
                rounds[arm].append(phases_of_run(Path(folder), f"run_{repeat}_{place}", model, *settings, *size))
                print(f"{arm}: {sum(rounds[arm][-1].values()):.3f} s a step", flush=True)
            yield {"recipe": RECIPE, "prompts per step": prompts, "date": time.strftime("%Y-%m-%d"), **summary(rounds)}


def summary(rounds: Mapping[str, Sequence[Mapping[str, float]]]) -> dict[str, Any]:
    """Medians over the runs of each kind, and ratios."""
    phases = {
        arm: {phase: statistics.median(each[phase] for each in runs) for phase in PHASES}
        for arm, runs in rounds.items()
    }
    steps = {arm: statistics.median(sum(each.values()) for each in runs) for arm, runs in rounds.items()}
    return {
        "rounds": rounds,
        "seconds by phase": phases,
        "seconds of a step": steps,
        "step, ranks / one process": steps[RANKS] / steps[ONE],
        "update, ranks / one process": phases[RANKS]["update"] / phases[ONE]["update"],
    }


def table(result: dict[str, Any]) -> str:
    """Markdown: a row for each phase. Of half the work in one thread, only what ranks do counts."""
    by_phase, steps = result["seconds by phase"], result["seconds of a step"]
    lines = [f"| phase, seconds | {ONE} | {RANKS} | ratio | {HALF} |", "|---|---|---|---|---|"]
    for phase in PHASES:
        one, ranks, half = (by_phase[arm][phase] for arm in (ONE, RANKS, HALF))
        alone = f"{half:.3f}" if phase in ("building the batch", "update") else ""
        ratio = f"{ranks / one:.2f}" if one > _NOTICEABLE_S else ""
        lines.append(f"| {phase} | {one:.3f} | {ranks:.3f} | {ratio} | {alone} |")
    whole = result["step, ranks / one process"]
    lines.append(f"| **step** | {steps[ONE]:.3f} | {steps[RANKS]:.3f} | **{whole:.2f}** | |")
    return "\n".join(lines)


def write_page(page: Path, result: dict[str, Any]) -> None:
    """Replace what is between the page's two marks."""
    text = page.read_text(encoding="utf-8")
    head, rest = text.split(START)
    page.write_text(f"{head}{START}\n\n{table(result)}\n\n{END}{rest.split(END)[1]}", encoding="utf-8")


def main() -> None:
    if sys.argv[1:2] == ["--timed"]:
        return command(*sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="the SFT checkpoint of tiny_arithmetic_grpo_cpu")
    parser.add_argument("--steps", type=int, default=7)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--prompts", type=int, default=64, help="prompts in a step")
    parser.add_argument("--out", type=Path, default=Path("ranks.json"))
    parser.add_argument("--page", type=Path, help="a Markdown page that gets the table")
    arguments = parser.parse_args()
    size = {"steps": arguments.steps, "repeats": arguments.repeats, "prompts": arguments.prompts}
    for result in measure(os.path.abspath(arguments.model), **size):
        arguments.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
        if arguments.page is not None:
            write_page(arguments.page, result)
        print(table(result))
    return None


if __name__ == "__main__":
    main()
