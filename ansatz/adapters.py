"""The rewards of a recipe in TRL, which this module does not import. For answers: `ansatz_verify.adapters`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from ansatz_verify.responses import text_of

from ansatz.api import gold_text
from ansatz.errors import ConfigError
from ansatz.rewards.grader import build_grader
from ansatz.trust import trusted
from ansatz.types import Finish, Problem, Prompt, Rollout, answers_of

Rewards = Mapping[str, Mapping[str, Any]]
_MATH: Rewards = {"math_answer": {}}


def trl_reward(rewards: Rewards = _MATH, *, answer_column: str = "answer") -> Callable[..., list[float | None]]:
    """Return a reward function for TRL's GRPOTrainer and RLOOTrainer: `GRPOTrainer(..., reward_funcs=trl_reward())`.

    rewards: as in a recipe, so weights, several rewards and rewards of the group work. answer_column: the column of the
    data set with the gold answer. The other columns are the problem's meta, where `countdown` and `code_tests` look.
    The length of a response is its number of completion_ids. TRL does not say which responses were cut off, so none
    counts as truncated. Raise ConfigError for a wrong reward now, and for a missing column at the first step.
    """
    if not isinstance(rewards, Mapping):
        raise ConfigError(f"trl_reward: rewards = {rewards!r:.80}; expected a mapping such as {_MATH!r}.")
    if not isinstance(answer_column, str):
        raise ConfigError(f"trl_reward: answer_column = {answer_column!r}; expected the name of a column.")
    grader = build_grader(trusted(rewards))
    grader.start()

    def ansatz_reward(prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> list[float | None]:
        if answer_column not in columns:
            names = ", ".join(sorted(columns))
            raise ConfigError(
                f"trl_reward: the data set has no column {answer_column!r}; there are {names}. Set answer_column."
            )
        rollouts = _rollouts([text_of(prompt) for prompt in prompts], completions, columns, answer_column)
        step = int(getattr(columns.get("trainer_state"), "global_step", 0))
        scores = [scored.score for scored in grader.score(rollouts, step=step)]
        return [score.value if score.applies else None for score in scores]

    return ansatz_reward


def _rollouts(
    prompts: Sequence[str], completions: Sequence[Any], columns: Mapping[str, Any], answer_column: str
) -> list[Rollout]:
    """Build rollouts. Equal prompts with equal answers are one problem, so that rewards can compare its responses."""
    per_response = {name: value for name, value in columns.items() if _fits(value, len(prompts))}
    answers = per_response.pop(answer_column)
    token_ids = per_response.pop("completion_ids", [()] * len(prompts))
    rollouts: list[Rollout] = []
    for index, (prompt, completion) in enumerate(zip(prompts, completions, strict=True)):
        answer = gold_text(answers[index], "trl_reward", what=f"{answer_column} of row {index}")
        problem = Problem(
            id=hashlib.sha256(f"{prompt}\0{answer}".encode()).hexdigest()[:16],
            question=prompt,
            answers=answers_of(answer),
            source="trl",
            split="train",
            meta={name: values[index] for name, values in per_response.items()},
        )
        ids = tuple(int(token) for token in token_ids[index])
        rollouts.append(
            Rollout(
                prompt=Prompt(problem=problem, text=prompt, token_ids=()),
                sample=index,
                token_ids=ids,
                behavior_logps=(0.0,) * len(ids),
                text=text_of(completion),
                finish=Finish.STOP,
                version_min=0,
                version_max=0,
                seed=0,
            )
        )
    return rollouts


def _fits(value: Any, count: int) -> bool:
    """Tell whether the value is a column: a list with one entry per response."""
    return isinstance(value, list) and len(cast(list[Any], value)) == count
