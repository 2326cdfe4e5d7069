"""The phrases that the verifier looks for, from the table `phrases.yaml`."""

from __future__ import annotations

import re

from ansatz.rewards.math_answer import languages
from ansatz.rewards.math_answer.words import read_table

_TABLE: dict[str, dict[str, str]] = read_table("phrases")
_SHARED = {
    "or": languages.OR,
    "and": languages.AND,
    "refused": languages.REFUSED,
    "retracted": languages.RETRACTED,
    "wrong": languages.WRONG,
    "unsure": languages.UNSURE,
    "example": languages.EXAMPLE,
    "misled": languages.MISLED,
    "conclusion": languages.CONCLUSION,
    "clause_ends": languages.CLAUSE_ENDS,
}


def phrases_of(section: str) -> dict[str, re.Pattern[str]]:
    """Compile the patterns of a section. A pattern can contain those before it, and lists of other languages."""
    texts = dict(_SHARED)
    for name, phrase in _TABLE[section].items():
        text = phrase.replace(" | ", "|").replace(" ", r"\s+")
        texts[name] = re.sub("«(\\w+)»", lambda match: texts[match[1]], text)
    return {name: re.compile(texts[name], re.IGNORECASE) for name in _TABLE[section]}
