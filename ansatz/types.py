"""The data of a run, step by step: Problem -> Prompt -> Rollout -> ScoredRollout -> Group.

Each type is frozen and wraps the one before it. Nothing here needs torch. Everything can be written as JSON
(`to_json`), and a rollout can be read back (`rollout_from_json`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, cast

from ansatz_verify.verdict import Reason as Reason
from ansatz_verify.verdict import Verdict as Verdict
from ansatz_verify.verdict import golds_of as golds_of
from ansatz_verify.verdict import joined_golds as joined_golds

Json = dict[str, Any]

UNGRADED = "grader"
"""`Verdict.stage` if no reward of the recipe says which responses are correct."""
SYSTEM_ROLES = ("system", "developer")
"""Roles of turns that instruct the model and are not part of the conversation."""

TEMPLATE = "prompt_template"
"""The key of a problem's `meta` with the name of its own prompt template, or of its turn in the chat template."""
ORIGIN = "data_source"
"""The key of a problem's `meta` with the name of its data set, as in the rows of verl."""
OPENING = "environment_opening"
"""The key of a problem's `meta` with the question and turns as they were before its environment opened the
conversation."""


class Finish(StrEnum):
    """Why a rollout ended."""

    STOP = "stop"  # the policy emitted an end token or a stop string
    LENGTH = "length"  # max_response_tokens reached
    BUDGET = "budget"  # the limit of a thought (`thinking_budget`) closed it; the answer after it ended by itself
    ABORT = "abort"  # returned unfinished; a later call can resume it


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """The reward of a rollout. value: the weighted sum of all rewards. parts: each reward by name, not weighted; nan if
    it does not apply to the rollout.

    verdict: from the first reward that gives one; if none does, a value above 0 counts as correct.
    steps: (characters of the response up to the end of a reasoning step, weighted reward of that step), in rising
    order; empty if no reward of the recipe rewards steps. Rewards of the whole response are added to the last step.
    """

    value: float
    parts: Mapping[str, float]
    verdict: Verdict
    steps: tuple[tuple[int, float], ...] = ()

    @property
    def applies(self) -> bool:
        """Tell whether any reward of the recipe applies to the rollout. If none does, nothing is learned from it."""
        return not self.parts or not all(map(math.isnan, self.parts.values()))

    @property
    def is_graded(self) -> bool:
        """Tell whether a reward gave the verdict. If none grades answers, it only says that the value is above 0."""
        return self.verdict.stage != UNGRADED


def gold_value(answer: str) -> str | list[str]:
    """Return the gold answers as a row of JSON holds them: a text, or a list. A text in a row is always one answer."""
    golds = golds_of(answer)
    return answer if golds == (answer,) else list(golds)


