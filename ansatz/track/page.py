"""Pages of reports: their frame, and templates that are filled. What others wrote is always escaped.

The page loads nothing: style, script and charts are inlined. Its content security policy allows no other script to run,
so text that a policy wrote stays text.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import html
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ansatz.track.console import duration, percent
from ansatz.track.svg import Chart, line_chart
from ansatz.track.theme import PAGE_SCRIPT, PAGE_STYLE
from ansatz.types import shown_golds
from ansatz.visible import visible

MAX_RESPONSE_CHARS = 6000
"""Of a longer response, the page shows the beginning and says how much is missing."""


def page(title: str, parts: Iterable[str]) -> str:
    """Return the whole page. parts: HTML; empty ones are left out."""
    digest = base64.b64encode(hashlib.sha256(PAGE_SCRIPT.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(visible(title))}</title>\n<style>{PAGE_STYLE}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(part for part in parts if part)
        + f"\n</main>\n<script>{PAGE_SCRIPT}</script>\n</body>\n</html>\n"
    )


def templates_of(package: str, filters: Mapping[str, Callable[..., Any]]) -> Environment:
    """Return the templates of a package, in which what is not Markup is escaped."""
    environment = Environment(
        loader=PackageLoader(package),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=show_characters,
    )
    environment.filters |= filters
    return environment


@functools.cache
def _environment() -> Environment:
    filters = {"percent": percent, "duration": duration, "golds": shown_golds, "interval": _show_interval}
    return templates_of("ansatz.track", filters)


def fill(template: str, **context: Any) -> Markup:
    """Return a template of `track/templates`, filled. What is not Markup is escaped."""
    return Markup(_environment().get_template(template).render(context))


def show_characters(value: Any) -> Any:
    """Show control characters of texts that others wrote; return everything else as it is."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _show_interval(row: Mapping[str, Any]) -> str:
    interval = row.get("pass@1_interval")
    return f"{percent(interval[0])} to {percent(interval[1])}" if interval else "-"


def both_widths(chart: Chart) -> Markup:
    """Return a wide drawing and one for a phone, so that the text stays readable. The style shows one of them."""
    wide, narrow = line_chart(chart, width=960, height=360), line_chart(chart, width=400, height=320)
    return Markup(f'<div class="wide">{wide}</div><div class="narrow">{narrow}</div>')
