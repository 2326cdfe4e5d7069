"""The reasoning steps of a response: where they end, whether they are right, and their last tokens.

A step is by default a line of the response that is not blank, together with the line ends after it. For example,
"12+3=15\\n15*2=30\\n\\\\boxed{30}" has three steps, which end at the characters 8, 16 and 26.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, takewhile
from typing import Any, NamedTuple

from ansatz.config.fields import StepEnd
from ansatz.errors import ConfigError, DataError
from ansatz.registry import suggest
from ansatz.special_tokens import special_tokens
from ansatz.types import Problem

_LINE = re.compile(r"\s*+\S[^\n]*+\n*+")
_CLOSERS = r"[\"')\]}$]*+"
_PATTERNS = {
    "line": (_LINE, "\n"),
    "blank_line": (re.compile(r"\s*+\S[^\n]*+(?:\n(?![^\S\n]*+(?:\n|\Z))[^\n]*+)*+\n*+"), "\n\n"),
    "sentence": (
        re.compile(
            r"\s*+(?:\d++[.)][^\S\n]++)?(?=\S)"
            rf"(?:[^\n.!?\u3002\uff01\uff1f]|[.!?](?!{_CLOSERS}(?:\s|\Z)))*+"
            rf"(?:[.!?]{_CLOSERS}\n*+|[\u3002\uff01\uff1f]\n*+|\n++|\Z)"
        ),
        " ",
    ),
}
"""By name: a step, and the separator of joined steps."""
COMMUTATIVE = "+*"


def step_ends(text: str, at: StepEnd = "line") -> tuple[int, ...]:
    """The number of characters up to the end of each step, in rising order. A text without a step has none."""
    if not isinstance(at, Mapping):
        return tuple(match.end() for match in _steps(_PATTERNS[at][0], text))
    parts = text.split(at["marker"])
    ends = accumulate(len(part) + len(at["marker"]) for part in parts)
    return tuple(min(end, len(text)) for part, end in zip(parts, ends, strict=True) if part.strip())


def _steps(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """Yield the steps, each from the end of the one before it. A search would begin anew at every blank after the last
    of them."""
    at = 0
    while (match := pattern.match(text, at)) is not None:
        yield match
        at = match.end()


def joined_steps(steps: Sequence[str], at: StepEnd) -> str:
    """One text of given steps. DataError if `step_ends` would not find them in it again."""
    parts, separator = [step.strip() for step in steps], "\n"
    if isinstance(at, Mapping):
        parts = [f"{part.removesuffix(at['marker']).rstrip()} {at['marker']}" for part in parts]
    else:
        separator = _PATTERNS[at][1]
    text = separator.join(parts)
    if any(len(step_ends(part, at)) != 1 for part in parts) or len(step_ends(text, at)) != len(parts):
        raise DataError(
            f"its {len(steps)} steps with labels are not those of step_end: {shown_step_end(at)}, which finds "
            f"{len(step_ends(text, at))}. Set reward_model.step_end to what the labels are of, such as blank_line or "
            "{marker: TEXT}, or remove the row."
        )
    return text


def check_step_end(at: StepEnd, *, key: str) -> None:
    """Raise ConfigError for a marker that no step could end with, and for an unknown name."""
    if isinstance(at, Mapping):
        if not at.get("marker", "").strip():
            raise ConfigError(f"{key} = {dict(at)!r}: expected {{marker: TEXT}} with the text that ends a step.")
    elif at not in _PATTERNS:
        raise ConfigError(f"{key} = {at!r} is unknown.{suggest(str(at), _PATTERNS)}")


def shown_step_end(at: StepEnd) -> str:
    """Return it as a recipe writes it."""
    return f"{{marker: {at['marker']}}}" if isinstance(at, Mapping) else at


def exact_labels(problem: Problem, text: str) -> list[bool]:
    """Tell whether each step of a response is right, by the generator's true equations (`meta["steps"]`).

    Step n is right if it is the n-th true equation, or after the last of them the boxed answer. Everything after the
    first wrong step is wrong too, because it builds on a wrong number. `check_steps` must accept the problem.
    """
    wrong_from = first_wrong_character(problem, text)
    return [wrong_from is None or end <= wrong_from for end in step_ends(text)]


def first_wrong_character(problem: Problem, text: str) -> int | None:
    """Return the index of the first character that differs from the true solution, see `exact_labels`; None if every
    step is right. A step that ends too early is wrong from the line end after it, or from the text's last character."""
    true_lines = [_ways_to_write(*equation) for equation in problem.meta["steps"]]
    true_lines.append([rf"\boxed{{{gold}}}" for gold in problem.answers[:1]])
    for index, match in enumerate(_steps(_LINE, text)):
        expected = true_lines[index] if index < len(true_lines) else []
        step = match.group()
        if step.strip() in expected:
            continue
        line = step.lstrip()
        common = max((_common_start(line, each) for each in expected), default=0)
        return match.start() + min(len(step) - len(line) + common, len(step) - 1)
    return None


def _common_start(left: str, right: str) -> int:
    """Count the characters of the common beginning."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(left, right, strict=False)))


def check_steps(problems: Iterable[Problem]) -> None:
    """Raise DataError for a problem whose steps cannot be checked."""
    for problem in problems:
        if "steps" not in problem.meta:
            raise DataError(
                f"problem {problem.id!r} of {problem.source!r} has no meta.steps, so its reasoning steps cannot be "
                "checked. Use the source word_problems, or labels from rollouts (reward_model.labels: hard)."
            )


def first_error(labels: Sequence[bool]) -> int | None:
    """The index of the first wrong step; None if every step is right."""
    return next((index for index, right in enumerate(labels) if not right), None)


def _ways_to_write(left: Any, op: str, right: Any, value: Any) -> list[str]:
    """A true equation as a line of a response."""
    terms = [(left, right), (right, left)] if op in COMMUTATIVE else [(left, right)]
    return [f"{first}{op}{second}={value}" for first, second in terms]


class EncodedSteps(NamedTuple):
    """Prompt and response in the tokens of a reward model.

    token_ids: of both together. num_prompt: how many of them belong to the prompt only.
    at: for each step, the index in token_ids of the token with its last character. A model reads its value there.
    ends: for each token, the number of characters of the response up to its end; negative or 0 within the prompt.
    """

    token_ids: tuple[int, ...]
    num_prompt: int
    at: tuple[int, ...]
    ends: tuple[int, ...]

    def tokens_of(self, characters: Iterable[int]) -> tuple[int, ...]:
        """Return the indices in token_ids of the tokens with these characters of the response."""
        furthest = list(accumulate(self.ends, max))  # a special token at the end has no place of its own
        return tuple(bisect_right(furthest, character) for character in characters)


def encode_steps(tokenizer: Any, prompt: str, response: str, step_ends: Sequence[int]) -> EncodedSteps:
    """Tokenise prompt and response as one text, as `rewards.learned` does. tokenizer: a fast one of transformers.
    prompt: hidden text, or text as it is (see `special_tokens`). step_ends: in characters of the response."""
    special = special_tokens(tokenizer)
    # Each half of a character is replaced by one character: tokenizers refuse halves, and places must stay the same.
    text = prompt.encode(errors="replace").decode() + special.hide_response(response.encode(errors="replace").decode())
    ids, text_ends = special.encode_with_ends(text)
    ends = tuple(end - len(prompt) for end in text_ends)
    num_prompt = sum(end <= 0 for end in ends)
    steps = EncodedSteps(tuple(ids), num_prompt, (), ends)
    return steps._replace(at=steps.tokens_of(end - 1 for end in step_ends))
