"""The prose of a response: what is left when code, mathematics and tags are taken out."""

from __future__ import annotations

import re

# Each alternative is anchored on its opening and stops at the first closing, else at a bound: linear on hostile text.
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
    """The text without fenced and inline code, formulas, boxes, LaTeX commands and tags; each leaves a blank."""
    for pattern in (_CODE, _MATHEMATICS, _TAG, _COMMAND):
        text = pattern.sub(" ", text)
    return text


def sentences(text: str) -> list[str]:
    """The text cut at sentence ends and line ends; no empty ones."""
    return [piece.strip() for piece in _SENTENCE.split(text) if piece.strip()]


def words(text: str) -> list[str]:
    """Words of two letters or more (a single one is a variable as likely as not); where writing has no blanks between
    words, as in Chinese, each character."""
    return _UNIT.findall(text)
