"""Programs in responses: fenced code blocks. A block that several responses share runs once."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from ansatz.types import Rollout

_FENCE = "```"
_LANGUAGES = (("python", "py", "python3"), ("",))
"""What a fence can say before a program. A block without a language can also be output, so it comes second."""


def last_program(response: str) -> str | None:
    """Return the last closed Python block after the last closed thought; None if there is none.

    A block without a language counts if no block names Python. After a thought that is never closed there is no
    program. Takes time linear in the length.
    """
    text = response.rpartition("</think>")[2]
    if "<think>" in text:
        return None
    pieces = text.split(_FENCE)  # outside, inside, outside, ..., outside
    blocks = [inside.partition("\n") for inside in reversed(pieces[1:-1:2])]
    for names in _LANGUAGES:
        for language, newline, source in blocks:
            if newline and language.strip().lower() in names:
                is_indented = source.lstrip("\n").startswith((" ", "\t"))  # as the fence is in an item of a list
                return textwrap.dedent(source) if is_indented else source
    return None


Result = TypeVar("Result")


def grade_distinct(
    rollouts: Sequence[Rollout],
    grade: Callable[[Rollout], Result],
    *,
    key: Callable[[Rollout], Hashable],
    parallel: int,
) -> list[Result]:
    """Return the result of each rollout. Rollouts with equal keys share the result of the first of them.

    A policy that is sure of itself writes the same program again and again, and starting an interpreter takes most of
    the time of an RL step with a small model. parallel: rollouts that are graded at the same time.
    """
    key_N = [key(rollout) for rollout in rollouts]
    first = dict(zip(reversed(key_N), reversed(rollouts), strict=True))
    with ThreadPoolExecutor(parallel, thread_name_prefix="programs") as threads:
        results = dict(zip(first, threads.map(grade, first.values()), strict=True))
    return [results[each] for each in key_N]
