"""Sources of demonstrations for single experiments, with a reward of theirs and what is measured on their responses.

All are the word problems of the small task. free_length: lines of "ok" after the answer, whose number cannot change
whether the answer is right. guess_or_compute: the same, after a marker that says whether the answer was computed.
tagged: think and answer tags, some of them broken.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

import numpy as np

from ansatz.data.keyed_random import KeyedRandom
from ansatz.data.word_problems import word_problems
from ansatz.findings.outcomes import read_logps
from ansatz.rewards.base import RewardResult
from ansatz.track.runs import PipelineRun
from ansatz.types import Problem, Rollout, Verdict

MOST_LINES = 6


def _plain(split: str, count: int, seed: int, slip_rate: float) -> Sequence[Problem]:
    return word_problems(
        split=split,
        count=count,
        seed=seed,
        wording="plain",
        max_steps=3,
        max_value=50,
        max_term=5,
        slip_rate=slip_rate,
    )


def free_length(
    *, split: str, count: int = 12800, seed: int = 1, most_lines: int = MOST_LINES, slip_rate: float = 0.5
) -> Iterator[Problem]:
    """Yield word problems whose solutions have the chain, and 0 to `most_lines` lines of padding."""
    for index, problem in enumerate(_plain(split, count, seed, slip_rate)):
        lines = KeyedRandom(seed, "padding", index).between(0, most_lines)
        yield dataclasses.replace(problem, solution="\n".join([str(problem.solution), *["ok"] * lines]))


def guess_or_compute(
    *, split: str, count: int = 12800, seed: int = 1, most_lines: int = MOST_LINES, grid: bool = False
) -> Iterator[Problem]:
    """Yield word problems whose solutions have a marker, the answer after "?" or the chain and the answer after "=",
    and 0 to `most_lines` lines of padding.

    grid: each problem comes with both markers and every number of lines, so that `count` is that of the combinations.
    """
    problems = _plain(split, count, seed, 0.0)
    combinations = [(marker, lines) for marker in "?=" for lines in range(most_lines + 1)]
    for index in range(count):
        if grid:
            place, (marker, lines) = index // len(combinations), combinations[index % len(combinations)]
        else:
            rng = KeyedRandom(seed, "guess", index)
            place, marker, lines = index, "?="[rng.between(0, 1)], rng.between(0, most_lines)
        problem = problems[place]
        chain = str(problem.solution).splitlines()
        text = "\n".join([marker, *(chain if marker == "=" else chain[-1:]), *["ok"] * lines])
        name = f"{problem.id} {marker} {lines}" if grid else problem.id
        yield dataclasses.replace(problem, id=name, solution=text)


def drawn_verdict(
    rollouts: Sequence[Rollout], *, step: int, right: float = 0.5, guesses_right: float = 0.5
) -> list[RewardResult]:
    """Return verdicts that are drawn, whatever the answer and the padding are.

    right: how often a response is correct. guesses_right: the same for one that begins with "?".
    """

    def result(rollout: Rollout) -> RewardResult:
        rate = guesses_right if rollout.text.startswith("?") else right
        correct = KeyedRandom(step, "verdict", rollout.prompt.problem.id, rollout.sample).uniform() < rate
        return RewardResult(value=float(correct), verdict=Verdict(correct=correct, reason="drawn"))

    return [result(rollout) for rollout in rollouts]


def padding_tilt(run: PipelineRun, *, marker: str) -> float:
    """Return how much more probable each further line of padding has become relative to the line before it, after a
    marker: the least-squares slope (nats per line) of the log-prob of a solution on its lines, after minus before."""

    def slope(logps: Mapping[str, float]) -> float:
        by_lines: dict[int, list[float]] = {}
        for name, logp in logps.items():
            _, found, lines = name.rsplit(" ", 2)
            if found == marker:
                by_lines.setdefault(int(lines), []).append(logp)
        return float(np.polyfit(list(by_lines), [fmean(each) for each in by_lines.values()], 1)[0])

    return slope(read_logps(run, None, 1.0)) - slope(read_logps(run, 0, 1.0))


def tagged(
    *, split: str, count: int = 12800, seed: int = 1, broken: float = 0.3, slip_rate: float = 0.5
) -> Iterator[Problem]:
    """Yield word problems whose solutions have think and answer tags, of which a fraction is broken: the thought is
    not closed."""
    for index, problem in enumerate(_plain(split, count, seed, slip_rate)):
        rng = KeyedRandom(seed, "tags", index)
        *chain, answer = str(problem.solution).splitlines()
        end = "" if rng.uniform() < broken else "</think>"
        text = "\n".join(["<think>", *chain, end, f"<answer>{answer}</answer>"])
        yield dataclasses.replace(problem, solution=text)
