"""Topics of problems by rules: words and signs that are typical of a field of mathematics.

In the table `topics.yaml`, each topic has patterns with weights. A topic applies if the weights of the patterns that
occur in the conversation reach THRESHOLD. The rules are written for English and LaTeX. They are meant for mixtures and
for a first look at a file; how often they agree with the subjects that MATH states is in docs/data.md.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ansatz.errors import ConfigError
from ansatz.files import read_yaml
from ansatz.registry import load_attribute
from ansatz.types import Problem

THRESHOLD = 2.0
MOST = 2
"""How often a pattern counts at most in one text."""
ARITHMETIC, OTHER = "arithmetic", "other"
"""OTHER: the topic of a problem that no rule applies to."""

_CASE_MATTERS = ("geometry",)  # points are capital letters


@functools.cache
def _patterns() -> dict[str, list[tuple[float, re.Pattern[str]]]]:
    """Return the weights and patterns of every topic."""
    table: dict[str, dict[float, list[str]]] = read_yaml(Path(__file__).with_suffix(".yaml"))
    flags = {topic: 0 if topic in _CASE_MATTERS else re.IGNORECASE for topic in table}
    return {
        topic: [(weight, re.compile("|".join(parts), flags[topic])) for weight, parts in rules.items()]
        for topic, rules in table.items()
    }


def topics_of(problem: Problem) -> list[str]:
    """Return all topics that apply, the one with the most evidence first, arithmetic last: its words are in most
    stories."""
    text = problem.dialogue
    evidence = {
        topic: sum(weight * min(MOST, sum(1 for _ in pattern.finditer(text))) for weight, pattern in patterns)
        for topic, patterns in _patterns().items()
    }
    topics = (topic for topic in evidence if evidence[topic] >= THRESHOLD)
    return sorted(topics, key=lambda topic: (topic == ARITHMETIC, -evidence[topic]))


def classifier_of(reference: str | None) -> Callable[[Problem], list[str]]:
    """Return the rules, or a user's classifier: "file.py:function" with a function (problem) -> topic, or a list of
    topics.

    Raise ConfigError if there is no such function, or if it returns something else.
    """
    if reference is None:
        return lambda problem: topics_of(problem) or [OTHER]
    if ":" not in reference:
        raise ConfigError(f"--classifier = {reference!r}, expected file.py:function or module:function.")
    function: Any = load_attribute(reference, kind="classifier")

    def classify(problem: Problem) -> list[str]:
        try:
            result = function(problem)
        except Exception as error:  # the user's code can fail in any way
            raise ConfigError(
                f"--classifier {reference} failed on problem {problem.id!r}: {type(error).__name__}: {error}."
            ) from error
        topics = [result] if isinstance(result, str) else result
        if not isinstance(topics, Sequence) or not topics or not all(isinstance(t, str) and t.strip() for t in topics):
            raise ConfigError(
                f"--classifier {reference} returned {result!r:.80} for problem {problem.id!r}, expected a topic as "
                "text, or a list of topics."
            )
        return list(topics)

    return classify
