"""The verbs of the command: every file in this package that holds a function with the file's name. If the file also
holds an `app`, the verb has subcommands.

A verb is imported when it is used. `--version`, `--help`, a mistyped verb and the completion of verbs take names and
help texts from the source of the files: the imports of all verbs together, torch among them, take seconds.
"""

from __future__ import annotations

import ast
import importlib
import inspect
from functools import cache
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from ansatz.cli.recipe import RecipeCommand, check_assignments


class Verbs(TyperGroup):
    """The group of all verbs. Until a verb is used, its command has a name and a help text, and nothing else."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = {name: TyperCommand(name, help=text) for name, text in verb_help().items()}

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:
        """Read `help VERB` as `VERB --help`."""
        return super().parse_args(ctx, [*args[1:], "--help"] if args[:1] == ["help"] else args)

    def resolve_command(self, ctx: typer.Context, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        if name is None or command is None:  # while a command line is completed
            return name, command, rest
        loaded = load_verb(name)
        inner = loaded.commands.get(rest[0]) if rest and isinstance(loaded, TyperGroup) else loaded
        if inner is not None and not ctx.resilient_parsing:
            check_assignments(inner, rest)
        return name, loaded, rest


@cache
def verb_help() -> dict[str, str]:
    """Return the docstring of every verb, by name in alphabetical order."""
    return {
        path.stem: ast.get_docstring(statement) or ""
        for path in sorted(Path(__file__).parent.glob("*.py"))
        for statement in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(statement, ast.FunctionDef) and statement.name == path.stem != "main"
    }


def load_verb(name: str) -> Any:
    """Return the command of a verb, or the group of its subcommands, from its file."""
    module = importlib.import_module(f"ansatz.cli.{name}")
    app = getattr(module, "app", None)
    if not isinstance(app, typer.Typer):
        app, verb = typer.Typer(add_completion=False), getattr(module, name)
        takes_settings = "context" in inspect.signature(verb).parameters
        app.command(name, cls=RecipeCommand if takes_settings else None)(verb)
    return get_command(app)
