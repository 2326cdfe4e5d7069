"""Summarises a problem file: lengths, kinds of answer, levels, and rows that a person should look at."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ansatz.data.extract import after_hashes, last_box
from ansatz.data.hygiene.filters import FILTERS, match_in_order
from ansatz.data.hygiene.normalize import normalized_words, same_answer
from ansatz.files import read_yaml
from ansatz.types import Problem

SUBJECT_KEYS = ("subject", "topic", "type", "problem_type", "ability", "category")
SOURCE_KEYS = ("source", "data_source", "dataset")
QUANTILES = (0.0, 0.05, 0.5, 0.95, 1.0)

_KINDS: dict[str, str] = read_yaml(Path(__file__).with_suffix(".yaml"))
_LONG_ANSWER = 100  # characters
_SHORT_QUESTION = 4  # words
_PICTURE = re.compile(r"!\[|<img|\\includegraphics|https?://|\b(?:shown|pictured) (?:below|above)\b", re.IGNORECASE)
_PARTS = re.compile(r"\((?:a|i)\)"), re.compile(r"\((?:b|ii)\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSummary:
    """question_lengths, solution_lengths: the QUANTILES in the unit of the counter; empty if there are no such texts.
    subjects, sources: the rows' own statements (SUBJECT_KEYS, SOURCE_KEYS). suspicious: (line, id, reason)."""

    rows: int
    question_lengths: tuple[int, ...]
    solution_lengths: tuple[int, ...]
    answer_kinds: Counter[str]
    levels: Counter[str]
    subjects: Counter[str]
    sources: Counter[str]
    suspicious: tuple[tuple[int, str, str], ...]


def summarize(
    problems: Iterable[Problem],
    *,
    length: Callable[[str], int] | None = None,
    same: Callable[[str, str], bool] = same_answer,
) -> FileSummary:
    """Read all problems once.

    length: text -> length; the number of words by default. same: whether an answer in a solution, the first argument,
    is the gold answer; by default the two must be the same text.
    """
    count = length or (lambda text: len(text.split()))
    rows, questions, solutions = 0, list[int](), list[int]()
    kinds, levels, seen = Counter[str](), Counter[str](), set[str]()
    subjects, sources = Counter[str](), Counter[str]()
    suspicious: list[tuple[int, str, str]] = []
    for rows, problem in enumerate(problems, start=1):
        questions.append(count(problem.dialogue))
        if problem.solution is not None:
            solutions.append(count(problem.solution))
        kinds[answer_kind(next(iter(problem.answers), ""))] += 1
        levels[problem.level or "none"] += 1
        subjects[_first_text(problem, SUBJECT_KEYS)] += 1
        sources[_first_text(problem, SOURCE_KEYS)] += 1
        reasons = doubts(problem, same=same) + (["an earlier row has the same id"] if problem.id in seen else [])
        seen.add(problem.id)
        suspicious += [(int(problem.meta.get("line", rows)), problem.id, reason) for reason in reasons]
    return FileSummary(
        rows=rows,
        question_lengths=quantiles(questions),
        solution_lengths=quantiles(solutions),
        answer_kinds=kinds,
        levels=levels,
        subjects=subjects,
        sources=sources,
        suspicious=tuple(suspicious),
    )


def quantiles(values: Sequence[int]) -> tuple[int, ...]:
    """Return the values at QUANTILES (nearest rank, so each one occurs); empty for no values."""
    ordered = sorted(values)
    return tuple(ordered[round(level * (len(ordered) - 1))] for level in QUANTILES) if ordered else ()


def answer_kind(answer: str) -> str:
    """Return the key of _KINDS whose form the answer has; "expression" if none matches."""
    inside = re.sub(r"(?<!\\)\$([^$]*[^$\\])\$", r"\1", answer)
    bare = re.sub(r"\\[,;!: ]|\\(?:left|right)(?![a-z])|\s", "", inside).rstrip(".")
    return next((kind for kind, form in _KINDS.items() if re.fullmatch(form, bare, re.DOTALL)), "expression")


def _first_text(problem: Problem, keys: Sequence[str]) -> str:
    """Return the first of these fields of the row that is text; "none" if there is none."""
    values = (problem.meta.get(key) for key in keys)
    return next((value for value in values if isinstance(value, str) and value.strip()), "none")


def doubts(problem: Problem, *, same: Callable[[str, str], bool] = same_answer) -> list[str]:
    """Return the reasons why a person should look at the problem; usually empty."""
    question, answer, solution = problem.question, problem.answer, problem.solution or ""
    ending = after_hashes(solution) or last_box(solution)
    checks = {
        "the question has fewer than 4 words": len(normalized_words(question)) < _SHORT_QUESTION,
        "the question refers to a picture or a link": _PICTURE.search(question) is not None,
        "the question has several parts": match_in_order(question, _PARTS),
        "the text contains characters that were lost in decoding": "\ufffd" in question + answer,
        "the answer is longer than 100 characters": len(answer) > _LONG_ANSWER,
        "the answer is a worked solution (it contains #### or a box)": "####" in answer or "\\boxed" in answer,
        "the solution ends with a different answer": ending is not None and not same(ending, answer),
    }
    filtered = [f"a filter would drop it: {name}" for name, rejects in FILTERS.items() if rejects(problem)]
    return [reason for reason, holds in checks.items() if holds] + filtered
