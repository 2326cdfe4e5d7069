"""Markdown of the generated pages: wrapped paragraphs, items of a list, and types in words."""

from __future__ import annotations

import inspect
import re
import textwrap
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel
from pydantic.fields import FieldInfo

WIDTH = 100
DOCS = Path(__file__).parents[1] / "docs"

_PLAIN = {int: "integer", float: "number", bool: "true or false", str: "text", type(None): "null"}
_BOUNDS = ((Gt, "gt", "more than"), (Ge, "ge", "at least"), (Lt, "lt", "less than"), (Le, "le", "at most"))


def paragraph(text: str) -> str:
    """The text on lines of at most `WIDTH` characters; a code span is never split."""
    return _wrapped(" ".join(text.split()), first="", rest="")


def item(text: str, *, level: int = 0) -> str:
    """The text as an item of a list; level: in how many other items it stands."""
    margin = "  " * level
    return _wrapped(" ".join(text.split()), first=f"{margin}- ", rest=f"{margin}  ")


def _wrapped(text: str, *, first: str, rest: str) -> str:
    joined = re.sub(r"`[^`]*`", lambda span: span[0].replace(" ", "\0"), text)
    lines = textwrap.wrap(
        joined,
        WIDTH,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(lines).replace("\0", " ")


def setting_item(name: str, *, annotation: Any, default: Any, meaning: str, level: int = 0) -> str:
    """One setting: its name, type and range, default and meaning. default: `inspect.Parameter.empty` if required."""
    facts = [type_in_words(annotation)]
    facts.append("required" if default is inspect.Parameter.empty else f"default `{value_in_yaml(default)}`")
    return item(f"`{name}`: {', '.join(fact for fact in facts if fact)}. {meaning}", level=level)


def type_in_words(annotation: Any) -> str:
    """The type and range that a recipe's value must have; empty where anything is allowed."""
    if annotation in _PLAIN:
        return _PLAIN[annotation]
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return f"{type_in_words(arguments[0])} {' and '.join(_ranges(arguments))}".strip()
    if origin is Literal:
        return "one of " + ", ".join(f"`{value_in_yaml(choice)}`" for choice in arguments)
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(map(type_in_words, arguments)))
    kind = origin or annotation
    if isinstance(kind, type) and issubclass(kind, (Mapping, BaseModel)):
        return "mapping"
    if kind is tuple and arguments and arguments[-1] is not Ellipsis:
        return f"list of {len(arguments)} values, each: {type_in_words(arguments[0])}"
    if isinstance(kind, type) and issubclass(kind, Sequence):
        return "list"
    return ""


def _ranges(arguments: Sequence[Any]) -> list[str]:
    """Bounds in words, out of the arguments of an Annotated type: annotated types, and pydantic fields with these."""
    whole = arguments[0] is int
    found: list[str] = []
    for entry in arguments[1:]:
        for bound in entry.metadata if isinstance(entry, FieldInfo) else [entry]:
            if isinstance(bound, Gt) and whole:
                bound = Ge(bound.gt + 1)  # pyright: ignore[reportOperatorIssue]
            found += [f"{words} {getattr(bound, key)}" for kind, key, words in _BOUNDS if type(bound) is kind]
    return found


def value_in_yaml(value: Any) -> str:
    """A default as it would be written in a recipe."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"' if not value or value != value.strip() else value
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {value_in_yaml(entry)}" for key, entry in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(value_in_yaml, value)) + "]"
    return str(value)


def heading_anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and the site make them."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def replace_part(page: Path, begin: str, part: str, *, end: str = "<!-- end -->") -> str:
    """Return the text of a page with another part between its marks `begin` and `end`."""
    before, rest = page.read_text(encoding="utf-8").split(begin)
    _, after = rest.split(end, 1)
    return f"{before}{begin}\n\n{part}\n{end}{after}"


def replace_page(name: str, text: str) -> None:
    """Write docs/NAME and print its length."""
    (DOCS / name).write_text(text, encoding="utf-8")
    print(f"docs/{name}: {len(text.splitlines())} lines")
