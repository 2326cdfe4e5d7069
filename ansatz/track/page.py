"""Pages from templates, for the viewer and for files of their own. Text that others wrote is always escaped.

A page in a file loads nothing: style, script and charts are inlined. Its content security policy allows no other script
to run, so text that a policy wrote stays text. Templates ask `static` whether the page is a file, which has no links.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ansatz.track.console import duration, percent
from ansatz.track.mathematics import cut_before_formula, has_mathematics, set_answer, set_golds, set_mathematics
from ansatz.track.svg import Chart, line_chart
from ansatz.track.theme import PAGE_SCRIPT, PAGE_STYLE
from ansatz.track.word_diff import count_common, word_diff
from ansatz.visible import visible

MAX_FORMULAS_OF_GROUP = 1000
"""Formulas of a page that shows one group, besides those that its responses share: to set one takes about 0.4 ms."""
_DIGEST = base64.b64encode(hashlib.sha256(PAGE_SCRIPT.encode()).digest()).decode()
_STATIC = {
    "static": True,
    "policy": f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{_DIGEST}'",
    "style": Markup(PAGE_STYLE),
    "script": Markup(PAGE_SCRIPT),
}


def open_templates(*packages: str) -> Environment:
    """Return the templates of this package and of others for pages that are served. All text but Markup is escaped."""
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package) for package in (*packages, "ansatz.track")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_show_characters,
    )
    environment.filters |= {
        "percent": percent,
        "duration": duration,
        "golds": set_golds,
        "answer": set_answer,
        "interval": _show_interval,
        "draw": lambda chart: Markup(line_chart(chart)),
        "draw_wide": _draw_wide,
        "mathematics": set_mathematics,
        "path": lambda text: quote(text, safe="/"),
        "query": lambda text: quote(text, safe=""),
    }
    environment.tests["mathematics"] = has_mathematics
    environment.globals |= {"static": False, "max_formulas": MAX_FORMULAS_OF_GROUP}
    environment.globals |= {"word_diff": word_diff, "count_shared": _count_shared}
    return environment


@functools.cache
def _static_templates() -> Environment:
    environment = open_templates()
    environment.globals |= _STATIC
    return environment


def fill(template: str, **context: Any) -> str:
    """Return a page in one file."""
    return _static_templates().get_template(template).render(context)


def _show_characters(value: Any) -> Any:
    """Show control characters of texts that others wrote; return everything else as it is."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _show_interval(row: Mapping[str, Any]) -> str:
    interval = row.get("pass@1_interval")
    return f"{percent(interval[0])} to {percent(interval[1])}" if interval else "-"


def _count_shared(rows: Sequence[Mapping[str, Any]]) -> int:
    """Return with how many characters all responses begin, up to a formula that differs; 0 for a single one."""
    texts = [row["text"] for row in rows]
    shared = count_common(min(texts), max(texts)) if len(texts) > 1 else 0
    return min(cut_before_formula(text, shared) for text in texts)


def _draw_wide(chart: Chart) -> Markup:
    """Return a wide drawing and one for a phone, so that the text stays readable. The style shows one of them. Nothing
    of a chart without a point."""
    if not any(each.points for each in chart.series):
        return Markup("")
    wide, narrow = line_chart(chart, width=960, height=360), line_chart(chart, width=400, height=320)
    return Markup(f'<div class="wide">{wide}</div><div class="narrow">{narrow}</div>')
