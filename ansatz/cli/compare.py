"""`ansatz compare A B...`: evaluations of the same problems, compared with the first, problem by problem."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from ansatz.cli.outputs import check_outputs
from ansatz.errors import ConfigError
from ansatz.files import check_ordinary_files, write_text


def compare(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="A B...",
            help="Runs, of which the last evaluation counts, folders that `ansatz eval` wrote, or the responses of one "
            "evaluation of a run (STAGE/evaluations/SPLIT-STEP.jsonl). Each is compared with the first.",
        ),
    ],
    mode: Annotated[
        str,
        typer.Option(
            help="The verdict that counts: strict, anchored or last_number, or reward for runs; by default the first "
            "that A has."
        ),
    ] = "",
    num_changed: Annotated[int, typer.Option(min=0, help="Show the N problems that changed most.")] = 10,
    out: Annotated[Path | None, typer.Option(help="JSON file to write the numbers to.")] = None,
) -> None:
    """Say whether B is better than A beyond chance, also by level and subject, and list the problems that changed.

    The p-value comes from an exact sign test on the problems that differ; the interval is a bootstrap of the paired
    differences.
    """
    if len(paths) < 2:
        raise ConfigError(f"{paths[0]} alone: a comparison needs two. Give another run or evaluation too.")
    for path in paths:
        check_ordinary_files(path)
    check_outputs([out], inputs=paths)
    from ansatz.evaluate.comparisons import compare_sides

    found = compare_sides(paths, mode=mode, num_changed=num_changed)
    if out is not None:
        numbers = found[0] if len(found) == 1 else {"comparisons": found}
        write_text(out, json.dumps(numbers, indent=2, ensure_ascii=False) + "\n")

    from ansatz.track.console import SafeConsole

    console = SafeConsole()
    for numbers in found:
        for part in _tables(numbers):
            console.print(part)


def _tables(numbers: Mapping[str, Any]) -> list[Any]:
    if "missing" in numbers:
        return [_tabulate_logged(numbers), "", *numbers["recipes"], "", *numbers["missing"], ""]
    from ansatz.evaluate.comparisons import conclusion

    warnings = [f"Besides the model, this differs: {warning}" for warning in numbers["warnings"]]
    changed = [_tabulate_changed(numbers["changed"])] if numbers["changed"] else []
    return [_tabulate_scores(numbers), "", *numbers["recipes"], f"\n{conclusion(numbers)}", *warnings, "", *changed]


def _tabulate_scores(numbers: Mapping[str, Any]) -> Any:
    from ansatz.cli.eval_tables import make_table

    title = f"A {numbers['folder_a']}\nB {numbers['folder_b']}\npass@1 ({numbers['mode']}), %"
    table = make_table(title, ("", "problems", "A", "B", "B - A [95 %]", "better A", "better B", "p"))
    for name, row in {"all": numbers, **numbers["by_level"], **numbers["by_subject"]}.items():
        low, high = (f"{100 * end:+.1f}" for end in row["difference_interval"])
        table.add_row(
            name,
            str(row["num_problems"]),
            f"{100 * row['a']:.1f}",
            f"{100 * row['b']:.1f}",
            f"{100 * row['difference']:+.1f} [{low}, {high}]",
            str(row["wins_a"]),
            str(row["wins_b"]),
            f"{row['p_value']:.3f}",
        )
    return table


def _tabulate_logged(numbers: Mapping[str, Any]) -> Any:
    """Return the scores that the runs logged, side by side. A folder of `ansatz eval` has no such row."""
    from ansatz.cli.eval_tables import make_table

    table = make_table("pass@1, as logged, %", ("", "problems", "pass@1 [95 %]"), overflow="fold")
    for name, row in zip((numbers["folder_a"], numbers["folder_b"]), numbers["rows"], strict=True):
        score = f"{100 * row['pass@1']:.1f}" if row and row["pass@1"] is not None else "-"
        if interval := row.get("pass@1_interval"):
            score += " [{}, {}]".format(*(f"{100 * end:.1f}" for end in interval))
        table.add_row(name, str(row.get("num_problems", "-")), score)
    return table


def _tabulate_changed(rows: list[Mapping[str, Any]]) -> Any:
    from ansatz.cli.eval_tables import make_table

    heads = ("problem", "A", "B", "question")
    table = make_table("Problems that changed most", heads, left=heads)
    for row in rows:
        question = row["question"] if len(row["question"]) <= 60 else f"{row['question'][:57]}..."
        table.add_row(row["id"], f"{row['a']:.2f}", f"{row['b']:.2f}", question)
    return table
