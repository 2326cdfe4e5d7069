"""Applications that the parser does not read, as names: events `P(A \\cap B)`, transforms `\\mathcal{L}\\{f\\}`.

Both sides of a pair are rewritten together, so that the same application has the same name on both.
"""

from __future__ import annotations

import re

from ansatz.rewards.math_answer.words import NOTATION

_EVENT, _OPERATION, _TRANSFORM, _SPACES, _COMPLEMENT = (re.compile(pattern) for pattern in NOTATION["opaque"])
_BARS = {"\\vert": "|", "\\mid": "|", "∩": "\\cap", "∪": "\\cup"}
MARKS = ("\\cap", "\\cup", "\\mid", "\\mathcal", "|", "^c", "'", "\\overline", "∩", "∪")


def with_names(gold: str, answer: str) -> tuple[str, str] | None:
    """Return a gold and an answer with a name for each application; None if neither has one."""
    names: dict[str, str] = {}

    def name(spelling: str) -> str:
        return f"\\Xi_{{{names.setdefault(spelling, str(len(names) + 1))}}} "

    def event(match: re.Match[str]) -> str:
        said = match[0]
        if match[1] in ("P", "Pr") and (outside := _COMPLEMENT.fullmatch(_canonical(match[2]))):
            inner = (outside[1] or outside[2] or outside[3]).strip("()") + (outside[4] or "")
            inner = re.sub(r"(\\[a-z]+)", r"\1 ", inner)
            said = f"(1-{_EVENT.sub(event, f'{match[1]}({inner})')})"  # P(A^c | B) is 1 - P(A | B)
        elif _OPERATION.search(match[2]):
            said = name(f"{match[1]}({_canonical(match[2])})")
        return said

    def transform(match: re.Match[str]) -> str:
        return name(f"{match[1]}{_canonical(match[2] or '')}[{_canonical(match[3])}]")

    renamed = [_TRANSFORM.sub(transform, _EVENT.sub(event, text)) for text in (gold, answer)]
    return (renamed[0], renamed[1]) if renamed != [gold, answer] else None


def _canonical(argument: str) -> str:
    """Return an argument without spaces, and with the parts of one intersection or union in order."""
    for spelling, mark in _BARS.items():
        argument = argument.replace(spelling, mark)
    argument = _SPACES.sub("", argument)
    for mark in ("\\cap", "\\cup"):
        if mark in argument and not any(other in argument for other in ("|", "(", "\\cap", "\\cup") if other != mark):
            return mark.join(sorted(argument.split(mark)))
    return argument