def answers_of(text: str) -> tuple[str, ...]:
    """Return the gold answers that a text states (`golds_of`); none for an empty text."""
    return golds_of(text) if text else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A question with its gold answers. Any of them is right. Usually there is one, and without a verdict none.

    id: names the problem in files and groups, and is part of the key of the random numbers of its responses. source,
    split: where it comes from, such as "word_problems", and which part of that, such as "train". level: how difficult
    its source calls it, or empty.
    solution: a worked solution; None if the source has none. meta: data that only some sources, rewards and
    environments know, such as the tests of a program. The properties below read it.
    """

    id: str
    question: str
    answers: tuple[str, ...] = ()
    source: str
    split: str
    level: str = ""
    solution: str | None = None
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        answers: Any = self.answers  # a source of a user's own may give anything
        if not isinstance(answers, tuple) or not all(
            isinstance(answer, str) for answer in cast(Sequence[Any], answers)
        ):
            raise ValueError(f"answers = {answers!r}: expected a tuple of texts, such as ('72',)")

    @property
    def answer(self) -> str:
        """The gold answers as one text, as rows and the verifier hold them (`joined_golds`); empty if there are none.

        Example: `1/2` for one answer, and `["1/2", "0.5"]` for two.
        """
        return joined_golds(self.answers) if self.answers else ""

    @property
    def origin(self) -> str:
        """The name that scores and rewards group problems by: the name of a part of a mixture or the row's own
        `data_source`, otherwise `source`."""
        name = self.meta.get(ORIGIN)
        return name if isinstance(name, str) and name else self.source

    @property
    def origins(self) -> frozenset[str]:
        """The names that can bind a reward to the problem: origin, source, and the source without a folder."""
        return frozenset((self.origin, self.source, self.source.rpartition("/")[2]))

    @property
    def template(self) -> str | None:
        """The prompt template of the problem itself. Usually None, for the template of the recipe."""
        name = self.meta.get(TEMPLATE)
        return name if isinstance(name, str) and name else None

    @property
    def earlier_turns(self) -> Sequence[Mapping[str, Any]]:
        """The turns before the question, such as a system prompt: {role, content} each. Usually empty."""
        return self.meta.get("earlier_turns", ())

    @property
    def response_turns(self) -> Sequence[Mapping[str, Any]]:
        """The turns of a worked solution that calls tools: the assistant's turns with `tool_calls`, the answers of the
        tools, and the last turn, whose text is `solution`. Usually empty."""
        return self.meta.get("response_turns", ())

    @property
    def observations(self) -> Sequence[Sequence[int]]:
        """Return where in `solution` an environment speaks instead of the policy: [start, end] of each place, in
        characters of `solution`. Usually empty."""
        value = self.meta.get("observations")
        spans = cast("Sequence[Any]", value) if isinstance(value, list | tuple) else ()
        return spans if all(map(_is_span, spans)) else ()

    @property
    def response_ids(self) -> Sequence[int]:
        """Return the tokens of `solution` if it was sampled by a policy. Usually empty."""
        value = self.meta.get("response_ids")
        ids = cast("list[Any]", value) if isinstance(value, list) else []
        return ids if all(isinstance(id_, int) for id_ in ids) else ()

    def answered(
        self, response: str, observations: Sequence[Sequence[int]] = (), token_ids: Sequence[int] = ()
    ) -> Problem:
        """Return the problem with a response as its solution, instead of its own. observations, token_ids: see
        there and `response_ids`."""
        of_solution = ("observations", "response_turns", "response_ids")
        meta = {name: value for name, value in self.meta.items() if name not in of_solution}
        if token_ids:
            meta["response_ids"] = list(token_ids)
        if observations:
            meta["observations"] = [list(span) for span in observations]
        return dataclasses.replace(self, solution=response, meta=meta)

    @property
    def tools(self) -> Sequence[Mapping[str, Any]]:
        """JSON schemas of the functions that a response can call, for the chat template. Usually empty."""
        value = self.meta.get("tools")
        schemas = cast("Sequence[Any]", value) if isinstance(value, list | tuple) else ()
        return schemas if all(isinstance(schema, Mapping) for schema in schemas) else ()

    @property
    def template_arguments(self) -> Mapping[str, Any]:
        """Arguments of the chat template for this problem, such as enable_thinking. Usually empty."""
        value = self.meta.get("chat_template_kwargs")
        return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}

    @property
    def num_opening_turns(self) -> int:
        """The number of turns right before the question that are the environment's
        (`environments.opened_problems`). They are never taught."""
        return self.meta.get(OPENING, {}).get("num_turns", 0)

    @property
    def dialogue(self) -> str:
        """Everything that was said up to the question and the question itself, without system prompts."""
        said = [turn["content"] for turn in self.earlier_turns if turn["role"] not in SYSTEM_ROLES]
        return "\n".join([*said, self.question])


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentReward:
    """The reward that an environment gave its response when it had ended (`environments.base.Environment.reward`).

    value: a number in [0, 1], or any finite one if the environment gave a `rewards.base.RewardResult`.
    verdict: None if it gave a number only.
    steps: as in `Score`, not weighted.
    explanation: why the environment failed to give a reward; the verdict is then TIMEOUT or CRASHED. Empty if it did.
    """

    value: float
    verdict: Verdict | None = None
    steps: tuple[tuple[int, float], ...] = ()
    explanation: str = ""

    @property
    def failed(self) -> bool:
        return bool(self.explanation)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A problem as the policy sees it: rendered in a template and tokenised."""

    problem: Problem
    text: str
    token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """One sampled response.

    sample: its index within the group of the prompt.
    token_ids: the response, with the end token if it ended by one.
    behavior_logps: for each token its log-probability (nats, <= 0) under the distribution that it was sampled from,
    after all filters; 0 for a forced token.
    text: the decoded response.
    version_min, version_max: oldest and newest policy version that sampled a token. A version is the number of
    optimizer steps so far. A step of RL can make several of them.
    seed: of the random numbers, as in `rollout.base.Sampling`.
    num_candidates: with top-k, top-p or min-p, how many tokens were left to sample each token from, so that the trainer
    can normalise over the same set; empty if every token was sampled from the whole vocabulary.
    min_response_tokens: end-of-sequence tokens were masked out for the first N tokens, and are again in training.
    sampled_mask: False where a token was forced (the end of a thought, the output of a tool); empty if the policy
    sampled every token.
    versions: the policy version that sampled each token; empty if one version sampled all of them.
    environment_reward: None while the response has not ended, if it has no environment, and if its environment leaves
    the reward to the other rewards of the recipe.
    observations: [start, end] of each answer of the environment, in characters of the text.
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
    environment_reward: EnvironmentReward | None = None
    observations: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        per_token = {"behavior_logps": True, "num_candidates": False, "sampled_mask": False, "versions": False}
        for name, required in per_token.items():
            length = len(getattr(self, name))
            if length != self.num_tokens and (length or required):
                raise ValueError(f"a rollout of {self.num_tokens} tokens has {length} {name}; expected one per token")

    @property
    def num_tokens(self) -> int:
        """Length of the response, forced tokens included."""
        return len(self.token_ids)

    @property
    def said(self) -> str:
        """The text of the policy alone: a line end stands for each observation. Answers are looked for here, because a
        box that a tool has printed is not the policy's answer."""
        return without_spans(self.text, self.observations)

    def place_of(self, end: int) -> int:
        """Return where in `text` the first `end` characters of `said` end: before an observation that follows them.

        Example: in the text "calc[36]done", [36] is an observation, so `said` is "calc\\ndone". For 4, and for 5 with
        the line end, the place is 4; for 9 it is 12.
        """
        for start, stop in self.observations:
            if end > start + 1:
                end += stop - start - 1
            elif end == start + 1:
                end = start
        for start, stop in reversed(self.observations):  # at its end only where another follows: before both
            if start < end <= stop:
                end = start
        return end

    @property
    def token_mask(self) -> tuple[bool, ...]:
        """Whether the policy sampled each token, also if it sampled all of them."""
        return self.sampled_mask or (True,) * self.num_tokens

    @property
    def token_versions(self) -> tuple[int, ...]:
        """The policy version of each token, also if one version sampled all of them."""
        return self.versions or (self.version_max,) * self.num_tokens

    @property
    def truncated(self) -> bool:
        """Tell whether the response was cut off before it ended by itself."""
        return self.finish in (Finish.LENGTH, Finish.ABORT)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredRollout:
    """A rollout with its reward."""

    rollout: Rollout
    score: Score


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """All scored rollouts of one prompt in one step. With dynamic sampling, one with equal rewards may be replaced."""

    prompt: Prompt
    members: tuple[ScoredRollout, ...]

    def __post_init__(self) -> None:
        if not self.members:
            raise ValueError(f"the group of problem {self.prompt.problem.id!r} has no members")

    @property
    def learned(self) -> tuple[ScoredRollout, ...]:
        """The members that a reward applies to; all of them, with equal rewards, if none does."""
        return tuple(member for member in self.members if member.score.applies) or self.members

    @property
    def rewards(self) -> tuple[float, ...]:
        return tuple(member.score.value for member in self.learned)

    @property
    def has_signal(self) -> bool:
        """Return whether a group advantage is not 0 for all: two rewards differ by more than rounding (1e-9)."""
        return not math.isclose(min(self.rewards), max(self.rewards), rel_tol=1e-9, abs_tol=1e-9)


