"""Prints the number of words in pages that people write: `python -m tools.page_words`.

Not counted are the log, pages that a program writes as a whole (they say so in their first lines, or are the page of a
sweep), and the parts of pages between `<!-- ... written by ... -->` and `<!-- end ... -->`.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOR_USERS = {
    "README.md",
    "docs/quickstart.md",
    "docs/how-to/your_model_one_gpu.md",
    "docs/how-to/troubleshooting.md",
    "docs/viewer.md",
    "docs/evaluation.md",
    "docs/how-to/from_trl_or_verl.md",
    "docs/how-to/sweep_a_key.md",
}
"""What a user reads first. The ninth page is the top of the recipe keys, which a program writes."""

_BY_PROGRAM = re.compile(r"generated .*by `make docs`|Made by `")
_PART = re.compile(r"<!-- (?:.*written by |from ).*?-->.*?<!-- end.*?-->", flags=re.DOTALL)


def words_by_hand(page: Path) -> int:
    """Count the words of a page outside the parts that a program writes; 0 if it writes all of it."""
    text = page.read_text(encoding="utf-8")
    is_log = page.is_relative_to(ROOT / "notes" / "log")
    if is_log or page.with_suffix(".jsonl").is_file() or _BY_PROGRAM.search(" ".join(text.splitlines()[:8])):
        return 0
    return len(_PART.sub("", text).split())


def pages() -> Iterator[tuple[str, int]]:
    """Yield (path, words) of every page in the repository."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in sorted(set(listed.stdout.split())):
        if (ROOT / name).is_file():
            yield name, words_by_hand(ROOT / name)


def main() -> None:
    """Print the words of each page, and the sums."""
    counted = {name: words for name, words in pages() if words}
    for name, words in sorted(counted.items(), key=lambda each: each[1]):
        print(f"{words:7,} {name}")
    print(f"{sum(words for name, words in counted.items() if name in FOR_USERS):7,} in the pages for users")
    print(f"{sum(counted.values()):7,} words by hand")


if __name__ == "__main__":
    main()
