"""Finds problems, by their text, that a verifier of final answers cannot reward fairly."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable

from ansatz.data.hygiene.normalize import normalized_words
from ansatz.errors import ConfigError
from ansatz.registry import suggest
from ansatz.types import Problem

_LETTER = re.compile(r"\W*+(?:(?<=\\)(?:text|textbf|mathrm)\s*+\{?+\s*+\(?+)?[A-Ea-e]\W*+")
_OPTIONS = [
    [re.compile(rf"(?<![A-Za-z])\({letter}\)") for letter in "ABC"],
    [re.compile(rf"^[^\S\n]*+{letter}[.):]", re.MULTILINE) for letter in "ABC"],
]
_CHOOSE = re.compile(r"\b(?:which of the following|choose the correct|among the following)\b", re.IGNORECASE)
_TRUTH = frozenset({"true", "false", "yes", "no", "correct", "incorrect"})
_BLANKS = re.compile(r"\s++")
_PROOF = re.compile(
    r"(?:^|[.!?:;,\n]\s?(?:\(?[a-z1-9][).]\s?)?|\b(?:and|then|please|you)\s)"
    r"(?:prove(?!d)|disprove|show\sthat|give\sa\sproof)\b",
    re.IGNORECASE,
)
"""In a text where each run of blanks is one."""


def multiple_choice(problem: Problem) -> bool:
    """Return whether the question lists options, or asks for one and the answer is a letter: one guess in five is
    right."""
    question = _without_drawings(problem.question)
    if any(match_in_order(question, options) for options in _OPTIONS):
        return True
    return bool(_CHOOSE.search(problem.question) and _LETTER.fullmatch(problem.answer))


def true_false(problem: Problem) -> bool:
    """Return whether the answer is yes or no: one guess in two is correct."""
    return " ".join(normalized_words(problem.answer)) in _TRUTH


def proof(problem: Problem) -> bool:
    """Return whether the question asks for a proof, which a final answer cannot represent."""
    question = _BLANKS.sub(lambda match: "\n" if "\n" in match[0] else " ", problem.question)
    return _PROOF.search(question) is not None


def match_in_order(text: str, patterns: Iterable[re.Pattern[str]]) -> bool:
    """Return whether the patterns match one after the other, with anything between them."""
    at = 0
    for pattern in patterns:
        if (match := pattern.search(text, at)) is None:
            return False
        at = match.end()
    return True


def _without_drawings(text: str) -> str:
    """Return the text without the drawings that are complete: from [asy] to [/asy]."""
    parts, at = list[str](), 0
    while (start := text.find("[asy]", at)) >= 0 and (end := text.find("[/asy]", start)) >= 0:
        parts.append(text[at:start])
        at = end + len("[/asy]")
    return "".join([*parts, text[at:]])


FILTERS: dict[str, Callable[[Problem], bool]] = {each.__name__: each for each in (multiple_choice, true_false, proof)}


def why_dropped(
    problem: Problem, *, drop: Collection[str] = tuple(FILTERS), max_words: int | None = None
) -> str | None:
    """Return the first filter that rejects the problem, "too_long" for a question over max_words, None if the problem
    stays.

    drop: keys of FILTERS. Raise ConfigError for an unknown key or a max_words below 1.
    """
    for name in drop:
        if name not in FILTERS:
            raise ConfigError(f"filter {name!r} is unknown.{suggest(name, FILTERS)}")
        if FILTERS[name](problem):
            return name
    if max_words is not None and max_words < 1:
        raise ConfigError(f"max_words = {max_words}, expected 1 or more.")
    return "too_long" if max_words is not None and len(problem.dialogue.split()) > max_words else None
