"""`ansatz eval --rewards`: grade an evaluation with a recipe's rewards instead of the verifier's three modes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ansatz.config.load import parse_yaml
from ansatz.config.packaged import recipe_text
from ansatz.errors import ConfigError

if TYPE_CHECKING:
    from ansatz.evaluate.responses import ResponseGrader
    from ansatz.types import Problem

MakeGrader = Callable[[Any], "ResponseGrader"]


@contextmanager
def grading(
    rewards: str, *, suite: str, problems: Sequence[Problem]
) -> Iterator[tuple[dict[str, Any], MakeGrader | None]]:
    """Yield what an evaluation adds to its settings, and its grader, for use in the block. The grader is None for the
    verifier.

    rewards: a name, names separated by commas, or a YAML file with a recipe's section `rewards`. Empty: the reward of a
    suite that has no gold answers, otherwise the verifier. Raise ConfigError for unknown rewards and settings, and
    DataError if a reward cannot use the problems.
    """
    from ansatz.evaluate.responses import reward_grader
    from ansatz.evaluate.suites import REWARDS
    from ansatz.rewards.grader import build_grader, check_golds

    names = rewards or REWARDS.get(suite, "")
    if not names:
        yield {}, None
        return
    recipe = rewards_section(names)
    with build_grader(recipe) as grader:
        check_golds(recipe, problems)
        yield {"rewards": recipe}, lambda pool: reward_grader(grader)


def rewards_section(text: str) -> dict[str, dict[str, Any]]:
    """Return the section `rewards` that the option stands for: {name: settings}."""
    if not text.endswith((".yaml", ".yml")):
        return {name.strip(): {} for name in text.split(",")}
    path = Path(text)
    if not path.is_file():
        raise ConfigError(f"--rewards {text}: the file does not exist (current folder: {Path.cwd()}).")
    content = parse_yaml(recipe_text(path), where=text)
    section: Any = content.get("rewards", content) if isinstance(content, Mapping) else None
    if not isinstance(section, Mapping) or not all(isinstance(value, Mapping | None) for value in section.values()):
        raise ConfigError(f"--rewards {text}: expected a recipe's section, such as rewards: {{countdown: {{}}}}.")
    return {str(name): dict(settings or {}) for name, settings in cast("Mapping[str, Any]", section).items()}
