"""Finds neighbouring repeats of a regular expression that can match the same character, such as in `\\s*x?\\s*y`.

On a text that does not match in the end, such a pair tries every way to share a run of these characters between them:
the time grows with the square of its length. A possessive repeat (`\\s*+`) gives nothing back, so it may come first.
"""

from __future__ import annotations

import re
import re._constants as op
import re._parser as parser
from collections.abc import Iterable
from typing import Any

_SHORT = 20
"""Repeats up to this number are not counted: their square is small."""
_SAMPLE = [chr(point) for point in (*range(128), 0xE9, 0x3042, 0x4E00, 0x661, 0xFF5C, 0x2003)]
_CATEGORIES = {op.CATEGORY_DIGIT: r"\d", op.CATEGORY_SPACE: r"\s", op.CATEGORY_WORD: r"\w"}
_CATEGORIES |= {op.CATEGORY_NOT_DIGIT: r"\D", op.CATEGORY_NOT_SPACE: r"\S", op.CATEGORY_NOT_WORD: r"\W"}
_REPEATS = (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT)

Open = list[frozenset[str]]
"""The characters of each repeat that could still give back what it has taken."""


def has_neighbouring_repeats(pattern: str, flags: int = 0) -> bool:
    found = list[frozenset[str]]()
    _walk(parser.parse(pattern, flags & ~re.DEBUG), [], found)
    return bool(found)


def _walk(items: Iterable[Any], open_: Open, found: list[frozenset[str]]) -> Open:
    """Return the repeats that are open after the items. found: shared characters are added."""
    for kind, value in items:
        if kind in _REPEATS:
            least, most, body = value
            if most > _SHORT:
                shared = [_first_characters(body) & each for each in open_]
                found += filter(None, shared)
            after = _walk(body, [], found) if most > _SHORT else _walk(body, open_, found)
            if most > _SHORT and (body[0][0] is op.SUBPATTERN or len(body) > 1):
                _walk(body, after, found)  # each time after the one before it
            if kind is op.POSSESSIVE_REPEAT:
                after = []
            elif most > max(least, _SHORT):
                after.append(_characters(body))
            open_ = after + (open_ if least == 0 else [])
        elif kind is op.SUBPATTERN:
            open_ = _walk(value[-1], open_, found)
        elif kind is op.ATOMIC_GROUP:
            _walk(value, open_, found)
            open_ = []
        elif kind is op.BRANCH:
            open_ = [each for branch in value[1] for each in _walk(branch, open_, found)]
        elif kind not in (op.AT, op.ASSERT, op.ASSERT_NOT):
            open_ = []
    return open_


def _first_characters(items: Iterable[Any]) -> frozenset[str]:
    """Return the sample characters with which the items can begin."""
    first = frozenset[str]()
    for kind, value in items:
        if kind is op.SUBPATTERN:
            first |= _first_characters(value[-1])
        elif kind in _REPEATS:
            first |= _first_characters(value[2])
        else:
            first |= _of_item(kind, value)
        if kind not in (op.AT, op.ASSERT, op.ASSERT_NOT) and (kind not in _REPEATS or value[0]):
            break
    return first


def _characters(items: Iterable[Any]) -> frozenset[str]:
    """Return the sample characters that any of the items matches."""
    return frozenset().union(*(_of_item(kind, value) for kind, value in items))


def _of_item(kind: Any, value: Any) -> frozenset[str]:
    if kind is op.LITERAL:
        return frozenset(chr(value))
    if kind is op.NOT_LITERAL:
        return frozenset(_SAMPLE) - {chr(value)}
    if kind is op.ANY:
        return frozenset(_SAMPLE)
    if kind is op.IN:
        members = frozenset(char for char in _SAMPLE if any(_is_in(char, *part) for part in value))
        members |= {chr(part) for name, part in value if name is op.LITERAL}
        return frozenset(_SAMPLE) - members if value[0][0] is op.NEGATE else members
    if kind in _REPEATS:
        return _characters(value[2])
    if kind is op.SUBPATTERN:
        return _characters(value[-1])
    if kind is op.ATOMIC_GROUP:
        return _characters(value)
    if kind is op.BRANCH:
        return frozenset().union(*map(_characters, value[1]))
    return frozenset()


def _is_in(char: str, kind: Any, value: Any) -> bool:
    if kind is op.RANGE:
        return value[0] <= ord(char) <= value[1]
    if kind is op.CATEGORY:
        return re.match(_CATEGORIES[value], char) is not None
    return False
