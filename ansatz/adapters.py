"""Our rewards in other projects' trainers: TRL, verl and verifiers. None of them is needed to import this module."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from ansatz.errors import ConfigError, MissingExtraError
from ansatz.rewards.grader import build_grader
from ansatz.rewards.math_answer.verify import verify
from ansatz.types import Finish, Problem, Prompt, Rollout

Rewards = Mapping[str, Mapping[str, Any]]
_MATH: Rewards = {"math_answer": {}}


def trl_reward(rewards: Rewards = _MATH, *, answer_column: str = "answer") -> Callable[..., list[float]]:
    """Return a reward function for TRL's GRPOTrainer and RLOOTrainer: `GRPOTrainer(..., reward_funcs=trl_reward())`.

    rewards: as in a recipe, so weights, several rewards and rewards of the group work. answer_column: the column of the
    data set with the gold answer. The other columns are the problem's meta, where `countdown` and `code_tests` look.
    Lengths are those of completion_ids. TRL does not say which responses were cut off, so none counts as truncated.
    Raise ConfigError for a wrong reward now, and for a missing column at the first step.
    """
    grader = build_grader(rewards)
    grader.start()

    def ansatz_reward(prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> list[float]:
        if answer_column not in columns:
            names = ", ".join(sorted(columns))
            raise ConfigError(
                f"trl_reward: the data set has no column {answer_column!r}; there are {names}. Set answer_column."
            )
        rollouts = _rollouts([_text(prompt) for prompt in prompts], completions, columns, answer_column)
        step = int(getattr(columns.get("trainer_state"), "global_step", 0))
        return [scored.score.value for scored in grader.score(rollouts, step=step)]

    return ansatz_reward


def verl_compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Score a response as the function that verl's `custom_reward_function` names: 1.0 if the response ends in the
    gold answer, else 0.0.

    options: those of `ansatz.verify`, which verl passes from `custom_reward_function.reward_kwargs`. data_source and
    extra_info are not used. `acc` and `pred` are logged by verl.
    """
    verdict = verify(str(ground_truth), solution_str, **options)
    return {"score": float(verdict.correct), "acc": verdict.correct, "pred": verdict.extracted or ""}


def verifiers_rubric(*, weight: float = 1.0, **options: Any) -> Any:
    """Return a `verifiers.Rubric` with one reward: 1.0 if the completion ends in the gold answer, else 0.0.

    options: those of `ansatz.verify`. MissingExtraError without the package `verifiers`, or with a version that has no
    `Rubric`: 0.1.14 has it, 0.4.0 does not.
    """
    try:
        from verifiers import Rubric  # pyright: ignore[reportMissingImports, reportUnknownVariableType]
    except ImportError as error:
        raise MissingExtraError(
            "verifiers_rubric needs the package verifiers in a version with Rubric: pip install verifiers==0.1.14."
        ) from error

    def correct_answer(completion: Any, answer: Any, **_: Any) -> float:
        return float(verify(str(answer), _text(completion), **options).correct)

    rubric: Any = Rubric
    return rubric(funcs=[correct_answer], weights=[weight])


def _rollouts(
    prompts: Sequence[str], completions: Sequence[Any], columns: Mapping[str, Any], answer_column: str
) -> list[Rollout]:
    """Build rollouts. Equal prompts with equal answers are one problem, so that rewards can compare its responses."""
    per_response = {name: value for name, value in columns.items() if _fits(value, len(prompts))}
    answers = per_response.pop(answer_column)
    token_ids = per_response.pop("completion_ids", [()] * len(prompts))
    rollouts: list[Rollout] = []
    for index, (prompt, completion) in enumerate(zip(prompts, completions, strict=True)):
        answer = str(answers[index])
        problem = Problem(
            id=hashlib.sha256(f"{prompt}\0{answer}".encode()).hexdigest()[:16],
            question=prompt,
            answer=answer,
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
                text=_text(completion),
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


def _text(value: Any) -> str:
    """Return a text, or the text of the last message of a conversation."""
    if isinstance(value, str):
        return value
    messages = cast(Sequence[Any], value)
    last: Any = messages[-1] if messages else {}
    content: Any = last.get("content") if isinstance(last, Mapping) else getattr(last, "content", None)
    return content if isinstance(content, str) else ""
