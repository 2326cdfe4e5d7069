"""The pages whose commands a test executes (`e2e/test_page_commands.py`), and how others say that none does."""

from __future__ import annotations

import re
from pathlib import Path

from toy_runs import REPOSITORY

EXECUTED = [
    REPOSITORY / "docs" / "how-to" / f"{name}.md"
    for name in ("add_a_reward", "add_a_source", "add_an_algorithm", "editor", "from_trl_or_verl", "troubleshooting")
]
MARK = re.compile(r"^<!-- No test executes the commands of this page: .{10,}?\s-->$", re.M | re.S)
BLOCK = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.S | re.M)


def shown_commands(page: Path) -> list[str]:
    """The blocks of a page that are marked as commands of a shell: what a reader is meant to type."""
    return [content for kind, content in BLOCK.findall(page.read_text(encoding="utf-8")) if kind == "sh"]
