"""Tiny builders for rewards: a rollout is its text, its gold and how it ended."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ansatz.types import Finish, Problem, Prompt, Rollout

MakeRollout = Callable[..., Rollout]


@pytest.fixture
def rollout() -> MakeRollout:
    def make(
        text: str,
        *,
        gold: str = "5",
        problem: str = "p0",
        tokens: int = 3,
        finish: Finish = Finish.STOP,
        sample: int = 0,
    ) -> Rollout:
        question = Problem(id=problem, question="?", answer=gold, source="test", split="train")
        return Rollout(
            prompt=Prompt(problem=question, text="?", token_ids=(1,)),
            sample=sample,
            token_ids=tuple(range(tokens)),
            behavior_logps=(-1.0,) * tokens,
            text=text,
            finish=finish,
            version_min=0,
            version_max=0,
            seed=0,
        )

    return make
