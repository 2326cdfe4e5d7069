"""What a component takes: the type, default and meaning of each of its settings, from its signature and docstring."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, get_type_hints

from ansatz_verify.grade import verify
from ansatz_verify.options import Options

from ansatz.data.generated import Source as GeneratedSource
from ansatz.data.pairs import PairSettings
from ansatz.data.row_problems import RowSettings
from ansatz.registry import settings_of
from ansatz.rewards import sandbox
from ansatz.rewards.chat_client import ChatClient
from ansatz.train.optimizers import adamw
from tools.pages import setting_item

_FILES = ("csv", "hub", "json", "jsonl", "parquet")

ALSO_DESCRIBED: dict[str, tuple[Callable[..., Any], ...]] = {
    "arithmetic": (GeneratedSource,),
    "adamw_8bit": (adamw,),
    "adamw_offload": (adamw,),
    **dict.fromkeys(_FILES, (RowSettings,)),
    "code_tests": (sandbox.run,),
    "countdown": (GeneratedSource, verify),
    "judge": (ChatClient, verify),
    "math_answer": (verify, Options),
    "program": (sandbox.run,),
    "PolicyPairs": (PairSettings,),
}
"""Components that hand settings on: where the docstrings of these settings are."""


def setting_items(
    function: Callable[..., Any], *, without: Iterable[str] = (), prefix: str = "", level: int = 0
) -> list[str]:
    """Return one item of a page for each setting of a component, in the order of its signature."""
    parameters = {name: parameter for name, parameter in settings_of(function).items() if name not in without}
    meanings, hints = dict[str, str](), dict[str, Any]()
    for source in reversed([function, *ALSO_DESCRIBED.get(function.__name__, ())]):
        meanings |= split_docstring(source.__doc__, list(parameters))[1]
        hints |= _hints(source)
    return [
        setting_item(
            prefix + name,
            annotation=hints.get(name) if isinstance(parameter.annotation, str) else parameter.annotation,
            default={} if repr(parameter.default) == "<factory>" else parameter.default,
            meaning=meanings.get(name, ""),
            level=level,
        )
        for name, parameter in parameters.items()
    ]


def _hints(source: Callable[..., Any]) -> dict[str, Any]:
    """Return the resolved annotations; none where a name exists for type checkers only."""
    try:
        return get_type_hints(source, include_extras=True)
    except NameError:
        return {}


def split_docstring(docstring: str | None, names: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return (paragraphs about the whole, meaning of each named setting) of a docstring.

    A setting is described as "name: meaning", or "name, name: meaning" for several. A meaning ends where the next one
    begins or with its paragraph. Sentences about exceptions are for programmers and are left out, and so is "Return".
    """
    prose: list[str] = []
    meanings: dict[str, str] = {}
    choice = "|".join(map(re.escape, names)) or r"(?!)"
    label = re.compile(rf"(?:^|(?<=[.;:)] ))((?:{choice})(?:(?:, | and )(?:{choice}))*): ")
    for block in inspect.cleandoc(docstring or "").split("\n\n"):
        text = re.sub(r"; (?=[A-Z])", ". ", _FOR_PROGRAMMERS.sub("", " ".join(block.split())))
        before, *described = label.split(text)
        if before.strip():
            prose.append(_sentence(before))
        for heading, meaning in zip(described[::2], described[1::2], strict=True):
            for name in re.split(", | and ", heading):
                meanings[name] = _sentence(meaning)
    return prose, meanings


_FOR_PROGRAMMERS = re.compile(
    r"^(?:Return|Yield) "
    r"|(?:^|(?<=[.;] ))(?:[Rr]aises? |ConfigError|DataError|MissingExtraError).*?\.(?=\s|$)"
    r"|\(see `\w+`\) ?"
)


def _sentence(text: str) -> str:
    """Return the text with a capital letter, unless it begins with code or a formula, and with a full stop."""
    text = text.strip().rstrip(";,:")
    begins_a_word = re.match(r"[a-z-]+[ ,;](?!=)", text) is not None
    return (text[:1].upper() + text[1:] if begins_a_word else text) + ("" if text.endswith((".", ")")) else ".")
