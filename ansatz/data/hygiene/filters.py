"""Finds problems by their text for which a verifier of final answers cannot give fair rewards."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection

from ansatz.data.hygiene.normalize import normalized_words
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
    """Return whether the question lists options, or asks for one and the answer is a letter: one guess in five is
    right."""
    if _OPTIONS.search(_DRAWING.sub("", problem.question)):
        return True
    return bool(_CHOOSE.search(problem.question) and _LETTER.fullmatch(problem.answer))


def true_false(problem: Problem) -> bool:
    """Return whether the answer is yes or no: one guess in two is correct."""
    return " ".join(normalized_words(problem.answer)) in _TRUTH


def proof(problem: Problem) -> bool:
    """Return whether the question asks for a proof, which a final answer cannot represent."""
    return _PROOF.search(problem.question) is not None


FILTERS: dict[str, Callable[[Problem], bool]] = {
    "multiple_choice": multiple_choice,
    "true_false": true_false,
    "proof": proof,
}


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
