"""The tables of docs/how-to/add_an_algorithm.md: the inputs that a component of each kind can have.

python -m tools.component_inputs
"""

from __future__ import annotations

from ansatz.objectives.components import INPUTS, INPUTS_OF
from tools.pages import DOCS, replace_part

PAGE = DOCS / "how-to" / "add_an_algorithm.md"
BEGIN = "<!-- from ansatz/objectives/components.py, by make docs -->"


def tables() -> str:
    """One table for each kind, in the order of `INPUTS_OF`."""
    lines: list[str] = []
    for kind, names in INPUTS_OF.items():
        lines += [f"| input of `{kind}` | what it is |", "|---|---|"]
        lines += [f"| `{name}` | {INPUTS[name]} |" for name in names]
        lines.append("")
    return "\n".join(lines)


def page() -> str:
    """The page with current tables between its two marks."""
    return replace_part(PAGE, BEGIN, tables())


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
