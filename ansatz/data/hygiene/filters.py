"""Problems that a verifier of final answers cannot pay for fairly, told by their text."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection

from ansatz.data.hygiene.wording import words_of
from ansatz.errors import ConfigError
from ansatz.registry import suggest
from ansatz.types import Problem

_LETTER = re.compile(r"\W*(?:\\(?:text|textbf|mathrm)\s*\{?\s*)?\(?([A-Ea-e])\)?\W*")
_OPTIONS = re.compile(
    r"(?<![A-Za-z])\(A\).*?(?<![A-Za-z])\(B\).*?(?<![A-Za-z])\(C\)|^\s*A[.):].*?^\s*B[.):].*?^\s*C[.):]",
    re.DOTALL | re.MULTILINE,
)
_DRAWING = re.compile(r"\[asy\].*?\[/asy\]", re.DOTALL)
_CHOOSE = re.compile(r"\b(?:which of the following|choose the correct|among the following)\b", re.IGNORECASE)
_TRUTH = frozenset({"true", "false", "yes", "no", "correct", "incorrect"})
_PROOF = re.compile(
    r"(?:^|[.!?:;,\n]\s*(?:\(?[a-z1-9][).]\s*)?|\b(?:and|then|please|you)\s+)"
    r"(?:prove(?!d)|disprove|show\s+that|give\s+a\s+proof)\b",
    re.IGNORECASE,
)


def multiple_choice(problem: Problem) -> bool:
    """Options are listed in the question, or are asked for and the answer is a letter: one guess in five is right."""
    if _OPTIONS.search(_DRAWING.sub("", problem.question)):
        return True
    return bool(_CHOOSE.search(problem.question) and _LETTER.fullmatch(problem.answer))


def true_false(problem: Problem) -> bool:
    """The answer is yes or no: one guess in two is right."""
    return " ".join(words_of(problem.answer)) in _TRUTH


def proof(problem: Problem) -> bool:
    """The question asks for a proof, which no final answer stands for."""
    return _PROOF.search(problem.question) is not None


FILTERS: dict[str, Callable[[Problem], bool]] = {
    "multiple_choice": multiple_choice,
    "true_false": true_false,
    "proof": proof,
}


def why_dropped(
    problem: Problem, *, drop: Collection[str] = tuple(FILTERS), max_words: int | None = None
) -> str | None:
    """The first filter that refuses the problem, "too_long" for a question over max_words, None for one that stays.

    drop: keys of FILTERS. ConfigError for an unknown one or a max_words under 1.
    """
    for name in drop:
        if name not in FILTERS:
            raise ConfigError(f"filter {name!r} is unknown.{suggest(name, FILTERS)}")
        if FILTERS[name](problem):
            return name
    if max_words is not None and max_words < 1:
        raise ConfigError(f"max_words = {max_words}, expected 1 or more.")
    return "too_long" if max_words is not None and len(problem.question.split()) > max_words else None
