"""Which graded responses of a model are learned from: rejection sampling's choice.

A response stays where it is right, came to its own end, is refused by no filter, repeats no earlier one of its problem,
and is among the first `per_prompt` of what is then left, in the order of `pick`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ansatz.data.hygiene.wording import signature
from ansatz.data.keyed_random import KeyedRandom
from ansatz.errors import ConfigError
from ansatz.registry import suggest

PICKS = ("random", "shortest")


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A graded response to a problem. whole: it came to its own end. tokens: its length, end token included."""

    problem: str
    sample: int
    text: str
    tokens: int
    correct: bool
    whole: bool


Refuse = Callable[[Candidate], str | None]
"""Why a filter refuses a response, in one word; None where it does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """kept: problem by problem, in the order of the candidates' problems and then of `pick`. dropped: the others, each
    with why: "wrong", "cut_off", a filter's word, "repeated" or "over" (there were `per_prompt` already)."""

    kept: tuple[Candidate, ...]
    dropped: tuple[tuple[Candidate, str], ...]

    @property
    def kinds(self) -> dict[str, int]:
        """How many went, by why."""
        return dict(sorted(Counter(why for _, why in self.dropped).items()))


def choose(
    candidates: Iterable[Candidate], *, per_prompt: int, pick: str, seed: int, refuse: Sequence[Refuse] = ()
) -> Chosen:
    """The responses to learn from. seed: of pick "random", whose order depends on seed and problem alone.

    Two responses of a problem are one where they agree in words, signs and brackets. ConfigError for a per_prompt under
    1 or an unknown pick.
    """
    check_choice(per_prompt=per_prompt, pick=pick)
    groups: dict[str, list[Candidate]] = {}
    for one in candidates:
        groups.setdefault(one.problem, []).append(one)
    kept: list[Candidate] = []
    dropped: list[tuple[Candidate, str]] = []
    for problem, group in groups.items():
        seen: set[str] = set()
        left = per_prompt
        for one in _ordered(group, pick, KeyedRandom(seed, "select", problem)):
            form = signature(one.text)
            why = _against(one, refuse) or ("repeated" if form in seen else None) or (None if left else "over")
            if why is None:
                left -= 1
                seen.add(form)
                kept.append(one)
            else:
                dropped.append((one, why))
    return Chosen(kept=tuple(kept), dropped=tuple(dropped))


def check_choice(*, per_prompt: int, pick: str) -> None:
    """ConfigError for a setting out of its range."""
    if per_prompt < 1:
        raise ConfigError(f"per_prompt = {per_prompt}: expected 1 response a problem or more.")
    if pick not in PICKS:
        raise ConfigError(f"pick = {pick!r} is unknown.{suggest(pick, PICKS)}")


def _ordered(group: list[Candidate], pick: str, draw: KeyedRandom) -> list[Candidate]:
    by_sample = sorted(group, key=lambda one: one.sample)
    if pick == "shortest":
        return sorted(by_sample, key=lambda one: one.tokens)
    return draw.shuffled(by_sample)


def _against(one: Candidate, refuse: Sequence[Refuse]) -> str | None:
    if not one.correct:
        return "wrong"
    if not one.whole:
        return "cut_off"
    return next((why for filter_ in refuse if (why := filter_(one)) is not None), None)


def report_of(chosen: Chosen) -> dict[str, Any]:
    """The counts that stand in the report beside what was written."""
    everything = [*chosen.kept, *(one for one, _ in chosen.dropped)]
    per_problem = Counter(one.problem for one in chosen.kept)
    return {
        "problems": len({one.problem for one in everything}),
        "problems_kept": len(per_problem),
        "responses": len(everything),
        "kept": len(chosen.kept),
        "dropped": len(chosen.dropped),
        "kinds": chosen.kinds,
        "kept_per_problem": {str(count): many for count, many in sorted(Counter(per_problem.values()).items())},
    }
