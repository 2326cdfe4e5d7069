"""Groups of command-line options: a command takes them as one parameter, and the user as single options.

    @takes_fields()
    def peek(files: Files, *, fields: RowFields) -> None: ...

gives `peek` the options --question-key, --answer-key, --answer-from and --id-key.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any, get_type_hints

import typer

Command = Callable[..., None]
QuestionKey = Annotated[
    str | None, typer.Option(help="Field of the question; dots select nested fields. Recognised by default.")
]
AnswerFrom = Annotated[
    str, typer.Option(help="Form of the answer field: auto, field, #### (the text after it) or boxed (the last box).")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFields:
    """The names of a problem file's fields, by their role (see `data.row_problems.RowSettings`)."""

    question_key: QuestionKey = None
    answer_key: Annotated[str | None, typer.Option(help="Field of the answer. Recognised by default.")] = None
    answer_from: AnswerFrom = "auto"
    id_key: Annotated[str | None, typer.Option(help="Field of the id; file and line by default.")] = None


def takes_fields(*, without: Collection[str] = ()) -> Callable[[Command], Command]:
    """Replace a command's parameter `fields: RowFields` by the options of the group, except those in `without`."""
    hints, defaults = get_type_hints(RowFields, include_extras=True), asdict(RowFields())
    options = {name: (hints[name], default) for name, default in defaults.items() if name not in without}
    return lambda command: with_options(command, "fields", options, lambda values, _: RowFields(**values))


def with_options(
    command: Command,
    name: str,
    options: Mapping[str, tuple[Any, Any]],
    build: Callable[[dict[str, Any], typer.Context], Any],
) -> Command:
    """Return the command with the options instead of its parameter `name`. The parameter gets the value that `build`
    makes of them.

    options: annotation and default by name. build: takes their values by name, and the context, which the command gets
    too if it has a parameter `command_line`.
    """
    before = inspect.signature(command, eval_str=True).parameters

    @functools.wraps(command)
    def with_group(*, command_line: typer.Context, **arguments: Any) -> None:
        values = {option: arguments.pop(option) for option in options}
        if "command_line" in before:
            arguments["command_line"] = command_line
        command(**arguments, **{name: build(values, command_line)})

    keyword = inspect.Parameter.KEYWORD_ONLY
    group = [
        inspect.Parameter(option, keyword, default=value, annotation=kind) for option, (kind, value) in options.items()
    ]
    parameters = [inspect.Parameter("command_line", keyword, annotation=typer.Context)]
    for parameter in before.values():
        if parameter.name != "command_line":
            parameters += group if parameter.name == name else [parameter.replace(kind=keyword)]
    with_group.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportAttributeAccessIssue]
    with_group.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return with_group
