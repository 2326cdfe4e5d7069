"""Programs in responses: fenced code blocks."""

from __future__ import annotations

_FENCE = "```"
_LANGUAGES = ("", "python", "py", "python3")


def last_program(response: str) -> str | None:
    """Return the last closed Python block after the last closed thought; None if there is none.

    A block without a language counts as Python. After a thought that is never closed there is no program. Takes time
    linear in the length.
    """
    text = response.rpartition("</think>")[2]
    if "<think>" in text:
        return None
    pieces = text.split(_FENCE)  # outside, inside, outside, ..., outside
    for inside in reversed(pieces[1:-1:2]):
        language, newline, source = inside.partition("\n")
        if newline and language.strip().lower() in _LANGUAGES:
            return source
    return None
