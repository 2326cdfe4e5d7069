"""Cases that others wrote, from their packages where these are installed: the tests of math-verify, and reward-doctor.

Nothing of them is kept here. `make bench-graders` puts the tests of math-verify, which its wheel does not have, into
the folder `referees` of the environment.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cases import Case

DOWNLOADED = Path(sys.prefix) / "referees"


def load_referees() -> dict[str, list[Case]]:
    """Return the cases of each referee that is installed."""
    found = {name: list(cases()) for name, cases in REFEREES.items()}
    return {name: cases for name, cases in found.items() if cases}


def _math_verify() -> Iterator[Case]:
    """Yield its pairs of a gold and a prediction that is one formula, or has a box. Other predictions are sentences,
    in which not every grader looks for an answer."""
    for path in sorted(DOWNLOADED.glob("math_verify-*/tests/test_*.py")):
        for name, line, rows in _parametrized(path):
            for gold, said, right in (row for row in rows if name == "gold,pred,expected" and len(row) == 3):
                inner = str(said).strip().strip("$").strip()
                boxed = said if "\\boxed" in said else f"\\boxed{{{inner}}}" if said.strip().startswith("$") else None
                if boxed is not None and "$" not in inner:
                    yield _case(f"{path.name}:{line}", str(gold).strip().strip("$").strip(), boxed, bool(right))


def _parametrized(path: Path) -> Iterator[tuple[str, int, list[Any]]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "parametrize":
            try:
                names, rows = map(ast.literal_eval, node.args[:2])
            except ValueError:  # computed, not written down
                continue
            yield str(names).replace(" ", ""), node.lineno, [row for row in rows if isinstance(row, tuple)]


def _reward_doctor() -> Iterator[Case]:
    try:
        from reward_doctor.corpus import load  # pyright: ignore
    except ImportError:
        return
    for case in load():
        yield _case(case.id, case.reference, case.completion, case.expect)


def _case(origin: str, gold: str, response: str, right: bool) -> Case:
    return Case(origin=origin, group="referees", gold=gold, response=response, right=right)


REFEREES = {"math-verify": _math_verify, "reward-doctor": _reward_doctor}
