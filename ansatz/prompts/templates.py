"""The prompt templates, which are in templates.yaml. {question} marks the place of the question.

A recipe can also name "chat" (the tokenizer's chat template around the `boxed` text) or a user's .txt file.
"""

from __future__ import annotations

from pathlib import Path

from ansatz.errors import ConfigError
from ansatz.files import read_yaml
from ansatz.registry import describe_missing_file, suggest

QUESTION = "{question}"
CHAT = "chat"

TEMPLATES: dict[str, str] = read_yaml(Path(__file__).with_suffix(".yaml"))
STEP_BY_STEP = TEMPLATES["boxed"].removeprefix(f"{QUESTION}\n")


def template_text(name: str) -> str:
    """Return the text of a template, which contains {question} once. `name` is a key of TEMPLATES or the path of a .txt
    file.

    Raise ConfigError for an unknown name, a missing file, or a file that does not contain {question} exactly once.
    `render` handles "chat", which has no text of its own.
    """
    if name in TEMPLATES:
        return TEMPLATES[name]
    if not name.endswith(".txt"):
        raise ConfigError(
            f"prompt template {name!r} is unknown.{suggest(name, [*TEMPLATES, CHAT])} "
            f"A template can also be the path of a .txt file that contains {QUESTION}."
        )
    path = Path(name)
    if not path.is_file():
        raise ConfigError(
            f"prompt template {name!r} {describe_missing_file(path)}. Expected a text file that contains {QUESTION}."
        )
    text = path.read_text(encoding="utf-8")
    if text.count(QUESTION) != 1:
        raise ConfigError(
            f"prompt template {name!r} contains {QUESTION} {text.count(QUESTION)} times, expected once. "
            "It marks the place of the problem's question."
        )
    return text
