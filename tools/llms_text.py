"""Writes llms.txt and llms-full.txt of the documentation site: its pages for programs that read text.

llms.txt (https://llmstxt.org) is the list of pages with a sentence each; llms-full.txt is all of them in one file.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
LINK = re.compile(r"\]\(([\w/.-]+)\.md(#[\w-]*)?\)")


def short_text() -> str:
    """Return llms.txt: the title and the summary of the first page, and its list of all pages."""
    front, pages = (DOCS / "README.md").read_text(encoding="utf-8").split("\n## All pages\n", 1)
    title, summary = front.split("\n\n")[:2]
    lists = re.sub(r"^\*\*([^*]+)\*\*", r"## \1", pages, flags=re.M)
    return f"{title}\n\n> {' '.join(summary.split())}\n{LINK.sub(site_link, lists)}"


def site_link(link: re.Match[str]) -> str:
    """Return the link to the page of the site instead of its source."""
    page = re.sub(r"(^|/)README$", r"\1index", link[1])
    return f"]({page}.html{link[2] or ''})"


def full_text(pages: Sequence[Path]) -> str:
    """Return the pages one after the other, each under the name of its file."""
    parts = [f"<!-- {page.relative_to(DOCS)} -->\n\n{page.read_text(encoding='utf-8')}" for page in pages]
    return "\n\n".join(parts)


def write(site: Path) -> None:
    """Write both files into the folder of the site."""
    (site / "llms.txt").write_text(short_text(), encoding="utf-8")
    (site / "llms-full.txt").write_text(full_text(sorted(DOCS.rglob("*.md"))), encoding="utf-8")
