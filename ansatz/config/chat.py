"""The prompt template of a recipe: a name, or a name with worked problems, or the tokenizer's chat template with its
settings."""

from __future__ import annotations

import json
from typing import Any, Literal

from pydantic import Field

from ansatz.config.fields import Positive, Section

AUTO = "auto"
"""The template that fits the model: for a checkpoint the run's template, otherwise the tokenizer's chat template if
there is one, otherwise `boxed`."""


class _Shots(Section):
    shots: str | None = None
    """Few-shot prompt: a .jsonl file of worked problems (`question` and `solution`) that are shown before each
    question, in the same text. None of them may be evaluated, and none is shown before its own question."""
    num_shots: Positive = 4
    """Number of them, from the first of the file."""

    def __str__(self) -> str:
        """Return the template as it is written in a recipe and on the command line, without defaults."""
        settings = self.model_dump(exclude_defaults=True)
        name = settings.pop("name")
        parts = [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in settings.items()]
        return "{" + ", ".join([f"name: {name}", *parts]) + "}"


class FewShotTemplate(_Shots):
    """A prompt template with worked problems before each question."""

    name: str


class ChatTemplate(_Shots):
    """The tokenizer's chat template. The question is the user's turn, as with the plain name "chat"."""

    name: Literal["chat"]
    system: str | None = None
    """Text of the system's turn; null: none, so that the tokenizer's template may add its default."""
    user: str = "boxed"
    """The text of the user's turn: the name of a prompt template without turns of its own, such as boxed, none or
    program, or the path of a .txt file that contains {question}."""
    tools: list[dict[str, Any]] = Field(default_factory=list[dict[str, Any]])
    """JSON schemas of functions that a response can call. A row's field `tools` replaces them."""
    arguments: dict[str, Any] = Field(default_factory=dict[str, Any])
    """Arguments of the tokenizer's template, such as {enable_thinking: true}. A row's field `chat_template_kwargs` has
    precedence."""


Template = str | ChatTemplate | FewShotTemplate
