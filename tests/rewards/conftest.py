"""Tiny builders for rewards: a rollout is its text, its gold and how it ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from ansatz.types import Finish, Problem, Prompt, Reason, Rollout, Verdict, golds_of

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
        question: str = "?",
        prompt: str = "?",
        source: str = "test",
        meta: Mapping[str, Any] | None = None,
        token_ids: Sequence[int] | None = None,
    ) -> Rollout:
        asked = Problem(
            id=problem, question=question, answers=golds_of(gold), source=source, split="train", meta=meta or {}
        )
        ids = tuple(range(tokens)) if token_ids is None else tuple(token_ids)
        return Rollout(
            prompt=Prompt(problem=asked, text=prompt, token_ids=(1,)),
            sample=sample,
            token_ids=ids,
            behavior_logps=(-1.0,) * len(ids),
            text=text,
            finish=finish,
            version_min=0,
            version_max=0,
            seed=0,
        )

    return make


RIGHT = Verdict(correct=True, reason=Reason.EQUAL)
WRONG = Verdict(correct=False, reason=Reason.DIFFERENT)


@pytest.fixture
def verdicts() -> Callable[[str], list[Verdict]]:
    """One verdict a letter: "rrw" is right, right, wrong."""
    return lambda letters: [RIGHT if letter == "r" else WRONG for letter in letters]
