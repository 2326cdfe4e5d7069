"""What the verbs that take a recipe share: dotted overrides such as `--train.lr 3e-4`, wherever they stand."""

from __future__ import annotations

from collections.abc import Iterable

from typer import Context
from typer.core import TyperCommand

from ansatz.errors import ConfigError


class RecipeCommand(TyperCommand):
    """A verb whose unknown options are settings of the recipe; it finds them in `context.obj`, by dotted name."""

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        own = {name for parameter in self.get_params(ctx) for name in (*parameter.opts, *parameter.secondary_opts)}
        rest, ctx.obj = split_overrides(args, own=own)
        return super().parse_args(ctx, rest)


def split_overrides(arguments: Iterable[str], *, own: Iterable[str]) -> tuple[list[str], dict[str, str]]:
    """["X", "--train.lr", "3e-4", "--name=x"] -> (["X"], {"train.lr": "3e-4", "name": "x"}).

    own: the verb's own options, which stay with the rest. ConfigError for a setting without a value or given twice.
    """
    rest: list[str] = []
    overrides: dict[str, str] = {}
    waiting, own = iter(arguments), set(own)
    for argument in waiting:
        option, has_value, value = argument.partition("=")
        key = option.removeprefix("--")
        if not option.startswith("--") or option in own or not key:
            rest.append(argument)
            continue
        if not has_value and (value := next(waiting, "--")).startswith("--"):
            raise ConfigError(f"--{key} lacks its value; give --{key} VALUE.")
        if key in overrides:
            raise ConfigError(f"--{key} is given twice. Keep one.")
        overrides[key] = value
    return rest, overrides
