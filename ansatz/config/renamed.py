"""Names that recipes and command lines used before, with the names that replace them.

An old name is refused, never translated: a recipe then reads the same for everybody. Add a row whenever a key or an
option is renamed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from ansatz.errors import ConfigError

RECIPE_KEYS: dict[str, str] = {
    "algorithm.like": "algorithm.defaults_of",
    "data.curriculum.refill": "data.curriculum.dynamic_sampling",
    "data.curriculum.rest_after": "data.curriculum.pause_after_failed",
    "data.curriculum.rest_steps": "data.curriculum.pause_steps",
    "data.curriculum.retire_after": "data.curriculum.drop_after_solved",
    "evaluate.samples": "evaluate.samples_per_prompt",
    "model.shrink": "model.toy",
    "rejection.max_tokens": "rejection.drop_longer_than",
    "rejection.samples": "rejection.samples_per_prompt",
    "rollout.tokens_per_step": "rollout.partial_rollout_tokens",
    "train.critic_lr": "train.critic.lr",
    "train.max_misalignment": "train.max_logprob_gap",
    "train.reference_every": "train.reference_update_interval",
    "train.tokens_per_slice": "train.tokens_per_microbatch",
}
"""Dotted recipe keys: old -> new."""

OPTIONS: dict[tuple[str, ...], dict[str, str]] = {
    ("data", "decontaminate"): {"--min-share": "--min-frac"},
    ("data", "difficulty"): {"--k": "--samples-per-prompt", "--max-tokens": "--max-response-tokens"},
    ("data", "filter"): {
        "--guess-template": "--template",
        "--guesses": "--samples-per-prompt",
        "--max-tokens": "--max-response-tokens",
    },
    ("ask",): {"--k": "--samples-per-prompt"},
    ("data", "select"): {"--max-tokens": "--drop-longer-than"},
    ("data", "split"): {"--share": "--heldout-frac"},
    ("compare",): {"--most": "--num-changed"},
    ("eval",): {
        "--budgets": "--thinking-budgets",
        "--k": "--samples-per-prompt",
        "--max-tokens": "--max-response-tokens",
    },
    ("sample",): {"--k": "--samples-per-prompt", "--max-tokens": "--max-response-tokens"},
}
"""Command-line options by verb: old -> new."""


def check_recipe(data: Mapping[str, Any]) -> None:
    """ConfigError for the first key in a recipe's mapping that has a new name."""
    for old, new in RECIPE_KEYS.items():
        *parents, key = old.split(".")
        section: Any = data
        for parent in parents:
            section = cast(dict[str, Any], section).get(parent) if isinstance(section, dict) else None
        if isinstance(section, Mapping) and key in section:
            raise ConfigError(f"{old} is now called {new}. Rename the key; its meaning has not changed.")


def check_options(arguments: Sequence[str]) -> None:
    """ConfigError for an option of the command line that has a new name. arguments: verb(s) first, then options."""
    for verbs, options in OPTIONS.items():
        if tuple(arguments[: len(verbs)]) != verbs:
            continue
        for argument in arguments[len(verbs) :]:
            option = argument.partition("=")[0]
            if option in options:
                raise ConfigError(f"{option} is now called {options[option]}. Use that name; it means the same.")
