"""Shared parts of the verbs that take a recipe: dotted overrides such as `--train.lr 3e-4`, in any position."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

from typer import Context, Option
from typer.core import TyperCommand

from ansatz.errors import ConfigError
from ansatz.registry import suggest
from ansatz.visible import say

Overlays = Annotated[list[Path] | None, Option(help="A YAML file whose keys override the recipe's; can be repeated.")]
TrustCode = Annotated[
    bool, Option("--trust-code", help="Run code that the recipe of somebody else's run or model names. Read it first.")
]
_ASSIGNMENT = re.compile(r"\+*([A-Za-z_][\w.-]*)=(\S*)")


class RecipeCommand(TyperCommand):
    """A verb that takes unknown options as settings of the recipe. They are in `context.obj`, by dotted name."""

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        options = {name for parameter in self.get_params(ctx) for name in (*parameter.opts, *parameter.secondary_opts)}
        try:
            rest, ctx.obj = split_overrides(args, verb_options=options)
        except ConfigError:
            if not ctx.resilient_parsing:
                raise
            rest = args  # a command line that is being completed, whose last setting has no value yet
        return super().parse_args(ctx, rest)

    def shell_complete(self, ctx: Context, incomplete: str) -> list[Any]:
        """Return the verb's own options, then the keys of a recipe."""
        item = type(super().shell_complete(ctx, "--")[0])  # a class of Click, or of Typer, depending on its version
        keys = [f"--{name}" for name in setting_names()]
        mine = super().shell_complete(ctx, incomplete)
        return [*mine, *(item(key) for key in keys if incomplete.startswith("-") and key.startswith(incomplete))]


def split_overrides(arguments: Iterable[str], *, verb_options: Iterable[str]) -> tuple[list[str], dict[str, str]]:
    """Split ["X", "--train.lr", "3e-4", "--name=x"] into (["X"], {"train.lr": "3e-4", "name": "x"}).

    verb_options: the options of the verb, which stay with the rest. Of a setting that is given twice, the last value
    counts, and a note says so. Raise ConfigError for a setting without a value.
    """
    rest: list[str] = []
    overrides: dict[str, str] = {}
    waiting, verb_options = iter(arguments), set(verb_options)
    for argument in waiting:
        option, has_value, value = argument.partition("=")
        key = option.removeprefix("--")
        if not option.startswith("--") or option in verb_options or not key:
            rest.append(argument)
            continue
        check_section(key, verb_options)
        if not has_value and (value := next(waiting, "--")).startswith("--"):
            raise ConfigError(f"--{key} has no value; write --{key} VALUE.")
        if key in overrides:
            note(f"--{key} is given twice; the last one counts: {value}")
        overrides[key] = value
    return rest, overrides


def check_section(key: str, verb_options: Iterable[str] = ()) -> None:
    """Raise ConfigError for an option that is neither one of the verb nor in a section of a recipe, with the nearest
    name."""
    from ansatz.config.recipe import default_class, suggest_keys

    sections = default_class().model_fields
    if key.partition(".")[0] in sections:
        return
    near = suggest_keys(key.rpartition(".")[2], setting_names(), option="--")
    near = near or suggest(f"--{key}", [*verb_options, *(f"--{name}" for name in sections)])
    raise ConfigError(f"--{key}: there is no such option, and a recipe has no key {key!r}.{near}")


def setting_names() -> list[str]:
    """Return the dotted names of the keys of a recipe, including the keys of its objective."""
    from ansatz.config.recipe import recipe_keys
    from ansatz.objectives.presets import KEYS

    return [*recipe_keys(), *(f"algorithm.{key}" for key in KEYS)]


def check_assignments(command: Any, words: Sequence[str]) -> None:
    """Raise ConfigError for a word such as `train.lr=3e-4`, as other programs take it, with the option to write
    instead."""
    parameters = [parameter for parameter in command.params if parameter.param_type_name == "option"]
    flags = {name for each in parameters if each.is_flag for name in (*each.opts, *each.secondary_opts)}
    options = {name for parameter in parameters for name in parameter.opts}
    for before, word in pairwise(["", *words]):
        match = _ASSIGNMENT.fullmatch(word)
        is_value = before.startswith("-") and "=" not in before and before not in flags
        if match is None or is_value or Path(word).exists():
            continue
        key, value = match.groups()
        if (option := f"--{key.replace('_', '-')}") not in options:
            if not isinstance(command, RecipeCommand):
                continue
            check_section(key)
            option = f"--{key}"
        setting = ", which takes no value" if option in flags else f" {value or 'VALUE'}"
        raise ConfigError(f"{word}: options begin with two hyphens. Write {option}{setting}.")


def note(sentence: str) -> None:
    """Tell the user about a change to a recipe, next to the output of the verb."""
    say(f"ansatz: {sentence}", file=sys.stderr, flush=True)
