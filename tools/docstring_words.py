"""Prints how often docstrings use five habits of prose, per 1,000 words: `python -m tools.docstring_words`.

Projects that are pleasant to read have at most 0.1 of `that of`, 0.4 of a preposition and `which`, 1.5 of `what`, 2.5
of `has` and 8 labels (`name: fragment`). There is one row for each package of `ansatz/`, without its own subpackages,
one for `packages/verify`, and one for everything. Strings after a field or a constant count as docstrings.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent

PREPOSITIONS = "about|after|against|at|before|between|by|during|for|from|in|into|of|on|over|to|under|with|without"
HABITS = {
    "that of": r"\b(?:that|those) of\b",
    "of which": rf"\b(?:{PREPOSITIONS})\s+which\b",
    "what": r"\bwhat\b",
    "has": r"\b(?:has|have)\b",
    "label": r"[\w`)]:\s+[a-z]",
}
"""The name of each habit and its pattern, without regard to case except for labels."""


def docstrings(tree: ast.AST) -> Iterator[str]:
    """Yield every string that is a statement of its own."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value.value


def count_habits(text: str) -> Counter[str]:
    """Count the words of a text, and each habit in it."""
    counts = Counter(words=len(text.split()))
    for name, pattern in HABITS.items():
        counts[name] = len(re.findall(pattern, text, flags=0 if name == "label" else re.IGNORECASE))
    return counts


def count_by_package() -> dict[str, Counter[str]]:
    """Count the habits in the docstrings of each package; the last row is their sum."""
    counts = dict[str, Counter[str]]()
    for path in sorted([*(ROOT / "ansatz").rglob("*.py"), *(ROOT / "packages/verify/ansatz_verify").rglob("*.py")]):
        package = str(path.parent.relative_to(ROOT))
        for text in docstrings(ast.parse(path.read_text(encoding="utf-8"))):
            counts.setdefault(package, Counter()).update(count_habits(text))
    return {**counts, "everything": sum(counts.values(), Counter[str]())}


def main() -> None:
    """Print a table with one row for each package."""
    print(f"{'per 1,000 words':34}{'words':>9}", *[f"{name:>9}" for name in HABITS])
    for package, counts in count_by_package().items():
        rates = [f"{1000 * counts[name] / counts['words']:9.1f}" for name in HABITS]
        print(f"{package:34}{counts['words']:9,}", *rates)


if __name__ == "__main__":
    main()
