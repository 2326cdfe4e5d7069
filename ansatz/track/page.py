"""The parts of a report's page: its frame, tables, charts and text. What others wrote is always escaped.

The page loads nothing: style, script and charts are inlined. Its content security policy allows no other script to run,
so text that a policy wrote stays text.
"""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Iterable, Sequence

from ansatz.track.svg import Chart, line_chart
from ansatz.track.theme import PAGE_SCRIPT, PAGE_STYLE
from ansatz.types import Reason, Verdict
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
        f"<title>{text(title)}</title>\n<style>{PAGE_STYLE}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(part for part in parts if part)
        + f"\n</main>\n<script>{PAGE_SCRIPT}</script>\n</body>\n</html>\n"
    )


def text(value: object) -> str:
    """Return the value as text of the page, with its control characters visible."""
    return html.escape(visible(str(value)))


def header(kicker: str, title: str, lede: str, rest: str) -> str:
    """Return the head of the page. rest: HTML."""
    return (
        f'<header><p class="kicker">{text(kicker)}</p><h1>{text(title)}</h1><p class="lede">{text(lede)}</p>'
        f"{rest}</header>"
    )


def table(caption: str, heads: Sequence[str], lines: Sequence[str], note: str) -> str:
    """Return a table with its caption above and a note below. lines: rows as HTML."""
    head = "".join(f'<th scope="col">{text(name)}</th>' for name in heads)
    return (
        f'<h3 class="caption">{text(caption)}</h3><div class="card scroll" tabindex="0"><table><thead><tr>{head}'
        f"</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
        + (f'<p class="soft">{text(note)}</p>' if note else "")
    )


def both_widths(chart: Chart) -> str:
    """Return a wide drawing and one for a phone, so that the text stays readable. The style shows one of them."""
    wide, narrow = line_chart(chart, width=960, height=360), line_chart(chart, width=400, height=320)
    return f'<div class="wide">{wide}</div><div class="narrow">{narrow}</div>'


def question_text(question: str, answer: str) -> str:
    return f'<p class="question">{text(question)}</p><p>Gold answer: <b>{text(answer)}</b></p>'


def response_box(title: str, verdict: Verdict, note: str, body: str) -> str:
    """Return a response with its verdict. body: HTML."""
    kind = "good" if verdict.correct else "bad" if verdict.reason is Reason.DIFFERENT else "warn"
    symbol = {"good": "✓", "bad": "✗", "warn": "!"}[kind]
    answer = "" if verdict.extracted is None else f"answered {verdict.extracted}"
    return (
        f'<div class="snapshot {kind}"><header><b>{text(title)}</b>'
        f'<span class="badge {kind}">{symbol} {text(verdict.reason.value.replace("_", " "))}</span>'
        f'<span class="soft">{text(answer)}</span></header><p>{text(note)}</p>{body}</div>'
    )
