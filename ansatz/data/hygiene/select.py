"""Selects the graded responses that a model is trained on: the selection step of rejection sampling.

A response is kept if it is correct, ended by itself, is rejected by no filter, repeats no earlier response to its
problem, and is among the first `per_prompt` of the remaining ones in the order of `pick`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ansatz.data.hygiene.normalize import signature
from ansatz.data.keyed_random import KeyedRandom
from ansatz.errors import ConfigError
from ansatz.registry import suggest

PICKS = ("random", "shortest")


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A graded response to a problem. finished: it ended by itself. tokens: its length, end token included.

    transcript, observations, token_ids: see `evaluate.responses.Response`.
    """

    problem_id: str
    sample: int
    text: str
    tokens: int
    correct: bool
    finished: bool
    transcript: str = ""
    observations: Sequence[Sequence[int]] = ()
    token_ids: Sequence[int] = ()


Reject = Callable[[Candidate], str | None]
"""A filter: its reason to reject a response, in one word, or None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectedResponses:
    """kept: in the order of the problems and then of `pick`. dropped: all other responses, each with the reason:
    "wrong", "cut_off", a filter's word, "repeated", or "over" (`per_prompt` responses were already kept)."""

    kept: tuple[Candidate, ...]
    dropped: tuple[tuple[Candidate, str], ...]

    @property
    def kinds(self) -> dict[str, int]:
        """Return the number of dropped responses by reason."""
        return dict(sorted(Counter(reason for _, reason in self.dropped).items()))


def select_responses(
    candidates: Iterable[Candidate], *, per_prompt: int, pick: str, seed: int, filters: Sequence[Reject] = ()
) -> SelectedResponses:
    """Return the responses to train on. seed: for pick = "random"; the order depends only on the seed and the problem.

    Two responses to a problem are the same if they agree in words, signs and brackets. Raise ConfigError for per_prompt
    below 1 or an unknown pick.
    """
    check_selection(per_prompt=per_prompt, pick=pick)
    groups: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        groups.setdefault(candidate.problem_id, []).append(candidate)
    kept: list[Candidate] = []
    dropped: list[tuple[Candidate, str]] = []
    for problem_id, group in groups.items():
        seen: set[str] = set()
        remaining = per_prompt
        for candidate in _order(group, pick, KeyedRandom(seed, "select", problem_id)):
            form = signature(candidate.text)
            reason = _rejection(candidate, filters) or ("repeated" if form in seen else None)
            reason = reason or (None if remaining else "over")
            if reason is None:
                remaining -= 1
                seen.add(form)
                kept.append(candidate)
            else:
                dropped.append((candidate, reason))
    return SelectedResponses(kept=tuple(kept), dropped=tuple(dropped))


def check_selection(*, per_prompt: int, pick: str) -> None:
    """Raise ConfigError for a setting outside its range."""
    if per_prompt < 1:
        raise ConfigError(f"per_prompt = {per_prompt}, expected at least 1 response per problem.")
    if pick not in PICKS:
        raise ConfigError(f"pick = {pick!r} is unknown.{suggest(pick, PICKS)}")


def _order(group: list[Candidate], pick: str, rng: KeyedRandom) -> list[Candidate]:
    by_sample = sorted(group, key=lambda candidate: candidate.sample)
    if pick == "shortest":
        return sorted(by_sample, key=lambda candidate: candidate.tokens)
    return rng.shuffled(by_sample)


def _rejection(candidate: Candidate, filters: Sequence[Reject]) -> str | None:
    if not candidate.correct:
        return "wrong"
    if not candidate.finished:
        return "cut_off"
    return next((reason for reject in filters if (reason := reject(candidate)) is not None), None)


def selection_counts(selected: SelectedResponses) -> dict[str, Any]:
    """Return the counts for the report next to the written file."""
    candidates = [*selected.kept, *(candidate for candidate, _ in selected.dropped)]
    per_problem = Counter(candidate.problem_id for candidate in selected.kept)
    return {
        "problems": len({candidate.problem_id for candidate in candidates}),
        "problems_kept": len(per_problem),
        "responses": len(candidates),
        "kept": len(selected.kept),
        "dropped": len(selected.dropped),
        "kinds": selected.kinds,
        "kept_per_problem": {str(count): times for count, times in sorted(Counter(per_problem.values()).items())},
    }
