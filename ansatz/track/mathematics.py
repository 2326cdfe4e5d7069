"""Mathematics in a text that anybody wrote, set as MathML: what is within $...$, $$...$$, \\(...\\) or \\[...\\].

The converter escapes nothing and knows commands for links and styles. Its result is therefore read back, and used only
if it consists of elements and attributes of the list below; everything else is shown as it was written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree import ElementTree

from markupsafe import Markup, escape

from ansatz.visible import visible

MAX_FORMULAS = 200
"""Formulas of a text that are set."""
_FORMULA = re.compile(
    r"\$\$(?P<a>[^$]{1,1000})\$\$|\\\[(?P<b>.{1,1000}?)\\\]|\\\((?P<c>.{1,1000}?)\\\)|"
    r"\$(?P<d>(?=[^\s$])[^$\n]{0,1000}[^\s$\\])\$(?!\d)",
    re.DOTALL,
)
"""Lengths are limited, so that a text full of openings is searched in linear time."""
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
    """Return whether a text has something to set."""
    return _FORMULA.search(text[:100_000]) is not None


def set_mathematics(text: str) -> Markup:
    """Return the text for a page, with its formulas set."""
    return Markup("").join(_pieces(text))


def _pieces(text: str) -> Iterator[Markup]:
    at = 0
    for number, match in enumerate(_FORMULA.finditer(text)):
        if number == MAX_FORMULAS:
            break
        yield escape(visible(text[at : match.start()]))
        group = match.lastgroup or "a"
        yield _set(match[group], is_block=group in "ab") or escape(visible(match[0]))
        at = match.end()
    yield escape(visible(text[at:]))


def _set(latex: str, *, is_block: bool) -> Markup | None:
    """Return a formula as MathML; None if it cannot be set, or would be more than mathematics."""
    from latex2mathml.converter import convert  # here, as most pages need none

    try:
        drawn = convert(visible(latex), display="block" if is_block else "inline")
        root = ElementTree.fromstring(drawn)
    except Exception:  # the converter fails in many ways, RecursionError and IndexError among them
        return None
    elements, attributes = _KNOWN
    for element in root.iter():
        name = element.tag.removeprefix(_NAMESPACE)
        if name == element.tag or name not in elements or not element.attrib.keys() <= attributes:
            return None
        element.tag = name
    return Markup(ElementTree.tostring(root, encoding="unicode"))
