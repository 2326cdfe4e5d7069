"""Mathematics in a text that anybody wrote, set as MathML: the parts in $...$, $$...$$, \\(...\\) or \\[...\\].

The converter escapes nothing and knows commands for links and styles. Its result is therefore read back, and used only
if it consists of elements and attributes of the list below, which hide nothing: no colour, no phantom, no size or space
that moves a part out of sight or over another. Everything else is shown as it was written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from xml.etree import ElementTree

from markupsafe import Markup, escape

from ansatz.types import golds_of
from ansatz.visible import visible

MAX_FORMULAS = 200
"""Formulas of a text that are set."""
FORMULA = re.compile(
    r"\$\$(?P<a>[^$]{1,1000})\$\$"
    r"|(?<!\\)\\\[(?P<b>(?:(?!(?<!\\)\\\[).){1,1000}?)\\\]|(?<!\\)\\\((?P<c>(?:(?!(?<!\\)\\\().){1,1000}?)\\\)|"
    r"\$(?P<d>(?=[^\s$])[^$\n]{0,1000}[^\s$\\])\$(?!\d)",
    re.DOTALL,
)
"""Lengths are limited, and no opening is in a formula, so that a text full of openings is searched in linear time."""
_COMMAND_OR_POWER = re.compile(r"[\\^]")
_WORD = re.compile(r"(?<=[^{\s])\s++[A-Za-z]{2,}+(?:\s|$)")
_LONGEST = 1000
"""Characters of an answer that is set."""
_NAMESPACE = "{http://www.w3.org/1998/Math/MathML}"
_ELEMENTS = (
    "math mrow mi mn mo mtext mspace mfrac msqrt mroot msub msup msubsup munder mover munderover mtable mtr mtd mstyle "
    "mpadded menclose mmultiscripts mprescripts none"
)
_ATTRIBUTES = (
    "display mathvariant stretchy fence form separator lspace rspace linethickness columnalign columnlines rowlines "
    "accent accentunder movablelimits largeop symmetric minsize maxsize displaystyle scriptlevel notation width "
    "rowspacing columnspacing"
)
_LENGTHS = ("width", "lspace", "rspace", "linethickness", "minsize", "maxsize", "rowspacing", "columnspacing")
_LENGTH = re.compile(r"(\d{0,5}(?:\.\d{0,5})?)(|em|ex|px|pt|mu|mm|cm|in)|(?:very){0,2}(?:thin|medium|thick)mathspace")
_EMS = {"": 1, "em": 1, "ex": 0.5, "px": 0.06, "pt": 0.09, "mu": 0.06, "mm": 0.25, "cm": 2.5, "in": 6.5}
_MOST_EMS = 12
"""The largest length, as wide as 12 letters M."""
_SHRINKING = ("msub", "msup", "msubsup", "munder", "mover", "munderover", "mmultiscripts", "mfrac")
_MOST_SHRINKING = 10
"""Levels of scripts and fractions. Each of them can be smaller than the one around it."""
_KNOWN = frozenset(_ELEMENTS.split()), frozenset(_ATTRIBUTES.split())


def has_mathematics(text: str) -> bool:
    """Return whether a formula of the text can be set."""
    return any(map(_set_match, islice(FORMULA.finditer(text[:100_000]), MAX_FORMULAS)))


def set_mathematics(text: str, limit: int = MAX_FORMULAS) -> Markup:
    """Return the text for a page, with its formulas set, the first `limit` of them."""
    return Markup("").join(_pieces(text, limit))


def set_answer(text: str) -> Markup:
    """Return an answer for a page. It is set also without delimiters, and its title is the original text."""
    if len(text) > _LONGEST:
        return escape(visible(text))
    alone = _COMMAND_OR_POWER.search(text) and not _WORD.search(text) and not FORMULA.search(text)
    shown = (_set(text, is_block=False) if alone else None) or set_mathematics(text)
    return Markup('<span title="{}">{}</span>').format(visible(text), shown) if "<math" in shown else shown


def set_golds(answer: str) -> Markup:
    """Return the gold answers for a page: "1/2 or 0.5"."""
    return Markup(" or ").join(map(set_answer, golds_of(answer)))


def cut_before_formula(text: str, end: int) -> int:
    """Return `end`, or where the formula begins that would be cut there."""
    return next((at.start() for at in FORMULA.finditer(text) if at.start() < end < at.end()), end)


def _pieces(text: str, limit: int) -> Iterator[Markup]:
    at = 0
    for number, match in enumerate(FORMULA.finditer(text)):
        if number == limit:
            break
        yield escape(visible(text[at : match.start()]))
        yield _set_match(match) or escape(visible(match[0]))
        at = match.end()
    yield escape(visible(text[at:]))


def _set_match(match: re.Match[str]) -> Markup | None:
    group = match.lastgroup or "a"
    return _set(match[group], is_block=group in "ab")


@lru_cache(maxsize=4096)
def _set(latex: str, *, is_block: bool) -> Markup | None:
    """Return a formula as MathML; None if it cannot be set, or would be more than mathematics."""
    try:
        from latex2mathml.converter import convert  # here, as most pages need none

        drawn = convert(visible(latex), display="block" if is_block else "inline")
        root = ElementTree.fromstring(drawn)
    except Exception:  # it fails in one of many ways, such as IndexError
        return None
    if not _shows_everything(root, 0):
        return None
    both = ElementTree.Element("semantics")
    both.extend(list(root))
    ElementTree.SubElement(both, "annotation").text = visible(latex)  # not shown, but found by the box of a page
    root[:] = [both]
    return Markup(ElementTree.tostring(root, encoding="unicode"))


def _shows_everything(element: ElementTree.Element, level: int) -> bool:
    """Tell whether an element is of the list with all that is in it, and hides nothing. Take the name space out of its
    tag, and make negative spaces, such as the one of `\\!`, zero. level: of scripts and fractions around it."""
    name, (elements, attributes) = element.tag.removeprefix(_NAMESPACE), _KNOWN
    if name == element.tag or name not in elements or not element.attrib.keys() <= attributes:
        return False
    element.tag = name
    if name == "mspace" and element.get("width", "").startswith(("-", "negative")):
        element.set("width", "0em")
    lengths = [each for key in _LENGTHS for each in element.get(key, "").split()]
    level += name in _SHRINKING
    return (
        (name != "mpadded" or not element.attrib)  # it could cut or move what is in it
        and all(map(_is_small, lengths))
        and element.get("scriptlevel", "0") in ("0", "1", "2")
        and level <= _MOST_SHRINKING
        and all(_shows_everything(inner, level) for inner in element)
    )


def _is_small(length: str) -> bool:
    match = _LENGTH.fullmatch(length)
    return match is not None and float((match[1] or "0").rstrip(".") or 0) * _EMS[match[2] or ""] <= _MOST_EMS
