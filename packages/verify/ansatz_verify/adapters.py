"""The verifier as a reward of TRL, verl and verifiers. This module can be imported without any of them.

GRPOTrainer(..., reward_funcs=trl_reward())                                     TRL: the column `answer` has the gold
custom_reward_function.path=pkg://ansatz_verify.adapters                        verl,
custom_reward_function.name=verl_compute_score                                  with the options as reward_kwargs
TaskConfig(rewards={"answer": {"fn": "ansatz_verify.adapters:verifiers_reward"}})      verifiers, from version 0.4
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from ansatz_verify.grade import verify
from ansatz_verify.responses import gold_text, text_of


def trl_reward(*, answer_column: str = "answer", **options: Any) -> Callable[..., list[float]]:
    """Return a reward function for TRL's GRPOTrainer and RLOOTrainer: 1.0 if a completion ends in the gold answer.

    answer_column: the column of the data set with the gold answer. options: the options of `verify`. Raise ValueError
    for a wrong option now, and for a missing column at the first step.
    """
    verify("1", "1", **options)

    def ansatz_verify(prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> list[float]:
        if answer_column not in columns:
            found = ", ".join(sorted(columns))
            raise ValueError(f"the data set has no column {answer_column!r}; there are {found}. Set answer_column.")
        golds = [gold_text(gold, what=f"the {answer_column} of a row") for gold in columns[answer_column]]
        pairs = zip(golds, completions, strict=True)
        return [float(verify(gold, text_of(completion), **options).correct) for gold, completion in pairs]

    return ansatz_verify


def verl_compute_score(
    data_source: Any, solution_str: str, ground_truth: Any, extra_info: Any = None, **options: Any
) -> dict[str, Any]:
    """Score a response for verl: 1.0 if it ends in the gold answer. `acc` and `pred` are logged by verl.

    options: the options of `verify`. data_source and extra_info are not used.
    """
    verdict = verify(gold_text(ground_truth, what="ground_truth"), text_of(solution_str), **options)
    return {"score": float(verdict.correct), "acc": verdict.correct, "pred": verdict.extracted or ""}


async def verifiers_reward(task: Any, trace: Any) -> float:
    """Score the last reply of a trace for verifiers 0.4: 1.0 if it ends in `task.answer`, which the task must have."""
    if not hasattr(task, "answer"):
        raise ValueError(f"{type(task).__name__} has no field `answer` with the gold answer; add it to the TaskData.")
    gold = gold_text(task.answer, what="task.answer")
    return float((await asyncio.to_thread(verify, gold, text_of(trace.last_reply))).correct)
