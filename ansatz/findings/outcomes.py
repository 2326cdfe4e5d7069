"""Outcomes: one number for a run, each a pure function of its folder, by name. Their parameters are their settings.

An outcome is None where the run has no such number, for example because it never reached the value that is asked for. A
function of your own is named as `path/to/file.py:function`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np

from ansatz.config import load_run
from ansatz.config.load import parse_yaml
from ansatz.data.store import read_problems
from ansatz.errors import DataError
from ansatz.evaluate.estimators import pass_at_k_exactly
from ansatz.registry import Registry, check_required
from ansatz.track.base import EVALUATION_NUMBERS, EXACT
from ansatz.track.jsonl import Row, read_jsonl
from ansatz.track.rollout_rows import SOLUTION_LOGPS, read_responses
from ansatz.track.runs import PipelineRun, StageRun
from ansatz.track.step_files import EVALUATIONS, step_path

Outcome = Callable[[PipelineRun], float | None]
outcomes: Registry[Callable[..., float | None]] = Registry("outcome")
LESS_IS_BETTER = ("steps_to", "repetition", "lucky_answers")
"""Outcomes whose best value is the least; of all others it is the largest."""
Points = list[tuple[float, float]]
Steps = tuple[int, int]
"""The first and the last step."""


def rank_of(outcome: Mapping[str, Any], value: float | None) -> float:
    """Return a number that is larger for a better value of an outcome, and least without a value."""
    if value is None:
        return float("-inf")
    return -value if outcome["name"] in LESS_IS_BETTER else value


def curve(run: PipelineRun, name: str) -> Points:
    """Return (step, value) of a number of the evaluations or of a metric, in the last stage. The evaluations begin with
    the model that the stage has started from, as step 0."""
    last = run.stages[-1]
    if name not in (*EVALUATION_NUMBERS, EXACT):
        return last.curve(name)
    return [(step, float(row[name])) for step, row in _evaluations(run) if row.get(name) is not None]


def _evaluations(run: PipelineRun) -> list[tuple[int, Row]]:
    earlier = [row for stage in run.stages[:-1] for row in stage.evaluations][-1:]
    return [(0, row) for row in earlier] + [(int(row["step"]), row) for row in run.stages[-1].evaluations]


def read_logps(run: PipelineRun, step: int | None, temperature: float) -> dict[str, float]:
    """Return the log-prob of each solution after a step of the last stage; None: the last."""
    evaluations = _evaluations(run)
    found = [row for at, row in evaluations if step is None or at == step][-1:]
    if not found:
        steps = ", ".join(str(at) for at, _ in evaluations)
        raise DataError(f"{run.folder} has no evaluation of step {step}, only of steps {steps}.")
    path = step_path(run.folder / found[0]["stage"], EVALUATIONS, found[0]["split"], int(found[0]["step"]))
    return read_solution_logps(path, temperature=temperature)


@outcomes.register("exact_pass@k")
def exact_pass(run: PipelineRun, *, k: int = 1, step: int | None = None, temperature: float = 1.0) -> float:
    """Return the mean exact pass@k after a step; by default after the last."""
    logps = read_logps(run, step, temperature)
    return float(np.mean(pass_at_k_exactly(list(logps.values()), k=k)))


@outcomes.register("sampled_pass@1")
def sampled_pass(run: PipelineRun, *, step: int | None = None) -> float | None:
    """Return the mean pass@1 of the sampled responses after a step; by default after the last."""
    values = [value for at, value in curve(run, "pass@1") if step is None or at == step]
    return values[-1] if values else None


@outcomes.register()
def gain_by_level(run: PipelineRun, *, level: str, number: str = EXACT) -> float | None:
    """Return by how much a number of the evaluations has risen on the problems of a level."""
    found = [row.get("by_level", {}).get(level, {}).get(number) for _, row in _evaluations(run)]
    values = [float(value) for value in found if value is not None]
    return values[-1] - values[0] if values else None


@outcomes.register()
def steps_to(run: PipelineRun, *, value: float, number: str = EXACT, rollouts: bool = False) -> float | None:
    """Return the step, interpolated, when a number first reaches a value. rollouts: return the number of rollouts that
    were sampled until then instead, discarded ones included."""
    points = curve(run, number)
    crossed = next((place for place, (_, height) in enumerate(points) if height >= value), None)
    if crossed is None:
        return None
    (x, y), (before, below) = points[crossed], points[max(crossed - 1, 0)]
    step = x if y == below else before + (x - before) * (value - below) / (y - below)
    if not rollouts:
        return step
    rollout, discarded = load_run(run.folder).rollout, dict(run.stages[-1].curve("data/groups_discarded"))
    groups = [rollout.prompts_per_step + discarded.get(each, 0.0) for each in range(1, int(x) + 1)]
    whole = int(step)
    return rollout.samples_per_prompt * (sum(groups[:whole]) + (step - whole) * sum(groups[whole : whole + 1]))


@outcomes.register()
def drop_from_peak(run: PipelineRun, *, number: str = EXACT) -> float | None:
    """Return the last value of a curve minus its largest: 0 or less."""
    values = [value for _, value in curve(run, number)]
    return values[-1] - max(values) if values else None


@outcomes.register()
def mean_metric(run: PipelineRun, *, metric: str, steps: Steps | None = None) -> float | None:
    """Return the mean of a metric over the steps from the first to the last that are given; by default over all."""
    first, last = steps or (0, 10**9)
    values = [value for step, value in curve(run, metric) if first <= step <= last]
    return fmean(values) if values else None


@outcomes.register()
def repetition(run: PipelineRun, *, steps: int = 10) -> float | None:
    """Return the mean of rollout/repetition over the last steps."""
    values = [value for _, value in curve(run, "rollout/repetition")][-steps:]
    return fmean(values) if values else None


def _groups(stage: StageRun, steps: Steps | None) -> list[list[Row]]:
    """Return the stored rollouts of a range of steps, by step and group."""
    first, last = steps or (0, 10**9)
    groups: defaultdict[tuple[int, int], list[Row]] = defaultdict(list)
    for step, path in stage.sample_files():
        for row in read_jsonl(path) if first <= step <= last else ():
            groups[step, row["group"]].append(row)
    return list(groups.values())


@outcomes.register()
def length_within_problem(run: PipelineRun, *, steps: Steps | None = None) -> float | None:
    """Return the mean length of wrong responses minus the mean length of right ones (tokens), over the groups that have
    both: the mix of easy and hard problems cannot move it."""
    differences: list[float] = []
    for group in _groups(run.stages[-1], steps):
        by_verdict = [[row["tokens"] for row in group if row["correct"] is right] for right in (False, True)]
        if all(by_verdict):
            differences.append(fmean(by_verdict[0]) - fmean(by_verdict[1]))
    return fmean(differences) if differences else None


@outcomes.register()
def within_group_length_sd(run: PipelineRun, *, steps: Steps | None = None) -> float | None:
    """Return the mean over groups of the standard deviation of the lengths of their responses (tokens)."""
    lengths = [[row["tokens"] for row in group] for group in _groups(run.stages[-1], steps)]
    spreads = [stdev(each) for each in lengths if len(each) > 1]
    return fmean(spreads) if spreads else None


@outcomes.register()
def lucky_answers(run: PipelineRun, *, step: int | None = None) -> float | None:
    """Return the fraction of correct sampled responses whose text is not the worked solution: wrong steps, right
    answer. For problems with one right text."""
    row = next((row for at, row in reversed(_evaluations(run)) if step in (None, at)), None)
    if row is None:
        raise DataError(f"{run.folder} has no evaluation{'' if step is None else f' of step {step}'}.")
    solutions = {each.id: each.solution for each in read_problems(run.folder / "problems" / f"{row['split']}.jsonl")}
    path = step_path(run.folder / row["stage"], EVALUATIONS, row["split"], int(row["step"]))
    correct = [each for each in read_responses(path) if each.verdict.correct and not each.greedy]
    lucky = [each for each in correct if each.text.strip() != (solutions.get(each.problem) or "").strip()]
    return len(lucky) / len(correct) if correct else None


def bind_outcome(settings: Mapping[str, Any]) -> Outcome:
    """Return the function of {name: NAME, SETTING: VALUE, ...}. Raise ConfigError for an unknown name or setting, and
    for a missing one."""
    name, given = settings.get("name"), {key: value for key, value in settings.items() if key != "name"}
    bound = outcomes.bind(name, given)
    check_required(outcomes.get(name), given, what=f"outcome {name!r}")
    return bound


def bind_guard(name: str) -> Outcome:
    """Return the outcome of a guard: exact, an outcome with its settings (exact_pass@k k=64), or a metric's mean."""
    bare, *settings = name.removeprefix("control_").split(" ")
    if "/" in bare and ":" not in bare:
        return partial(mean_metric, metric=bare)
    given = {key: parse_yaml(value, where=name) for key, _, value in (each.partition("=") for each in settings)}
    return bind_outcome({"name": "exact_pass@k" if bare == "exact" else bare, **given})


def read_solution_logps(path: Path, *, temperature: float) -> dict[str, float]:
    """Return the log-prob of the worked solution of each problem that has one, in the order of the problems.

    Raise DataError for a row that no run writes, and if no problem has a log-prob at this temperature.
    """
    found, known = dict[str, float](), set[str]()
    for number, row in enumerate(read_jsonl(path), start=1):
        logps = row.get(SOLUTION_LOGPS, {})
        if not isinstance(logps, dict) or not all(isinstance(logp, int | float) for logp in logps.values()):
            raise DataError(
                f"{path}, line {number}: {SOLUTION_LOGPS!r} is {logps!r:.60}, which no run writes. Restore the file, "
                "or remove it."
            )
        known |= logps.keys()
        if (logp := logps.get(f"{temperature:g}")) is not None:
            found[str(row["problem"])] = float(logp)
    if not found:
        have = f"those at {', '.join(sorted(known))}" if known else "none"
        raise DataError(
            f"{path}: expected log-probs of worked solutions at temperature {temperature:g}, found {have}. Set "
            "evaluate.temperature, and use held-out problems with worked solutions."
        )
    return found
