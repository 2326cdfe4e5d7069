"""Mathematics in a text that anybody wrote, set as MathML: what is within $...$, $$...$$, \\(...\\) or \\[...\\].

The converter escapes nothing and knows commands for links and styles. Its result is therefore read back, and used only
if it consists of elements and attributes of the list below; everything else is shown as it was written. So is
everything without the extra `ui`, which has the converter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from importlib.util import find_spec
from xml.etree import ElementTree

from markupsafe import Markup, escape

from ansatz.types import golds_of
from ansatz.visible import visible

MAX_FORMULAS = 200
"""Formulas of a text that are set."""
FORMULA = re.compile(
    r"\$\$(?P<a>[^$]{1,1000})\$\$|\\\[(?P<b>.{1,1000}?)\\\]|\\\((?P<c>.{1,1000}?)\\\)|"
    r"\$(?P<d>(?=[^\s$])[^$\n]{0,1000}[^\s$\\])\$(?!\d)",
    re.DOTALL,
)
"""Lengths are limited, so that a text full of openings is searched in linear time."""
_FORMULA_ALONE = re.compile(r"(?!.*[^{\s]\s+[A-Za-z]{2,}(?:\s|$)).*[\\^].*", re.DOTALL)
"""A formula without delimiters: with a command or a power, and without words."""
_LONGEST = 1000
"""Characters of an answer that is set."""
_NAMESPACE = "{http://www.w3.org/1998/Math/MathML}"
_ELEMENTS = (
    "math mrow mi mn mo mtext mspace mfrac msqrt mroot msub msup msubsup munder mover munderover mtable mtr mtd mstyle "
    "mpadded mphantom menclose mmultiscripts mprescripts none"
)
_ATTRIBUTES = (
    "display mathvariant stretchy fence form separator lspace rspace linethickness columnalign columnlines rowlines "
    "accent accentunder movablelimits largeop symmetric minsize maxsize displaystyle scriptlevel notation width height "
    "depth mathcolor rowspacing columnspacing"
)
_KNOWN = frozenset(_ELEMENTS.split()), frozenset(_ATTRIBUTES.split())


def has_mathematics(text: str) -> bool:
    """Return whether a text has something to set, and it can be set."""
    return find_spec("latex2mathml") is not None and FORMULA.search(text[:100_000]) is not None


def set_mathematics(text: str, limit: int = MAX_FORMULAS) -> Markup:
    """Return the text for a page, with its formulas set, the first `limit` of them."""
    return Markup("").join(_pieces(text, limit))


def set_answer(text: str) -> Markup:
    """Return an answer for a page. It is set also without delimiters, and its title is what was written."""
    if len(text) > _LONGEST:
        return escape(visible(text))
    alone = not FORMULA.search(text) and _FORMULA_ALONE.fullmatch(text)
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
        group = match.lastgroup or "a"
        yield _set(match[group], is_block=group in "ab") or escape(visible(match[0]))
        at = match.end()
    yield escape(visible(text[at:]))


@lru_cache(maxsize=4096)
def _set(latex: str, *, is_block: bool) -> Markup | None:
    """Return a formula as MathML; None if it cannot be set, or would be more than mathematics."""
    try:
        from latex2mathml.converter import convert  # here, as most pages need none

        drawn = convert(visible(latex), display="block" if is_block else "inline")
        root = ElementTree.fromstring(drawn)
    except Exception:  # not installed; or it fails in one of many ways, such as IndexError
        return None
    elements, attributes = _KNOWN
    for element in root.iter():
        name = element.tag.removeprefix(_NAMESPACE)
        if name == element.tag or name not in elements or not element.attrib.keys() <= attributes:
            return None
        element.tag = name
    both = ElementTree.Element("semantics")
    both.extend(list(root))
    ElementTree.SubElement(both, "annotation").text = visible(latex)  # not shown, but found by the box of a page
    root[:] = [both]
    return Markup(ElementTree.tostring(root, encoding="unicode"))
