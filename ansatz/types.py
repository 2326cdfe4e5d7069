"""What flows through a run, stage by stage: Problem -> Prompt -> Rollout -> ScoredRollout -> Group.

Each stage has its own frozen type and wraps the one before. Everything here is free of torch and goes to JSON and back
(`to_json`, `scored_from_json`), so any stage can be saved, looked at and replayed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

Json = dict[str, Any]


class Finish(StrEnum):
    """Why a rollout ended."""

    STOP = "stop"  # the policy emitted an end token or a stop string
    LENGTH = "length"  # max_response_tokens reached
    BUDGET = "budget"  # the thinking budget closed the thought, and the answer came to its own end
    ABORT = "abort"  # given back unfinished: another call may go on with it


class Reason(StrEnum):
    """Why a verdict is what it is. Only EQUAL is correct; each of the others is an outcome with an owner."""

    EQUAL = "equal"
    DIFFERENT = "different"
    NO_ANSWER = "no_answer"
    TRUNCATED = "truncated"
    HEDGED = "hedged"
    UNPARSED = "unparsed"
    TIMEOUT = "timeout"
    CRASHED = "crashed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A grader's finding on one response. Truthy when correct.

    extracted: the answer string that was compared, None when there was none.
    stage: the layer that settled it ("extract", "string", "number", "structure", "algebra", or a reward's own name).
    seconds: wall time of the grading; not part of equality, so replays compare equal.
    """

    correct: bool
    reason: Reason
    extracted: str | None = None
    stage: str = ""
    seconds: float = field(default=0.0, compare=False)

    def __bool__(self) -> bool:
        return self.correct


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """A reward and where it came from: value = sum of weighted parts; parts hold each reward's own unweighted value."""

    value: float
    parts: Mapping[str, float]
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A question with its gold answer. solution: a worked demonstration where the source has one, else None."""

    id: str
    question: str
    answer: str
    source: str
    split: str
    level: str = ""
    solution: str | None = None
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A problem as the policy sees it."""

    problem: Problem
    text: str
    token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """One sampled response. token_ids include the end token where one ended it; behavior_logps has one entry a token:
    its log-probability (nats, <= 0) under the very distribution that it was drawn from, 0 where it was forced.

    num_candidates: under top-k, top-p or min-p, how many tokens each one was drawn from, so that the trainer can
    compute
    its own log-probs over the same support; empty where every token was drawn from the whole vocabulary.
    min_response_tokens: so many tokens from the first on were drawn from a vocabulary without end tokens.
    chosen: False where a token was forced in (the closing of a thought, a tool's observation), True where the policy
    chose it; empty where it chose all.
    version_min, version_max: oldest and newest policy version (optimiser steps) that drew a token of it. versions: each
    token's own; empty where one version drew all.
    sample: its index within the prompt's group.
    """

    prompt: Prompt
    sample: int
    token_ids: tuple[int, ...]
    behavior_logps: tuple[float, ...]
    text: str
    finish: Finish
    version_min: int
    version_max: int
    seed: int
    num_candidates: tuple[int, ...] = ()
    min_response_tokens: int = 0
    sampled_mask: tuple[bool, ...] = ()
    versions: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if len(self.token_ids) != len(self.behavior_logps):
            raise ValueError(f"a rollout has {len(self.token_ids)} tokens and {len(self.behavior_logps)} log-probs")
        if self.num_candidates and len(self.num_candidates) != len(self.token_ids):
            raise ValueError(f"a rollout has {len(self.token_ids)} tokens and {len(self.num_candidates)} support sizes")
        if self.sampled_mask and len(self.sampled_mask) != len(self.token_ids):
            raise ValueError(f"a rollout has {len(self.token_ids)} tokens and {len(self.sampled_mask)} marks of choice")
        if self.versions and len(self.versions) != len(self.token_ids):
            raise ValueError(f"a rollout has {len(self.token_ids)} tokens and {len(self.versions)} versions")

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def token_versions(self) -> tuple[int, ...]:
        return self.versions or (self.version_max,) * self.num_tokens

    @property
    def truncated(self) -> bool:
        """Whether it was cut off before it came to its own end."""
        return self.finish in (Finish.LENGTH, Finish.ABORT)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredRollout:
    rollout: Rollout
    score: Score


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """All scored rollouts of one prompt in one step."""

    prompt: Prompt
    members: tuple[ScoredRollout, ...]

    def __post_init__(self) -> None:
        if not self.members:
            raise ValueError(f"the group of problem {self.prompt.problem.id!r} has no members")

    @property
    def rewards(self) -> tuple[float, ...]:
        return tuple(member.score.value for member in self.members)


def to_json(value: Any) -> Json:
    """A plain JSON object of any type above; `scored_from_json` gives back an equal one (tuples in `meta` as lists)."""
    return dataclasses.asdict(value)


def scored_from_json(data: Json) -> ScoredRollout:
    """The inverse of `to_json` for a ScoredRollout, the widest of the types."""
    score: Json = dict(data["score"])
    verdict: Json = dict(score.pop("verdict"))
    return ScoredRollout(
        rollout=rollout_from_json(data["rollout"]),
        score=Score(verdict=Verdict(reason=Reason(verdict.pop("reason")), **verdict), **score),
    )


def rollout_from_json(data: Json) -> Rollout:
    """The inverse of `to_json` for a Rollout."""
    rollout: Json = dict(data)
    prompt: Json = dict(rollout.pop("prompt"))
    return Rollout(
        prompt=Prompt(problem=Problem(**prompt.pop("problem")), token_ids=tuple(prompt.pop("token_ids")), **prompt),
        token_ids=tuple(rollout.pop("token_ids")),
        behavior_logps=tuple(rollout.pop("behavior_logps")),
        num_candidates=tuple(rollout.pop("num_candidates")),
        sampled_mask=tuple(rollout.pop("sampled_mask", ())),
        versions=tuple(rollout.pop("versions", ())),
        finish=Finish(rollout.pop("finish")),
        **rollout,
    )
