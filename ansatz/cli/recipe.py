"""What the verbs that take a recipe share: dotted overrides such as `--train.lr 3e-4`, in any position."""

from __future__ import annotations

from collections.abc import Iterable

from typer import Context
from typer.core import TyperCommand

from ansatz.errors import ConfigError


class RecipeCommand(TyperCommand):
    """A verb that takes unknown options as settings of the recipe. They are in `context.obj`, by dotted name."""

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        options = {name for parameter in self.get_params(ctx) for name in (*parameter.opts, *parameter.secondary_opts)}
        rest, ctx.obj = split_overrides(args, verb_options=options)
        return super().parse_args(ctx, rest)


def split_overrides(arguments: Iterable[str], *, verb_options: Iterable[str]) -> tuple[list[str], dict[str, str]]:
    """["X", "--train.lr", "3e-4", "--name=x"] -> (["X"], {"train.lr": "3e-4", "name": "x"}).

    verb_options: the options of the verb, which stay with the rest. ConfigError for a setting without a value, or one
    that is given twice.
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
        if not has_value and (value := next(waiting, "--")).startswith("--"):
            raise ConfigError(f"--{key} has no value; write --{key} VALUE.")
        if key in overrides:
            raise ConfigError(f"--{key} is given twice. Remove one of them.")
        overrides[key] = value
    return rest, overrides
