"""Measures graders on our cases: what they pay although it is wrong and refuse although it is right, how often they
fail, and their speed.

    python packages/verify/benchmarks/graders/run.py my_grader.py:grade --show
    make bench-graders      all graders of adapters.py, into docs/graders.json and the tables of docs/graders.md

A grader is a function (response, gold) that returns something true or false. It runs in a process of its own and needs
nothing of this project; --python names the interpreter of another environment.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cases import GROUPS, Case, load_cases
from page import summary, tables, write_between
from process import GraderProcess, Outcome
from provenance import provenance
from referees import REFEREES, load_referees

ADAPTERS = Path(__file__).with_name("adapters.py")
HELPERS = ("last_box",)
SLOW_S = 1.0
STATES = ("raised", "hung", "crashed")


def measure(
    grader: str,
    cases: Sequence[Case],
    *,
    limit_s: float,
    python: str,
    show: bool = False,
    referees: Mapping[str, Sequence[Case]] | None = None,
) -> dict[str, Any]:
    """The counts of one grader on the cases, as they are saved; referees: cases of others, counted by their names."""
    with GraderProcess(grader, limit_s=limit_s, python=python) as process:
        outcomes = [process.grade(case.response, case.gold) for case in cases]
        seconds = process.cpu_s
        theirs = {
            name: _counts([(case, process.grade(case.response, case.gold)) for case in given], "referees")
            for name, given in (referees or {}).items()
        }
    judged = list(zip(cases, outcomes, strict=True))
    if show:
        for case, outcome in judged:
            _show(case, outcome)
    ordinary = sorted(outcome.cpu_s for case, outcome in judged if case.group != "hostile")
    return {
        "groups": {group: _counts(judged, group) for group in GROUPS},
        "policies": _policies(judged),
        "hostile": _hostile([outcome for case, outcome in judged if case.group == "hostile"]),
        "states": {state: sum(o.state == state for c, o in judged if c.group != "hostile") for state in STATES},
        "cpu_ms": {
            "p50": round(1e3 * ordinary[len(ordinary) // 2], 3),
            "p99": round(1e3 * ordinary[int(0.99 * len(ordinary))], 2),
        },
        "cpu_s": round(seconds, 1),
        "referees": theirs,
    }


def _counts(judged: Sequence[tuple[Case, Outcome]], group: str) -> dict[str, int]:
    """Cases on which all policies agree."""
    agreed = [(case, outcome.paid) for case, outcome in judged if case.group == group and case.other is None]
    return {
        "right": sum(case.right for case, _ in agreed),
        "refused": sum(case.right and not paid for case, paid in agreed),
        "wrong": sum(not case.right for case, _ in agreed),
        "paid": sum(not case.right and paid for case, paid in agreed),
    }


def _policies(judged: Sequence[tuple[Case, Outcome]]) -> dict[str, dict[str, int]]:
    """By policy: its disputed cases, and on how many the grader decides as without the policy."""
    policies: dict[str, dict[str, int]] = {}
    for case, outcome in judged:
        if case.other is not None:
            row = policies.setdefault(case.policy, {"cases": 0, "default": 0})
            row["cases"] += 1
            row["default"] += outcome.paid == case.right
    return policies


def _hostile(outcomes: Sequence[Outcome]) -> dict[str, int]:
    """clean: refused without an exception and without running the response, in at most SLOW_S of CPU time."""
    counts = {state: sum(outcome.state == state for outcome in outcomes) for state in STATES}
    counts |= {"paid": sum(o.paid for o in outcomes), "ran": sum(o.ran for o in outcomes)}
    counts["slow"] = sum(o.state == "ok" and o.cpu_s > SLOW_S for o in outcomes)
    clean = sum(o.state == "ok" and not o.paid and not o.ran and o.cpu_s <= SLOW_S for o in outcomes)
    return {"cases": len(outcomes), "clean": clean, **counts}


def _show(case: Case, outcome: Outcome) -> None:
    mistaken = case.other is None and outcome.paid != case.right
    if mistaken or outcome.state != "ok":
        did = outcome.state if outcome.state != "ok" else "paid" if outcome.paid else "refused"
        print(f"{did:8} {case.origin:32} gold {case.gold[:40]!r}: {case.response[-100:]!r}")


def adapters() -> list[str]:
    """The names of the graders in adapters.py, in their order."""
    text = ADAPTERS.read_text(encoding="utf-8")
    names = [line[4:].partition("(")[0] for line in text.splitlines() if line.startswith("def ")]
    return [name for name in names if not name.startswith("_") and name not in HELPERS]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("graders", nargs="+", help='FILE:FUNCTION, or "all" for those of adapters.py')
    parser.add_argument("--limit", type=float, default=5.0, help="CPU seconds that a case may take (default: 5)")
    parser.add_argument("--python", default=sys.executable, help="the interpreter that runs the graders")
    parser.add_argument("--show", action="store_true", help="print every mistake and failure")
    parser.add_argument("--out", type=Path, help="a JSON file that gets the counts, next to those already in it")
    parser.add_argument("--page", type=Path, help="a Markdown page that gets the tables")
    arguments = parser.parse_args()
    cases, referees = load_cases(), load_referees()
    if missing := ", ".join(name for name in REFEREES if name not in referees):
        print(f"The cases of {missing} are not installed; make bench-graders installs them.", file=sys.stderr)
    results: dict[str, Any] = {"graders": {}}
    if arguments.out is not None and arguments.out.exists() and "all" not in arguments.graders:
        results = json.loads(arguments.out.read_text(encoding="utf-8"))
    named = [each for name in arguments.graders for each in (adapters() if name == "all" else [name])]
    for grader in named:
        path = grader if ":" in grader else f"{ADAPTERS}:{grader}"
        try:
            how = {"limit_s": arguments.limit, "python": arguments.python, "show": arguments.show}
            counts = measure(path, cases, referees=referees, **how)
        except ValueError as error:
            parser.error(str(error))
        results["graders"][grader.rpartition(":")[2]] = counts
        print(summary(grader, counts), flush=True)
        if arguments.out is not None:
            record = {"cases": len(cases), "limit_s": arguments.limit, **provenance(), "graders": results["graders"]}
            arguments.out.write_text(json.dumps(record) + "\n", encoding="utf-8")
    if arguments.page is not None:
        write_between(arguments.page, "packages/verify/benchmarks/graders/run.py", tables(results["graders"]))


if __name__ == "__main__":
    main()
