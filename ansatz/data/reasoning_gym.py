"""Tasks of reasoning-gym (arXiv:2505.24760): more than 100 generators of problems, each with its own scorer.

Needs the extra `reasoning-gym`. The reward `reasoning_gym` scores the answers.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from functools import partial
from typing import Any

from ansatz.config.fields import Count
from ansatz.data.generated import LazyProblems
from ansatz.errors import ConfigError, MissingExtraError, install_command
from ansatz.registry import suggest
from ansatz.types import Problem

_HELDOUT_SEED = 10**9  # the seeds of the two splits never meet


def reasoning_gym(
    *, split: str, task: str, count: int = 10_000, seed: Count = 0, settings: dict[str, Any] | None = None
) -> Sequence[Problem]:
    """Return problems of one task, each computed when it is accessed.

    task: its name in reasoning-gym, such as chain_sum or countdown.
    count: number of problems. seed: another seed gives other problems. The splits have different seeds, so that their
    problems differ except by chance; a task with few possible problems has some in both.
    settings: of the task, such as {min_terms: 2, max_terms: 3}.

    Raise MissingExtraError without the package. Raise ConfigError for an unknown task or a wrong setting.
    """
    gym = load()
    names = gym.factory.DATASETS
    if task not in names:
        raise ConfigError(f"reasoning_gym: task = {task!r} is unknown.{suggest(task, names)}")
    if seed >= _HELDOUT_SEED:
        raise ConfigError(f"reasoning_gym: seed = {seed}, expected less than {_HELDOUT_SEED}.")
    task_seed = seed + (_HELDOUT_SEED if split == "heldout" else 0)
    try:
        dataset = gym.create_dataset(task, size=max(count, 1), seed=task_seed, **(settings or {}))
    except (AssertionError, TypeError, ValueError) as error:
        raise ConfigError(f"reasoning_gym: task {task!r} refuses settings = {settings}: {error}.") from error
    compute = partial(_problem, dataset=dataset, task=task)
    return LazyProblems("reasoning_gym", compute, split=split, size=count, seed=seed)


def load() -> Any:
    """Return the package. Raise MissingExtraError if it is not installed."""
    try:
        return importlib.import_module("reasoning_gym")
    except ImportError as error:
        raise MissingExtraError(
            f"reasoning_gym needs the package reasoning-gym ({error}): {install_command('reasoning-gym')}"
        ) from error


def _problem(problems: LazyProblems, index: int, *, dataset: Any, task: str) -> Problem:
    entry = dataset[index]
    answer = "" if entry["answer"] is None else str(entry["answer"])
    return Problem(
        id=f"{task}-{problems.split}-{problems.seed}-{index}",
        question=entry["question"],
        answers=(answer,) if answer else (),
        source=problems.source,
        split=problems.split,
        level=task,
        solution=f"\\boxed{{{answer}}}" if answer else None,
        # The scorer needs the entry. As text, it survives being stored with the problem.
        meta={"task": task, "entry": json.dumps(entry, default=str)},
    )
