"""The table of docs/stability.md: every renamed recipe key and option, with its new name.

python -m tools.renamed_names
"""

from __future__ import annotations

from ansatz.config.renamed import OPTIONS, RECIPE_KEYS
from tools.pages import DOCS, replace_part

PAGE = DOCS / "stability.md"
BEGIN = "<!-- from ansatz/config/renamed.py, by make docs -->"


def table() -> str:
    """Return one row for each recipe key, then one for each option of each verb."""
    rows = [f"| `{old}` | `{new}` |" for old, new in sorted(RECIPE_KEYS.items())]
    for verbs, options in sorted(OPTIONS.items()):
        verb = " ".join(("ansatz", *verbs))
        rows += [f"| `{verb} {old}` | `{new}` |" for old, new in options.items()]
    return "\n".join(["| before | now |", "|---|---|", *rows, ""])


def page() -> str:
    """Return the page with the current table."""
    return replace_part(PAGE, BEGIN, table())


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