def _is_span(value: Any) -> bool:
    places = cast("Sequence[Any]", value) if isinstance(value, list | tuple) else ()
    return len(places) == 2 and all(isinstance(place, int) for place in places)


def without_spans(text: str, spans: Sequence[Sequence[int]]) -> str:
    """Return the text with a line end in the place of each [start, end], in characters."""
    begins = [0, *(int(end) for _, end in spans)]
    ends = [*(int(start) for start, _ in spans), None]
    return "\n".join(text[begin:end] for begin, end in zip(begins, ends, strict=True))


def to_json(value: Any) -> Json:
    """Convert any type above to plain JSON. A rollout read back is equal, except that tuples in `meta` become lists."""
    data = dataclasses.asdict(value)
    for name in ("environment_reward", "observations"):  # what only rollouts with an environment have
        if isinstance(value, Rollout) and not data[name]:
            del data[name]
    return data


def _environment_reward_from_json(data: Json | None) -> EnvironmentReward | None:
    if data is None:
        return None
    told, steps = data["verdict"], tuple((end, reward) for end, reward in data["steps"])
    if told is not None:
        fields: Json = {**told, "reason": Reason(told["reason"])}
        told = Verdict(**fields)
    fields = {**data, "verdict": told, "steps": steps}
    return EnvironmentReward(**fields)


def prompt_from_json(data: Json) -> Prompt:
    """Read the `to_json` of a Prompt."""
    fields: Json = {**data, "problem": problem_from_json(data["problem"]), "token_ids": tuple(data["token_ids"])}
    return Prompt(**fields)


def problem_row(problem: Problem) -> Json:
    """Return the `to_json` of a Problem as a row: with `answer`, a text or a list of several, instead of `answers`."""
    fields = to_json(problem) | {"answers": gold_value(problem.answer)}
    return {"answer" if name == "answers" else name: value for name, value in fields.items()}


def problem_from_json(data: Mapping[str, Any]) -> Problem:
    """Read the `to_json` of a Problem, or its `problem_row`. Raise KeyError without gold answers."""
    fields: Json = dict(data)
    answers: Any = fields.pop("answers") if "answers" in fields else fields.pop("answer")
    return Problem(**fields, answers=answers_of(answers) if isinstance(answers, str) else tuple(answers))


def rollout_from_json(data: Json, prompt: Prompt | None = None) -> Rollout:
    """Read the `to_json` of a Rollout. prompt: if the data leave it out."""
    rollout: Json = dict(data)
    return Rollout(
        prompt=prompt_from_json(rollout.pop("prompt")) if prompt is None else prompt,
        token_ids=tuple(rollout.pop("token_ids")),
        behavior_logps=tuple(rollout.pop("behavior_logps")),
        num_candidates=tuple(rollout.pop("num_candidates")),
        sampled_mask=tuple(rollout.pop("sampled_mask", ())),
        versions=tuple(rollout.pop("versions", ())),
        finish=Finish(rollout.pop("finish")),
        environment_reward=_environment_reward_from_json(rollout.pop("environment_reward", None)),
        observations=tuple((start, end) for start, end in rollout.pop("observations", ())),
        **rollout,
    )
