"""The form of rewards and graders, and how a recipe's name finds a reward.

A reward is a function over the rollouts of ONE prompt, so it may compare them with one another:

    def accuracy(rollouts: Sequence[Rollout], *, correct: float = 1.0) -> Sequence[RewardResult]: ...

Its keyword-only parameters are its settings in the recipe, except those in `INJECTED`, which the grader fills in. It is
found by name: `ansatz/rewards/<name>.py` (or a package) holds a function `<name>`; nothing else needs to be edited. A
name with a colon refers to the user's own code: `path/to/file.py:function` or `package.module:function`, which can also
have one of the forms of `rewards.signatures` and return numbers, or None for a response that it does not apply to. A
built-in reward also accepts an empty group: it then
checks its settings and requirements, so that a wrong recipe fails before the run starts.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ansatz.errors import ConfigError
from ansatz.registry import bind, check_required, find_in_package, load_attribute, names_in_package, settings_of
from ansatz.rewards.signatures import over_rollouts
from ansatz.types import Rollout, ScoredRollout, Verdict

RewardFunction = Callable[..., Sequence["RewardResult | None"]]

VERDICTS = ("verdicts", "all_verdicts")
INJECTED = ("step", "pool", *VERDICTS)
"""Parameters that a reward can declare and the grader fills in. step: the step of RL (int, from 1; 0 outside training).
pool: processes for work that might not end, such as algebra. verdicts: one Verdict per rollout, from the first reward
of the recipe that gives it one. all_verdicts: by name, the verdicts of each reward that grades every rollout of the
prompt. A reward that takes verdicts runs after all others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardResult:
    """The result of one reward for one rollout. value: finite, unweighted. verdict: only if the reward grades answers.

    steps: only from rewards of reasoning steps: (characters of the response up to the end of a step, its reward), in
    rising order. `rewards.reasoning_steps.step_ends` gives the ends.
    left_to_others: the reward says nothing about this response, so another reward of the recipe must give a verdict.
    """

    value: float
    verdict: Verdict | None = None
    steps: tuple[tuple[int, float], ...] = ()
    left_to_others: bool = False


class Grader(Protocol):
    """Gives a training loop scores in the order of the input. `score` can be called from several threads at once,
    usefully from up to `threads` of them. `close` ends processes and can be called twice."""

    @property
    def threads(self) -> int: ...

    def score(self, rollouts: Sequence[Rollout], *, step: int = 0) -> list[ScoredRollout]: ...

    def close(self) -> None: ...

    def __enter__(self) -> Grader: ...

    def __exit__(self, *exc: object) -> None: ...


class RewardRegistry:
    """The rewards of this package by name."""

    def names(self) -> list[str]:
        """Return all modules of this package that hold a function with the name of the module."""
        return names_in_package("ansatz.rewards")

    def get(self, name: str) -> RewardFunction:
        """Return the reward of that name. Raise ConfigError, with a suggestion, if it is unknown."""
        if ":" in name:
            function = load_attribute(name, kind="reward")
            if not callable(function):
                raise ConfigError(f"reward {name!r} is {function!r}, not a function. Name a function of the file.")
            return over_rollouts(function, name=name, injected=INJECTED)
        return find_in_package("ansatz.rewards", name, kind="reward")

    def bind(self, name: str, settings: Mapping[str, Any]) -> RewardFunction:
        """Return the reward with a recipe's settings filled in. Raise ConfigError for unknown and missing settings."""
        function = self.get(name)
        for key in settings:
            if key in INJECTED:
                raise ConfigError(f"reward {name!r}: the grader fills in {key!r}. Remove it from the recipe.")
        check_required(function, (*settings, *INJECTED), what=f"reward {name!r}")
        return bind(function, settings, what=f"reward {name!r}")

    def injected(self, name: str) -> frozenset[str]:
        """Return the parameters in `INJECTED` that the reward declares."""
        return frozenset(INJECTED) & settings_of(self.get(name)).keys()

    def can_hang(self, name: str) -> bool:
        """Return whether the reward runs code or asks machines that are not ours: the user's own function, or a
        built-in one whose module says `CAN_HANG = True`. Raise ConfigError if it is unknown."""
        if ":" in name:
            return True
        return getattr(importlib.import_module(self.get(name).__module__), "CAN_HANG", False)

    def is_async(self, name: str) -> bool:
        """Return whether the reward is a function of the user's own that is declared with `async def`."""
        function: Any = load_attribute(name, kind="reward") if ":" in name else self.get(name)
        return any(map(inspect.iscoroutinefunction, (function, type(function).__call__)))

    def gives_steps(self, name: str) -> bool:
        """Return whether the reward can reward reasoning steps: its module, or the user's file, says `GIVES_STEPS =
        True`."""
        function = load_attribute(name, kind="reward") if ":" in name else self.get(name)
        # A user's file is a module that only sys.modules knows: it cannot be imported by its name.
        return getattr(sys.modules.get(function.__module__), "GIVES_STEPS", False)

    def gold_check(self, name: str) -> Callable[..., None] | None:
        """Return `check_golds(problems)` of a built-in reward: raise DataError for unreadable golds. None if it has
        none."""
        return None if ":" in name else getattr(importlib.import_module(f"ansatz.rewards.{name}"), "check_golds", None)


rewards = RewardRegistry()
