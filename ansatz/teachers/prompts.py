"""The prompts of teachers: the text that a teacher reads before a response, next to the prompt of the policy.

A privileged text (the worked solution, the gold answer, a verdict) is a part of the teacher's prompt only. Policy and
teacher are compared at the response's tokens, which are the same after both prompts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from ansatz.config.chat import Template
from ansatz.errors import ConfigError, ModelError
from ansatz.prompts.render import render
from ansatz.teachers.settings import FIELDS, TeacherSettings, name_of
from ansatz.train.sample import StepTokens, TrainSample, samples_of_groups
from ansatz.types import Group, Problem, Reason, ScoredRollout

_FIELD = re.compile(r"\{(\w+)\}")
_REASONS = {
    Reason.DIFFERENT: "The final answer is wrong.",
    Reason.NO_ANSWER: "The response ended without a final answer.",
    Reason.TRUNCATED: "The response was cut off before a final answer.",
    Reason.HEDGED: "The response gives more than one final answer.",
    Reason.UNPARSED: "The final answer cannot be read.",
}
_MARK = "(a text that no prompt of the policy may have)"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaughtSample(TrainSample):
    """A sample with the prompt that its teacher reads. teacher: its name. teacher_ids: empty: the policy's prompt."""

    teacher: str
    teacher_ids: Sequence[int] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TeacherPrompts:
    """Renders the prompts of a run's teachers. max_tokens: of a prompt, so that a response still fits."""

    teachers: Mapping[str, TeacherSettings]
    tokenizer: Any
    template: Template
    max_tokens: Mapping[str, int]

    def samples(self, groups: Sequence[Group], step_tokens: StepTokens) -> list[TaughtSample]:
        """Return a sample of every rollout that a reward applies to, with the prompt of its teacher.

        A prompt that is too long because of {response} or {verdict} is rendered without these two.
        """
        members = [(group, member) for group in groups for member in group.learned]
        taught = list[TaughtSample]()
        for sample, (group, member) in zip(samples_of_groups(groups, step_tokens), members, strict=True):
            problem = group.prompt.problem
            name = name_of(problem, self.teachers)
            values = _values(problem) | _values_of_rollout(group, member)
            try:
                ids = self.token_ids(problem, name, values)
            except ModelError:
                ids = self.token_ids(problem, name, _values(problem))
            given = {field.name: getattr(sample, field.name) for field in fields(TrainSample)}
            taught.append(TaughtSample(**given, teacher=name, teacher_ids=ids))
        return taught

    def check(self, problem: Problem, prompt_ids: Sequence[int]) -> None:
        """Raise ModelError for a prompt of the teacher that is too long, and for a prompt of the policy that depends on
        the solution or the gold answer. prompt_ids: of the policy."""
        self.token_ids(problem, name_of(problem, self.teachers), _values(problem))
        other = replace(problem, solution=_MARK, answers=(_MARK,))
        if render(other, self.template, self.tokenizer).token_ids != tuple(prompt_ids):
            raise ModelError(
                f"the prompt of problem {problem.id!r} has its solution or its gold answer in it, which only the "
                "teacher may read. Use another prompt template."
            )

    def token_ids(self, problem: Problem, name: str, values: Mapping[str, str]) -> tuple[int, ...]:
        """Return the tokens of the prompt that a teacher reads; empty if it is the policy's prompt."""
        text = self.teachers[name].prompt
        if text is None:
            return ()
        ids = render(replace(problem, question=filled(text, values)), self.template, self.tokenizer).token_ids
        if len(ids) > self.max_tokens[name]:
            raise ModelError(
                f"the teacher's prompt of problem {problem.id!r} has {len(ids)} tokens, but its context leaves "
                f"{self.max_tokens[name]} next to a response. Shorten teacher.prompt, or remove the problem."
            )
        return ids


def check_prompt(text: str) -> None:
    """Raise ConfigError for a prompt with an unknown field, or without the question."""
    names = _FIELD.findall(text)
    if unknown := [name for name in names if name not in FIELDS]:
        known = ", ".join(f"{{{name}}}" for name in FIELDS)
        raise ConfigError(f"teacher.prompt has the field {{{unknown[0]}}}. Known: {known}.")
    if "question" not in names:
        raise ConfigError("teacher.prompt has no {question}, so the teacher would not know the problem. Add it.")


def filled(text: str, values: Mapping[str, str]) -> str:
    """Fill in the fields of a prompt, and leave out the paragraphs with a field that has no value.

    Example: `filled("{question}\\n\\nHint: {solution}", {"question": "1 + 1?"})` is `"1 + 1?"`.
    """
    paragraphs = [part for part in text.split("\n\n") if all(values.get(name) for name in _FIELD.findall(part))]
    return _FIELD.sub(lambda match: values[match[1]], "\n\n".join(paragraphs))


def _values(problem: Problem) -> dict[str, str]:
    return {
        "question": problem.question,
        "solution": problem.solution or "",
        "answer": " or ".join(problem.answers),
    }


def _values_of_rollout(group: Group, member: ScoredRollout) -> dict[str, str]:
    others = (other.rollout.said for other in group.members if other is not member and other.score.verdict)
    return {"response": next(others, ""), "verdict": _REASONS.get(member.score.verdict.reason, "")}
