"""Style and script of pages and charts. theme.css has the colours and the rules of charts, page.css everything else.

In theme.css, text on its background has a contrast of 4.5 or more in both themes, series colours of 3 or more (WCAG
2.1 AA).
"""

from __future__ import annotations

from pathlib import Path

SERIES_COLOURS = 7
"""How many series colours there are; a chart with more lines uses them again."""

_THEME, _PAGE, PAGE_SCRIPT = (
    (Path(__file__).parent / name).read_text(encoding="utf-8") for name in ("theme.css", "page.css", "page.js")
)
PAGE_STYLE = _THEME + _PAGE
"""The style of pages, whether the viewer serves them or they are files. PAGE_SCRIPT is the script of both."""
SVG_STYLE = _THEME.replace("\n", "").replace(":root", "svg.chart")
"""The style of a chart that stands alone in a file."""
