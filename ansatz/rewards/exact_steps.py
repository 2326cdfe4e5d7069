"""Each reasoning step by the generator's own steps: process supervision without a model.

For GRPO with process supervision (DeepSeekMath, arXiv:2402.03300, sec. 4.1.3) on the source word_problems.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ansatz.rewards.base import RewardResult
from ansatz.rewards.reasoning_steps import check_steps, exact_labels, step_ends
from ansatz.types import Problem, Rollout

GIVES_STEPS = True


def exact_steps(rollouts: Sequence[Rollout], *, right: float = 1.0, wrong: float = 0.0) -> list[RewardResult]:
    """Return the reward of each step of a response, and as the value of the response the mean over its steps.

    right: of a step that is the true equation at its place, or of the correct boxed answer. wrong: of the first other
    step and of everything after it; also the value of a response without a step.
    """
    results = list[RewardResult]()
    for rollout in rollouts:
        labels = exact_labels(rollout.prompt.problem, rollout.said)
        rewards = [right if label else wrong for label in labels]
        steps = tuple(zip(map(rollout.place_of, step_ends(rollout.said)), rewards, strict=True))
        results.append(RewardResult(value=sum(rewards) / len(rewards) if rewards else wrong, steps=steps))
    return results


def check_golds(problems: Iterable[Problem]) -> None:
    """Raise DataError for a problem whose steps cannot be checked."""
    check_steps(problems)
