"""The prose of a response: the text without code, mathematics and tags."""

from __future__ import annotations

import re

# Each alternative starts at its opening and stops at the first closing or at a bound: linear time on hostile text.
_CODE = re.compile(r"```.{0,20000}?(?:```|\Z)|`[^`\n]{1,500}`", re.DOTALL)
_MATHEMATICS = re.compile(
    r"\\begin\{([a-z]{1,20}\*?)\}.{0,2000}?\\end\{\1\}"
    r"|\$\$.{0,2000}?\$\$|\\\[.{0,2000}?\\\]|\\\(.{0,1000}?\\\)"
    r"|(?<!\\)\$(?=\S)[^$\n]{0,500}?(?<=[^\s\\])\$(?!\d)"  # `$5 and $6` is money
    r"|\\(?:boxed|fbox)\{[^{}]{0,500}(?:\{[^{}]{0,200}\}[^{}]{0,200}){0,10}\}",
    re.DOTALL,
)
_TAG = re.compile(r"</?[A-Za-z_]{1,20}>|<\|[^|<>]{1,40}\|>")
_COMMAND = re.compile(r"\\[A-Za-z]{1,30}")
_SENTENCE = re.compile(r"[.!?;:\n。！？；：]+")
_WORD = re.compile(r"[^\W\d_]+")
_UNSPACED = (
    r"\u3040-\u30ff"  # hiragana, katakana
    r"\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # Chinese characters
    r"\u0e00-\u0eff"  # Thai, Lao
    r"\u1780-\u17ff\u1000-\u109f"  # Khmer, Burmese
)
_UNIT = re.compile(rf"[{_UNSPACED}]|[^\W\d_{_UNSPACED}]{{2,}}")


def prose_only(text: str) -> str:
    """Return the text without fenced and inline code, formulas, boxes, LaTeX commands and tags; each becomes a
    space."""
    for pattern in (_CODE, _MATHEMATICS, _TAG, _COMMAND):
        text = pattern.sub(" ", text)
    return text


def sentences(text: str) -> list[str]:
    """Return the text, split at the ends of sentences and lines, without empty parts."""
    return [piece.strip() for piece in _SENTENCE.split(text) if piece.strip()]


def words(text: str) -> list[str]:
    """Return the words of at least two letters (a single letter is often a variable). In scripts without spaces between
    words, such as Chinese, each character is a word."""
    return _UNIT.findall(text)
