"""Texts of odd pieces for whatever reads foreign text: one marker, pairs, alternations and nests, of any length."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import islice

# fmt: off
PIECES = (
    ' ', '\n', '\t', '\r\n', '\n ', 'a', 'b ', 'A. ', '1', '12 ', '1,', '1.', '.5', 'e9', '-', '--', '+', '*', '/',
    '=', '==', '1+', '1=', '<', '>', '<<', '>>', '<<1=1>>', '(', ')', '()', '[', ']', '[]', '{', '}', '{}', "{'a':",
    "'", '"', "'''", '"""', "f'{a}", '\\', '\\\\', "\\\\'", '$', '$$', '\\(', '\\)', '\\[', '\\]', '\\boxed{',
    '\\boxed 3', '\\text{', '\\text ', '\\frac', '\\begin{a}', '\\end{a}', '####', 'the answer is ', '`', '```',
    '```python\n', '# ', '.', '. ', '!', '?', ':', ';', ',', ', ', '.)', '1) ', '(A)', '(B)', '(a)', '(b)', '[asy]',
    'prove ', 'and ', 'which of the following ', '<think>', '</think>', '<answer>', '</answer>', '<tool_call>',
    '</tool_call>', '<function=f>', '<parameter=a>', '</parameter>', '<|python_tag|>', 'f.call(', '[f(a=1),', 'f(',
    'a.', '[TOOL_CALLS]', '[ARGS]', '<\uff5ctool\u2581call\u2581begin\uff5c>', '{"name": "f"}', '<|', '|>',
    '<|im_end|>', '<s>', '</s>', '<code>', '</code>', '<calc>', '</calc>', 'CORRECT', 'not ', '**', '_', '~~', '|',
    '#', '%', '&', '@', '^', '~', '\x00', '\x1b[', '\u3002', '\uff01', '\u4e2d', '\u0301', '\u0327', '\u0301\u0327',
    '\ufdfa', '\U0001f600', '\ud800', '\u200b', '\u2028', '\xe9', 'Please reason step by step', 'Human: ', 'Step 1:',
    '\nStep 2', 'A) ', '\n\nA) ', 'http://', '![', '<img', '0x', '1j', '1_', 'None', '\\n', '\\u0041',
)
# fmt: on
Pattern = Callable[[int], str]


def patterns(number: int, seed: int = 0) -> Iterator[Pattern]:
    """Yield different patterns: each gives a text of about so many characters. First each piece alone."""
    yield from islice(_all(random.Random(seed)), number)


def _all(draw: random.Random) -> Iterator[Pattern]:
    alone = list(PIECES)
    draw.shuffle(alone)
    for index, piece in enumerate(alone):
        yield _repeated("", piece, "x" if index % 2 else "")
    while True:
        first, second, third = draw.choices(PIECES, k=3)
        end = draw.choice(("", "", "x", "\n", " x", third))
        yield draw.choice((_repeated, _nested, _halves))(draw.choice(("", "", "[", third)), first + second, end)
        yield _nested(first, second + third, end)
        yield _halves(first, second, end)


def _repeated(begin: str, piece: str, end: str) -> Pattern:
    return lambda size: begin + piece * (size // len(piece)) + end


def _nested(begin: str, piece: str, end: str) -> Pattern:
    """The pieces, and as many of their first character's counterparts after them."""
    closing = "".join({"(": ")", "[": "]", "{": "}", "<": ">"}.get(sign, sign) for sign in reversed(piece))
    return lambda size: begin + piece * (size // 2 // len(piece)) + closing * (size // 2 // len(piece)) + end


def _halves(first: str, second: str, end: str) -> Pattern:
    """One piece many times, then another."""
    first, second = first or "a", second or "a"
    return lambda size: first * (size // 2 // len(first)) + second * (size // 2 // len(second)) + end
