"""Preference pairs: a problem whose solution is the chosen response, with the rejected one in its `meta`.

A pair is stored, streamed and rendered like any other problem. Files of pairs are read by `data.pair_files`; pairs of
the policy's own responses are made by `make_pairs`.

Axis: R graded responses to one problem.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansatz.data.hygiene.normalize import signature
from ansatz.data.keyed_random import KeyedRandom
from ansatz.errors import ConfigError, DataError
from ansatz.registry import suggest
from ansatz.types import Problem

REJECTED = "rejected"
"""The key of a pair's `meta` with the rejected response."""
_REJECTED_OBSERVATIONS, _REJECTED_IDS = "rejected_observations", "rejected_ids"
PICKS = ("hardest", "random")


def pair_of(problem: Problem, *, chosen: str, rejected: str) -> Problem:
    """Return the pair of two responses to a problem."""
    return dataclasses.replace(problem, solution=chosen, meta={**problem.meta, REJECTED: rejected})


def _pair_samples(problem: Problem, *, name: str, chosen: Answered, rejected: Answered) -> Problem:
    """Return the pair of two sampled responses, with the environment's answers in them. name: follows the problem's
    id."""
    pair = problem.answered(chosen.text, chosen.observations, chosen.token_ids)
    spans = [list(span) for span in rejected.observations]
    more = {_REJECTED_OBSERVATIONS: spans, _REJECTED_IDS: list(rejected.token_ids)}
    meta = {**pair.meta, REJECTED: rejected.text, **{key: value for key, value in more.items() if value}}
    return dataclasses.replace(pair, id=f"{problem.id}{name}", meta=meta)


def pair_with(problem: Problem, other: Problem) -> Problem:
    """Return the pair of a problem's response and, in the place of the rejected one, the response of another."""
    rejected = {
        REJECTED: other.solution or "",
        _REJECTED_OBSERVATIONS: list(other.observations),
        _REJECTED_IDS: list(other.response_ids),
    }
    return dataclasses.replace(problem, meta={**problem.meta, **rejected})


def rejected_of(pair: Problem) -> Problem:
    """Return the pair's problem with the rejected response as its solution. Raise DataError if it is not a pair."""
    rejected = pair.meta.get(REJECTED)
    if not isinstance(rejected, str):
        raise DataError(f"problem {pair.id!r} has no rejected response, so it is not a pair. Remove the file of pairs.")
    rejected_pair = pair.answered(rejected, pair.meta.get(_REJECTED_OBSERVATIONS, ()), pair.meta.get(_REJECTED_IDS, ()))
    return dataclasses.replace(rejected_pair, id=f"{pair.id}:{REJECTED}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """A graded response. answer: the one that was extracted from it, as text; None without one. tokens: its length, end
    token included. observations, token_ids: see `Problem.observations` and `Problem.response_ids`."""

    sample: int
    text: str
    tokens: int
    correct: bool
    answer: str | None
    observations: Sequence[Sequence[int]] = ()
    token_ids: Sequence[int] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PairSettings:
    """How the responses to a problem are paired.

    per_prompt: most pairs of one problem. A response is in one pair at most.
    pick: which wrong responses are rejected. hardest: those with the wrong answer that the policy gives most often,
        because that mistake is the most convincing one; random: any.
    balance_lengths: of the wrong responses that `pick` allows, reject the one that brings the chosen and the rejected
        responses so far nearest to the same number of tokens. Without this, a policy whose mistakes are longer also
        learns to be short.
    """

    per_prompt: int = 2
    pick: str = "hardest"
    balance_lengths: bool = True

    def __post_init__(self) -> None:
        if self.per_prompt < 1:
            raise ConfigError(f"per_prompt = {self.per_prompt}: expected 1 or more.")
        if self.pick not in PICKS:
            raise ConfigError(f"pick = {self.pick!r} is unknown.{suggest(self.pick, PICKS)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class MadePairs:
    """pairs: in the order of the problems. counts: for the report next to the file."""

    pairs: tuple[Problem, ...]
    counts: Mapping[str, Any]


def make_pairs(
    problems: Sequence[Problem], responses: Mapping[str, Sequence[Answered]], settings: PairSettings, *, seed: int
) -> MadePairs:
    """Pair correct with wrong responses. responses: those that can be in a pair, by the id of the problem.

    Responses with the same words count once. The result depends on nothing but the arguments.
    """
    pairs, excess, chosen_tokens, rejected_tokens = list[Problem](), 0, 0, 0
    for problem in problems:
        rng = KeyedRandom(seed, "pairs", problem.id)
        distinct = _distinct(responses.get(problem.id, ()))
        right = rng.shuffled([each for each in distinct if each.correct])
        wrong = rng.shuffled([each for each in distinct if not each.correct])
        for number, chosen in enumerate(right[: settings.per_prompt], start=1):
            if not wrong:
                break
            rejected = _choose_rejected(wrong, settings, wanted_tokens=chosen.tokens + excess)
            wrong.remove(rejected)
            excess += chosen.tokens - rejected.tokens
            chosen_tokens, rejected_tokens = chosen_tokens + chosen.tokens, rejected_tokens + rejected.tokens
            pairs.append(_pair_samples(problem, name=f"#{number}", chosen=chosen, rejected=rejected))
    counts = {
        "problems": len(problems),
        "paired_problems": len({pair.id.rpartition("#")[0] for pair in pairs}),
        "pairs": len(pairs),
        "chosen_tokens": chosen_tokens / max(len(pairs), 1),
        "rejected_tokens": rejected_tokens / max(len(pairs), 1),
    }
    return MadePairs(pairs=tuple(pairs), counts=counts)


def _distinct(responses: Sequence[Answered]) -> list[Answered]:
    """Return the first of all responses with the same words, in the order of the samples."""
    first: dict[str, Answered] = {}
    for response in sorted(responses, key=lambda each: each.sample):
        first.setdefault(signature(response.text), response)
    return list(first.values())


def _choose_rejected(wrong: Sequence[Answered], settings: PairSettings, *, wanted_tokens: int) -> Answered:
    """Return the response to reject. wrong: in random order. wanted_tokens: the length that would balance the pairs so
    far."""
    allowed = wrong
    if settings.pick == "hardest":
        votes = Counter(response.answer for response in wrong if response.answer is not None)
        most = max(votes.values(), default=0)
        allowed = [each for each in wrong if each.answer is not None and votes[each.answer] == most] or wrong
    if settings.balance_lengths:
        return min(allowed, key=lambda response: abs(response.tokens - wanted_tokens))
    return allowed[0]
