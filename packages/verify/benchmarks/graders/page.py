"""The tables of docs/graders.md, from the counts in docs/graders.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cases import GROUPS

COMPARED = ("ansatz_anchored", "math_verify", "trl_accuracy", "mathruler", "verl_math")
"""The graders in the table of policies, which has no room for all."""
Counts = Mapping[str, Any]


def totals(counts: Counts) -> dict[str, int]:
    """Over all groups: right and wrong cases, and how many were refused and paid."""
    return {
        key: sum(group[key] for group in counts["groups"].values()) for key in ("right", "refused", "wrong", "paid")
    }


def summary(name: str, counts: Counts) -> str:
    """One line for the console."""
    all_, hostile, states = totals(counts), counts["hostile"], counts["states"]
    failed = ", ".join(f"{state} {number}" for state, number in states.items())
    return (
        f"{name}: pays {all_['paid']} of {all_['wrong']} wrong answers, refuses {all_['refused']} of {all_['right']} "
        f"right ones; {failed}; hostile inputs clean {hostile['clean']} of {hostile['cases']}; "
        f"CPU p50 {counts['cpu_ms']['p50']} ms, p99 {counts['cpu_ms']['p99']} ms, all {counts['cpu_s']} s"
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Markdown; all columns but the first are aligned to the right."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def tables(graders: Mapping[str, Counts]) -> str:
    """Both kinds of mistakes, failures and speed; mistakes by group; policies; one row per grader or policy."""
    return "\n\n".join(
        [
            _overview(graders),
            "Wrong answers that were paid, by group:",
            _by_group(graders, "wrong", "paid"),
            "Right answers that were refused, by group:",
            _by_group(graders, "right", "refused"),
            "Cases that others wrote: wrong answers that were paid, and right answers that were refused:",
            _referees(graders),
            "Hostile inputs, and what happened to those that were not refused at once:",
            _hostile(graders),
            "Disputed cases that are decided as by our defaults:",
            _policies(graders),
        ]
    )


def _overview(graders: Mapping[str, Counts]) -> str:
    rows: list[list[str]] = []
    for name, counts in graders.items():
        all_ = totals(counts)
        right = 1 - (all_["refused"] + all_["paid"]) / (all_["right"] + all_["wrong"])
        failures = [str(counts["states"][state]) for state in ("raised", "hung", "crashed")]
        speed = [f"{counts['cpu_ms']['p50']:.2f}", f"{counts['cpu_ms']['p99']:.1f}", f"{counts['cpu_s']:.0f}"]
        mistakes = [f"{all_['paid']} of {all_['wrong']}", f"{all_['refused']} of {all_['right']}"]
        rows.append([f"`{name}`", f"{100 * right:.1f} %", *mistakes, *failures, *speed])
    head = "grader, right, wrong paid, right refused, raised, hung, crashed, p50 ms, p99 ms, all s"
    return table(head.split(", "), rows)


def _by_group(graders: Mapping[str, Counts], of: str, mistake: str) -> str:
    first = next(iter(graders.values()))["groups"]
    groups = [group for group in GROUPS if first[group][of]]
    rows = [[f"`{n}`", *(str(c["groups"][group][mistake]) for group in groups)] for n, c in graders.items()]
    return table(["grader", *groups], [["(all cases)", *(str(first[group][of]) for group in groups)], *rows])


def _referees(graders: Mapping[str, Counts]) -> str:
    names = list(next(iter(graders.values()))["referees"])
    head = [name.removesuffix("'s tests") + f": {kind}" for name in names for kind in ("paid", "refused")]
    rows = [
        [
            f"`{grader}`",
            *(f"{counts['referees'][name][a]} of {counts['referees'][name][b]}" for name in names for a, b in _KINDS),
        ]
        for grader, counts in graders.items()
    ]
    return table(["grader", *head], rows)


_KINDS = (("paid", "wrong"), ("refused", "right"))


def _hostile(graders: Mapping[str, Counts]) -> str:
    keys = ("clean", "paid", "slow", "raised", "hung", "crashed", "ran")
    head = ["grader", f"clean of {next(iter(graders.values()))['hostile']['cases']}", *keys[1:-1], "ran the response"]
    return table(
        head, [[f"`{name}`", *(str(counts["hostile"][key]) for key in keys)] for name, counts in graders.items()]
    )


def _policies(graders: Mapping[str, Counts]) -> str:
    compared = {name: counts["policies"] for name, counts in graders.items() if name in COMPARED}
    first = next(iter(compared.values()), {})
    head = ["policy", "cases", *compared]
    rows = [
        [f"`{policy}`", str(row["cases"]), *(str(each[policy]["default"]) for each in compared.values())]
        for policy, row in first.items()
    ]
    return table(head, rows)


def write_between(page: Path, script: str, text: str) -> None:
    """Replace what is between the page's two marks for that script."""
    start, end = f"<!-- written by {script} -->", f"<!-- end of {script} -->"
    head, _, rest = page.read_text(encoding="utf-8").partition(start)
    page.write_text(f"{head}{start}\n\n{text}\n\n{end}{rest.partition(end)[2]}", encoding="utf-8")
