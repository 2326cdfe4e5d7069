"""Colours, style and script of the report and its charts. Everything is inlined: a report loads nothing."""

from __future__ import annotations

from pathlib import Path

_FOLDER = Path(__file__).parent
SERIES_COLOURS = 7
"""How many series colours there are; a chart with more lines uses them again."""

# Text on its background has a contrast of 4.5 or more in both themes, series colours of 3 or more (WCAG 2.1 AA).
_LIGHT = {
    "page": "#f6f5f1",
    "surface": "#ffffff",
    "ink": "#1d2229",
    "soft": "#5a626d",
    "rule": "#dddbd3",
    "good": "#1a7048",
    "bad": "#a92f3f",
    "warn": "#8a5a00",
    "good-bg": "#e5f3ea",
    "bad-bg": "#fae9eb",
    "warn-bg": "#fbf1da",
    "s0": "#1f5fa8",
    "s1": "#b9560f",
    "s2": "#1a7f5a",
    "s3": "#8247a8",
    "s4": "#b3364a",
    "s5": "#5b6470",
    "s6": "#846a00",
}
_DARK = {
    "page": "#13151a",
    "surface": "#1b1e25",
    "ink": "#e7e9ec",
    "soft": "#a2aab5",
    "rule": "#323741",
    "good": "#7fd6a6",
    "bad": "#f3939f",
    "warn": "#e9c069",
    "good-bg": "#1b3327",
    "bad-bg": "#3a2024",
    "warn-bg": "#362c16",
    "s0": "#7db3f0",
    "s1": "#f0a46a",
    "s2": "#6fcfa4",
    "s3": "#c79bea",
    "s4": "#f08a98",
    "s5": "#a9b2bd",
    "s6": "#dcc05a",
}


def _variables(selector: str) -> str:
    def block(colours: dict[str, str]) -> str:
        return selector + "{" + "".join(f"--{name}:{value};" for name, value in colours.items()) + "}"

    return f"{block(_LIGHT)}@media (prefers-color-scheme:dark){{{block(_DARK)}}}"


_FONT = 'system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif'

_CHART_RULES = (
    f"svg.chart text{{font:12px {_FONT};fill:var(--ink)}}svg.chart .tick{{fill:var(--soft)}}"
    "svg.chart .end{text-anchor:end}svg.chart .middle{text-anchor:middle}"
    "svg.chart .heading{font-size:15px;font-weight:600}svg.chart .surface{fill:var(--surface)}"
    "svg.chart .grid{stroke:var(--rule)}svg.chart .divider{stroke:var(--soft);stroke-dasharray:2 3}"
    "svg.chart .mark{stroke:var(--warn);stroke-dasharray:1 4}"
    "svg.chart .line{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}"
    "svg.chart .faint{stroke-width:1;opacity:.35}svg.chart .band{opacity:.16;stroke:none}"
    "svg.chart .dot{stroke:var(--surface);stroke-width:1.2}"
    + "".join(
        f"svg.chart .line.s{i}{{stroke:var(--s{i})}}svg.chart .band.s{i},svg.chart .dot.s{i}{{fill:var(--s{i})}}"
        for i in range(SERIES_COLOURS)
    )
)

SVG_STYLE = _variables("svg.chart") + _CHART_RULES
"""The style of a chart that stands alone in a file."""

PAGE_STYLE = _variables(":root") + _CHART_RULES + (_FOLDER / "report.css").read_text(encoding="utf-8")
PAGE_SCRIPT = (_FOLDER / "report.js").read_text(encoding="utf-8")
"""The style and the script of reports and of the viewer."""
