"""Sources of demonstrations for single experiments, and what is measured on their responses.

free_length: padding after the answer, and a marker before it. The padding is lines of "ok", whose number cannot change
whether the answer is right. The marker is "=" or "?". tagged: think and answer tags, some of them broken.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from statistics import fmean

from ansatz.data.keyed_random import KeyedRandom
from ansatz.data.word_problems import word_problems
from ansatz.track.jsonl import read_jsonl
from ansatz.track.runs import PipelineRun
from ansatz.types import Problem


def free_length(
    *, split: str, count: int = 12800, seed: int = 1, informs: float = 0.0, most_lines: int = 6, slip_rate: float = 0.5
) -> Iterator[Problem]:
    """Yield word problems whose solutions have a marker, the chain, and 0 to `most_lines` lines of padding.

    informs: how often the marker says whether the chain has a slip; otherwise it is drawn, so that it says nothing.
    """
    plain = word_problems(
        split=split, count=count, seed=seed, wording="plain", max_value=100, max_term=12, slip_rate=slip_rate
    )
    for index in range(count):
        problem, rng = plain[index], KeyedRandom(seed, "padding", index)
        tells, lines = rng.uniform() < informs, rng.between(0, most_lines)
        slipped = problem.meta["slip"] if tells else rng.uniform() < slip_rate
        text = "\n".join(["?" if slipped else "=", str(problem.solution), *["ok"] * lines])
        yield dataclasses.replace(problem, solution=text)


def padding_gap(run: PipelineRun, *, steps: tuple[int, int] = (31, 40)) -> float | None:
    """Return the mean number of lines of padding after the marker "?" minus that after "="."""
    lines: dict[str, list[int]] = {"?": [], "=": []}
    for step, path in run.stages[-1].sample_files():
        for row in read_jsonl(path) if steps[0] <= step <= steps[1] else ():
            first, *rest = row["text"].splitlines() or [""]
            if first in lines:
                lines[first].append(sum(line == "ok" for line in rest))
    return fmean(lines["?"]) - fmean(lines["="]) if all(lines.values()) else None


def tagged(
    *, split: str, count: int = 12800, seed: int = 1, broken: float = 0.3, slip_rate: float = 0.5
) -> Iterator[Problem]:
    """Yield word problems whose solutions have think and answer tags, of which a fraction is broken: the thought is
    not closed."""
    plain = word_problems(
        split=split, count=count, seed=seed, wording="plain", max_value=100, max_term=12, slip_rate=slip_rate
    )
    for index in range(count):
        problem, rng = plain[index], KeyedRandom(seed, "tags", index)
        *chain, answer = str(problem.solution).splitlines()
        end = "" if rng.uniform() < broken else "</think>"
        text = "\n".join(["<think>", *chain, end, f"<answer>{answer}</answer>"])
        yield dataclasses.replace(problem, solution=text)
