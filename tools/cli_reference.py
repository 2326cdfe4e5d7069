"""docs/cli.md: every verb of the command `ansatz` with its arguments and options, from the commands themselves.

python -m tools.cli_reference
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from typer.core import TyperCommand

from ansatz.cli.recipe import RecipeCommand
from ansatz.cli.verbs import load_verb, verb_help
from tools.pages import item, paragraph, replace_page

INTRODUCTION = """\
# Commands

This page is generated from the commands by `make docs`; do not edit it.

`ansatz VERB --help` (or `-h`) prints the same. The verbs that take a recipe accept any of its
[keys](config.md) as a dotted option, such as `--train.lr 3e-4`. An error in a recipe, an option or
a file is one message and exit code 2. `ansatz --install-completion` lets the shell complete verbs,
options and recipe keys.
"""

_KINDS = {int: "N", float: "X", str: "TEXT", Path: "PATH"}


def render() -> str:
    """The whole page."""
    lines = [INTRODUCTION]
    for name, command in commands():
        lines += _command(name, command)
    return "\n".join(lines).rstrip() + "\n"


def commands() -> Iterator[tuple[str, TyperCommand]]:
    """("ansatz data peek", command) for every verb that does something, in alphabetical order."""
    for verb in verb_help():
        yield from _within(f"ansatz {verb}", load_verb(verb))


def _within(name: str, command: Any) -> Iterator[tuple[str, TyperCommand]]:
    if not hasattr(command, "commands"):
        yield name, command
        return
    for verb in sorted(command.commands):
        yield from _within(f"{name} {verb}", command.commands[verb])


def _command(name: str, command: TyperCommand) -> list[str]:
    """A heading, the usage, the help text, and one item for each argument and option."""
    arguments = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
    options = [parameter for parameter in command.params if parameter.param_type_name == "option"]
    usage = " ".join([name, *map(_argument, arguments), "[OPTIONS]"])
    if isinstance(command, RecipeCommand):
        usage += " [--RECIPE.KEY VALUE ...]"
    lines = [f"## {name}", "", "```", usage, "```", ""]
    for text in (command.help or "").strip().split("\n\n"):
        lines += [paragraph(text), ""]
    lines += [item(f"`{_name(argument)}`: {_help(argument)}") for argument in arguments]
    lines += [item(f"`{_spelling(option)}`: {_help(option)}{_default(option)}") for option in options]
    return [*lines, ""] if command.params else lines


def _name(argument: Any) -> str:
    return argument.metavar or argument.name.upper()


def _argument(argument: Any) -> str:
    name = _name(argument)
    return name if argument.required else f"[{name}]"


def _help(parameter: Any) -> str:
    text = " ".join((parameter.help or "").split())
    return text if not text or text.endswith(".") else f"{text}."


def _spelling(option: Any) -> str:
    """Such as `--out PATH`, or `--fresh` for a flag."""
    names = ", ".join([*option.opts, *option.secondary_opts])
    return names if option.is_flag else f"{names} {option.metavar or _kind(option.type_descriptor.annotation)}"


def _kind(annotation: Any) -> str:
    """The word for a value of this type in a usage line."""
    if annotation in _KINDS:
        return _KINDS[annotation]
    inner = [kind for kind in map(_kind, get_args(annotation)) if kind]
    return inner[0] if inner else ""


def _default(option: Any) -> str:
    if option.required:
        return " Required."
    if option.default in (None, "", False, (), []) or callable(option.default):
        return ""
    return f" Default `{option.default}`."


if __name__ == "__main__":
    replace_page("cli.md", render())
